import { randomBytes } from 'node:crypto';
import { existsSync, globSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { mkdir, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setImmediate as nextTurn } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import * as fc from 'fast-check';
import { isDomainError } from '../../../src/runtime/errors.ts';
import * as nupkgs from '../../../src/nuget/format/nupkg.ts';
import type { Nupkg, NupkgLimits } from '../../../src/nuget/format/nupkg.ts';
import * as symbols from '../../../src/nuget/format/symbols.ts';
import { Zip } from '../../../src/storage/files/zip.ts';
import { normalize } from '../../../src/nuget/format/version.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { openFileContent } from '../../../src/storage/files/file-content.ts';
import { makeNupkg, makeNuspec, makePdb, makeSnupkg, pngPixel, zip } from '../../support/builders/nupkg.ts';
import { emptyFields, writeZip, type RawEntry, type RawZip } from '../../support/builders/zip.ts';
import { until } from '../../support/until.ts';

// In a process of its own: it measures the process.

const folder = mkdtempSync(join(tmpdir(), 'nupkg-'));
let files = 0;
test.after.always(() => rmSync(folder, { recursive: true }));

async function staged(bytes: Uint8Array): Promise<string> {
  const path = join(folder, String(files++));
  await writeFile(path, bytes);
  return path;
}

const opener = (path: string) => async () => openFileContent(path, (await stat(path)).size);
const readNupkg = (path: string, limits?: Partial<NupkgLimits>) => nupkgs.readNupkg(opener(path), limits);
const readSnupkg = (path: string) => symbols.readSnupkg(opener(path));
const openPdb = (path: string, pdbPath: string) => symbols.openPdb(opener(path), pdbPath);

async function read(bytes: Uint8Array, limits?: Partial<NupkgLimits>): Promise<Nupkg> {
  return readNupkg(await staged(bytes), limits);
}

test('a part of an entry has all its bytes, wherever it begins', async (t) => {
  const bytes = randomBytes(300_000);
  const path = await staged(await zip({ 'a.bin': bytes }));
  using archive = await Zip.open(opener(path));
  const entry = (await archive.find('a.bin'))!;
  for (const [start, length] of [
    [0, 200_000],
    [0, 10],
    [100_000, 5000],
    [100_000, 150_000],
    [299_990, 100],
    [400_000, 10],
  ] as const)
    t.deepEqual(await archive.slice(entry, start, length), bytes.subarray(start, start + length), `${start}`);
});

async function refused(t: ExecutionContext, reading: Promise<unknown>, message: RegExp): Promise<void> {
  const error = await t.throwsAsync(reading, { name: 'PackageInvalid' });
  t.regex(error.message, message);
}

const nuspecEntry: RawEntry = { name: 'a.nuspec', data: makeNuspec({ id: 'a' }) };
const pdbKey = /^[0-9a-f]{32}f{8}$/;

test('a package is read', async (t) => {
  const nupkg = await read(
    await makeNupkg({
      id: 'Some.Package',
      version: '1.02-Beta',
      icon: pngPixel,
      readme: '# Hello',
      payloadBytes: 3_000_000,
    }),
  );
  t.is(nupkg.nuspec.id, 'Some.Package');
  t.is(normalize(nupkg.version), '1.2.0-Beta');
  t.true(nupkg.nuspecBytes.toString().startsWith('<?xml'));
  t.false(nupkg.semVer2);
  t.deepEqual(nupkg.entries, { icon: pngPixel, iconType: 'image/png', readme: Buffer.from('# Hello') });
});

test('a plain package has neither icon nor readme', async (t) => {
  t.deepEqual((await read(await makeNupkg())).entries, {});
});

test('SemVer 2.0.0 is recognised in the version and in the bounds of dependencies', async (t) => {
  t.true((await read(await makeNupkg({ version: '1.0.0+meta' }))).semVer2);
  t.true((await read(await makeNupkg({ dependencies: [{ id: 'A', version: '1.0.0-a.b' }] }))).semVer2);
});

test('named files are found in any case, with any slashes and encoding', async (t) => {
  const jpeg = Buffer.from([0xff, 0xd8, 0xff, 0xe0]);
  const nupkg = await read(
    await makeNupkg({
      iconPath: 'Images\\My icon.JPG',
      readmePath: './README.md',
      files: { 'images/My%20Icon.jpg': jpeg, 'readme.md': '' },
    }),
  );
  t.is(nupkg.entries.iconType, 'image/jpeg');
  t.deepEqual(nupkg.entries.readme, Buffer.alloc(0));
});

test('a named file that is missing, too large or not an image is refused', async (t) => {
  await refused(t, read(await makeNupkg({ iconPath: 'gone.png' })), /<icon> names 'gone.png'/);
  await refused(t, read(await makeNupkg({ readmePath: 'gone.md' })), /<readme> names 'gone.md'/);
  await refused(t, read(await makeNupkg({ icon: randomBytes(1024 ** 2 + 1) })), /larger than/);
  await refused(t, read(await makeNupkg({ readme: 'ab' }), { maxReadmeBytes: 1 }), /larger than 1 bytes/);
  await refused(t, read(await makeNupkg({ icon: Buffer.from('<svg/>') })), /neither PNG nor JPEG/);
});

test('a package needs exactly one nuspec at its root', async (t) => {
  await refused(t, read(await zip({ 'lib/a.nuspec': makeNuspec() })), /no .nuspec/);
  await refused(t, read(await zip({ 'a.nuspec': makeNuspec(), 'B.NUSPEC': makeNuspec() })), /more than one/);
  await refused(t, read(writeZip([nuspecEntry, nuspecEntry])), /more than one/);
  t.is((await read(await zip({ 'A.NuSpec': makeNuspec(), 'lib/b.nuspec': '' }))).nuspec.id, 'Made.Package');
  t.is((await read(await zip({ 'a.nuspec': makeNuspec(), 'a.nuspec.bak': '' }))).nuspec.id, 'Made.Package');
  const packageTypes = [{ name: 'Dependency' }, { name: 'symbolsPACKAGE' }];
  await refused(t, read(await makeNupkg({ packageTypes })), /symbols package\. Push it to the symbols URL/);
});

test('the nuspec must be valid, and its id ASCII if the option says so', async (t) => {
  await refused(t, read(await makeNupkg({ version: 'new' })), /version 'new'/);
  await refused(t, read(await makeNupkg({ dependencies: [{ id: 'A', version: 'x' }] })), /version range 'x'/);
  await refused(t, read(await makeNupkg({ nuspec: '<!DOCTYPE a>' })), /document type/);
  await refused(t, read(await makeNupkg({ nuspec: randomBytes(1024 ** 2 + 1) })), /larger than/);
  const bytes = await makeNupkg({ id: 'Größe' });
  t.is((await read(bytes)).nuspec.id, 'Größe');
  await refused(t, read(bytes, { asciiOnly: true }), /ASCII/);
});

test('a file that is not a zip, or only a part of one, is refused', async (t) => {
  const sound = await makeNupkg({ payloadBytes: 1000 });
  for (const bytes of [
    Buffer.alloc(0),
    Buffer.from('PK'),
    Buffer.from('<html>not found</html>'),
    Buffer.alloc(100_000, 'PK\x03\x04'),
    sound.subarray(0, -1),
    sound.subarray(0, sound.length / 2),
    sound.subarray(10),
    Buffer.concat([sound, Buffer.from('more')]),
  ]) {
    await refused(t, read(bytes), /zip/);
  }
});

for (const name of [
  '../evil',
  'lib/../../evil',
  '/etc/evil',
  'C:/evil',
  'c:evil',
  'lib\\evil',
  '..\\evil',
  '%2e%2e/evil',
  '%2e%2e%2fevil',
  '%zz%2e%2e/%2E%2E/evil',
  '%5cevil',
  '..',
  'a\0b',
]) {
  test(`${JSON.stringify(name)} would be extracted outside the folder`, async (t) => {
    await refused(t, read(writeZip([nuspecEntry, { name }])), /outside of its folder/);
  });
}

test('unusual but harmless names are accepted', async (t) => {
  const names = ['lib/', 'lib/..a', 'a..b/c', '100%', '%zz', '%ff', 'größe', '[Content_Types].xml', './x'];
  t.is((await read(writeZip([nuspecEntry, ...names.map((name) => ({ name }))]))).nuspec.id, 'a');
});

const text = 'some text '.repeat(50);
// Small entries are inflated in one call, medium ones in one call of a thread, others piece by piece.
for (const [extent, text] of [
  ['small', 'some text '.repeat(50)],
  ['medium', 'some text '.repeat(10_000)],
  ['large', 'Xy5#r. some text '.repeat(200_000)],
] as const) {
  for (const [what, lie] of [
    ['a short length', { data: text, size: text.length - 1 }],
    ['a long length', { data: text, size: text.length + 1 }],
    ['no length', { data: text, size: 0 }],
    ['another stored length', { data: text, method: 0, size: 3, compressedSize: 3 }],
    ['a short compressed length', { data: text, compressedSize: 3 }],
    ['a wrong checksum', { data: text, crc: 1 }],
    ['another length in its header', { data: text, localSize: 3 }],
    ['another name in its header', { data: text, localName: 'b.txt' }],
  ] as const) {
    test(`a ${extent} entry that declares ${what} is refused`, async (t) => {
      await refused(t, read(writeZip([nuspecEntry, { name: 'a.txt', ...lie }])), /declare|checksum|contradict|zip/);
      await refused(t, read(writeZip([{ ...nuspecEntry, ...lie }])), /declare|checksum|contradict|zip/);
    });
  }
}

test('one damaged entry among many, in threads, is found, and the others have ended before', async (t) => {
  const files = Array.from({ length: 40 }, (_, i) => ({ name: `f${i}`, data: `${i} some text `.repeat(5000) }));
  const zip = writeZip([nuspecEntry, ...files, { name: 'last', data: 'x'.repeat(50_000), crc: 1 }]);
  let reading = 0;
  let closedWhileReading = false;
  const open = () =>
    Promise.resolve({
      ...contentOf(zip),
      read: async (target: Buffer, position: number) => {
        reading += 1;
        await nextTurn();
        reading -= 1;
        return zip.copy(target, 0, position);
      },
      close: () => (closedWhileReading ||= reading > 0),
    });
  await refused(t, nupkgs.readNupkg(open), /'last' does not match its checksum/);
  t.false(closedWhileReading);
});

test('other work runs while thousands of small entries are read', async (t) => {
  const files = Array.from({ length: 20_000 }, (_, i) => ({ name: `f${i}`, data: 'some text '.repeat(100) }));
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 0);
  await read(writeZip([nuspecEntry, ...files]));
  clearInterval(timer);
  t.true(turns > 10, `${turns}`);
});

