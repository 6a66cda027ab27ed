import { randomBytes } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import test from 'ava';
import { contentOf } from '../../../src/storage/files/content.ts';
import { Zip } from '../../../src/storage/files/zip.ts';
import { unsound } from '../../../src/storage/files/zip-bytes.ts';
import { writeZip, type RawEntry } from '../../support/builders/zip.ts';

async function read(entries: readonly RawEntry[], maxBytes = 1000, maxEntries = 100): Promise<Record<string, string>> {
  const bytes = writeZip(entries, { zip64: {} });
  using zip = await Zip.open(() => Promise.resolve(contentOf(bytes)), { maxEntries });
  const found: Record<string, string> = {};
  for await (const { entry, bytes: data } of zip.contents(({ name }) => name !== 'c', maxBytes))
    found[entry.name] = data.toString();
  return found;
}

test('the contents of wanted entries are read in turn, small and large ones', async (t) => {
  const large = 'x'.repeat(20_000);
  const entries = [
    { name: 'a', data: '1' },
    { name: 'b', data: large },
    { name: 'c', data: '3', crc: 1 },
    { name: 'd', data: '4', method: 0 },
  ];
  t.deepEqual(await read(entries, 20_000), { a: '1', b: large, d: '4' });
});

test('contents with a wrong checksum or length, or above the bound, are refused', async (t) => {
  const wrong: [RawEntry, RegExp][] = [
    [{ name: 'a', data: '12', crc: 1 }, /'a' does not match its checksum/],
    [{ name: 'a', data: '12', size: 3 }, /'a' is not as long as the zip declares/],
    [{ name: 'a', data: '12', size: 1 }, /'a' is not as long as the zip declares/],
    [{ name: 'a', data: 'x'.repeat(1001) }, /'a' is larger than 1000 bytes/],
  ];
  for (const [entry, message] of wrong) await t.throwsAsync(read([entry]), { name: 'PackageInvalid', message });
});

test('more than 65,535 entries must be in the order of their bytes', async (t) => {
  const many = Array.from({ length: 65_536 }, (_, index) => ({ name: `${index}`, method: 0 }));
  t.is(Object.keys(await read(many, 10, 100_000)).length, 65_536);
  const swapped = [...many.slice(0, -2), { ...many.at(-2)!, offset: 31 }, many.at(-1)!];
  await t.throwsAsync(read(swapped, 10, 100_000), { name: 'PackageInvalid', message: /65535 entries, in no order/ });
  const [first, second, ...rest] = many.slice(0, -1);
  const disordered = writeZip([{ ...first!, offset: 31 }, { ...second!, offset: 0 }, ...rest]);
  await t.notThrowsAsync(Zip.open(() => Promise.resolve(contentOf(disordered)), { maxEntries: 65_535 }));
});

function openZip(entries: readonly RawEntry[]): Promise<Zip> {
  return Zip.open(() => Promise.resolve(contentOf(writeZip(entries))));
}

async function storedDigest(entries: readonly RawEntry[]): Promise<string> {
  using zip = await openZip(entries);
  return await zip.storedDigest(({ name }) => name !== 'left');
}

test('entries of all sizes are read whole, in part and as a stream', async (t) => {
  const bytes = randomBytes(2 ** 21 + 1);
  for (const [size, method] of [
    [0, 0],
    [0, 8],
    [1, 8],
    [2 ** 16, 0],
    [2 ** 16, 8],
    [2 ** 16 + 1, 0],
    [2 ** 16 + 1, 8],
    [2 ** 21 + 1, 8],
  ] as const) {
    const data = bytes.subarray(0, size);
    using zip = await openZip([{ name: 'lib/Name.txt', data, method }]);
    const entry = (await zip.find('./LIB\\name.TXT'))!;
    const text = `${size} bytes, method ${method}`;
    t.true((await zip.read(entry, size)).equals(data), text);
    t.true((await buffer(await zip.open(entry))).equals(data), text);
    for (const [start, length] of [
      [0, 10],
      [2 ** 16 - 5, 10],
      [2 ** 16 + 5, 2 ** 16],
      [0, size],
      [Math.max(0, size - 1), 10],
    ] as const) {
      const part = await zip.slice(entry, start, length);
      t.true(part.equals(data.subarray(start, start + length)), `${text}, ${length} from ${start}`);
    }
    await t.notThrowsAsync(zip.verify());
    if (size > 0) await t.throwsAsync(zip.read(entry, size - 1), { message: /is larger than/ });
  }
});

