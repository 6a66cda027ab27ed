import test from 'ava';
import type { Operation } from '../../../src/api/framework/operation.ts';
import type { Database } from '../../../src/database/database.ts';
import type { ImageList, RepositorySummary } from '../../../src/oci/catalog/repository.ts';
import { imageOperations } from '../../../src/oci/operations/detail-operations.ts';
import { containerOperations } from '../../../src/oci/operations/management.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import type { Digest } from '../../../src/runtime/digest.ts';

// What the operations about images ask of lists and repositories, and what they answer.

const digests = Array.from({ length: 4 }, (_, index) => `sha256:${'a'.repeat(63)}${index}` as Digest);
const [one, two, three] = digests as [Digest, Digest, Digest];
const principal = { accountId: 1, kind: 'token', scopes: new Set(['read', 'delete']) };
const operator = { ...principal, scopes: new Set(['read', 'delete', 'operate']) };

/** No downloads are written. */
const database = {
  select: () => Promise.resolve([]),
} as unknown as Database;

/** Runs an operation with a query as a client sends it. */
async function run(
  operations: readonly Operation[],
  id: string,
  params: object,
  query: object = {},
  who: object = principal,
) {
  const found = operations.find((each) => each.id === id)!;
  const call = { principal: who, owner: 1, params, query: found.query?.parse(query) ?? {}, body: undefined };
  return (await found.run(call as never)) as Record<string, unknown>;
}

/** Operations on one repository; `calls` has what was asked of it. */
function images(at: object, failure?: Error) {
  const calls: unknown[] = [];
  const note = (name: string, found: unknown) =>
    typeof found === 'function'
      ? (...given: unknown[]) => {
          calls.push([name, ...given.filter((each) => typeof each !== 'function')]);
          return (found as (...values: unknown[]) => unknown)(...given);
        }
      : found;
  const repository = Object.fromEntries(Object.entries(at).map(([name, found]) => [name, note(name, found)]));
  const stored = {
    locate: (_who: object, name: string, action?: string) => {
      calls.push(['locate', name, ...(action === undefined ? [] : [action])]);
      return failure ? Promise.reject(failure) : Promise.resolve(repository);
    },
    tags: (_at: object, ...given: unknown[]) => (repository['tags'] as (...values: unknown[]) => unknown)(...given),
    digestOf: (_at: object, reference: string) => {
      calls.push(['digest of', reference]);
      return Promise.resolve(one);
    },
  };
  return { operations: imageOperations(stored as never, { database, now: () => 5 }), calls };
}

const tag = (name: string, more: object = {}) => ({
  key: [`key of ${name}`, name],
  name,
  digest: one,
  updatedAt: 0,
  lastPulledAt: null,
  ...more,
});

test('tags are asked for as the query says, and shown without their place in the list', async (t) => {
  const rows = [tag('v1', { platforms: ['linux/amd64'] }), tag('v2', { platforms: undefined }), tag('v3')];
  const { operations, calls } = images({
    tags: (_query: object, limit: number) => Promise.resolve(rows.slice(0, limit)),
  });
  const path = { name: 'team/app' };
  const shown = { digest: one, updated_at: '1970-01-01T00:00:00.000Z', last_pulled_at: null };
  t.deepEqual(await run(operations, 'listTags', path), {
    items: [
      { ...shown, name: 'v1', platforms: ['linux/amd64'] },
      { ...shown, name: 'v2', platforms: null },
      { ...shown, name: 'v3', platforms: null },
    ],
    next_cursor: null,
  });
  t.deepEqual(calls.splice(0), [
    ['locate', 'team/app'],
    ['tags', { text: '', order: 'asc', hidesAttached: false }, 51, undefined],
  ]);
  const page = await run(operations, 'listTags', path, { limit: '2', q: 'V', attached: '0', order: 'desc' });
  t.is((page['items'] as object[]).length, 2);
  t.deepEqual(calls.splice(0)[1], ['tags', { text: 'v', order: 'desc', hidesAttached: true }, 3, undefined]);
  const cursor = page['next_cursor'];
  await run(operations, 'listTags', path, { order: 'desc', cursor });
  t.deepEqual((calls.splice(0)[1] as unknown[]).slice(2), [51, ['key of v2', 'v2']]);
  await t.throwsAsync(run(operations, 'listTags', path, { order: 'asc', cursor }), { name: 'Invalid' });
  await t.throwsAsync(run(operations, 'listTags', path, { order: 'newest', cursor }), { name: 'Invalid' });
});

