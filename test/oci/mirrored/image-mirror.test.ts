import { Readable } from 'node:stream';
import test from 'ava';
import { Admission, type Judge, type Verdict } from '../../../src/mirror/policy/admission.ts';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import type { MirrorResource } from '../../../src/mirror/fetch/resource.ts';
import { manifestTypes, mediaTypes } from '../../../src/oci/format/manifest.ts';
import { ImageMirror } from '../../../src/oci/mirrored/image-mirror.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream, UpstreamRequest } from '../../../src/upstream/upstream.ts';

// Which requests images of upstreams cause, and what is opened of them, without a network and a storage.

const digests = ['one', 'two', 'three'].map((each) => digestOf(each)) as [Digest, Digest, Digest];
const [one, two, three] = digests;
const { signal } = new AbortController();

interface Answer {
  status?: number;
  text?: string;
  headers?: Record<string, string>;
  digest?: Digest;
}

interface Given {
  /** What the mirror answers for each kind and reference; an error is thrown. */
  entries?: Record<string, object | Error>;
  /** The stored entries by kind and reference, which are opened without a request. */
  stored?: Record<string, object>;
  /** The references under each kind that are stored, in order. */
  references?: Record<string, readonly string[]>;
  verdicts?: Record<string, Verdict>;
  /** Those on what references have now, and not on what they had before. */
  now?: Record<string, Verdict>;
  /** The digests that tags had here, the latest first. */
  earlier?: Record<string, readonly string[]>;
  withdrawn?: readonly string[];
  answers?: Answer[];
  tagsOf?: string[];
}

interface Key {
  kind: string;
  name: string;
  reference: string;
}

/** Bytes of an entry, and whether they were closed. */
function entryOf(text: string, more: object = {}) {
  const told = { closed: 0 };
  const content = { ...contentOf(Buffer.from(text)), close: () => void (told.closed += 1) };
  const metadata = { digest: digestOf(text), size: text.length, type: mediaTypes.image, attributes: {} };
  return { told, entry: { outcome: 'hit', type: mediaTypes.image, size: text.length, content, metadata, ...more } };
}

const find = (from: Record<string, object | Error> | undefined, { kind, reference }: Key) => {
  const found = from?.[`${kind} ${reference}`];
  return found instanceof Error ? Promise.reject(found) : Promise.resolve(found);
};

