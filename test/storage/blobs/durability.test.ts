import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Digest } from '../../../src/runtime/digest.ts';
import { CachedDriver } from '../../../src/storage/drivers/cached-driver.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { FilesystemDriver } from '../../../src/storage/drivers/filesystem.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import { halveWrites, holdSync, watchSyncs } from '../../support/disk.ts';
import { TestFeed } from '../../support/feed.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { entrepot } from '../../support/in-process.ts';
import { databaseOf, rowsOf } from '../../support/inside.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { digestOf, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { until, within } from '../../support/until.ts';
import { store } from '../drivers/driver-suite.ts';

// In a process of its own: a helper declares tests of it.

// What a client was told is stored must survive a power failure: it is synced before the answer and before its row is live.

async function start(t: ExecutionContext): Promise<{ server: TestServer; repository: TestRepository }> {
  const server = await startTestServer(t, { data: await realpath(await folderUntilEnd(t)) });
  return { server, repository: new TestRepository(server, 'app') };
}

const hexOf = (bytes: Buffer) => digestOf(bytes).slice('sha256:'.length);

/** The path of a stored blob below the data folder. */
const placeOf = (bytes: Buffer) => join('blobs/sha256', hexOf(bytes).slice(0, 2), hexOf(bytes));

const content = Buffer.from('content that must survive');
const push = `blobs/uploads/?digest=${digestOf(content)}`;

for (const [title, isIt] of [
  ['its bytes are', (data: string) => (path: string) => path.startsWith(join(data, 'staging/'))],
  ['its folder is', (data: string) => (path: string) => path === join(data, dirname(placeOf(content)))],
  ['the parent of a new folder is', (data: string) => (path: string) => path === join(data, 'blobs/sha256')],
  ['the parent of the first folder is', (data: string) => (path: string) => path === data],
] as const) {
  test.serial(`a blob is neither answered nor readable until ${title} synced`, async (t) => {
    const { server, repository } = await start(t);
    const barrier = await holdSync(t, isIt(server.data));
    let isAnswered = false;
    const pushing = repository.fetch(push, { method: 'POST', body: content }).finally(() => (isAnswered = true));
    await within(barrier.reached);
    t.is((await repository.fetch(`blobs/${digestOf(content)}`, { method: 'HEAD' })).status, 404);
    t.false(isAnswered);
    barrier.release();
    t.is((await within(pushing)).status, 201);
    t.is(await (await repository.fetch(`blobs/${digestOf(content)}`)).text(), content.toString());
  });
}

test.serial('a package is neither answered nor listed until its bytes are synced', async (t) => {
  const { server } = await start(t);
  const feed = new TestFeed(server);
  const barrier = await holdSync(t, (path) => path.startsWith(join(server.data, 'staging/')));
  const pushing = feed.push({ id: 'A', version: '1.0.0' });
  await within(barrier.reached);
  t.is((await feed.fetch('/package/a/index.json')).status, 404);
  barrier.release();
  t.is((await within(pushing)).status, 201);
  t.deepEqual(await feed.json('/package/a/index.json'), { versions: ['1.0.0'] });
});

test.serial('the size of an upload is recorded after its bytes are synced', async (t) => {
  const { server, repository } = await start(t);
  const location = await repository.start();
  const barrier = await holdSync(t, (path) => path.startsWith(join(server.data, 'staging/')));
  const patching = repository.fetch(location, { method: 'PATCH', body: content });
  await within(barrier.reached);
  t.like(await rowsOf(server, 'SELECT received FROM uploads'), [{ received: 0 }]);
  barrier.release();
  t.is((await within(patching)).status, 202);
  t.like(await rowsOf(server, 'SELECT received FROM uploads'), [{ received: content.length }]);
});

test.serial('bytes that another process has just stored are synced before they count as stored', async (t) => {
  const { server, repository } = await start(t);
  await mkdir(join(server.data, dirname(placeOf(content))), { recursive: true });
  await writeFile(join(server.data, placeOf(content)), content);
  const synced: string[] = [];
  await watchSyncs(t, (path) => void synced.push(path));
  t.is((await repository.fetch(push, { method: 'POST', body: content })).status, 201);
  t.true(synced.includes(join(server.data, dirname(placeOf(content)))));
});

test.serial('a file that a power failure has left with another size is replaced', async (t) => {
  const { server, repository } = await start(t);
  await mkdir(join(server.data, dirname(placeOf(content))), { recursive: true });
  await writeFile(join(server.data, placeOf(content)), content.subarray(1));
  t.is((await repository.fetch(push, { method: 'POST', body: content })).status, 201);
  t.is(await (await repository.fetch(`blobs/${digestOf(content)}`)).text(), content.toString());
});

