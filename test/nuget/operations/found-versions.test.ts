import test from 'ava';
import { Names } from '../../../src/accounts/names.ts';
import { Findings, type Finding } from '../../../src/nuget/operations/findings.ts';
import { findingOperations } from '../../../src/nuget/operations/finding-operations.ts';
import { changeDeprecation } from '../../../src/nuget/hosted/deprecations.ts';
import { createAdvisory, deleteAdvisory } from '../../../src/nuget/hosted/advisories.ts';
import { parseDeprecation } from '../../../src/nuget/format/deprecation.ts';
import { maxAdvisories } from '../../../src/nuget/upstream/known-advisories.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';
import { named, runOf, scopes } from '../../support/operations.ts';
import { noCounts } from '../../../src/usage/counters.ts';

const account = 7;
const legacy = parseDeprecation('lib', { reasons: ['Legacy'] });
const [first, second] = ['https://example.com/a', 'https://example.com/b'];

interface Given {
  /** Pages of vulnerability data: lists by ID. */
  pages?: readonly (readonly (readonly [id: string, list: string])[] | undefined)[];
  failure?: Error;
  /** Stored versions by key, with their upstream. */
  stored?: Record<string, { id: string; upstream: string; versions: string[] }>;
  deprecated?: readonly { name: string; upstream: string; versions: Set<string> }[];
  isRead?: boolean;
  idsIfLimited?: readonly string[];
}

/** The findings of an account with hosted packages, and with upstreams that the test gives. */
async function findingsOf(t: Parameters<typeof HostedPackages.open>[0], given: Given = {}) {
  const hosted = await HostedPackages.open(t);
  const { pages = [], stored = {}, deprecated = [] } = given;
  const vulnerabilities = {
    pages: () =>
      given.failure
        ? Promise.reject(given.failure)
        : Promise.resolve(pages.map((_page, index) => ({ upstream: 'up', name: String(index) }))),
    page: (_upstream: string, name: string) => {
      const value = pages[Number(name)];
      return Promise.resolve(value && { value });
    },
  };
  const all = [
    { id: 'up', name: 'up.test' },
    { id: 'other', name: 'other.test' },
  ];
  const mirror = { origin: { all, idsIfLimited: given.idsIfLimited } };
  const views = { of: () => Promise.resolve({ mirror, vulnerabilities }) };
  const registrations = {
    deprecated: async (_ids: unknown, found: (each: object) => Promise<void>) => {
      for (const each of deprecated) await found(each);
      return given.isRead ?? true;
    },
  };
  const mirrored = {
    stored: (_account: number, key: string) => {
      const found = stored[key];
      return Promise.resolve(found && { ...found, versions: found.versions.map((version) => ({ version })) });
    },
  };
  await hosted.store.database.transaction(async (tx) => {
    for (const [name, { upstream }] of Object.entries(stored))
      await tx.insert('mirror_entries', {
        id: name,
        upstream: upstream === 'up.test' ? 'up' : 'other',
        kind: 'nupkg',
        name,
        reference: '1.0.0',
        digest: 'x',
        size_bytes: 1,
        content_type: 'x/y',
        attributes: '{}',
        stored_at: 0,
        validated_at: 0,
        used_at: 0,
      });
  });
  const make = () => new Findings({ feed: hosted.context, views, registrations, mirrored } as never);
  return { hosted, make };
}

/** The findings in short. */
function inShort({ byPackage }: Awaited<ReturnType<Findings['of']>>): unknown[] {
  return [...byPackage.values()].flatMap((versions) =>
    [...versions.values()].map(({ key, id, version, upstream, vulnerabilities, isDeprecated }) => [
      key,
      id,
      version,
      upstream,
      vulnerabilities.map(({ severity, url }) => `${severity} ${url}`),
      isDeprecated,
    ]),
  );
}