function setUp(given: Given) {
  const calls: unknown[] = [];
  const opened: MirrorResource[] = [];
  const answers = [...(given.answers ?? [])];
  const config = {
    freshFor: 1,
    staleFor: 2,
    negativeFor: 3,
    timeout: 60_000,
    kind: 'registry',
    include: ['*'],
    exclude: [],
    default: true,
  };
  const upstream = {
    id: 'up',
    name: 'registry.test',
    config,
    base: new URL('https://registry.test'),
    serves: () => true,
    send: (request: UpstreamRequest) => {
      calls.push(`${request.method ?? 'GET'} ${request.url.href}`);
      const { status = 200, text = '', headers = {}, digest } = answers.shift() ?? { status: 404 };
      return Promise.resolve({ status, headers, digest, decoded: false, body: Readable.from([Buffer.from(text)]) });
    },
  } as unknown as Upstream;
  const under = ({ kind }: Key) => given.references?.[kind] ?? [];
  const mirror = {
    open: (resource: MirrorResource) => {
      opened.push(resource);
      return find(given.entries, resource.key);
    },
    openStored: ({ key }: { key: Key }) => find(given.stored, key),
    stored: (key: Key) => find(given.stored, key),
    references: (key: Key, limit: number, after = '') =>
      Promise.resolve(
        under(key)
          .filter((each) => each > after)
          .slice(0, limit),
      ),
    among: (key: Key, some: readonly string[]) =>
      Promise.resolve(new Set(under(key).filter((each) => some.includes(each)))),
    latest: (key: Key, limit: number) => Promise.resolve(under(key).slice(0, limit)),
    referencesOf: (_key: Key, digest: Digest) => {
      calls.push(`tags of ${digest}`);
      return Promise.resolve([...(given.tagsOf ?? [])]);
    },
    writeUses: () => Promise.resolve(),
    remove: (key: Key, also: (tx: string) => Promise<void>) => {
      calls.push(key);
      const at = given.tagsOf?.indexOf(key.reference) ?? -1;
      if (at >= 0) given.tagsOf!.splice(at, 1);
      return also('tx').then(() => at >= 0);
    },
    withdrawals: {
      of: () => Promise.resolve((given.withdrawn ?? []).map((reference) => ({ reference }))),
      times: () => Promise.resolve(new Map([['old', 5]])),
      offered: (_name: object, isOffered: (tag: string) => boolean, subject: unknown) => {
        calls.push(['offered', ['v1', 'v2'].filter(isOffered), subject !== undefined]);
        return Promise.resolve();
      },
      missing: (_name: object, tags: readonly string[]) => {
        calls.push(['missing', tags]);
        return Promise.resolve([]);
      },
    },
  };
  const sightings = {
    digestsOf: (_name: object, tags: readonly string[]) =>
      Promise.resolve(new Map(tags.flatMap((each) => (given.earlier?.[each] ? [[each, given.earlier[each]]] : [])))),
    latestDigests: () => Promise.resolve(new Map()),
    firstSeen: () => Promise.resolve(new Map()),
    firstListed: (_key: object, some: readonly string[]) => {
      calls.push(['listed', some]);
      return Promise.resolve();
    },
    manifestSeenAt: (name: object, digest: Digest) => {
      calls.push([name, digest]);
      return Promise.resolve(9);
    },
  };
  const purposes: string[] = [];
  const { verdicts } = given;
  const judge: Judge = async ({ kind, isPast }, references, purpose) => {
    purposes.push(`${kind} ${purpose} ${references.length}`);
    return verdicts && kind === 'image'
      ? (reference) => (isPast ? undefined : given.now?.[reference]) ?? verdicts[reference] ?? 'allow'
      : undefined;
  };
  const images = new ImageMirror(
    mirror as never,
    new UpstreamPolicy([upstream], undefined, []),
    { admission: new Admission(judge), sightings: sightings as never, accountId: 7 },
    { manifest: 1000, blob: 5000 } as never,
  );
  return { images, place: { upstream, name: 'team/app' }, calls, opened, purposes };
}

const denied = { denied: 'It has known malware.' };
const base = 'https://registry.test/v2/team/app';

test('a manifest is opened by its tag or digest, and kept when its upstream has it no more', async (t) => {
  const { entry } = entryOf('one');
  const { images, place, opened, calls } = setUp({ entries: { 'manifest v1': entry, [`manifest ${one}`]: entry } });
  t.is(await images.openManifest(place, 'v1'), entry as never);
  t.is(await images.openManifest(place, one), entry as never);
  t.is(await images.openManifest(place, 'v2'), undefined);
  t.deepEqual(
    opened.map(({ key, limit, keeps, whole, lifetime }) => [key.reference, limit, keeps, whole, lifetime]),
    [
      ['v1', 1000, true, true, { freshFor: 1, staleFor: 2 }],
      [one, 1000, true, true, 'immutable'],
      ['v2', 1000, true, true, { freshFor: 1, staleFor: 2 }],
    ],
  );
  t.is(images.nameOf(place).accountId, 7);
  t.deepEqual(images.upstreams, [place.upstream]);
  t.is(await images.firstSeenAt(place, one), 9);
  t.deepEqual(calls, [[{ upstream: 'up', name: 'team/app' }, one]]);
});

/** What is fetched for a manifest of which `known` is stored, and what was asked. */
async function fetchOf(given: Given, known?: Digest, reference = 'v1', stop = signal) {
  const made = setUp(given);
  await made.images.openManifest(made.place, reference);
  const fetched = await made.opened[0]!.fetch(known && ({ digest: known, etag: '"e"' } as never), stop);
  const { kind } = fetched;
  if (kind !== 'fetched') return { kind, ...made };
  const { type, size, digest } = fetched;
  return { kind, type, size, digest, ...made };
}

