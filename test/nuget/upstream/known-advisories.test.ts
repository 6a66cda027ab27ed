import test, { type ExecutionContext } from 'ava';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import type { DocumentReading } from '../../../src/nuget/upstream/documents.ts';
import type { FeedViews } from '../../../src/nuget/upstream/feed-view.ts';
import { KnownAdvisories, maxAdvisories } from '../../../src/nuget/upstream/known-advisories.ts';
import { NamedAdvisories } from '../../../src/nuget/upstream/name-advisories.ts';
import type { Owner, PackageMirror } from '../../../src/nuget/upstream/package-mirror.ts';
import {
  UpstreamVulnerabilities,
  type KnownVulnerabilities,
} from '../../../src/nuget/upstream/upstream-vulnerabilities.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

const down = new UpstreamError('UpstreamUnavailable', 'It is down.');
const broken = new Error('it broke');
const type = 'VulnerabilityInfo/6.7.0';

interface Feed {
  /** What its index of vulnerability data is; undefined if it has none, and an error if it cannot be read. */
  index?: unknown;
  /** Whether it announces such data, or the error of its service index. */
  announces?: boolean | Error;
  /** Whether an index is stored. */
  isStored?: boolean;
  /** By the name of a page and its date, each with its ids and lists. */
  pages?: Record<string, KnownVulnerabilities>;
}

const entry = (name: string, updated = '2026-01-02T03:04:05Z') => ({
  '@id': `${name}.json`,
  '@name': name,
  '@updated': updated,
});

/** Vulnerability data of upstreams whose documents are in memory. */
function start(feeds: Record<string, Feed>) {
  const upstreams = Object.keys(feeds).map((id) => ({
    id,
    name: `${id}.test`,
    base: new URL(`http://${id}.test/v3/index.json`),
    counts: { auditsWithout: 0 },
    config: { include: ['*'], exclude: [] },
    serves: () => true,
  })) as unknown as Upstream[];
  const asked: unknown[][] = [];
  const packages = {
    origin: new UpstreamPolicy(upstreams, undefined, [], ['Merged']),
    resources: async ({ id }: Upstream) => {
      const { announces = true } = feeds[id]!;
      if (announces instanceof Error) throw announces;
      return new Map(announces ? [[type, '']] : [['Other/1.0.0', '']]);
    },
    resource: async ({ id }: Upstream, types: readonly string[]) => {
      asked.push(['types', types]);
      return `http://${id}.test/vulnerabilities/index.json`;
    },
    hasDocument: async ({ id }: Upstream, kind: string) => {
      asked.push(['stored', kind]);
      return feeds[id]!.isStored ?? false;
    },
    document: async (
      { upstream, ...more }: Owner,
      kind: string,
      name: string,
      reference: string,
      locate: () => Promise<URL> | URL,
      reading: DocumentReading<unknown>,
    ) => {
      asked.push([
        upstream.id,
        more,
        kind,
        name,
        reference,
        (await locate()).href,
        reading.kind,
        await reading.options(),
      ]);
      const { index, pages } = feeds[upstream.id]!;
      if (kind === 'vulnerability-page') {
        const value = pages?.[`${name} ${reference}`];
        return value && { value, outcome: 'stale' };
      }
      if (index instanceof Error) throw index;
      if (index === undefined) return undefined;
      return { value: (await reading.make([JSON.stringify(index)])).value, outcome: 'hit' };
    },
  } as unknown as PackageMirror;
  return { vulnerabilities: new UpstreamVulnerabilities(packages), packages, upstreams, asked };
}