test('entries of all sizes with a wrong checksum or length are refused, however they are read', async (t) => {
  const bytes = randomBytes(2 ** 21 + 1);
  for (const size of [1, 2 ** 16 + 1, 2 ** 21 + 1])
    for (const [wrong, message] of [
      [{ crc: 1 }, /does not match its checksum/],
      [{ size: size + 1 }, /is not as long as the zip declares/],
    ] as const) {
      using zip = await openZip([{ name: 'a', data: bytes.subarray(0, size), ...wrong }]);
      const found = (await zip.find('a'))!;
      const refusal = { name: 'PackageInvalid', message };
      await t.throwsAsync(zip.verify(), refusal, `${size}`);
      await t.throwsAsync(zip.read(found, 2 ** 22), refusal, `${size}`);
      const stream = await zip.open(found);
      await t.throwsAsync(buffer(stream), refusal, `${size}`);
    }
});

test('an entry that is longer than it declares is refused there, and its rest is not inflated', async (t) => {
  for (const [size, length] of [
    [10, 60_000],
    [70_000, 200_000],
    [2_100_000, 2_200_000],
  ] as const) {
    // The end of the compressed bytes is missing, which only one who reads to the end can see.
    const entry = { name: 'a', data: randomBytes(length), size, compressedSize: length - 5000 };
    using zip = await openZip([entry]);
    await t.throwsAsync(zip.verify(), { message: /is not as long as the zip declares/ });
    await t.throwsAsync(zip.read((await zip.find('a'))!, size), { message: /is not as long as the zip declares/ });
  }
});

test('the digest of stored entries changes with each name and content, and not with other entries', async (t) => {
  const data = randomBytes(600_000);
  const other = Buffer.from(data);
  other[599_999]! ^= 1;
  const entry = { name: 'a', data, method: 0, crc: 1 };
  const same = await storedDigest([entry]);
  t.regex(same, /^sha256:[0-9a-f]{64}$/);
  t.is(await storedDigest([{ name: 'left', data: 'x' }, entry]), same);
  for (const each of [{ name: 'A' }, { data: other }, { crc: 2 }, { method: 8 }])
    t.not(await storedDigest([{ ...entry, ...each }]), same, Object.keys(each)[0]);
});

/** The names of all entries of a zip, and what it refuses. */
async function namesOf(bytes: Buffer, limits: Parameters<typeof Zip.open>[1] = {}): Promise<string[]> {
  using zip = await Zip.open(() => Promise.resolve(contentOf(bytes)), limits);
  const names: string[] = [];
  for await (const { name } of zip.entries()) names.push(name);
  await zip.verify();
  return names;
}

/** A zip with `value` in two bytes at `position`. */
function changed(bytes: Buffer, position: number, value: number): Buffer {
  const copy = Buffer.from(bytes);
  copy.writeUInt16LE(value, position);
  return copy;
}

/** An extra field. */
function field(id: number, ...values: readonly bigint[]): Buffer {
  const bytes = Buffer.alloc(4 + values.length * 8);
  bytes.writeUInt16LE(id, 0);
  bytes.writeUInt16LE(values.length * 8, 2);
  for (const [index, value] of values.entries()) bytes.writeBigUInt64LE(value, 4 + index * 8);
  return bytes;
}