test('a manifest that is not stored is fetched with all types of manifests', async (t) => {
  const headers = { 'content-type': ` ${mediaTypes.index.toUpperCase()} ; charset=utf-8`, 'content-length': '3' };
  const found = await fetchOf({ answers: [{ text: 'one', headers }] });
  t.like(found, { kind: 'fetched', type: mediaTypes.index, size: 3, calls: [`GET ${base}/manifests/v1`] });
  t.is((await fetchOf({ answers: [{ status: 404 }] })).kind, 'absent');
  const sent: UpstreamRequest[] = [];
  const { images, place, opened } = setUp({});
  (place.upstream as unknown as { send: (request: UpstreamRequest) => Promise<object> }).send = (request) => {
    sent.push(request);
    return Promise.resolve({ status: 404, body: Readable.from([]), headers: {} });
  };
  await images.openManifest(place, 'v1');
  await opened[0]!.fetch(undefined, signal);
  t.deepEqual(sent, [
    {
      url: new URL(`${base}/manifests/v1`),
      headers: { accept: manifestTypes.join(', ') },
      subject: 'team/app',
      scope: 'repository:team/app:pull',
      isDocument: true,
      signal,
    },
  ]);
});

const seen = (isOffered: boolean) => (isOffered ? ['offered', ['v1'], true] : ['missing', ['v1']]);

test('a stored tag is asked for by HEAD, and what the upstream says of it is noted', async (t) => {
  const head = `HEAD ${base}/manifests/v1`;
  const same = await fetchOf({ answers: [{ digest: one }] }, one);
  t.like(same, { kind: 'not-modified', calls: [head, seen(true)] });
  for (const status of [404, 410]) {
    const gone = await fetchOf({ answers: [{ status }, { status: 200 }] }, one);
    t.like(gone, { kind: 'absent', calls: [head, 'GET https://registry.test/v2/', seen(false)] });
  }
  const { entry } = entryOf('two');
  const moved = await fetchOf({ answers: [{ digest: two }], entries: { [`manifest ${two}`]: entry } }, one);
  t.like(moved, { kind: 'fetched', type: mediaTypes.image, size: 3, digest: two, calls: [head, seen(true)] });
  t.is(moved.opened[1]!.key.reference, two);
  const headers = { 'content-type': mediaTypes.image };
  const unknown = await fetchOf({ answers: [{}, { text: 'two', headers }] }, one);
  t.like(unknown, { kind: 'fetched', digest: undefined, calls: [head, `GET ${base}/manifests/v1`, seen(true)] });
  const missing = await fetchOf({ answers: [{ digest: two }, { text: 'two', headers }] }, one);
  t.like(missing, { kind: 'fetched', calls: [head, `GET ${base}/manifests/v1`, seen(true)] });
});

const failed = (error: Error, stop = signal) =>
  fetchOf({ answers: [{ digest: two }, { text: 'two' }], entries: { [`manifest ${two}`]: error } }, one, 'v1', stop);

test('a tag that moved is fetched by its name if its digest may not be fetched for this client alone', async (t) => {
  for (const name of ['TooManyRequests', 'Aborted'] as const)
    t.is((await failed(new DomainError(name, 'of a client'))).kind, 'fetched');
  const busy = new DomainError('TooManyRequests', 'of a client');
  const stopped = AbortSignal.abort();
  t.is(await t.throwsAsync(failed(busy, stopped)), busy);
  const down = new UpstreamError('UpstreamUnavailable', 'down');
  t.is(await t.throwsAsync(failed(down)), down);
});

test('what is held is fetched, not served and closed, and its age begins', async (t) => {
  const { entry, told } = entryOf('one', { outcome: 'miss' });
  const referrers = { 'referrers sha': {} };
  const given: Given = { verdicts: { v1: 'hold' }, entries: { ...referrers, 'manifest v1': entry } };
  const first = setUp(given);
  t.is(await first.images.openManifest(first.place, 'v1'), undefined);
  t.is(told.closed, 1);
  t.deepEqual(
    first.opened.map(({ key }) => `${key.kind} ${key.reference}`),
    ['manifest v1', `referrers ${one}`],
    'what refers to it is listed, too',
  );
  t.deepEqual(first.purposes.slice(0, 2), ['image content 1', 'image request 2']);
  const again = entryOf('one');
  const second = setUp({ ...given, entries: { 'manifest v1': again.entry } });
  t.is(await second.images.openManifest(second.place, 'v1'), undefined);
  t.is(again.told.closed, 1);
  t.is(second.opened.length, 1, 'it was listed before');
});