test('the pages of all upstreams with vulnerability data, without entries that cannot be pages', async (t) => {
  const long = 'x'.repeat(100);
  const index = [
    entry('base'),
    entry('update', '2026-01-01'),
    entry(long),
    entry(`${long}x`),
    entry(''),
    entry('a/b'),
    entry('a b'),
    entry('A_b-1.2'),
    entry('bad', 'never'),
    entry('late', `2026-01-01T00:00:00.${'0'.repeat(20)}Z`),
    entry('later', `2026-01-01T00:00:00.${'0'.repeat(19)}Z`),
    { ...entry('a'), '@id': 7 },
    { ...entry('a'), '@updated': 7 },
    { ...entry('a'), '@name': 7 },
    null,
    'x',
  ];
  const { vulnerabilities, asked } = start({
    one: { index },
    none: { announces: false },
    absent: {},
    two: { index: [entry('base', '2026-05-06')] },
  });
  const pages = await vulnerabilities.pages();
  t.deepEqual(
    pages.map(({ upstream, name }) => [upstream, name]),
    [
      ['one.test', 'base'],
      ['one.test', 'update'],
      ['one.test', long],
      ['one.test', 'A_b-1.2'],
      ['one.test', 'later'],
      ['two.test', 'base'],
    ],
  );
  t.deepEqual(pages.at(-1), { upstream: 'two.test', name: 'base', updated: '2026-05-06' });
  const address = 'http://two.test/vulnerabilities/index.json';
  const document = ['two', {}, 'vulnerability-index', '', '', address, 'short', { of: 'vulnerability-index' }];
  t.deepEqual(
    asked.find(([id]) => id === 'two'),
    document,
  );
  t.deepEqual(
    asked.find(([id]) => id === 'types'),
    ['types', [type]],
  );
  t.false(asked.some(([id]) => id === 'none'));
});

test('an upstream that fails and has never sent vulnerability data counts as one without', async (t) => {
  const { vulnerabilities, upstreams, asked } = start({
    one: { announces: down },
    two: { announces: down, isStored: true, index: [entry('kept')] },
    three: { index: [entry('base')] },
  });
  t.deepEqual(
    (await vulnerabilities.pages()).map(({ name }) => name),
    ['kept', 'base'],
  );
  t.deepEqual(
    upstreams.map(({ counts }) => counts.auditsWithout),
    [1, 0, 0],
  );
  t.deepEqual(
    asked.filter(([what]) => what === 'stored'),
    [
      ['stored', 'vulnerability-index'],
      ['stored', 'vulnerability-index'],
    ],
  );
  await t.throwsAsync(start({ one: { announces: broken } }).vulnerabilities.pages(), { is: broken });
  await t.throwsAsync(start({ one: { index: down } }).vulnerabilities.pages(), { is: down });
  for (const index of [{}, 'x', 7, null])
    await t.throwsAsync(start({ one: { index } }).vulnerabilities.pages(), {
      message: 'it is no index of vulnerability data',
    });
});

const page = (...lists: readonly [id: string, list: unknown][]): KnownVulnerabilities =>
  lists.map(([id, list]) => [id, JSON.stringify(list)]);

test('a page is the one of its date, at the address that the index names', async (t) => {
  const value = page(['Lib', []]);
  const { vulnerabilities, upstreams, asked } = start({
    one: { index: [entry('base', '2026-01-01'), entry('lost')], pages: { 'base 2026-01-01': value } },
    two: { index: [entry('other')] },
  });
  t.deepEqual(await vulnerabilities.page('one.test', 'base'), { value, outcome: 'stale', upstream: upstreams[0]! });
  const address = 'http://one.test/v3/base.json';
  t.deepEqual(asked.at(-1), ['one', {}, 'vulnerability-page', 'base', '2026-01-01', address, 'vulnerabilities', {}]);
  for (const [upstream, name] of [
    ['one.test', 'other'],
    ['two.test', 'base'],
    ['three.test', 'base'],
    ['one', 'base'],
  ] as const)
    t.is(await vulnerabilities.page(upstream, name), undefined, `${upstream} ${name}`);
  await t.throwsAsync(vulnerabilities.page('one.test', 'lost'), {
    name: 'UpstreamUnavailable',
    message: 'The upstream one.test has no page that its vulnerability index names.',
  });
});

const advisory = (id: string, versions = '[1.0, 2.0)') => ({ url: `https://a.test/${id}`, versions, severity: 2 });

const twoFeeds = () => ({
  one: {
    index: [entry('base'), entry('more')],
    pages: {
      'base 2026-01-02T03:04:05Z': page(
        ['Lib', [advisory('GHSA-1'), advisory('GHSA-2')]],
        ['Other', [advisory('GHSA-2')]],
      ),
      'more 2026-01-02T03:04:05Z': page(['LIB', [advisory('GHSA-3')]]),
    },
  },
  two: {
    index: [entry('base')],
    pages: {
      'base 2026-01-02T03:04:05Z': page(
        ['lib', [advisory('ghsa-2')]],
        ['Long', [advisory('GHSA-2'), { filler: 'x'.repeat(maxAdvisories) }]],
        ['Merged', [advisory('GHSA-2')]],
      ),
    },
  },
});

