import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import test from 'ava';
import {
  createDatabaseFiles,
  makeFolder,
  privateFolder,
  tightenDatabaseFiles,
} from '../../../src/storage/files/permissions.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { startTestServer } from '../../support/server.ts';

async function modeOf(path: string): Promise<string> {
  return ((await stat(path)).mode & 0o7777).toString(8);
}

async function databaseModes(data: string): Promise<Record<string, string>> {
  const names = (await readdir(data)).filter((name) => name.startsWith('entrepot.db'));
  return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await modeOf(join(data, name))])));
}

const files = (mode: string) => ({
  'entrepot.db': mode,
  'entrepot.db-shm': mode,
  'entrepot.db-wal': mode,
  'entrepot.db.lock': mode,
});

test('folders that several processes make at the same time are made once', async (t) => {
  const folder = await folderUntilEnd(t);
  for (let round = 0; round < 20; round += 1)
    await t.notThrowsAsync(
      Promise.all(['d', 'd', 'd/e', 'd', 'd/e'].map((end) => makeFolder(join(folder, `${round}/a/b/c`, end)))),
    );
});

test('a folder and the missing ones above it are made for this user only, and one that is there keeps its mode', async (t) => {
  const folder = await folderUntilEnd(t);
  await chmod(folder, 0o755);
  await makeFolder(join(folder, 'a', 'b', 'c'));
  await makeFolder(join(folder, 'd'));
  for (const made of ['a', 'a/b', 'a/b/c', 'd']) t.is(await modeOf(join(folder, made)), '700', made);
  await makeFolder(folder);
  t.is(await modeOf(folder), '755');
});

test('a folder that cannot be made is an error', async (t) => {
  const folder = await folderUntilEnd(t);
  await writeFile(join(folder, 'file'), '');
  await t.throwsAsync(makeFolder(join(folder, 'file', 'a')), { code: 'ENOTDIR' });
  await t.throwsAsync(makeFolder(join(folder, 'file')), { code: 'EEXIST' });
  await t.throwsAsync(makeFolder(join(folder, 'new', 'x'.repeat(300))), { code: 'ENAMETOOLONG' });
  await t.throwsAsync(makeFolder('/proc/none/folder'), { code: 'ENOENT' });
  await t.throwsAsync(createDatabaseFiles(join(folder, 'x'.repeat(300))), { code: 'ENAMETOOLONG' });
});

test('a folder is private if it is empty or has data of this program', async (t) => {
  const folder = await folderUntilEnd(t);
  const warnings: unknown[] = [];
  const log = { warn: ({ path }: { path: string }) => warnings.push(path) } as unknown as Logger;
  for (const [index, names] of [
    [],
    ['lost+found'],
    ['blobs'],
    ['entrepot.db', 'another'],
    ['lost+found', 'staging'],
    ['another'],
  ].entries()) {
    const path = join(folder, String(index));
    await mkdir(path);
    for (const name of names) await writeFile(join(path, name), '');
    await chmod(path, 0o755);
    await privateFolder(path, log);
    t.is(await modeOf(path), names.join() === 'another' ? '755' : '700', names.join());
  }
  t.deepEqual(warnings.splice(0), [join(folder, '5')]);
  const database = join(folder, 'database');
  await writeFile(database, '', { mode: 0o644 });
  await tightenDatabaseFiles(database, log);
  t.is(await modeOf(database), '600');
  t.deepEqual(warnings, [], 'its other files may be missing');
  await tightenDatabaseFiles(join(database, 'none'), log);
  t.deepEqual(
    warnings,
    ['', '-wal', '-shm', '.lock'].map((end) => join(database, `none${end}`)),
  );
});

test('a new data folder and its database are readable only by their user', async (t) => {
  const data = join(await folderUntilEnd(t), 'new', 'data');
  await startTestServer(t, { data });
  t.is(await modeOf(data), '700');
  t.deepEqual(await databaseModes(data), files('600'));
});

test('the modes of an existing data folder and database are tightened, and never opened', async (t) => {
  const data = join(await folderUntilEnd(t), 'data');
  const first = await startTestServer(t, { data });
  await first.close();
  await chmod(data, 0o755);
  for (const name of Object.keys(await databaseModes(data))) await chmod(join(data, name), 0o644);
  const second = await startTestServer(t, { data });
  t.is(await modeOf(data), '700');
  t.deepEqual(await databaseModes(data), files('600'));
  t.is((await second.fetch('/v1/account')).status, 200);
  await second.close();
  await chmod(join(data, 'entrepot.db'), 0o400);
  await chmod(data, 0o500);
  // Only root can still write there. Others fail, and change no mode first.
  const third = startTestServer(t, { data });
  if (process.getuid?.() === 0) await third;
  else await t.throwsAsync(third);
  t.is(await modeOf(data), '500');
  t.is(await modeOf(join(data, 'entrepot.db')), '400');
});

test('a database outside of the data folder is private too, and its folder keeps its mode', async (t) => {
  const folder = join(await folderUntilEnd(t), 'shared');
  await mkdir(folder, { mode: 0o755 });
  await startTestServer(t, { database: { url: `sqlite:${join(folder, 'entrepot.db')}` } });
  t.is(await modeOf(folder), '755');
  t.deepEqual(await databaseModes(folder), files('600'));
});

test('a folder that has only files of others keeps its mode', async (t) => {
  const data = join(await folderUntilEnd(t), 'theirs');
  await mkdir(join(data, 'logs'), { recursive: true });
  await chmod(data, 0o755);
  await t.throwsAsync(startTestServer(t, { data, database: { url: 'mysql://root@127.0.0.1:1/none' } }));
  t.is(await modeOf(data), '755');
});

test('no files are made for a database of a server', async (t) => {
  // Without its protocol, the address is a path that only root can make.
  const name = `entrepot-${randomBytes(8).toString('hex')}@127.0.0.1:1`;
  t.teardown(() => rm(`/${name}`, { recursive: true, force: true }));
  await t.throwsAsync(startTestServer(t, { database: { url: `mysql://${name}/none` } }), {
    name: 'ConfigError',
    message: /^ENTREPOT_DATABASE_URL: the database cannot be opened: .*ECONNREFUSED/,
  });
  await t.throwsAsync(stat(`/${name}`), { code: 'ENOENT' });
});

test('a shared folder of the machine keeps its mode', async (t) => {
  const data = join(await folderUntilEnd(t), 'tmp');
  await mkdir(data);
  await chmod(data, 0o1777);
  await startTestServer(t, { data });
  t.is(await modeOf(data), '1777');
});

test('a database is private from its first moment, before its mode is tightened', async (t) => {
  const folder = await folderUntilEnd(t);
  const path = join(folder, 'entrepot.db');
  await createDatabaseFiles(path);
  for (const file of [path, `${path}.lock`]) t.is(await modeOf(file), '600');
});
