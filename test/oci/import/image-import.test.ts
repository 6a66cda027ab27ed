import test from 'ava';
import type { ComparedReference, ImportItem, ImportOptions, ImportResult } from '../../../src/import/item.ts';
import { ImageImport, type ImageImportParts } from '../../../src/oci/import/image-import.ts';
import type { ImageOrigin, OriginManifest, OriginTag } from '../../../src/oci/import/image-origin.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';

const types = {
  image: 'application/vnd.oci.image.manifest.v1+json',
  index: 'application/vnd.oci.image.index.v1+json',
};
const digestIn = (text: string) => digestOf(Buffer.from(text));
const described = (text: string) => ({ mediaType: types.image, digest: digestIn(text), size: text.length });
const imageOf = (...layers: string[]) =>
  JSON.stringify({
    schemaVersion: 2,
    mediaType: types.image,
    config: described('config'),
    layers: layers.map(described),
  });
const indexOf = (...manifests: object[]) => JSON.stringify({ schemaVersion: 2, mediaType: types.index, manifests });

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const each of items) found.push(each);
  return found;
}

interface There {
  tags?: Record<string, OriginTag[]>;
  /** By tag and digest. */
  manifests?: Record<string, string | Error>;
  referrers?: Record<string, readonly Digest[]>;
  blobs?: Record<string, string>;
  /** Whether a tag tells its digest without its image. */
  tells?: boolean;
  past?: boolean;
}

interface Here {
  /** The digest of each tag, and the text of each manifest by its digest, of the repository `app`. */
  tags?: Record<string, Digest>;
  manifests?: string[];
  blobs?: string[];
  mountable?: string[];
  isClaimed?: boolean;
  warning?: string;
  /** What an upstream has: the digests of its images, or an error for each. */
  upstream?: Record<string, Error | true>;
  isMirrored?: boolean;
  digestsOfTag?: string[];
  noteMoves?: boolean;
  /** What fails when a manifest here is opened. */
  fails?: Error;
}

const needs = (account: number, name: string) => {
  if (account !== 7 || name !== 'app') throw new DomainError('NameUnknown', `There is no ${name}.`);
};

