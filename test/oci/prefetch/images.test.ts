import test from 'ava';
import type { MirrorReader } from '../../../src/mirror/stored-only.ts';
import type { ImageMirror } from '../../../src/oci/mirrored/image-mirror.ts';
import { prefetchImages } from '../../../src/oci/prefetch/images.ts';
import { parseImageName } from '../../../src/oci/prefetch/image-name.ts';
import type { ImageItem } from '../../../src/oci/prefetch/image-item.ts';
import { parsePlatform } from '../../../src/prefetch/platform.ts';
import type { PrefetchOptions } from '../../../src/prefetch/prefetch.ts';
import { PrefetchRun } from '../../../src/prefetch/run.ts';
import { digestOf, isDigest, type Digest } from '../../../src/runtime/digest.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { prefetchOptions } from '../../support/prefetch.ts';

const types = {
  image: 'application/vnd.oci.image.manifest.v1+json',
  index: 'application/vnd.oci.image.index.v1+json',
};
const digestIn = (text: string) => digestOf(Buffer.from(text));
const described = (text: string, more: object = {}) => ({
  mediaType: types.image,
  digest: digestIn(text),
  size: text.length,
  ...more,
});
const imageOf = (...layers: string[]) =>
  JSON.stringify({ schemaVersion: 2, mediaType: types.image, layers: layers.map((each) => described(each)) });
const indexOf = (...manifests: object[]) => JSON.stringify({ schemaVersion: 2, mediaType: types.index, manifests });

interface Setting {
  /** Texts by `upstream name reference`. */
  there?: Record<string, string | Error>;
  /** Entries that are stored, by `upstream kind name reference`, and when they were last compared with the upstream. */
  stored?: Record<string, [text: string, validatedAt: number]>;
  /** The outcome of each manifest or blob, by its reference; `miss` by default. */
  outcomes?: Record<string, string>;
  referrers?: Record<string, readonly Digest[]>;
  tags?: readonly string[] | Error;
  hosted?: Record<string, boolean>;
  reserved?: readonly string[];
  /** Entries of the mirror, in order of use. */
  used?: readonly { upstream: string; name: string; reference: string }[];
  upstreams?: readonly string[];
}

const now = 10_000;