test('nothing is lost if the list of what refers to it fails', async (t) => {
  const { entry, told } = entryOf('one', {
    outcome: 'miss',
    metadata: undefined,
    complete: Promise.resolve({ digest: one }),
  });
  const entries = { 'manifest v1': entry, [`referrers ${one}`]: new UpstreamError('UpstreamTimeout', 'slow') };
  const { images, place } = setUp({ verdicts: { [one]: 'hold' }, entries });
  t.is(await images.openManifest(place, 'v1'), undefined);
  t.is(told.closed, 1);
});

test('a tag that moved to a digest that is held answers its latest one that is not', async (t) => {
  const [now, before] = [entryOf('two'), entryOf('one')];
  const entries = { 'manifest v1': now.entry, [`manifest ${two}`]: now.entry, [`manifest ${one}`]: before.entry };
  const given: Given = { verdicts: { [two]: 'hold' }, entries, earlier: { v1: [two, one], [two]: [one] } };
  const { images, place } = setUp(given);
  t.is(await images.openManifest(place, 'v1'), before.entry as never);
  t.deepEqual([now.told.closed, before.told.closed], [1, 0]);
  t.is(await images.openManifest(place, two), undefined, 'a digest has no earlier one');
  t.is(now.told.closed, 2);
  t.is(await images.openManifest(place, one), before.entry as never);
  t.is(before.told.closed, 0);
});

test('what is denied says why, and a tag is asked for first unless it is denied whatever digest it has', async (t) => {
  const { entry, told } = entryOf('one');
  const given: Given = { verdicts: { [one]: denied }, entries: { 'manifest v1': entry, [`manifest ${one}`]: entry } };
  const byDigest = setUp(given);
  const message = denied.denied;
  await t.throwsAsync(byDigest.images.openManifest(byDigest.place, one), { name: 'Denied', message });
  t.deepEqual(byDigest.opened, []);
  t.deepEqual(byDigest.purposes, ['image content 1', 'image request 1']);
  const byTag = setUp(given);
  await t.throwsAsync(byTag.images.openManifest(byTag.place, 'v1'), { name: 'Denied', message });
  t.is(byTag.opened.length, 1);
  t.is(told.closed, 1);
  const moving = setUp({ ...given, verdicts: {}, now: { v1: denied } });
  await t.throwsAsync(moving.images.openManifest(moving.place, 'v1'), { name: 'Denied', message });
  t.is(moving.opened.length, 1, 'it may have moved');
  t.is(told.closed, 2);
  const always = setUp({ ...given, verdicts: { v1: denied } });
  await t.throwsAsync(always.images.openManifest(always.place, 'v1'), { name: 'Denied', message });
  t.deepEqual(always.opened, []);
});

test('a manifest of a limited name that does not arrive is closed', async (t) => {
  const failed = new Error('cut');
  const complete = Promise.reject(failed);
  complete.catch(() => undefined);
  const { entry, told } = entryOf('one', { metadata: undefined, complete });
  const { images, place } = setUp({ verdicts: {}, entries: { 'manifest v1': entry } });
  t.is(await t.throwsAsync(images.openManifest(place, 'v1')), failed);
  t.is(told.closed, 1);
});

test('the digest of a tag is told also of one that is refused, and its content is closed', async (t) => {
  const { entry, told } = entryOf('one');
  const arriving = entryOf('two', { metadata: undefined, complete: Promise.resolve({ digest: two }) });
  const { images, place } = setUp({
    verdicts: { v1: denied },
    entries: { 'manifest v1': entry, 'manifest v2': arriving.entry },
  });
  t.is(await images.digestOf(place, 'v1'), one);
  t.is(await images.digestOf(place, 'v2'), two);
  t.is(await images.digestOf(place, 'v3'), undefined);
  t.deepEqual([told.closed, arriving.told.closed], [1, 1]);
});

const image = (size: unknown, layer: Digest) =>
  JSON.stringify({ config: { digest: digestOf(`config of ${layer}`), size: 1 }, layers: [{ digest: layer, size }] });

