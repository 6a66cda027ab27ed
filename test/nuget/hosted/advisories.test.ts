import test, { type ExecutionContext } from 'ava';
import {
  advisoriesChangedAt,
  advisoriesOf,
  createAdvisory,
  deleteAdvisory,
  listAdvisories,
  removeAdvisories,
} from '../../../src/nuget/hosted/advisories.ts';
import type { FeedContext } from '../../../src/nuget/hosted/feed-context.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

const account = 1;
const given = { packageId: 'lib', versions: '[1.0.0, 2.0.0)', severity: 2, url: 'https://example.com/a' };

/** An account with the packages `Other` and `Lib`; `clock.now` is its time. */
async function feedWithPackage(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    for (const id of ['Other', 'Lib'])
      await tx.run(
        `INSERT INTO packages (account_id, package_key, package_id, version_count, standing, metadata_bytes, created_at,
           updated_at) VALUES (?, ?, ?, 1, 0, 5000, 0, 0)`,
        [account, id.toLowerCase(), id],
      );
  });
  const clock = { now: 100 };
  const packageOf = async (key = 'lib') =>
    (await database.get<{ id: number; bytes: number; revision: number; updated_at: number }>(
      'SELECT id, metadata_bytes AS bytes, revision, updated_at FROM packages WHERE package_key = ?',
      [key],
    ))!;
  return { context: { database, now: () => clock.now } as FeedContext, database, clock, packageOf };
}

test('an advisory is counted in the bytes of its package, which has a new revision', async (t) => {
  const { context, packageOf, clock } = await feedWithPackage(t);
  const [before, other] = [await packageOf(), await packageOf('other')];
  const { id, packageId } = await createAdvisory(context, account, given);
  t.is(packageId, 'Lib');
  const { bytes, revision, updated_at: updatedAt } = await packageOf();
  t.true(bytes - before.bytes >= given.url.length + given.versions.length);
  t.deepEqual([revision, updatedAt], [before.revision + 1, 100]);
  clock.now = 200;
  await deleteAdvisory(context, account, id);
  t.deepEqual(await packageOf(), { ...before, revision: before.revision + 2, updated_at: 200 });
  t.deepEqual(await packageOf('other'), other);
});

test('the time of each change of advisories is later, also after the clock was set back', async (t) => {
  const { context, database, clock } = await feedWithPackage(t);
  const changedAt = () => advisoriesChangedAt(database, account);
  t.is(await changedAt(), undefined);
  const first = await createAdvisory(context, account, given);
  t.deepEqual([first.createdAt, await changedAt()], [100, 100]);
  t.is(await advisoriesChangedAt(database, account + 1), undefined);
  clock.now = 50;
  const second = await createAdvisory(context, account, { ...given, versions: '[3.0.0]' });
  t.deepEqual([second.createdAt, await changedAt()], [101, 101]);
  clock.now = 101;
  await deleteAdvisory(context, account, first.id);
  t.is(await changedAt(), 102);
  clock.now = 500;
  await deleteAdvisory(context, account, second.id);
  t.is(await changedAt(), 500);
});

test('the bytes of the advisories of a package are at least those that a version shows of them', async (t) => {
  const { context, database } = await feedWithPackage(t);
  const none = await advisoriesOf(database, account, 'Lib');
  t.deepEqual([none.bytes, none.of('1.0.0')], [0, undefined]);
  await createAdvisory(context, account, given);
  await createAdvisory(context, account, { ...given, versions: '[1.5.0]', severity: 0 });
  const both = await advisoriesOf(database, account, 'LIB');
  const shown = both.of('1.5.0')!;
  t.deepEqual(shown, [
    { advisoryUrl: given.url, severity: '2' },
    { advisoryUrl: given.url, severity: '0' },
  ]);
  t.true(both.bytes >= JSON.stringify(shown).length - 2 * '{"":"","":""}'.length);
  t.is(both.of('2.0.0'), undefined);
  t.is((await advisoriesOf(database, account, 'other')).of('1.5.0'), undefined);
});

test('the same address can be reported for another range, and not twice for one', async (t) => {
  const { context, database } = await feedWithPackage(t);
  await createAdvisory(context, account, given);
  await createAdvisory(context, account, { ...given, versions: '[3.0.0]' });
  await createAdvisory(context, account, { ...given, url: 'https://example.com/b' });
  for (const each of [given, { ...given, packageId: 'LIB' }, { ...given, severity: 0 }])
    await t.throwsAsync(createAdvisory(context, account, each), { name: 'AlreadyExists' });
  t.is((await createAdvisory(context, account, { ...given, packageId: 'other' })).packageId, 'Other');
  const listed = await listAdvisories(database, account, 2, undefined);
  t.is(listed.length, 2);
  const [, { createdAt, id }] = listed as [object, (typeof listed)[number]];
  t.is((await listAdvisories(database, account, 10, [createdAt, id])).length, 2);
  t.deepEqual(await listAdvisories(database, account + 1, 10, undefined), []);
  await t.throwsAsync(deleteAdvisory(context, account + 1, id), { name: 'NotFound' });
});

test('a released package loses its advisories, and others keep theirs', async (t) => {
  const { context, database, packageOf, clock } = await feedWithPackage(t);
  const remove = async (key: string) => {
    const { id } = await packageOf(key);
    await database.transaction((tx) => removeAdvisories(tx, account, id, clock.now));
  };
  await remove('lib');
  t.is(await advisoriesChangedAt(database, account), undefined);
  await createAdvisory(context, account, given);
  const kept = await createAdvisory(context, account, { ...given, packageId: 'other' });
  clock.now = 300;
  await remove('lib');
  t.is(await advisoriesChangedAt(database, account), 300);
  t.deepEqual(await listAdvisories(database, account, 10, undefined), [kept]);
  await deleteAdvisory(context, account, (await createAdvisory(context, account, given)).id);
  t.deepEqual(await listAdvisories(database, account, 10, undefined), [kept]);
});

test('an address is one of the web, and not too long as it is stored', async (t) => {
  const { context } = await feedWithPackage(t);
  const create = (url: string) => createAdvisory(context, account, { ...given, url });
  const start = 'https://example.com/';
  t.is((await create(start.padEnd(500, 'x'))).url.length, 500);
  t.is((await create('http://EXAMPLE.com')).url, 'http://example.com/');
  for (const url of [
    start.padEnd(501, 'x'),
    `${start}${'ü'.repeat(100)}`,
    'xhttps://example.com/',
    'httpsx://example.com/',
    'https://me@example.com/',
    'https://:secret@example.com/',
    'example.com',
  ])
    await t.throwsAsync(create(url), { name: 'Invalid' }, url);
});
