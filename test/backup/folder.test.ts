import { access, mkdir, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { openFolder, readFolder, type Folder } from '../../src/backup/folder.ts';
import { blobName, encodeManifest, manifestName, missingName, rowsName } from '../../src/backup/format.ts';
import type { BackupManifest } from '../../src/backup/format.ts';
import type { NamedBlob } from '../../src/backup/rows.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { Throttle } from '../../src/runtime/incoming.ts';
import { folderStorage } from '../../src/server/place.ts';
import { contentOf } from '../../src/storage/files/content.ts';
import { folderUntilEnd } from '../support/folder.ts';

// A backup in a folder, without an installation.

const states = [1, 2, 3].map((number) => `${number}1111111-1111-4111-8111-111111111111`) as [string, string, string];
const [own, foreign] = ['a', 'b'].map((letter) => `${letter}1111111-1111-4111-8111-111111111111`) as [string, string];
const throttle = new Throttle(2 ** 40, undefined);

const blobs = (...texts: string[]) =>
  texts
    .map((text) => ({ digest: digestOf(text), size: text.length, text }))
    .toSorted((one, other) => (one.digest < other.digest ? -1 : 1));

async function* iterate<T>(items: readonly T[]): AsyncGenerator<T> {
  yield* items;
}

const sizedContent = (text: string) => Object.assign(contentOf(Buffer.from(text)), { size: text.length });
const linesOf = (columns: readonly (readonly [string, string])[], rows: readonly unknown[][]) =>
  [{ columns: columns.map(([name, kind]) => ({ name, kind })) }, ...rows]
    .map((row) => `${JSON.stringify(row)}\n`)
    .join('');
const blobLines = (named: readonly NamedBlob[]) =>
  linesOf(
    [
      ['digest', 'text'],
      ['size', 'number'],
    ],
    named.map(({ digest, size }) => [digest, size]),
  );
const accountLines = (createdAt: number) =>
  linesOf(
    [
      ['id', 'number'],
      ['created_at', 'number'],
    ],
    [
      [1, createdAt],
      [2, 99],
    ],
  );

async function emptyFolder(t: ExecutionContext): Promise<Folder> {
  const path = join(await folderUntilEnd(t), 'backup');
  return { path, ...folderStorage(path) };
}

/** The folder opened anew: a target closes its driver. */
const again = ({ path }: Folder): Folder => ({ path, ...folderStorage(path) });

interface Made {
  state: string;
  installation?: string;
  /** Whether the manifest names the installation. */
  isNamed?: boolean;
  createdAt?: number;
  named: ReturnType<typeof blobs>;
}

/** Writes a whole backup: each blob that the folder does not have, or that is damaged there. */
async function write(folder: Folder, { state, installation = own, isNamed = true, createdAt = 5, named }: Made) {
  await using target = await openFolder(again(folder), true);
  const earlier = await target.begin(state, installation);
  await target.putRows('accounts', sizedContent(accountLines(createdAt)));
  // Only the accounts say which installation it is.
  await target.putRows(`added_${state[0]}`, sizedContent(accountLines(Number(state[0]))));
  await target.putRows('blobs', sizedContent(blobLines(named)));
  const copied: string[] = [];
  for (const blob of named) {
    if ((await target.has(blob)) && (await target.isSound(blob, throttle))) continue;
    copied.push(blob.text);
    await target.putBlob(blob, iterate([Buffer.from(blob.text)]), () => true);
  }
  await target.putMissing(Buffer.from('none\n'));
  const table = { rows: 0, bytes: 0, digest: digestOf('') };
  const manifest: BackupManifest = {
    format: 'entrepot-backup',
    version: 1,
    created_at: 'now',
    program: '1',
    ...(isNamed && { installation }),
    state,
    mirrored: true,
    migrations: [],
    tables: [
      { name: 'accounts', ...table },
      { name: 'blobs', ...table },
    ],
    blobs: { count: 0, bytes: 0 },
    missing: { count: 0, bytes: 0, digest: digestOf('') },
  };
  await target.finish(manifest, () => iterate(named));
  return { earlier, copied, manifest };
}

async function membersIn(folder: Folder) {
  const found: [string, string][] = [];
  for await (const { name, size, bytes } of readFolder(again(folder))) {
    const pieces: Uint8Array[] = [];
    for await (const each of bytes) pieces.push(each);
    const text = Buffer.concat(pieces).toString();
    found.push([name, text]);
    if (text.length !== size) found.push([name, `announced as ${size}`]);
  }
  return found;
}

const pathOf = ({ path }: Folder, digest: Digest) => join(path, blobName(digest));
const filesBelow = async (path: string) =>
  (await readdir(path, { recursive: true, withFileTypes: true })).filter((each) => each.isFile()).length;

test('a folder has the members of a backup, and other users cannot read it', async (t) => {
  const folder = await emptyFolder(t);
  const named = blobs('one', 'two', 'three');
  const [state] = states;
  const { earlier, copied, manifest } = await write(folder, { state, named });
  t.is(earlier, undefined);
  t.is(copied.length, 3);
  const members = [
    [rowsName(state, 'accounts'), accountLines(5)],
    [rowsName(state, 'blobs'), blobLines(named)],
    ...named.map(({ digest, text }) => [blobName(digest), text]),
    [missingName(state), 'none\n'],
    [manifestName, encodeManifest(manifest).toString()],
  ];
  t.deepEqual(await membersIn(folder), members as [string, string][]);
  for (const each of ['', 'rows', `rows/${state}`, 'blobs', 'staging', 'lock', manifestName, rowsName(state, 'blobs')])
    t.is((await stat(join(folder.path, each))).mode & 0o077, 0, each);
  // What is missing is left out: a check names it.
  await rm(pathOf(folder, named[0]!.digest));
  await truncate(pathOf(folder, named[1]!.digest), 1);
  await rm(join(folder.path, rowsName(state, 'accounts')));
  await rm(join(folder.path, missingName(state)));
  t.deepEqual(
    (await membersIn(folder)).map(([name]) => name),
    [rowsName(state, 'blobs'), blobName(named[2]!.digest), manifestName],
  );
  await rm(join(folder.path, rowsName(state, 'blobs')));
  t.deepEqual(
    (await membersIn(folder)).map(([name]) => name),
    [manifestName],
  );
});

test('a later backup copies what is new or damaged, and removes what it does not need', async (t) => {
  const folder = await emptyFolder(t);
  const first = await write(folder, { state: states[0], named: blobs('kept', 'old', 'flipped', 'short') });
  const long = `sha512:${'0a'.repeat(64)}` as Digest;
  const other = `sha512:${'0b'.repeat(64)}` as Digest;
  for (const each of [long, other]) {
    await mkdir(join(pathOf(folder, each), '..'), { recursive: true });
    await writeFile(pathOf(folder, each), 'long');
  }
  await writeFile(pathOf(folder, digestOf('flipped')), 'Flipped');
  await writeFile(pathOf(folder, digestOf('short')), 'sh');
  await writeFile(join(folder.path, 'staging', 'left'), 'x');
  await mkdir(join(folder.path, 'rows', states[2]));
  const named = blobs('kept', 'flipped', 'short', 'new');
  const withLong = [...named, { digest: long, size: 4, text: 'long' }];
  await using target = await openFolder(again(folder), true);
  t.deepEqual(await readdir(join(folder.path, 'staging')), []);
  t.deepEqual(await target.begin(states[1], own), first.manifest);
  t.deepEqual((await readdir(join(folder.path, 'rows'))).toSorted(), [states[0], states[1]], 'a failed one is gone');
  t.deepEqual(
    await Promise.all(named.map(async (each) => [each.text, await target.has(each)])),
    named.map(({ text }) => [text, ['kept', 'flipped'].includes(text)]),
  );
  const sound = async (text: string) => target.isSound({ digest: digestOf(text), size: text.length }, throttle);
  t.deepEqual(
    [await sound('kept'), await sound('flipped'), await sound('short'), await sound('gone')],
    [true, false, false, false],
  );
  const put = (text: string, isSound: boolean) =>
    target.putBlob({ digest: digestOf(text), size: text.length }, iterate([Buffer.from(text)]), () => isSound);
  await put('new', false);
  await t.throwsAsync(access(pathOf(folder, digestOf('new'))), { code: 'ENOENT' }, 'wrong bytes');
  for (const text of ['new', 'flipped', 'short', 'kept']) await put(text, true);
  const content = async (text: string) => readFile(pathOf(folder, digestOf(text)), 'utf8');
  for (const text of ['new', 'flipped', 'kept']) t.is(await content(text), text);
  t.deepEqual(await readdir(join(folder.path, 'staging')), []);
  await target.putRows('blobs', sizedContent(blobLines(withLong)));
  await target.putMissing(Buffer.from(''));
  await target.finish({ ...first.manifest, state: states[1] }, () => iterate(withLong));
  t.deepEqual(await readdir(join(folder.path, 'rows')), [states[1]]);
  await t.throwsAsync(access(pathOf(folder, digestOf('old'))), { code: 'ENOENT' });
  await t.throwsAsync(access(pathOf(folder, other)), { code: 'ENOENT' });
  t.is(await readFile(pathOf(folder, long), 'utf8'), 'long');
});

test('damaged bytes that nothing replaces are not in the backup', async (t) => {
  const folder = await emptyFolder(t);
  const named = blobs('sound', 'damaged');
  const { manifest } = await write(folder, { state: states[0], named });
  await writeFile(pathOf(folder, digestOf('damaged')), 'Damaged');
  await using target = await openFolder(again(folder), true);
  await target.begin(states[1], own);
  for (const each of named) await target.isSound(each, throttle);
  await target.putRows('blobs', sizedContent(blobLines(named)));
  await target.finish({ ...manifest, state: states[1] }, () => iterate(named));
  await t.throwsAsync(access(pathOf(folder, digestOf('damaged'))), { code: 'ENOENT' });
  await t.notThrowsAsync(access(pathOf(folder, digestOf('sound'))));
});

test('a folder with anything else, another backup or a running one is left as it is', async (t) => {
  const folder = await emptyFolder(t);
  const { path } = folder;
  await write(folder, { state: states[0], named: blobs('one') });
  await t.throwsAsync(openFolder(again(folder), false), {
    message: `${path} has a backup already. To renew it, add --incremental; or name another folder`,
  });
  {
    await using target = await openFolder(again(folder), true);
    await t.throwsAsync(openFolder(again(folder), true), {
      message: `another backup writes to ${path} now. Start this one when it has ended`,
    });
    await t.throwsAsync(target.begin(states[1], foreign), { message: /has a backup of another installation/ });
  }
  t.deepEqual(await readdir(join(path, 'rows')), [states[0]]);
  t.is(await filesBelow(join(path, 'blobs')), 1);
  // A backup that was killed before its first manifest.
  await rm(join(path, manifestName));
  await (await openFolder(again(folder), true))[Symbol.asyncDispose]();
  for (const part of ['blobs', 'rows']) {
    const other = await emptyFolder(t);
    await mkdir(join(other.path, part), { recursive: true });
    await t.throwsAsync(openFolder(other, true), { message: /is not empty, and has no backup\. Name another folder$/ });
    t.deepEqual(await readdir(other.path), [part]);
  }
  await t.throwsAsync(membersIn(folder), { name: 'Invalid', message: /no file manifest$/ });
});

test('a backup that names no installation is renewed by the one whose first account is as old', async (t) => {
  const folder = await emptyFolder(t);
  await write(folder, { state: states[0], isNamed: false, named: blobs('one') });
  const other = write(folder, { state: states[1], installation: foreign, createdAt: 6, named: blobs('two') });
  await t.throwsAsync(other, { message: /has a backup of another installation/ });
  t.is((await membersIn(folder)).length, 5, 'the earlier one is whole');
  const { earlier } = await write(folder, { state: states[2], named: blobs('two') });
  t.is(earlier!.state, states[0]);
  t.is((await write(folder, { state: states[1], createdAt: 7, named: blobs('two') })).earlier!.state, states[2]);
});

test('a manifest that is too large, or changes meanwhile, ends the reading', async (t) => {
  const folder = await emptyFolder(t);
  const { manifest } = await write(folder, { state: states[0], named: blobs('one') });
  const file = join(folder.path, manifestName);
  const reading = readFolder(again(folder));
  await reading.next();
  await writeFile(file, encodeManifest({ ...manifest, state: states[1] }));
  const rest = async () => {
    for await (const { bytes } of reading) for await (const each of bytes) t.true(each.length > 0);
  };
  await t.throwsAsync(rest(), { message: /was renewed by a backup while it was read\. Read it again$/ });
  await writeFile(file, Buffer.alloc(2 ** 20));
  await t.throwsAsync(membersIn(folder), { message: 'the manifest of the backup is damaged' });
  await writeFile(file, Buffer.alloc(2 ** 20 + 1));
  await t.throwsAsync(membersIn(folder), { message: `${file} is larger than a manifest can be` });
  await rm(file);
  await mkdir(file);
  await t.throwsAsync(membersIn(folder), { message: /there is no backup, or the first one is not complete/ });
});

test('bytes that the disk cannot read end a blob, and other failures the backup', async (t) => {
  const folder = await emptyFolder(t);
  const named = blobs('text of a blob');
  const [blob] = named as [(typeof named)[0]];
  await write(folder, { state: states[0], named });
  const { paths, driver } = folderStorage(folder.path);
  const open = driver.open.bind(driver);
  const failing = (error: Error, at: 'open' | 'read') => {
    driver.open = async (...given) => {
      if (at === 'open') throw error;
      const content = await open(...given);
      return Object.assign(content, {
        read: async () => {
          throw error;
        },
      });
    };
  };
  const read = async () => {
    const found: string[] = [];
    for await (const { name, bytes } of readFolder({ path: folder.path, paths, driver })) {
      if (name !== blobName(blob.digest)) continue;
      let text = '';
      for await (const each of bytes) text += Buffer.from(each).toString();
      found.push(text);
    }
    return found;
  };
  t.deepEqual(await read(), ['text of a blob']);
  failing(Object.assign(new Error('bad sector'), { code: 'EIO' }), 'read');
  t.deepEqual(await read(), ['']);
  failing(Object.assign(new Error('too many files'), { code: 'EMFILE' }), 'read');
  await t.throwsAsync(read(), { message: 'too many files' });
  for (const name of ['BlobUnknown', 'ContentDamaged'] as const) {
    failing(new DomainError(name, 'gone'), 'open');
    t.deepEqual(await read(), [], name);
  }
  failing(new DomainError('Denied', 'other'), 'open');
  await t.throwsAsync(read(), { message: 'other' });
});

test('a backup that cannot be read is not one that is missing', async (t) => {
  const parent = await folderUntilEnd(t);
  const read = async (path: string) => {
    for await (const { name } of readFolder({ path, ...folderStorage(path) })) t.fail(name);
  };
  await writeFile(join(parent, 'file'), '');
  for (const name of ['none', 'file', 'file/none'])
    await t.throwsAsync(read(join(parent, name)), {
      message: /: there is no backup, or the first one is not complete/,
    });
  await t.throwsAsync(read(join(parent, 'x'.repeat(300))), { code: 'ENAMETOOLONG' });
});
