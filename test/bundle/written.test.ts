import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { DigestSet, HeldDigests } from '../../src/bundle/digest-set.ts';
import { readSigningKey, newKeyPair } from '../../src/bundle/keys.ts';
import { Pieces } from '../../src/bundle/pieces.ts';
import { planSegments } from '../../src/bundle/plan.ts';
import { openBundle, type OpenBundle } from '../../src/bundle/read.ts';
import { checkBytes } from '../../src/bundle/verify.ts';
import { encoded, partOf, prepareFolder, writeDurably, writeSegments } from '../../src/bundle/write.ts';
import type { BundleBlob, BundleEntry, BundleHeader } from '../../src/bundle/format.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import type { BlobStore } from '../../src/storage/blobs/blob-store.ts';
import { contentOf, readAll, type Content } from '../../src/storage/files/content.ts';
import { TarWriter } from '../../src/storage/files/tar.ts';
import { bundleEntry, headerOf } from '../support/bundles.ts';
import { folderUntilEnd } from '../support/folder.ts';

// The segments of a bundle are planned, written, and read again, without an installation.

const mebibyte = 2 ** 20;

function entryOf(name: string, digest: Digest, size: number): BundleEntry {
  return bundleEntry({ kind: 'blob', name, reference: digest, digest, size, type: 'application/octet-stream' });
}

/** Content in memory: one that is larger than a segment, four that fill segments, one that the receiver has. */
function setUp(limit: number | null = 1.25 * mebibyte) {
  const bytes = new Map<Digest, Buffer>();
  const add = (some: Buffer) => {
    bytes.set(digestOf(some), some);
    return digestOf(some);
  };
  const large = add(randomBytes(2.5 * mebibyte));
  for (let at = 0; at < 4; at += 1) add(randomBytes(400_000));
  const known = add(Buffer.from('the receiver has it'));
  let open = 0;
  const opened = (some: Buffer): Content => {
    open += 1;
    return { ...contentOf(some), close: () => void (open -= 1) };
  };
  const store = { open: (digest: Digest) => Promise.resolve(opened(bytes.get(digest)!)) } as unknown as BlobStore;
  const contents = [...bytes].map(([digest, { length: size }]) => ({ digest, size }));
  const entries = contents.map(({ digest, size }, at) => entryOf(`app${at}`, digest, size));
  const plan = () => planSegments(store, contents, entries, { limit: limit ?? undefined, base: new Set([known]) });
  const listOf = async (changes: Partial<BundleHeader> = {}) => {
    const { blobs, segments, bytes: all } = await plan();
    const counts = { segments, blob_count: blobs.length, entry_count: entries.length, bytes: all };
    const header = { ...headerOf(counts), ...changes };
    return encoded({ header, blobs, entries });
  };
  return { bytes, large, known, store, contents, entries, plan, listOf, isOpen: () => open };
}

const { signal } = new AbortController();
const none = { key: undefined, watch: () => undefined, signal };

async function written(t: ExecutionContext, changes?: Partial<BundleHeader>) {
  const made = setUp();
  const folder = await folderUntilEnd(t);
  const list = await made.listOf(changes);
  const watched: number[] = [];
  await writeSegments(folder, list, { ...none, store: made.store, watch: (bytes) => watched.push(bytes) });
  return { ...made, folder, list, watched, names: async () => (await readdir(folder)).toSorted() };
}

const invalid = (message: string | RegExp) => ({ name: 'Invalid', message });

test('content is divided into segments in the order of its digests, and what is larger than one is cut', async (t) => {
  const { bytes, large, known, plan, contents, isOpen } = setUp();
  const { blobs, segments, bytes: all } = await plan();
  t.deepEqual(
    blobs.map(({ digest }) => digest),
    contents.map(({ digest }) => digest).toSorted(),
  );
  t.is(all, 2.5 * mebibyte + 1_600_000, 'without what the receiver has');
  t.deepEqual(
    blobs.find(({ digest }) => digest === known),
    { digest: known, size: bytes.get(known)!.length, base: true },
  );
  const { parts } = blobs.find(({ digest }) => digest === large) as Extract<BundleBlob, { parts: unknown }>;
  t.is(parts.length, 3);
  t.is(parts[0]!.size, parts[1]!.size);
  let at = 0;
  for (const { digest, size } of parts) {
    t.is(digestOf(bytes.get(large)!.subarray(at, at + size)), digest);
    at += size;
  }
  t.is(at, 2.5 * mebibyte);
  t.is(isOpen(), 0);
  const places = blobs.flatMap((each) =>
    'parts' in each ? each.parts.map(({ segment }) => segment) : 'segment' in each ? [each.segment] : [],
  );
  t.deepEqual(
    places,
    places.toSorted((one, other) => one - other),
  );
  t.deepEqual([places[0], places.at(-1)], [1, segments]);
  const whole = await setUp(null).plan();
  t.is(whole.segments, 1);
  t.true(whole.blobs.every((each) => 'base' in each || ('segment' in each && each.segment === 1)));
  await t.throwsAsync(setUp(600_000).plan(), invalid(/^a segment needs at least 1 MiB for this bundle, because each/));
});

