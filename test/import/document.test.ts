import { Readable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { itemsOfList, ListMissing, readDocument } from '../../src/import/document.ts';
import { fakeRemote, heldBody, type FakeAnswer } from '../support/upstreams/fake-remote.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';

const { signal } = new AbortController();
const url = new URL('http://old.test/list?n=2');
const of = { subject: 'team/app', scope: 'repository:team/app:pull', signal };
const asDocument = { ...of, isDocument: true, url: url.href };

test('a document comes with its headers, and a status other than 200 means that there is none', async (t) => {
  const answers: FakeAnswer[] = [
    { body: 'text', headers: { 'content-type': 'a/b' } },
    { status: 404, body: 'not here' },
    { status: 204 },
  ];
  const { remote, requests, bodies } = fakeRemote(() => answers.shift());
  const read = () => readDocument(remote, { ...of, url }, 4);
  t.deepEqual(await read(), { bytes: Buffer.from('text'), headers: { 'content-type': 'a/b' } });
  t.is(await read(), undefined);
  t.is(await read(), undefined);
  t.deepEqual(requests, [asDocument, asDocument, asDocument]);
  await turn();
  t.true(bodies[1]!.readableEnded, 'the body is read, so that the connection can be used again');
});

/** A body that ends with an error. */
const cut = () =>
  Readable.from(
    (async function* () {
      yield Buffer.from('te');
      throw new Error('the connection ended');
    })(),
  );

test('a document that is too large or cut is a failure of the source, which is asked again so many times', async (t) => {
  for (const [most, body, message] of [
    [1, () => 'large', 'sends more than the limit of 4 bytes'],
    [3, cut, 'failed: the connection ended'],
    [undefined, cut, 'failed: the connection ended'],
  ] as const) {
    const { remote, requests } = fakeRemote(() => ({ body: body() }));
    await t.throwsAsync(readDocument(remote, { ...of, url }, 4, most), {
      instanceOf: UpstreamError,
      message: `The upstream old.test ${message}.`,
    });
    t.is(requests.length, most ?? 4);
  }
  // Each attempt gives its place back.
  const { remote, requests } = fakeRemote(() => ({ status: 403 }));
  for (let time = 0; time < 20; time += 1)
    await t.throwsAsync(readDocument(remote, { ...of, url }, 4), { message: /denied access/ });
  t.is(requests.length, 20);
});

test('eight documents of one server are read at the same time, of another server besides', async (t) => {
  const held: ReturnType<typeof heldBody>[] = [];
  let isFree = false;
  const hold = (): FakeAnswer => {
    if (isFree) return { body: 'later' };
    const next = heldBody();
    held.push(next);
    return next;
  };
  const [one, other] = [fakeRemote(hold), fakeRemote(hold)];
  const read = ({ remote }: typeof one) => readDocument(remote, { ...of, url }, 100);
  const reading = Array.from({ length: 10 }, () => read(one));
  await turn();
  t.is(one.requests.length, 8);
  reading.push(read(other));
  await turn();
  t.deepEqual([one.requests.length, other.requests.length], [8, 1]);
  held[0]!.finish('first');
  t.is((await reading[0])?.bytes.toString(), 'first');
  await turn();
  t.is(one.requests.length, 9);
  isFree = true;
  for (const each of held.slice(1)) each.finish('later');
  t.deepEqual(
    (await Promise.all(reading)).map((each) => each?.bytes.toString()),
    ['first', ...Array.from({ length: 10 }, () => 'later')],
  );
  t.is(one.requests.length, 10);
});

async function all(items: AsyncIterable<unknown>): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const each of items) found.push(each);
  return found;
}

test('the items of all pages of a list come in order, each page asked as the first one', async (t) => {
  const pages: Record<string, FakeAnswer> = {
    '/list?n=2': {
      body: '{"tags":["a","b"],"name":"x"}',
      headers: { link: '<http://inside.test/list?n=2&last=b>; rel="next"' },
    },
    '/list?n=2&last=b': { body: '{"tags":[3]}' },
    '/array': { body: '[1,{"a":2}]' },
    '/other': { body: '{"names":["a"]}' },
  };
  const { remote, requests } = fakeRemote((path) => pages[path]);
  t.deepEqual(await all(itemsOfList(remote, url, { ...of, answers: [405], field: 'tags' })), ['a', 'b', 3]);
  const headers = { accept: 'application/json' };
  t.deepEqual(requests, [
    { ...asDocument, answers: [405], headers },
    { ...asDocument, answers: [405], headers, url: 'http://old.test/list?n=2&last=b' },
  ]);
  t.deepEqual(await all(itemsOfList(remote, new URL('http://old.test/array'), of)), [1, { a: 2 }]);
  t.deepEqual(await all(itemsOfList(remote, new URL('http://old.test/other'), { ...of, field: 'tags' })), []);
});

const next = (page: number) => ({ link: `</list?page=${page}>; rel="next"` });
const pageOf = (path: string) => Number(/page=(\d+)/.exec(path)?.[1] ?? 0);

test('a list that is missing, cannot be read, lacks a page or has no end is refused in words', async (t) => {
  const failsWith = async (
    answer: (path: string) => FakeAnswer | undefined,
    name: string,
    message: string,
    field?: string,
  ) => {
    const { remote, requests } = fakeRemote(answer);
    const error = await t.throwsAsync(all(itemsOfList(remote, url, { ...of, field })), { name, message });
    return { requests: requests.length, isMissing: error instanceof ListMissing };
  };
  const missing = { requests: 1, isMissing: true };
  t.deepEqual(await failsWith(() => undefined, 'NotFound', 'The source has no list of tags.', 'tags'), missing);
  t.deepEqual(await failsWith(() => undefined, 'NotFound', 'The source has no list of team/app.'), missing);
  const lostPage = 'The source has no page that its list of tags names.';
  t.deepEqual(
    await failsWith(
      (path) => (pageOf(path) === 0 ? { body: '[]', headers: next(1) } : undefined),
      'Invalid',
      lostPage,
      'tags',
    ),
    { requests: 2, isMissing: false },
  );
  const unread = 'The source sent a list that cannot be read.';
  t.deepEqual(await failsWith(() => ({ body: '[1' }), 'Invalid', unread), { requests: 1, isMissing: false });
  const endless = 'The source sends a list without an end.';
  t.deepEqual(await failsWith((path) => ({ body: '[]', headers: next((pageOf(path) + 1) % 3) }), 'TooLarge', endless), {
    requests: 4,
    isMissing: false,
  });
  t.deepEqual(await failsWith((path) => ({ body: '[]', headers: next(pageOf(path) + 1) }), 'TooLarge', endless), {
    requests: 10_000,
    isMissing: false,
  });
});

test('a million items of a list are read, and not one more', async (t) => {
  const page = `[${Array.from({ length: 250_000 }, () => 1).join()}]`;
  const { remote } = fakeRemote((path) => {
    const at = pageOf(path);
    return at < 4 ? { body: page, headers: next(at + 1) } : { body: '[1]' };
  });
  let count = 0;
  const read = async () => {
    for await (const _ of itemsOfList(remote, url, of)) count += 1;
  };
  await t.throwsAsync(read(), { name: 'TooLarge', message: 'The source lists more than 1000000 team/app.' });
  t.is(count, 1_000_000);
});
