import test from 'ava';
import { Names } from '../../src/accounts/names.ts';
import type { OperationCall } from '../../src/api/framework/operation.ts';
import { heldOperations } from '../../src/api/policy/held.ts';
import type { HeldPlace, HeldReferences } from '../../src/policy/held.ts';

// How what policies refuse is listed. test/policy/held.test.ts has the lists.

type Query = Parameters<HeldReferences['list']>[1];

const reference = {
  kind: 'package',
  name: 'lib',
  reference: '2.0.0',
  upstream: 'nuget.org',
  isBelowVisible: true,
  decision: { verdict: 'hold', layer: { scope: 'all' }, rule: 'age', reason: 'too young', until: 5000, evidence: [] },
};

function open({ next, refusals = [] }: { next?: HeldPlace; refusals?: object[] } = {}) {
  const asked: Query[] = [];
  const filters: unknown[] = [];
  const operations = heldOperations(
    {
      list: (_account: number, query: Query) => {
        asked.push(query);
        return Promise.resolve({ items: [reference], next });
      },
    } as never,
    {
      byToken: (...given: unknown[]) => {
        filters.push(given);
        return Promise.resolve(refusals);
      },
    } as never,
    {
      get: (account: number, id: string) => Promise.resolve(id === 'gone' ? undefined : { name: `${account} ${id}` }),
    } as never,
  );
  const run = async (id: string, query: object = {}, principal: object = {}): Promise<Record<string, any>> => {
    const found = operations.find((each) => each.id === id)!;
    return found.run({
      principal: { kind: 'token', accountId: 7, scopes: new Set(['read', 'operate']), personId: null, ...principal },
      query: found.query!.parse(query),
    } as unknown as OperationCall<never, never>) as never;
  };
  return { run, asked, filters };
}

/** What `byToken` tells of a token. */
const refusal = (tokenId: string | null, count: number) => ({
  rank: [count, tokenId ?? ''],
  item: { tokenId, count, names: 2, lastAt: 1000 },
});

test('a held version is listed with the decision about it, and where the next page begins', async (t) => {
  const place: HeldPlace = { done: [5, 'entry'], entry: 'next', reference: '1.0.0' };
  const { run, asked } = open({ next: place });
  const { items, next_cursor: cursor } = await run('listHeld', { limit: '3', kind: 'package' });
  const { decision: _decision, isBelowVisible: _below, ...shown } = reference;
  t.like(items[0], {
    ...shown,
    verdict: 'hold',
    layer: 'all',
    rule: 'age',
    list: null,
    reason: 'too young',
    until: '1970-01-01T00:00:05.000Z',
    evidence: [],
    below_visible: true,
  });
  t.like(asked[0], { limit: 3, after: undefined, kind: 'package' });
  await run('listHeld', { cursor: cursor as string });
  t.deepEqual(asked[1]!.after, place);
  t.is((await open().run('listHeld'))['next_cursor'], null);
  const before = open({ next: { done: undefined, entry: '', reference: '' } });
  await before.run('listHeld', { cursor: (await before.run('listHeld'))['next_cursor'] as string });
  t.deepEqual(before.asked[1]!.after, { done: undefined, entry: '', reference: '' });
  await t.throwsAsync(run('listHeld', { cursor: 'x' }), { name: 'Invalid' });
});

test('only names are listed that contain the text, and that the token may use', async (t) => {
  const { run, asked } = open();
  await run('listHeld', { q: 'LI' });
  const names = new Names({ packages: ['lib*'] });
  await run('listHeld', {}, { names });
  await t.throwsAsync(run('listHeld', {}, { scopes: new Set(['operate']) }), { name: 'ScopeMissing' });
  const wanted = asked.map(({ isWanted }) => [
    isWanted('package', 'lib'),
    isWanted('package', 'other'),
    isWanted('container', 'lib'),
  ]);
  t.deepEqual(wanted, [
    [true, false, true],
    [true, false, false],
  ]);
});

test('tokens whose requests are refused are listed by their names, if they still have one', async (t) => {
  const { run, filters } = open({ refusals: [refusal('ci', 9), refusal('gone', 5), refusal(null, 1)] });
  const { items, next_cursor: cursor } = await run('listRefusals', { limit: '2' });
  const shown = { names: 2, last_at: '1970-01-01T00:00:01.000Z' };
  t.deepEqual(items, [
    { ...shown, token_id: 'ci', token_name: '7 ci', count: 9 },
    { ...shown, token_id: 'gone', token_name: null, count: 5 },
  ]);
  t.is(typeof cursor, 'string');
  t.deepEqual(filters, [[{ accountId: 7, code: 'Denied' }, 3, undefined]]);
  const all = await run('listRefusals');
  t.deepEqual([all['items'][2].token_id, all['items'][2].token_name, all['next_cursor']], [null, null, null]);
});
