import test from 'ava';
import { prefetchPackages } from '../../../src/nuget/prefetch/packages.ts';
import type { PrefetchItem } from '../../../src/prefetch/item.ts';
import type { PrefetchOptions } from '../../../src/prefetch/prefetch.ts';
import { PrefetchRun } from '../../../src/prefetch/run.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { makeNupkg, makeNuspec } from '../../support/builders/nupkg.ts';
import { prefetchOptions, wishesIn, wishesOf } from '../../support/prefetch.ts';

type Bytes = Buffer | string;

interface Setting {
  /** What an upstream offers: files of versions by their id. */
  there?: Record<string, Record<string, Bytes>>;
  /** Entries that are stored, by `kind name reference`, of the upstream `one`. */
  stored?: Record<string, Bytes>;
  hosted?: readonly string[];
  merged?: readonly string[];
  reserved?: readonly string[];
  /** Nuspecs of versions that are hosted, by `id version`. */
  beside?: Record<string, string>;
  served?: string;
  isFull?: boolean;
  /** Versions that lists do not show. */
  hidden?: readonly string[];
  withdrawn?: readonly string[];
  upstreams?: readonly string[];
  head?: { status?: number; headers?: object };
  registrations?: 'none' | 'failing';
  advisories?: readonly { upstream: string; name: string; updated: string }[];
}

const keyOf = (key: { upstream: string; kind: string; name: string; reference: string }) =>
  `${key.upstream} ${key.kind} ${key.name} ${key.reference}`;

const metadataOf = (bytes: Buffer) => ({ digest: digestOf(bytes), size: bytes.length });