function importOf(there: There, here: Here = {}, more: Partial<ImportOptions> = {}) {
  const calls: [what: string, ...of: unknown[]][] = [];
  const opened = { count: 0 };
  const { tags = {}, manifests = {}, referrers = {}, blobs = {}, tells = true } = there;
  const manifestOf = (reference: string): OriginManifest | undefined => {
    const text = manifests[reference];
    if (text instanceof Error) throw text;
    return text === undefined ? undefined : { digest: digestIn(text), bytes: Buffer.from(text), mediaType: undefined };
  };
  const origin: ImageOrigin = {
    async *repositories() {
      yield* Object.keys(tags);
    },
    async *tags(name) {
      yield* tags[name] ?? [];
    },
    digestOf: async (name, tag) => (tells && name in tags ? manifestOf(tag)?.digest : undefined),
    manifest: async (name, reference) => {
      calls.push(['manifest', name, reference]);
      return name in tags ? manifestOf(reference) : undefined;
    },
    referrers: async (name, digest) => {
      calls.push(['referrers', name, digest]);
      return referrers[digest] ?? [];
    },
    fill: async (name, digest, staged, limit) => {
      calls.push(['fill', name, digest, limit]);
      const text = blobs[digest] ?? '';
      Object.assign(staged, { text, size: text.length });
    },
    ...(there.past && {
      past: async (name: string, tag: string) => {
        calls.push(['past', name, tag]);
        return [{ digest: digestIn('past'), seenAt: 1 }] as never;
      },
    }),
  };
  const tagsHere = new Map(Object.entries(here.tags ?? {}));
  const manifestsHere = new Map((here.manifests ?? []).map((text) => [digestIn(text), text]));
  const blobsHere = new Set((here.blobs ?? []).map(digestIn));
  const open = (text: string) => {
    opened.count += 1;
    return { ...contentOf(Buffer.from(text)), close: () => void (opened.count -= 1) };
  };
  const parts = {
    images: {
      manifests: {
        missing: async (_account: number, _name: string, manifest: { references?: unknown }) => {
          const text = JSON.stringify(manifest);
          const named = [...new Set(text.match(/sha256:[0-9a-f]{64}/g) ?? [])] as Digest[];
          return named.filter((each) => !blobsHere.has(each) && !manifestsHere.has(each));
        },
        has: async (account: number, name: string, { digest }: { digest: Digest }) =>
          account === 7 && name === 'app' && manifestsHere.has(digest),
        open: async (account: number, name: string, { tag, digest }: { tag?: string; digest?: Digest }) => {
          needs(account, name);
          if (here.fails) throw here.fails;
          const found = digest ?? tagsHere.get(tag!);
          if (found === undefined) throw new DomainError('ManifestUnknown', 'There is no such manifest.');
          const text = manifestsHere.get(found) ?? '';
          return {
            digest: found,
            content: open(text),
            mediaType: text.includes('"manifests"') ? types.index : types.image,
          };
        },
      },
      repositories: {
        tags: async (account: number, name: string, most: number, last: string) => {
          needs(account, name);
          calls.push(['tags', most, last]);
          const items = [...tagsHere.keys()].filter((each) => each > last).slice(0, 2);
          return { items, more: items.length === 2 };
        },
      },
      blobs: {
        mount: async (_account: number, name: string, digest: Digest, from: unknown) => {
          calls.push(['mount', name, digest, from]);
          return here.mountable?.map(digestIn).includes(digest) ? {} : undefined;
        },
        add: async (account: number, name: string, { text }: { text: string }, digest: Digest) => {
          calls.push(['add', account, name, text, digest]);
          blobsHere.add(digest);
        },
      },
    },
    source: {
      isClaimed: async (account: number, name: string) => account === 7 && name !== '' && here.isClaimed === true,
    },
    mirrors: {
      of: async (account: number) => ({
        names: {
          locate: (name: string) => ({
            place: here.upstream && account === 7 && name === 'app' && { upstream: { name: 'up.test' }, name },
          }),
        },
        isMirrored: async () => here.isMirrored === true,
        openManifest: async (_place: unknown, digest: Digest) => {
          calls.push(['upstream', digest]);
          const found = here.upstream?.[digest];
          if (found instanceof Error) throw found;
          return found && { content: open(''), complete: Promise.resolve() };
        },
      }),
    },
    digestsOfTag: async (account: number, name: string, tag: string) => {
      calls.push(['digestsOfTag', account, name, tag]);
      return here.digestsOfTag ?? [];
    },
    pushes: {
      push: async (
        account: number,
        name: string,
        { bytes, ...sent }: { bytes: Buffer; tags: string[]; digest: Digest },
      ) => {
        calls.push(['push', account, name, { ...sent, text: bytes.toString() }]);
        manifestsHere.set(sent.digest, bytes.toString());
        for (const tag of sent.tags) tagsHere.set(tag, here.noteMoves ? digestIn('another') : sent.digest);
        return { warning: here.warning };
      },
    },
    blobs: {
      stageHosted: async (size: number, algorithms: string[]) => {
        calls.push(['stage', size, algorithms]);
        return {
          size: 0,
          text: '',
          digest: async function (this: { text: string }) {
            return digestIn(this.text);
          },
          discard: async () => void calls.push(['discard']),
        };
      },
    },
    blobLimit: 100,
  } as unknown as ImageImportParts;
  const options = {
    accountId: 7,
    dryRun: false,
    allHosted: false,
    moveTags: false,
    isWanted: () => true,
    nameHere: () => 'app',
    permit: (name: string) => void calls.push(['permit', name]),
    admit: async (bytes: number) => void calls.push(['admit', bytes]),
    signal: new AbortController().signal,
    ...more,
  } as unknown as ImportOptions;
  return { images: new ImageImport(parts, origin, options), calls, opened, tagsHere };
}

/** Runs all items; what became of each, by its name and reference. */
async function run(
  of: ReturnType<typeof importOf>,
  how: (item: ImportItem) => Promise<ImportResult> = (item) => item.run(),
) {
  const results: Record<string, ImportResult | string> = {};
  const items: ImportItem[] = [];
  for await (const group of of.images.groups())
    try {
      for await (const item of group.items()) {
        items.push(item);
        const result = await how(item).catch((error: Error) => `${error.name}: ${error.message}`);
        results[`${item.name} ${item.reference}`] = result;
      }
    } catch (error) {
      results[group.name] = `${(error as Error).name}: ${(error as Error).message}`;
    }
  return { results, items };
}