async function prefetched(setting: Setting, more: Partial<PrefetchOptions> = {}) {
  const {
    there = {},
    outcomes = {},
    referrers = {},
    tags = [],
    hosted = {},
    upstreams = ['docker.io', 'second.test'],
  } = setting;
  const calls: string[] = [];
  const opened = { count: 0 };
  const stored = new Map(Object.entries(setting.stored ?? {}));
  const known = upstreams.map((name) => ({
    id: `id of ${name}`,
    name,
    config: { freshFor: 1000 },
    unavailable: () => void calls.push(`pass ${name}`),
    counts: { rateLimit: () => void calls.push(`counted ${name}`) },
  }));
  type Place = { upstream: (typeof known)[number]; name: string };
  const keyOf = ({ upstream, name }: Place, kind: string, reference: string) =>
    `${upstream.name} ${kind} ${name} ${reference}`;
  const contentIn = (text: string) => {
    opened.count += 1;
    return { ...contentOf(Buffer.from(text)), close: () => void (opened.count -= 1) };
  };
  const open = (kind: string) => async (place: Place, reference: string) => {
    calls.push(`${kind} ${place.upstream.name} ${place.name} ${reference}`);
    const text = there[`${place.upstream.name} ${place.name} ${reference}`];
    if (text instanceof Error) throw text;
    if (text === undefined) return undefined;
    const outcome = outcomes[reference] ?? 'miss';
    if (outcome === 'miss' && more.dryRun !== true) stored.set(keyOf(place, kind, reference), [text, now]);
    const metadata = { digest: digestIn(text), size: text.length };
    return { outcome, content: contentIn(text), complete: Promise.resolve(metadata) };
  };
  const imageMirror = {
    upstreams: known,
    names: {
      locate: (name: string) => {
        const upstream = known.find((each) => name.startsWith(`${each.name}/`));
        const isBare = !name.split('/', 1)[0]!.includes('.');
        if (upstream) return { hosted: [name], place: { upstream, name: name.slice(upstream.name.length + 1) } };
        const [first] = known;
        return {
          hosted: [name],
          place: isBare && first?.name === 'default.test' ? { upstream: first, name } : undefined,
        };
      },
    },
    openManifest: open('manifest'),
    openBlob: open('blob'),
    listReferrers: async (place: Place, digest: Digest) => {
      calls.push(`referrers ${place.name} ${digest}`);
      return { items: (referrers[digest] ?? []).map((each) => ({ digest: each })) };
    },
    listTags: async (place: Place) => {
      calls.push(`tags ${place.name}`);
      if (tags instanceof Error) throw tags;
      return { items: tags };
    },
  } as unknown as ImageMirror;
  const textOf = ({
    upstream,
    kind,
    name,
    reference,
  }: {
    upstream: string;
    kind: string;
    name: string;
    reference: string;
  }) => stored.get(`${upstream.replace('id of ', '')} ${kind} ${name} ${reference}`);
  const mirror = {
    stored: async (key: Parameters<typeof textOf>[0]) => {
      const found = textOf(key);
      return found && { digest: digestIn(found[0]), size: found[0].length, validatedAt: found[1] };
    },
    openStored: async ({ key }: { key: Parameters<typeof textOf>[0] }) => {
      const found = textOf(key);
      const metadata = found && { digest: digestIn(found[0]), size: found[0].length };
      return found && { size: found[0].length, content: contentIn(found[0]), metadata };
    },
  } as unknown as MirrorReader;
  const database = {
    selectCached: async (_sql: string, [account, ...names]: [number, ...string[]]) =>
      names.flatMap((name) => (account === 7 && name in hosted ? [{ name, claimed_at: hosted[name] ? 1 : null }] : [])),
    select: async (_sql: string, [since]: [number]) => {
      calls.push(`used since ${since}`);
      return setting.used ?? [];
    },
  };
  const options = prefetchOptions(7, { now: () => now, ...more });
  const run = new PrefetchRun({
    ...options,
    collect: options.collect === true,
    upstreams: [],
    share: 1,
    patience: 0,
    waiting: () => undefined,
  });
  const config = { reserved: { containers: setting.reserved ?? [] }, server: { host: 'me.test', port: 80 } };
  await prefetchImages(
    { config, database, mirror, mirrors: { of: async () => imageMirror } } as unknown as Parameters<
      typeof prefetchImages
    >[0],
    run,
    options,
  );
  await run.done();
  const { fetched, present, missing, skipped, needed } = run.report;
  return {
    calls,
    fetched: { ...fetched },
    present: { ...present },
    missing: missing.map(({ what, reason, location }) => `${location.file}: ${what}: ${reason}`),
    skipped: Object.fromEntries(skipped),
    needed: [...needed.values()].map(
      ({ key, metadata }) => `${key.upstream} ${key.kind} ${key.name} ${key.reference} ${metadata.digest}`,
    ),
    open: opened.count,
  };
}

const itemOf = (text: string, ...platforms: string[]): ImageItem => ({
  kind: 'image',
  image: parseImageName(text)!,
  ...(platforms.length > 0 && { platforms: platforms.map((each) => parsePlatform(each)!) }),
  location: { file: 'list', line: 1 },
});

const [amd, arm, attested] = [imageOf('layer of amd'), imageOf('layer of arm'), imageOf('attestation')];
const index = indexOf(
  described(amd, { platform: { os: 'linux', architecture: 'amd64' } }),
  described(arm, { platform: { os: 'linux', architecture: 'arm', variant: 'v7' } }),
  described(attested, {
    platform: { os: 'unknown', architecture: 'unknown' },
    annotations: { 'vnd.docker.reference.digest': digestIn(arm) },
  }),
);
const hub = (...references: [reference: string, text: string][]) =>
  Object.fromEntries(references.map(([reference, text]) => [`docker.io team/app ${reference}`, text]));
const there = hub(
  ['1', index],
  ...[amd, arm, attested, 'layer of amd', 'layer of arm', 'attestation'].map((text): [string, string] => [
    digestIn(text),
    text,
  ]),
);
const none = { count: 0, bytes: 0 };
const tally = (...texts: string[]) => ({ count: texts.length, bytes: texts.join('').length });