async function prefetched(setting: Setting, items: readonly PrefetchItem[], more: Partial<PrefetchOptions> = {}) {
  const { there = {}, hosted = [], merged = [], reserved = [], beside = {}, upstreams = ['one', 'two'] } = setting;
  const calls: string[] = [];
  const opened = new Set<object>();
  const stored = new Map(
    Object.entries(setting.stored ?? {}).map(([key, bytes]) => [`one ${key}`, Buffer.from(bytes)]),
  );
  const all = upstreams.map((id) => ({
    id,
    name: `${id}.test`,
    unavailable: () => void calls.push(`pass ${id}`),
    counts: { rateLimit: () => undefined },
    send: async ({
      method,
      url,
      subject,
      answers,
    }: {
      method: string;
      url: URL;
      subject: string;
      answers: number[];
    }) => {
      calls.push(`${method} ${url.href} ${subject} ${answers.join()}`);
      const { status = 200, headers = {} } = setting.head ?? {};
      return { status, headers, body: { on: () => undefined, once: () => undefined, destroy: () => undefined } };
    },
  }));
  const contentIn = (bytes: Buffer) => {
    const content = {};
    opened.add(content);
    return { ...contentOf(bytes), close: () => void opened.delete(content) };
  };
  const mirror = {
    stored: async (key: Parameters<typeof keyOf>[0]) => {
      const bytes = stored.get(keyOf(key));
      return bytes && metadataOf(bytes);
    },
    openStored: async ({ key }: { key: Parameters<typeof keyOf>[0] }) => {
      const bytes = stored.get(keyOf(key));
      const metadata = bytes && metadataOf(bytes);
      return bytes && { content: contentIn(bytes), size: bytes.length, metadata, complete: Promise.resolve(metadata) };
    },
    references: async ({ upstream, kind, name }: { upstream: string; kind: string; name: string }, most: number) => {
      if (most !== 10_000) throw new Error(`${most} references`);
      const start = `${upstream} ${kind} ${name} `;
      return [...stored.keys()].filter((each) => each.startsWith(start)).map((each) => each.slice(start.length));
    },
  };
  const origin = {
    all,
    candidates: () => all,
    isReserved: (id: string) => reserved.includes(id),
    isMerged: (id: string) => merged.includes(id),
  };
  const packageMirror = {
    origin,
    servedFromStore: async (id: string, version: string) => {
      const bytes = stored.get(`one nupkg ${id.toLowerCase()} ${version}`);
      return bytes && { upstream: all[0], nupkg: metadataOf(bytes) };
    },
    listed: async (_upstream: unknown, _key: string, versions: string[], versionOf: (each: string) => string) =>
      versions.map(versionOf).filter((each) => !(setting.hidden ?? []).includes(each)),
    withdrawn: { keys: async () => setting.withdrawn ?? [] },
    owner: async (id: string) => (there[id.toLowerCase()] ? { upstream: all[0] } : undefined),
    nupkgUrl: async (_upstream: unknown, key: string, version: string) => new URL(`http://one.test/${key}/${version}`),
  };
  const registrations = {
    areOffered: async () => {
      if (setting.registrations === 'failing') throw new UpstreamError('UpstreamUnavailable', 'It is down.');
      return setting.registrations !== 'none';
    },
    versions: async (_of: unknown, name: string, semVer2: boolean, from: object, to: object) => {
      calls.push(`registration ${name} ${semVer2} ${from === to}`);
      throw new UpstreamError('UpstreamUnavailable', 'It is down.');
    },
  };
  const vulnerabilities = {
    pages: async () => {
      calls.push('advisories');
      return setting.advisories ?? [];
    },
    page: async (upstream: string, name: string) => void calls.push(`advisory ${upstream} ${name}`),
  };
  const packageSource = {
    versionKeys: async (account: number, id: string) => {
      calls.push(`versions ${id}`);
      const found = account === 7 ? there[id.toLowerCase()] : undefined;
      return found && { value: Object.keys(found) };
    },
    openFile: async (account: number, id: string, version: string, kind: string) => {
      calls.push(`${kind} ${id} ${version}`);
      const bytes = kind === 'nupkg' ? there[id.toLowerCase()]?.[version] : beside[`${id} ${version}`];
      if (bytes === undefined || bytes === '' || account !== 7) return undefined;
      const served = setting.served ?? 'miss';
      if (kind === 'nupkg' && !setting.isFull)
        stored.set(`one nupkg ${id.toLowerCase()} ${version}`, Buffer.from(bytes));
      return { content: contentIn(Buffer.from(bytes)), served };
    },
  };
  const database = {
    select: async (sql: string, [first, ...values]: unknown[]) => {
      if (sql.includes('FROM packages'))
        return hosted.filter((each) => values.includes(each)).map((id) => ({ package_key: id }));
      calls.push(`names ${[first, ...values].join()}`);
      const names = new Set(
        [...stored.keys()]
          .map((each) => each.split(' '))
          .filter((each) => each[1] === 'nupkg')
          .map((each) => each[2]!),
      );
      return [...names].map((name) => ({ name }));
    },
  };
  const options = prefetchOptions(7, { items, ...more });
  const collect = options.collect === true;
  const run = new PrefetchRun({ ...options, collect, upstreams: [], share: 1, patience: 0, waiting: () => undefined });
  const views = { of: async () => ({ mirror: packageMirror, registrations, vulnerabilities }) };
  const parts = { database, mirror, views, packageSource } as unknown as Parameters<typeof prefetchPackages>[0];
  await prefetchPackages(parts, run, options);
  await run.done();
  const { fetched, present, missing, skipped, needed, unmeasured, approximate } = run.report;
  return {
    calls,
    fetched: fetched.package,
    present: present.package,
    missing: missing.map(({ what, reason, location: { file, line } }) => `${file}:${line} ${what}: ${reason}`),
    skipped: Object.fromEntries(skipped),
    needed: [...needed.values()].map(({ key }) => keyOf(key)),
    unmeasured,
    approximate,
    open: opened.size,
  };
}

const none = { count: 0, bytes: 0 };
const flat = (...versions: string[]) => JSON.stringify({ versions });

test('a version is fetched once, with the list of versions before it, and is told with its bytes', async (t) => {
  const { fetched, present, missing, calls, open, approximate } = await prefetched(
    { there: { lib: { '1.0.0': 'a file' } } },
    wishesOf('Lib@1.0.0', 'LIB@1.0', 'Lib@2.0.0', 'None@1.0.0'),
  );
  t.deepEqual([fetched, present, open, approximate], [{ count: 1, bytes: 6 }, none, 0, false]);
  const absent = 'the upstream does not have this version';
  t.deepEqual(missing.toSorted(), [`list.txt:3 Lib 2.0.0: ${absent}`, `list.txt:4 None 1.0.0: ${absent}`]);
  t.deepEqual(calls, [
    'pass one',
    'versions None',
    'advisories',
    'pass one',
    'versions LIB',
    'pass one',
    'nupkg LIB 1.0.0',
    'pass one',
    'versions Lib',
  ]);
  const gone = await prefetched({ there: { lib: { '1.0.0': '' } } }, wishesOf('Lib@1.0.0'));
  t.deepEqual([gone.missing, gone.fetched], [[`list.txt:1 Lib 1.0.0: ${absent}`], none]);
});

