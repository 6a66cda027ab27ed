import { buffer } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import type { Database } from '../../../src/database/database.ts';
import type { ImportResult } from '../../../src/import/item.ts';
import type { ExportOptions } from '../../../src/import/target.ts';
import type { Images } from '../../../src/oci/catalog/images.ts';
import type { Descriptor } from '../../../src/oci/format/manifest.ts';
import { ImageExport } from '../../../src/oci/import/image-export.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import type { UpstreamRequest } from '../../../src/upstream/answer.ts';
import { fakeRemote, type FakeAnswer } from '../../support/upstreams/fake-remote.ts';

const { signal } = new AbortController();
const types = {
  image: 'application/vnd.oci.image.manifest.v1+json',
  index: 'application/vnd.oci.image.index.v1+json',
};
const digestIn = (text: string) => digestOf(Buffer.from(text));

/** What an account has: `app` with these texts of manifests and blobs, tags, and referrers by their subject. */
interface Here {
  manifests?: Record<string, string>;
  blobs?: readonly string[];
  tags?: Record<string, Digest>;
  referrers?: Record<string, readonly Descriptor[]>;
}

const described = (text: string): Descriptor => ({ mediaType: types.image, digest: digestIn(text), size: text.length });
const imageOf = (...layers: string[]) =>
  JSON.stringify({ schemaVersion: 2, mediaType: types.image, layers: layers.map(described) });
const indexOf = (...manifests: Descriptor[]) => JSON.stringify({ schemaVersion: 2, mediaType: types.index, manifests });

function imagesOf({ manifests = {}, blobs = [], referrers = {} }: Here) {
  const byDigest = new Map(Object.entries(manifests).map(([text, type]) => [digestIn(text), { text, type }]));
  const asked: unknown[] = [];
  const opened = { count: 0 };
  const open = (text: string) => {
    opened.count += 1;
    const close = () => void (opened.count -= 1);
    return { ...contentOf(Buffer.from(text)), size: text.length, close };
  };
  const images = {
    manifests: {
      open: async (accountId: number, name: string, { digest }: { digest: Digest }) => {
        const { text, type } = byDigest.get(digest)!;
        if (accountId !== 1 || name !== 'app') throw new Error(`no ${name} in the account ${accountId}`);
        return { content: open(text), mediaType: type };
      },
      has: async (accountId: number, name: string, { digest }: { digest: Digest }) =>
        accountId === 1 && name === 'app' && byDigest.has(digest),
    },
    referrers: {
      list: async (
        accountId: number,
        name: string,
        subject: Digest,
        { limit, last }: { limit: number; last: string },
      ) => {
        asked.push([accountId, name, limit, last]);
        const all = referrers[subject] ?? [];
        const start = last === '' ? 0 : all.findIndex(({ digest }) => digest === last) + 1;
        const descriptors = all.slice(start, start + 2);
        return { descriptors, next: start + 2 < all.length ? descriptors.at(-1)!.digest : undefined };
      },
    },
    blobs: {
      open: async (accountId: number, name: string, digest: Digest) => {
        if (accountId !== 1 || name !== 'app') throw new Error(`no ${name} in the account ${accountId}`);
        return open(blobs.find((each) => digestIn(each) === digest)!);
      },
    },
  };
  return { images: images as unknown as Images, asked, opened };
}

