import test, { type ExecutionContext } from 'ava';
import { Names } from '../../src/accounts/names.ts';
import { usageOperation } from '../../src/api/account/usage.ts';
import type { OperationCall } from '../../src/api/framework/operation.ts';
import type { Row } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import type { DomainError } from '../../src/runtime/errors.ts';
import { noCounts, type Counters } from '../../src/usage/counters.ts';
import { parsePeriod } from '../../src/usage/period.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What a request for usage shows of counts. test/api/usage.test.ts has the requests that are counted.

const day = 86_400_000;
const { start: may, end } = parsePeriod('2027-05')!;
const now = may + 2 * day + 5000;

const row = (dimension: string, name: string, counts: Partial<Counters>, more: Row = {}): Row => ({
  account_id: 1,
  dimension,
  period_start: may,
  name,
  day: may,
  ...noCounts(),
  ...counts,
  ...more,
});

const whole = {
  requests: 10,
  downloads: 4,
  uploads: 3,
  version_checks: 2,
  cache_hits: 5,
  cache_misses: 6,
  egress_bytes: 70,
  ingress_bytes: 80,
  upstream_bytes: 90,
};

const rows: Row[] = [
  row('account', '', whole),
  row('account', '', { requests: 1 }, { day: may + day }),
  row('package', 'lib', { requests: 3, downloads: 1 }),
  row('package', 'lib', { requests: 1 }, { day: may + day }),
  row('package', 'liberty', { requests: 2, downloads: 2 }),
  row('package', 'zip', { requests: 9 }),
  // Requests that concern no image.
  row('container', '', { requests: 5 }),
  row('container', 'app', { requests: 5 }),
  row('container', 'other', { requests: 5 }),
  row('token', '', { requests: 5 }),
  row('token', 'id-1', { requests: 4 }),
  row('token', 'id-2', { requests: 6 }),
];

const tokenRows = [
  { id: 'id-2', name: 'Nightly build', patterns: null, createdAt: 2 },
  { id: 'id-1', name: 'my build', patterns: { packages: ['lib'] }, createdAt: 1 },
];

async function open(t: ExecutionContext, { asOf = now - 3, time = now }: { asOf?: number | null; time?: number } = {}) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  await database.transaction((tx) => tx.insertNew('usage_counts', rows));
  const samples = [100, 10].map((hosted, at) => ({
    account_id: 1,
    hour: may + at * 3_600_000,
    hosted_bytes: hosted,
    mirrored_bytes: 5,
  }));
  await database.transaction((tx) => tx.insertNew('storage_samples', samples));
  const usage = usageOperation({
    database,
    usage: { asOf: now - 2 },
    stored: { of: () => Promise.resolve(asOf === null ? undefined : { hosted: 20, mirrored: 3, asOf }) },
    tokens: {
      list: (_account: number, _limit: number, after?: readonly [number, string]) =>
        Promise.resolve(after === undefined ? tokenRows : []),
    },
    now: () => time,
  } as never);
  const ask = (query: object, principal: object = {}): Promise<Record<string, any>> =>
    usage.run({
      principal: { kind: 'token', accountId: 1, scopes: new Set(['read']), ...principal },
      query: usage.query!.parse(query),
    } as unknown as OperationCall<never, never>) as never;
  const keys = async (query: object, principal?: object) =>
    ((await ask(query, principal))['items'] as { key: string | null }[]).map(({ key }) => key);
  return { ask, keys };
}

test('usage of a month has sums of requests and bytes, and what is stored', async (t) => {
  const { ask } = await open(t);
  const { storage, ...others } = await ask({});
  const { requests: _all, egress_bytes, ingress_bytes, upstream_bytes, ...requests } = whole;
  t.deepEqual(others, {
    period: { start: '2027-05-01T00:00:00.000Z', end: '2027-06-01T00:00:00.000Z', status: 'open' },
    as_of: new Date(now - 3).toISOString(),
    bandwidth: { egress_bytes, ingress_bytes, upstream_bytes },
    requests: { total: 11, ...requests },
    items: [],
    next_cursor: null,
  });
  t.like(storage, {
    as_of: new Date(now - 3).toISOString(),
    current_bytes: 23,
    peak_bytes: 105,
    average_bytes: 60,
    byte_hours: 120,
    by_origin: { hosted: 20, mirrored: 3 },
  });
  const unmeasured = await (await open(t, { asOf: null })).ask({});
  t.is(unmeasured['as_of'], new Date(now - 2).toISOString());
  t.like(unmeasured['storage'], { as_of: null, current_bytes: 0 });
  const status = async (time: number) => (await (await open(t, { time })).ask({ period: '2027-05' }))['period'].status;
  t.is(await status(end + 600_000), 'closed');
  t.is(await status(end + 599_999), 'open');
  t.is((await ask({ period: '2027-04' }))['requests'].total, 0);
  for (const period of ['2027-06', '2027-5', 'may'])
    await t.throwsAsync(ask({ period }), {
      name: 'Invalid',
      message: 'period: expected a month as YYYY-MM that is not in the future',
    });
  const { ask: later } = await open(t, { time: end });
  t.is((await later({ period: '2027-06' }))['requests'].total, 0, 'the month that begins now');
});

