import { mkdir, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { defaultListLimits, ListRefused, type ListLimits } from '../../src/known-bad/entry.ts';
import { filesBelow, recordsBelow, recordsIn, type RawRecord } from '../../src/known-bad/raw-records.ts';
import { readRecord } from '../../src/known-bad/record.ts';
import { openSource, type SourceState } from '../../src/known-bad/source.ts';
import { openFileContent } from '../../src/storage/files/file-content.ts';
import { writeZip } from '../support/builders/zip.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { linesOf, listOf, osv } from '../support/known-bad.ts';

// What is read of a list: its records one by one, and what each of them says.

const digest = `sha256:${'ab'.repeat(32)}`;
const counts = (id: string) => id.startsWith('MAL-');
const read = (value: unknown) => readRecord(value, 'line 7', counts);

test('a record in OSV’s format says what its packages and ranges are', (t) => {
  const ranges = [
    { type: 'GIT', events: [{ introduced: 'abc' }] },
    { type: 'SEMVER', events: [{ introduced: '0' }, { fixed: '2.0' }] },
    { type: 'ECOSYSTEM', events: [{ introduced: '3.0' }, { last_affected: '3.5' }, { limit: '*' }] },
  ];
  const affected = [
    { package: { ecosystem: 'NuGet', name: 'Lib.One' }, ranges, versions: ['1.0', '1.1'] },
    { package: { ecosystem: 'NuGet:2', name: 'Two' }, ranges: null, versions: [] },
    { package: { ecosystem: 'npm', name: 'three' } },
    { package: null },
  ];
  t.deepEqual(read({ id: 'MAL-1', summary: ' a\n\tb\u0000c ', affected }) as unknown, {
    id: 'MAL-1',
    entries: [
      {
        kind: 'package',
        key: 'lib.one',
        detail: { reason: 'a b c', ranges: [ranges[1]!.events, ranges[2]!.events], versions: ['1.0', '1.1'] },
      },
      { kind: 'package', key: 'two', detail: { reason: 'a b c' } },
    ],
  });
  t.deepEqual(read({ id: 'MAL-1', withdrawn: '', affected: null }), { id: 'MAL-1', entries: [] });
  t.deepEqual(read({ id: 'MAL-1', withdrawn: '2026-01-01', affected }), { id: 'MAL-1', entries: [] });
  t.is(read({ id: 'GHSA-1', affected: 'anything' }), undefined, 'what does not count is not examined');
  t.is(read(osv('MAL-1', 'a', { summary: 'x'.repeat(501) }))!.entries[0]!.detail.reason.length, 500);
});

test('an own record says what its digests, images and packages are, and counts whatever its ID is', (t) => {
  const detail = { reason: 'why' };
  const own = {
    id: 'any',
    reason: 'why',
    digests: [digest],
    images: ['Up.test/App', 'up.test/*'],
    packages: [{ id: 'Lib', versions: '[1.0]' }, { id: 'A.b-c_d' }],
  };
  t.deepEqual(read(own) as unknown, {
    id: 'any',
    entries: [
      { kind: 'digest', key: digest, detail },
      { kind: 'image', key: 'up.test/app', detail },
      { kind: 'pattern', key: 'up.test/*', detail },
      { kind: 'package', key: 'lib', detail: { reason: 'why', range: '[1.0]' } },
      { kind: 'package', key: 'a.b-c_d', detail },
    ],
  });
  t.deepEqual(read({ ...own, withdrawn: 'now' }), { id: 'any', entries: [] });
  for (const field of ['digests', 'images', 'packages'])
    t.deepEqual(read({ id: 'any', [field]: [] }), { id: 'any', entries: [] }, field);
  t.deepEqual(read({ id: 'any', packages: [{ id: 'a' }], reason: null })!.entries[0]!.detail, { reason: '' });
  for (const versions of ['[1.0,2.0)', '(1.0, 2.0]', '1.0', '1.*', '1.0-beta+x'])
    t.is(read({ id: 'x', packages: [{ id: 'a', versions }] })!.entries[0]!.detail.range, versions);
});

test('a record that cannot be used is refused with its place', (t) => {
  const range = 'expected a range such as "[1.0, 2.0)", or "[1.0]" for one version';
  for (const [value, message] of [
    [{ id: 'a b', affected: [] }, ': id: expected 1 to 100 characters of ASCII without spaces'],
    [{ id: 'x', digests: ['sha256:ab'] }, ': digests.0: expected sha256:<64 hex> or sha512:<128 hex>'],
    [{ id: 'x', images: ['a b'] }, ': images.0: expected names or patterns of images'],
    [{ id: 'x', images: ['ok', '*'] }, ': images.1: expected a pattern that does not mean all images'],
    [{ id: 'x', packages: [{ id: 'a/b' }] }, ': packages.0.id: expected the ID of a package'],
    [{ id: 'x', packages: [{ id: 'a', versions: '[1.0' }] }, `: packages.0.versions: ${range}`],
    [{ id: 'x', packages: [{ id: 'a', versions: 'x[1.0]' }] }, `: packages.0.versions: ${range}`],
    [{ id: 'x', packages: [{ id: 'a', versions: '[1.0]x' }] }, `: packages.0.versions: ${range}`],
    [{ id: 'x', packages: [{ id: 'a', versions: '1 0' }] }, `: packages.0.versions: ${range}`],
    [{ id: 'x', packages: [], digest: 1 }, ': Unrecognized key: "digest"'],
  ] as const)
    t.throws(
      () => read(value),
      { instanceOf: ListRefused, message: `has a record that cannot be used: line 7${message}` },
      message,
    );
  for (const value of [null, 7, 'text', []])
    t.throws(() => read(value), { message: /^has a record that cannot be used: line 7: / });
  t.throws(() => read({ id: 'MAL-1', affected: [{ package: { ecosystem: 'NuGet', name: 'n'.repeat(256) } }] }), {
    message: 'has a record with a name of more than 255 characters: MAL-1',
  });
});

async function all(records: AsyncGenerator<RawRecord>): Promise<unknown[][]> {
  const found: unknown[][] = [];
  for await (const { label, value } of records) found.push([label, value]);
  return found;
}

async function fileWith(t: ExecutionContext) {
  const file = join(await folderUntilEnd(t), 'list');
  return (content: string | Buffer, limits: Partial<ListLimits> = {}) => {
    const bytes = Buffer.from(content);
    const written = writeFile(file, bytes);
    const open = async () => {
      await written;
      return openFileContent(file, bytes.length);
    };
    return all(recordsIn(open, { limits: { ...defaultListLimits, ...limits }, counts }));
  };
}

test('a file has one record, a list of them, or one a line, and each has a label', async (t) => {
  const inFile = await fileWith(t);
  const [one, two] = [{ id: 'a' }, { id: 'b' }];
  t.deepEqual(await inFile(JSON.stringify(one, null, 2)), [['record 1', one]]);
  t.deepEqual(await inFile(`\uFEFF${JSON.stringify([one, two], null, 2)}`), [
    ['record 1', one],
    ['record 2', two],
  ]);
  t.deepEqual(await inFile(linesOf([one, two])), [
    ['line 1', one],
    ['line 2', two],
  ]);
  t.deepEqual(await inFile(`\n${JSON.stringify(one)}\r\n\r\n \n${JSON.stringify(two)}`), [
    ['line 2', one],
    ['line 5', two],
  ]);
  t.deepEqual(await inFile('[]'), []);
  t.deepEqual(await inFile('7'), [['record 1', 7]]);
  const zip = writeZip([
    { name: 'a/', data: '' },
    { name: 'a/MAL-1.json', data: '{"id":"a"}' },
    { name: 'b.txt', data: 'x' },
    { name: 'MAL-2.json', data: '{"id":"b"}' },
  ]);
  t.deepEqual(await inFile(zip), [
    ['a/MAL-1.json', one],
    ['MAL-2.json', two],
  ]);
  // Longer than a record may be, so that its lines are read.
  const long = Array.from({ length: 40 }, (_, at) => ({ id: `${at}`.padStart(20, 'x') }));
  const limits = { recordBytes: 100 };
  t.deepEqual(
    await inFile(linesOf(long), limits),
    long.map((each, at) => [`line ${at + 1}`, each]),
  );
  const wide = { id: 'w', text: 'x'.repeat(70_000) };
  t.deepEqual(
    await inFile(linesOf([one, wide, two])),
    [
      ['line 1', one],
      ['line 2', wide],
      ['line 3', two],
    ],
    'over several reads',
  );
});

test('what is no list, or passes a bound, is refused with the reason', async (t) => {
  const inFile = await fileWith(t);
  const none = 'has no records; a list that is empty on purpose is the file []';
  const line = JSON.stringify({ id: 'a' });
  for (const [content, limits, message] of [
    ['', {}, none],
    [' \n\n', {}, none],
    [writeZip([{ name: 'a.txt', data: 'x' }]), {}, none],
    [`${line}\n{`, {}, 'has a record that is no JSON, or not complete: line 2'],
    [`[${line},${line}]`, { records: 1 }, 'has more than 1 records'],
    [`[${line},${line}]`, { unpackedBytes: 20 }, 'has more than 20 bytes of records'],
    [`${line}\n${line}`, { unpackedBytes: 19 }, 'has more than 19 bytes of records'],
    [
      `${line}\n${'x'.repeat(200)}`,
      { recordBytes: 100 },
      'has a line of more than 100 bytes; a longer file has one record a line',
    ],
    [
      writeZip([{ name: 'a/MAL-1.json', data: JSON.stringify('x'.repeat(99)) }]),
      { recordBytes: 100 },
      'has a record of more than 100 bytes: a/MAL-1.json',
    ],
    [`${line}\n[${'0,'.repeat(60_000)}0]`, {}, 'has a record with more than 60000 values: line 2'],
  ] as const)
    await t.throwsAsync(inFile(content, limits), { instanceOf: ListRefused, message }, message);
  t.is((await inFile(`${line}\n${line}`, { unpackedBytes: 20, records: 2 })).length, 2);
  t.is((await inFile(`[${line},${line}]`, { unpackedBytes: 23, records: 2 })).length, 2);
  const large = writeZip([
    { name: 'GHSA-1.json', data: JSON.stringify('x'.repeat(99)) },
    { name: 'MAL-1.json', data: line },
  ]);
  t.deepEqual(
    await inFile(large, { recordBytes: 100 }),
    [['MAL-1.json', { id: 'a' }]],
    'one that does not count is left out',
  );
});

test('of a folder, the files with records are read, without links', async (t) => {
  const folder = await folderUntilEnd(t);
  await mkdir(join(folder, 'sub/empty.json'), { recursive: true });
  await writeFile(join(folder, 'one.json'), '{"id":"a"}');
  await writeFile(join(folder, 'sub/more.jsonl'), '\n{"id":"b"}\n{"id":"c"}\n');
  await writeFile(join(folder, 'sub/other.jsonx'), 'x');
  await writeFile(join(folder, 'GHSA-9.json'), JSON.stringify('x'.repeat(200)));
  await symlink(join(folder, 'one.json'), join(folder, 'link.json'));
  await utimes(join(folder, 'one.json'), 5, 5);
  const files: { path: string; size: number; changedAt: number }[] = [];
  for await (const each of filesBelow(folder, defaultListLimits)) files.push(each);
  const byPath = (path: string) => files.find((each) => each.path === path);
  t.deepEqual(
    files.map(({ path }) => path).toSorted((one, other) => (one < other ? -1 : 1)),
    ['GHSA-9.json', 'one.json', 'sub/more.jsonl'],
  );
  t.deepEqual(byPath('one.json'), { path: 'one.json', size: 10, changedAt: 5000 });
  const limits = { ...defaultListLimits, recordBytes: 100 };
  const found = await all(recordsBelow(folder, { limits, counts }));
  t.deepEqual(Object.fromEntries(found.map(([label, value]) => [label, value])), {
    'one.json': { id: 'a' },
    'sub/more.jsonl line 2': { id: 'b' },
    'sub/more.jsonl line 3': { id: 'c' },
  });
  await t.throwsAsync(all(recordsBelow(folder, { limits, counts: () => true })), {
    message: 'has a record of more than 100 bytes: GHSA-9.json',
  });
  // The folders and the link count, too.
  t.is((await all(recordsBelow(folder, { limits: { ...limits, records: 7 }, counts }))).length, 3);
  await t.throwsAsync(all(recordsBelow(folder, { limits: { ...limits, records: 6 }, counts })), {
    message: 'is a folder with more than 6 files',
  });
  await t.throwsAsync(all(recordsBelow(await folderUntilEnd(t), { limits, counts })), { message: /^has no records/ });
});

test('a file and a folder are known again by their bytes, or by the paths, sizes and times of their files', async (t) => {
  const folder = await folderUntilEnd(t);
  const { signal } = new AbortController();
  const parts = {
    stage: () => Promise.reject(new Error('nothing is downloaded')),
    proxy: {},
    limits: { ...defaultListLimits, fileBytes: 10 },
    signal,
  };
  const validatorOf = async (file: string) => {
    const source = (await openSource(listOf({ name: 'a', file }), undefined, parts))!;
    t.is(source.etag, null);
    await source[Symbol.asyncDispose]();
    return source.validator;
  };
  const file = join(folder, 'a.json');
  const validators: string[] = [];
  const note = async (of: string) => void validators.push(await validatorOf(of));
  await writeFile(file, '[]');
  await utimes(file, 1, 1);
  await note(file);
  await note(folder);
  t.is(validators[0], 'sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945');
  t.deepEqual([await validatorOf(file), await validatorOf(folder)], [...validators]);
  await utimes(file, 2, 2);
  t.is(await validatorOf(file), validators[0]!);
  await note(folder);
  await writeFile(file, '[ ]');
  await utimes(file, 2, 2);
  await note(folder);
  await writeFile(join(folder, 'b.json'), '[]');
  await note(folder);
  t.is(new Set(validators).size, 5, 'each change of a folder is one');
  await writeFile(file, '[         ]');
  await t.throwsAsync(validatorOf(file), { instanceOf: ListRefused, message: 'is larger than 10 bytes' });
  await writeFile(file, '[        ]');
  await t.notThrowsAsync(validatorOf(file));
  await t.throwsAsync(openSource({ ...listOf({ name: 'a' }) }, undefined as SourceState | undefined, parts), {
    message: 'has neither a url nor a file',
  });
  await t.throwsAsync(validatorOf('/dev/null'), { message: 'is neither a file nor a folder' });
  for (const each of [file, folder])
    await t.throwsAsync(
      openSource(listOf({ name: 'a', file: each }), undefined, {
        ...parts,
        signal: AbortSignal.abort(new Error('stopped')),
      }),
      { message: 'stopped' },
    );
});
