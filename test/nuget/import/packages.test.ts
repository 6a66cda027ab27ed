import test from 'ava';
import type { ImportOptions } from '../../../src/import/item.ts';
import type { FeedContext } from '../../../src/nuget/hosted/feed-context.ts';
import { importedText } from '../../../src/nuget/hosted/imported.ts';
import { dependenciesIn, PackageImport } from '../../../src/nuget/import/packages.ts';
import type { FeedViews } from '../../../src/nuget/upstream/feed-view.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { writeZip } from '../../support/builders/zip.ts';

type Offered = Parameters<PackageImport['version']>[0];
type Place = Parameters<PackageImport['version']>[1];

const base64Of = (digest: Digest) => Buffer.from(digest.slice(digest.indexOf(':') + 1), 'hex').toString('base64');
const sha512Of = (bytes: Buffer) => base64Of(digestOf(bytes, 'sha512'));
const file = Buffer.from('a file');
const row = { sha512: sha512Of(file), size: file.length, digest: digestOf(file), symbols: null, imported: null };

interface Setting {
  /** The row of the version that is hosted. */
  hosted?: object;
  claimed?: readonly string[];
  compared?: readonly object[];
  merged?: boolean;
  /** The versions of each upstream, or why it cannot be asked. */
  upstreams?: Record<string, readonly string[] | undefined | Error>;
  /** The file that an upstream has, and how many times it can be read. */
  upstreamFile?: Buffer;
  times?: number;
  limit?: number;
}

function importOf(setting: Setting = {}, more: Partial<ImportOptions> = {}) {
  const calls: unknown[][] = [];
  const written: unknown[] = [];
  const database = {
    dialect: 'sqlite',
    get: async (_sql: string, values: unknown[]) => {
      calls.push(['hosted', ...values]);
      return setting.hosted;
    },
    select: async (sql: string, values: unknown[]) => {
      if (sql.includes('package_comparisons')) return (setting.compared ?? []).map((each) => ({ ...each }));
      calls.push(['claimed', ...values]);
      return (setting.claimed ?? []).map((key) => ({ package_key: key }));
    },
    transaction: async (work: (tx: object) => Promise<void>) =>
      work({ upsert: async (...of: unknown[]) => void written.push(of[2]), select: async () => [] }),
  };
  const staged: { size: number; isDiscarded: boolean }[] = [];
  const blobs = {
    stageHosted: async (size: number, algorithms: string[]) => {
      calls.push(['stage', size, algorithms]);
      const made = {
        size: 0,
        bytes: Buffer.alloc(0),
        isDiscarded: false,
        digest: async (algorithm: 'sha256' | 'sha512') => digestOf(made.bytes, algorithm),
        open: async () => ({ ...contentOf(made.bytes), size: made.bytes.length }),
        discard: async () => void (made.isDiscarded = true),
      };
      staged.push(made);
      return made;
    },
  };
  const all = Object.keys(setting.upstreams ?? {}).map((name) => ({ id: `id of ${name}`, name }));
  const asked: string[] = [];
  let times = 0;
  const mirror = {
    origin: { isMerged: () => setting.merged === true, candidates: () => all },
    allVersions: async ({ upstream: { name } }: { upstream: { name: string } }) => {
      asked.push(name);
      const found = setting.upstreams![name];
      if (found instanceof Error) throw found;
      return found && { value: found };
    },
    openNupkg: async () => {
      const bytes = setting.upstreamFile;
      times += 1;
      if (!bytes || times > (setting.times ?? Infinity)) return undefined;
      return {
        metadata: { size: bytes.length },
        content: { ...contentOf(bytes), close: () => calls.push(['closed']) },
      };
    },
  };
  const context = { database, blobs, now: () => 1000, limits: { nupkg: setting.limit ?? 10_000 } };
  const views = { of: async (account: number) => ({ mirror: account === 7 ? mirror : undefined, registrations: {} }) };
  const options = {
    accountId: 7,
    dryRun: false,
    allHosted: false,
    permit: (id: string) => void calls.push(['permit', id]),
    admit: async (bytes: number) => void calls.push(['admit', bytes]),
    ...more,
  } as unknown as ImportOptions;
  const packages = new PackageImport(context as unknown as FeedContext, views as unknown as FeedViews, options);
  return { packages, calls, written, staged, asked, upstreams: all };
}

const fills = (bytes: Buffer): Offered['fill'] =>
  async function fill(into) {
    Object.assign(into, { bytes, size: bytes.length });
  };

function offeredAs(more: Partial<Offered> = {}): Offered {
  const state = { publishedAt: 5, listed: true, downloads: 0, deprecation: undefined };
  return {
    from: 'old.test',
    id: 'lib',
    version: '1.0.0',
    tellsState: false,
    ...state,
    fill: fills(file),
    ...more,
  };
}