test('a stored version is not fetched if its list is stored, too, and shows it or keeps it', async (t) => {
  const nupkg = { 'nupkg lib 1.0.0': 'a file' };
  const there = { lib: { '1.0.0': 'a file' } };
  const outcomeOf = async (setting: Setting) => {
    const { fetched, present, calls, open } = await prefetched(setting, wishesOf('Lib@1.0.0'));
    t.is(open, 0);
    return [fetched.count, present.count, calls.includes('nupkg Lib 1.0.0')];
  };
  const listed = { ...nupkg, 'flat lib ': flat('1.0.0') };
  t.deepEqual(await outcomeOf({ there, stored: listed }), [0, 1, false]);
  t.deepEqual(await outcomeOf({ there, stored: { ...nupkg, 'flat lib ': flat('2.0.0') }, withdrawn: ['1.0.0'] }), [
    0,
    1,
    false,
  ]);
  for (const setting of [
    { stored: nupkg },
    { stored: { ...nupkg, 'flat lib ': flat('2.0.0') } },
    { stored: { 'flat lib ': flat('1.0.0') } },
    { stored: listed, hidden: ['1.0.0'] },
  ])
    t.deepEqual(await outcomeOf({ there, ...setting }), [1, 0, true]);
  t.deepEqual(await outcomeOf({ there, served: 'hit' }), [0, 1, true]);
  t.deepEqual(await outcomeOf({ there, served: 'passed' }), [1, 0, true]);
  for (const served of ['miss', 'passed']) {
    const full = await prefetched({ there, served, isFull: true }, wishesOf('Lib@1.0.0'));
    t.deepEqual(
      [full.missing, full.fetched.count],
      [['list.txt:1 Lib 1.0.0: It was not stored: the disk of the server is full, or cannot be written.'], 0],
    );
  }
});

test('names that are reserved or hosted are skipped, those that are merged are fetched', async (t) => {
  const there = { mine: { '1.0.0': 'a file' }, theirs: { '1.0.0': 'a file' } };
  const items = wishesOf('Mine@1.0.0', 'Mine@*', 'Theirs@1.0.0');
  const reserved = await prefetched({ there, reserved: ['Mine'] }, items);
  t.deepEqual([reserved.skipped, reserved.fetched.count, reserved.missing], [{ Mine: 'reserved' }, 1, []]);
  const hosted = await prefetched({ there, hosted: ['mine'] }, items);
  t.deepEqual([hosted.skipped, hosted.fetched.count, hosted.missing], [{ Mine: 'hosted here' }, 1, []]);
  t.deepEqual(
    hosted.calls.filter((each) => each.startsWith('pass')),
    ['pass one', 'pass one'],
    'no upstream is asked for a hosted one',
  );
  const merged = await prefetched(
    { there, hosted: ['mine'], merged: ['Mine'] },
    wishesOf('Mine@1.0.0', 'Theirs@1.0.0'),
  );
  t.deepEqual([merged.skipped, merged.fetched.count], [{}, 2]);
  const unknown = await prefetched({ hosted: ['mine'] }, wishesOf('Mine@*'));
  t.deepEqual([unknown.skipped, unknown.missing], [{ Mine: 'hosted here' }, []]);
});

const withDependencies = (id: string, ...dependencies: [id: string, version: string][]) =>
  makeNupkg({
    id,
    version: '1.0.0',
    payloadBytes: 0,
    dependencyGroups: dependencies.map(([name, version]) => ({
      targetFramework: name === 'Old' ? 'net48' : 'net8.0',
      dependencies: [{ id: name, version }],
    })),
  });

const project = (framework: string) =>
  `<Project><PropertyGroup><TargetFramework>${framework}</TargetFramework></PropertyGroup><ItemGroup><PackageReference Include="Lib" Version="1.0" /></ItemGroup></Project>`;