for (const order of ['newest', 'oldest', 'size', 'pulls']) {
  test(`a list of tags goes on after a number with the order ${order}`, async (t) => {
    const rows = [tag('v1', { key: [7, 'v1'] }), tag('v2', { key: [8, 'v2'] })];
    const { operations, calls } = images({ tags: () => Promise.resolve(rows) });
    const { next_cursor: cursor } = await run(operations, 'listTags', { name: 'app' }, { limit: '1', order });
    await run(operations, 'listTags', { name: 'app' }, { order, cursor });
    t.deepEqual(calls.at(-1), ['tags', { text: '', order, hidesAttached: false }, 51, [7, 'v1']]);
  });
}

const manifest = (digest: Digest, isTagged: boolean) => ({ digest, isTagged, updatedAt: 0 });

test('of manifests those without a tag are listed, page by page', async (t) => {
  const items = [manifest(one, false), manifest(two, true), manifest(three, false)];
  let next: Digest | undefined;
  const { operations, calls } = images({ manifests: () => Promise.resolve({ items, next }) });
  const list = (query: object) => run(operations, 'listUntaggedManifests', { name: 'app' }, query);
  const shown = [one, three].map((digest) => ({ digest, updated_at: '1970-01-01T00:00:00.000Z' }));
  t.deepEqual(await list({}), { items: shown, next_cursor: null });
  t.deepEqual(calls.splice(0), [
    ['locate', 'app'],
    ['manifests', 2000, ''],
  ]);
  t.deepEqual(await list({ limit: '2' }), { items: shown, next_cursor: null });
  const page = await list({ limit: '1' });
  t.deepEqual(page['items'], shown.slice(0, 1));
  calls.length = 0;
  await list({ cursor: page['next_cursor'] });
  t.deepEqual(calls.at(-1), ['manifests', 2000, one]);
  next = three;
  const scanned = await list({});
  t.deepEqual(scanned['items'], shown);
  await list({ cursor: scanned['next_cursor'] });
  t.deepEqual(calls.at(-1), ['manifests', 2000, three]);
});

const summary = (name: string, upstream: string | null = null): RepositorySummary => ({
  name,
  upstream,
  sizeBytes: 5,
  tagCount: 1,
  pullCount: 2,
  lastPulledAt: null,
  tags: [],
});

const shownOf = (name: string, upstream: string | null = null) => ({
  name,
  origin: upstream === null ? 'hosted' : 'mirrored',
  upstream,
  size_bytes: 5,
  tag_count: 1,
  pull_count: 2,
  last_pulled_at: null,
});

test('an image is shown without its tags, with the pulls of each day if they are wanted', async (t) => {
  const { operations } = images({ summary: () => Promise.resolve(summary('up.test/app', 'up.test')) });
  const get = (query: object) => run(operations, 'getContainer', { name: 'app' }, query);
  t.deepEqual(await get({}), shownOf('up.test/app', 'up.test'));
  t.deepEqual(await get({ daily: '1' }), { ...shownOf('up.test/app', 'up.test'), daily_pulls: Array(30).fill(0) });
  const none = images({ summary: () => Promise.resolve(undefined) });
  const error = await t.throwsAsync<DomainError>(run(none.operations, 'getContainer', { name: 'app' }), {
    name: 'NameUnknown',
  });
  t.deepEqual(error.detail, { name: 'app' });
});

const deletingShared = (_digest: string, mayDelete: () => void) => {
  mayDelete();
  return Promise.resolve();
};

