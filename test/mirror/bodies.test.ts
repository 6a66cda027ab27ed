import test, { type ExecutionContext } from 'ava';
import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import type { Database } from '../../src/database/database.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { fetchBytes, largeInTurn } from '../../src/mirror/fetch/fetch.ts';
import { readUpstreamBody } from '../../src/upstream/body.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import { DiskReserve } from '../../src/storage/files/disk-reserve.ts';
import { answer, endless, serve, startFaultyUpstream, startRawUpstream } from '../support/upstreams/faulty-upstream.ts';
import { changedDatabase } from '../support/databases.ts';
import { watchSyncs } from '../support/disk.ts';
import { TestDisk } from '../support/test-disk.ts';
import { until } from '../support/until.ts';
import { openMirror, readEntry, type MirrorSetup, type TestMirror } from '../support/mirror.ts';

const bytes = randomBytes(1_500_000);
const digest = digestOf(bytes);
const strong = { headers: { etag: '"one"' } };
/** A reset may drop bytes that have arrived; a normal end of the connection keeps them. */
const early = { until: 400_000, how: 'end' as const };

async function setUp(t: ExecutionContext, setup: MirrorSetup = {}) {
  const server = await startFaultyUpstream(t);
  const made = await openMirror(t, server.url, setup);
  return { server, ...made };
}

/** Nothing is stored, no file is left, and the next request starts from the beginning. */
async function assertNothingStored(t: ExecutionContext, made: TestMirror): Promise<void> {
  await made.mirror.close();
  t.is(await made.blobCount(), 0);
  t.deepEqual(await made.staged(), []);
}

test.serial('a body is complete, is stored, and is not requested again', async (t) => {
  const { server, mirror, resource, staged } = await setUp(t);
  server.on('/thing', serve(bytes, { headers: { 'content-type': 'application/x-thing' } }));
  const first = await mirror.open(resource('/thing', { digest }));
  t.like(first, { outcome: 'miss', type: 'application/x-thing', size: bytes.length });
  t.true((await readEntry(first)).equals(bytes));
  const metadata = await first!.complete;
  t.like(metadata, { digest, size: bytes.length, type: 'application/x-thing' });
  const second = await mirror.open(resource('/thing', { digest }));
  t.like(second, { outcome: 'hit', type: 'application/x-thing', size: bytes.length });
  t.true((await readEntry(second)).equals(bytes));
  t.is(server.asked.length, 1);
  t.deepEqual(await staged(), []);
});

for (const how of ['reset', 'end'] as const) {
  for (const length of [true, false]) {
    // A chunked body shows its end; only one that ends with the connection does not.
    test.serial(
      `a body with ${length ? 'Content-Length' : 'chunks'} that ends early by ${how} is resumed by Range`,
      async (t) => {
        const { server, mirror, resource } = await setUp(t);
        server.on('/thing', serve(bytes, { length, until: 400_000, how }), serve(bytes));
        const entry = await mirror.open(resource('/thing', { digest }));
        t.true((await readEntry(entry)).equals(bytes));
        t.is((await entry!.complete).digest, digest);
        t.regex(server.asked[1]!.range!, /^bytes=\d+-$/);
        t.is(server.asked.length, 2);
      },
    );

    test.serial(
      `a body with ${length ? 'Content-Length' : 'chunks'} that ends early by ${how}, and no Range: never completes`,
      async (t) => {
        const made = await setUp(t);
        const { server, mirror, resource } = made;
        server.on('/thing', serve(bytes, { length, until: 400_000, how, ranges: false }));
        const entry = await mirror.open(resource('/thing', { digest }));
        await t.throwsAsync(readEntry(entry), {
          name: 'UpstreamUnavailable',
          message: /up\.test stopped in the middle/,
        });
        await t.throwsAsync(entry!.complete);
        await assertNothingStored(t, made);
      },
    );
  }
}