const one = imageOf('layer', 'own');
const two = imageOf('layer');
const index = indexOf(described(one), described('absent'), described(two));
const blobs = Object.fromEntries(['config', 'layer', 'own'].map((text) => [digestIn(text), text]));
const known = (...texts: string[]) => Object.fromEntries(texts.map((text) => [digestIn(text), text]));
const source: There = {
  tags: { 'old/app': [{ tag: '1', pushedAt: 5 }] },
  manifests: { 1: index, ...known(one, two) },
  blobs,
};
const app = 'old/app';

test('an image comes with all that it needs: blobs before their manifest, manifests before their index, once each', async (t) => {
  const of = importOf({ ...source, past: true }, { warning: 'It is odd.' });
  const { results, items } = await run(of);
  const bytes = [one, two, index, 'config', 'layer', 'own'].join('').length;
  t.deepEqual(results, { 'app 1': { outcome: 'imported', bytes, note: 'It is odd.' } });
  t.true(items[0]!.isHosted);
  const fetched = (text: string) => [
    ['mount', 'app', digestIn(text), undefined],
    ['admit', text.length],
    ['stage', text.length, ['sha256']],
    ['fill', app, digestIn(text), text.length],
    ['add', 7, 'app', text, digestIn(text)],
  ];
  const pushed = (text: string, contentType: string, tagged: object = { tags: [] }) => [
    'push',
    7,
    'app',
    { ...tagged, digest: digestIn(text), contentType, text },
  ];
  t.deepEqual(of.calls, [
    ['permit', 'app'],
    ['manifest', app, '1'],
    ['past', app, '1'],
    ['manifest', app, digestIn(one)],
    ...['config', 'layer', 'own'].flatMap(fetched),
    pushed(one, types.image),
    ['manifest', app, digestIn('absent')],
    ['manifest', app, digestIn(two)],
    pushed(two, types.image),
    pushed(index, types.index, { tags: ['1'], pushedAt: 5, past: [{ digest: digestIn('past'), seenAt: 1 }] }),
    ['referrers', app, digestIn(index)],
    ['referrers', app, digestIn(one)],
    ['referrers', app, digestIn(two)],
  ] as typeof of.calls);
  t.is(of.opened.count, 0);
});

test('an assessment brings nothing in and tells the bytes; blobs of other repositories are not fetched', async (t) => {
  const planned = importOf({ ...source, past: true }, {}, { dryRun: true });
  const sizes = [one, two, index, 'config', 'config', 'layer', 'layer', 'own'].join('').length;
  t.deepEqual((await run(planned)).results, { 'app 1': { outcome: 'imported', bytes: sizes, note: undefined } });
  t.deepEqual([...new Set(planned.calls.map(([what]) => what))].toSorted(), ['manifest', 'permit', 'referrers']);
  const mounting = importOf(source, { mountable: ['config', 'layer', 'own'] });
  const bytes = [one, two, index].join('').length;
  t.deepEqual((await run(mounting)).results, { 'app 1': { outcome: 'imported', bytes, note: undefined } });
  t.false(mounting.calls.some(([what]) => what === 'fill'));
  const untimed = importOf({ ...source, past: true, tags: { [app]: [{ tag: '1' }] } });
  await run(untimed);
  t.false(
    untimed.calls.some(([what]) => what === 'past'),
    'without the time of the tag nothing came before it',
  );
});

const sized = (size: number) =>
  JSON.stringify({ schemaVersion: 2, mediaType: types.image, config: { ...described('config'), size }, layers: [] });
