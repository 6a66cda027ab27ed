import test from 'ava';
import { parseVersion } from '../../../src/nuget/format/version.ts';
import type { DocumentReading } from '../../../src/nuget/upstream/documents.ts';
import type { Owner, PackageMirror } from '../../../src/nuget/upstream/package-mirror.ts';
import type { ListedPage, ListedVersion } from '../../../src/nuget/upstream/registration-pages.ts';
import { UpstreamRegistrations } from '../../../src/nuget/upstream/upstream-registration.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { notAsked } from '../../../src/mirror/stored-only.ts';

// Registrations whose documents are in memory.

const upstream = { id: 'one', name: 'one.test', base: new URL('http://one.test/v3/index.json') } as Upstream;
const owner: Owner = { upstream };

const version = (text: string, more: { bytes?: number; sha512?: string; listed?: boolean; shown?: object } = {}) => {
  const { bytes = 10, sha512, listed = true } = more;
  const registered = { version: text, bytes, listed, ...(sha512 !== undefined && { sha512 }) };
  return { version: text, bytes, publishedAt: undefined, json: JSON.stringify(registered) } satisfies ListedVersion;
};

const numbered = (major: number, count: number) =>
  Array.from({ length: count }, (_, at) => version(`${major}.${at}.0`));

const shownOf = (...versions: readonly ListedVersion[]) => versions.map(({ json }) => JSON.parse(json) as never);

/** A page that is in the index with its versions, or a document of its own. */
function page(
  lower: string,
  upper: string,
  { count = 2, versions }: Pick<Partial<ListedPage>, 'count' | 'versions'> = {},
) {
  const bounds = { lower, upper, first: parseVersion(lower)!, last: parseVersion(upper)! };
  return { ...bounds, count, ...(versions ? { versions } : { address: `page-${lower}.json` }) } satisfies ListedPage;
}

const inline = (...versions: readonly [ListedVersion, ...ListedVersion[]]) =>
  page(versions[0].version, versions.at(-1)!.version, { count: versions.length, versions });

interface Setup {
  /** By `semver2` or `semver1`. */
  index?: readonly ListedPage[] | Error;
  semVer1?: readonly ListedPage[] | Error;
  /** The pages that are documents of their own, by their lower bounds. */
  pages?: Record<string, readonly ListedVersion[]>;
  hidden?: readonly string[];
  /** The stored versions that the upstream does not offer. */
  kept?: readonly ListedVersion[];
  types?: readonly string[];
}

function start({ index, semVer1 = index, pages = {}, hidden, kept = [], types = [] }: Setup) {
  const asked: unknown[][] = [];
  const packages = {
    document: async (
      by: Owner,
      kind: string,
      name: string,
      reference: string,
      locate: () => Promise<URL> | URL,
      reading: DocumentReading<unknown>,
    ) => {
      asked.push([by, kind, name, reference, (await locate()).href, await reading.options()]);
      if (reference !== 'index') {
        const value = pages[reference.split('/')[1]!];
        return value && { value, outcome: 'hit' };
      }
      const value = kind === 'registration-semver2' ? index : semVer1;
      if (value instanceof Error) throw value;
      return value && { value, outcome: 'stale' };
    },
    flat: async () => 'http://one.test/flat/',
    resource: async (_upstream: Upstream, some: readonly string[]) => {
      asked.push(['types', some]);
      return 'http://one.test/registration';
    },
    resources: async () => new Map(types.map((type) => [type, ''])),
    isLimited: async () => hidden !== undefined,
    listed: async <T>(_upstream: Upstream, _key: string, items: readonly T[], versionOf: (item: T) => string) =>
      items.filter((each) => !hidden?.includes(versionOf(each))),
    withdrawn: {
      keys: async () => kept.map((each) => each.version),
      registered: async (_upstream: Upstream, _key: string, versions: readonly string[], semVer2: boolean) => {
        asked.push(['kept', versions, semVer2]);
        return kept.filter((each) => versions.includes(each.version));
      },
    },
    keptVersions: async () => ['1.5.0'],
  } as unknown as PackageMirror;
  const registrations = new UpstreamRegistrations(packages);
  const documents = () =>
    asked.filter(([by]) => typeof by === 'object').map(([, kind, , reference]) => [kind, reference]);
  return { registrations, asked, documents };
}

const between = (registrations: UpstreamRegistrations, lower?: string, upper?: string) =>
  registrations.versions(
    owner,
    'lib',
    true,
    lower === undefined ? undefined : parseVersion(lower),
    upper === undefined ? undefined : parseVersion(upper),
  );

