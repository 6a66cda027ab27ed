import { Readable } from 'node:stream';
import test from 'ava';
import { fetchBytes, fetchFrom, largeInTurn, type FetchOptions } from '../../../src/mirror/fetch/fetch.ts';
import { OtherBody } from '../../../src/mirror/fetch/resource.ts';
import type { EntryMetadata } from '../../../src/mirror/store/entries.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { Refused } from '../../../src/upstream/failures.ts';
import type { Upstream, UpstreamAnswer, UpstreamRequest } from '../../../src/upstream/upstream.ts';

// What is asked of an upstream, and what its answers mean, without a network.

type Answer = Partial<Omit<UpstreamAnswer, 'body'>> & { text?: string; body?: Readable };

/** An upstream that gives these answers in turn. */
function upstreamOf(...answers: Answer[]) {
  const asked: UpstreamRequest[] = [];
  const bodies: Readable[] = [];
  const failed: unknown[] = [];
  const upstream = {
    id: 'up',
    name: 'up.test',
    config: { timeout: 5000 },
    send: (request: UpstreamRequest) => {
      asked.push(request);
      const { text = '', ...answer } = answers.shift()!;
      const body = answer.body ?? Readable.from([Buffer.from(text)]);
      bodies.push(body);
      return Promise.resolve({ status: 200, headers: {}, decoded: false, body, ...answer });
    },
    bodyFailed: (error: unknown, request: { subject: string }) => {
      failed.push(error, request);
      return new UpstreamError('UpstreamUnavailable', 'failed in the middle');
    },
  };
  return { upstream: upstream as unknown as Upstream, asked, bodies, failed };
}

const request = { url: new URL('https://up.test/thing'), subject: 'thing' };
const known = (etag: string | null, lastModified: string | null) => ({ etag, lastModified }) as EntryMetadata;
const day = 'Sun, 06 Nov 1994 08:49:37 GMT';

const requests: [string, Partial<FetchOptions>, Record<string, unknown>][] = [
  ['nothing is known', {}, { headers: {} }],
  ['its ETag is known', { known: known('"v1"', day) }, { headers: { 'if-none-match': '"v1"' } }],
  ['only its time is known', { known: known(null, day) }, { headers: { 'if-modified-since': day } }],
  ['neither is known of a stored one', { known: known(null, null) }, { headers: {} }],
  ['an ETag is empty', { known: known('', day) }, { headers: { 'if-modified-since': day } }],
  ['it is a document', { document: true }, { isDocument: true, headers: { 'accept-encoding': 'gzip' } }],
  ['its bytes count', { plain: true }, { headers: { 'accept-encoding': 'identity' } }],
  ['it is none of both', { document: false, plain: false }, { headers: {} }],
  [
    'it is a document whose bytes count',
    { document: true, plain: true },
    { isDocument: true, headers: { 'accept-encoding': 'gzip' } },
  ],
  [
    'it has headers of its own',
    { headers: { accept: 'x/y' }, scope: 's', known: known('"v1"', null) },
    { scope: 's', headers: { accept: 'x/y', 'if-none-match': '"v1"' } },
  ],
];

for (const [what, options, expected] of requests) {
  test(`what is asked of an upstream if ${what}`, async (t) => {
    const { upstream, asked } = upstreamOf({ text: 'x' });
    await fetchFrom(upstream, { ...request, ...options });
    t.deepEqual(asked, [{ ...request, ...expected }]);
  });
}

test('an answer with content has what its headers say', async (t) => {
  const headers = { 'content-length': '12', 'content-type': 'x/y', etag: '"e"', 'last-modified': day };
  const digest = digestOf('x');
  const { upstream, bodies } = upstreamOf({ headers, digest }, {}, { headers: { ...headers }, decoded: true });
  const { body, resume, failed, ...rest } = (await fetchFrom(upstream, request)) as Record<string, unknown>;
  t.deepEqual(rest, { kind: 'fetched', size: 12, type: 'x/y', etag: '"e"', lastModified: day, digest });
  t.is(body, bodies[0]);
  t.is(typeof resume, 'function');
  t.is(typeof failed, 'function');
  const bare = (await fetchFrom(upstream, request)) as Record<string, unknown>;
  t.deepEqual(Object.keys(bare).toSorted(), [
    'body',
    'etag',
    'failed',
    'kind',
    'lastModified',
    'resume',
    'size',
    'type',
  ]);
  t.like(bare, { size: undefined, type: 'application/octet-stream', etag: null, lastModified: null });
  const decoded = await fetchFrom(upstream, request);
  t.false('resume' in decoded, 'a part of the coded bytes is no part of these');
  t.like(decoded, { size: undefined, type: 'x/y' });
});