test('a blob with other bytes, or of no told size, is checked and bounded', async (t) => {
  for (const [size, limit] of [
    [0, 100],
    [6, 6],
    [100, 100],
    [101, 100],
  ] as const) {
    const of = importOf({ ...source, manifests: { 1: sized(size) } });
    await run(of);
    t.deepEqual(of.calls.find(([what]) => what === 'fill')?.at(-1), limit);
  }
  const wrong = importOf({ ...source, manifests: { 1: sized(6) }, blobs: { [digestIn('config')]: 'other' } });
  t.deepEqual((await run(wrong)).results, {
    'app 1': `DigestMismatch: The source sent other content under ${digestIn('config')}.`,
  });
  t.deepEqual(
    wrong.calls.map(([what]) => what),
    ['permit', 'manifest', 'mount', 'admit', 'stage', 'fill', 'discard'],
  );
});

test('manifests that are none, of another type or with too many values are refused', async (t) => {
  const failsWith = async (text: string, message: string) => {
    const of = importOf({ ...source, manifests: { 1: text } });
    t.deepEqual((await run(of)).results, { 'app 1': message });
    t.false(of.calls.some(([what]) => what === 'push'));
  };
  await failsWith('no JSON', 'Unsupported: Its manifest is of the type unknown, which is not stored here.');
  await failsWith('{"schemaVersion":1}', 'Unsupported: Its manifest is of the type unknown, which is not stored here.');
  await failsWith(`[${'0,'.repeat(40_000)}0]`, 'ManifestInvalid: Its manifest has too many values.');
  const missing = importOf({ ...source, manifests: {} });
  t.deepEqual((await run(missing)).results, {
    'app 1': 'NotFound: The source lists this tag and does not have its image.',
  });
});

test('a tag that is here: the same image, an older one, or one that the source does not have', async (t) => {
  const there = { ...source, manifests: { ...source.manifests, [digestIn(index)]: index } };
  const hereWith = (digest: Digest): Here => ({ tags: { 1: digest }, manifests: [index, one, two] });
  for (const tells of [true, false]) {
    const same = importOf({ ...there, tells }, hereWith(digestIn(index)));
    t.deepEqual((await run(same)).results, { 'app 1': { outcome: 'present', bytes: 0 } });
    t.is(same.calls.filter(([what]) => what === 'manifest').length, tells ? 0 : 1);
    t.deepEqual(
      same.calls.filter(([what]) => what === 'referrers'),
      [index, one, two].map((text) => ['referrers', app, digestIn(text)]),
    );
    t.is(same.opened.count, 0);
  }
  const old = hereWith(digestIn(two));
  const other = 'the tag here points to another image; --move-tags moves it if the source has that image, too';
  const kept = importOf(there, old);
  t.deepEqual((await run(kept)).results, { 'app 1': { outcome: 'conflict', bytes: 0, note: other } });
  t.is(kept.tagsHere.get('1'), digestIn(two));
  const moved = importOf(there, old, { moveTags: true });
  t.like((await run(moved)).results['app 1'], { outcome: 'imported', bytes: index.length });
  t.is(moved.tagsHere.get('1'), digestIn(index));
  const own = importOf(there, { ...old, tags: { 1: digestIn('own') } }, { moveTags: true });
  const note = 'the tag here points to an image that the source does not have';
  t.deepEqual((await run(own)).results, { 'app 1': { outcome: 'conflict', bytes: 0, note } });
  const meanwhile = importOf(there, { noteMoves: true });
  t.deepEqual((await run(meanwhile)).results, { 'app 1': 'Aborted: The tag was moved meanwhile in account 7.' });
});

test('referrers come with their image, in circles once, and are told when only they are new', async (t) => {
  const signature = imageOf('own');
  const referrers = {
    [digestIn(index)]: [digestIn(signature), digestIn('absent')],
    [digestIn(signature)]: [digestIn(index)],
    [digestIn(two)]: [digestIn(one)],
  };
  const there = { ...source, manifests: { 1: index, ...known(one, two, signature) }, referrers };
  const of = importOf(there, { tags: { 1: digestIn(index) }, manifests: [index, one, two], blobs: ['config'] });
  const bytes = signature.length + 'own'.length;
  const note = 'the image was here, its referrers were not';
  t.deepEqual((await run(of)).results, { 'app 1': { outcome: 'imported', bytes, note } });
  t.deepEqual(
    of.calls.filter(([what]) => what === 'push').map((each) => (each[3] as { tags: unknown }).tags),
    [[]],
  );
  t.deepEqual(
    of.calls.filter(([what]) => what === 'referrers' || what === 'manifest'),
    [
      ['referrers', app, digestIn(index)],
      ['manifest', app, digestIn(signature)],
      ['referrers', app, digestIn(signature)],
      ['manifest', app, digestIn('absent')],
      ['referrers', app, digestIn(one)],
      ['referrers', app, digestIn(two)],
    ] as typeof of.calls,
  );
  t.is(of.opened.count, 0);
});