test('a manifest is deleted by its digest, and a mirrored one by those who operate the server', async (t) => {
  const { operations, calls } = images({ deleteManifest: deletingShared });
  const path = { name: 'app', reference: one };
  t.is(await run(operations, 'deleteManifest', path, {}, operator), undefined as never);
  t.deepEqual(calls, [
    ['locate', 'app', 'delete'],
    ['deleteManifest', one],
  ]);
  await t.throwsAsync(run(operations, 'deleteManifest', path), { name: 'ScopeMissing' });
  await t.throwsAsync(run(operations, 'deleteManifest', { name: 'app', reference: 'sha256:short' }), {
    name: 'DigestInvalid',
  });
  const { matches } = operations.find(({ id }) => id === 'deleteManifest')!;
  t.deepEqual(
    [one, 'v1'].map((reference) => matches!({ reference })),
    [true, false],
  );
});

test('a tag that is not there is not found, nor is one of an unknown image', async (t) => {
  const path = { name: 'app', tag: 'v1' };
  const not = { name: 'NotFound', message: 'This account has no image "app" with a tag "v1".' };
  const there = images({ deleteTag: () => Promise.resolve(true) });
  t.is(await run(there.operations, 'deleteTag', path), undefined as never);
  t.deepEqual(there.calls, [
    ['locate', 'app', 'delete'],
    ['deleteTag', 'v1'],
  ]);
  const missing = images({ deleteTag: () => Promise.resolve(false) });
  await t.throwsAsync(run(missing.operations, 'deleteTag', path), not);
  const unknown = images({}, new DomainError('NameUnknown', 'no such image'));
  await t.throwsAsync(run(unknown.operations, 'deleteTag', path), not);
  const denied = new DomainError('NameDenied', 'not this one');
  t.is(await t.throwsAsync(run(images({}, denied).operations, 'deleteTag', path)), denied);
  const mirrored = images({
    deleteTag: (_tag: string, mayDelete: () => void) => Promise.resolve(mayDelete()).then(() => true),
  });
  await t.throwsAsync(run(mirrored.operations, 'deleteTag', path), { name: 'ScopeMissing' });
  t.is(await run(mirrored.operations, 'deleteTag', path, {}, operator), undefined as never);
});

/** Lists of hosted and mirrored images by account, and what was asked of them. */
function lists(byAccount: Record<string, RepositorySummary[]>) {
  const calls: unknown[] = [];
  const listOf = (origin: 'hosted' | 'mirrored') =>
    ({
      origin,
      list: (account: number, limit: number, after: string, only: unknown, tags: number) => {
        calls.push([`${origin} list`, account, limit, after, only, tags]);
        const found = byAccount[`${origin} ${account}`] ?? [];
        return Promise.resolve(found.filter(({ name }) => name > after).slice(0, limit));
      },
      ranked: (account: number, order: object, limit: number, after: unknown) => {
        calls.push([`${origin} ranked`, account, order, limit, after]);
        const found = byAccount[`${origin} ${account}`] ?? [];
        return Promise.resolve(found.map((item, at) => ({ rank: [10 - at, item.name], item })));
      },
      total: (account: number, order: object) => {
        calls.push([`${origin} total`, account, order]);
        return Promise.resolve({ count: account, bytes: 10 });
      },
    }) as unknown as ImageList;
  const operations = containerOperations({ database, now: () => 5 }, [listOf('hosted'), listOf('mirrored')], {
    historyOwners: () => Promise.resolve([]),
  } as never);
  return { operations, calls };
}

const names = { of: () => 'names of 1' };
const shared = { lists: () => [{ accountId: 2, only: 'names of 2', without: 1 }] };
const reader = { ...principal, names, shared };