for (const [text, size] of [
  ['0', 0],
  ['12', 12],
  ['-1', undefined],
  ['1 2', undefined],
  ['x12', undefined],
  ['12x', undefined],
  ['', undefined],
] as const) {
  test(`a length of "${text}" is ${size}`, async (t) => {
    const { upstream } = upstreamOf({ headers: { 'content-length': text } });
    t.like(await fetchFrom(upstream, request), { kind: 'fetched', size });
  });
}

test('only 404 and 410 say that it is absent, and only 304 to a condition that it has not changed', async (t) => {
  const answered = async (status: number, options: Partial<FetchOptions> = {}) => {
    const { upstream, bodies } = upstreamOf({ status });
    try {
      return (await fetchFrom(upstream, { ...request, ...options })).kind;
    } catch (error) {
      t.like(error, { name: 'UpstreamUnavailable', upstream: 'up.test', id: 'up' });
      return (error as Error).message;
    } finally {
      t.true(bodies[0]!.listenerCount('data') === 1, 'the body is read, so that the connection can be used again');
    }
  };
  t.is(await answered(404), 'absent');
  t.is(await answered(410), 'absent');
  t.is(await answered(304, { known: known('"v1"', null) }), 'not-modified');
  t.is(await answered(304), 'The upstream up.test answered 304.');
  for (const status of [201, 204, 206, 400, 403])
    t.is(await answered(status, { known: known('"v1"', null) }), `The upstream up.test answered ${status}.`);
});

test('content that must not be coded is refused if it is', async (t) => {
  const { upstream, bodies } = upstreamOf({ decoded: true }, { decoded: false });
  await t.throwsAsync(fetchFrom(upstream, { ...request, plain: true }), {
    name: 'UpstreamUnavailable',
    message: 'The upstream up.test sends this content with a content coding, such as gzip, which was not requested.',
  });
  t.true(bodies[0]!.destroyed);
  t.is((await fetchFrom(upstream, { ...request, plain: true })).kind, 'fetched');
  t.false(bodies[1]!.destroyed);
});

test('a body that failed is told of the upstream', async (t) => {
  const { upstream, failed } = upstreamOf({ text: 'x' });
  const fetched = await fetchFrom(upstream, { ...request, known: known(null, null) });
  const error = new Error('cut');
  t.is(fetched.kind === 'fetched' && fetched.failed!(error), undefined);
  t.is(failed[0], error);
  t.deepEqual(failed[1], request);
});

const half = Buffer.from('0123456789');
const ofHalf = digestOf(half);

interface Resumption {
  begun?: Record<string, string>;
  received?: { bytes: number; digest: ReturnType<typeof digestOf> | undefined };
  rest: Answer;
  headers: Record<string, string>;
  gets: string | undefined;
}

const ranged = (at: number, more: object = {}) => ({ 'content-range': `bytes ${at}-19/20`, ...more });
const range = 'bytes=10-';

