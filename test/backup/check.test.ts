import { readdir } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import { hashBlob, readBackup } from '../../src/backup/check.ts';
import {
  blobName,
  encodeManifest,
  manifestName,
  missingName,
  rowsName,
  type BackupManifest,
} from '../../src/backup/format.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { Paths } from '../../src/storage/files/paths.ts';
import { makeFolder } from '../../src/storage/files/permissions.ts';
import type { StagedFile } from '../../src/storage/files/staged-file.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { fromMemory } from './support.ts';

// What a check of a backup finds, without an installation.

const state = '11111111-1111-4111-8111-111111111111';
const other = '22222222-2222-4222-8222-222222222222';

type Named = readonly { digest: Digest; size: number }[];
type Members = { name: string; bytes: Buffer }[];

const columns = JSON.stringify({
  columns: [
    { name: 'digest', kind: 'text' },
    { name: 'size', kind: 'number' },
  ],
});

const tableOf = (name: string, bytes: Buffer) => ({ name, rows: 0, bytes: bytes.length, digest: digestOf(bytes) });
const twice = (digest: Digest) => `the backup has the blob ${digest} twice, in the wrong place, or without a row`;

/** The members of a backup of these blobs, without their bytes. */
function backupOf(named: Named, known: readonly Digest[] = [], changes: Partial<BackupManifest> = {}) {
  const blobs = Buffer.from(
    [columns, ...named.map(({ digest, size }) => JSON.stringify([digest, size])), ''].join('\n'),
  );
  const accounts = Buffer.from(`${columns}\n`);
  const missing = Buffer.from(known.map((digest) => `${digest}\n`).join(''));
  const manifest: BackupManifest = {
    format: 'entrepot-backup',
    version: 1,
    created_at: 'now',
    program: '1',
    state,
    mirrored: true,
    migrations: [],
    tables: [tableOf('accounts', accounts), tableOf('blobs', blobs)],
    blobs: { count: named.length, bytes: named.reduce((sum, { size }) => sum + size, 0) },
    missing: { count: known.length, bytes: missing.length, digest: digestOf(missing) },
    ...changes,
  };
  return {
    manifest,
    accounts: { name: rowsName(state, 'accounts'), bytes: accounts },
    blobs: { name: rowsName(state, 'blobs'), bytes: blobs },
    missing: { name: missingName(state), bytes: missing },
    end: { name: manifestName, bytes: encodeManifest(manifest) },
  };
}

async function setUp(t: ExecutionContext) {
  const paths = new Paths(await folderUntilEnd(t));
  await makeFolder(paths.staging);
  const taken: string[] = [];
  const read = async (members: Members, keepRows = false, signal?: AbortSignal) => {
    const rows = new Map<string, StagedFile>();
    taken.length = 0;
    try {
      const take: Parameters<typeof readBackup>[3] = async (blob, bytes) => {
        taken.push(`${blob.digest} ${blob.size}`);
        return hashBlob(blob, bytes);
      };
      const { rows: files, ...found } = await readBackup(fromMemory(members), paths, rows, take, { keepRows, signal });
      return { ...found, files: [...files.keys()], staged: (await readdir(paths.staging)).length };
    } finally {
      for (const file of rows.values()) await file.discard();
      t.deepEqual(await readdir(paths.staging), []);
    }
  };
  return { read, taken };
}

const texts = ['one', 'two', 'three', 'four'];
const named = texts
  .map((text) => ({ digest: digestOf(text), size: text.length, text }))
  .toSorted((one, next) => (one.digest < next.digest ? -1 : 1));
const blobOf = ({ digest, text }: (typeof named)[0], bytes = text) => ({
  name: blobName(digest),
  bytes: Buffer.from(bytes),
});
const [first, second, third, fourth] = named as [
  (typeof named)[0],
  (typeof named)[0],
  (typeof named)[0],
  (typeof named)[0],
];
const invalid = (message: string) => ({ name: 'Invalid', message });

test('blobs that are missing or damaged are named, apart from those of which it was known', async (t) => {
  const { read, taken } = await setUp(t);
  const parts = backupOf(named, [second.digest, third.digest]);
  const { accounts, blobs, missing, end, manifest } = parts;
  const damaged = (each: typeof first) => blobOf(each, each.text.toUpperCase());
  const files = [accounts.name, blobs.name, missing.name].map((name) => name.replace(/.*\/(\w+)\.jsonl/, '$1'));
  t.deepEqual(await read([accounts, blobs, damaged(first), damaged(third), missing, end]), {
    manifest,
    known: [
      { digest: second.digest, kind: 'missing' },
      { digest: third.digest, kind: 'damaged' },
    ],
    problems: [
      { digest: first.digest, kind: 'damaged' },
      { digest: fourth.digest, kind: 'missing' },
    ],
    files,
    staged: 2,
  });
  t.deepEqual(
    taken,
    [first, third].map(({ digest, size }) => `${digest} ${size}`),
  );
  const whole = await read([accounts, blobs, ...named.map((each) => blobOf(each)), missing, end], true);
  t.deepEqual([whole.known, whole.problems, whole.staged], [[], [], 3]);
  t.is(taken.length, 4);
});