test('defects of the directory and headers are found even if not every entry is read', async (t) => {
  for (const [entries, lies, message] of [
    [[{ name: 'a', data: 'ab', compressedSize: 100_000 }], {}, /overlaps/],
    [[{ name: 'a', data: 'ab', offset: 1_000_000 }], {}, /overlaps/],
    [
      [
        { name: 'a', data: text },
        { name: 'b', data: text, sameDataAs: 1 },
      ],
      {},
      /overlaps/,
    ],
    [[{ name: 'a', data: 'ab', method: 0, size: 3 }], {}, /'a' is stored with two different sizes/],
    [[{ name: 'a' }], { count: 1 }, /more entries than it counts/],
    [[{ name: 'a' }], { count: 3 }, /its directory reaches beyond its end/],
    [[{ name: 'a' }], { zip64: { count: 3n } }, /its directory is damaged/],
    [[{ name: 'a' }], { directoryOffset: 1 }, /its directory is damaged/],
    [[{ name: 'a' }], { directoryOffset: 0xffff_fff0 }, /its directory reaches beyond its end/],
    [[{ name: 'a' }], { zip64: { endOffset: 2n ** 63n } }, /beyond its end/],
    [[{ name: 'a' }], { zip64: { directoryOffset: 2n ** 64n - 1n } }, /its directory reaches beyond its end/],
    [[{ name: 'a' }], { zip64: { count: 2n ** 60n } }, /more than 65535 entries/],
  ] as [RawEntry[], RawZip, RegExp][]) {
    await refused(t, read(writeZip([nuspecEntry, ...entries], lies), { verifyAll: false }), message);
  }
});