test('names, tags, dates and digests choose what comes; names that are none here are refused', async (t) => {
  const tags = [{ tag: '1', pushedAt: 5 }, { tag: '2', pushedAt: 6 }, { tag: '3' }];
  const manifests = { 1: one, 2: one, 3: one, ...known(one) };
  const there = { ...source, tags: { [app]: tags, other: tags, third: [] }, manifests };
  const keysOf = async (more: Partial<ImportOptions>) => Object.keys((await run(importOf(there, {}, more))).results);
  const only = { names: [app] };
  t.deepEqual(await keysOf(only), ['app 1', 'app 2', 'app 3']);
  t.deepEqual(await keysOf({ ...only, since: 6 }), ['app 2', 'app 3']);
  t.deepEqual(await keysOf({ ...only, since: 7 }), ['app 3']);
  t.deepEqual(await keysOf({ ...only, references: ['2', '9', digestIn(one), digestIn('none')] }), [
    `app ${digestIn(one)}`,
    'app 2',
  ]);
  t.deepEqual(await keysOf({ names: [] }), []);
  t.deepEqual(await keysOf({ isWanted: (name) => name === 'third' }), []);
  t.deepEqual(await keysOf({ isWanted: (name) => name !== app, nameHere: (name) => `here/${name}` }), [
    'here/other 1',
    'here/other 2',
    'here/other 3',
  ]);
  const long = 'A'.repeat(400);
  const wrong = await run(importOf(there, {}, { ...only, nameHere: () => long }));
  t.deepEqual(wrong.results, { [app]: `NameInvalid: ${'A'.repeat(300)} is not a name of images.` });
  const odd = await run(importOf({ ...there, tags: { 'Old!': tags } }));
  t.deepEqual(odd.results, { 'Old!': 'NameInvalid: app is not a name of images.' });
  const digest = importOf(there, {}, { ...only, references: [digestIn(one)] });
  t.deepEqual((await run(digest)).results, {
    [`app ${digestIn(one)}`]: { outcome: 'imported', bytes: one.length + 'configlayerown'.length },
  });
  t.deepEqual(digest.calls.at(-1), ['referrers', app, digestIn(one)]);
  t.deepEqual((digest.calls.find(([what]) => what === 'push')![3] as { tags: unknown }).tags, []);
});

const unavailable = (message: string, more: object = {}) => new UpstreamError('UpstreamUnavailable', message, more);

