import test from 'ava';
import {
  blobName,
  decodeHeader,
  decodeManifest,
  decodeRow,
  encodeManifest,
  encodeValue,
  manifestName,
  missingName,
  parseName,
  rowsName,
  type BackupManifest,
  type Header,
} from '../../src/backup/format.ts';
import { readBackup } from '../../src/backup/check.ts';
import { blobsOf, linesOf, rowsOf } from '../../src/backup/rows.ts';
import { Share, shareOf } from '../../src/backup/share.ts';
import type { Content } from '../../src/storage/files/content.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { folderStorage } from '../../src/server/place.ts';
import { makeFolder } from '../../src/storage/files/permissions.ts';
import type { StagedFile } from '../../src/storage/files/staged-file.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { fromMemory } from './support.ts';

// The documents of a backup, without an installation.

const state = '11111111-1111-4111-8111-111111111111';
const [a, b] = [digestOf('a'), digestOf('bb')].toSorted() as [ReturnType<typeof digestOf>, ReturnType<typeof digestOf>];
const sha512 = `sha512:${'ab'.repeat(64)}` as typeof a;
const refused = (message: string) => ({ name: 'Invalid', message });

test('each name of a backup is read as what it stands for, and every other name is refused', (t) => {
  t.deepEqual(
    [rowsName(state, 'accounts'), missingName(state), blobName(sha512)],
    [`rows/${state}/accounts.jsonl`, `rows/${state}/missing-blobs.txt`, `blobs/sha512/ab/${'ab'.repeat(64)}`],
  );
  t.deepEqual(parseName(manifestName), { kind: 'manifest' });
  t.deepEqual(parseName(rowsName(state, 'a')), { kind: 'rows', state, table: 'a' });
  const longest = `a${'_9'.repeat(31)}z`;
  t.deepEqual(parseName(rowsName(state, longest)), { kind: 'rows', state, table: longest });
  t.deepEqual(parseName(missingName(state)), { kind: 'missing', state });
  for (const digest of [a, sha512]) t.deepEqual(parseName(blobName(digest)), { kind: 'blob', digest });
  const blob = blobName(a);
  for (const name of [
    '',
    'Manifest',
    'manifest/',
    'rows',
    `x${rowsName(state, 'a')}`,
    `${rowsName(state, 'a')}x`,
    rowsName(state, '9'),
    rowsName(state, 'A'),
    rowsName(state, `${longest}z`),
    rowsName(state.slice(1), 'a'),
    rowsName(`${state}0`, 'a'),
    rowsName(state.replace('1', 'g'), 'a'),
    `x${missingName(state)}`,
    `${missingName(state)}x`,
    missingName(`${state}0`),
    `x${blob}`,
    `${blob}x`,
    `${blob}0`,
    blob.slice(0, -1),
    blob.replace('sha256', 'sha384'),
    blob.replace('sha256', 'sha512'),
    blob.replace(/\/..\//, '/zz/'),
    blob.replace(/\/..\//, blob.includes('/00/') ? '/11/' : '/00/'),
  ])
    t.throws(
      () => parseName(name),
      refused(`the backup has a member with the name ${JSON.stringify(name)}, which no backup has`),
      name,
    );
  const long = 'x'.repeat(201);
  t.throws(
    () => parseName(long),
    refused(`the backup has a member with the name "${long.slice(1)}", which no backup has`),
  );
});

const rows = [
  `${JSON.stringify({
    columns: [
      { name: 'digest', kind: 'text' },
      { name: 'size', kind: 'number' },
    ],
  })}\n`,
  `${JSON.stringify([a, 3])}\n`,
  `${JSON.stringify([b, 2])}\n`,
];
const fileOf = (lines: readonly string[]) => {
  const text = lines.join('');
  return { rows: Math.max(0, lines.length - 1), bytes: text.length, digest: digestOf(text), text };
};

/** A manifest with each field that one can have. */
const manifest: BackupManifest = {
  format: 'entrepot-backup',
  version: 1,
  created_at: '2027-01-31T12:00:00.000Z',
  program: '1.0.0',
  installation: state,
  state,
  mirrored: true,
  migrations: ['001-1-first'],
  tables: [{ name: 'blobs', rows: 2, bytes: fileOf(rows).bytes, digest: fileOf(rows).digest }],
  blobs: { count: 2, bytes: 5 },
  missing: { count: 0, bytes: 0, digest: digestOf('') },
  checked_to: a,
};

test('a manifest is read as it was written, or refused', (t) => {
  t.deepEqual(decodeManifest(encodeManifest(manifest)), manifest);
  const { installation: _, checked_to: __, ...few } = manifest;
  t.deepEqual(decodeManifest(encodeManifest(few)), few);
  const [table] = manifest.tables;
  for (const change of [
    { format: 'other' },
    { version: 2 },
    { created_at: 'x'.repeat(41) },
    { program: 'x'.repeat(101) },
    { installation: 'x' },
    { state: 'x' },
    { mirrored: 1 },
    { migrations: ['x'.repeat(101)] },
    { migrations: Array(2001).fill('x') },
    { tables: [{ ...table, name: 'A' }] },
    { tables: [{ ...table, name: 'a; DROP TABLE x' }] },
    { tables: [{ ...table, rows: -1 }] },
    { tables: [{ ...table, bytes: 0.5 }] },
    { tables: [{ ...table, digest: 'x' }] },
    { tables: [{ ...table, more: 1 }] },
    { tables: Array(501).fill(table) },
    { blobs: { count: 0 } },
    { blobs: { count: 0, bytes: 0, more: 1 } },
    { missing: { count: 0, bytes: 0, digest: 'x' } },
    { missing: { count: 0, bytes: 0, digest: a, more: 1 } },
    { checked_to: 'x'.repeat(201) },
    { more: 1 },
  ])
    t.throws(
      () => decodeManifest(encodeManifest({ ...manifest, ...change } as BackupManifest)),
      refused('the manifest of the backup is not one that this version can read'),
      JSON.stringify(change).slice(0, 100),
    );
  const text = encodeManifest(manifest).toString();
  for (const wrong of ['', text.replace('1.0.0', '1.0.1'), text.trimEnd().slice(0, -1), `${text}x`, `${text}\nx`])
    t.throws(() => decodeManifest(Buffer.from(wrong)), refused('the manifest of the backup is damaged'));
});

const header: Header = {
  columns: [
    { name: 'n', kind: 'number' },
    { name: 't', kind: 'text' },
    { name: 'b', kind: 'bytes' },
  ],
};

test('a row has a value that fits each column', (t) => {
  t.deepEqual(decodeHeader(JSON.stringify(header)), header);
  for (const wrong of [
    {},
    { columns: [{ name: 'N', kind: 'text' }] },
    { columns: [{ name: 'n', kind: 'x' }] },
    { ...header, more: 1 },
  ])
    t.throws(() => decodeHeader(JSON.stringify(wrong)), refused('a file of rows in the backup is damaged'));
  for (const [, column] of header.columns.entries()) {
    const many = { columns: Array(501).fill(column) };
    t.throws(() => decodeHeader(JSON.stringify(many)), refused('a file of rows in the backup is damaged'));
    t.throws(
      () => decodeHeader(JSON.stringify({ columns: [{ ...column, more: 1 }] })),
      refused('a file of rows in the backup is damaged'),
    );
  }
  const read = (...values: unknown[]) => decodeRow(JSON.stringify(values), header);
  t.deepEqual(read(1, 'x', 'AAE='), [1, 'x', Buffer.from([0, 1])]);
  t.deepEqual(read('-9007199254740993', '', ''), ['-9007199254740993', '', Buffer.alloc(0)]);
  t.deepEqual(read('12345678901234567890', 'x', null), ['12345678901234567890', 'x', null]);
  t.deepEqual(read(null, null, null), [null, null, null]);
  for (const values of [
    [],
    [1, 'x'],
    [1, 'x', '', 1],
    ['x', 'x', ''],
    ['', 'x', ''],
    ['1x', 'x', ''],
    ['x1', 'x', ''],
    ['123456789012345678901', 'x', ''],
    [true, 'x', ''],
    [1, 1, ''],
    [1, 'x', 1],
  ])
    t.throws(() => read(...values), refused('a row in the backup is damaged'), JSON.stringify(values));
  t.throws(() => decodeRow('{"length":3}', header), refused('a row in the backup is damaged'));
  t.throws(() => decodeRow('[1', header), refused('a line in the backup is damaged'));
  t.is(encodeValue(Buffer.from([0, 1]), 'bytes'), 'AAE=');
  t.throws(() => encodeValue(true, 'number'), { message: 'a column for number has a boolean' });
});

/** Content in memory that gives at most `piece` bytes at a time. */
function contentOf(text: string, piece = Infinity): Content & { isClosed: boolean } {
  const bytes = Buffer.from(text);
  const content = {
    isClosed: false,
    size: bytes.length,
    read: (target: Buffer, position: number) =>
      Promise.resolve(bytes.copy(target, 0, position, Math.min(bytes.length, position + piece))),
    close: () => void (content.isClosed = true),
  };
  return content;
}

const allOf = async <T>(items: AsyncIterable<T>) => {
  const all: T[] = [];
  for await (const each of items) all.push(each);
  return all;
};

test('the lines of a file are whole, however it is read, and the file is closed', async (t) => {
  const long = 'é'.repeat(300_000);
  for (const piece of [1, 2, 3, Infinity]) {
    const content = contentOf('one\n\ntwo é\n', piece);
    t.deepEqual(await allOf(linesOf(content)), ['one', '', 'two é'], String(piece));
    t.true(content.isClosed);
  }
  t.deepEqual(await allOf(linesOf(contentOf(`${long}\nx\n`))), [long, 'x']);
  t.deepEqual(await allOf(linesOf(contentOf(''))), []);
  const cut = contentOf('one\ntwo');
  await t.throwsAsync(allOf(linesOf(cut)), refused('a file of rows in the backup ends in the middle of a line'));
  t.true(cut.isClosed);
  t.deepEqual(
    (await allOf(rowsOf(contentOf(rows.join(''))))).map(({ values }) => values),
    [
      [a, 3],
      [b, 2],
    ],
  );
});

test('blobs are named in the order of their digests, each once, with a size', async (t) => {
  const [head, first, second] = rows as [string, string, string];
  const read = (...lines: string[]) => allOf(blobsOf(contentOf([head, ...lines].join(''))));
  t.deepEqual(await read(first, second), [
    { digest: a, size: 3 },
    { digest: b, size: 2 },
  ]);
  t.deepEqual(await read(first.replace(',3', ',0')), [{ digest: a, size: 0 }]);
  for (const lines of [
    [second, first],
    [first, first],
    [first.replace(',3', ',-1')],
    [first.replace(',3', ',0.5')],
    [first.replace(',3', ',null')],
    [first.replace('sha256:', 'md5:')],
    ['[null,1]\n'],
  ])
    await t.throwsAsync(read(...lines), refused('the rows of blobs in the backup are damaged'), lines.join(''));
});

const member = (name: string, text: string | Buffer) => ({ name, bytes: Buffer.from(text) });

test('a backup that is not whole is refused with what is wrong with it', async (t) => {
  const folder = await folderUntilEnd(t);
  const { paths } = folderStorage(folder);
  await makeFolder(paths.staging);
  const tables = member(rowsName(state, 'blobs'), rows.join(''));
  const [one, two] = [member(blobName(a), 'xxx'), member(blobName(b), 'yy')];
  const missing = member(missingName(state), '');
  const end = (changes: Partial<BackupManifest> = {}) =>
    member(manifestName, encodeManifest({ ...manifest, ...changes }));
  const taken: unknown[] = [];
  const read = async (members: { name: string; bytes: Buffer }[], isSound = true, keepRows = true) => {
    const files = new Map<string, StagedFile>();
    taken.length = 0;
    const take = async (blob: object, bytes: AsyncIterable<Uint8Array>) => {
      taken.push({ ...blob, text: Buffer.concat(await allOf(bytes)).toString() });
      return isSound;
    };
    try {
      const {
        known,
        problems,
        manifest: found,
      } = await readBackup(fromMemory(members), paths, files, take, { keepRows });
      return { known, problems, manifest: found };
    } finally {
      for (const each of files.values()) await each.discard();
    }
  };
  const whole = [tables, one, two, missing, end()];
  for (const keepRows of [true, false])
    t.deepEqual(await read(whole, true, keepRows), { known: [], problems: [], manifest });
  t.deepEqual(taken, [
    { digest: a, size: 3, text: 'xxx' },
    { digest: b, size: 2, text: 'yy' },
  ]);
  t.deepEqual((await read(whole, false)).problems, [
    { digest: a, kind: 'damaged' },
    { digest: b, kind: 'damaged' },
  ]);
  t.deepEqual((await read([tables, two, missing, end()])).problems, [{ digest: a, kind: 'missing' }]);
  t.deepEqual((await read([tables, one, missing, end()])).problems, [{ digest: b, kind: 'missing' }]);
  const noted = `${b}\n`;
  const told = { missing: { count: 1, bytes: noted.length, digest: digestOf(noted) } };
  const withNote = [tables, one, member(missingName(state), noted), end(told)];
  t.like(await read(withNote), { known: [{ digest: b, kind: 'missing' }], problems: [] });
  const wrongNote = { missing: { count: 1, bytes: 2, digest: digestOf('x\n') } };
  const other = state.replace('1', '2');
  const [table] = manifest.tables;
  const cases: [string, { name: string; bytes: Buffer }[]][] = [
    ['the backup has no manifest: it is truncated, or was not finished', whole.slice(0, -1)],
    [`the backup has ${one.name} after its manifest`, [...whole, one]],
    [`${tables.name} is in the backup twice, or too late`, [tables, ...whole]],
    [
      `${rowsName(state, 'late')} is in the backup twice, or too late`,
      [tables, one, member(rowsName(state, 'late'), '')],
    ],
    [`${missing.name} is in the backup twice`, [tables, missing, missing]],
    ['the backup has files of another backup', [tables, one, two, member(missingName(other), ''), end()]],
    ['the list of missing blobs in the backup is damaged', [tables, one, two, end()]],
    ['the list of missing blobs in the backup is damaged', [tables, one, two, member(missing.name, 'x'), end()]],
    [
      'the list of missing blobs in the backup is damaged',
      [tables, one, two, member(missing.name, 'x\n'), end(wrongNote)],
    ],
    [
      'the backup has no rows of the table accounts',
      [...whole.slice(0, -1), end({ tables: [table!, { ...table!, name: 'accounts' }] })],
    ],
    ['the rows of the table blobs are damaged', [...whole.slice(0, -1), end({ tables: [{ ...table!, bytes: 1 }] })]],
    ['the rows of the table blobs are damaged', [...whole.slice(0, -1), end({ tables: [{ ...table!, digest: a }] })]],
    ['the backup has rows that its manifest does not name', [member(rowsName(state, 'more'), ''), ...whole]],
    [
      'the blobs of the backup are not those of its manifest',
      [...whole.slice(0, -1), end({ blobs: { count: 3, bytes: 5 } })],
    ],
    [
      'the blobs of the backup are not those of its manifest',
      [...whole.slice(0, -1), end({ blobs: { count: 2, bytes: 6 } })],
    ],
    ['the backup has no rows of blobs before its blobs', [one]],
    [`the backup has the blob ${a} twice, in the wrong place, or without a row`, [tables, one, one]],
    [`the backup has the blob ${a} twice, in the wrong place, or without a row`, [tables, two, one]],
    [
      `the backup has the blob ${sha512} twice, in the wrong place, or without a row`,
      [tables, member(blobName(sha512), 'x')],
    ],
    [`the blob ${a} has 1 bytes in the backup, and not 3`, [tables, member(one.name, 'x')]],
    ['the manifest of the backup is larger than 1048576 bytes', [member(manifestName, Buffer.alloc(2 ** 20 + 1))]],
  ];
  for (const [message, members] of cases) await t.throwsAsync(read(members), refused(message), message);
  await t.throwsAsync(
    read([member(manifestName, Buffer.alloc(2 ** 20))]),
    refused('the manifest of the backup is damaged'),
  );
});

test('a backup may lack 100,000 blobs, and a check can be stopped', async (t) => {
  const { paths } = folderStorage(await folderUntilEnd(t));
  await makeFolder(paths.staging);
  const read = async (count: number, signal?: AbortSignal) => {
    const lines = Array.from({ length: count }, (_, each) => `["sha256:${each.toString(16).padStart(64, '0')}",1]\n`);
    const file = fileOf([rows[0]!, ...lines]);
    const { text, ...table } = file;
    const change = { tables: [{ name: 'blobs', ...table }], blobs: { count, bytes: count } };
    const members = [
      member(rowsName(state, 'blobs'), text),
      member(missingName(state), ''),
      member(manifestName, encodeManifest({ ...manifest, ...change })),
    ];
    const files = new Map<string, StagedFile>();
    try {
      const options = { keepRows: false, signal };
      return (await readBackup(fromMemory(members), paths, files, () => Promise.resolve(true), options)).problems
        .length;
    } finally {
      for (const each of files.values()) await each.discard();
    }
  };
  t.is(await read(100_000), 100_000);
  await t.throwsAsync(read(100_001), refused('more than 100000 blobs of the backup are missing or damaged'));
  t.is(await read(1, new AbortController().signal), 1);
  await t.throwsAsync(read(1, AbortSignal.abort(new Error('stopped'))), { message: 'stopped' });
});

test('a share of an earlier backup is compared, where the last one ended, until all was', (t) => {
  t.is(shareOf({ count: 4, bytes: 1000 }), 256 * 2 ** 20);
  t.is(shareOf({ count: 100, bytes: 2 ** 40 }), (2 ** 40 + 100 * 65_536) / 20);
  const blobs = [a, b].map((digest) => ({ digest, size: 10 }));
  const whole = new Share('', Infinity);
  t.deepEqual([blobs.map((each) => whole.takes(each)), whole.next], [[true, true], '']);
  const later = new Share(a, Infinity);
  t.deepEqual([blobs.map((each) => later.takes(each)), later.next], [[false, true], '']);
  const first = new Share('', 1);
  t.deepEqual([blobs.map((each) => first.takes(each)), first.next], [[true, false], a]);
});