test('the lowest version of a range is fetched with its dependencies for the frameworks that apply', async (t) => {
  const lib = await withDependencies('Lib', ['Dep', '1.5.0'], ['Old', '1.0.0']);
  const dep = await withDependencies('Dep', ['Lib', '1.0.0']);
  const there = {
    lib: { '0.9.0': 'x', '1.0.0': lib, '1.1.0': 'x' },
    dep: { '1.0.0': 'x', '1.6.0': dep },
    old: { '1.0.0': dep },
  };
  const nupkgs = async (text: string, more: Partial<PrefetchOptions> = {}) => {
    const found = await prefetched({ there }, wishesIn('a.csproj', text), more);
    t.true(found.approximate);
    t.deepEqual([found.missing, found.open], [[], 0]);
    return found.calls.filter((each) => each.startsWith('nupkg')).toSorted();
  };
  const both = ['nupkg Dep 1.6.0', 'nupkg Lib 1.0.0'];
  t.deepEqual(await nupkgs(project('net8.0')), both);
  t.deepEqual(await nupkgs(project('net48')), ['nupkg Lib 1.0.0', 'nupkg Old 1.0.0']);
  t.deepEqual(
    await nupkgs(project('net48'), { frameworks: ['net8.0'] }),
    ['nupkg Lib 1.0.0', 'nupkg Old 1.0.0'],
    'a project has its own',
  );
  const props = '<Project><ItemGroup><PackageVersion Include="Lib" Version="1.0" /></ItemGroup></Project>';
  const all = [both[0]!, both[1]!, 'nupkg Old 1.0.0'];
  t.deepEqual(await nupkgs(props), all);
  t.deepEqual(await nupkgs(props, { frameworks: ['net8.0'] }), both);
  const mixed = [...wishesIn('b.csproj', project('net8.0')), ...wishesIn('p.props', props)];
  const found = await prefetched({ there }, mixed);
  t.deepEqual(
    found.calls.filter((each) => each.startsWith('nupkg')).toSorted(),
    both,
    'the projects tell the frameworks',
  );
});

test('a range without a package or a version is told, and so is a reference without a version', async (t) => {
  const project = `<Project><ItemGroup>
<PackageReference Include="None" Version="1.0" />
<PackageReference Include="Lib" Version="[2.0, 3.0)" />
<PackageReference Include="Central" />
<PackageReference Include="LIB" />
</ItemGroup></Project>`;
  const found = await prefetched({ there: { lib: { '1.0.0': 'x' } } }, wishesIn('a.csproj', project));
  t.deepEqual(found.missing.toSorted(), [
    'a.csproj:2 None [1.0.0, ): no upstream has this package',
    'a.csproj:3 Lib [2.0.0, 3.0.0): no version is in this range',
    'a.csproj:4 Central: it has no version in this file; add Directory.Packages.props to the command',
  ]);
  const central = '<Project><ItemGroup><PackageReference Include="Central" /></ItemGroup></Project>';
  t.deepEqual((await prefetched({}, wishesIn('a.csproj', central))).calls, [], 'nothing is wanted');
});

test('the dependencies of a version that is hosted, or only offered, are read from its nuspec', async (t) => {
  const nuspec = makeNuspec({ id: 'Mine', version: '1.0.0', dependencies: [{ id: 'Dep', version: '1.0.0' }] });
  const there = { mine: { '1.0.0': 'x' }, dep: { '1.0.0': 'x' } };
  const beside = { 'Mine 1.0.0': nuspec };
  const hosted = await prefetched({ there, beside, hosted: ['mine'] }, wishesOf('Mine@*'));
  t.deepEqual([hosted.skipped, hosted.fetched.count], [{ Mine: 'hosted here' }, 1]);
  t.true(hosted.calls.includes('nuspec Mine 1.0.0'));
  const planned = await prefetched({ there, beside }, wishesOf('Mine@*'), { dryRun: true });
  t.deepEqual([planned.fetched.count, planned.missing], [2, []]);
  t.false(planned.calls.some((each) => each.startsWith('nupkg')));
  const passes = planned.calls.slice(planned.calls.lastIndexOf('nuspec Mine 1.0.0') - 1);
  t.is(passes[0], 'pass one', 'an upstream may be asked for the nuspec');
  const unread = await prefetched({ there, hosted: ['mine'] }, wishesOf('Mine@*'));
  t.deepEqual([unread.fetched.count, unread.missing], [0, []]);
});