/** A registry that keeps what it gets; `special` answers before it. */
function targetOf(
  kept: { manifests?: Record<string, string>; blobs?: readonly string[]; referrers?: Record<string, unknown> } = {},
  special: (line: string, request: UpstreamRequest) => FakeAnswer | undefined | Promise<FakeAnswer | undefined> = () =>
    undefined,
) {
  const manifests = new Map(Object.entries(kept.manifests ?? {}));
  const blobs = new Set((kept.blobs ?? []).map(digestIn));
  const sent: [what: string, text: string][] = [];
  const fake = fakeRemote(
    async (path, request): Promise<FakeAnswer | undefined> => {
      const { method = 'GET', sent: body } = request;
      const stream = await body?.open();
      if (stream?.readableObjectMode) throw new Error('a body is a stream of bytes');
      const text = stream && (await buffer(stream)).toString();
      if (text !== undefined) {
        if (text.length !== body!.size) throw new Error(`${path} is sent with a wrong size`);
        sent.push([path, text]);
      }
      const answer = await special(`${method} ${path}`, request);
      if (answer) return answer;
      const [, kind, reference = ''] = /^\/below\/v2\/team\/app\/(\w+)\/([^?]*)/.exec(path) ?? [];
      if (kind === 'manifests' && method === 'PUT') {
        manifests.set(reference, text!);
        return { status: 201 };
      }
      const manifest = manifests.get(reference);
      if (kind === 'manifests')
        return manifest === undefined
          ? undefined
          : { body: manifest, headers: { 'docker-content-digest': digestIn(manifest) } };
      if (kind === 'blobs' && method === 'POST') return { status: 202, headers: { location: '/below/up?state=1' } };
      if (kind === 'blobs') return blobs.has(reference as Digest) ? {} : undefined;
      if (kind === 'referrers') {
        const list = kept.referrers?.[reference];
        return kept.referrers && { body: JSON.stringify({ manifests: list ?? [] }) };
      }
      return path.startsWith('/below/up?') ? { status: 201 } : undefined;
    },
    { base: 'http://old.test/below/' },
  );
  return { ...fake, manifests, sent };
}

function databaseOf({ tags = {} }: Here, names: readonly string[] = ['app']) {
  const asked: unknown[] = [];
  const select = async (sql: string, values: readonly unknown[]) => {
    asked.push(values);
    if (sql.includes('FROM repositories')) return names.map((name, at) => ({ id: at + 10, name }));
    return Object.entries(tags).map(([name, digest]) => ({ name, digest }));
  };
  return { database: { select } as unknown as Database, asked };
}

interface Sent {
  results: Record<string, ImportResult | string>;
  groups: string[];
}

/** Exports all tags, one after the other. */
async function exported(
  here: Here,
  target: ReturnType<typeof targetOf>,
  more: Partial<ExportOptions> = {},
  names?: readonly string[],
): Promise<Sent & { listed: unknown[]; selected: unknown[]; open: number }> {
  const { images, asked, opened } = imagesOf(here);
  const { database, asked: selected } = databaseOf(here, names);
  const options = {
    accountId: 1,
    dryRun: false,
    moveTags: false,
    isWanted: () => true,
    nameThere: (name: string) => `team/${name}`,
    signal,
    ...more,
  } as ExportOptions;
  const all = new ImageExport({ images, database, manifestLimit: 10_000 }, { remote: target.remote }, options);
  const results: Record<string, ImportResult | string> = {};
  const groups: string[] = [];
  for await (const { name, items } of all.groups()) {
    groups.push(name);
    try {
      for await (const item of items())
        results[`${item.name} ${item.reference}`] = await item.run().catch((error: Error) => error.message);
    } catch (error) {
      results[name] = (error as Error).message;
    }
  }
  return { results, groups, listed: asked, selected, open: opened.count };
}

const [layer, shared, late] = ['a layer', 'a shared layer', 'a late layer'];
const [one, two] = [imageOf(layer, shared), imageOf(shared)];
const signature = imageOf(late);
const index = indexOf(described(one), described('absent'), described(two));
const here: Here = {
  manifests: { [one]: types.image, [two]: types.image, [index]: types.index, [signature]: types.image },
  blobs: [layer, shared, late],
  tags: { 1: digestIn(index) },
  referrers: { [digestIn(two)]: [described(signature)] },
};
const at = (rest: string) => `/below/v2/team/app/${rest}`;
const upload = (text: string) => `/below/up?state=1&digest=${encodeURIComponent(digestIn(text))}`;
const putsOf = (text: string) => [
  `HEAD ${at(`blobs/${digestIn(text)}`)}`,
  `POST ${at('blobs/uploads/')}`,
  `PUT ${upload(text)}`,
];
const whole = [layer, shared, one, two, index].join('').length;