test('names are those that a client extracts to', async (t) => {
  const written = ['%C3%a9.txt', 'a%20b', '%ff', '%zz', 'a/b:c', '[x]', 'ü'];
  const zip = writeZip(written.map((name) => ({ name })));
  t.deepEqual(await namesOf(zip), ['é.txt', 'a b', '%ff', '%zz', 'a/b:c', '[x]', 'ü']);
  const old = writeZip([{ name: 'dir\\a' }, { name: 'dir%5cb' }]);
  t.deepEqual(await namesOf(old, { backslashes: true }), ['dir/a', 'dir/b']);
  await t.throwsAsync(namesOf(old), { message: /The entry 'dir\\a' would be extracted outside/ });
  await t.throwsAsync(namesOf(writeZip([{ name: 'dir%5cb' }])), { message: /The entry 'dir%5cb' would be/ });
});

test('an entry is found by its path from the root, however it is written', async (t) => {
  using zip = await openZip([{ name: 'lib/Name.txt' }]);
  for (const path of ['lib/name.txt', '/lib/name.txt', '././/lib\\NAME.txt'])
    t.is((await zip.find(path))?.name, 'lib/Name.txt', path);
  for (const path of ['name.txt', 'lib/./name.txt', 'x/lib/name.txt']) t.is(await zip.find(path), undefined, path);
});

test('each limit of a zip is the most that it takes', async (t) => {
  const zip = writeZip([
    { name: 'a', data: '12', method: 0 },
    { name: 'bc', data: 'x'.repeat(1000) },
  ]);
  using opened = await Zip.open(() => Promise.resolve(contentOf(zip)));
  const { compressedSize } = (await opened.find('bc'))!;
  const ratio = 1000 / compressedSize;
  for (const [limits, less, message] of [
    [{ maxEntries: 2 }, { maxEntries: 1 }, /more than 1 entries/],
    [{ maxDirectoryBytes: 95 }, { maxDirectoryBytes: 94 }, /take more than 94 bytes/],
    [{ maxFieldBytes: 2 }, { maxFieldBytes: 1 }, /more than 1 bytes/],
    [{ maxTotalBytes: 1002 }, { maxTotalBytes: 1001 }, /inflates to more than 1001 bytes/],
    [{ maxRatio: ratio, ratioFloor: 0 }, { maxRatio: ratio - 0.1, ratioFloor: 0 }, /^'bc' inflates more than/],
    [{ maxRatio: 1, ratioFloor: 1000 }, { maxRatio: 1, ratioFloor: 999 }, /^'bc' inflates more than 1 times/],
  ] as const) {
    t.deepEqual(await namesOf(zip, limits), ['a', 'bc'], Object.keys(limits)[0]);
    await t.throwsAsync(namesOf(zip, less), { name: 'PackageInvalid', message });
  }
});

test('sizes and positions are read from the first 64-bit extension, where the entry refers to it', async (t) => {
  const elsewhere = 0xffff_ffff;
  const entry = { name: 'a', data: '12', method: 0 };
  const other = field(0xcafe, 7n);
  const end = Buffer.alloc(3);
  const all = { ...entry, size: elsewhere, compressedSize: elsewhere, offset: elsewhere };
  for (const [what, read] of [
    ['all', { ...all, extra: Buffer.concat([other, field(1, 2n, 2n, 0n), field(1, 9n, 9n, 9n), end]) }],
    ['the size', { ...entry, size: elsewhere, extra: field(1, 2n) }],
    ['the position', { ...entry, offset: elsewhere, extra: Buffer.concat([field(1, 0n), other]) }],
    ['none', { ...entry, extra: Buffer.concat([field(1, 9n), end]) }],
  ] as const)
    t.deepEqual(await namesOf(writeZip([read])), ['a'], what);
  for (const [extra, message] of [
    [field(1, 2n, 2n), /its 64-bit extension lacks a value/],
    [field(1), /its 64-bit extension lacks a value/],
    [field(1, 2n, 2n, 0n).subarray(0, -1), /an extra field is longer than all extra fields together/],
    [other, /beyond its end|overlaps/],
  ] as const)
    await t.throwsAsync(namesOf(writeZip([{ ...all, extra }])), { name: 'PackageInvalid', message });
});

