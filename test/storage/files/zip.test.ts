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
