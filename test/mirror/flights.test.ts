import test, { type ExecutionContext } from 'ava';
import { randomBytes } from 'node:crypto';
import { readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { digestOf } from '../../src/runtime/digest.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import type { MirrorEntry } from '../../src/mirror/mirror.ts';
import type { StagedFile } from '../../src/storage/files/staged-file.ts';
import { changedDatabase, dialects, temporaryDatabase } from '../support/databases.ts';
import { answer, held, serve, startFaultyUpstream, type Behaviour } from '../support/upstreams/faulty-upstream.ts';
import { digestEntry, openMirror, readEntry, type MirrorSetup } from '../support/mirror.ts';
import { until } from '../support/until.ts';

// In a process of its own: it measures the process.

const large = randomBytes(32 * 2 ** 20);
const largeDigest = digestOf(large);

async function setUp(t: ExecutionContext, setup: MirrorSetup = {}) {
  const server = await startFaultyUpstream(t);
  return { server, ...(await openMirror(t, server.url, setup)) };
}

/** The files of bodies that this process has open, as Linux lists them, with their present paths. The driver keeps the folder open. */
async function openFiles(data: string): Promise<string[]> {
  const descriptors = await readdir('/proc/self/fd').catch(() => []);
  const targets = await Promise.all(descriptors.map((each) => readlink(`/proc/self/fd/${each}`).catch(() => '')));
  return targets.filter((target) => ['staging/', 'blobs/'].some((folder) => target.startsWith(join(data, folder))));
}

/** Sends the first half, and the second at `release`. */
function inHalves(bytes: Buffer): { behaviour: Behaviour; release: () => void } {
  const second = held((_request, response) => void response.end(bytes.subarray(bytes.length / 2)));
  return {
    behaviour: (request, response) => {
      response.writeHead(200, { 'content-length': bytes.length });
      response.write(bytes.subarray(0, bytes.length / 2));
      second.behaviour(request, response);
    },
    release: second.release,
  };
}

/** Whether a reader gets all of `large`, compared piece by piece: a hundred copies would need too much memory. */
async function follow(entry: MirrorEntry | undefined, target: Buffer): Promise<boolean> {
  let position = 0;
  let right = true;
  for (;;) {
    const read = await entry!.content.read(target, position);
    if (read === 0) break;
    right &&= target.subarray(0, read).equals(large.subarray(position, position + read));
    position += read;
  }
  entry!.content.close();
  return right && position === large.length;
}

test.serial(
  'a hundred readers of one missing 32 MiB body cause one request, and all get the right bytes',
  async (t) => {
    const { server, mirror, resource, staged, data } = await setUp(t);
    const body = inHalves(large);
    server.on('/thing', body.behaviour);
    const read = async () =>
      follow(await mirror.open(resource('/thing', { digest: largeDigest })), Buffer.alloc(256 * 1024));
    // Some start at once, some when half of it has arrived, some when it is stored.
    const readers = Array.from({ length: 40 }, read);
    await until(() => server.asked.length === 1);
    readers.push(...Array.from({ length: 40 }, read));
    body.release();
    await readers[0];
    readers.push(...Array.from({ length: 20 }, read));
    t.deepEqual(new Set(await Promise.all(readers)), new Set([true]));
    t.is(server.asked.length, 1);
    await mirror.close();
    t.deepEqual(await staged(), []);
    t.deepEqual(await openFiles(data), [], 'no file is left open');
  },
);

test.serial('a reader that leaves, the first included, stops no other reader', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  const body = inHalves(large);
  server.on('/thing', body.behaviour);
  const first = await mirror.open(resource('/thing', { digest: largeDigest }));
  const second = await mirror.open(resource('/thing', { digest: largeDigest }));
  t.true((await first!.content.read(Buffer.alloc(1000), 0)) > 0);
  first!.content.close();
  const rest = digestEntry(second);
  body.release();
  t.is(await rest, largeDigest);
  t.is(server.asked.length, 1);
});