test('images are listed by name from all lists, each once', async (t) => {
  const byAccount = {
    'hosted 1': [summary('b'), summary('d')],
    'hosted 2': [summary('a'), summary('b')],
    'mirrored 1': [summary('c', 'c'), summary('b', 'c')],
  };
  const { operations, calls } = lists(byAccount);
  const list = (query: object, who: object = reader) => run(operations, 'listContainers', {}, query, who);
  const items = [shownOf('a'), shownOf('b'), shownOf('b', 'c'), shownOf('c', 'c'), shownOf('d')].map((each) => ({
    ...each,
    tags: [],
  }));
  t.deepEqual(await list({}), { items, next_cursor: null });
  t.deepEqual(calls.splice(0), [
    ['hosted list', 1, 51, '', 'names of 1', 100],
    ['hosted list', 2, 51, '', 'names of 2', 100],
    ['mirrored list', 1, 51, '', 'names of 1', 100],
  ]);
  const page = await list({ limit: '2', tags: '7' });
  t.deepEqual(page['items'], items.slice(0, 2));
  t.deepEqual(calls.splice(0)[0], ['hosted list', 1, 3, '', 'names of 1', 7]);
  await list({ limit: '200', cursor: page['next_cursor'] });
  t.deepEqual(calls.splice(0)[0], ['hosted list', 1, 201, 'b', 'names of 1', 25]);
  await list({ tags: '0' });
  t.deepEqual((calls.splice(0)[0] as unknown[])[5], 0);
  t.deepEqual(
    (await list({ origin: 'mirrored' }))['items'],
    [items[3]!, items[2]!].toSorted((x, y) => (x.name < y.name ? -1 : 1)),
  );
  t.deepEqual(calls.splice(0).length, 1);
  t.deepEqual((await list({ origin: 'hosted' }))['items'], [items[0], items[1], items[4]]);
  const anonymous = { ...reader, kind: 'anonymous', reads: 'mirrored' };
  calls.length = 0;
  await list({}, anonymous);
  t.deepEqual(
    calls.map((each) => (each as unknown[])[0]),
    ['mirrored list'],
  );
  t.deepEqual((await list({ daily: '1', limit: '1' }))['items'], [{ ...items[0], daily_pulls: Array(30).fill(0) }]);
});

test('images are sorted by a number or filtered in all lists, and counted if that is wanted', async (t) => {
  const { operations, calls } = lists({ 'hosted 1': [summary('b'), summary('a')], 'mirrored 1': [summary('c', 'c')] });
  const list = (query: object) => run(operations, 'listContainers', {}, query, reader);
  const sorted = await list({ sort: 'size', q: 'A' });
  t.deepEqual(
    (sorted['items'] as { name: string }[]).map(({ name }) => name),
    ['b', 'c', 'a'],
  );
  const own = { sort: 'size', text: 'a', only: 'names of 1' };
  t.deepEqual(
    calls.splice(0).map((each) => (each as unknown[]).slice(0, 3)),
    [
      ['hosted ranked', 1, own],
      ['hosted ranked', 2, { sort: 'size', text: 'a', only: 'names of 2', without: 1 }],
      ['mirrored ranked', 1, own],
    ],
  );
  await list({ q: 'a' });
  t.deepEqual((calls.splice(0)[0] as unknown[]).slice(0, 3), [
    'hosted ranked',
    1,
    { sort: undefined, text: 'a', only: 'names of 1' },
  ]);
  const counted = await list({ total: '1' });
  t.like(counted, { total: { count: 4 } });
  t.deepEqual(
    calls.slice(0, 3).map((each) => (each as unknown[])[0]),
    ['hosted total', 'hosted total', 'mirrored total'],
  );
  t.false('total' in sorted);
});

test('the number of tags in a list of images is a whole one up to a thousand', (t) => {
  const { query } = lists({}).operations.find(({ id }) => id === 'listContainers')!;
  const parse = (tags: string) => (query!.safeParse({ tags }).data as { tags: number } | undefined)?.tags;
  t.deepEqual(['0', '7', '999', '1000'].map(parse), [0, 7, 999, 1000]);
  t.deepEqual(['', '-1', '01', '1001', '1.5', '10000', 'x', '1 '].map(parse), Array(8).fill(undefined));
  t.is((query!.parse({}) as { tags: number }).tags, 1000);
});