/** A body that ends with its connection, of which only `sent` arrives; ranges are served whole. */
function closing(t: ExecutionContext, sent: Buffer, ranges: boolean): Promise<URL> {
  return startRawUpstream(t, (socket, request) => {
    const start = Number(/range: bytes=(\d+)-/i.exec(request)?.[1] ?? 0);
    if (start === 0 || !ranges) {
      socket.end(Buffer.concat([Buffer.from('HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n'), sent]));
      return;
    }
    const range = `content-range: bytes ${start}-${bytes.length - 1}/${bytes.length}`;
    socket.write(`HTTP/1.1 206 Partial Content\r\nconnection: close\r\n${range}\r\n\r\n`);
    socket.end(bytes.subarray(start));
  });
}

test.serial('a body that ends with its connection is complete if its digest is right', async (t) => {
  const base = await closing(t, bytes, false);
  const { mirror, resource } = await openMirror(t, base);
  const entry = await mirror.open(resource('/thing', { digest }));
  t.is(entry!.size, undefined);
  t.true((await readEntry(entry)).equals(bytes));
});

test.serial('a body whose connection ends too early is resumed by Range if its digest is known', async (t) => {
  const base = await closing(t, bytes.subarray(0, 700_000), true);
  const { mirror, resource } = await openMirror(t, base);
  const entry = await mirror.open(resource('/thing', { digest }));
  t.true((await readEntry(entry)).equals(bytes));
});

test.serial('a body whose connection ends too early never completes without Range', async (t) => {
  const base = await closing(t, bytes.subarray(0, 700_000), false);
  const made = await openMirror(t, base);
  const entry = await made.mirror.open(made.resource('/thing', { digest }));
  await t.throwsAsync(readEntry(entry), { message: /sent sha256:\w+ instead of sha256:\w+/ });
  await assertNothingStored(t, made);
});

test.serial('reset at a random byte, ten times in a row: the right bytes', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  const cuts = Array.from({ length: 10 }, () => serve(bytes, { until: Math.floor(Math.random() * 140_000) }));
  server.on('/thing', ...cuts, serve(bytes));
  const entry = await mirror.open(resource('/thing', { digest }));
  t.true((await readEntry(entry)).equals(bytes));
  t.is(server.asked.length, 11);
});

test.serial('a short outage of the upstream in the middle of a body does not end the body', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  const cut = serve(bytes, early);
  // The first resumption fails and starts a pause; the next one after the pause gets the rest.
  server.on('/thing', cut, answer(500), answer(500), answer(500), serve(bytes));
  const entry = await mirror.open(resource('/thing', { digest }));
  t.true((await readEntry(entry)).equals(bytes));
});

test.serial('a stall after the headers is cut by the idle timer, and the body is resumed by Range', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  server.on('/thing', serve(bytes, { until: 0, how: 'stall' }), serve(bytes));
  const entry = await mirror.open(resource('/thing', { digest, idle: 100 }));
  t.true((await readEntry(entry)).equals(bytes));
  t.is(server.asked.length, 2);
});

test.serial('a stall in the middle is cut by the idle timer, and the body is resumed by Range', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  server.on('/thing', serve(bytes, { until: 500_000, how: 'stall' }), serve(bytes));
  const entry = await mirror.open(resource('/thing', { digest, idle: 100 }));
  t.true((await readEntry(entry)).equals(bytes));
});

test.serial('repeated stalls end in a failure, in time, and the next request is sent', async (t) => {
  const made = await setUp(t);
  const { server, mirror, resource, upstream } = made;
  server.on('/thing', serve(bytes, { until: 500_000, how: 'stall' }), serve(bytes, { until: 0, how: 'stall' }));
  const entry = await mirror.open(resource('/thing', { digest, idle: 100 }));
  await t.throwsAsync(readEntry(entry), { name: 'UpstreamUnavailable', message: /stopped in the middle/ });
  // The body, and then three attempts without progress.
  t.is(server.asked.length, 4);
  t.is(upstream.unavailable(), undefined);
  await assertNothingStored(t, made);
  server.on('/thing', serve(bytes));
  t.true((await readEntry(await mirror.open(resource('/thing', { digest })))).equals(bytes));
});