test('hosted versions are found by the advisories on them, the highest first, and by their deprecation', async (t) => {
  const { hosted, make } = await findingsOf(t);
  const { context } = hosted;
  for (const version of ['1.0.0', '1.5.0', '2.0.0']) await hosted.push({ id: 'Lib', version }, { account });
  await hosted.push({ id: 'Old' }, { account });
  await hosted.push({ id: 'Lib' });
  for (const [versions, severity, url] of [
    ['[1.0.0, 2.0.0)', 1, first],
    ['[1.5.0]', 3, second],
  ] as const)
    await createAdvisory(context, account, { packageId: 'lib', versions, severity, url });
  await changeDeprecation(context, account, 'old', 'all', { deprecation: legacy });
  await changeDeprecation(context, account, 'lib', ['1.5.0'], { deprecation: legacy });
  const findings = make();
  t.deepEqual(findings.known(account), { byPackage: new Map(), isComplete: false });
  const found = await findings.of(account);
  t.deepEqual(inShort(found), [
    ['lib', 'Lib', '1.5.0', null, [`3 ${second}`, `1 ${first}`], true],
    ['lib', 'Lib', '1.0.0', null, [`1 ${first}`], false],
    ['old', 'Old', '1.0.0', null, [], true],
  ]);
  t.true(found.isComplete);
  t.is(findings.known(account), found);
  t.is(await findings.within(10_000, account), found);
  t.deepEqual(inShort(await findings.of(1)), []);
});

test('an advisory on a package without versions finds nothing', async (t) => {
  const { hosted, make } = await findingsOf(t);
  await hosted.push({ id: 'Lib' }, { account });
  const given = { packageId: 'lib', versions: '(, )', severity: 1, url: first };
  const { id } = await createAdvisory(hosted.context, account, given);
  await hosted.store.database.transaction(async (tx) => {
    await tx.run('UPDATE packages SET version_count = 0');
    await tx.run('DELETE FROM package_versions');
  });
  t.deepEqual(inShort(await make().of(account)), []);
  await deleteAdvisory(hosted.context, account, id);
});

const list = (...advisories: [severity: number, url: string, versions: string][]) =>
  JSON.stringify(advisories.map(([severity, url, versions]) => ({ severity, url, versions })));

test('stored versions are found by the data of upstreams, and by stored registrations of their own upstream', async (t) => {
  const { make } = await findingsOf(t, {
    pages: [
      [
        ['LIB', list([0, first, '(, 2.0.0)'])],
        ['absent', list([3, first, '(, )'])],
      ],
      undefined,
      [['lib', list([2, second, '[1.0.0]'])]],
    ],
    stored: {
      lib: { id: 'Lib', upstream: 'up.test', versions: ['1.0.0', '1.5.0', '2.0.0'] },
      app: { id: 'App', upstream: 'up.test', versions: ['1.0.0-RC', '2.0.0'] },
    },
    deprecated: [
      { name: 'app', upstream: 'up', versions: new Set(['1.0.0-rc']) },
      { name: 'app', upstream: 'other', versions: new Set(['2.0.0']) },
      { name: 'absent', upstream: 'up', versions: new Set(['1.0.0']) },
    ],
  });
  const found = await make().of(account);
  t.deepEqual(inShort(found), [
    ['lib', 'Lib', '1.0.0', 'up.test', [`2 ${second}`, `0 ${first}`], false],
    ['lib', 'Lib', '1.5.0', 'up.test', [`0 ${first}`], false],
    ['app', 'App', '1.0.0-RC', 'up.test', [], true],
  ]);
  t.true(found.isComplete);
});

