import { randomBytes } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import test from 'ava';
import { contentOf } from '../../../src/storage/files/content.ts';
import { Zip } from '../../../src/storage/files/zip.ts';
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