test.serial('a slow reader is not an idle upstream', async (t) => {
  // Without room the body is passed through at the speed of its reader, with at most 4 MiB in memory.
  const room = new DiskReserve('/', 1000, () => Promise.resolve(0));
  const { server, mirror, resource } = await setUp(t, { mirror: { room } });
  const large = randomBytes(12 * 2 ** 20);
  server.on('/thing', serve(large));
  const entry = await mirror.open(resource('/thing', { digest: digestOf(large), idle: 50 }));
  t.is(entry!.outcome, 'passed');
  // Meanwhile another body with the same idle time is given up, so the idle time has passed several times.
  server.on('/silent', serve(large, { until: 10, how: 'stall' }));
  const silent = await mirror.open(resource('/silent', { digest: digestOf(large), idle: 50 }));
  await t.throwsAsync(readEntry(silent), { message: /stopped in the middle/ });
  t.true((await readEntry(entry)).equals(large));
  t.is(server.count('/thing'), 1);
});

for (const length of [true, false]) {
  test.serial(
    `a wrong digest ${length ? 'with' : 'without'} Content-Length: refused, logged, never stored, last byte withheld`,
    async (t) => {
      const made = await setUp(t);
      const { server, mirror, resource, lines, upstream } = made;
      const wrong = Buffer.from(bytes);
      wrong[wrong.length - 1]! ^= 1;
      server.on('/thing', serve(wrong, { length }));
      const entry = await mirror.open(resource('/thing', { digest }));
      let seen = 0;
      const failure = await t.throwsAsync(async () => {
        const piece = Buffer.alloc(65_536);
        for (;;) {
          const read = await entry!.content.read(piece, seen);
          if (read === 0) return;
          seen += read;
        }
      });
      entry!.content.close();
      t.regex(failure.message, /up\.test sent sha256:\w+ instead of sha256:\w+/);
      t.is(failure.name, 'UpstreamUnavailable');
      t.true(seen < bytes.length);
      t.true(lines.some((line) => line.includes('must not be stored') && line.includes('/thing')));
      await assertNothingStored(t, made);
      t.is(upstream.unavailable(), undefined, 'everything else of the upstream’s may still be had');
      server.on('/thing', serve(bytes));
      t.true((await readEntry(await mirror.open(resource('/thing', { digest })))).equals(bytes));
    },
  );
}

test.serial('the bytes are checked against a digest that the upstream states', async (t) => {
  const made = await setUp(t);
  const { server, mirror, resource } = made;
  server.on('/thing', serve(bytes, { headers: { 'docker-content-digest': digestOf('something else') } }));
  await t.throwsAsync(readEntry(await mirror.open(resource('/thing'))), { message: /instead of sha256:/ });
  await assertNothingStored(t, made);
});

for (const size of [0, 1]) {
  test.serial(`${size} bytes with a wrong digest never complete`, async (t) => {
    const made = await setUp(t);
    made.server.on('/thing', serve(Buffer.alloc(size)));
    await t.throwsAsync(async () => readEntry(await made.mirror.open(made.resource('/thing', { digest }))), {
      name: 'UpstreamUnavailable',
    });
    await assertNothingStored(t, made);
  });

  test.serial(`${size} right bytes are served and stored`, async (t) => {
    const { server, mirror, resource } = await setUp(t);
    const body = Buffer.alloc(size);
    server.on('/thing', serve(body));
    for (let round = 0; round < 2; round += 1) {
      const entry = await mirror.open(resource('/thing', { digest: digestOf(body) }));
      t.is(entry!.size, size);
      t.true((await readEntry(entry)).equals(body));
      await entry!.complete;
    }
    t.is(server.asked.length, 1);
  });
}

test.serial('content that the protocol rejects ends before its last byte and is never stored', async (t) => {
  const made = await setUp(t);
  const { server, mirror, resource } = made;
  server.on(
    '/thing',
    serve(Buffer.from('<html>Welcome to the hotel</html>'), { headers: { 'content-type': 'text/html' } }),
  );
  await t.throwsAsync(
    readEntry(await mirror.open(resource('/thing', { verify: async () => JSON.parse('no JSON') as never }))),
    {
      name: 'UpstreamUnavailable',
      message: /sent the wrong content: Unexpected token/,
    },
  );
  await assertNothingStored(t, made);
});