test('a blob is stored once, and has at most the size that a stored manifest states', async (t) => {
  const { entry } = entryOf('blob');
  const first = setUp({ stored: { [`blob ${one}`]: entry } });
  t.is(await first.images.openBlob(first.place, one), entry as never);
  t.deepEqual(first.opened, []);
  const manifests = [image(40, two), image('none', three), image(9000, one)].map((each) => entryOf(each).entry);
  const named = Object.fromEntries(manifests.map((each) => [`manifest ${each.metadata.digest}`, each]));
  const references = { manifest: manifests.map((each) => each.metadata.digest) };
  const { images, place, opened, calls } = setUp({
    stored: named,
    references,
    entries: { [`blob ${two}`]: entry },
    answers: [{ text: 'blob' }],
  });
  t.is(await images.openBlob(place, two), entry as never);
  for (const each of [three, one, digestOf('unknown')]) t.is(await images.openBlob(place, each), undefined);
  t.deepEqual(
    opened.map(({ limit }) => limit),
    [40, 5000, 5000, 5000],
  );
  const fetched = await opened[0]!.fetch(undefined, signal);
  t.is(fetched.kind, 'fetched');
  t.deepEqual(calls, [`GET ${base}/blobs/${two}`]);
  const configs = [two, three, one].map((each) => digestOf(`config of ${each}`));
  t.deepEqual(await images.blobsOfImages(place), new Set([configs[0], two, configs[1], three, configs[2], one]));
});

test('a blob that is fetched must not be coded, and is asked for with the rights of its image', async (t) => {
  const { images, place, opened } = setUp({});
  const sent: UpstreamRequest[] = [];
  (place.upstream as unknown as { send: (request: UpstreamRequest) => Promise<object> }).send = (request) => {
    sent.push(request);
    return Promise.resolve({ status: 404, body: Readable.from([]), headers: {} });
  };
  await images.openBlob(place, one);
  await opened[0]!.fetch({ etag: '"e"' } as never, signal);
  t.deepEqual(sent, [
    {
      url: new URL(`${base}/blobs/${one}`),
      subject: 'team/app',
      scope: 'repository:team/app:pull',
      signal,
      headers: { 'accept-encoding': 'identity' },
    },
  ]);
});

test('what is stored is told as lists show it', async (t) => {
  const metadata = { digest: one, reference: 'v1' };
  const given: Given = {
    references: { manifest: ['v1', 'v2', one], blob: [two] },
    stored: { 'manifest v1': metadata, 'manifest v2': { digest: two }, [`manifest ${one}`]: metadata },
    verdicts: { v2: 'hold', v3: 'hold' },
    earlier: { v2: [one] },
  };
  const { images, place } = setUp(given);
  t.true(await images.isMirrored(place));
  t.true(await images.isStored(place, 'manifest', 'v1'));
  t.false(await images.isStored(place, 'manifest', 'v2'), 'it is held');
  t.false(await images.isStored(place, 'blob', one));
  t.deepEqual(await images.storedAmong(place, 'manifest', ['v1', 'v2', 'v9', one]), new Set(['v1', one]));
  t.deepEqual(await images.blobsAmong(place, [one, two]), new Set([two]));
  t.is(await images.stored(place, 'manifest', 'v1'), metadata as never);
  t.is(await images.stored(place, 'manifest', 'v2'), metadata as never, 'the earlier one');
  t.is(await images.stored(place, 'manifest', 'v9'), undefined);
  const none = setUp({ ...given, earlier: {}, references: {} });
  t.is(await none.images.stored(none.place, 'manifest', 'v2'), undefined);
  t.false(await none.images.isMirrored(none.place));
  t.deepEqual(await images.earlierDigests(place, ['v2', 'v3']), new Map([['v2', one]]));
  const entries = [
    { reference: 'v1', digest: one },
    { reference: 'v2', digest: one },
    { reference: 'v4', digest: two },
  ];
  t.deepEqual(await images.listedEntries(place, entries), [entries[0]!, entries[2]!]);
  const held = setUp({ verdicts: { [two]: 'hold' } });
  t.deepEqual(await held.images.listedEntries(held.place, entries), entries.slice(0, 2));
  t.deepEqual(await held.images.listedPast(held.place, entries), entries.slice(0, 2));
  t.true(await held.images.servesPast(held.place, 'v1', one));
  t.false(await held.images.servesPast(held.place, 'v1', two));
  t.false(await images.servesPast(place, 'v2', one));
  t.deepEqual([...(await images.withdrawn(place))], [['old', 5]]);
});