const resumptions: Record<string, Resumption> = {
  'by its ETag': {
    begun: { etag: '"e"', 'last-modified': day },
    rest: { status: 206, headers: ranged(10, { etag: '"e"' }), text: 'rest' },
    headers: { range, 'if-range': '"e"' },
    gets: 'rest',
  },
  'by its time if the ETag is weak': {
    begun: { etag: 'W/"e"', 'last-modified': day },
    rest: { status: 206, headers: ranged(10, { etag: 'W/"e"', 'last-modified': day }), text: 'rest' },
    headers: { range, 'if-range': day },
    gets: 'rest',
  },
  'also if the rest has no validator': {
    begun: { etag: '"e"' },
    rest: { status: 206, headers: ranged(10), text: 'rest' },
    headers: { range, 'if-range': '"e"' },
    gets: 'rest',
  },
  'not if the rest has another validator': {
    begun: { etag: '"e"' },
    rest: { status: 206, headers: ranged(10, { etag: '"f"' }), text: 'rest' },
    headers: { range, 'if-range': '"e"' },
    gets: undefined,
  },
  'by Range if the digest of the whole is known': {
    received: { bytes: 10, digest: undefined },
    rest: { status: 206, headers: ranged(10), text: 'rest' },
    headers: { range },
    gets: 'rest',
  },
  'not with the rest from elsewhere': {
    received: { bytes: 10, digest: undefined },
    rest: { status: 206, headers: ranged(11), text: 'rest' },
    headers: { range },
    gets: undefined,
  },
  'not with a rest of a place that begins so': {
    received: { bytes: 10, digest: undefined },
    rest: { status: 206, headers: ranged(100), text: 'rest' },
    headers: { range },
    gets: undefined,
  },
  'not with a rest of an unknown place': {
    received: { bytes: 10, digest: undefined },
    rest: { status: 206, headers: {}, text: 'rest' },
    headers: { range },
    gets: undefined,
  },
  'not with a coded rest': {
    received: { bytes: 10, digest: undefined },
    rest: { status: 206, headers: ranged(10), decoded: true, text: 'rest' },
    headers: { range },
    gets: undefined,
  },
  'without a validator from the whole body again': {
    rest: { headers: {}, text: '0123456789rest' },
    headers: {},
    gets: 'rest',
  },
  'not from another whole body': {
    rest: { headers: {}, text: '0123456780rest' },
    headers: {},
    gets: 'another body',
  },
  'not from a coded whole body': {
    rest: { headers: {}, decoded: true, text: '0123456789rest' },
    headers: {},
    gets: undefined,
  },
  'not from the whole body if it has changed by its validator': {
    begun: { etag: '"e"' },
    rest: { headers: { etag: '"f"' }, text: '0123456789rest' },
    headers: { range, 'if-range': '"e"' },
    gets: undefined,
  },
  'not from the whole body if the digest of the beginning is unknown': {
    received: { bytes: 10, digest: undefined },
    rest: { headers: {}, text: '0123456789rest' },
    headers: { range },
    gets: undefined,
  },
  'from the whole body if nothing had come': {
    received: { bytes: 0, digest: undefined },
    rest: { headers: {}, text: 'all' },
    headers: { range: 'bytes=0-' },
    gets: 'all',
  },
  'not if the range is refused': {
    received: { bytes: 10, digest: undefined },
    rest: { status: 416, headers: {}, text: '0123456789rest' },
    headers: { range },
    gets: undefined,
  },
};

async function textOf(body: Readable): Promise<string> {
  try {
    let text = '';
    for await (const piece of body as AsyncIterable<Buffer>) text += String(piece);
    return text;
  } catch (error) {
    return error instanceof OtherBody ? 'another body' : String(error);
  }
}

for (const [what, { begun = {}, received, rest, headers, gets }] of Object.entries(resumptions)) {
  test(`a body is resumed ${what}`, async (t) => {
    const { upstream, asked, bodies } = upstreamOf({ headers: begun }, rest);
    const first = await fetchFrom(upstream, { ...request, document: false, headers: { accept: 'x/y' } });
    const { signal } = new AbortController();
    const body =
      first.kind === 'fetched' ? await first.resume!(received ?? { bytes: 10, digest: ofHalf }, signal) : undefined;
    t.deepEqual(asked[1], {
      ...request,
      signal,
      headers: { accept: 'x/y', ...headers },
      answers: [400, 416],
    } as UpstreamRequest);
    t.is(body && (await textOf(body)), gets);
    if (!body) t.true(bodies[1]!.destroyed);
  });
}

test('the beginning of a body that is sent again may come in any pieces', async (t) => {
  for (const pieces of ['0123456789 rest', '01 23456789re st', '0 1 2 3 4 5 6 7 8 9 r e s t']) {
    const { upstream } = upstreamOf({}, { body: Readable.from(pieces.split(' ').map((each) => Buffer.from(each))) });
    const first = await fetchFrom(upstream, request);
    if (first.kind !== 'fetched') throw new Error('there is no body');
    const body = await first.resume!({ bytes: 10, digest: ofHalf }, new AbortController().signal);
    t.is(await textOf(body!), 'rest');
  }
});