const hostedOnly: Place = { upstream: undefined, isMirrored: () => false, compared: new Map() };
const other = 'other content is here under this name';

const never = () => Promise.reject(new Error('it is not asked'));

test('a version that is here is compared by the best that the source tells', async (t) => {
  const bySize = 'compared by the size: the source tells no hash';
  for (const [offer, outcome, note] of [
    [{ sha512: row.sha512, digest: never, size: 0 }, 'present', undefined],
    [{ sha512: 'AAAA', digest: never, size: row.size }, 'conflict', other],
    [{ digest: async () => row.digest, size: 0 }, 'present', undefined],
    [{ digest: async () => digestOf(Buffer.from('x')), size: row.size }, 'conflict', other],
    [{ size: row.size, measure: never }, 'present', bySize],
    [{ size: 0, measure: never }, 'conflict', other],
    [{ measure: async () => row.size }, 'present', bySize],
    [{ measure: async () => row.size + 1 }, 'conflict', other],
    [{ measure: async () => undefined }, 'present', 'the source tells neither a hash nor a size'],
    [{}, 'present', 'the source tells neither a hash nor a size'],
  ] as const) {
    const { packages, calls } = importOf({ hosted: row });
    const result = await packages.version(offeredAs(offer), hostedOnly);
    t.deepEqual(result, { outcome, bytes: 0, ...(note !== undefined && { note }) });
    t.deepEqual(calls, [['hosted', '1.0.0', 7, 'lib']]);
  }
});

const planned = async (hosted: object, offered: Offered) =>
  importOf({ hosted }, { dryRun: true }).packages.version(offered, hostedOnly);

test('an assessment tells that the state of a version has changed at its source, if that tells it', async (t) => {
  const offer = offeredAs({ sha512: row.sha512, tellsState: true });
  const imported = importedText({ ...offer, listed: false });
  t.deepEqual(await planned({ ...row, imported }, offer), {
    outcome: 'updated',
    bytes: 0,
    note: 'its state at the source has changed',
  });
  const present = { outcome: 'present', bytes: 0 } as const;
  t.deepEqual(await planned({ ...row, imported }, { ...offer, tellsState: false }), present);
  t.deepEqual(await planned({ ...row, imported: importedText(offer) }, offer), present);
  t.deepEqual(await planned(row, offer), present);
  t.like(await planned({ ...row, imported }, { ...offer, sha512: 'AAAA' }), { outcome: 'conflict' });
});

test('an assessment of a new version tells its size, and that an upstream has it, too', async (t) => {
  const place = { ...hostedOnly, upstream: { name: 'up.test' } } as Place;
  const planned = async (offer: Partial<Offered>, of: Place) => {
    const { packages, calls } = importOf({}, { dryRun: true });
    const result = await packages.version(offeredAs(offer), of);
    t.deepEqual(calls, [['hosted', '1.0.0', 7, 'lib']]);
    return result;
  };
  const plan = { outcome: 'imported', bytes: 7, note: undefined, alsoAt: undefined } as const;
  t.deepEqual(await planned({ size: 7, measure: () => Promise.reject(new Error('not asked')) }, hostedOnly), plan);
  t.deepEqual(await planned({ measure: async () => 7 }, hostedOnly), plan);
  t.deepEqual(await planned({ measure: async () => undefined }, hostedOnly), { ...plan, bytes: 0 });
  t.deepEqual(await planned({}, hostedOnly), { ...plan, bytes: 0 });
  t.deepEqual(await planned({ size: 7 }, place), { ...plan, alsoAt: 'up.test' });
  t.deepEqual(await planned({ size: 7 }, { ...place, isMirrored: (version) => version === '1.0.0' }), {
    ...plan,
    note: 'up.test has this version, too; an import compares the content',
    alsoAt: 'up.test',
  });
});

test('a file that is too large, cannot be read or has another hash is refused before it is published', async (t) => {
  const { packages, staged, calls } = importOf({ limit: 6 });
  const large = { name: 'TooLarge', message: 'The package is larger than the 6 bytes allowed here.' };
  await t.throwsAsync(packages.version(offeredAs({ size: 7 }), hostedOnly), large);
  t.deepEqual(calls, [
    ['hosted', '1.0.0', 7, 'lib'],
    ['permit', 'lib'],
    ['admit', 7],
  ]);
  const broken = new Error('it broke');
  t.is(
    await t.throwsAsync(packages.version(offeredAs({ size: 6, fill: () => Promise.reject(broken) }), hostedOnly)),
    broken,
  );
  await t.throwsAsync(packages.version(offeredAs({ sha512: 'AAAA' }), hostedOnly), {
    name: 'DigestMismatch',
    message: 'The source sent content with another hash than it tells.',
  });
  t.deepEqual(
    staged.map(({ isDiscarded }) => isDiscarded),
    [true, true],
  );
  t.deepEqual(calls.at(-1), ['stage', 0, ['sha256', 'sha512']]);
  t.is(await packages.hashOf({ fill: fills(file) }), row.sha512);
  t.true(staged.at(-1)!.isDiscarded);
});

