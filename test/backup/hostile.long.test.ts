import { createWriteStream } from 'node:fs';
import { access, readdir, readFile, rename, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import test, { type ExecutionContext } from 'ava';
import { pack } from 'tar-stream';
import { decodeManifest, encodeManifest, rowsName, type BackupManifest } from '../../src/backup/format.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { execute } from '../support/clients/clients.ts';
import { entrepot } from '../support/in-process.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { emptyPlace, membersOf, serveOn } from './support.ts';

interface Made {
  name: string;
  bytes: Buffer;
  type?: 'symlink' | 'link' | 'directory';
}

/** The archive of a small installation. */
async function goodArchive(t: ExecutionContext): Promise<string> {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place);
  await new TestFeed(server).publish({ id: 'First', version: '1.0.0' }, { id: 'Second', version: '1.0.0' });
  const path = join(place.folder, 'good.tar');
  t.is((await entrepot(place.environment, 'backup', path)).code, 0);
  return path;
}

async function writeTar(path: string, members: readonly Made[]): Promise<void> {
  const archive = pack();
  const written = pipeline(async function* () {
    yield* archive as AsyncIterable<Buffer>;
  }, createWriteStream(path));
  for (const { name, bytes, type } of members) {
    if (type) archive.entry({ name, type, linkname: '/etc/passwd', size: 0 });
    else archive.entry({ name, size: bytes.length }, bytes);
  }
  archive.finalize();
  await written;
}

/** Fails unless the archive is refused by both commands, and nothing is left of it that a server would use. */
async function refused(t: ExecutionContext, path: string, message: RegExp, what: string): Promise<void> {
  const verified = await entrepot({}, 'verify', path);
  t.is(verified.code, 1, what);
  t.regex(verified.stderr + verified.stdout, message, what);
  const place = await emptyPlace(t, 'sqlite');
  const restored = await entrepot(place.environment, 'restore', path);
  t.is(restored.code, 1, what);
  t.is(restored.stderr.trimEnd().split('\n').length, 1, restored.stderr);
  t.deepEqual(await readdir(place.folder), ['data'], what);
  t.deepEqual((await readdir(join(place.data, 'staging'))).length, 0, what);
  const start = await entrepot({ ...place.environment, ENTREPOT_PORT: '0' }, 'serve');
  t.is(start.code, 1, what);
  t.regex(start.stderr, /a restore into this place is not finished/, what);
}