test('a repository of which an upstream has all images is mirrored, unless one is missing there or hosted here', async (t) => {
  const tags = { [app]: [{ tag: '1' }, { tag: '2' }] };
  const there = { ...source, tags, manifests: { 1: one, 2: two, ...known(one) } };
  const upstream = { [digestIn(one)]: true, [digestIn(two)]: true } as const;
  const mirrored = { outcome: 'mirrored', bytes: 0, note: 'up.test has the same image', alsoAt: 'up.test' };
  const outcomes = async (here: Here, more: Partial<ImportOptions> = {}, from: There = there) => {
    const of = importOf(from, here, more);
    const { results, items } = await run(of);
    t.is(of.opened.count, 0);
    return { results, items, asked: of.calls.filter(([what]) => what === 'upstream').length };
  };
  for (const from of [there, { ...there, tells: false }]) {
    const { results, items, asked } = await outcomes({ upstream }, {}, from);
    t.deepEqual(results as object, { 'app 1': mirrored, 'app 2': mirrored });
    t.deepEqual([items.map(({ isHosted }) => isHosted), asked], [[false, false], 2]);
  }
  const denied = new DomainError('Denied', 'The policy denies it.');
  t.like(await outcomes({ upstream: { ...upstream, [digestIn(one)]: denied } }), { results: { 'app 1': mirrored } });
  const digests = await outcomes({ upstream }, { references: [digestIn(one)] });
  t.deepEqual(digests.results as object, {
    [`app ${digestIn(one)}`]: { outcome: 'mirrored', bytes: 0, alsoAt: 'up.test' },
  });
  for (const [here, more, asked] of [
    [{ upstream: { [digestIn(one)]: true } }, {}, 2],
    [{ upstream: { [digestIn(two)]: true } }, {}, 1],
    [{ upstream, isClaimed: true }, {}, 0],
    [{ upstream }, { allHosted: true }, 0],
    [{}, {}, 0],
    [{ upstream }, { signal: AbortSignal.abort() }, 0],
  ] as const) {
    const found = await outcomes(here, more);
    t.like(found.results, { 'app 1': { outcome: 'imported' }, 'app 2': { outcome: 'imported' } });
    t.deepEqual([found.asked, found.items[0]!.isHosted], [asked, true]);
  }
  const broken = { ...there, manifests: { ...there.manifests, 1: new DomainError('Invalid', 'It is broken.') } };
  t.deepEqual((await outcomes({ upstream }, {}, broken)).results['app 1'], 'Invalid: It is broken.');
  const down = { ...there, manifests: { ...there.manifests, 1: unavailable('It is down.') } };
  t.deepEqual((await outcomes({ upstream }, {}, down)).results, { [app]: 'UpstreamUnavailable: It is down.' });
});

const unknown = (message: string) =>
  `Invalid: It is not known whether up.test has this image, too: ${message} Import it again later, or with --hosted.`;
test('an upstream that refuses access has no image unless some were mirrored; one that fails is no answer', async (t) => {
  const there = { ...source, manifests: { 1: one } };
  const result = async (error: Error, isMirrored = false) => {
    const { results } = await run(importOf(there, { upstream: { [digestIn(one)]: error }, isMirrored }));
    const [found] = Object.values(results);
    return typeof found === 'string' ? found : found!.outcome;
  };
  const denied = unavailable('It denies.', { denied: true });
  const refused = unavailable('up.test refused access; check its credentials.');
  for (const error of [denied, refused]) {
    t.is(await result(error), 'imported');
    t.is(await result(error, true), unknown(error.message));
  }
  t.is(await result(unavailable('It is down.')), unknown('It is down.'));
  t.is(await result(new TypeError('a defect')), 'TypeError: a defect');
});

test('a tag that came before stays, and is a conflict only if the source has moved it since then', async (t) => {
  const there = { ...source, manifests: { 1: two } };
  const again = async (here: Here, from: There = there) => {
    const of = importOf(from, here);
    return (await run(of, (item) => item.again!())).results['app 1'];
  };
  const present = { outcome: 'present', bytes: 0 } as const;
  const own: Here = { tags: { 1: digestIn(one) } };
  t.deepEqual(await again({}), present);
  t.deepEqual(await again({ tags: { 1: digestIn(two) } }), present);
  t.deepEqual(await again({ ...own, digestsOfTag: [digestIn('x'), digestIn(two)] }), present);
  t.deepEqual(await again(own, { ...there, manifests: {} }), present);
  t.deepEqual(await again(own, { ...there, manifests: { 1: new Error('broken') } }), present);
  const note = 'the tag 1 was moved at the source after it came';
  t.deepEqual(await again(own), { outcome: 'conflict', bytes: 0, note });
  const down = unavailable('It is down.');
  t.is(await again(own, { ...there, manifests: { 1: down } }), 'UpstreamUnavailable: It is down.');
});

const ours = (result: { found: [string, ComparedReference[]][] }) => result.found[0]![1].map((each) => each.ours);