const zip = (text: string) => writeZip([{ name: 'a', data: text }]);
const upstream = { id: 'id of up.test', name: 'up.test' } as never;
const mirroredPlace: Place = { upstream, isMirrored: () => true, compared: new Map() };

test('a version that an upstream has with the same content is mirrored, which is remembered; other content is a conflict', async (t) => {
  const ours = writeZip([
    { name: 'a', data: 'same' },
    { name: '.signature.p7s', data: 'signed' },
  ]);
  const same = importOf({ upstreamFile: zip('same') });
  const offer = offeredAs({ fill: fills(ours) });
  t.deepEqual(await same.packages.version(offer, mirroredPlace), {
    outcome: 'mirrored',
    bytes: 0,
    note: 'up.test has the same content',
    alsoAt: 'up.test',
  });
  t.deepEqual(same.written, [
    [
      {
        account_id: 7,
        package_key: 'lib',
        version_key: '1.0.0',
        upstream: 'id of up.test',
        sha512: sha512Of(ours),
        digest: digestOf(ours),
        size_bytes: ours.length,
        compared_at: 1000,
      },
    ],
  ]);
  t.true(same.staged[0]!.isDiscarded);
  t.true(same.calls.some(([what]) => what === 'closed'));
  const note = 'up.test has other content under this name; to serve that of the source, import it with --hosted';
  for (const setting of [{ upstreamFile: zip('other') }, {}]) {
    const different = importOf(setting);
    t.deepEqual(await different.packages.version(offer, mirroredPlace), {
      outcome: 'conflict',
      bytes: 0,
      note,
      alsoAt: 'up.test',
    });
    t.deepEqual([different.written, different.staged[0]!.isDiscarded], [[], true]);
  }
  const gone = importOf({ upstreamFile: zip('same'), times: 1 });
  await t.throwsAsync(gone.packages.version(offer, mirroredPlace), {
    name: 'Aborted',
    message: 'An upstream has withdrawn the version meanwhile.',
  });
  t.true(gone.staged[0]!.isDiscarded);
});

const before = { upstream: 'id of up.test', sha512: row.sha512, digest: row.digest, size: row.size };

test('what was found to be the same before is mirrored without a file, as long as the file of the source is the same', async (t) => {
  const place = (more: object = {}): Place => ({
    ...mirroredPlace,
    compared: new Map([['1.0.0', { ...before, ...more }]]),
  });
  const note = 'up.test had the same content before';
  const { packages, calls } = importOf();
  t.deepEqual(await packages.version(offeredAs({ sha512: row.sha512 }), place()), {
    outcome: 'mirrored',
    bytes: 0,
    note,
    alsoAt: 'up.test',
  });
  t.deepEqual(calls, [['hosted', '1.0.0', 7, 'lib']]);
  const again = async (of: Place, offer: Partial<Offered> = { sha512: row.sha512 }) =>
    (await importOf({}, { dryRun: true }).packages.version(offeredAs(offer), of)).outcome;
  t.is(await again(place()), 'mirrored');
  t.is(await again(place({ upstream: 'another' })), 'imported');
  t.is(await again(place({ sha512: 'AAAA' })), 'imported');
  t.is(await again({ ...place(), isMirrored: () => false }), 'imported');
  t.is(await again(place(), { size: 0 }), 'imported');
  const mirrored = (of: Place, sha512 = row.sha512) => importOf().packages.isMirrored(offeredAs(), of, sha512);
  t.true(await mirrored(place()));
  t.false(await mirrored({ ...place(), isMirrored: () => false }));
  t.false(await mirrored({ ...place(), upstream: undefined }));
  for (const each of [place({ upstream: 'another' }), place({ sha512: 'AAAA' })]) t.false(await mirrored(each));
  const found = importOf({ upstreamFile: zip('same') });
  t.true(await found.packages.isMirrored(offeredAs({ fill: fills(zip('same')) }), mirroredPlace, 'AAAA'));
  t.deepEqual([found.staged[0]!.isDiscarded, found.written.length], [true, 1]);
});