test('a message about a zip ends in one point, and has the begin of a long name', async (t) => {
  t.is(unsound('a. b..').message, 'The zip file is not valid, or not complete: a. b. Send it again.');
  const message = new RegExp(`^'${'x'.repeat(200)}' is encrypted`);
  await t.throwsAsync(namesOf(writeZip([{ name: 'x'.repeat(201), flags: 1 }])), { message });
});

test('a name that leads out of the folder is refused', async (t) => {
  for (const name of ['/a', '%2Fa', 'c:a', 'C:/a', 'a\0b', '..', '../a', 'a/..', 'a/../b', '%2e%2e/a'])
    await t.throwsAsync(namesOf(writeZip([{ name }])), { message: /would be extracted outside of its folder/ }, name);
  const names = ['a/b:c', '..a', 'a//b', 'dir/', 'a/...'];
  t.deepEqual(await namesOf(writeZip(names.map((name) => ({ name })))), names);
});

/** Opens content again and again, and counts what is open, and the reads. */
function countedContent(bytes: Buffer) {
  const counts = { open: 0, reads: 0 };
  const content = {
    size: bytes.length,
    read: (target: Buffer, position: number) => {
      counts.reads += 1;
      // Not all at once, as a file may be read.
      return Promise.resolve(bytes.copy(target.subarray(0, 50_000), 0, position));
    },
    close: () => void (counts.open -= 1),
  };
  const open = () => {
    counts.open += 1;
    return Promise.resolve(content);
  };
  return { counts, open };
}

test('a small file is read at once, a large one when it is needed, and each is closed', async (t) => {
  const without = writeZip([{ name: 'a', data: Buffer.alloc(0), method: 0 }]).length;
  for (const [size, open] of [
    [2 ** 17, 0],
    [2 ** 17 + 1, 1],
  ] as const) {
    const data = randomBytes(size - without);
    const bytes = writeZip([{ name: 'a', data, method: 0 }]);
    t.is(bytes.length, size);
    const all = countedContent(bytes);
    {
      using zip = await Zip.open(all.open);
      t.is(all.counts.open, open);
      const entry = (await zip.find('a'))!;
      const unread = await zip.open(entry);
      const { reads } = all.counts;
      t.true((await zip.read(entry, size)).equals(data));
      t.true(all.counts.reads > reads);
      unread.destroy();
      t.is(all.counts.open, open);
    }
    t.is(all.counts.open, 0);
    const broken = countedContent(changed(bytes, size - 2, 1));
    await t.throwsAsync(Zip.open(broken.open), { name: 'PackageInvalid' });
    t.is(broken.counts.open, 0);
  }
});

/** An entry without bytes, whose name has one character, at this place among others. `localName`: the name in the header that it writes. */
function entry(name: string, localName: string, place: number): RawEntry {
  return { name, localName, method: 0, offset: place * 31 };
}

test('the order of the directory may differ from that of the bytes, if no entry overlaps another', async (t) => {
  const zip = writeZip([entry('a', 'c', 1), entry('b', 'a', 2), entry('c', 'b', 0)]);
  t.deepEqual(await namesOf(zip), ['a', 'b', 'c']);
  const overlapping = [{ name: 'first' }, { name: 'a', data: 'ab', compressedSize: 100_000 }, { name: 'last' }];
  await t.throwsAsync(namesOf(writeZip(overlapping)), { message: /^'a' overlaps other parts of the zip/ });
});

