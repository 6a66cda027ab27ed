import { createWriteStream } from 'node:fs';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import test, { type ExecutionContext } from 'ava';
import { pack, type Header } from 'tar-stream';
import { openArchive, readArchive } from '../../src/backup/archive.ts';
import { blobName, missingName, rowsName, type BackupManifest } from '../../src/backup/format.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { contentOf } from '../../src/storage/files/content.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { membersOf } from './support.ts';

// A backup in a tar file, without an installation.

const state = '11111111-1111-4111-8111-111111111111';
const digest = digestOf('content');
const bytesOf = (text: string) => Object.assign(contentOf(Buffer.from(text)), { size: text.length });

async function* once(text: string) {
  yield Buffer.from(text);
}

test('an archive has its members in order under its name when it is complete', async (t) => {
  const path = join(await folderUntilEnd(t), 'backup.tar');
  {
    await using archive = await openArchive(path);
    t.is(await archive.begin(state, state), undefined);
    await archive.putRows('accounts', bytesOf('rows\n'));
    const blob = { digest, size: 7 };
    t.false(await archive.has(blob), 'each archive is a whole backup');
    t.false(await archive.isSound(blob, undefined as never));
    await archive.putBlob(blob, once('content'), () => true);
    await archive.putMissing(Buffer.from('missing'));
    await t.throwsAsync(stat(path), { code: 'ENOENT' });
    await archive.finish({ state } as BackupManifest, undefined as never);
  }
  const manifest = JSON.stringify({ state });
  t.deepEqual(
    (await membersOf(path)).map(({ name, bytes }) => [name, bytes.toString()]),
    [
      [rowsName(state, 'accounts'), 'rows\n'],
      [blobName(digest), 'content'],
      [missingName(state), 'missing'],
      ['manifest', `${manifest}\n${digestOf(manifest)}\n`],
    ],
  );
  t.is((await stat(path)).mode & 0o077, 0, 'other users cannot read it');
  await t.throwsAsync(openArchive(path), { name: 'Invalid', message: `${path} exists already. Name a new file` });
});

test('an archive that is not finished leaves nothing, and is not begun twice', async (t) => {
  const folder = await folderUntilEnd(t);
  const path = join(folder, 'backup.tar');
  {
    await using archive = await openArchive(path);
    await archive.begin(state, state);
    await t.throwsAsync(openArchive(path), {
      name: 'Invalid',
      message: `${path}.part exists: another backup writes it, or has not ended. If none runs, delete it`,
    });
  }
  t.deepEqual(await readdir(folder), []);
  await t.throwsAsync(openArchive(join(folder, 'none', 'backup.tar')), { code: 'ENOENT' });
});

async function writeTar(t: ExecutionContext, ...entries: (Partial<Header> & { name: string })[]): Promise<string> {
  const path = join(await folderUntilEnd(t), 'made.tar');
  const archive = pack();
  const written = pipeline(async function* () {
    yield* archive as AsyncIterable<Buffer>;
  }, createWriteStream(path));
  for (const each of entries) archive.entry(each, 'x'.repeat(each.size ?? 0));
  archive.finalize();
  await written;
  return path;
}

test('only regular files are read, and the name of another one is shown up to its 200th character', async (t) => {
  const empty = await writeTar(t, { name: 'empty', type: 'file', size: 0 }, { name: 'one', type: 'file', size: 1 });
  t.deepEqual(
    (await membersOf(empty)).map(({ name, bytes }) => [name, bytes.length]),
    [
      ['empty', 0],
      ['one', 1],
    ],
  );
  const name = 'n'.repeat(300);
  const path = await writeTar(t, { name, type: 'symlink', linkname: 'x' });
  await t.throwsAsync(membersOf(path), {
    name: 'Invalid',
    message: `${path}: "${'n'.repeat(200)}" is not a regular file, as all of a backup are`,
  });
});

test('a file that is no whole archive is named as damaged, and one that is not there as missing', async (t) => {
  const folder = await folderUntilEnd(t);
  const path = join(folder, 'no.tar');
  await writeFile(path, 'x'.repeat(2048));
  await t.throwsAsync(membersOf(path), {
    name: 'Invalid',
    message: /no\.tar: the archive is truncated or damaged: Inv/,
  });
  const cut = await writeTar(t, { name: 'large', type: 'file', size: 1_000_000 });
  const whole = (await membersOf(cut))[0]!.bytes;
  t.is(whole.length, 1_000_000);
  await writeFile(path, (await readFile(cut)).subarray(0, 900_000));
  await t.throwsAsync(membersOf(path), { name: 'Invalid', message: /the archive is truncated or damaged/ });
  for (const name of ['none.tar', 'Unexpected end of data'])
    await t.throwsAsync(readArchive(join(folder, name)).next(), { code: 'ENOENT' });
});
