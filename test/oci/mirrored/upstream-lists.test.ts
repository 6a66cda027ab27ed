import { Readable } from 'node:stream';
import test from 'ava';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { contentOf, type Content } from '../../../src/storage/files/content.ts';
import { openList, readParsedList, referrerLists, tagLists } from '../../../src/oci/mirrored/parsed-lists.ts';
import type { UpstreamRepository } from '../../../src/oci/mirrored/upstream-repository.ts';
import {
  collect,
  copyOf,
  firstTags,
  inMemory,
  readDescriptors,
  readTags,
} from '../../../src/oci/mirrored/upstream-lists.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { UpstreamRequest } from '../../../src/upstream/upstream.ts';

// Lists of upstreams: how their pages are read, and what is kept of them.

interface Page {
  status?: number;
  text?: string;
  link?: string;
}

/** A repository whose upstream gives these pages in turn; after the last one, that one again. */
function repository(pages: Page[], timeout = 60_000) {
  const asked: UpstreamRequest[] = [];
  const upstream = {
    id: 'up',
    name: 'registry.test',
    config: { timeout, freshFor: 1, staleFor: 2, negativeFor: 3, kind: 'registry' },
    base: new URL('https://registry.test/'),
    send: (request: UpstreamRequest) => {
      asked.push(request);
      const { status = 200, text = '', link } = pages.length > 1 ? pages.shift()! : pages[0]!;
      const body = Readable.from([Buffer.from(text)]);
      return Promise.resolve({ status, body, headers: { link }, decoded: false });
    },
  };
  return { place: { upstream, name: 'team/app' } as unknown as UpstreamRepository, asked };
}

const { signal } = new AbortController();
const url = new URL('https://registry.test/v2/team/app/tags/list?n=1000');
const tagsIn = (...tags: unknown[]) => JSON.stringify({ name: 'team/app', tags });

async function textOf(fetched: Awaited<ReturnType<typeof collect>>): Promise<string> {
  if (fetched.kind !== 'fetched') return fetched.kind;
  let text = '';
  for await (const piece of fetched.body as AsyncIterable<Buffer>) text += String(piece);
  return text;
}

test('the pages of a list are followed at its upstream, and become one document', async (t) => {
  const { place, asked } = repository([
    { text: tagsIn('b', 'a'), link: '<https://elsewhere.test/v2/next?last=a>; rel="next"' },
    { text: tagsIn(), link: '</v2/third>; rel="next"' },
    { text: tagsIn('c', 7) },
  ]);
  const read: unknown[][] = [];
  const take = (items: readonly unknown[]) => {
    read.push([...items]);
    return readTags(items);
  };
  t.is(firstTags(place).href, url.href);
  const fetched = await collect(place, { url, answers: [400] }, 'tags', take, signal, async () => ['z']);
  const { body: _body, ...rest } = fetched as Extract<typeof fetched, { kind: 'fetched' }>;
  t.deepEqual(rest, { kind: 'fetched', size: 17, type: 'application/json', etag: null, lastModified: null });
  t.is(await textOf(fetched), '["b","a","c","z"]');
  t.deepEqual(read, [['b', 'a'], [], ['c', 7]]);
  const common = {
    answers: [400],
    headers: { accept: 'application/json, application/vnd.oci.image.index.v1+json' },
    subject: 'team/app',
    scope: 'repository:team/app:pull',
    signal,
  };
  t.deepEqual(
    asked,
    [url.href, 'https://registry.test/v2/next?last=a', 'https://registry.test/v2/third'].map((each) => ({
      ...common,
      url: new URL(each),
    })),
  );
});

const collected = async (pages: Page[], field: 'tags' | 'manifests' = 'tags', timeout?: number) => {
  const { place, asked } = repository(pages, timeout);
  const fetched = await collect(place, { url }, field, (items) => items, signal).catch((error: Error) => error);
  return [fetched instanceof Error ? fetched.message : await textOf(fetched), asked.length];
};

const next = '</v2/next>; rel="next"';

test('a list that is not there, is empty, or has other fields', async (t) => {
  t.deepEqual(await collected([{ status: 404 }]), ['absent', 1]);
  t.deepEqual(await collected([{ text: tagsIn() }]), ['[]', 1]);
  t.deepEqual(await collected([{ text: '{"tags":null}' }]), ['[]', 1]);
  t.deepEqual(await collected([{ text: '{"manifests":["a"]}' }]), ['[]', 1]);
  t.deepEqual(await collected([{ text: '{"manifests":["a"]}' }], 'manifests'), ['["a"]', 1]);
});

const fails = (what: string) => `The upstream registry.test ${what}.`;