test('an image goes with all that it needs, each part after those that it names, and the tag last', async (t) => {
  const target = targetOf({ referrers: {}, blobs: [shared] });
  const { results, open } = await exported(here, target);
  const bytes = whole - shared.length + signature.length + late.length;
  t.deepEqual([results, open], [{ 'team/app 1': { outcome: 'imported', bytes } }, 0]);
  const manifest = (text: string) => at(`manifests/${digestIn(text)}`);
  t.deepEqual(target.asked(), [
    `HEAD ${at('manifests/1')}`,
    `GET ${at('manifests/1')}`,
    `HEAD ${manifest(index)}`,
    `HEAD ${manifest(one)}`,
    ...putsOf(layer),
    `HEAD ${at(`blobs/${digestIn(shared)}`)}`,
    `PUT ${manifest(one)}`,
    `HEAD ${manifest(two)}`,
    `HEAD ${at(`blobs/${digestIn(shared)}`)}`,
    `PUT ${manifest(two)}`,
    `PUT ${manifest(index)}`,
    `GET ${at(`referrers/${digestIn(two)}`)}`,
    `HEAD ${manifest(signature)}`,
    ...putsOf(late),
    `PUT ${manifest(signature)}`,
    `PUT ${at('manifests/1')}`,
  ]);
  t.deepEqual(target.sent, [
    [upload(layer), layer],
    [manifest(one), one],
    [manifest(two), two],
    [manifest(index), index],
    [upload(late), late],
    [manifest(signature), signature],
    [at('manifests/1'), index],
  ]);
  const changes = target.requests.filter(({ method }) => method === 'PUT' || method === 'POST');
  const octets = { 'content-type': 'application/octet-stream' };
  t.deepEqual(
    changes.map(({ headers }) => headers),
    [
      {},
      octets,
      ...[types.image, types.image, types.index].map((type) => ({ 'content-type': type })),
      {},
      octets,
      ...[types.image, types.index].map((type) => ({ 'content-type': type })),
    ],
  );
  await turn();
  t.true(
    target.bodies.every((each) => each.readableEnded),
    'no answer is left unread',
  );
  for (const { subject, scope, signal: own } of changes)
    t.deepEqual([subject, scope, own], ['team/app', 'repository:team/app:pull,push', signal]);
});

test('an assessment sends nothing, and tells the same bytes', async (t) => {
  const target = targetOf({ referrers: {} });
  const { results, open } = await exported(here, target, { dryRun: true });
  // The layer that two images have is told twice, because neither has gone.
  const bytes = whole + shared.length + signature.length + late.length;
  t.deepEqual([results, open], [{ 'team/app 1': { outcome: 'imported', bytes } }, 0]);
  t.deepEqual([target.sent, target.asked().filter((each) => !/^(?:HEAD|GET) /.test(each))], [[], []]);
});

test('a tag that points elsewhere is a conflict unless tags move; one that is there gets only new referrers', async (t) => {
  const moved = (more: Partial<ExportOptions>) => {
    const target = targetOf({ manifests: { 1: two }, referrers: {} });
    return exported(here, target, more).then(({ results }) => ({ result: results['team/app 1'], target }));
  };
  const { result: conflict, target: kept } = await moved({});
  const note = 'the tag there points to another image; --move-tags moves it';
  t.deepEqual(conflict, { outcome: 'conflict', bytes: 0, note });
  t.deepEqual(kept.asked(), [`HEAD ${at('manifests/1')}`]);
  const { result, target } = await moved({ moveTags: true });
  t.like(result, { outcome: 'imported' });
  t.is(target.manifests.get('1'), index);
  // A target that tells no digest is asked for the image.
  const silent = targetOf({ manifests: { 1: two } }, (line) => (line.startsWith('HEAD') ? { status: 404 } : undefined));
  t.deepEqual((await exported(here, silent)).results['team/app 1'], { outcome: 'conflict', bytes: 0, note });
  const there = { 1: index, ...Object.fromEntries([index, one, two, signature].map((text) => [digestIn(text), text])) };
  const same = targetOf({ manifests: there, referrers: { [digestIn(two)]: [described(signature)] } });
  t.deepEqual((await exported(here, same)).results['team/app 1'], { outcome: 'present', bytes: 0 });
  t.deepEqual(same.sent, []);
  const later = targetOf({ manifests: { 1: index, [digestIn(index)]: index }, referrers: {} });
  t.deepEqual((await exported(here, later)).results['team/app 1'], {
    outcome: 'imported',
    bytes: signature.length + late.length,
    note: 'the image was there, its referrers were not',
  });
  t.deepEqual(
    later.sent.map(([path]) => path),
    [upload(late), at(`manifests/${digestIn(signature)}`)],
  );
});