test.serial('when all readers leave, the fetch continues, and the body is stored', async (t) => {
  const { server, mirror, resource, data } = await setUp(t);
  const body = inHalves(large);
  server.on('/thing', body.behaviour);
  const entry = await mirror.open(resource('/thing', { digest: largeDigest }));
  entry!.content.close();
  body.release();
  await entry!.complete;
  t.deepEqual(await openFiles(data), [], 'no reader is left to close the file');
  const again = await mirror.open(resource('/thing', { digest: largeDigest }));
  t.is(again!.outcome, 'hit');
  t.is(await digestEntry(again), largeDigest);
  t.is(server.asked.length, 1);
});

test.serial('a reader may start at any position and wait for bytes that have not arrived', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  const body = inHalves(large);
  server.on('/thing', body.behaviour);
  const get = () => mirror.open(resource('/thing', { digest: largeDigest }));
  const there = await readEntry(await get(), 1_000_000, 3_000_000);
  t.true(there.equals(large.subarray(1_000_000, 3_000_000)));
  const late = readEntry(await get(), large.length - 1000);
  const across = readEntry(await get(), large.length / 2 - 500, large.length / 2 + 500);
  body.release();
  t.true((await late).equals(large.subarray(large.length - 1000)));
  t.true((await across).equals(large.subarray(large.length / 2 - 500, large.length / 2 + 500)));
});

test.serial('the last byte is held back until the whole body is stored', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  const small = randomBytes(20_000);
  const { promise: verified, resolve: verify } = Promise.withResolvers<void>();
  // The mirror closes only when the body is verified.
  t.teardown(verify);
  server.on('/thing', serve(small));
  const entry = await mirror.open(resource('/thing', { verify: () => verified.then(() => ({ seen: 'yes' })) }));
  const target = Buffer.alloc(30_000);
  let position = 0;
  while (position < 19_999) position += await entry!.content.read(target, position);
  t.is(position, 19_999);
  const last = entry!.content.read(target, position);
  verify();
  t.is(await last, 1);
  entry!.content.close();
  const { attributes } = await entry!.complete;
  t.deepEqual(attributes, { seen: 'yes' });
  t.deepEqual((await mirror.stored(resource('/thing').key))?.attributes, { seen: 'yes' });
});

test.serial('a request at the end of a fetch gets the stored body', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  for (let round = 0; round < 30; round += 1) {
    const path = `/thing-${round}`;
    const body = randomBytes(2000);
    server.on(path, serve(body));
    const readers: Promise<Buffer>[] = [];
    const come = () => readers.push(mirror.open(resource(path)).then((entry) => readEntry(entry)));
    come();
    const state = { landed: false };
    void readers[0]!.then(() => (state.landed = true));
    while (!state.landed) {
      come();
      await new Promise(setImmediate);
    }
    for (let extra = 0; extra < 5; extra += 1) come();
    for (const seen of await Promise.all(readers)) t.true(seen.equals(body));
    t.is(server.count(path), 1);
  }
});

test.serial('many readers of a missing resource cause one request', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  const answers = await Promise.all(Array.from({ length: 50 }, () => mirror.open(resource('/missing'))));
  t.true(answers.every((each) => each === undefined));
  t.is(server.asked.length, 1);
});

test.serial('many readers of a failing upstream cause the requests of one, and all get the error', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  server.on('/thing', answer(500));
  const asked = Array.from({ length: 50 }, () => t.throwsAsync(mirror.open(resource('/thing'))));
  for (const error of await Promise.all(asked)) t.is(error.name, 'UpstreamUnavailable');
  t.is(server.asked.length, 3);
});