test('an assessment asks for the sizes only, and counts those that are not told', async (t) => {
  const there = { lib: { '1.0.0': 'a file' } };
  const plan = async (head: Setting['head']) => {
    const { fetched, unmeasured, missing, calls } = await prefetched({ there, head }, wishesOf('Lib@1.0.0'), {
      dryRun: true,
    });
    t.deepEqual(missing, []);
    t.deepEqual(calls, [
      'pass one',
      'versions Lib',
      'pass one',
      'HEAD http://one.test/lib/1.0.0 package lib 403,405,501',
    ]);
    return [fetched.count, fetched.bytes, unmeasured];
  };
  t.deepEqual(await plan({ headers: { 'content-length': '7' } }), [1, 7, 0]);
  t.deepEqual(await plan({ headers: {} }), [1, 0, 1]);
  t.deepEqual(await plan({ headers: { 'content-length': 'x' } }), [1, 0, 1]);
  t.deepEqual(await plan({ status: 405, headers: { 'content-length': '7' } }), [1, 7, 1]);
});

const versions = (...keys: string[]) => Object.fromEntries(keys.map((key) => [key, 'x']));

test('of content in use the newest releases come, or prereleases of what has no release', async (t) => {
  const there = {
    lib: versions('1.0.0', '1.1.0', '1.2.0', '2.0.0-rc'),
    pre: versions('1.0.0-a', '1.0.0-b', '1.0.0-c'),
  };
  const stored = { 'nupkg lib 0.1.0': 'x', 'nupkg pre 0.1.0': 'x', 'nupkg mine 1.0.0': 'x', 'nupkg lost 1.0.0': 'x' };
  const found = await prefetched({ there, stored, hosted: ['mine'] }, [], { inUse: { newest: 2, since: 0 } });
  t.deepEqual(found.calls.filter((each) => /^(?:nupkg|names)/.test(each)).toSorted(), [
    'names nupkg,,one,two,500',
    'nupkg lib 1.1.0',
    'nupkg lib 1.2.0',
    'nupkg pre 1.0.0-b',
    'nupkg pre 1.0.0-c',
  ]);
  t.deepEqual([found.skipped, found.missing], [{ mine: 'hosted here' }, []]);
  t.true(found.calls.includes('advisories'));
});

test('stored versions are collected with their registrations and the documents of their package', async (t) => {
  const stored = {
    'nupkg lib 1.0.0': 'x',
    'flat lib ': flat('1.0.0'),
    'nuspec lib 1.0.0': 'x',
    'icon lib 1.0.0': 'x',
    'icon lib 2.0.0': 'x',
    'registration lib index': 'x',
    'flat other ': flat('1.0.0'),
    'service-index  ': '{}',
    'vulnerability-page p 5': '[]',
  };
  const advisories = [{ upstream: 'one.test', name: 'p', updated: '5' }];
  const there = { lib: { '1.0.0': 'x' } };
  const collected = (more: Setting = {}, how: Partial<PrefetchOptions> = {}) =>
    prefetched({ there, stored, advisories, ...more }, [], { stored: true, collect: true, ...how });
  const found = await collected();
  t.deepEqual(found.needed.toSorted(), [
    'one flat lib ',
    'one icon lib 1.0.0',
    'one nupkg lib 1.0.0',
    'one nuspec lib 1.0.0',
    'one registration lib index',
    'one service-index  ',
    'one vulnerability-page p 5',
  ]);
  t.deepEqual(
    found.calls.filter((each) => /^(?:registration|advisory|nupkg)/.test(each)),
    ['advisory one.test p', 'registration lib true true', 'registration lib false true'],
  );
  t.deepEqual([found.present, found.missing], [{ count: 1, bytes: 1 }, []]);
  for (const registrations of ['none', 'failing'] as const) {
    const without = await collected({ registrations });
    t.false(without.calls.some((each) => each.startsWith('registration')));
    t.is(without.needed.length, 7);
  }
  const plain = await collected({}, { collect: false });
  t.deepEqual([plain.needed, plain.present.count], [[], 1]);
  t.true(plain.calls.includes('advisory one.test p'));
});

test('advisories are read only for what is wanted, from upstreams that are there, and not in an assessment', async (t) => {
  const there = { lib: { '1.0.0': 'x' } };
  const asks = async (setting: Setting, items: readonly PrefetchItem[], more: Partial<PrefetchOptions> = {}) =>
    (await prefetched({ there, ...setting }, items, more)).calls.includes('advisories');
  t.true(await asks({}, wishesOf('Lib@1.0.0')));
  t.true(await asks({}, [], { stored: true }));
  t.true(await asks({}, [], { collect: true }));
  t.false(await asks({}, []));
  t.false(await asks({}, wishesOf('app:1')));
  t.false(await asks({}, wishesOf('Lib@1.0.0'), { dryRun: true }));
  t.false(await asks({ upstreams: [] }, wishesOf('Lib@1.0.0')));
});