test('a valid 64-bit zip is read', async (t) => {
  t.is((await read(writeZip([nuspecEntry], { zip64: {} }))).nuspec.id, 'a');
});

test('encrypted entries and other compression methods are refused', async (t) => {
  await refused(t, read(writeZip([nuspecEntry, { name: 'a', data: 'x', method: 8, flags: 1 }])), /encrypted/);
  await refused(t, read(writeZip([nuspecEntry, { name: 'a', data: 'x', flags: 0x41 }])), /encrypt/);
  await refused(t, read(writeZip([nuspecEntry, { name: 'a', data: 'x', flags: 0x40 }])), /^'a' is encrypted/);
  await refused(t, read(writeZip([nuspecEntry, { name: 'a', data: 'x', method: 12 }])), /method 12/);
});

test('more than 65,535 entries are refused, in either format', async (t) => {
  const many = Array.from({ length: 65_535 }, (_, i) => ({ name: `f${i}`, method: 0 }));
  t.is((await read(writeZip([nuspecEntry, ...many.slice(1)]), { verifyAll: false })).nuspec.id, 'a');
  const limits = { verifyAll: false };
  await refused(t, read(writeZip([nuspecEntry, ...many], { zip64: {} }), limits), /more than 65535 entries/);
  await refused(t, read(writeZip([nuspecEntry, ...many], { count: 65_535 }), limits), /more than 65535 entries/);
  // The count is modulo 65,536, as a writer without the 64-bit format writes it.
  await refused(t, read(writeZip([nuspecEntry, ...many, { name: 'z' }]), limits), /more entries than it counts/);
  await refused(
    t,
    read(writeZip([nuspecEntry, { name: 'a' }, { name: 'b' }]), { maxEntries: 2 }),
    /more than 2 entries/,
  );
});