const needed = (kind: string, text: string, reference = digestIn(text) as string) =>
  `id of docker.io ${kind} team/app ${reference} ${digestIn(text)}`;

test('an image comes with the manifests and layers of its platforms, its attestations, and what belongs to none', async (t) => {
  const name = 'docker.io/team/app:1';
  const found = await prefetched({ there }, { items: [itemOf(name, 'linux/arm')], collect: true });
  const passed = 'pass docker.io';
  t.deepEqual(
    found.calls.filter((each) => !each.startsWith('counted')),
    [
      'manifest docker.io team/app 1',
      `manifest docker.io team/app ${digestIn(attested)}`,
      `blob docker.io team/app ${digestIn('attestation')}`,
      `manifest docker.io team/app ${digestIn(arm)}`,
      `blob docker.io team/app ${digestIn('layer of arm')}`,
    ].flatMap((each) => [passed, each]),
  );
  t.is(found.calls.filter((each) => each === 'counted docker.io').length, 3, 'blobs do not count');
  t.deepEqual(found.fetched, {
    package: none,
    manifest: tally(index, attested, arm),
    blob: tally('attestation', 'layer of arm'),
  });
  t.deepEqual([found.present, found.missing, found.open], [{ package: none, manifest: none, blob: none }, [], 0]);
  t.deepEqual(found.needed, [
    needed('manifest', index, '1'),
    needed('manifest', attested),
    needed('blob', 'attestation'),
    needed('manifest', arm),
    needed('blob', 'layer of arm'),
  ]);
  const all = await prefetched({ there }, { items: [itemOf(name)] });
  t.deepEqual([all.fetched.manifest.count, all.fetched.blob.count, all.needed], [4, 3, []]);
  const usual = await prefetched({ there }, { items: [itemOf(name)], platforms: [parsePlatform('linux/amd64')!] });
  t.deepEqual([usual.fetched.manifest, usual.fetched.blob], [tally(index, amd), tally('layer of amd')]);
  const other = await prefetched({ there }, { items: [itemOf(name, 'linux/s390x', 'linux/arm/v6')] });
  t.deepEqual(other.missing, [
    `list: ${name}: the image does not have linux/s390x, linux/arm/v6; it has linux/amd64, linux/arm/v7`,
  ]);
  t.deepEqual(other.fetched.manifest, tally(index));
});

test('an assessment fetches manifests only, and tells the sizes of the layers', async (t) => {
  const stored: Setting['stored'] = { [`docker.io blob team/app ${digestIn('layer of arm')}`]: ['layer of arm', 0] };
  const found = await prefetched({ there, stored }, { items: [itemOf('docker.io/team/app:1')], dryRun: true });
  t.deepEqual(found.fetched, {
    package: none,
    manifest: tally(index, amd, arm, attested),
    blob: tally('layer of amd', 'attestation'),
  });
  t.deepEqual([found.present.blob, found.missing, found.open], [tally('layer of arm'), [], 0]);
  t.false(found.calls.some((each) => each.startsWith('blob')));
});

const at = (reference: string) => `docker.io manifest team/app ${reference}`;

test('what is stored is not asked for again: digests at any age, tags as long as they are fresh', async (t) => {
  const image = imageOf('layer');
  const answers = hub(['1', image], [digestIn(image), image]);
  const outcomes = { 1: 'hit', [digestIn(image)]: 'hit' };
  const passesOf = async (reference: string, validatedAt: number) => {
    const stored: Setting['stored'] = {
      [at(reference)]: [image, validatedAt],
      [`docker.io blob team/app ${digestIn('layer')}`]: ['layer', 0],
    };
    const text = isDigest(reference) ? `docker.io/team/app@${reference}` : `docker.io/team/app:${reference}`;
    const found = await prefetched({ there: answers, stored, outcomes }, { items: [itemOf(text)] });
    t.deepEqual([found.present.manifest, found.present.blob, found.open], [tally(image), tally('layer'), 0]);
    t.deepEqual([found.fetched.manifest, found.fetched.blob], [none, none]);
    return found.calls.filter((each) => each.startsWith('pass')).length;
  };
  t.is(await passesOf(digestIn(image), 0), 0);
  t.is(await passesOf('1', now - 999), 0);
  t.is(await passesOf('1', now - 1000), 1);
});