test('an upstream whose list cannot be read to its end fails', async (t) => {
  t.deepEqual(await collected([{ text: tagsIn('a'), link: next }, { status: 404 }]), [
    fails('has no page that its list of tags of team/app names'),
    2,
  ]);
  t.deepEqual(await collected([{ text: 'no json' }]), [fails('sent a document that is not a JSON object or array'), 1]);
  t.deepEqual(await collected([{ text: tagsIn('a'), link: next }]), [fails('has a list of more than 200 pages'), 200]);
  const pages = Array.from({ length: 199 }, () => ({ text: tagsIn('a'), link: next }));
  const [text, count] = await collected([...pages, { text: tagsIn('b') }]);
  t.is(count, 200);
  t.is(JSON.parse(text as string).length, 200);
});

test('a list has at most so many items', async (t) => {
  const few = Array.from({ length: 20_000 }, () => 1);
  const [text] = await collected([{ text: JSON.stringify({ manifests: few }) }], 'manifests');
  t.is(JSON.parse(text as string).length, 20_000);
  t.deepEqual(await collected([{ text: JSON.stringify({ manifests: [...few, 1] }) }], 'manifests'), [
    'The upstream registry.test has a list of more than 20000 items.',
    1,
  ]);
  const half = { text: JSON.stringify({ manifests: few.slice(0, 10_001) }), link: next };
  t.deepEqual(await collected([half, { ...half }], 'manifests'), [
    'The upstream registry.test has a list of more than 20000 items.',
    2,
  ]);
});

test('a list has at most so many bytes, with what is added to it', async (t) => {
  const { place } = repository([{ text: tagsIn('a') }]);
  const most = 16 * 2 ** 20;
  // The brackets and commas of the two parts, and the first tag.
  const add = (length: number) =>
    collect(
      place,
      { url },
      'tags',
      (items) => items,
      signal,
      async () => ['x'.repeat(length)],
    );
  t.is((await add(most - 4 - 2 - 1)).kind, 'fetched');
  await t.throwsAsync(add(most - 4 - 2), {
    name: 'UpstreamUnavailable',
    message: `The upstream registry.test has a list of more than ${most} bytes.`,
  });
});

test('the failure of an upstream in a list is its own, and no other error', async (t) => {
  const { place } = repository([{ text: tagsIn('a') }]);
  const error = new Error('a mistake');
  const failing = () => {
    throw error;
  };
  t.is(await t.throwsAsync(collect(place, { url }, 'tags', failing, signal)), error);
  const wrong = await t.throwsAsync(
    collect(repository([{ text: '{' }]).place, { url }, 'tags', (items) => items, signal),
  );
  t.true(wrong instanceof UpstreamError && wrong.cause instanceof SyntaxError);
});

const one = digestOf('one');
const two = digestOf('two');
const [low, high] = [one, two].toSorted() as [Digest, Digest];

test('the valid descriptors of a list, each once, by digest', (t) => {
  const mediaType = 'x/y';
  const annotations = { a: 'text', b: 7, c: null };
  const descriptors = [
    { mediaType, digest: high, size: 5, artifactType: 'kind', annotations, other: 1 },
    { mediaType, digest: low, size: 1 },
    { mediaType: 'later', digest: low, size: 1.5, artifactType: 7, annotations: 'none' },
    { mediaType, digest: 'sha256:short', size: 1 },
    { mediaType: 7, digest: digestOf('x') },
    { mediaType, digest: 7 },
    { mediaType },
    'text',
    null,
    undefined,
  ];
  t.deepEqual(readDescriptors(descriptors), [
    { mediaType: 'later', digest: low, size: 0 },
    { mediaType, digest: high, size: 5, artifactType: 'kind', annotations: { a: 'text' } },
  ]);
  t.deepEqual(readDescriptors([{ mediaType, digest: low, annotations: null, size: '7' }]), [
    { mediaType, digest: low, size: 0 },
  ]);
  t.deepEqual(readTags(['v1', 7, '-bad', '', null, 'v1', 'x'.repeat(129)]), ['v1', 'v1']);
});

test('a document in memory is sent in pieces, and a copy is that of the whole entry', async (t) => {
  const bytes = Buffer.alloc(2 * 256 * 1024 + 1, 'x');
  const { body, ...rest } = inMemory(bytes, 'x/y');
  t.deepEqual(rest, { kind: 'fetched', size: bytes.length, type: 'x/y', etag: null, lastModified: null });
  const pieces: Buffer[] = [];
  for await (const piece of body as AsyncIterable<Buffer>) pieces.push(piece);
  t.deepEqual(
    pieces.map((each) => each.length),
    [256 * 1024, 256 * 1024, 1],
  );
  t.true(Buffer.concat(pieces).equals(bytes));
  const metadata = { digest: one, size: 3 };
  for (const known of [{ metadata }, { metadata: undefined, complete: Promise.resolve(metadata) }]) {
    const copy = await copyOf({ content: contentOf(Buffer.from('abc')), type: 'x/y', ...known } as never);
    t.is(await textOf(copy), 'abc');
    t.like(copy, { digest: one, size: 3, type: 'x/y' });
  }
});

