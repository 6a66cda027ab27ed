import { readdir } from 'node:fs/promises';
import { PassThrough, Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import { ImageBlobs } from '../../../src/oci/hosted/image-blobs.ts';
import type { Chunk } from '../../../src/oci/uploads/upload-body.ts';
import { Uploads } from '../../../src/oci/uploads/uploads.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { changedDatabase } from '../../support/databases.ts';
import { openStore } from '../../support/store.ts';
import { until, within } from '../../support/until.ts';

const start = 1_000_000_000_000;
const [accountId, repository] = [1, 'app'];
const unknown = { name: 'UploadUnknown' };

/** The uploads of a process, on a clock that stands still. */
async function open(t: ExecutionContext, blob: number | undefined = 100) {
  const clock = { now: start };
  const now = () => clock.now;
  const store = await openStore(t, 'sqlite', now);
  const { database, blobs, paths } = store;
  const images = new ImageBlobs(database, blobs, 1000, now);
  const uploadsOn = (folder = 'here', on = database) => {
    const limits = { blob, uploadIdle: 60_000, uploadAge: 5000 };
    const uploads = new Uploads(on, blobs, images, { limits: limits as never, now, folder });
    t.teardown(() => uploads.close());
    return uploads;
  };
  const uploads = uploadsOn();
  const begin = async (name = repository) => {
    const id = await uploads.start(accountId, name, 'sha256');
    return { accountId, repository: name, id };
  };
  const rows = async (columns = '*') =>
    (await database.select(`SELECT ${columns} FROM uploads ORDER BY received, id`)).map((each) => ({ ...each }));
  const stored = async (digest: Digest, name = repository) => {
    const content = await images.open(accountId, name, digest);
    return String(await readAll(content, 1000));
  };
  const change = (sql: string, values: (string | number)[] = []) => database.transaction((tx) => tx.run(sql, values));
  const files = () => readdir(paths.staging);
  return { ...store, clock, images, uploads, uploadsOn, begin, rows, stored, change, files };
}

function chunkOf(text: string | Readable, changes: Partial<Chunk> = {}): Chunk {
  const source = typeof text === 'string' ? Readable.from(text === '' ? [] : [Buffer.from(text)]) : text;
  const size = typeof text === 'string' ? text.length : 0;
  return { source, size, allowance: undefined, onData: () => undefined, ...changes };
}

/** A row between two requests. */
const rowOf = (received: string, updatedAt: number) => ({
  received: received.length,
  reserved: received.length,
  digest: digestOf(received),
  torn: 0,
  writer: null,
  writer_until: null,
  updated_at: updatedAt,
});

const idsOf = (...keys: { id: string }[]) => keys.map(({ id }) => id).toSorted();

const allowance = () =>
  Promise.resolve({ bytes: 50, refusal: () => new DomainError('QuotaExceeded', 'this account is full') });

test('a whole blob is stored, or nothing of it stays', async (t) => {
  const { uploads, rows, stored, files } = await open(t);
  for (const [text, allowed] of [
    ['one', undefined],
    ['two', allowance],
  ] as const) {
    let data = 0;
    const changes = { allowance: allowed, onData: (bytes: number) => (data += bytes) };
    await uploads.whole(accountId, repository, digestOf(text), chunkOf(text, changes));
    t.deepEqual([await stored(digestOf(text)), data], [text, 3]);
    const wrong = uploads.whole(accountId, repository, digestOf('other'), chunkOf(text, changes));
    await t.throwsAsync(wrong, { name: 'DigestMismatch' });
    const large = 'x'.repeat(101);
    const tooLarge = uploads.whole(accountId, repository, digestOf(large), chunkOf(large, changes));
    await t.throwsAsync(tooLarge, { name: 'TooLarge' });
    t.deepEqual([await rows(), await files()], [[], []]);
  }
  const exact = 'x'.repeat(100);
  await uploads.whole(accountId, repository, digestOf(exact), chunkOf(exact));
  t.is(await stored(digestOf(exact)), exact);
  const full = uploads.whole(accountId, repository, digestOf('y'.repeat(60)), chunkOf('y'.repeat(60), { allowance }));
  await t.throwsAsync(full, { name: 'QuotaExceeded' });
  t.deepEqual([await rows(), await files()], [[], []]);
  // A start is of a chunk, and a whole blob has none.
  await uploads.whole(accountId, repository, digestOf('three'), chunkOf('three', { allowance, start: 7 }));
  t.is(await stored(digestOf('three')), 'three');
});

test('an account has at most 1,000 sessions', async (t) => {
  const { uploads, database, rows, files, begin } = await open(t);
  const { id } = await begin();
  t.deepEqual(await rows(), [
    {
      id,
      account_id: accountId,
      repository,
      received: 0,
      digest: digestOf(''),
      torn: 0,
      writer: null,
      writer_until: null,
      created_at: start,
      updated_at: start,
      reserved: 0,
      folder: 'here',
      lost: 0,
    },
  ]);
  t.deepEqual([uploads.isOpen(id), uploads.isOpen('other'), await files()], [true, false, [id]]);
  await database.transaction(async (tx) => {
    for (let at = 0; at < 998; at += 1)
      await tx.insertNew('uploads', [
        { id: `row-${at}`, account_id: accountId, repository, received: 0, created_at: 0, updated_at: 0 },
      ]);
  });
  const last = await uploads.start(accountId, repository, 'sha512');
  t.is((await rows()).find((each) => each['id'] === last)?.['digest'], digestOf('', 'sha512'));
  await t.throwsAsync(begin(), { name: 'TooManyRequests' });
  t.is((await files()).length, 2);
  await t.notThrowsAsync(uploads.start(2, repository, 'sha256'));
});

test('chunks are appended where the session ends, and each is recorded', async (t) => {
  const { uploads, uploadsOn, rows, begin, clock, files, stored } = await open(t);
  const key = await begin();
  const columns = 'received, reserved, digest, torn, writer, writer_until, updated_at';
  let written = 0;
  const first = chunkOf('12345', { start: 0, length: 5, onData: (bytes) => (written += bytes) });
  clock.now += 1;
  t.is(await uploads.append(key, first), 5);
  t.is(written, 5);
  t.deepEqual(await rows(columns), [rowOf('12345', start + 1)]);
  for (const at of [4, 6, 0]) {
    const error = await t.throwsAsync(uploads.append(key, chunkOf('x', { start: at })), { name: 'UploadOutOfOrder' });
    t.deepEqual((error as DomainError).detail, { received: 5 });
  }
  clock.now += 1;
  // A chunk that is not what it announces, or too large, leaves nothing.
  const short = await t.throwsAsync(uploads.append(key, chunkOf('678', { length: 4 })), { name: 'LengthInvalid' });
  t.deepEqual((short as DomainError).detail, { expected: 4, received: 3 });
  await t.throwsAsync(uploads.append(key, chunkOf('x'.repeat(96))), { name: 'TooLarge' });
  t.deepEqual(await rows(columns), [rowOf('12345', start + 2)]);
  t.is(await uploads.received(key), 5);
  // Another process goes on with the file; then this one does not use the file that it has open.
  t.is(await uploads.append(key, chunkOf('6', { start: 5 })), 6);
  t.is(await uploadsOn().append(key, chunkOf('78', { start: 6 })), 8);
  t.is(await uploads.append(key, chunkOf('9', { start: 8 })), 9);
  t.deepEqual(await rows('received, torn'), [{ received: 9, torn: 0 }]);
  t.is(await uploads.append(key, chunkOf('')), 9);
  await uploads.finish(key, digestOf('1234567890'), chunkOf('0', { start: 9, length: 1 }));
  t.deepEqual([await rows(), await files(), await stored(digestOf('1234567890'))], [[], [], '1234567890']);
});

test('the bytes that arrived before a connection was cut are kept', async (t) => {
  const { uploads, rows, begin } = await open(t);
  const key = await begin();
  t.is(await uploads.append(key, chunkOf('12')), 2);
  const source = new PassThrough();
  source.on('error', () => undefined);
  let arrived = 0;
  const appended = uploads.append(key, chunkOf(source, { onData: (bytes) => (arrived += bytes) }));
  source.write('345');
  await until(() => arrived === 3);
  t.is(await uploads.received(key), 5, 'what has arrived counts');
  t.true(uploads.isOpen(key.id));
  const busy = uploads.append(key, chunkOf('6'));
  await t.throwsAsync(within(busy), { name: 'UploadBusy' });
  source.destroy(new Error('cut'));
  await t.throwsAsync(within(appended), { name: 'Aborted' });
  t.deepEqual(await rows('received, digest, writer'), [{ received: 5, digest: digestOf('12345'), writer: null }]);
  t.is(await uploads.append(key, chunkOf('6', { start: 5 })), 6);
});

test('a finished session is a blob; its end can be repeated, and that of no other', async (t) => {
  const { uploads, begin, rows, files, stored, change } = await open(t);
  const key = await begin();
  const digest = digestOf('12');
  await uploads.append(key, chunkOf('1'));
  await uploads.finish(key, digest, chunkOf('2'));
  t.deepEqual([await stored(digest), await rows(), await files()], ['12', [], []]);
  t.false(uploads.isOpen(key.id));
  await t.notThrowsAsync(uploads.finish(key, digest, chunkOf('2')));
  const other = await begin();
  for (const [wrong, what] of [
    [{ ...key, repository: 'other' }, digest],
    [{ ...key, accountId: 2 }, digest],
    [{ ...key, id: 'other' }, digest],
    [key, digestOf('1')],
  ] as const)
    await t.throwsAsync(uploads.finish(wrong, what, chunkOf('2')), unknown);
  await t.throwsAsync(uploads.finish(other, digest, chunkOf('1')), { name: 'DigestMismatch' });
  t.deepEqual([await rows(), await files()], [[], []], 'it is not known which of its bytes are wrong');
  // Without a last chunk, the digest that was recorded is used: the file is not read again.
  const known = await begin();
  await uploads.append(known, chunkOf('1'));
  await change('UPDATE uploads SET digest = ?', [digestOf('recorded')]);
  await t.throwsAsync(uploads.finish(known, digestOf('1'), chunkOf('')), { name: 'DigestMismatch' });
  const late = await begin();
  await change('UPDATE uploads SET digest = ?', [digestOf('recorded')]);
  await t.notThrowsAsync(uploads.finish(late, digestOf('1'), chunkOf('1')));
});

test('a writer that has lost its session changes nothing of it', async (t) => {
  const { uploads, begin, rows, files, change, blobs } = await open(t);
  const key = await begin();
  const taken = async (text: string) => {
    const source = new PassThrough();
    let arrived = 0;
    const finished = uploads.finish(key, digestOf(text), chunkOf(source, { onData: (bytes) => (arrived += bytes) }));
    source.write(text);
    await until(() => arrived === text.length);
    await change("UPDATE uploads SET writer = 'another'");
    source.end();
    await t.throwsAsync(within(finished), unknown);
    t.deepEqual(await files(), [key.id], text);
    t.is((await rows()).length, 1, text);
    await change('UPDATE uploads SET writer = NULL');
  };
  await taken('1');
  t.is(await blobs.stagedSize(key.id), 1);
  t.is((await rows('received'))[0]!['received'], 0);
});

test('a session whose end cannot be stored ends, and its bytes are removed', async (t) => {
  const { uploadsOn, begin, rows, files, database, images } = await open(t);
  const key = await begin();
  let failing = false;
  const uploads = uploadsOn(
    'here',
    changedDatabase(database, {
      transaction: (work, options) =>
        failing ? Promise.reject(new Error('away')) : database.transaction(work, options),
    }),
  );
  const [add, check] = [images.add.bind(images), new Error('not stored')];
  images.add = () => Promise.reject(check);
  t.is(await t.throwsAsync(uploads.finish(key, digestOf('1'), chunkOf('1'))), check);
  t.deepEqual([await rows(), await files()], [[], []]);
  const other = await begin();
  images.add = () => {
    failing = true;
    return Promise.reject(check);
  };
  t.is(await t.throwsAsync(uploads.finish(other, digestOf('1'), chunkOf('1'))), check);
  t.deepEqual([(await rows()).length, await files()], [1, []], 'it expires later');
  images.add = add;
});

test('the bytes of unfinished uploads count for their account', async (t) => {
  const { uploads, begin, change } = await open(t);
  t.is(await uploads.bytesOf(accountId), 0);
  const [one, two] = [await begin(), await begin('other')];
  await uploads.append(one, chunkOf('123'));
  await uploads.append(two, chunkOf('4567'));
  t.deepEqual([await uploads.bytesOf(accountId), await uploads.bytesOf(2)], [7, 0]);
  await change("UPDATE uploads SET writer = 'living', writer_until = ?, reserved = 50 WHERE id = ?", [
    start + 1,
    one.id,
  ]);
  t.is(await uploads.bytesOf(accountId), 54);
});

test('a session without the bytes that it has received is unknown', async (t) => {
  const { uploads, uploadsOn, begin, change, blobs } = await open(t);
  const key = await begin();
  await uploads.append(key, chunkOf('123'));
  const other = uploadsOn();
  t.deepEqual([await uploads.received(key), await other.received(key)], [3, 3]);
  await change('UPDATE uploads SET received = 2');
  t.is(await other.received(key), 2);
  await change('UPDATE uploads SET received = 4');
  await t.throwsAsync(other.received(key), unknown);
  t.is(await uploads.received(key), 4, 'an open file is not measured');
  await change('UPDATE uploads SET received = 0');
  await blobs.discardStaged(key.id);
  await t.throwsAsync(other.received(key), unknown);
  await t.throwsAsync(other.received({ ...key, repository: 'other' }), unknown);
  await t.throwsAsync(other.append(key, chunkOf('1')), unknown);
});

test('a cancelled session is gone with its bytes, and its writer is stopped', async (t) => {
  const { uploads, begin, rows, files } = await open(t);
  const [key, left] = [await begin(), await begin()];
  await uploads.cancel(key);
  t.deepEqual([await rows('id'), await files()], [[{ id: left.id }], [left.id]]);
  t.false(uploads.isOpen(key.id));
  await t.throwsAsync(uploads.cancel(key), unknown);
  const source = new PassThrough();
  source.on('error', () => undefined);
  let arrived = 0;
  const appended = uploads.append(left, chunkOf(source, { onData: (bytes) => (arrived += bytes) }));
  const stopped = t.throwsAsync(appended);
  source.write('1');
  await until(() => arrived === 1);
  await within(uploads.cancel(left));
  await within(stopped);
  t.true(source.destroyed);
  t.deepEqual([await rows(), await files()], [[], []]);
});

test('old sessions and stray files are removed, with their bytes counted', async (t) => {
  const { uploads, begin, clock, rows, blobs, files } = await open(t);
  const [old, changed, young] = [await begin(), await begin(), await begin()];
  await uploads.append(old, chunkOf('123'));
  clock.now = start + 10;
  await uploads.append(changed, chunkOf('4'));
  await uploads.append(young, chunkOf('5'));
  const stray = await blobs.stageHosted(0, []);
  await stray.write(Buffer.from('12345'));
  await stray.close();
  const none = { sessions: 0, files: 0, bytes: 0 };
  t.deepEqual(await uploads.expire(start + 5000), none);
  t.deepEqual(await uploads.expire(start + 5001), { sessions: 1, files: 0, bytes: 3 });
  t.deepEqual((await files()).toSorted(), [changed.id, young.id, stray.id].toSorted());
  t.deepEqual((await rows('received')).length, 2);
  // The time of a file is that of the disk.
  t.deepEqual(await uploads.expire(Date.now() + 60_000), { sessions: 2, files: 1, bytes: 7 });
  t.deepEqual([await rows(), await files()], [[], []]);
});

test('the lost sessions of a folder are dropped, and those that have had no file for a minute', async (t) => {
  const { uploads, begin, clock, rows, change, blobs, files } = await open(t);
  const [lost, gone, there, elsewhere] = [await begin(), await begin(), await begin(), await begin()];
  await change('UPDATE uploads SET lost = 1 WHERE id = ?', [lost.id]);
  await change("UPDATE uploads SET lost = 1, folder = 'there' WHERE id = ?", [elsewhere.id]);
  await blobs.discardStaged(gone.id);
  const left = async () => (await rows('id')).map(({ id }) => id);
  clock.now = start + 60_000;
  await uploads.dropLost();
  t.deepEqual(await left(), idsOf(gone, there, elsewhere));
  t.deepEqual((await files()).toSorted(), idsOf(there, elsewhere));
  clock.now = start + 60_001;
  await uploads.dropLost();
  t.deepEqual(await left(), idsOf(there, elsewhere));
});

test('a writer that sends nothing for two seconds is stopped for the next one, and the end waits for writers', async (t) => {
  const { uploads, begin, rows } = await open(t);
  const key = await begin();
  const silent = new PassThrough();
  silent.on('error', () => undefined);
  let arrived = 0;
  const appended = uploads.append(key, chunkOf(silent, { onData: (bytes) => (arrived += bytes) }));
  const stopped = t.throwsAsync(appended, { name: 'Aborted' });
  silent.write('12');
  await until(() => arrived === 2);
  await t.throwsAsync(uploads.append(key, chunkOf('3')), { name: 'UploadBusy' });
  await until(async () => {
    const found = await uploads.append(key, chunkOf('3')).catch(() => undefined);
    return found === 3;
  });
  await stopped;
  t.true(silent.destroyed);
  const source = new PassThrough();
  const last = uploads.append(key, chunkOf(source));
  await until(async () => (await rows('writer'))[0]!['writer'] !== null);
  let isClosed = false;
  const closed = uploads.close().then(() => (isClosed = true));
  source.end('45');
  t.is(await last, 5);
  t.false(isClosed);
  await closed;
  t.false(uploads.isOpen(key.id));
});

test('the storage may take a body while it arrives, if the body is the whole blob', async (t) => {
  const { uploads, blobs, begin } = await open(t);
  const calls: unknown[] = [];
  blobs.putEarly = (digest, staged, size) => {
    calls.push([digest, staged.size, size]);
    return { grown: () => calls.push('grown'), stop: () => calls.push('stop') };
  };
  await uploads.whole(accountId, repository, digestOf('one'), chunkOf('one'));
  t.deepEqual(calls.splice(0), [[digestOf('one'), 0, 3], 'grown', 'stop']);
  await t.throwsAsync(uploads.whole(accountId, repository, digestOf('two'), chunkOf('one')));
  t.deepEqual(calls.splice(0), [[digestOf('two'), 0, 3], 'grown', 'stop']);
  const key = await begin();
  await uploads.append(key, chunkOf('1'));
  await uploads.finish(key, digestOf('12'), chunkOf('2'));
  t.deepEqual(calls, [], 'its first bytes are not in this body');
  await uploads.finish(await begin(), digestOf('34'), chunkOf('34'));
  t.deepEqual(calls, [[digestOf('34'), 0, 2], 'grown', 'stop']);
});