test('few versions of the index are in its pages, which are those of the upstream', async (t) => {
  const [a, b] = [inline(version('1.0.0'), version('1.1.0')), inline(version('2.0.0'))];
  const { registrations, asked } = start({ index: [a, b] });
  t.deepEqual(await registrations.pages(owner, 'lib', true), {
    outcome: 'stale',
    value: [
      { lower: '1.0.0', upper: '1.1.0', count: 2, items: shownOf(version('1.0.0'), version('1.1.0')) },
      { lower: '2.0.0', upper: '2.0.0', count: 1, items: shownOf(version('2.0.0')) },
    ],
  });
  const plain = ['RegistrationsBaseUrl/3.0.0-rc', 'RegistrationsBaseUrl/3.0.0-beta', 'RegistrationsBaseUrl'];
  const second = ['RegistrationsBaseUrl/3.6.0', 'RegistrationsBaseUrl/Versioned', 'RegistrationsBaseUrl/3.4.0'];
  const options = { index: true, key: 'lib', base: 'http://one.test/v3/index.json', flat: 'http://one.test/flat/' };
  const address = 'http://one.test/registration/lib/index.json';
  t.deepEqual(asked.splice(0), [
    ['types', [...second, ...plain]],
    [owner, 'registration-semver2', 'lib', 'index', address, { ...options, semVer2: true }],
    ['kept', [], true],
  ]);
  await registrations.pages(owner, 'lib', false);
  t.deepEqual(asked.splice(0), [
    ['types', ['RegistrationsBaseUrl/3.4.0', ...plain, ...second]],
    [owner, 'registration', 'lib', 'index', address, { ...options, semVer2: false }],
    ['kept', [], false],
  ]);
});

test('an index with many versions, or long ones, has pages without them', async (t) => {
  const fit = start({
    index: [inline(...(numbered(1, 64) as [ListedVersion])), inline(...(numbered(2, 63) as [ListedVersion]))],
  });
  const few = (await fit.registrations.pages(owner, 'lib', true))!.value;
  t.deepEqual(
    few.map(({ count, items }) => [count, items?.length]),
    [
      [64, 64],
      [63, 63],
    ],
  );
  const many = start({
    index: [inline(...(numbered(1, 100) as [ListedVersion])), inline(...(numbered(2, 28) as [ListedVersion]))],
  });
  t.deepEqual((await many.registrations.pages(owner, 'lib', true))!.value, [
    { lower: '1.0.0', upper: '1.63.0', count: 64 },
    { lower: '1.64.0', upper: '1.99.0', count: 36 },
    { lower: '2.0.0', upper: '2.27.0', count: 28 },
  ]);
  const long = { bytes: 2 ** 19 + 1 };
  const large = start({ index: [inline(version('1.0.0', long), version('2.0.0', long))] });
  t.deepEqual((await large.registrations.pages(owner, 'lib', true))!.value, [
    { lower: '1.0.0', upper: '1.0.0', count: 1 },
    { lower: '2.0.0', upper: '2.0.0', count: 1 },
  ]);
});

test('a page of the upstream is fetched for the index only if it is too long for this feed, of the first 32', async (t) => {
  const lowers = Array.from({ length: 33 }, (_, at) => `${at + 1}.0.0`);
  const pages = Object.fromEntries(lowers.map((lower) => [lower, [version(lower)]]));
  const index = [
    page('0.1.0', '0.9.0', { count: 1024 }),
    ...lowers.map((lower) => page(lower, `${lower}-z`, { count: 1025 })),
  ];
  const { registrations, documents } = start({ index, pages });
  const found = (await registrations.pages(owner, 'lib', true))!.value;
  t.deepEqual(found[0], { lower: '0.1.0', upper: '0.9.0', count: 1024 });
  t.is(found.length, 34);
  t.is(documents().length, 33, 'the index and 32 pages');
  t.deepEqual(
    found.slice(-2).map(({ count, items }) => [count, items?.length]),
    [
      [1, 1],
      [1025, undefined],
    ],
  );
});

test('with hidden versions, the pages have the bounds and counts of those that are shown', async (t) => {
  const index = [
    page('1.0.0', '1.9.0'),
    inline(version('2.0.0'), version('2.1.0'), version('2.2.0')),
    inline(version('3.0.0-A')),
  ];
  const pages = { '1.0.0': [version('1.0.0'), version('1.9.0')] };
  const { registrations } = start({ index, pages, hidden: ['1.0.0', '2.0.0', '2.2.0', '3.0.0-a'] });
  t.deepEqual((await registrations.pages(owner, 'lib', true))!.value, [
    { lower: '1.9.0', upper: '1.9.0', count: 1, items: shownOf(version('1.9.0')) },
    { lower: '2.1.0', upper: '2.1.0', count: 1, items: shownOf(version('2.1.0')) },
  ]);
  const none = start({ index: [inline(version('1.0.0'))], hidden: ['1.0.0'] });
  t.is(await none.registrations.pages(owner, 'lib', true), undefined);
  t.is(await start({}).registrations.pages(owner, 'lib', true), undefined);
});

