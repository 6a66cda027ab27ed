import { Readable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import type { ComparedName, ImportOptions, ImportResult } from '../../../src/import/item.ts';
import { offeredIn, packagesCompared, packagesInFeed } from '../../../src/nuget/import/feed.ts';
import type { PackageImport } from '../../../src/nuget/import/packages.ts';
import { SourceFeed } from '../../../src/nuget/import/source-feed.ts';
import type { StagedFile } from '../../../src/storage/files/staged-file.ts';
import { fakeRemote, type FakeAnswer } from '../../support/upstreams/fake-remote.ts';

const { signal } = new AbortController();
const base = 'http://old.test/v3/index.json';
const index = {
  resources: [
    { '@type': 'PackageBaseAddress/3.0.0', '@id': 'http://old.test/flat/' },
    { '@type': 'RegistrationsBaseUrl/3.6.0', '@id': 'http://old.test/reg/' },
    { '@type': 'SearchAutocompleteService', '@id': 'http://old.test/auto' },
  ],
};

function feedOf(pages: Record<string, unknown>, hasRegistration = true) {
  const resources = hasRegistration ? index.resources : index.resources.filter((each) => !each['@id'].includes('reg'));
  return fakeRemote(
    (path): FakeAnswer | undefined => {
      const found = path === '/v3/index.json' ? { resources } : pages[path];
      return found === undefined || found instanceof Error ? found : { body: JSON.stringify(found) };
    },
    { kind: 'nuget', base },
  );
}

type Offered = Parameters<PackageImport['version']>[0];

/** What becomes of versions is only remembered. */
function intoNothing() {
  const decided: unknown[] = [];
  const brought: [Offered, unknown][] = [];
  const into = {
    decide: async (...of: unknown[]) => {
      decided.push(of);
      return 'the place';
    },
    version: async (offered: Offered, place: unknown): Promise<ImportResult> => {
      brought.push([offered, place]);
      return { outcome: 'imported', bytes: brought.length };
    },
  };
  return { into: into as unknown as PackageImport, decided, brought };
}

function optionsOf(more: Partial<ImportOptions> = {}): ImportOptions {
  return { accountId: 1, isWanted: () => true, warn: () => undefined, signal, ...more } as ImportOptions;
}

const entry = (version: string, more: object = {}) => ({ catalogEntry: { id: 'Lib', version, ...more } });
const page = (lower: string, upper: string, more: object) => ({ lower, upper, count: 1, ...more });
const legacy = { reasons: ['Legacy'], message: 'Old.', alternatePackage: { id: 'New', range: '*' } };

const lib = {
  '/flat/lib/index.json': { versions: ['1.0.0', '3.0.0-Beta'] },
  '/reg/lib/index.json': {
    items: [
      page('1.0.0', '1.0.0', {
        items: [
          entry('1.0', {
            published: '2021-01-01T00:00:00Z',
            packageHash: 'AAAA',
            packageHashAlgorithm: 'SHA512',
            deprecation: legacy,
            dependencyGroups: [
              {
                dependencies: [
                  { id: 'B', range: '[2.0.0, )' },
                  { id: 'a', range: '[1.0.0, )' },
                ],
              },
            ],
          }),
          { catalogEntry: { id: 'Other', version: '9.0.0' } },
        ],
      }),
      page('2.0.0', '2.0.0', { '@id': 'http://old.test/pages/2' }),
    ],
  },
  '/pages/2': {
    items: [entry('2.0.0', { listed: false, deprecation: { reasons: ['Odd'] }, published: '2023-01-01T00:00:00Z' })],
  },
};

const from = 'old.test';

async function itemsOf(pages: Record<string, unknown>, more: Partial<ImportOptions> = {}, hasRegistration = true) {
  const { into, decided, brought } = intoNothing();
  const fake = feedOf(pages, hasRegistration);
  const items: { name: string; reference: string; group: string; result: ImportResult }[] = [];
  const options = optionsOf({ names: ['Lib'], ...more });
  for await (const group of packagesInFeed(into, { type: 'server', from, remote: fake.remote }, options, 50))
    for await (const { name, reference, run } of group.items())
      items.push({ name, reference, group: group.name, result: await run() });
  return { items, decided, brought, ...fake };
}

const item = (reference: string, bytes: number) => ({
  name: 'Lib',
  reference,
  group: 'Lib',
  result: { outcome: 'imported', bytes } as const,
});

test('versions come as the list and the registration of a feed tell them, each with what is said of it', async (t) => {
  const { items, decided, brought, asked } = await itemsOf(lib);
  t.deepEqual(items, [item('1.0.0', 1), item('3.0.0-beta', 2), item('2.0.0', 3)]);
  t.deepEqual(decided, [['lib', ['1.0.0', '3.0.0-beta', '2.0.0']]]);
  const offered = brought.map(([each, place]) => {
    t.is(place, 'the place');
    const { measure: _measure, fill: _fill, ...more } = Object.fromEntries(Object.entries(each));
    return more;
  });
  const common = { from, id: 'lib', downloads: 0 };
  t.deepEqual(offered as object[], [
    {
      ...common,
      version: '1.0.0',
      tellsState: true,
      sha512: 'AAAA',
      publishedAt: Date.UTC(2021, 0, 1),
      listed: true,
      deprecation: legacy,
    },
    {
      ...common,
      version: '3.0.0-beta',
      tellsState: false,
      sha512: undefined,
      publishedAt: undefined,
      listed: true,
      deprecation: undefined,
    },
    {
      ...common,
      version: '2.0.0',
      tellsState: true,
      sha512: undefined,
      publishedAt: Date.UTC(2023, 0, 1),
      listed: false,
      deprecation: undefined,
    },
  ]);
  t.deepEqual(asked().toSorted(), [
    'GET /flat/lib/index.json',
    'GET /pages/2',
    'GET /reg/lib/index.json',
    'GET /v3/index.json',
  ]);
});

const isWanted = (name: string) => name !== 'Other';

test('ids of a search have their downloads; ids that are none or not wanted are left out', async (t) => {
  const pages = {
    ...lib,
    '/auto?q=&prerelease=true&skip=0&take=200&semVerLevel=2.0.0': { totalHits: 0, data: ['Lib', 'Other'] },
  };
  const { items } = await itemsOf(pages, { names: undefined, isWanted });
  t.deepEqual(
    items.map(({ reference }) => reference),
    ['1.0.0', '3.0.0-beta', '2.0.0'],
  );
  const none = await itemsOf(lib, { names: ['no id!', 'Lib'], isWanted: () => false });
  t.deepEqual(none.items, []);
  const { into, brought } = intoNothing();
  const { remote } = feedOf(lib);
  const feed = new SourceFeed(remote, signal);
  const one = offeredIn(
    { feed, remote, from, signal, limit: 5 },
    new URL('http://old.test/flat/'),
    { id: 'a', version: '1.0.0' },
    undefined,
    7,
  );
  await into.version(one, undefined as never);
  t.is(brought[0]![0].downloads, 7);
});

test('only the wanted references come, and nothing that is older than a date that is told', async (t) => {
  const referencesOf = async (more: Partial<ImportOptions>) => {
    const { items, decided } = await itemsOf(lib, more);
    t.deepEqual(decided, [['lib', ['1.0.0', '3.0.0-beta', '2.0.0']]], 'all versions decide');
    return items.map(({ reference }) => reference);
  };
  t.deepEqual(await referencesOf({ references: ['2.0.0', '9.0.0'] }), ['2.0.0']);
  t.deepEqual(await referencesOf({ since: Date.UTC(2023, 0, 1) }), ['3.0.0-beta', '2.0.0']);
  t.deepEqual(await referencesOf({ since: Date.UTC(2023, 0, 1) + 1 }), ['3.0.0-beta']);
  t.deepEqual(await referencesOf({ since: 0 }), ['1.0.0', '3.0.0-beta', '2.0.0']);
});

test('a feed without registrations has the versions of its list; an id without a version is an error', async (t) => {
  const { items, asked } = await itemsOf(lib, {}, false);
  t.deepEqual(
    items.map(({ reference }) => reference),
    ['1.0.0', '3.0.0-beta'],
  );
  t.false(asked().some((each) => each.includes('/reg/')));
  const missing = { '/flat/lib/index.json': undefined, '/reg/lib/index.json': undefined };
  for (const pages of [missing, { '/flat/lib/index.json': { versions: [] } }])
    await t.throwsAsync(itemsOf(pages), {
      name: 'NotFound',
      message: 'The source lists this package and has no version of it.',
    });
  await t.throwsAsync(itemsOf({ ...lib, '/pages/2': undefined }), {
    name: 'NotFound',
    message: 'The source lacks a page that its registration names.',
  });
});

const flat = new URL('http://old.test/flat/');
const nupkg = '/flat/lib/1.0.0/lib.1.0.0.nupkg';

/** A version of a server that answers requests for its file with these. */
function offeredBy(...answers: (FakeAnswer | undefined)[]) {
  const fake = fakeRemote(() => answers.shift(), { kind: 'nuget', base });
  const feed = new SourceFeed(fake.remote, signal);
  const parts = { feed, remote: fake.remote, from, signal, limit: 50 };
  return { ...fake, offered: offeredIn(parts, flat, { id: 'lib', version: '1.0.0' }) };
}

const sized = (size: number | string, status = 200): FakeAnswer => ({
  status,
  headers: { 'content-length': `${size}` },
});

test('a file is measured by HEAD, and by GET where HEAD is refused', async (t) => {
  const asked = { url: `http://old.test${nupkg}`, subject: 'lib', signal };
  const head = { ...asked, method: 'HEAD', answers: [403, 405, 501] };
  for (const [answer, size] of [
    [sized(7), 7],
    [sized(0), 0],
    [{}, undefined],
    [sized('9007199254740993'), undefined],
  ] as const) {
    const { offered, requests } = offeredBy(answer);
    t.is(await offered.measure!(), size);
    t.deepEqual(requests as object[], [head]);
  }
  for (const status of [403, 405, 501]) {
    const endless = new Readable({ read: () => undefined });
    const { offered, requests, bodies } = offeredBy(
      { status, body: 'refused' },
      { body: endless, headers: { 'content-length': '9' } },
    );
    t.is(await offered.measure!(), 9);
    t.deepEqual(requests as object[], [head, { ...asked, method: 'GET', answers: [] }]);
    await turn();
    t.deepEqual([endless.destroyed, bodies[0]!.readableEnded], [true, true], 'nothing more comes');
  }
  const missing = { name: 'NotFound', message: 'The source lists this version and does not have its file.' };
  await t.throwsAsync(offeredBy(undefined).offered.measure!(), missing);
  await t.throwsAsync(offeredBy(sized(1, 405), undefined).offered.measure!(), missing);
  const { offered, bodies } = offeredBy({ status: 404, body: 'none' });
  await t.throwsAsync(filled(offered), missing);
  await turn();
  t.true(bodies[0]!.readableEnded);
});

/** What comes of the file of a version. */
async function filled({ fill }: Pick<Offered, 'fill'>, staged = stagedBytes()) {
  await fill(staged as unknown as StagedFile);
  return staged;
}

/** A file that counts what comes, or fails. */
function stagedBytes(fails?: Error) {
  const staged = {
    size: 0,
    options: undefined as unknown,
    append: async (body: AsyncIterable<Buffer>, options: unknown) => {
      staged.options = options;
      if (fails) throw fails;
      for await (const each of body) staged.size += each.length;
    },
  };
  return staged;
}

test('a file comes whole, within the limit, or not at all', async (t) => {
  const fill = (answer: FakeAnswer, staged = stagedBytes()) => filled(offeredBy(answer).offered, staged);
  for (const headers of [undefined, { 'content-length': '5' }]) {
    const { size, options } = await fill({ body: 'bytes', ...(headers && { headers }) });
    t.deepEqual([size, options], [5, { limit: 50, idle: 60_000 }]);
  }
  const full = 'x'.repeat(50);
  t.is((await fill({ body: full, headers: { 'content-length': '50' } })).size, 50);
  const large = new Readable({ read: () => undefined });
  await t.throwsAsync(fill({ body: large, headers: { 'content-length': '51' } }), {
    name: 'TooLarge',
    message: 'The package is larger than the 50 bytes allowed here.',
  });
  t.true(large.destroyed);
  t.is((await fill({ headers: { 'content-length': '0' } })).size, 0);
  for (const size of [4, 6]) {
    const headers = { 'content-length': `${size}` };
    await t.throwsAsync(fill({ body: 'bytes', headers }));
    // Another length is noticed also if the body does not end with an error.
    const told = { status: 200, headers, body: Readable.from([Buffer.from('bytes')]), decoded: false };
    const remote = Object.assign(fakeRemote(() => undefined).remote, { send: async () => told });
    const parts = { feed: new SourceFeed(remote, signal), remote, from, signal, limit: 50 };
    await t.throwsAsync(filled(offeredIn(parts, flat, { id: 'lib', version: '1.0.0' })), {
      name: 'Aborted',
      message: 'The file came incomplete.',
    });
  }
  const endless = new Readable({ read: () => undefined });
  const failed = stagedBytes(new Error('the disk is full'));
  await t.throwsAsync(fill({ body: endless }, failed), { message: 'the disk is full' });
  t.true(endless.destroyed);
});

const here = (version: string) => ({ hash: `here lib ${version}` });

test('versions are compared by the hash that is told, or that is read; those that are only here follow', async (t) => {
  const calls: unknown[] = [];
  const into = {
    decide: async (...of: unknown[]) => {
      calls.push(['decide', ...of]);
      return 'the place';
    },
    hashOf: async ({ version }: Offered) => `read ${version}`,
    isMirrored: async ({ version }: Offered, ...of: unknown[]) => {
      calls.push(['isMirrored', version, ...of]);
      return version === '2.0.0';
    },
    factsHere: async (id: string, version: string) => ({ hash: `here ${id} ${version}` }),
    versionsHere: async (id: string) => {
      calls.push(['versionsHere', id]);
      return ['1.0.0', '0.5.0'];
    },
  } as unknown as PackageImport;
  const compared = async (reading: boolean, withUpstreams: boolean, names?: string[]) => {
    calls.length = 0;
    const listed: ComparedName[] = [];
    const source = { type: 'server', from, remote: feedOf(lib).remote } as const;
    const how = { reading, withUpstreams };
    for await (const each of packagesCompared(into, source, optionsOf({ names }), 50, how)) listed.push(each);
    const found: [string, unknown[]][] = [];
    for (const { name, references } of listed) {
      const all: unknown[] = [];
      for await (const each of references()) all.push(each);
      found.push([name, all]);
    }
    return found;
  };
  const groups = [
    {
      targetFramework: '',
      dependencies: [
        { id: 'B', range: '[2.0.0, )' },
        { id: 'a', range: '[1.0.0, )' },
      ],
    },
  ];
  const first = { publishedAt: Date.UTC(2021, 0, 1), listed: true, deprecation: legacy, sha512: 'AAAA' };
  const second = { publishedAt: Date.UTC(2023, 0, 1), listed: false, deprecation: undefined, sha512: undefined };
  const [[, all]] = (await compared(false, false, ['LIB'])) as [[string, any[]]];
  t.deepEqual(
    all.map(({ reference }) => reference),
    ['1.0.0', '3.0.0-beta', '2.0.0', '0.5.0'],
  );
  const { groups: told, ...theirs } = all[0].theirs;
  t.deepEqual(theirs, { ...first, hash: 'AAAA', dependencies: 'a [1.0.0, ), b [2.0.0, )' });
  t.deepEqual(
    told.map(({ dependencies }: any) => dependencies),
    groups.map(({ dependencies }) => dependencies),
  );
  t.deepEqual(all[1], {
    reference: '3.0.0-beta',
    theirs: { hash: 'read 3.0.0-beta', dependencies: undefined },
    ours: here('3.0.0-beta'),
  });
  t.like(all[2], { theirs: { ...second, hash: 'read 2.0.0', dependencies: '' }, ours: here('2.0.0') });
  t.deepEqual(all[3], { reference: '0.5.0', theirs: undefined, ours: here('0.5.0') });
  t.deepEqual(calls, [['versionsHere', 'lib']]);
  const [[name, mirrored]] = (await compared(true, true, ['LIB'])) as [[string, any[]]];
  t.is(name, 'LIB');
  t.deepEqual(
    mirrored.slice(0, 3).map((each) => [each.theirs.hash, each.ours === each.theirs]),
    [
      ['read 1.0.0', false],
      ['read 3.0.0-beta', false],
      ['read 2.0.0', true],
    ],
  );
  t.deepEqual(calls, [
    ['decide', 'lib', ['1.0.0', '3.0.0-beta', '2.0.0']],
    ...['1.0.0', '3.0.0-beta', '2.0.0'].map((each) => ['isMirrored', each, 'the place', `read ${each}`]),
    ['versionsHere', 'lib'],
  ]);
  t.deepEqual(await compared(false, false), []);
  await t.throwsAsync(compared(false, false, ['none']), {
    name: 'NotFound',
    message: 'The source lists this package and has no version of it.',
  });
});
