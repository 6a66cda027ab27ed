import test, { type ExecutionContext } from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import { tellsPrivateId } from '../../../src/nuget/search/private-words.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

/** Whether a text tells a private id of account 1, which hosts `ids`, when account 2 hosts `others`. */
async function tellerOf(t: ExecutionContext, ids: readonly string[], others: readonly string[] = []) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const rows = [...ids.map((id) => [1, id] as const), ...others.map((id) => [2, id] as const)];
  await database.transaction(async (tx) => {
    for (const [account, id] of rows)
      await tx.run(
        `INSERT INTO packages (account_id, package_key, package_id, standing, created_at, updated_at)
         VALUES (?, ?, ?, 0, 0, 0)`,
        [account, id.toLowerCase(), id],
      );
  });
  const policy = new UpstreamPolicy([], undefined, ['Reserved.Name.*'], ['Merged.*']);
  return (text: string, those?: Parameters<typeof tellsPrivateId>[4]) =>
    tellsPrivateId(database, policy, 1, text, those);
}

test('a word tells a private id that it is, extends or begins', async (t) => {
  const tells = await tellerOf(t, ['Contoso.Billing', 'Lib', 'Merged.Own'], ['Fabrikam.Secret']);
  for (const text of [
    'Contoso.Billing',
    'id:contoso.billing',
    'tools (CONTOSO.BILLING.)',
    '-_contoso.billing..',
    'contoso.billing.core.more',
    'contoso.bill',
    'contoso.bill--',
    'lib.more',
    'lib',
    'reserved.name.x',
    'reserved.na',
  ])
    t.true(await tells(text), text);
  for (const text of [
    '',
    '. - _',
    'contoso',
    'contoso.',
    'billing',
    'li',
    'libs',
    'contoso.billingx',
    'merged.own',
    'merged.own.more',
    'merged.o',
    'fabrikam.secret',
    'fabrikam.se',
    'reserved',
    'other.x',
  ])
    t.false(await tells(text), text);
});

const words = (count: number) => Array.from({ length: count }, (_, index) => `w${index}`).join(' ');

test('a text that costs too many look-ups is taken as private', async (t) => {
  const tells = await tellerOf(t, []);
  t.false(await tells(words(32)));
  t.true(await tells(words(33)));
  t.false(await tells(`${words(32)} w0 !`));
  t.false(await tells('x'.repeat(1000)));
  t.true(await tells('x'.repeat(1001)));
});

test('only the ids that a reader may see count, of beginnings perhaps fewer', async (t) => {
  const tells = await tellerOf(t, ['Contoso.Billing', 'Contoso.Shared']);
  const [shared, none] = [new NameSet(['contoso.shared']), new NameSet([])];
  t.true(await tells('contoso.shared', { only: shared }));
  t.true(await tells('contoso.sha', { only: shared }));
  t.false(await tells('contoso.billing', { only: shared }));
  t.false(await tells('contoso.bill', { only: shared }));
  t.true(await tells('contoso.billing', { begun: none }));
  t.false(await tells('contoso.bill', { begun: none }));
  t.true(await tells('contoso.sha', { begun: shared }));
});

test('a beginning of 200 merged ids is taken as private, because there may be more', async (t) => {
  const ids = Array.from({ length: 200 }, (_, index) => `Merged.Id${index}`);
  t.true(await (await tellerOf(t, ids))('merged.id'));
  t.false(await (await tellerOf(t, ids.slice(1)))('merged.id'));
});