async function read(bundle: OpenBundle, blob: BundleBlob, elsewhere?: Buffer[]) {
  const opening = elsewhere && (() => () => Promise.resolve(contentOf(elsewhere.shift()!)));
  const found = await bundle.open(blob, opening);
  return found && { place: found.place, bytes: await readAll(found.content, 3 * mebibyte) };
}

function planOf(limit: number, ...sizes: number[]) {
  const all = sizes.map((size, at) => Buffer.alloc(size, at));
  const contents = all.map((each) => ({ digest: digestOf(each), size: each.length }));
  const open = (wanted: Digest) => Promise.resolve(contentOf(all.find((each) => digestOf(each) === wanted)!));
  const entries = contents.map(({ digest, size }, at) => entryOf(`app${at}`, digest, size));
  return planSegments({ open } as unknown as BlobStore, contents, entries, { limit, base: new Set() });
}

test('a segment is filled to its last block, and content that just fits is not cut', async (t) => {
  const header = 512;
  const least = 1_000_000;
  const { blobs } = await planOf(2_300_000, 2_500_000, least);
  const parts = blobs.flatMap((each) => ('parts' in each ? each.parts : []));
  // A part takes all that a segment has for content, without the headers.
  let room = parts[0]!.size + 2 * header;
  const limit = 2_300_000 - (room % header);
  room -= room % header;
  const rest = room - (header + Math.ceil(least / header) * header) - header;
  t.is((await planOf(limit, least, rest)).segments, 1);
  t.is((await planOf(limit, least, rest + 1)).segments, 2);
  const isCut = async (size: number) => (await planOf(limit, size, least)).blobs.some((each) => 'parts' in each);
  t.false(await isCut(room - 2 * header));
  t.true(await isCut(room - 2 * header + 1));
});

test('a bundle is read as it was written, whole or in part', async (t) => {
  const { bytes, large, known, folder, list, watched, names, isOpen } = await written(t);
  const { segments, bytes: all } = list.list.header;
  const files = Array.from({ length: segments }, (_, at) => `000${at + 1}.tar`);
  t.deepEqual(await names(), files);
  for (const each of files) t.true((await stat(join(folder, each))).size <= 1.25 * mebibyte, each);
  t.is(watched.at(-1), all);
  t.deepEqual(
    watched,
    watched.toSorted((one, other) => one - other),
  );
  t.is(isOpen(), 0);

  await using bundle = await openBundle([folder]);
  t.is(bundle.id, list.digest);
  t.false(bundle.isPlain);
  const { blobs } = bundle.list;
  t.deepEqual(bundle.list.header, list.list.header);
  t.deepEqual(await bundle.lacking(blobs), []);
  for (const blob of blobs) {
    const found = await read(bundle, blob);
    if (blob.digest === known) t.is(found, undefined);
    else t.true(found!.bytes.equals(bytes.get(blob.digest)!));
    if ('segment' in blob) t.is(found!.place, join(folder, files[blob.segment - 1]!));
  }
  const cut = blobs.find(({ digest }) => digest === large) as Extract<BundleBlob, { parts: unknown }>;
  const places = cut.parts.map(({ segment }) => join(folder, files[segment - 1]!));
  t.is((await read(bundle, cut))!.place, places.join(', '));
  t.is(await read(bundle, { ...cut, parts: cut.parts.map((each) => ({ ...each, size: each.size + 1 })) }), undefined);
  const progress: [number, number][] = [];
  const watch = (done: number, of: number) => void progress.push([done, of]);
  t.deepEqual(await checkBytes(bundle, { watch, signal }), { count: 5, bytes: all, damaged: [], base: 1 });
  t.deepEqual(progress.at(-1), [all, all]);

  const first = cut.parts[0]!;
  const some = files.filter((_, at) => at + 1 !== first.segment).map((name) => join(folder, name));
  await using rest = await openBundle(some);
  t.deepEqual(await rest.lacking(blobs), [first.segment]);
  t.is(await read(rest, cut), undefined);
  const elsewhere = await read(rest, cut, [bytes.get(large)!.subarray(0, first.size)]);
  t.true(elsewhere!.bytes.equals(bytes.get(large)!));
  t.is(elsewhere!.place, places.slice(1).join(', '), 'only what is here');
});