test('the known vulnerabilities of a package are those of all upstreams and pages', async (t) => {
  const { vulnerabilities, asked } = start(twoFeeds());
  const known = new KnownAdvisories(vulnerabilities);
  const found = await known.of('lib');
  t.deepEqual(
    found.map(({ id, severity, fixedAt, affects }) => [id, severity, fixedAt, affects('1.5.0'), affects('2.0.0')]),
    ['GHSA-1', 'GHSA-2', 'GHSA-3', 'ghsa-2'].map((id) => [id, 2, '2.0.0', true, false]),
  );
  t.deepEqual(await known.of('none'), []);
  t.deepEqual(await known.of('Lib'), [], 'the key of a package is in lower case');
  await t.throwsAsync(known.of('long'), {
    name: 'UpstreamUnavailable',
    message: 'The upstream two.test has too many vulnerabilities of long.',
  });
  const reads = asked.length;
  await known.of('other');
  t.is(asked.length, reads, 'the pages are not looked up for each package');
  const named = await known.named('GHSA-2');
  t.deepEqual(
    named.map(({ name, advisory: { id } }) => [name, id]),
    [
      ['lib', 'GHSA-2'],
      ['other', 'GHSA-2'],
      ['lib', 'ghsa-2'],
      ['merged', 'GHSA-2'],
    ],
  );
  t.deepEqual(await known.named('GHSA'), []);
  t.deepEqual(await known.named('a.test'), []);
  await t.throwsAsync(new KnownAdvisories(start({ one: { index: down } }).vulnerabilities).of('lib'), { is: down });
});

/** Account 1 hosts `own` and `merged`, each with an advisory. */
async function named(t: ExecutionContext, feeds: Record<string, Feed>) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    for (const [at, id] of ['Lib', 'Merged'].entries()) {
      await tx.run(
        `INSERT INTO packages (id, account_id, package_key, package_id, standing, created_at, updated_at)
         VALUES (?, 1, ?, ?, 0, 0, 0)`,
        [at + 1, id.toLowerCase(), id],
      );
      const advisory = { id: `a${at}`, account_id: 1, package_row: at + 1, severity: 3, versions: '(, 1.0]' };
      await tx.insertNew('package_advisories', [{ ...advisory, url: `https://own.test/OWN-${at}`, created_at: at }]);
    }
  });
  const { vulnerabilities, packages } = start(feeds);
  const view = { mirror: packages, advisories: new KnownAdvisories(vulnerabilities) };
  const views = { of: async () => view } as unknown as FeedViews;
  return new NamedAdvisories(database, views);
}

test('a hosted package has the advisories of its account, and a merged one those of upstreams, too', async (t) => {
  const known = await named(t, twoFeeds());
  const idsOf = async (accountId: number, name: string) => (await known.of(accountId, name)).map(({ id }) => id);
  t.deepEqual(await idsOf(1, 'lib'), ['OWN-0']);
  t.deepEqual(await idsOf(1, 'merged'), ['OWN-1', 'GHSA-2']);
  t.deepEqual(await idsOf(2, 'lib'), ['GHSA-1', 'GHSA-2', 'GHSA-3', 'ghsa-2']);
  t.deepEqual(await idsOf(1, 'other'), ['GHSA-2']);
  const [own] = (await known.of(1, 'lib')) as [Awaited<ReturnType<typeof known.of>>[number]];
  t.deepEqual([own.severity, own.fixedAt, own.affects('1.0.0'), own.affects('1.0.1')], [3, undefined, true, false]);
  const namesOf = async (accountId: number, id: string) =>
    (await known.named(accountId, id)).map(({ name, advisory: { id } }) => [name, id]);
  t.deepEqual(await namesOf(1, 'own-1'), [['merged', 'OWN-1']]);
  t.deepEqual(await namesOf(1, 'GHSA-2'), [
    ['other', 'GHSA-2'],
    ['merged', 'GHSA-2'],
  ]);
  t.deepEqual(await namesOf(2, 'own-1'), []);
  t.is((await namesOf(2, 'ghsa-2')).length, 4);
});

test('while upstreams fail, only the advisories of the account are told of a package', async (t) => {
  const known = await named(t, { one: { index: down } });
  t.deepEqual(
    (await known.of(1, 'merged')).map(({ id }) => id),
    ['OWN-1'],
  );
  t.deepEqual(await known.of(1, 'other'), []);
  await t.throwsAsync(known.named(1, 'OWN-1'), { is: down });
  const other = await named(t, { one: { index: broken } });
  await t.throwsAsync(other.of(1, 'other'), { is: broken });
});