test('tags of a digest are those that lists show, and all of them are dropped with it', async (t) => {
  const { images, place, calls } = setUp({ tagsOf: ['v1', 'v2'], verdicts: { v1: 'hold' } });
  t.deepEqual(await images.tagsOf(place, one), ['v2']);
  calls.length = 0;
  const ran: unknown[] = [];
  t.true(await images.forgetTag(place, 'v2', async (tx) => void ran.push(tx)));
  t.false(await images.forgetTag(place, 'v2', async (tx) => void ran.push(tx)));
  t.deepEqual(ran, ['tx', 'tx']);
  const key = { upstream: 'up', kind: 'manifest', name: 'team/app', reference: 'v2' };
  t.deepEqual(calls.splice(0), [key, key]);
  await images.forgetTagsOf(place, one);
  t.deepEqual(calls, [`tags of ${one}`, { ...key, reference: 'v1' }, `tags of ${one}`]);
});

const listOf = (...tags: string[]) => entryOf(JSON.stringify(tags)).entry;
const page = (given: Given, limit?: number, last?: string) => {
  const { images, place } = setUp(given);
  return images.listTags(place, limit, last);
};

test('a list of tags is that of the upstream, with stored ones that it has withdrawn, in byte order', async (t) => {
  const entries = { 'tags ': listOf('b', 'd', 'a') };
  t.deepEqual(await page({ entries }), { served: 'hit', items: ['a', 'b', 'd'], more: false });
  t.deepEqual(await page({ entries, withdrawn: ['c', 'a'] }), {
    served: 'hit',
    items: ['a', 'b', 'c', 'd'],
    more: false,
  });
  t.deepEqual(await page({ entries }, 2), { served: 'hit', items: ['a', 'b'], more: true });
  t.deepEqual(await page({ entries }, 3), { served: 'hit', items: ['a', 'b', 'd'], more: false });
  t.deepEqual(await page({ entries }, 1, 'a'), { served: 'hit', items: ['b'], more: true });
  t.deepEqual(await page({ entries }, 2, 'a'), { served: 'hit', items: ['b', 'd'], more: false });
  t.deepEqual(await page({ entries, verdicts: { b: 'hold' } }, 2), { served: 'hit', items: ['a', 'd'], more: false });
  t.is(await page({}), undefined);
  t.deepEqual(await page({ withdrawn: ['c', 'b'] }), { served: 'withdrawn', items: ['b', 'c'], more: false });
  const empty = { entries: { 'tags ': listOf() }, references: { manifest: ['v1', one] }, withdrawn: ['other'] };
  t.deepEqual(await page(empty), { served: 'hit', items: ['v1'], more: false }, 'an empty list says nothing');
});

const failingWith = (error: Error, manifest: readonly string[]): Given => ({
  entries: { 'tags ': error },
  references: { manifest },
  verdicts: { hidden: 'hold' },
});

test('stored tags are listed while the upstream fails, and its failure without any', async (t) => {
  const down = new UpstreamError('UpstreamUnavailable', 'down');
  const many = Array.from({ length: 600 }, (_, index) => `v${1000 + index}`);
  const stored = ['a', 'b', 'c', one];
  for (const error of [down, new DomainError('TooManyRequests', 'busy')]) {
    t.deepEqual(await page(failingWith(error, stored)), { served: 'stale', items: ['a', 'b', 'c'], more: false });
    t.is(await t.throwsAsync(page(failingWith(error, []))), error);
  }
  t.deepEqual(await page(failingWith(down, stored), 2), { served: 'stale', items: ['a', 'b'], more: true });
  t.deepEqual(await page(failingWith(down, stored), 2, 'a'), { served: 'stale', items: ['b', 'c'], more: false });
  t.deepEqual(await page(failingWith(down, stored), 2, 'c'), { served: 'stale', items: [], more: false });
  t.is(await t.throwsAsync(page(failingWith(down, [one]), 2, 'c')), down);
  t.is(await t.throwsAsync(page(failingWith(down, ['hidden']))), down);
  const all = await page(failingWith(down, many));
  t.deepEqual(all?.items, many, 'of all pages of stored references');
  t.deepEqual(await page(failingWith(down, many), 550), { served: 'stale', items: many.slice(0, 550), more: true });
  const other = new Error('a mistake');
  t.is(await t.throwsAsync(page(failingWith(other, stored))), other);
});