test('what is missing, out of date or cannot be stored is told with its name and place', async (t) => {
  const image = imageOf('layer');
  const text = 'docker.io/team/app:1';
  const missingOf = async (setting: Setting) => (await prefetched(setting, { items: [itemOf(text)] })).missing;
  t.deepEqual(await missingOf({}), [`list: ${text}: docker.io does not have this image`]);
  t.deepEqual(await missingOf({ there: hub(['1', image]) }), [
    `list: ${text}: layer ${digestIn('layer')}: docker.io does not have this blob`,
  ]);
  const full = 'It was not stored: the disk of the server is full, or cannot be written.';
  const whole = hub(['1', image], [digestIn('layer'), 'layer']);
  t.deepEqual(await missingOf({ there: whole, outcomes: { 1: 'passed' } }), [`list: ${text}: ${full}`]);
  for (const outcome of ['passed', 'hit'])
    t.deepEqual(await missingOf({ there: whole, outcomes: { [digestIn('layer')]: outcome } }), [
      `list: ${text}: layer ${digestIn('layer')}: ${full}`,
    ]);
  t.deepEqual(await missingOf({ there: whole, outcomes: { 1: 'stale' } }), [
    `list: ${text}: the upstream failed; the stored manifest may be out of date`,
  ]);
  t.deepEqual(await missingOf({ there: hub(['1', index]) }), [
    `list: ${text}: manifest ${digestIn(attested)}: docker.io does not have this image`,
    `list: ${text}: manifest ${digestIn(arm)}: docker.io does not have this image`,
    `list: ${text}: manifest ${digestIn(amd)}: docker.io does not have this image`,
  ]);
});

const placesOf = async (text: string, setting: Setting = {}) => {
  const { calls, missing, skipped } = await prefetched(setting, { items: [itemOf(text)] });
  const manifests = calls.filter((each) => each.startsWith('manifest')).map((each) => each.slice('manifest '.length));
  const other = missing.filter((each) => !each.endsWith('does not have this image'));
  return [...manifests, ...other, ...Object.entries(skipped).map((each) => each.join(': '))];
};

test('the place of an image is that which clients ask for; hosted and reserved names are skipped', async (t) => {
  t.deepEqual(await placesOf('app:1'), ['docker.io app 1']);
  t.deepEqual(await placesOf('registry-1.docker.io/app:1'), ['docker.io app 1']);
  t.deepEqual(await placesOf('second.test/org/app:1'), ['second.test org/app 1']);
  t.deepEqual(await placesOf('me.test:80/second.test/org/app:1'), ['second.test org/app 1']);
  t.deepEqual(await placesOf('other.test/app:1'), ['list: other.test/app:1: no upstream is named other.test']);
  const unserved = ': no upstream is configured for this name';
  t.deepEqual(await placesOf('me.test:80/app:1'), [`list: me.test:80/app:1${unserved}`]);
  t.deepEqual(await placesOf('app:1', { upstreams: ['second.test'] }), [`list: app:1${unserved}`]);
  t.deepEqual(await placesOf('app:1', { upstreams: ['default.test', 'docker.io'] }), ['default.test app 1']);
  t.deepEqual(await placesOf('app:1', { hosted: { app: true } }), ['app:1: hosted here']);
  t.deepEqual(await placesOf('app:1', { hosted: { app: false } }), ['docker.io app 1']);
  t.deepEqual(await placesOf('app:1', { reserved: ['app'] }), ['app:1: reserved']);
  t.deepEqual(await placesOf('app:1', { reserved: ['docker.io/*'] }), ['app:1: reserved']);
  t.deepEqual(await placesOf('app:1', { hosted: { app: true }, reserved: ['app'] }), ['app:1: hosted here']);
});