test('a registry without lists of referrers gets a list under a tag, with what was on it', async (t) => {
  const tag = digestIn(two).replace(':', '-');
  const before = { mediaType: types.image, digest: digestIn('before'), size: 5 };
  const list = (...manifests: object[]) => JSON.stringify({ schemaVersion: 2, mediaType: types.index, manifests });
  const first = targetOf();
  await exported(here, first);
  t.is(first.manifests.get(tag), list(described(signature)));
  t.is(first.sent.at(-2)?.[0], at(`manifests/${tag}`));
  const second = targetOf({ manifests: { [tag]: list(before) } });
  await exported(here, second);
  t.is(second.manifests.get(tag), list(before, described(signature)));
  const third = targetOf({ manifests: { [tag]: list(described(signature)) } });
  await exported(here, third);
  t.false(
    third.sent.some(([path]) => path.endsWith(tag)),
    'it is on the list',
  );
  for (const odd of ['no JSON', '{"manifests":5}']) {
    const other = targetOf({ manifests: { [tag]: odd } });
    await exported(here, other);
    t.is(other.manifests.get(tag), list(described(signature)));
  }
  const planned = targetOf();
  await exported(here, planned, { dryRun: true });
  t.deepEqual(planned.sent, []);
});

const refusedBy = async (pattern: RegExp, answer: FakeAnswer) => {
  const target = targetOf({ referrers: {} }, (line) => (pattern.test(line) ? answer : undefined));
  return [(await exported(here, target)).results['team/app 1'], target.sent.length];
};

test('what a target refuses, or leads to another address, is told', async (t) => {
  for (const [pattern, answer, message, sent = 0] of [
    [/^POST/, { status: 405 }, 'The target refused an upload to team/app (405).'],
    [/^POST/, { status: 202 }, 'The target refused an upload to team/app (202).'],
    [/^POST/, { status: 201, headers: { location: '/below/up?' } }, 'The target refused an upload to team/app (201).'],
    [
      /^POST/,
      { status: 202, headers: { location: 'https://old.test/x' } },
      'The target leads an upload to https://old.test, which is not its own address, so nothing is sent there.',
    ],
    [/^PUT .*up\?/, { status: 400 }, `The target refused ${digestIn(layer)} (400).`, 1],
    [/^PUT .*up\?/, { status: 200 }, `The target refused ${digestIn(layer)} (200).`, 1],
    [/^PUT .*manifests/, { status: 400 }, `The target refused the manifest ${digestIn(one)} (400).`, 3],
    [/^PUT .*manifests/, { status: 202 }, `The target refused the manifest ${digestIn(one)} (202).`, 3],
    [/^PUT .*manifests\/1$/, { status: 400 }, 'The target refused the manifest 1 (400).', 9],
  ] as const)
    t.deepEqual(await refusedBy(pattern, answer), [message, sent]);
  for (const [pattern, status] of [
    [/^PUT .*up\?/, 204],
    [/^PUT .*manifests/, 200],
  ] as const)
    t.like((await refusedBy(pattern, { status }))[0], { outcome: 'imported' });
});

test('repositories and tags are read from a time on, under wanted names; lists of referrers are no images', async (t) => {
  const tags = {
    1: digestIn(one),
    [`sha256-${'a'.repeat(64)}`]: digestIn(one),
    [`sha256-${'a'.repeat(64)}.sig`]: digestIn(two),
  };
  const target = targetOf({ referrers: {} });
  const { results, groups, selected } = await exported(
    { ...here, tags, referrers: {} },
    target,
    { since: 5, isWanted: (name) => name !== 'other', nameThere: (name) => (name === 'app' ? 'team/app' : `${name}/`) },
    ['app', 'other', 'wrong'],
  );
  t.deepEqual(groups, ['app', 'wrong']);
  t.deepEqual(Object.keys(results), ['team/app 1', `team/app sha256-${'a'.repeat(64)}.sig`, 'wrong']);
  t.is(results['wrong'], 'wrong/ is not a name of images.');
  t.deepEqual(selected, [
    [1, '', 500],
    [10, '', 5, 500],
  ]);
  const all = await exported({ ...here, tags: {} }, target);
  t.deepEqual(all.selected.at(-1), [10, '', 0, 500]);
});