test.serial('bytes beyond the announced length are ignored', async (t) => {
  const base = await startRawUpstream(t, (socket) => {
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n`);
    socket.write(bytes);
  });
  const { mirror, resource } = await openMirror(t, base);
  const announced = bytes.subarray(0, 1000);
  const read = async (digest: Digest) => readEntry(await mirror.open(resource('/thing', { digest })));
  // The bytes after the body are not HTTP: they may cut the body, but never change it.
  await read(digestOf(announced)).then(
    (body) => t.true(body.equals(announced)),
    (error: Error) => t.is(error.name, 'UpstreamUnavailable'),
  );
  await t.throwsAsync(read(digest));
});

test.serial('an announced size above the limit is refused before the body is read', async (t) => {
  const made = await setUp(t);
  const { server, mirror, resource } = made;
  server.on('/thing', serve(bytes));
  await t.throwsAsync(mirror.open(resource('/thing', { limit: bytes.length - 1 })), {
    message: /announces 1500000 bytes/,
  });
  await assertNothingStored(t, made);
});

for (const [what, make] of [
  ['an endless body', (sent: { bytes: number }) => endless(sent)],
  ['a bomb', () => serve(gzipSync(Buffer.alloc(64 * 2 ** 20)), { headers: { 'content-encoding': 'gzip' } })],
] as const) {
  test.serial(`${what} ends at the limit`, async (t) => {
    const made = await setUp(t);
    const { server, mirror, resource } = made;
    const sent = { bytes: 0 };
    const limit = 8 * 2 ** 20;
    server.on('/thing', make(sent));
    const entry = await mirror.open(resource('/thing', { limit }));
    await t.throwsAsync(readEntry(entry), { name: 'UpstreamUnavailable', message: /sends more bytes than allowed/ });
    await assertNothingStored(t, made);
    t.true(sent.bytes < limit + 16 * 2 ** 20, 'the upstream was cut off');
  });
}

test.serial('a coded body is decoded, and requested again when it is cut', async (t) => {
  const { server, mirror, resource, clock } = await setUp(t);
  clock.now = 1_000_000;
  const coded = gzipSync(bytes);
  const headers = { 'content-encoding': 'gzip' };
  server.on('/thing', serve(coded, { headers, ...early, ranges: false }), serve(coded, { headers }));
  await t.throwsAsync(readEntry(await mirror.open(resource('/thing', { digest }))));
  clock.now += 2000;
  const entry = await mirror.open(resource('/thing', { digest }));
  t.is(entry!.size, undefined);
  t.true((await readEntry(entry)).equals(bytes));
  t.is(server.asked[1]!.range, undefined, 'offsets in what is coded are not ours');
});

test.serial('pieces of two versions are never combined', async (t) => {
  const made = await setUp(t);
  const { server, mirror, resource, clock } = made;
  clock.now = 1_000_000;
  const other = randomBytes(bytes.length);
  const cut = serve(bytes, { ...strong, ...early });
  // No digest is known here, as for a tag or an index.
  const assertBroken = async (path: string, asked: number) => {
    await t.throwsAsync(async () => readEntry(await mirror.open(resource(path))), { message: /stopped in the middle/ });
    t.is(server.count(path), asked);
    clock.now! += 2000;
  };
  server.on('/ignores-if-range', cut, serve(other, { headers: { etag: '"two"' } }));
  await assertBroken('/ignores-if-range', 2);
  server.on('/whole-again', cut, serve(other, { headers: { etag: '"two"' }, ranges: false }));
  await assertBroken('/whole-again', 2);
  server.on('/no-validator', serve(bytes, { ...early }), serve(other));
  await assertBroken('/no-validator', 2);
  server.on('/weak', serve(bytes, { headers: { etag: 'W/"one"' }, ...early }), serve(other));
  await assertBroken('/weak', 2);
  await assertNothingStored(t, made);
});

test.serial('a body without digest or validator is fetched again and continues where it was cut', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  const cuts = [400_000, 900_000, 1_400_000].map((until) => serve(bytes, { ranges: false, until, how: 'end' }));
  server.on('/thing', ...cuts, serve(bytes, { ranges: false }));
  t.true((await readEntry(await mirror.open(resource('/thing')))).equals(bytes));
  t.is(server.asked.length, 4);
  t.true(server.asked.every(({ range }) => range === undefined));
});

test.serial('a body without a known digest is resumed with a validator', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  server.on('/thing', serve(bytes, { ...strong, ...early }), serve(bytes, strong));
  t.true((await readEntry(await mirror.open(resource('/thing')))).equals(bytes));
  t.is(server.asked[1]!.headers['if-range'], '"one"');
  const lastModified = 'Sun, 06 Nov 1994 08:49:37 GMT';
  const dated = { headers: { 'last-modified': lastModified } };
  server.on('/dated', serve(bytes, { ...dated, ...early }), serve(bytes, dated));
  t.true((await readEntry(await mirror.open(resource('/dated')))).equals(bytes));
  t.is(server.asked.at(-1)!.headers['if-range'], lastModified);
});

test.serial('an answer with another range than the requested one is not used', async (t) => {
  const made = await setUp(t);
  const { server, mirror, resource } = made;
  const shifted = answer(206, { 'content-range': `bytes 0-9/${bytes.length}` }, bytes.subarray(0, 10));
  server.on('/thing', serve(bytes, { ...early }), shifted);
  await t.throwsAsync(async () => readEntry(await mirror.open(resource('/thing', { digest }))));
  await assertNothingStored(t, made);
});

for (const status of [204, 206]) {
  test.serial(`${status} to a request for the whole body is a failure`, async (t) => {
    const made = await setUp(t);
    made.server.on('/thing', answer(status));
    await t.throwsAsync(made.mirror.open(made.resource('/thing')), { message: new RegExp(`answered ${status}`) });
    await assertNothingStored(t, made);
  });
}

test.serial('304 without a condition is a failure', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  server.on('/thing', answer(304));
  await t.throwsAsync(mirror.open(resource('/thing')), { name: 'UpstreamUnavailable' });
});

test.serial('when the disk becomes full, the rest of a body is passed through to all readers', async (t) => {
  const server = await startFaultyUpstream(t);
  const body = randomBytes(48 * 2 ** 20);
  const expected = { digest: digestOf(body), idle: 5000 };
  server.on('/thing', serve(body, { length: false }));
  let free = 10 ** 9;
  const room = new DiskReserve('/', 1000, () => Promise.resolve(free));
  const { mirror, resource, staged, blobCount } = await openMirror(t, server.url, { mirror: { room } });
  const first = (await mirror.open(resource('/thing', expected)))!;
  const second = (await mirror.open(resource('/thing', expected)))!;
  t.is(first.outcome, 'miss');
  free = 0;
  const [whole, ranged, third] = await Promise.all([
    readEntry(first),
    readEntry(second, 40_000_000, 41_000_000),
    mirror.open(resource('/thing', expected)).then((entry) => readEntry(entry)),
  ]);
  t.true(whole.equals(body));
  t.true(ranged.equals(body.subarray(40_000_000, 41_000_000)));
  t.true(third.equals(body));
  await mirror.close();
  t.deepEqual(await staged(), []);
  t.is(await blobCount(), 0);
  free = 10 ** 9;
  t.is((await mirror.open(resource('/thing', expected)))!.outcome, 'miss');
});

test.serial('a wrong body that is passed through completes at no client', async (t) => {
  const server = await startFaultyUpstream(t);
  const body = randomBytes(10 * 2 ** 20);
  server.on('/thing', serve(body));
  const room = new DiskReserve('/', 1000, () => Promise.resolve(0));
  const { mirror, resource } = await openMirror(t, server.url, { mirror: { room } });
  const entry = (await mirror.open(resource('/thing', { digest: digestOf('other'), idle: 5000 })))!;
  t.is(entry.outcome, 'passed');
  let position = 0;
  const read = async () => {
    for (const target = Buffer.alloc(65_536); ;) {
      const length = await entry.content.read(target, position);
      if (length === 0) return;
      position += length;
    }
  };
  await t.throwsAsync(read(), { message: /instead of sha256:.*/ });
  t.is(position, body.length - 1);
  entry.content.close();
});

test.serial('when a write fails because the disk is full, all readers get the rest of the body', async (t) => {
  const server = await startFaultyUpstream(t);
  const body = randomBytes(48 * 2 ** 20);
  const expected = { digest: digestOf(body), idle: 5000 };
  const disk = new TestDisk();
  const { mirror, resource, staged, blobCount } = await openMirror(t, server.url, { disk });
  for (const length of [true, false]) {
    server.on('/thing', serve(body, { length }));
    disk.left = 20 * 2 ** 20 + 123;
    const first = (await mirror.open(resource('/thing', expected)))!;
    const second = (await mirror.open(resource('/thing', expected)))!;
    t.is(first.outcome, 'miss');
    const [whole, ranged] = await Promise.all([readEntry(first), readEntry(second, 40_000_000, 41_000_000)]);
    t.true(whole.equals(body));
    t.true(ranged.equals(body.subarray(40_000_000, 41_000_000)));
    await until(async () => (await staged()).length === 0);
    t.is(await blobCount(), 0);
  }
  // Interrupted after the failed write, and resumed by Range.
  server.on('/thing', serve(body, { until: 30 * 2 ** 20 }), serve(body));
  disk.left = 20 * 2 ** 20;
  t.true((await readEntry(await mirror.open(resource('/thing', expected)))).equals(body));
  // A wrong body does not complete.
  server.on('/thing', serve(body));
  disk.left = 20 * 2 ** 20;
  const other = digestOf('other');
  const wrong = await mirror.open(resource('/thing', { ...expected, digest: other }));
  await t.throwsAsync(readEntry(wrong), { message: /instead of sha256:.*/ });
  disk.left = Number.POSITIVE_INFINITY;
  t.true((await readEntry(await mirror.open(resource('/thing', expected)))).equals(body));
  await until(async () => (await blobCount()) === 1);
  t.is((await mirror.open(resource('/thing', expected)))!.outcome, 'hit', 'stored when there is space again');
});

test.serial('a body is not stored if the disk has told once, in the middle, that it lost some of it', async (t) => {
  const { server, mirror, resource, database, staged } = await setUp(t);
  const body = randomBytes(40 * 2 ** 20);
  const thing = resource('/thing', { digest: digestOf(body), idle: 5000 });
  server.on('/thing', serve(body), serve(body));
  let syncs = 0;
  await watchSyncs(t, () => {
    syncs += 1;
    if (syncs === 1) throw Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO', syscall: 'fdatasync' });
  });
  const first = (await mirror.open(thing))!;
  t.true((await readEntry(first)).equals(body), 'its reader gets it');
  await first.complete;
  await until(async () => (await staged()).length === 0);
  t.true(syncs > 0);
  const live = () => database.select("SELECT digest FROM blobs WHERE state = 'live'");
  t.deepEqual(await live(), []);
  t.true((await readEntry(await mirror.open(thing))).equals(body));
  await until(async () => (await live()).length === 1);
});

test.serial('a fetched body is served when the database is too full to store it', async (t) => {
  const server = await startFaultyUpstream(t);
  const body = randomBytes(100_000);
  server.on('/thing', serve(body, { headers: { etag: '"one"' } }));
  let isFull = true;
  const wrap = (database: Database) =>
    changedDatabase(database, {
      transaction: (work, options) =>
        isFull
          ? Promise.reject(Object.assign(new Error('wrapped'), { parent: { errcode: 13 } }))
          : database.transaction(work, options),
    });
  const { mirror, resource, staged, blobCount, clock } = await openMirror(t, server.url, { wrap });
  for (const changes of [{ digest: digestOf(body) }, { whole: true }]) {
    t.true((await readEntry(await mirror.open(resource('/thing', changes)))).equals(body));
    await until(async () => (await staged()).length === 0);
    t.is(await blobCount(), 0);
  }
  isFull = false;
  const short = { lifetime: { freshFor: 1000, staleFor: 0 } };
  t.true((await readEntry(await mirror.open(resource('/thing', short)))).equals(body));
  await until(async () => (await blobCount()) === 1);
  isFull = true;
  clock.now = Date.now() + 10_000;
  server.on('/thing', answer(304));
  const renewed = await mirror.open(resource('/thing', short));
  t.is(renewed?.outcome, 'revalidated');
  t.true((await readEntry(renewed)).equals(body));
});

test.serial('an empty body is not stored while the disk takes no file', async (t) => {
  const made = await setUp(t);
  const { server, mirror, resource, blobCount, data } = made;
  server.on('/thing', serve(Buffer.alloc(0)));
  const empty = resource('/thing', { digest: digestOf('') });
  await rm(join(data, 'staging'), { recursive: true });
  await t.throwsAsync(mirror.open(empty), { name: 'StorageUnavailable' });
  t.is(await blobCount(), 0);
  await mkdir(join(data, 'staging'));
  t.is((await mirror.open(empty))?.size, 0);
  t.is(await blobCount(), 1);
});

test.serial(
  'of the large answers of an upstream in memory, one comes after the other; small ones do not wait',
  async (t) => {
    const { server, upstream } = await setUp(t, { settings: { timeout: '60s' } });
    const large = randomBytes(3 * 2 ** 20);
    for (const path of ['/first', '/second', '/other']) server.on(path, serve(large));
    server.on('/small', serve(large.subarray(0, 100_000)));
    const order: string[] = [];
    const read = (name: string, meanwhile?: Promise<void>, purpose = 'lists') =>
      largeInTurn(upstream, purpose, async (grown) => {
        const request = { url: new URL(`/${name}`, server.url), subject: name };
        const answered = await fetchBytes(upstream, request, 2 ** 30, grown);
        order.push(`${name} ${answered?.bytes.length}`);
        await meanwhile;
        order.push(`${name} is over`);
      });
    const { promise, resolve } = Promise.withResolvers<void>();
    const first = read('first', promise);
    await until(() => order.length === 1);
    const second = read('second');
    await until(() => server.count('/second') === 1);
    await read('small');
    await read('other', undefined, 'another purpose');
    resolve();
    await Promise.all([first, second]);
    t.deepEqual(order, [
      `first ${large.length}`,
      'small 100000',
      'small is over',
      `other ${large.length}`,
      'other is over',
      'first is over',
      `second ${large.length}`,
      'second is over',
    ]);
  },
);

const large = () => Readable.from([Buffer.alloc(2 ** 20 + 1), Buffer.alloc(1)]);

test.serial('an upstream whose large answer waits too long for another one has not failed', async (t) => {
  const failures: unknown[] = [];
  const upstream = {
    id: 'waiting',
    name: 'waiting',
    config: { timeout: 20 },
    send: () => Promise.resolve({ status: 200, headers: {}, body: large() }),
    bodyFailed: (error: unknown) => (failures.push(error), error),
  } as unknown as Upstream;
  await largeInTurn(upstream, 'lists', async (grown) => {
    await grown(2 ** 21);
    const request = { url: new URL('http://up.test/'), subject: 'second' };
    const second = largeInTurn(upstream, 'lists', (asGrown) => fetchBytes(upstream, request, 2 ** 30, asGrown));
    await t.throwsAsync(second, { name: 'TooManyRequests', message: /^This server reads other large answers of/ });
  });
  t.deepEqual(failures, []);
  // The time of a body does not run while it waits.
  const body = await readUpstreamBody(large(), 2 ** 30, 20, (size) => (size > 2 ** 20 + 1 ? undefined : sleep(60)));
  t.is(body.length, 2 ** 20 + 2);
  const stalled = new Readable({ read: () => undefined });
  stalled.push('x');
  const reads = readUpstreamBody(stalled, 2 ** 30, 20, () => sleep(60));
  await t.throwsAsync(reads, { message: 'the body did not come in time' });
});