test('a truncated or changed archive is refused', async (t) => {
  const good = await goodArchive(t);
  const folder = await folderUntilEnd(t);
  const { size } = await stat(good);
  const bytes = await readFile(good);
  const cut = async (length: number, message: RegExp) => {
    const path = join(folder, `cut-${length}.tar`);
    await writeFile(path, bytes);
    await truncate(path, length);
    await refused(t, path, message, `cut to ${length} of ${size}`);
  };
  await cut(Math.floor(size / 2), /truncated/);
  const manifestAt = bytes.lastIndexOf('manifest\0');
  await cut(manifestAt, /no manifest: it is truncated/);
  await cut(manifestAt + 700, /truncated/);
  await cut(0, /no manifest/);
  const members = await membersOf(good);
  for (const [name, message] of [
    [/accounts\.jsonl$/, /rows of the table accounts are damaged/],
    [/\/blobs\.jsonl$/, /damaged|in the wrong place/],
    [/^blobs\//, /damaged sha256:/],
    [/missing-blobs/, /list of missing blobs|manifest/],
    [/^manifest$/, /manifest of the backup is damaged/],
  ] as const) {
    const path = join(folder, 'flipped.tar');
    const changed = members.map((each) => ({ name: each.name, bytes: Buffer.from(each.bytes) }));
    const member = changed.find((each) => name.test(each.name))!;
    if (member.bytes.length > 0) member.bytes[Math.floor(member.bytes.length / 2)]! ^= 1;
    else member.bytes = Buffer.from('x\n');
    await writeTar(path, changed);
    await refused(t, path, message, String(name));
  }
});

test('a hostile archive is refused', async (t) => {
  const good = await membersOf(await goodArchive(t));
  const folder = await folderUntilEnd(t);
  const path = join(folder, 'hostile.tar');
  const outside = join(folder, 'outside');
  const extra = Buffer.from('extra');
  const at = (name: RegExp) => good.findIndex((each) => name.test(each.name));
  const blob = good[at(/^blobs\//)]!;
  const rows = good[at(/accounts\.jsonl$/)]!;
  const before = (index: number, made: Made): Made[] => good.toSpliced(index, 0, made);
  const cases: [what: string, members: Made[], message: RegExp][] = [
    ['a path outside', before(0, { name: '../../outside', bytes: extra }), /which no backup has/],
    ['an absolute path', before(0, { name: outside, bytes: extra }), /which no backup has/],
    [
      'dots in a path',
      before(0, { name: rows.name.replace('accounts', '../accounts'), bytes: extra }),
      /which no backup/,
    ],
    [
      'dots in a digest',
      before(at(/^blobs/), { name: 'blobs/sha256/aa/../../../x', bytes: extra }),
      /which no backup has/,
    ],
    ['a symlink', before(0, { name: blob.name, bytes: extra, type: 'symlink' }), /not a regular file/],
    ['a hard link', before(0, { name: blob.name, bytes: extra, type: 'link' }), /not a regular file/],
    ['a folder', before(0, { name: 'rows', bytes: extra, type: 'directory' }), /not a regular file/],
    ['a blob twice', before(at(/^blobs\//), blob), /twice, in the wrong place/],
    ['rows twice', before(0, rows), /in the backup twice/],
    [
      'a blob without a row',
      before(at(/^blobs\//), { name: `blobs/sha256/00/${'0'.repeat(64)}`, bytes: extra }),
      /without a row/,
    ],
    [
      'a blob of another size',
      good.with(at(/^blobs\//), { name: blob.name, bytes: Buffer.concat([blob.bytes, extra]) }),
      /bytes in the backup, and not/,
    ],
    [
      'other bytes',
      good.with(at(/^blobs\//), { name: blob.name, bytes: Buffer.alloc(blob.bytes.length) }),
      /damaged sha256/,
    ],
    ['a blob that is missing', good.toSpliced(at(/^blobs\//), 1), /missing sha256/],
    ['rows that are missing', good.toSpliced(at(/accounts\.jsonl$/), 1), /no rows of the table accounts/],
    ['something after the manifest', [...good, { name: blob.name, bytes: blob.bytes }], /after its manifest/],
    ['a blob before the rows', [blob, ...good], /no rows of blobs/],
    ['a huge manifest', [...good.slice(0, -1), { name: 'manifest', bytes: Buffer.alloc(2 ** 20 + 1) }], /larger than/],
  ];
  for (const [what, members, message] of cases) {
    await writeTar(path, members);
    await refused(t, path, message, what);
  }
  await t.throwsAsync(access(outside));
  const huge = await readFile(join(folder, 'hostile.tar'));
  // The first header says that its member has 8 GiB - 1.
  huge.write('77777777777 ', 124);
  huge.fill(' ', 148, 156);
  const sum = huge.subarray(0, 512).reduce((total, byte) => total + byte, 0);
  huge.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  await writeFile(path, huge);
  await refused(t, path, /truncated/, 'a huge length');
});

test('a changed manifest with a right digest is refused', async (t) => {
  const good = await membersOf(await goodArchive(t));
  const path = join(await folderUntilEnd(t), 'changed.tar');
  const manifest = decodeManifest(good.at(-1)!.bytes);
  const withManifest = async (changes: object) =>
    writeTar(path, [...good.slice(0, -1), { name: 'manifest', bytes: encodeManifest({ ...manifest, ...changes }) }]);
  const { tables, blobs } = manifest;
  const cases: [object, RegExp][] = [
    [{ version: 2 }, /not one that this version can read/],
    [{ tables: [...tables, { name: 'a; DROP TABLE x', rows: 0, bytes: 0, digest: digestOf('') }] }, /not one that/],
    [{ tables: tables.slice(1) }, /does not name/],
    [{ blobs: { ...blobs, count: blobs.count + 1 } }, /not those of its manifest/],
    [{ blobs: { ...blobs, bytes: -1 } }, /not one that/],
    [{ state: '8a9d1bd1-3a0e-4b3c-9a52-8f8f6a4d8a53' }, /files of another backup/],
  ];
  for (const [changes, message] of cases) {
    await withManifest(changes);
    await refused(t, path, message, JSON.stringify(changes).slice(0, 80));
  }
  const place = await emptyPlace(t, 'sqlite');
  await withManifest({ migrations: [...manifest.migrations, '999-1-later'], program: '9.0.0' });
  const newer = await entrepot(place.environment, 'restore', path);
  t.regex(newer.stderr, /made by Entrepot 9.0.0.*Restore with a newer version/);
  await withManifest({ tables: tables.map((each) => ({ ...each, rows: each.rows + 1 })) });
  const short = await entrepot(place.environment, 'restore', path);
  t.regex(short.stderr, /has 1 rows, and 2 in the backup/);
  const start = await entrepot({ ...place.environment, ENTREPOT_PORT: '0' }, 'serve');
  t.regex(start.stderr, /a restore into this place is not finished/);
});

/** The members with other rows of a table, and a manifest that fits them. */
function withRows(good: readonly Made[], table: string, change: (lines: string[]) => string[]): Made[] {
  const manifest = decodeManifest(good.at(-1)!.bytes);
  const name = rowsName(manifest.state, table);
  const [header, ...before] = good
    .find((each) => each.name === name)!
    .bytes.toString()
    .trimEnd()
    .split('\n');
  const lines = change(before);
  const bytes = Buffer.from(`${[header, ...lines].join('\n')}\n`);
  const changed: BackupManifest = {
    ...manifest,
    tables: manifest.tables.map((each) =>
      each.name === table ? { ...each, rows: lines.length, bytes: bytes.length, digest: digestOf(bytes) } : each,
    ),
  };
  return good.map((each) => {
    if (each.name === 'manifest') return { ...each, bytes: encodeManifest(changed) };
    return each.name === name ? { ...each, bytes } : each;
  });
}

test('rows of blobs that are there twice are refused, also with a fitting manifest', async (t) => {
  const good: Made[] = await membersOf(await goodArchive(t));
  const path = join(await folderUntilEnd(t), 'rows.tar');
  await writeTar(
    path,
    withRows(good, 'blobs', (lines) => lines),
  );
  t.is((await entrepot({}, 'verify', path)).code, 0, 'the same rows');
  const changes: [string, (lines: string[]) => string[]][] = [
    ['the first twice', ([first, ...rest]) => [first!, first!, ...rest]],
    ['the last twice', (lines) => [...lines, lines.at(-1)!]],
  ];
  for (const [what, change] of changes) {
    const changed = withRows(good, 'blobs', change);
    await writeTar(path, changed);
    await refused(t, path, /the rows of blobs in the backup are damaged/, what);
  }
});

test('a link or a pipe among the rows of a folder is not followed', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place);
  await new TestFeed(server).publish({ id: 'First', version: '1.0.0' });
  const path = join(place.folder, 'backup');
  t.is((await entrepot(place.environment, 'backup', path)).code, 0);
  const { state } = decodeManifest(await readFile(join(path, 'manifest')));
  for (const table of ['accounts', 'blobs']) {
    const file = join(path, rowsName(state, table));
    const outside = join(place.folder, `${table}.jsonl`);
    await rename(file, outside);
    const put: [string, () => Promise<unknown>][] = [
      ['a link to the same rows', () => symlink(outside, file)],
      ['a pipe that nobody writes', () => execute('mkfifo', [file])],
    ];
    for (const [what, make] of put) {
      await make();
      await refused(t, path, new RegExp(`the backup has no rows of the table ${table}`), `${table}: ${what}`);
      await rm(file);
    }
    await rename(outside, file);
  }
  t.is((await entrepot({}, 'verify', path)).code, 0);
});