for (const dialect of dialects) {
  test.serial(
    `two instances on one ${dialect} database: both serve one entry, and the second sends no request`,
    async (t) => {
      const server = await startFaultyUpstream(t);
      const databaseUrl = await temporaryDatabase(t, dialect);
      const a = await openMirror(t, server.url, { databaseUrl });
      const b = await openMirror(t, server.url, { databaseUrl, data: a.data });
      const lifetime = { freshFor: 60_000, staleFor: 600_000 };
      const open = ({ mirror, resource }: typeof a) => mirror.open(resource('/thing', { lifetime }));
      const body = randomBytes(300_000);
      server.on('/thing', serve(body, { headers: { etag: '"1"' } }));
      a.clock.now = b.clock.now = 1_700_000_000_000;

      // Both at the same time: each may send a request, and both succeed.
      const both = await Promise.all([open(a), open(b), open(a), open(b)]);
      for (const entry of both) t.true((await readEntry(entry)).equals(body));
      await Promise.all(both.map((entry) => entry!.complete));
      t.true(server.asked.length <= 2);
      t.is(await a.blobCount(), 1);

      // One renews the entry. The other one's memory is older, so it reads the database and finds the renewed entry.
      a.clock.now = b.clock.now += 60_000;
      server.on('/thing', answer(304));
      const before = server.asked.length;
      t.is((await open(a))!.outcome, 'revalidated');
      t.is((await open(b))!.outcome, 'hit');
      t.is(server.asked.length, before + 1);
    },
  );

  test.serial(`uses are recorded in batches on ${dialect}`, async (t) => {
    const { server, mirror, resource, entries, database, clock } = await setUp(t, {
      databaseUrl: await temporaryDatabase(t, dialect),
    });
    clock.now = 1_000_000;
    for (const path of ['/a', '/b', '/c']) {
      server.on(path, serve(Buffer.from(path)));
      const entry = await mirror.open(resource(path));
      entry!.content.close();
      await entry!.complete;
    }
    clock.now = 2_000_000;
    for (const path of ['/a', '/c', '/a']) (await mirror.open(resource(path)))!.content.close();
    for (let other = 0; other < 1200; other += 1) entries.used(other.toString(16).padStart(64, '0'));
    await entries.flushUses();
    const rows = await database.select<{ reference: string; used_at: number }>(
      'SELECT reference, used_at FROM mirror_entries ORDER BY reference',
    );
    t.deepEqual(
      rows.map(({ reference, used_at }) => [reference, used_at]),
      [
        ['/a', 2_000_000],
        ['/b', 1_000_000],
        ['/c', 2_000_000],
      ],
    );
  });
}

test.serial('uses that could not be recorded are recorded the next time', async (t) => {
  let broken = false;
  const { server, mirror, resource, entries, database, clock } = await setUp(t, {
    wrap: (real) =>
      changedDatabase(real, {
        transaction: (work, options) =>
          broken ? Promise.reject(new Error('the database is away')) : real.transaction(work, options),
      }),
  });
  server.on('/thing', serve(Buffer.from('x')));
  await (await mirror.open(resource('/thing')))!.complete;
  (await mirror.open(resource('/thing')))!.content.close();
  broken = true;
  await t.throwsAsync(entries.flushUses(), { message: /away/ });
  broken = false;
  clock.now = 5_000_000;
  await entries.flushUses();
  t.is((await database.get<{ used_at: number }>('SELECT used_at FROM mirror_entries'))?.used_at, 5_000_000);

  // A failed commit is an error for the readers, and leaves nothing behind.
  broken = true;
  server.on('/other', serve(large));
  const entry = await mirror.open(resource('/other', { digest: largeDigest }));
  await t.throwsAsync(digestEntry(entry), { message: /away/ });
  await mirror.close();
  broken = false;
  t.is(await digestEntry(await mirror.open(resource('/other', { digest: largeDigest }))), largeDigest);
});

/** Makes a staged file fail as on a full disk: after its first mebibyte nothing can be written. */
function fill(staged: StagedFile): void {
  const append = staged.append.bind(staged);
  staged.append = async (source, options) => {
    const progress = () => {
      options?.progress?.();
      if (staged.size > 2 ** 20) void staged.close();
    };
    try {
      return await append(source, { ...options, progress });
    } catch (cause) {
      throw Object.assign(new Error('no space left', { cause }), { code: 'ENOSPC' });
    }
  };
}

test.serial('a full disk ends the fetch, not the process; nothing is left or stored', async (t) => {
  let isFull = true;
  const stage = (staged: StagedFile) => {
    if (isFull) fill(staged);
  };
  const { server, mirror, resource, staged, blobCount, lines } = await setUp(t, { stage });
  server.on('/thing', serve(large));
  const entry = await mirror.open(resource('/thing', { digest: largeDigest }));
  await t.throwsAsync(digestEntry(entry), { code: 'ENOSPC' });
  await t.throwsAsync(entry!.complete);
  // Without a reader, too.
  (await mirror.open(resource('/thing', { digest: largeDigest })))!.content.close();
  await mirror.close();
  t.deepEqual(await staged(), []);
  t.is(await blobCount(), 0);
  t.true(lines.some((line) => line.includes('no space left')));
  isFull = false;
  t.is(await digestEntry(await mirror.open(resource('/thing', { digest: largeDigest }))), largeDigest);
});