test('stored versions that the upstream lacks are on its pages, which have their bounds', async (t) => {
  const { registrations, asked } = start({
    index: [inline(version('1.0.0'), version('1.2.0')), page('2.0.0', '2.9.0'), inline(version('3.0.0'))],
    pages: { '2.0.0': [version('2.0.0'), version('2.9.0')] },
    kept: [version('1.1.0', { listed: false }), version('1.3.0')],
  });
  const first = shownOf(version('1.0.0'), version('1.1.0', { listed: false }), version('1.2.0'));
  t.deepEqual(await registrations.pages(owner, 'lib', false), {
    outcome: 'stale',
    value: [
      { lower: '1.0.0', upper: '1.2.0', count: 3, items: first },
      {
        lower: '1.3.0',
        upper: '2.9.0',
        count: 3,
        items: shownOf(version('1.3.0'), version('2.0.0'), version('2.9.0')),
      },
      { lower: '3.0.0', upper: '3.0.0', count: 1, items: shownOf(version('3.0.0')) },
    ],
  });
  t.true(asked.some((each) => each[0] === 'kept' && each[2] === false));
  t.deepEqual((await between(registrations, '1.0.5', '1.9.0'))!.value, [
    ...first.slice(1),
    ...shownOf(version('1.3.0')),
  ]);
});

test('a package whose registration the upstream lacks has its stored versions', async (t) => {
  for (const index of [undefined, []]) {
    const { registrations, asked } = start({ ...(index && { index }), kept: [version('1.5.0'), version('2.0.0')] });
    t.deepEqual(await registrations.pages(owner, 'lib', true), {
      outcome: 'withdrawn',
      value: [{ lower: '1.5.0', upper: '1.5.0', count: 1, items: shownOf(version('1.5.0')) }],
    });
    t.deepEqual(asked.at(-1), ['kept', ['1.5.0'], true]);
  }
});

test('a range has its versions from the pages that it touches, both ends included', async (t) => {
  const index = [
    inline(version('1.0.0'), version('1.1.0'), version('1.2.0')),
    page('2.0.0', '2.9.0'),
    inline(version('3.0.0')),
  ];
  const pages = { '2.0.0': [version('2.0.0'), version('2.9.0')] };
  const { registrations, documents } = start({ index, pages });
  const versionsOf = async (lower?: string, upper?: string) =>
    (await between(registrations, lower, upper))!.value.map((each) => each.version);
  for (const [lower, upper, expected] of [
    ['1.1.0', '1.1.0', ['1.1.0']],
    ['1.0.1', '1.1.9', ['1.1.0']],
    ['1.2.0', '2.0.0', ['1.2.0', '2.0.0']],
    [undefined, '1.0.0', ['1.0.0']],
    ['2.9.0', undefined, ['2.9.0', '3.0.0']],
    ['1.3.0', '1.9.0', []],
    ['4.0.0', undefined, []],
    [undefined, undefined, ['1.0.0', '1.1.0', '1.2.0', '2.0.0', '2.9.0', '3.0.0']],
  ] as const)
    t.deepEqual(await versionsOf(lower, upper), [...expected], `${lower} ${upper}`);
  const before = documents().length;
  await versionsOf('1.0.0', '1.9.9');
  await versionsOf('2.9.1', undefined);
  t.deepEqual(documents().slice(before), [
    ['registration-semver2', 'index'],
    ['registration-semver2', 'index'],
  ]);
  const all = (await between(registrations))!;
  t.deepEqual([all.outcome, all.value.slice(0, 1)], ['stale', shownOf(version('1.0.0'))]);
  t.is(await between(start({}).registrations), undefined);
  t.deepEqual(await registrations.sizes(owner, 'lib', true), {
    outcome: 'stale',
    value: ['1.0.0', '1.1.0', '1.2.0', '2.0.0', '2.9.0', '3.0.0'].map((each) => version(each)),
  });
  t.is(await start({}).registrations.sizes(owner, 'lib', true), undefined);
});

test('a range that is too long is refused before its pages are read', async (t) => {
  const lowers = Array.from({ length: 33 }, (_, at) => `${at + 1}.0.0`);
  const pages = Object.fromEntries(lowers.map((lower) => [lower, [version(lower)]]));
  const { registrations, documents } = start({ index: lowers.map((lower) => page(lower, lower)), pages });
  const message = 'There are too many versions in this range. Request a page that the index names.';
  await t.throwsAsync(between(registrations), { name: 'Invalid', message });
  t.is(documents().length, 1);
  t.is((await between(registrations, '2.0.0'))!.value.length, 32);
  const many = start({ index: [inline(...(numbered(1, 1025) as [ListedVersion]))] });
  await t.throwsAsync(between(many.registrations), { name: 'Invalid', message });
  t.is((await between(many.registrations, '1.1.0'))!.value.length, 1024);
});