test('the end of the directory may have a signature, and nothing else', async (t) => {
  const zip = writeZip([{ name: 'a' }]);
  const before = (end: string) => Buffer.concat([zip.subarray(0, -22), Buffer.from(end, 'latin1'), zip.subarray(-22)]);
  t.deepEqual(await namesOf(before('PK\x05\x05\0\0')), ['a']);
  await t.throwsAsync(namesOf(before('PK\x05\x08\0\0')), { message: /^The zip's directory has no proper end/ });
});

test('a local header must not contradict the directory, and its sizes may follow the data', async (t) => {
  const zip = writeZip([{ name: 'a', data: '12', method: 0 }]);
  const follow = { name: 'a', data: '12', flags: 0x808, localSize: 0 };
  t.deepEqual(await namesOf(writeZip([follow])), ['a']);
  t.deepEqual(await namesOf(changed(writeZip([follow]), 18, 0)), ['a']);
  t.deepEqual(await namesOf(writeZip([{ ...follow, flags: 0x800, localSize: 0xffff_ffff }])), ['a']);
  const contradiction = /^The header of 'a' contradicts the zip's directory/;
  for (const [bytes, message] of [
    [changed(zip, 0, 0), /'a' has no local header/],
    [changed(zip, 8, 8), contradiction],
    [changed(zip, 18, 3), contradiction],
    [changed(zip, 22, 3), contradiction],
    [changed(zip, 26, 2), contradiction],
    [changed(zip, 30, 0x3162), contradiction],
    [changed(zip, 28, 0xffff), /'a' ends beyond it/],
  ] as const)
    await t.throwsAsync(namesOf(bytes), { name: 'PackageInvalid', message });
});

test('a deflated entry without bytes is empty', async (t) => {
  using zip = await openZip([{ name: 'a', compressedSize: 0 }]);
  const entry = (await zip.find('a'))!;
  t.deepEqual(await zip.read(entry, 0), Buffer.alloc(0));
  t.deepEqual(await buffer(await zip.open(entry)), Buffer.alloc(0));
  await t.notThrowsAsync(zip.verify());
});

test('entries of all sizes whose compressed bytes are damaged are refused, however they are read', async (t) => {
  for (const size of [100, 2 ** 16 + 1, 2 ** 21 + 1]) {
    const bytes = writeZip([{ name: 'a', data: randomBytes(size) }]);
    // A type of block that does not exist.
    bytes[31] = 7;
    using zip = await Zip.open(() => Promise.resolve(contentOf(bytes)));
    const found = (await zip.find('a'))!;
    const refusal = {
      name: 'PackageInvalid',
      message: /not valid, or not complete: invalid block type\. Send it again/,
    };
    await t.throwsAsync(zip.verify(), refusal, `${size}`);
    await t.throwsAsync(zip.read(found, size), refusal, `${size}`);
    const stream = await zip.open(found);
    await t.throwsAsync(buffer(stream), refusal, `${size}`);
  }
});

test('a part of an entry does not need the rest of it', async (t) => {
  const data = randomBytes(2 ** 17);
  using zip = await openZip([{ name: 'a', data, method: 0, crc: 1 }]);
  const entry = (await zip.find('a'))!;
  for (const [start, length] of [
    [0, 10],
    [2 ** 17 - 10, 10],
  ] as const)
    t.deepEqual(await zip.slice(entry, start, length), data.subarray(start, start + length));
});

test('errors of the disk stay what they are', async (t) => {
  const bytes = writeZip([{ name: 'a', data: randomBytes(200_000), method: 0 }]);
  const failure = Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO', syscall: 'read' });
  let fails = true;
  const content = {
    size: bytes.length,
    read: (target: Buffer, position: number) =>
      fails ? Promise.reject(failure) : Promise.resolve(bytes.copy(target, 0, position)),
    close: () => undefined,
  };
  t.is(await t.throwsAsync(Zip.open(() => Promise.resolve(content))), failure);
  fails = false;
  using zip = await Zip.open(() => Promise.resolve(content));
  const stream = await zip.open((await zip.find('a'))!);
  fails = true;
  t.is(await t.throwsAsync(zip.verify()), failure);
  t.is(await t.throwsAsync(buffer(stream)), failure);
  const short = { ...content, read: () => Promise.resolve(0) };
  await t.throwsAsync(
    Zip.open(() => Promise.resolve(short)),
    {
      name: 'PackageInvalid',
      message: /it became shorter during the read\. Send it again/,
    },
  );
});
