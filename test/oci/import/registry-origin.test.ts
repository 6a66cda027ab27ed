import { Readable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import type { StagedFile } from '../../../src/storage/files/staged-file.ts';
import { RegistryOrigin } from '../../../src/oci/import/registry-origin.ts';
import { algorithmOf, digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { fakeRemote, type FakeAnswer } from '../../support/upstreams/fake-remote.ts';

const { signal } = new AbortController();
const accept =
  'application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json, application/json;q=0.5';
const scope = 'repository:team/app:pull';
const of = { subject: 'team/app', scope, signal };
const image = '{"schemaVersion":2}';
const digest = digestOf(Buffer.from(image));

function originOf(pages: Record<string, FakeAnswer | (() => FakeAnswer)>, limit = 100) {
  const fake = fakeRemote(
    (path) => {
      const found = pages[path];
      return typeof found === 'function' ? found() : found;
    },
    { base: 'http://old.test/below/' },
  );
  return { ...fake, origin: new RegistryOrigin(fake.remote, limit, signal) };
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const each of items) found.push(each);
  return found;
}

/** A file that takes a whole body, and what it got. */
function stagedInMemory(fails?: Error) {
  const got: { text: string; options: unknown }[] = [];
  const append = async (body: Readable, options: unknown) => {
    if (fails) throw fails;
    const pieces: Buffer[] = [];
    for await (const each of body as AsyncIterable<Buffer>) pieces.push(each);
    got.push({ text: Buffer.concat(pieces).toString(), options });
  };
  return { staged: { append } as unknown as StagedFile, got };
}

test('a registry is asked for names and tags as a client asks, below its address, and what is no name is left out', async (t) => {
  const { origin, requests } = originOf({
    '/below/v2/_catalog?n=1000': { body: JSON.stringify({ repositories: ['team/app', 5, 'Team', '', null, 'b'] }) },
    '/below/v2/team/app/tags/list?n=1000': { body: JSON.stringify({ tags: ['1', 2, '-x', '', null, 'latest'] }) },
  });
  t.deepEqual(await all(origin.repositories()), ['team/app', 'b']);
  t.deepEqual(await all(origin.tags('team/app')), [{ tag: '1' }, { tag: 'latest' }]);
  const document = { isDocument: true, headers: { accept: 'application/json' } };
  t.deepEqual(requests, [
    {
      ...document,
      subject: 'the catalog',
      scope: 'registry:catalog:*',
      signal,
      url: 'http://old.test/below/v2/_catalog?n=1000',
    },
    { ...document, ...of, url: 'http://old.test/below/v2/team/app/tags/list?n=1000' },
  ]);
});

test('the digest of a tag is asked for by HEAD, again if the registry fails, and only told by an image that is there', async (t) => {
  const tag = '/below/v2/team/app/manifests/1';
  const headers = { 'docker-content-digest': digest };
  const answers: FakeAnswer[] = [
    new UpstreamError('UpstreamUnavailable', 'It fails.', { retryAfter: 0 }),
    { body: image, headers },
    { status: 404, headers },
    { body: image },
  ];
  const { origin, requests, bodies } = originOf({ [tag]: () => answers.shift()! });
  t.is(await origin.digestOf('team/app', '1'), digest);
  const request = { ...of, method: 'HEAD', url: `http://old.test${tag}`, headers: { accept } };
  t.deepEqual(requests, [request, request]);
  t.is(await origin.digestOf('team/app', '1'), undefined);
  t.is(await origin.digestOf('team/app', '1'), undefined, 'it tells none');
  await turn();
  t.deepEqual(
    bodies.map((each) => each.readableEnded),
    [true, true, true],
  );
});

test('a manifest has the digest of its bytes, and the one that was asked for or an error', async (t) => {
  const long = digestOf(Buffer.from(image), 'sha512');
  const other = digestOf(Buffer.from('other'));
  const headers = { 'content-type': 'a/b' };
  const path = '/below/v2/team/app/manifests/';
  const { origin, requests } = originOf({
    [`${path}1`]: { body: image, headers },
    [`${path}${digest}`]: { body: image },
    [`${path}${long}`]: { body: image },
    [`${path}${other}`]: { body: image },
    [`${path}large`]: { body: 'x'.repeat(101) },
    [`${path}full`]: { body: 'x'.repeat(100) },
  });
  const read = (reference: string) => origin.manifest('team/app', reference);
  const bytes = Buffer.from(image);
  t.deepEqual(await read('1'), { digest, bytes, mediaType: 'a/b' });
  t.deepEqual(await read(digest), { digest, bytes, mediaType: undefined });
  t.deepEqual(await read(long), { digest: long, bytes, mediaType: undefined });
  t.is(algorithmOf(long), 'sha512');
  t.is(await read('none'), undefined);
  await t.throwsAsync(read(other), {
    name: 'DigestMismatch',
    message: `The source sent other content under ${other}.`,
  });
  t.deepEqual(requests[0], { ...of, isDocument: true, url: `http://old.test${path}1`, headers: { accept } });
  t.is((await read('full'))?.bytes.length, 100);
  await t.throwsAsync(read('large'), { message: /limit of 100 bytes/ });
});

const described = (each: Digest) => ({ mediaType: 'a/b', digest: each, size: 1 });

test('referrers are those of all pages; a registry without such lists is asked once', async (t) => {
  const [one, two] = [digestOf(Buffer.from('1')), digestOf(Buffer.from('2'))];
  const path = `/below/v2/team/app/referrers/${digest}`;
  const listed = originOf({
    [path]: {
      body: JSON.stringify({ manifests: [described(two), { digest: 'x', mediaType: 'a/b' }, described(one)] }),
      headers: { link: `<${path}?page=2>; rel="next"` },
    },
    [`${path}?page=2`]: { body: JSON.stringify({ manifests: [described(digest)] }) },
  });
  t.deepEqual(await listed.origin.referrers('team/app', digest), [two, one, digest]);
  t.deepEqual(listed.requests[0], {
    ...of,
    isDocument: true,
    answers: [400, 405, 406],
    url: `http://old.test${path}`,
    headers: { accept: 'application/json' },
  });
  t.false(listed.origin.lacksReferrers);
  for (const status of [404, 400]) {
    const { origin, requests } = originOf({ [path]: { status } });
    t.false(origin.lacksReferrers);
    t.deepEqual([await origin.referrers('team/app', digest), await origin.referrers('team/app', one)], [[], []]);
    t.deepEqual([origin.lacksReferrers, requests.length], [true, 1]);
  }
  const broken = originOf({ [path]: { body: 'no list' } });
  await t.throwsAsync(broken.origin.referrers('team/app', digest), { name: 'Invalid' });
  t.false(broken.origin.lacksReferrers);
});

test('a blob is written within its limit and its time of silence, and a body that cannot be written is given up', async (t) => {
  const path = `/below/v2/team/app/blobs/${digest}`;
  const there = originOf({ [path]: { body: 'layer' } });
  const { staged, got } = stagedInMemory();
  await there.origin.fill('team/app', digest, staged, 7);
  t.deepEqual(got, [{ text: 'layer', options: { limit: 7, idle: 60_000 } }]);
  t.deepEqual(there.requests, [{ ...of, url: `http://old.test${path}` }]);
  const missing = originOf({ [path]: { status: 404, body: 'none' } });
  await t.throwsAsync(missing.origin.fill('team/app', digest, staged, 7), {
    name: 'NotFound',
    message: `The source does not have ${digest}, which the image needs.`,
  });
  await turn();
  t.deepEqual([got.length, missing.bodies[0]!.readableEnded], [1, true]);
  const endless = new Readable({ read: () => undefined });
  const full = originOf({ [path]: { body: endless } });
  const failed = stagedInMemory(new Error('the disk is full'));
  await t.throwsAsync(full.origin.fill('team/app', digest, failed.staged, 7), { message: 'the disk is full' });
  t.true(endless.destroyed);
});