test('the bytes of a document, and nothing for an answer that says there is none', async (t) => {
  const headers = { etag: '"e"' };
  const { upstream, asked } = upstreamOf({ text: 'text', headers }, { status: 404 }, { status: 400 }, { status: 204 });
  const grown: number[] = [];
  const read = () => fetchBytes(upstream, request, 4, (bytes) => void grown.push(bytes));
  t.deepEqual(await read(), { bytes: Buffer.from('text'), headers });
  t.deepEqual(grown, [4]);
  t.deepEqual(asked, [request]);
  t.is(await read(), undefined);
  t.is(await read(), undefined);
  await t.throwsAsync(read(), { name: 'UpstreamUnavailable', message: 'The upstream up.test answered 204.' });
});

/** A body that fails after its first byte. */
function cut(): Readable {
  return Readable.from(
    (async function* () {
      yield Buffer.from('x');
      await Promise.resolve();
      throw new Error('cut');
    })(),
  );
}

test('a document that is too large, cut, or may not be read now fails in its own way', async (t) => {
  const { upstream, failed } = upstreamOf({ text: 'large' }, { body: cut() }, { text: 'text' });
  const read = (grown = (): Promise<void> | undefined => undefined) => fetchBytes(upstream, request, 4, grown);
  const large = await t.throwsAsync<UpstreamError>(read(), {
    message: 'The upstream up.test sends more than the limit of 4 bytes.',
  });
  t.true(large instanceof UpstreamError && large.cause instanceof Refused);
  t.deepEqual(failed, []);
  await t.throwsAsync(read(), { message: 'failed in the middle' });
  t.is((failed[0] as Error).message, 'cut');
  t.is(failed[1], request);
  const refusal = new DomainError('TooManyRequests', 'later');
  t.is(await t.throwsAsync(read(() => Promise.reject(refusal))), refusal);
});

const mebibyte = 2 ** 20;
const ofName = (id: string, timeout = 60_000) => ({ id, name: `${id}.test`, config: { timeout } }) as Upstream;

test('of large answers for one purpose, one at a time is in memory', async (t) => {
  const up = ofName('turns');
  const told: string[] = [];
  const first = Promise.withResolvers<void>();
  const work = (name: string, upstream: Upstream, purpose: string, bytes: number, until?: Promise<void>) =>
    largeInTurn(upstream, purpose, async (grown) => {
      await grown(bytes);
      told.push(`${name} begins`);
      await grown(bytes + 1);
      await until;
      told.push(`${name} ends`);
      return name;
    });
  const one = work('one', up, 'list', mebibyte + 1, first.promise);
  const two = work('two', up, 'list', mebibyte + 1);
  t.is(await work('small', up, 'list', mebibyte - 1), 'small');
  t.is(await work('purpose', up, 'other', mebibyte + 1), 'purpose');
  t.is(await work('upstream', ofName('other turns'), 'list', mebibyte + 1), 'upstream');
  t.true(told.includes('one begins'));
  t.false(told.includes('two begins'));
  first.resolve();
  t.deepEqual(await Promise.all([one, two]), ['one', 'two']);
  t.deepEqual(told.slice(-3), ['one ends', 'two begins', 'two ends']);
});

test('a large answer waits as long as its upstream may take, and work that failed is no obstacle', async (t) => {
  const up = ofName('patience', 20);
  const over = Promise.withResolvers<void>();
  const first = largeInTurn(up, 'list', async (grown) => {
    await grown(mebibyte + 1);
    await over.promise;
    throw new Error('failed');
  });
  const refused = await t.throwsAsync<DomainError>(
    largeInTurn(up, 'list', async (grown) => grown(mebibyte + 1)),
    {
      name: 'TooManyRequests',
      message: 'This server reads other large answers of the upstream patience.test. Try again.',
    },
  );
  t.is(refused.retryAfter, 1);
  over.resolve();
  await t.throwsAsync(first, { message: 'failed' });
  t.is(
    await largeInTurn(up, 'list', async (grown) => {
      t.is(grown(mebibyte), undefined);
      await grown(mebibyte + 1);
      return 'done';
    }),
    'done',
  );
});