for (const [what, field] of [
  ['a name', (bytes: number) => ({ name: 'n'.repeat(bytes) })],
  ['extra fields', (bytes: number) => ({ extra: emptyFields(bytes) })],
  ['a comment', (bytes: number) => ({ comment: Buffer.alloc(bytes, 'c') })],
] as const) {
  test(`an entry may have ${what} of 1,024 bytes and no more`, async (t) => {
    t.is((await read(writeZip([nuspecEntry, { name: 'a', ...field(1024) }]))).nuspec.id, 'a');
    await refused(t, read(writeZip([nuspecEntry, { name: 'a', ...field(1028) }])), /more than 1024 bytes/);
  });
}

test('the directory has a limit in total, and a local header may have any extra fields', async (t) => {
  const many = Array.from({ length: 40 }, (_, i) => ({
    name: `${i}`.padEnd(1000, 'n'),
    localExtra: emptyFields(65_532),
  }));
  const bytes = writeZip([nuspecEntry, ...many]);
  t.is((await read(bytes)).nuspec.id, 'a');
  await refused(t, read(bytes, { maxDirectoryBytes: 40_000 }), /take more than 40000 bytes/);
  const largest = Array.from({ length: 16 * 1024 }, (_, i) => ({ name: `${i}`.padEnd(1000, 'n'), method: 0 }));
  await refused(t, read(writeZip([nuspecEntry, ...largest]), { verifyAll: false }), /take more than 16777216 bytes/);
});

test('a directory longer than the read buffer is read completely', async (t) => {
  const readme = '# Found';
  const many = Array.from({ length: 3000 }, (_, i) => ({ name: `${i}`.padEnd(i % 200, 'n'), data: `${i}` }));
  const nuspec = { name: 'a.nuspec', data: makeNuspec({ id: 'a', readmePath: 'docs/readme.md' }) };
  const bytes = writeZip([...many, nuspec, { name: 'docs/README.md', data: readme }]);
  const nupkg = await read(bytes);
  t.is(nupkg.entries.readme?.toString(), readme);
});