test('a page that the index names and the upstream lacks is a failure of the upstream', async (t) => {
  const { registrations, asked } = start({ index: [page('1.0.0', '2.0.0')] });
  await t.throwsAsync(between(registrations), {
    name: 'UpstreamUnavailable',
    message: 'The upstream one.test has no page that its registration of lib names.',
  });
  const [by, kind, name, , address, options] = asked.at(-1)!;
  t.deepEqual([by, kind, name, address], [owner, 'registration-semver2', 'lib', 'http://one.test/v3/page-1.0.0.json']);
  t.like(options, { index: false, key: 'lib', semVer2: true });
});

test('one version is found in its page, also one that lists do not show', async (t) => {
  const index = [inline(version('1.0.0'), version('1.2.0-Beta', { listed: false })), page('2.0.0', '2.9.0')];
  const pages = { '2.0.0': [version('2.0.0'), version('2.9.0')] };
  const { registrations, documents, asked } = start({ index, pages, hidden: ['1.2.0-beta'] });
  t.deepEqual(await registrations.unfiltered(owner, 'lib', '1.2.0-beta'), version('1.2.0-Beta', { listed: false }));
  t.deepEqual(await registrations.unfiltered(owner, 'lib', '1.0.0'), version('1.0.0'));
  t.is(documents().length, 2);
  t.deepEqual(await registrations.unfiltered(owner, 'lib', '2.9.0'), version('2.9.0'));
  for (const other of ['0.1.0', '1.1.0', '1.3.0', '3.0.0', '2.5.0'])
    t.is(await registrations.unfiltered(owner, 'lib', other), undefined, other);
  t.is(await start({}).registrations.unfiltered(owner, 'lib', '1.0.0'), undefined);
  asked.length = 0;
  t.is(await registrations.isListed(owner, 'lib', '1.2.0-beta'), false);
  t.is(await registrations.isListed(owner, 'lib', '1.0.0'), true);
  t.is(await registrations.isListed(owner, 'lib', '1.1.0'), undefined);
  t.deepEqual(asked[1]![0], { upstream, silence: notAsked });
  t.is(await start({ index: notAsked }).registrations.isListed(owner, 'lib', '1.0.0'), undefined);
  const broken = new Error('it broke');
  await t.throwsAsync(start({ index: broken }).registrations.isListed(owner, 'lib', '1.0.0'), { is: broken });
});

test('the hash of a nupkg is the one of the first stored registration that has it', async (t) => {
  const one = [inline(version('1.0.0', { sha512: 'one' }), version('2.0.0'))];
  const other = [inline(version('1.0.0', { sha512: 'other' }), version('2.0.0', { sha512: 'two' }))];
  const both = start({ index: one, semVer1: other });
  t.is(await both.registrations.storedHash(owner, 'lib', '1.0.0'), 'one');
  t.deepEqual(both.documents(), [['registration-semver2', 'index']]);
  t.deepEqual(both.asked[1]![0], { upstream, silence: notAsked });
  t.is(await both.registrations.storedHash(owner, 'lib', '2.0.0'), 'two');
  t.is(await both.registrations.storedHash(owner, 'lib', '3.0.0'), undefined);
  t.is(await start({ index: notAsked, semVer1: other }).registrations.storedHash(owner, 'lib', '1.0.0'), 'other');
  t.is(await start({ index: notAsked }).registrations.storedHash(owner, 'lib', '1.0.0'), undefined);
  t.is(await start({}).registrations.storedHash(owner, 'lib', '1.0.0'), undefined);
  const broken = new UpstreamError('UpstreamTimeout', 'It does not answer.');
  t.is(await start({ index: broken }).registrations.storedHash(owner, 'lib', '1.0.0'), undefined);
  const bug = new Error('it broke');
  await t.throwsAsync(start({ index: bug }).registrations.storedHash(owner, 'lib', '1.0.0'), { is: bug });
});

test('an upstream offers registrations if it announces one of their types', async (t) => {
  for (const type of [
    'RegistrationsBaseUrl/3.6.0',
    'RegistrationsBaseUrl/Versioned',
    'RegistrationsBaseUrl/3.4.0',
    'RegistrationsBaseUrl/3.0.0-rc',
    'RegistrationsBaseUrl/3.0.0-beta',
    'RegistrationsBaseUrl',
  ])
    t.true(await start({ types: ['Other', type] }).registrations.areOffered(upstream), type);
  t.false(
    await start({ types: ['RegistrationsBaseUrl/4', 'PackageBaseAddress/3.0.0'] }).registrations.areOffered(upstream),
  );
});