test('findings are not complete while an upstream fails, has too long a list, or a registration is not read', async (t) => {
  const stored = { lib: { id: 'Lib', upstream: 'up.test', versions: ['1.0.0'] } };
  const advisories = list([1, first, '(, )']);
  const withLength = (length: number) =>
    advisories
      .slice(0, -1)
      .padEnd(length - 1)
      .concat(']');
  const failure = new UpstreamError('UpstreamUnavailable', 'down');
  for (const [given, isComplete, count] of [
    [{ pages: [[['lib', advisories]]], stored }, true, 1],
    [{ pages: [[['lib', withLength(maxAdvisories)]]], stored }, true, 1],
    [{ pages: [[['lib', withLength(maxAdvisories + 1)]]], stored }, false, 0],
    [{ pages: [[['lib', withLength(maxAdvisories + 1)]], [['lib', advisories]]], stored }, false, 1],
    [{ failure, stored }, false, 0],
    [{ pages: [[['lib', advisories]]], stored, isRead: false }, false, 1],
    [{ pages: [[['lib', advisories]]], stored, idsIfLimited: ['other'] }, true, 0],
    [{ pages: [[['lib', advisories]]], stored, idsIfLimited: ['up'] }, true, 1],
  ] as [Given, boolean, number][]) {
    const { make } = await findingsOf(t, given);
    const found = await make().of(account);
    t.deepEqual([found.isComplete, inShort(found).length], [isComplete, count]);
  }
  const defect = new Error('a defect');
  const { make } = await findingsOf(t, { failure: defect });
  await t.throwsAsync(make().of(account), { is: defect });
});

test('a page with more packages than are looked up at a time is read to its end', async (t) => {
  const names = Array.from({ length: 1001 }, (_, index) => `p${index}`);
  const stored = Object.fromEntries(
    ['p0', 'p499', 'p500', 'p1000'].map((name) => [name, { id: name, upstream: 'up.test', versions: ['1.0.0'] }]),
  );
  const page = names.map((name) => [name, list([1, first, '(, )'])] as const);
  const { make } = await findingsOf(t, { pages: [page], stored });
  t.deepEqual(
    inShort(await make().of(account)).map((each) => (each as string[])[0]),
    ['p0', 'p499', 'p500', 'p1000'],
  );
});

const found = (id: string, version: string, severities: number[], more: Partial<Finding> = {}): Finding => ({
  key: id.toLowerCase(),
  id,
  version,
  upstream: null,
  vulnerabilities: severities.map((severity) => ({ severity, url: `https://example.com/${severity}` })),
  isDeprecated: false,
  ...more,
});

/** The operation that lists findings. `App` was downloaded more than the others. */
async function listing(t: Parameters<typeof HostedPackages.open>[0]) {
  const hosted = await HostedPackages.open(t);
  const findings = [
    found('Lib', '1.0.0', [2, 0]),
    found('Lib', '2.0.0', [], { isDeprecated: true }),
    found('App', '1.0.0', [2]),
    found('Zoo', '1.0.0', [3], { upstream: 'up.test', isDeprecated: true }),
  ];
  const byPackage = new Map(
    [...Map.groupBy(findings, ({ key }) => key)].map(([key, all]) => [
      key,
      new Map(all.map((each) => [each.version, each])),
    ]),
  );
  const asked: unknown[] = [];
  const within = (...given: unknown[]) => {
    asked.push(['within', ...given]);
    return Promise.resolve({ byPackage, isComplete: true });
  };
  const now = Date.UTC(2026, 2, 10, 12);
  await hosted.store.database.transaction((tx) =>
    tx.insert('usage_counts', {
      account_id: account,
      dimension: 'package',
      period_start: Date.UTC(2026, 2, 1),
      name: 'app',
      day: Date.UTC(2026, 2, 9),
      ...noCounts(),
      requests: 9,
      downloads: 9,
    }),
  );
  const parts = {
    database: hosted.store.database,
    usage: {
      flush: () => {
        asked.push('flush');
        return Promise.reject(new Error('cannot be written'));
      },
    },
    uses: {
      lastUnder: (...given: unknown[]) => {
        asked.push(['lastUnder', ...given]);
        return Promise.resolve(new Map([['lib', 5000]]));
      },
      latest: (...given: unknown[]) => {
        asked.push(['latest', ...given]);
        const keys = given[2] as string[];
        const users = new Map([
          ['lib', 'known'],
          ['app', 'gone'],
        ]);
        return Promise.resolve(
          new Map(keys.filter((key) => users.has(key)).map((key) => [key, { userId: users.get(key)! }])),
        );
      },
    },
    tokens: {
      get: (...given: unknown[]) => {
        asked.push(['get', ...given]);
        return Promise.resolve(given[1] === 'known' ? { name: 'CI', patterns: { packages: ['lib'] } } : undefined);
      },
    },
    now: () => now,
  };
  const run = runOf(findingOperations({ within } as never, parts as never));
  const list = (query: object = {}, principal: object = {}) =>
    run('listFindings', { query }, { names: undefined, ...principal });
  return { list, asked };
}