test('compression bombs are refused', async (t) => {
  const zeros = Buffer.alloc(20 * 1024 ** 2);
  await refused(t, read(writeZip([nuspecEntry, { name: 'zeros', data: zeros }])), /bomb/);
  // Declaring a smaller size does not help: the entry then does not match its declared size.
  await refused(t, read(writeZip([nuspecEntry, { name: 'zeros', data: zeros, size: 1000 }])), /declare/);
  await refused(
    t,
    read(await makeNupkg({ payloadBytes: 2000 }), { maxTotalBytes: 2000 }),
    /inflates to more than 2000/,
  );
  t.is((await read(writeZip([nuspecEntry, { name: 'zeros', data: zeros.subarray(0, 1024 ** 2) }]))).nuspec.id, 'a');
});

test('a missing file is a disk error, not PackageInvalid', async (t) => {
  await t.throwsAsync(readNupkg(join(folder, 'gone')), { code: 'ENOENT' });
});

test('a symbols package lists its portable PDBs by key', async (t) => {
  const guid = Buffer.from('00112233445566778899aabbccddeeff', 'hex');
  const pdb = makePdb(guid, 10_000);
  const path = await staged(
    await makeSnupkg({ id: 'A', files: { 'lib/net8.0/A.pdb': pdb, 'lib/net9.0/A.pdb': makePdb() } }),
  );
  const { nuspec, pdbs } = await readSnupkg(path);
  t.is(nuspec.id, 'A');
  t.like(pdbs[0], { path: 'lib/net8.0/A.pdb', fileName: 'A.pdb', key: '33221100554477668899aabbccddeeffffffffff' });
  t.regex(pdbs[1]!.key, pdbKey);

  const { size, stream } = await openPdb(path, 'lib/net8.0/A.pdb');
  t.is(size, pdb.length);
  t.deepEqual(await buffer(stream), pdb);
  await t.throwsAsync(openPdb(path, 'A.pdb'), { name: 'NotFound' });
});

test('symbols packages with files other than portable symbols are refused', async (t) => {
  const snupkg = async (files: Record<string, Buffer | string>) =>
    readSnupkg(await staged(await makeSnupkg({ files })));
  const windows = Buffer.from('Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0', 'latin1');
  await refused(t, snupkg({ 'lib/a.pdb': windows }), /'lib\/a.pdb' is a Windows PDB/);
  for (const bytes of [
    '',
    'BSJB',
    'BSJB'.padEnd(5000, '\xff'),
    makePdb().subarray(0, 70),
    Buffer.from(makePdb()).fill('#Pda', 60, 64),
    // Of one stream, so that what follows it is none.
    Buffer.from(makePdb()).fill(1, 30, 31),
  ]) {
    await refused(t, snupkg({ 'lib/a.pdb': bytes }), /not a portable PDB/);
  }
  await refused(t, snupkg({ 'lib/a.pdb': makePdb(), 'lib/a.dll': 'x' }), /'lib\/a.dll' does not belong/);
  await refused(t, snupkg({ 'lib/a.pdb': makePdb(), 'lib/a.xml.dll': 'x' }), /'lib\/a.xml.dll' does not belong/);
  await refused(t, snupkg({}), /no .pdb/);
  for (const packageTypes of [[], [{ name: 'SymbolsPackage' }, { name: 'Dependency' }]]) {
    const path = await staged(await zip({ 'a.nuspec': makeNuspec({ packageTypes }), 'a.pdb': makePdb() }));
    await refused(t, readSnupkg(path), /SymbolsPackage/);
  }
  await refused(t, readSnupkg(await staged(Buffer.from('x'))), /zip/);
  await refused(t, readSnupkg(await staged(writeZip([{ name: '../a.pdb' }]))), /outside/);
  await refused(t, read(await makeSnupkg()), /symbols URL/);
});

test('the stream of a PDB fails if the PDB does not match the zip directory', async (t) => {
  const path = await staged(writeZip([{ name: 'a.pdb', data: text, crc: 1 }]));
  await t.throwsAsync(buffer((await openPdb(path, 'a.pdb')).stream), { name: 'PackageInvalid' });
});