const decide = async (
  setting: Setting,
  versions: readonly string[] = ['1.0.0', '2.0.0'],
  more: Partial<ImportOptions> = {},
) => {
  const of = importOf(setting, more);
  const place = await of.packages.decide('lib', versions);
  const { asked, calls } = of;
  return {
    upstream: place.upstream?.name,
    mirrored: versions.map((each) => place.isMirrored(each)),
    asked,
    calls,
    place,
  };
};

const comparedBefore = (version: string, name = 'two.test') => ({
  version,
  upstream: `id of ${name}`,
  sha512: 'A',
  digest: 'B',
  size: 1,
});

test('where a package belongs: hosted here, at the first upstream that has it, or known from before', async (t) => {
  const both = { 'one.test': ['1.0.0', '2.0.0', '3.0.0'], 'two.test': ['1.0.0'] };
  const hosted = { upstream: undefined, mirrored: [false, false] };
  t.like(await decide({ upstreams: both }, undefined, { allHosted: true }), { ...hosted, asked: [], calls: [] });
  t.like(await decide({ upstreams: both, claimed: ['lib'] }), { ...hosted, asked: [], calls: [['claimed', 7, 'lib']] });
  t.like(await decide({ upstreams: both }), { upstream: 'one.test', mirrored: [true, true], asked: ['one.test'] });
  t.like(await decide({ upstreams: both }, ['1.0.0', '9.0.0']), { upstream: 'one.test', mirrored: [false, false] });
  t.like(await decide({ upstreams: both, merged: true, claimed: ['lib'] }, ['1.0.0', '9.0.0']), {
    upstream: 'one.test',
    mirrored: [true, false],
  });
  t.like(await decide({ upstreams: { 'none.test': undefined, 'empty.test': [], ...both } }, ['1.0.0']), {
    upstream: 'one.test',
    asked: ['none.test', 'empty.test', 'one.test'],
  });
  t.like(await decide({ upstreams: { 'none.test': undefined } }), { ...hosted, asked: ['none.test'] });
  const compared = [comparedBefore('1.0.0'), comparedBefore('2.0.0')];
  const known = await decide({ upstreams: both, compared });
  t.like(known, { upstream: 'two.test', mirrored: [true, true], asked: [] });
  t.deepEqual([...known.place.compared.keys()], ['1.0.0', '2.0.0']);
  for (const some of [
    [comparedBefore('1.0.0')],
    [comparedBefore('1.0.0'), comparedBefore('2.0.0', 'one.test')],
    [comparedBefore('1.0.0', 'gone'), comparedBefore('2.0.0', 'gone')],
  ])
    t.like(await decide({ upstreams: both, compared: some }), { upstream: 'one.test', asked: ['one.test'] });
  const down = new UpstreamError('UpstreamUnavailable', 'It is down.');
  await t.throwsAsync(decide({ upstreams: { 'one.test': down } }), {
    name: 'Invalid',
    message:
      'It is not known whether one.test has this package, too: It is down. Import it again later, or with --hosted.',
  });
  const defect = new TypeError('a defect');
  t.is(await t.throwsAsync(decide({ upstreams: { 'one.test': defect } })), defect);
});

const bring = (hosted: object | undefined, offer: Partial<Offered> = {}, more: Partial<ImportOptions> = {}) =>
  importOf(hosted ? { hosted } : {}, more).packages.symbols('lib', '1.0.0', { ...offeredAs(), ...offer });

test('symbols are compared with those that are here, and belong to a package that is hosted here', async (t) => {
  const symbols = digestOf(Buffer.from('symbols'));
  const there = { ...row, symbols };
  t.deepEqual(await bring(there, { digest: async () => symbols }), { outcome: 'present', bytes: 0 });
  t.deepEqual(await bring(there, { digest: async () => row.digest }), { outcome: 'conflict', bytes: 0, note: other });
  t.deepEqual(await bring(undefined, { size: 7 }, { dryRun: true }), { outcome: 'imported', bytes: 7 });
  t.deepEqual(await bring(row, {}, { dryRun: true }), { outcome: 'imported', bytes: 0 });
  await t.throwsAsync(bring(undefined), {
    instanceOf: DomainError,
    name: 'NotFound',
    message: 'The package of these symbols is not hosted here.',
  });
});

const group = (...dependencies: [id: string, range: string][]) => ({
  dependencies: dependencies.map(([id, range]) => ({ id, range })),
});

test('the dependencies of all frameworks, each once and in order', (t) => {
  const groups = [group(['B', '[2.0.0, )'], ['a', '[1.0.0, )']), group(['A', '[1.0.0, )'], ['a', '[3.0.0, )'])];
  t.is(dependenciesIn(groups as never), 'a [1.0.0, ), a [3.0.0, ), b [2.0.0, )');
  t.deepEqual([dependenciesIn([]), dependenciesIn(undefined)], ['', '']);
});