test('bytes that differ from their digest are found, with the segment that has them', async (t) => {
  const { folder, list } = await written(t);
  const blob = list.list.blobs.find((each) => 'segment' in each) as Extract<BundleBlob, { segment: number }>;
  const path = join(folder, `000${blob.segment}.tar`);
  const file = await readFile(path);
  const at = file.indexOf(`blobs/sha256/${blob.digest.slice(7)}`) + 512;
  file[at]! ^= 1;
  await writeFile(path, file);
  await using bundle = await openBundle([folder]);
  const found = await checkBytes(bundle, { watch: () => undefined, signal });
  t.deepEqual(found.damaged, [{ digest: blob.digest, place: path }]);
  t.is(found.count, 4);
  t.is(found.bytes, list.list.header.bytes - blob.size);
  const stop = { watch: () => undefined, signal: AbortSignal.abort() };
  await t.throwsAsync(checkBytes(bundle, stop), { name: 'AbortError' });
});

function statement(text: string): string {
  const payload = Buffer.from(text).toString('base64');
  const payloadType = 'application/vnd.entrepot.bundle.v1+json';
  return `${JSON.stringify({ payloadType, payload, signatures: [] })}\n`;
}

test('what is no segment, or not of the same bundle, is refused', async (t) => {
  const { folder, list } = await written(t);
  const other = await written(t, { created_at: 2 });
  const empty = await folderUntilEnd(t);
  await t.throwsAsync(openBundle([empty]), invalid(`${empty}: no segment of a bundle is here, such as 0001.tar`));
  await t.throwsAsync(openBundle([join(empty, 'none')]), invalid(/none cannot be read: ENOENT/));
  const many = Array.from({ length: 501 }, () => join(folder, '0001.tar'));
  await t.throwsAsync(openBundle(many), invalid('these are 501 segments; import at most 500 in one go'));
  const [one, two] = [join(folder, '0001.tar'), join(other.folder, '0002.tar')];
  await t.throwsAsync(
    openBundle([one, two]),
    invalid(`${two} belongs to another bundle than ${one}. Give the segments of one bundle`),
  );
  const admitted: unknown[] = [];
  const admit = (envelope: unknown) => {
    admitted.push(envelope);
    return Promise.reject(new Error('a stranger'));
  };
  await t.throwsAsync(openBundle([folder], admit), { message: 'a stranger' });
  t.is(admitted.length, 1);

  const write = async (members: Record<string, string>) => {
    const path = join(empty, '0001.tar');
    await rm(path, { force: true });
    await using tar = await TarWriter.create(path, { mode: 0o644, time: new Date(0) });
    for (const [name, text] of Object.entries(members)) await tar.add(name, text.length, [Buffer.from(text)]);
    await tar.finish();
    return path;
  };
  const noSegment = (path: string) => invalid(`${path} is no segment of a bundle of Entrepot`);
  let path = await write({ 'bundle.json': '{}' });
  await t.throwsAsync(openBundle([empty]), noSegment(path));
  path = await write({ 'bundle.json': '{}', 'bundle.dsse.json': ' '.repeat(65_537) });
  await t.throwsAsync(openBundle([empty]), noSegment(path));
  path = await write({ 'bundle.dsse.json': statement(`{"list":"${list.digest}"}`) });
  await t.throwsAsync(openBundle([empty]), noSegment(path));
  path = await write({ 'bundle.json': '{}', 'bundle.dsse.json': statement('{"list":"x"}') });
  await t.throwsAsync(openBundle([empty]), invalid(`${path}: the statement that is signed cannot be read`));
  path = await write({ 'bundle.json': '{}', 'bundle.dsse.json': statement(`{"list":"${list.digest}"}`) });
  await t.throwsAsync(
    openBundle([empty]),
    invalid(`${path}: bundle.json was altered after it was signed, or is damaged`),
  );
});