test.serial('reading never leaves a file open', async (t) => {
  // Larger than a zip that is read as a whole.
  const large = randomBytes(300_000);
  const pdbs = await makeSnupkg({ files: { 'a.pdb': Buffer.concat([makePdb(), large]) } });
  const paths = [
    await staged(pdbs),
    await staged(writeZip([nuspecEntry, { name: 'a', data: text, crc: 1 }])),
    await staged(writeZip([nuspecEntry, { name: 'a', data: large, crc: 1 }])),
    await staged(pdbs.subarray(9)),
  ];
  for (const path of paths) await Promise.allSettled([readNupkg(path), readSnupkg(path)]);
  (await openPdb(paths[0]!, 'a.pdb')).stream.destroy();
  await openPdb(paths[0]!, 'a.pdb');
  for await (const _ of (await openPdb(paths[0]!, 'a.pdb')).stream) break;

  const openFiles = () => paths.filter((path) => descriptors().includes(path));
  await until(() => openFiles().length === 0);
  t.deepEqual(openFiles(), []);
});

/** The open files of this process, on Linux. */
function descriptors(): string[] {
  if (!existsSync('/proc/self/fd')) return [];
  return readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return '';
    }
  });
}

test('damaged packages are read or refused with PackageInvalid', async (t) => {
  const nupkg = await makeNupkg({ icon: pngPixel, readme: '# Hi', tags: 'a b', payloadBytes: 100 });
  const snupkg = await makeSnupkg({ files: { 'a.pdb': makePdb() } });
  const zip64 = writeZip([nuspecEntry, { name: 'lib/a.txt', data: text }], { zip64: {} });
  const damaged = fc.constantFrom(nupkg, snupkg, zip64).chain((sound) =>
    fc.record({
      sound: fc.constant(sound),
      length: fc.oneof(fc.constant(sound.length), fc.nat({ max: sound.length })),
      // Most checks read the directory, so half of the damage is there.
      flips: fc.array(
        fc.tuple(
          fc.oneof(fc.nat({ max: sound.length - 1 }), fc.integer({ min: sound.length - 300, max: sound.length - 1 })),
          fc.oneof(fc.nat({ max: 255 }), fc.constantFrom(0, 255)),
        ),
        { maxLength: 4 },
      ),
    }),
  );
  await fc.assert(
    fc.asyncProperty(damaged, async ({ sound, length, flips }) => {
      const bytes = Buffer.from(sound);
      for (const [at, value] of flips) bytes[at] = value;
      const path = join(folder, 'damaged');
      await writeFile(path, bytes.subarray(0, length));
      const results = await Promise.allSettled([
        readNupkg(path),
        readSnupkg(path),
        readNupkg(path, { verifyAll: false }),
      ]);
      return results.every((result) => result.status === 'fulfilled' || isDomainError(result.reason, 'PackageInvalid'));
    }),
    { numRuns: 2000 },
  );
  t.pass();
});

/** Packages made by other tools, if the variable of NuGet names a folder: `<id>/<version>/<id>.<version>.nupkg`. */
const realPackages = process.env.NUGET_PACKAGES;

test('id and version of a package are those of its folder: made packages, and real ones if there are any', async (t) => {
  const names: [id: string, version: string][] = [
    ['made.plain', '1.0.0'],
    ['made.pre', '2.1.0-beta.1'],
    ['made.four', '1.2.3.4'],
  ];
  for (const [id, version] of names) {
    const path = join(folder, 'made', id, version);
    await mkdir(path, { recursive: true });
    await writeFile(join(path, `${id}.${version}.nupkg`), await makeNupkg({ id, version }));
  }
  const real = realPackages === undefined ? [] : globSync(`${realPackages}/*/*/*.nupkg`);
  const paths = [...globSync(`${folder}/made/*/*/*.nupkg`), ...real];
  const read: string[] = [];
  for (const path of paths) {
    const [id = '', version = ''] = path.split('/').slice(-3);
    const nupkg = await readNupkg(path, { asciiOnly: true });
    t.is(nupkg.nuspec.id.toLowerCase(), id);
    t.is(normalize(nupkg.version).toLowerCase(), version);
    read.push(`${id} ${version}`);
  }
  t.is(read.length, names.length + real.length);
  for (const [id, version] of names) t.true(read.includes(`${id} ${version}`));
});