test('a backup whose parts do not fit together is refused', async (t) => {
  const { read } = await setUp(t);
  const { accounts, blobs, missing, end } = backupOf(named);
  const bytes = named.map((each) => blobOf(each));
  const more = { name: rowsName(state, 'more'), bytes: accounts.bytes };
  const cases: [message: string, members: Members][] = [
    [twice(first.digest), [accounts, blobs, bytes[0]!, bytes[0]!]],
    [twice(first.digest), [accounts, blobs, bytes[1]!, bytes[0]!]],
    [twice(digestOf('another')), [accounts, blobs, blobOf({ digest: digestOf('another'), size: 7, text: 'another' })]],
    ['the backup has no rows of blobs before its blobs', [accounts, bytes[0]!]],
    [
      `the blob ${first.digest} has ${first.size + 1} bytes in the backup, and not ${first.size}`,
      [accounts, blobs, blobOf(first, `${first.text}x`)],
    ],
    [`${accounts.name} is in the backup twice, or too late`, [accounts, accounts]],
    [`${accounts.name} is in the backup twice, or too late`, [blobs, bytes[0]!, accounts]],
    [`${missing.name} is in the backup twice`, [missing, missing]],
    [`the backup has ${accounts.name} after its manifest`, [end, accounts]],
    ['the backup has no manifest: it is truncated, or was not finished', [accounts, blobs, ...bytes, missing]],
    [
      'the backup has files of another backup',
      [{ ...accounts, name: rowsName(other, 'accounts') }, blobs, missing, end],
    ],
    ['the backup has files of another backup', [accounts, blobs, { ...missing, name: missingName(other) }, end]],
    ['the list of missing blobs in the backup is damaged', [accounts, blobs, end]],
    [
      'the list of missing blobs in the backup is damaged',
      [accounts, blobs, { ...missing, bytes: Buffer.from('x\n') }, end],
    ],
    ['the backup has no rows of the table accounts', [blobs, missing, end]],
    ['the rows of the table accounts are damaged', [{ ...accounts, bytes: Buffer.from('x') }, blobs, missing, end]],
    [
      'the rows of the table accounts are damaged',
      [{ ...accounts, bytes: Buffer.from('x'.repeat(accounts.bytes.length)) }, blobs, missing, end],
    ],
    ['the backup has rows that its manifest does not name', [more, accounts, blobs, missing, end]],
    [
      'the blobs of the backup are not those of its manifest',
      [accounts, blobs, missing, backupOf(named, [], { blobs: { count: 5, bytes: 15 } }).end],
    ],
    [
      'the blobs of the backup are not those of its manifest',
      [accounts, blobs, missing, backupOf(named, [], { blobs: { count: 4, bytes: 14 } }).end],
    ],
  ];
  for (const [message, members] of cases) await t.throwsAsync(read(members), invalid(message), message);
  const wrong = backupOf(named, ['no digest' as Digest]);
  await t.throwsAsync(
    read([wrong.accounts, wrong.blobs, wrong.missing, wrong.end]),
    invalid('the list of missing blobs in the backup is damaged'),
  );
  const large = { name: manifestName, bytes: Buffer.alloc(2 ** 20 + 1) };
  await t.throwsAsync(read([large]), invalid('the manifest of the backup is larger than 1048576 bytes'));
  await t.throwsAsync(
    read([{ ...large, bytes: Buffer.alloc(2 ** 20) }]),
    invalid('the manifest of the backup is damaged'),
  );
  const stop = new AbortController();
  stop.abort(new Error('stopped'));
  await t.throwsAsync(read([accounts], false, stop.signal), { message: 'stopped' });
});

test('a backup that lacks a hundred thousand blobs is checked, and one that lacks more is refused', async (t) => {
  const { read } = await setUp(t);
  const lacking = (count: number) => {
    const many = Array.from({ length: count }, (_, at) => ({
      digest: `sha256:${String(at).padStart(64, '0')}` as Digest,
      size: 1,
    }));
    const { accounts, blobs, missing, end } = backupOf(many);
    return read([accounts, blobs, missing, end]);
  };
  t.is((await lacking(100_000)).problems.length, 100_000);
  await t.throwsAsync(lacking(100_001), invalid('more than 100000 blobs of the backup are missing or damaged'));
});