test('the tags of a name beside those here, and those that are only here, page by page', async (t) => {
  const tags = { [app]: [{ tag: '1', pushedAt: 5 }, { tag: '2' }] };
  const there = { ...source, tags, manifests: { 1: one, 2: two } };
  const own = { 1: digestIn(one), a: digestIn(two), b: digestIn(two), c: digestIn(two) };
  const compared = async (
    here: Here,
    withUpstreams: boolean,
    more: Partial<ImportOptions> = { names: [app] },
    from = there,
  ) => {
    const of = importOf(from, here, more);
    const found: [string, ComparedReference[]][] = [];
    for await (const { name, references } of of.images.compared(withUpstreams))
      found.push([name, await all(references())]);
    return { found, pages: of.calls.filter(([what]) => what === 'tags') };
  };
  const theirs = [
    { hash: digestIn(one), publishedAt: 5 },
    { hash: digestIn(two), publishedAt: undefined },
  ];
  const onlyHere = ['a', 'b', 'c'].map((reference) => ({ reference, theirs: undefined, ours: {} }));
  for (const tells of [true, false]) {
    const { found, pages } = await compared(
      { tags: own },
      false,
      { names: [app] },
      {
        ...there,
        tells,
      },
    );
    t.deepEqual(found, [
      [
        app,
        [
          { reference: '1', theirs: theirs[0]!, ours: { hash: digestIn(one) } },
          { reference: '2', theirs: theirs[1]!, ours: undefined },
          ...onlyHere,
        ],
      ],
    ]);
    t.deepEqual(pages, [
      ['tags', 1000, ''],
      ['tags', 1000, 'a'],
      ['tags', 1000, 'c'],
    ]);
  }
  const upstream = { [digestIn(one)]: true, [digestIn(two)]: true } as const;
  t.deepEqual(ours(await compared({ upstream }, true)), [{ hash: digestIn(one) }, { hash: digestIn(two) }]);
  t.deepEqual(ours(await compared({ upstream }, false)), [undefined, undefined]);
  t.deepEqual((await compared({}, false, {})).found, []);
  const missing = await compared({}, false, { names: [app], nameHere: () => 'other' });
  t.deepEqual([ours(missing), missing.pages], [[undefined, undefined], []]);
});

test('a blob that two images need at the same time is fetched once', async (t) => {
  const tags = { [app]: [{ tag: '1' }, { tag: '2' }] };
  const of = importOf({ ...source, tags, manifests: { 1: one, 2: two } });
  const running: Promise<ImportResult>[] = [];
  for await (const { items } of of.images.groups()) for await (const item of items()) running.push(item.run());
  const results = await Promise.all(running);
  t.deepEqual(
    of.calls.filter(([what]) => what === 'fill').map(([, , digest]) => digest),
    ['config', 'layer', 'own'].map(digestIn),
  );
  t.is(
    results.reduce((sum, { bytes }) => sum + bytes, 0),
    [one, two, 'config', 'layer', 'own'].join('').length,
  );
});

test('a failure of the database or the storage here is no missing image', async (t) => {
  const fails = new DomainError('DatabaseUnavailable', 'It is down.');
  const of = importOf({ ...source, manifests: { 1: one } }, { fails });
  t.deepEqual((await run(of)).results, { 'app 1': 'DatabaseUnavailable: It is down.' });
  t.false(of.calls.some(([what]) => what === 'push'));
});

test('a blob that could not be fetched is fetched anew by the next attempt', async (t) => {
  const blobsThere: Record<string, string> = {};
  const of = importOf({ ...source, manifests: { 1: two }, blobs: blobsThere });
  const [group] = await all(of.images.groups());
  const [item] = await all(group!.items());
  await t.throwsAsync(item!.run(), { name: 'DigestMismatch' });
  Object.assign(blobsThere, blobs);
  t.like(await item!.run(), { outcome: 'imported' });
});

const outcomeWith = async (count: number) => {
  const images = Array.from({ length: count }, (_, at) => JSON.stringify({ schemaVersion: 2, manifests: [], at }));
  const parts = [0, 1, 2, 3].map((part) =>
    indexOf(...images.slice(part * 2500, (part + 1) * 2500).map((each) => described(each))),
  );
  const manifests = { 1: indexOf(...parts.map((each) => described(each))), ...known(...parts, ...images) };
  const { results } = await run(importOf({ ...source, manifests }, {}, { dryRun: true }));
  const [found] = Object.values(results);
  return typeof found === 'string' ? found : found!.outcome;
};

test('an image with all that belongs to it has 10,000 manifests at most', async (t) => {
  t.is(await outcomeWith(9995), 'imported');
  t.is(await outcomeWith(9996), 'TooLarge: The image has more than 10000 manifests.');
});