const fetchTags = async (answers: Answer[]) => {
  const { images, place, opened, calls } = setUp({ answers, references: { manifest: ['v1', 'v3'] } });
  await images.listTags(place);
  const fetched = await opened[0]!.fetch(undefined, signal);
  return [fetched.kind, ...calls];
};

test('the tags of an upstream are compared with those that are stored', async (t) => {
  const asked = `GET ${base}/tags/list?n=1000`;
  t.deepEqual(await fetchTags([{ text: '{"tags":["v2","v1",7]}' }]), [
    'fetched',
    asked,
    ['offered', ['v1', 'v2'], false],
    ['missing', ['v3']],
  ]);
  t.deepEqual(await fetchTags([{ status: 404 }, { status: 401 }]), [
    'absent',
    asked,
    'GET https://registry.test/v2/',
    ['offered', [], false],
    ['missing', ['v1', 'v3']],
  ]);
});

const descriptor = (digest: Digest) => ({ mediaType: mediaTypes.image, digest, size: 1 });

const fetchReferrers = async (answers: Answer[], more: Given = {}, known?: object) => {
  const { images, place, opened, calls } = setUp({ answers, ...more });
  await images.listReferrers(place, one);
  const fetched = await opened[0]!.fetch(known as never, signal);
  let text = '';
  if (fetched.kind === 'fetched')
    for await (const piece of fetched.body as AsyncIterable<Buffer>) text += String(piece);
  return [fetched.kind, text, ...calls];
};

test('referrers are listed from the referrers API, or from the fallback tag', async (t) => {
  const api = `GET ${base}/referrers/${one}`;
  const fallback = `GET ${base}/manifests/${one.replace(':', '-')}`;
  const found = [{ text: JSON.stringify({ manifests: [descriptor(two)] }) }];
  const text = JSON.stringify([descriptor(two)]);
  t.deepEqual(await fetchReferrers(found), ['fetched', text, api]);
  for (const status of [404, 400, 405, 406])
    t.deepEqual(await fetchReferrers([{ status }, ...found]), ['fetched', text, api, fallback]);
  const none = [{ text: '{"manifests":[]}' }];
  t.deepEqual(await fetchReferrers(none), ['absent', '', api], 'nothing is stored for an invented digest');
  t.deepEqual(await fetchReferrers(none, { references: { manifest: [one] } }), ['fetched', '[]', api]);
  t.deepEqual(await fetchReferrers(none, {}, {}), ['fetched', '[]', api], 'a list is stored already');
  const stored = entryOf(JSON.stringify([descriptor(two), descriptor(three)])).entry;
  const kept = { stored: { [`referrers ${one}`]: stored }, references: { manifest: [three] } };
  t.deepEqual(
    await fetchReferrers(none, kept, {}),
    ['fetched', JSON.stringify([descriptor(three)]), api],
    'what is not listed any more, and is stored',
  );
});

test('of referrers those are shown that are not held, whose age begins', async (t) => {
  const list = entryOf(
    JSON.stringify([descriptor(two), descriptor(three)].toSorted((a, b) => (a.digest < b.digest ? -1 : 1))),
  );
  const entries = { [`referrers ${one}`]: { ...list.entry, outcome: 'stale' } };
  const { images, place, calls } = setUp({ entries, verdicts: { [three]: 'hold' } });
  t.deepEqual(await images.listReferrers(place, one), { served: 'stale', items: [descriptor(two)] });
  t.deepEqual(calls, [['listed', [three]]]);
  const all = setUp({ entries });
  t.is((await all.images.listReferrers(all.place, one)).items.length, 2);
  t.deepEqual(all.calls, []);
  const none = setUp({});
  t.deepEqual(await none.images.listReferrers(none.place, one), { served: 'hit', items: [] });
});