test('a folder with other files is refused, and one that was begun goes on with the segments that are complete', async (t) => {
  const { folder, list, store, names } = await written(t);
  const files = await names();
  const made = await readFile(join(folder, '0001.tar'));
  await writeFile(join(folder, 'bundle.json.part'), 'the list');
  await writeFile(join(folder, '0009.tar.part'), '');
  t.is((await prepareFolder(folder))!.toString(), 'the list');
  await writeFile(join(folder, 'more'), '');
  await t.throwsAsync(
    prepareFolder(folder),
    invalid(`${folder} is not empty: it has more. Name a new folder for the bundle`),
  );
  for (const each of ['more', '0009.tar.part', 'bundle.json.part']) await rm(join(folder, each));
  await t.throwsAsync(prepareFolder(folder), invalid(/ is not empty: it has 000\d\.tar\. Name/));
  const fresh = join(folder, 'a', 'b');
  t.is(await prepareFolder(fresh), undefined);
  t.deepEqual(await readdir(fresh), []);
  await rm(join(folder, 'a'), { recursive: true });

  const inode = async (name: string) => (await stat(join(folder, name))).ino;
  const before = await inode('0001.tar');
  await rm(join(folder, '0002.tar'));
  await writeFile(join(folder, '0003.tar'), 'broken');
  let watched = 0;
  await writeSegments(folder, list, { ...none, store, watch: (bytes) => (watched = bytes) });
  t.is(await inode('0001.tar'), before, 'it was complete');
  t.true(watched > 0 && watched < list.list.header.bytes);
  t.deepEqual(await names(), files);
  t.true((await readFile(join(folder, '0001.tar'))).equals(made));
  await (await openBundle([folder]))[Symbol.asyncDispose]();

  const key = readSigningKey(newKeyPair().privateKey, 'own.key');
  await writeSegments(folder, list, { ...none, store, key });
  t.not(await inode('0001.tar'), before, 'it had another key');
  await using signed = await openBundle([folder]);
  t.is(signed.envelope.signatures[0]!.keyId, key.id);
  const stopped = writeSegments(await folderUntilEnd(t), list, { ...none, store, signal: AbortSignal.abort() });
  await t.throwsAsync(stopped, { name: 'AbortError' });
});

test('stored bytes that are not those of their digest end the writing', async (t) => {
  const { listOf, bytes, store } = setUp();
  const list = await listOf();
  const folder = await folderUntilEnd(t);
  for (const some of bytes.values()) some[0]! ^= 1;
  await t.throwsAsync(writeSegments(folder, list, { ...none, store }), { name: 'ContentDamaged' });
  t.true((await readdir(folder)).includes('bundle.json.part'), 'another attempt can go on');
});

test('a file is written as a whole or not at all', async (t) => {
  const folder = await folderUntilEnd(t);
  const path = join(folder, 'file');
  await writeDurably(path, [Buffer.from('a'), Buffer.from('b')]);
  t.is(await readFile(path, 'utf8'), 'ab');
  await mkdir(join(folder, 'taken'));
  await writeFile(join(folder, 'taken', 'x'), '');
  await t.throwsAsync(writeDurably(join(folder, 'taken'), [Buffer.from('c')]));
  t.deepEqual((await readdir(folder)).toSorted(), ['file', 'taken']);
});

test('a part of content ends where the part does', async (t) => {
  let closed = 0;
  const part = partOf({ ...contentOf(Buffer.from('0123456789')), close: () => void (closed += 1) }, 2, 5);
  t.is(part.size, 5);
  const target = Buffer.alloc(9);
  t.is(await part.read(target, 1), 4);
  t.is(target.toString('latin1', 0, 4), '3456');
  t.is(await part.read(target.subarray(0, 2), 0), 2);
  t.is(await part.read(target, 5), 0);
  t.is(await part.read(target, 6), 0);
  part.close();
  t.is(closed, 1);
});

test('a long text is cut into pieces, and digests are counted once', (t) => {
  const text = new Pieces();
  for (let at = 0; at < 3; at += 1) text.add('é'.repeat(128 * 1024));
  text.add('x');
  const { size, pieces } = text.end();
  t.is(size, 3 * 256 * 1024 + 1);
  t.deepEqual(
    pieces.map(({ length }) => length),
    [512 * 1024, 256 * 1024 + 1],
  );

  const set = new DigestSet();
  for (const each of ['ax', 'bx', 'ay', 'ax']) set.add(each);
  t.deepEqual([set.size, set.has('bx'), set.has('by')], [3, true, false]);
  const held = new HeldDigests();
  held.add('m1');
  held.add('h1', 'team');
  held.add('h2', 'team');
  held.add('h1', 'other');
  t.is(held.size, 4);
  const has = (digest: string) => [undefined, 'team', 'other', 'none'].map((account) => held.has(digest, account));
  t.deepEqual(has('m1'), [true, true, true, true]);
  t.deepEqual(has('h1'), [false, true, true, false]);
  t.deepEqual(has('h2'), [false, true, false, false]);
});