/** Content that tells when it was read and closed. */
function watched(text: string) {
  const told = { read: 0, closed: 0 };
  const real = contentOf(Buffer.from(text));
  const content: Content = {
    ...real,
    read: (target, position) => {
      told.read += 1;
      return real.read(target, position);
    },
    close: () => void (told.closed += 1),
  };
  return { content, told };
}

/** A stored list. */
function listed(text: string, isStored = true) {
  const { content, told } = watched(text);
  const metadata = { digest: digestOf(text), size: text.length } as never;
  const entry = { content, metadata: isStored ? metadata : undefined, complete: Promise.resolve(metadata) };
  return { entry, told };
}

test('a stored list is read and parsed once, and each time its content is closed', async (t) => {
  const text = '["list-c","list-a","list-a",7]';
  const first = listed(text);
  const list = await readParsedList(first.entry, tagLists, 'up');
  t.deepEqual(list, ['list-a', 'list-c']);
  t.true(first.told.read > 0);
  t.is(first.told.closed, 1);
  const again = listed(text);
  t.is(await readParsedList(again.entry, tagLists, 'up'), list);
  t.deepEqual(again.told, { read: 0, closed: 1 });
  t.deepEqual(await readParsedList(listed(text).entry, referrerLists, 'up'), [], 'as another kind of list');
  const passed = listed(text, false);
  t.is(await readParsedList(passed.entry, tagLists, 'up'), list, 'its digest is known when it has been read');
  t.true(passed.told.read > 0);
});

test('a list that is being parsed is parsed once', async (t) => {
  const text = '["parsed-b","parsed-a"]';
  const [one_, other] = [listed(text), listed(text)];
  const lists = await Promise.all([one_, other].map(({ entry }) => readParsedList(entry, tagLists, 'up')));
  t.deepEqual(lists[0], ['parsed-a', 'parsed-b']);
  t.is(lists[0], lists[1]);
  t.deepEqual(other.told, { read: 0, closed: 1 });
});

test('a document that is no list fails, also for those that wait for it, and each time', async (t) => {
  for (let round = 0; round < 2; round += 1) {
    const waiting = [listed('no list at all'), listed('no list at all')].map(({ entry }) =>
      readParsedList(entry, tagLists, 'up'),
    );
    const failed = await Promise.allSettled(waiting);
    for (const each of failed) {
      const { reason } = each as PromiseRejectedResult;
      t.like(reason, { name: 'UpstreamUnavailable', message: 'An upstream sent a document that is not a list.' });
      t.true((reason as Error).cause instanceof SyntaxError);
    }
  }
});

const large = (name: string) =>
  JSON.stringify(Array.from({ length: 40_000 }, (_, index) => `${name}-large-tag-of-a-list-${index}`));

test('of large lists of one upstream, one at a time is parsed', async (t) => {
  const lists = ['a', 'b'].map((name) => listed(large(name)));
  const [first, second] = lists.map(({ entry }) => readParsedList(entry, tagLists, 'up'));
  t.deepEqual(await readParsedList(listed('["small-of-up"]').entry, tagLists, 'up'), ['small-of-up']);
  t.true(lists[0]!.told.read > 0);
  t.is(lists[1]!.told.read, 0, 'it waits for the first');
  for (const list of [first, second]) t.is((await list!).length, 40_000);
  t.is(lists[1]!.told.closed, 1);
});

const given = (...values: unknown[]) => Promise.resolve(values as never);

test('how the mirror gets a list', async (t) => {
  const { place } = repository([{}]);
  const resources: Record<string, unknown>[] = [];
  const stored = listed('["opened"]').entry;
  const answers = [{ ...stored, outcome: 'stale' }, undefined];
  const mirror = {
    open: (resource: Record<string, unknown>) => {
      resources.push(resource);
      return Promise.resolve(answers.shift());
    },
  };
  t.deepEqual(await openList(mirror as never, place, tagLists, '', given), { served: 'stale', items: ['opened'] });
  t.is(await openList(mirror as never, place, referrerLists, one, given), undefined);
  const [tags, referrers] = resources;
  const { fetch: passed, ...resource } = tags!;
  t.deepEqual(resource, {
    key: { upstream: 'up', kind: 'tags', name: 'team/app', reference: '' },
    lifetime: { freshFor: 1, staleFor: 2 },
    negativeFor: 3,
    idle: 60_000,
    upstreamName: 'registry.test',
    upstreamKind: 'registry',
    limit: 16 * 2 ** 20,
    keeps: false,
    whole: true,
  });
  t.deepEqual(await (passed as (...values: unknown[]) => unknown)('known', signal), [signal, 'known']);
  t.like(referrers, { key: { kind: 'referrers', reference: one }, keeps: true });
});