function broken(): never {
  throw new DomainError('StorageUnavailable', 'broken');
}

test.serial('if the storage fails, the request fails and the upstream’s connection is closed', async (t) => {
  const { server, mirror, resource } = await setUp(t, { stage: broken });
  let closed = false;
  server.on('/thing', (request, response) => {
    response.once('close', () => (closed = !response.writableFinished));
    serve(large)(request, response);
  });
  await t.throwsAsync(mirror.open(resource('/thing')), { name: 'StorageUnavailable' });
  await until(() => closed);
  t.pass();
});

test.serial('a fetch that fails without readers does not end the process', async (t) => {
  const { server, mirror, resource, staged } = await setUp(t);
  const body = inHalves(large);
  const { promise: left, resolve: leave } = Promise.withResolvers<void>();
  server.on('/thing', (request, response) => {
    body.behaviour(request, response);
    void left.then(() => request.socket.destroy());
  });
  (await mirror.open(resource('/thing', { digest: largeDigest, idle: 50 })))!.content.close();
  leave();
  await mirror.close();
  t.deepEqual(await staged(), []);
});

test.serial('the first bytes of a miss are served before the upstream sends more', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  const rest = held((_request, response) => void response.end(Buffer.alloc(980_000)));
  server.on('/thing', (request, response) => {
    response.writeHead(200, { 'content-length': 1_000_000 });
    response.write(Buffer.alloc(20_000));
    rest.behaviour(request, response);
  });
  // The upstream waits until this read ends; after 10 s the read is given up.
  const entry = await mirror.open(resource('/thing', { idle: 10_000 }));
  const first = await entry!.content.read(Buffer.alloc(512 * 1024), 0);
  t.true(first > 16_384 && first < 20_000, 'what came, but for the withheld byte');
  entry!.content.close();
  rest.release();
  t.is((await entry!.complete).size, 1_000_000);
  t.is(server.asked.length, 1, 'it was not given up in between');
});

test.serial('a short outage of the database loses no bytes of a body', async (t) => {
  let isAway = false;
  const { server, mirror, resource } = await setUp(t, {
    mirror: { unreadRest: 0 },
    wrap: (real) =>
      changedDatabase(real, {
        get: (sql, values) => (isAway ? Promise.reject(new Error('the database is away')) : real.get(sql, values)),
      }),
  });
  server.on('/thing', inHalves(large).behaviour, serve(large));
  const open = () => mirror.open(resource('/thing', { digest: largeDigest, idle: 5000 }));
  const left = await open();
  await left!.content.read(Buffer.alloc(1000), 0);
  left!.content.close();
  await t.throwsAsync(left!.complete, { name: 'Aborted' });
  isAway = true;
  await t.throwsAsync(open(), { message: /away/ });
  isAway = false;
  t.is(await digestEntry(await open()), largeDigest);
  t.is(server.asked.length, 2);
  t.regex(server.asked[1]!.range ?? '', /^bytes=\d+-$/);
});

test.serial('a body that was left is fetched anew if the upstream refuses to send its rest', async (t) => {
  const { server, mirror, resource } = await setUp(t, { mirror: { unreadRest: 0 } });
  server.on('/thing', inHalves(large).behaviour, answer(416), serve(large));
  const open = () => mirror.open(resource('/thing', { digest: largeDigest, idle: 5000 }));
  const left = await open();
  await left!.content.read(Buffer.alloc(1000), 0);
  left!.content.close();
  await t.throwsAsync(left!.complete, { name: 'Aborted' });
  t.is(await digestEntry(await open()), largeDigest);
  t.deepEqual(
    server.asked.map(({ range }) => range !== undefined),
    [false, true, false],
  );
});