test('referrers come from the list and from tags of a digest, in two steps; lists of tags are asked for once', async (t) => {
  const image = imageOf();
  const [sbom, signature, deeper] = [imageOf('sbom'), imageOf('signature'), imageOf('deeper')];
  const tagOf = (text: string, suffix: string) => `${digestIn(text).replace(':', '-')}.${suffix}`;
  const referrers = {
    [digestIn(image)]: [digestIn(sbom)],
    [digestIn(sbom)]: [digestIn(signature)],
    [digestIn(signature)]: [digestIn(deeper)],
  };
  const tags = [
    tagOf(image, 'sig'),
    tagOf(image, 'att'),
    tagOf(image, 'sbom'),
    tagOf(image, 'other'),
    tagOf(sbom, 'sig'),
  ];
  const attached = tags.map((tag): [string, string] => [tag, image]);
  const setting: Setting = {
    there: hub(
      ['1', image],
      ...[sbom, signature, deeper].map((text): [string, string] => [digestIn(text), text]),
      ...attached,
    ),
    referrers,
    tags,
    stored: { [`docker.io referrers team/app ${digestIn(sbom)}`]: ['list', now] },
  };
  const items = [itemOf('docker.io/team/app:1')];
  const found = await prefetched(setting, { items, referrers: true, dryRun: true, collect: true });
  const asked = found.calls.filter((each) => /^(?:manifest|referrers|tags)/.test(each)).toSorted();
  t.deepEqual(
    asked,
    [
      ...['1', digestIn(sbom), digestIn(signature), tags[0], tags[1], tags[2], tags[4]].map(
        (each) => `manifest docker.io team/app ${each}`,
      ),
      `referrers team/app ${digestIn(image)}`,
      `referrers team/app ${digestIn(sbom)}`,
      'tags team/app',
    ].toSorted(),
  );
  t.deepEqual(
    found.needed.filter((each) => each.includes('referrers')),
    [`id of docker.io referrers team/app ${digestIn(sbom)} ${digestIn('list')}`],
  );
  const without = await prefetched(setting, { items });
  t.false(without.calls.some((each) => /^(?:referrers|tags)/.test(each)));
  const down = new UpstreamError('UpstreamUnavailable', 'It is down.');
  const failing = await prefetched({ ...setting, tags: down }, { items, referrers: true, dryRun: true });
  t.true(failing.missing.includes(`list: docker.io/team/app:1: referrers of ${digestIn(image)}: It is down.`));
  const offline = await prefetched(
    { ...setting, tags: down },
    { items, referrers: true, dryRun: true, isOffline: true },
  );
  t.deepEqual(offline.missing, []);
});

test('used tags are pulled again since a time, and all that is stored only as it is', async (t) => {
  const image = imageOf('layer');
  const used = [
    { upstream: 'id of docker.io', name: 'team/app', reference: '1' },
    { upstream: 'id of docker.io', name: 'team/app', reference: digestIn(image) },
    { upstream: 'id of other', name: 'team/app', reference: '2' },
  ];
  const setting: Setting = { there: hub(['1', image], [digestIn(image), image], [digestIn('layer'), 'layer']), used };
  const inUse = await prefetched(setting, { inUse: { newest: 1, since: 5 } });
  t.deepEqual(
    inUse.calls.filter((each) => !each.startsWith('counted')),
    [
      'used since 5',
      'pass docker.io',
      'manifest docker.io team/app 1',
      'pass docker.io',
      `blob docker.io team/app ${digestIn('layer')}`,
    ],
  );
  const stored = await prefetched({ ...setting, there: hub(['1', index], [digestIn(image), image]) }, { stored: true });
  t.is(stored.calls[0], 'used since 0');
  t.deepEqual(stored.calls.filter((each) => /^(?:manifest|blob)/.test(each)).toSorted(), [
    'manifest docker.io team/app 1',
    `manifest docker.io team/app ${digestIn(image)}`,
  ]);
  const hosted = await prefetched(
    { ...setting, hosted: { 'docker.io/team/app': true } },
    { inUse: { newest: 1, since: 5 } },
  );
  t.deepEqual(hosted.skipped, { 'docker.io/team/app:1': 'hosted here' });
  const gone = await prefetched({ used }, { inUse: { newest: 1, since: 5 } });
  t.deepEqual(gone.missing, ['content in use: docker.io/team/app:1: docker.io does not have this image']);
});