test('all pages of referrers go, each once, also what refers to them', async (t) => {
  const subjects = ['a', 'b', 'c'].map((text) => imageOf(text));
  const [first, second, third] = subjects as [string, string, string];
  const self = described(one);
  const target = targetOf({ referrers: {} });
  const { listed, results } = await exported(
    {
      manifests: Object.fromEntries([one, ...subjects].map((text) => [text, types.image])),
      blobs: [layer, shared, 'a', 'b', 'c'],
      tags: { 1: self.digest },
      referrers: {
        [self.digest]: [described(first), described(second), described(third)],
        // In a circle.
        [digestIn(first)]: [self, described(second)],
      },
    },
    target,
  );
  t.like(results['team/app 1'], { outcome: 'imported' });
  t.deepEqual(listed, [
    [1, 'app', 500, ''],
    [1, 'app', 500, digestIn(second)],
    [1, 'app', 500, ''],
    [1, 'app', 500, ''],
    [1, 'app', 500, ''],
  ]);
  t.deepEqual(
    target.sent.filter(([path]) => path.includes('/manifests/')).map(([path]) => path),
    [one, first, second, third].map((text) => at(`manifests/${digestIn(text)}`)).concat(at('manifests/1')),
  );
});

test('a blob that two images need at the same time is sent once, and manifests one at a time', async (t) => {
  const waiting: (() => void)[] = [];
  const running = { now: 0, most: 0 };
  let isHeld = true;
  const target = targetOf({ referrers: {} }, async (line) => {
    if (/^PUT .*manifests/.test(line)) {
      running.now += 1;
      running.most = Math.max(running.most, running.now);
      await turn();
      running.now -= 1;
      return { status: 201 };
    }
    if (isHeld && line.startsWith('HEAD') && line.includes('/blobs/'))
      await new Promise<void>((resolve) => waiting.push(resolve));
    return undefined;
  });
  const { images } = imagesOf(here);
  const { database } = databaseOf(here);
  const options = { accountId: 1, dryRun: false, isWanted: () => true, nameThere: (name: string) => name, signal };
  const all = new ImageExport(
    { images, database, manifestLimit: 10_000 },
    { remote: target.remote },
    options as unknown as ExportOptions,
  );
  const sending = ['team/app', 'team/app', 'team/other'].map((there) => all.blob('app', there, digestIn(layer)));
  await turn();
  t.is(waiting.length, 2, 'each repository gets it by itself');
  isHeld = false;
  for (const each of waiting) each();
  const settled = await Promise.allSettled(sending);
  t.deepEqual(
    settled.map((each) => (each.status === 'fulfilled' ? each.value : (each.reason as Error).message)),
    [layer.length, 0, 'The target refused an upload to team/other (404).'],
  );
  t.is(await all.blob('app', 'team/app', digestIn(shared)), shared.length);
  t.deepEqual(
    target.sent.map(([, text]) => text),
    [layer, shared],
  );
  await Promise.all(['1', '2', '3'].map((tag) => all.put('team/app', tag, Buffer.from(one), types.image)));
  t.is(running.most, 1);
});

/** What becomes of an index of four indexes with so many images. */
async function outcomeWith(count: number, isThere = false) {
  const images = Array.from({ length: count }, (_, number) => JSON.stringify({ schemaVersion: 2, number }));
  const parts = [0, 1, 2, 3].map((part) => indexOf(...images.slice(part * 2500, (part + 1) * 2500).map(described)));
  const root = indexOf(...parts.map(described));
  const manifests = Object.fromEntries([root, ...parts, ...images].map((text) => [text, types.image]));
  const target = targetOf({ referrers: {}, ...(isThere && { manifests: { 1: root } }) });
  const { results } = await exported({ manifests, tags: { 1: digestIn(root) } }, target, { dryRun: true });
  const result = results['team/app 1']!;
  return typeof result === 'string' ? result : result.outcome;
}

test('an image with all that belongs to it has 10,000 manifests at most, also one that is there', async (t) => {
  const most = 'The image has more than 10000 manifests.';
  t.is(await outcomeWith(9995), 'imported');
  t.is(await outcomeWith(9996), most);
  t.is(await outcomeWith(9995, true), 'present');
  t.is(await outcomeWith(9996, true), most);
});