const item = (id: string, version: string, severities: string[], more: object = {}) => ({
  id,
  version,
  origin: 'hosted',
  upstream: null,
  severity: severities[0] ?? null,
  advisories: severities.map((severity) => ({
    severity,
    url: `https://example.com/${['low', 'moderate', 'high', 'critical'].indexOf(severity)}`,
  })),
  deprecated: false,
  downloads_30_days: 0,
  last_used_at: null,
  last_used_by: null,
  ...more,
});
const used = { last_used_at: '1970-01-01T00:00:05.000Z' };
const zoo = item('Zoo', '1.0.0', ['critical'], { origin: 'mirrored', upstream: 'up.test', deprecated: true });
const app = item('App', '1.0.0', ['high'], { downloads_30_days: 9 });
const libOne = item('Lib', '1.0.0', ['high', 'low'], used);
const libTwo = item('Lib', '2.0.0', [], { ...used, deprecated: true });

test('findings are listed by severity, then by downloads, with their numbers and filters', async (t) => {
  const { list, asked } = await listing(t);
  const all = { vulnerable_count: 3, deprecated_count: 2, is_complete: true, next_cursor: null };
  t.deepEqual(await list(), { ...all, items: [zoo, app, libOne, libTwo] });
  t.deepEqual(asked, [
    ['within', 1500, account],
    'flush',
    ['lastUnder', account, 'package', ['lib', 'app', 'zoo']],
    ['latest', account, 'package', []],
  ]);
  for (const [query, items, vulnerable, deprecated] of [
    [{ origin: 'hosted' }, [app, libOne, libTwo], 2, 1],
    [{ origin: 'mirrored' }, [zoo], 1, 1],
    [{ kind: 'vulnerable' }, [zoo, app, libOne], 3, 1],
    [{ kind: 'deprecated' }, [zoo, libTwo], 1, 2],
    [{ q: 'LI' }, [libOne, libTwo], 1, 1],
    [{ q: 'x' }, [], 0, 0],
  ] as const)
    t.deepEqual(await list(query), {
      ...all,
      items: [...items],
      vulnerable_count: vulnerable,
      deprecated_count: deprecated,
    });
  const first = await list({ limit: '2' });
  t.deepEqual(first['items'], [zoo, app]);
  t.deepEqual((await list({ limit: '2', cursor: first['next_cursor'] }))['items'], [libOne, libTwo]);
  t.deepEqual((await list({}, named('app', 'zoo')))['items'], [zoo, app]);
  t.deepEqual((await list({}, { kind: 'anonymous', reads: 'mirrored' }))['items'], [zoo]);
});

test('who used a package last is told to administrators who may see that token', async (t) => {
  const { list, asked } = await listing(t);
  const ci = { token_id: 'known', token_name: 'CI' };
  const gone = { token_id: 'gone', token_name: null };
  const users = async (principal: object) => {
    const { items } = await list({}, principal);
    return items.map((each: { last_used_by: object | null }) => each.last_used_by);
  };
  t.deepEqual(await users(scopes('read', 'admin')), [null, gone, ci, ci]);
  t.deepEqual(asked.slice(3), [
    ['latest', account, 'package', ['zoo', 'app', 'lib']],
    ['get', account, 'gone'],
    ['get', account, 'known'],
  ]);
  t.deepEqual(await users({ ...scopes('read', 'admin'), ...named('lib', 'app') }), [null, ci, ci]);
  const namesByScope = new Map([
    ['read', undefined],
    ['admin', new Names({ packages: ['app'] })],
  ]);
  t.deepEqual(await users({ ...scopes('read', 'admin'), namesByScope }), [null, null, null, null]);
});