test('usage is divided by day, by name, and by both', async (t) => {
  const { ask, keys } = await open(t);
  const days = (await ask({ granularity: 'day' }))['items'] as object[];
  t.deepEqual(days, [
    { date: '2027-05-01', key: null, ...whole },
    { date: '2027-05-02', key: null, ...noCounts(), requests: 1 },
  ]);
  const names = (await ask({ group_by: 'package' }))['items'] as object[];
  t.deepEqual(names[0], { date: null, key: 'lib', ...noCounts(), requests: 4, downloads: 1 });
  t.deepEqual(await keys({ group_by: 'package' }), ['lib', 'liberty', 'zip']);
  t.deepEqual(await keys({ group_by: 'package', granularity: 'day' }), ['lib', 'lib', 'liberty', 'zip']);
  t.deepEqual(await keys({ group_by: 'token' }), [null, 'id-1', 'id-2'], 'null is without a token');
  t.deepEqual(await keys({ group_by: 'package' }, { names: new Names({ packages: ['lib'] }) }), ['lib']);
  const images = new Names({ containers: ['app'] });
  t.deepEqual(await keys({ group_by: 'container' }, { names: images }), [null, 'app']);
  t.deepEqual(await keys({ group_by: 'token' }, { names: new Names({ packages: ['lib'] }) }), [null, 'id-1', 'id-2']);
});

test('pages of usage follow one another, of the same question only', async (t) => {
  const { ask, keys } = await open(t);
  const byName = { group_by: 'package', limit: '2' };
  const first = await ask(byName);
  const cursor = first['next_cursor'] as string;
  t.deepEqual(await keys({ ...byName, cursor }), ['zip']);
  for (const other of [{ group_by: 'token' }, { group_by: 'package', granularity: 'day' }, { granularity: 'day' }])
    await t.throwsAsync(ask({ ...other, cursor }), { name: 'Invalid', message: /cursor is malformed/ });
  const { detail } = await t.throwsAsync<DomainError>(ask({ cursor }), {
    name: 'Invalid',
    message: 'cursor: without granularity and group_by there is only one page',
  });
  t.deepEqual(detail, { parameter: 'cursor' });
  const daily = { granularity: 'day', limit: '1' };
  const next = (await ask(daily))['next_cursor'] as string;
  t.is((await ask({ ...daily, cursor: next }))['items'][0].date, '2027-05-02');
  const sorted = { ...byName, sort: 'downloads' };
  const rest = (await ask(sorted))['next_cursor'] as string;
  t.deepEqual(await keys({ ...sorted, cursor: rest }), ['zip']);
});

test('names of usage are sorted by a number, filtered by a text and added up', async (t) => {
  const { ask, keys } = await open(t);
  const byName = { group_by: 'package' };
  t.deepEqual(await keys({ ...byName, sort: 'requests' }), ['zip', 'lib', 'liberty']);
  t.deepEqual(await keys({ ...byName, sort: 'downloads' }), ['liberty', 'lib', 'zip']);
  t.deepEqual(await keys({ ...byName, sort: 'requests', q: 'LIB' }), ['lib', 'liberty']);
  t.deepEqual(await keys({ ...byName, q: 'lib' }), ['lib', 'liberty']);
  t.deepEqual(await keys({ ...byName, q: 'nothing' }), []);
  const only = { names: new Names({ packages: ['lib', 'zip'] }) };
  t.deepEqual(await keys({ ...byName, sort: 'requests' }, only), ['zip', 'lib']);
  const total = async (query: object, principal?: object) =>
    (await ask({ ...byName, total: '1', ...query }, principal))['total'] as object;
  t.deepEqual(await total({}), { count: 3, ...noCounts(), requests: 15, downloads: 3 });
  t.like(await total({ q: 'lib' }), { count: 2, requests: 6 });
  t.like(await total({}, only), { count: 2, requests: 13 });
  t.like(await total({ group_by: 'token' }), { count: 2, requests: 15 }, 'nobody is no name');
  t.false('total' in (await ask(byName)));
  for (const [field, query] of [
    ['sort', { sort: 'requests' }],
    ['q', { q: 'x' }],
    ['total', { total: '1' }],
  ] as const) {
    for (const more of [{}, { granularity: 'day' }, { ...byName, granularity: 'day' }]) {
      const error = await t.throwsAsync<DomainError>(ask({ ...more, ...query }), {
        name: 'Invalid',
        message: `${field}: works with group_by and without granularity`,
      });
      t.deepEqual(error.detail, { parameter: field });
    }
  }
});

test('tokens are found by their names by those who may list them', async (t) => {
  const { keys } = await open(t);
  const named = { group_by: 'token', q: 'BUILD' };
  const admin = { scopes: new Set(['read', 'admin']) };
  t.deepEqual(await keys(named, admin), ['id-1', 'id-2']);
  t.deepEqual(await keys({ ...named, q: 'nightly' }, admin), ['id-2']);
  t.deepEqual(await keys({ ...named, q: 'id-1' }, admin), ['id-1'], 'by the ID');
  t.deepEqual(await keys(named), []);
  t.deepEqual(await keys({ ...named, q: 'id-' }), ['id-1', 'id-2']);
  const limited = { ...admin, names: new Names({ packages: ['lib'] }) };
  t.deepEqual(await keys(named, limited), ['id-1'], 'the other token is not within its names');
  t.deepEqual(await keys({ group_by: 'package', q: 'build' }, admin), []);
});