test.serial('the parents of a folder are synced with its first blob only', async (t) => {
  const paths = new Paths(await realpath(await folderUntilEnd(t)));
  await mkdir(paths.staging);
  const driver = new FilesystemDriver(paths);
  await driver.prepare();
  t.teardown(() => driver.close());
  const synced: string[] = [];
  await watchSyncs(t, (path) => void (path.startsWith(paths.staging) || synced.push(path)));
  const digests = ['0', '1'].map((digit) => `sha256:ab${digit.repeat(62)}` as const);
  const folders = ['sha256/ab', 'sha256', ''].map((each) => join(paths.blobs, each)).concat(paths.data);
  for (const digest of digests) {
    await store({ driver, paths }, content, digest);
    t.deepEqual(synced.splice(0), digest === digests[0] ? folders : folders.slice(0, 1));
  }
});

test.serial('the copy of bytes that were deleted after their put is synced too', async (t) => {
  const { server, repository } = await start(t);
  const copied: string[] = [];
  let deletes = 1;
  await watchSyncs(t, async (path) => {
    if (path.startsWith(join(server.data, 'staging/'))) copied.push(path.replace(' (deleted)', ''));
    if (path !== join(server.data, dirname(placeOf(content))) || deletes === 0) return;
    deletes -= 1;
    // Another instance deletes the blob between the put and the commit, and then its row.
    await rm(join(server.data, placeOf(content)));
    // On a disk without links, the put has renamed the staged file.
    await rm(copied[0]!);
    await databaseOf(server).transaction((tx) => tx.run('DELETE FROM blobs'));
  });
  t.is((await within(repository.fetch(push, { method: 'POST', body: content }))).status, 201);
  t.is(new Set(copied).size, 2, 'the staged file and its copy');
  t.is(await (await repository.fetch(`blobs/${digestOf(content)}`)).text(), content.toString());
});

for (const replaces of [false, true])
  test.serial(`the identity of a folder is ${replaces ? 'replaced' : 'there'} when its bytes are synced`, async (t) => {
    const paths = new Paths(await realpath(await folderUntilEnd(t)));
    const driver = new FilesystemDriver(paths);
    await driver.prepare();
    if (replaces) await driver.writeIdentity('former');
    const seen: [path: string, identity: string | undefined][] = [];
    await watchSyncs(t, async (path) => void seen.push([path, await driver.readIdentity()]));
    await driver.writeIdentity('new', replaces);
    t.deepEqual(
      seen.map(([path, identity]) => [path.startsWith(`${paths.identity}-`) ? 'its file' : path, identity]),
      [
        ['its file', replaces ? 'former' : undefined],
        [paths.blobs, 'new'],
      ],
    );
  });

test.serial('a local copy of bytes in S3 is there when its bytes are synced', async (t) => {
  const paths = new Paths(await realpath(await folderUntilEnd(t)));
  await mkdir(paths.staging, { recursive: true });
  const origin = new MemoryDriver();
  const driver = new CachedDriver(origin, paths.cache, 2 ** 20, () => Promise.resolve(true));
  await driver.prepare();
  t.teardown(() => driver.close());
  const digest = await store({ driver: origin, paths }, content);
  const named = async () => (await readdir(paths.cache)).filter((name) => name === digest.replace(':', '-')).length;
  const barrier = await holdSync(t, (path) => path.startsWith(paths.cache));
  const open = await driver.open(digest, content.length);
  t.is(String(await readAll(open, content.length)), String(content));
  await within(barrier.reached);
  t.is(await named(), 0);
  barrier.release();
  await until(async () => (await named()) === 1);
});

test.serial('copies are whole on a disk that takes half of each write', async (t) => {
  const paths = new Paths(await folderUntilEnd(t));
  await mkdir(paths.staging, { recursive: true });
  const bytes = randomBytes(1_200_000);
  const digest = digestOf(bytes) as Digest;
  const origin = new MemoryDriver();
  const [cached, folder] = [
    new CachedDriver(origin, paths.cache, 2 ** 22, () => Promise.resolve(true)),
    new FilesystemDriver(paths),
  ];
  for (const driver of [cached, folder]) {
    await driver.prepare();
    t.teardown(() => driver.close());
    await store({ driver: driver === cached ? origin : driver, paths }, bytes, digest);
  }
  await rm(dirname(folder.pathOf(digest)), { recursive: true });
  await halveWrites(t);
  const open = await cached.open(digest, bytes.length);
  t.true(bytes.equals(await readAll(open, bytes.length)));
  const copy = join(paths.cache, digest.replace(':', '-'));
  await until(async () => (await readdir(paths.cache)).every((name) => name === basename(copy)));
  t.true(bytes.equals(await readFile(copy)));
  await store({ driver: folder, paths }, bytes, digest);
  t.true(bytes.equals(await readFile(folder.pathOf(digest))));
});

test.serial('a backup has its name when its bytes are synced, and its folder is synced then', async (t) => {
  const server = await startTestServer(t);
  const folder = await realpath(await folderUntilEnd(t));
  const path = join(folder, 'backup.tar');
  const seen: [path: string, names: string[]][] = [];
  await watchSyncs(t, async (each) => {
    if (each.startsWith(folder)) seen.push([each, await readdir(folder)]);
  });
  t.is((await entrepot({ ENTREPOT_DATA: server.data }, 'backup', path)).code, 0);
  t.deepEqual(seen, [
    [`${path}.part`, ['backup.tar.part']],
    [folder, ['backup.tar']],
  ]);
});
