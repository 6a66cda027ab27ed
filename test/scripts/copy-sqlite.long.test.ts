import { readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { copyInstallation } from '../../scripts/copy-sqlite.ts';
import { execute } from '../support/clients/clients.ts';
import { folderUntilEnd, inMemory } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { runJob } from '../support/inside.ts';
import { digestOf, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';

const script = join(import.meta.dirname, '../../scripts/copy-sqlite.ts');

function copy(data: string, ...words: string[]) {
  const env = { PATH: process.env.PATH, ENTREPOT_DATA: data };
  return execute(process.execPath, [script, ...words], { env });
}

test.serial(
  'a copy that is made during pushes, deletions and collections has all that was acknowledged before',
  async (t) => {
    const server = await startTestServer(t, { gc: { grace: '1h' } });
    const app = new TestRepository(server, 'app');
    const push = async (tag: string) => (await app.image(tag, { layers: [await app.blob(`layer of ${tag}`)] })).digest;
    const old: string[] = [];
    for (let index = 0; index < 100; index += 1) old.push(await push(`old-${index}`));
    // Now a collection may remove the old images, but not what is pushed from now on.
    server.clock.now = Date.now() + 7_200_000;
    const acknowledged = new Map<string, string>();
    const ending = new AbortController();
    const pushAll = async (worker: number) => {
      for (let index = 0; !ending.signal.aborted; index += 1) {
        const tag = `v${worker}-${index}`;
        acknowledged.set(tag, await push(tag));
      }
    };
    const removed: string[] = [];
    const removeAndCollect = async () => {
      for (const digest of old) {
        if (ending.signal.aborted) return;
        await app.fetch(`manifests/${digest}`, { method: 'DELETE' });
        await runJob(server, 'gc');
        removed.push(digest);
      }
    };
    const working = [pushAll(1), pushAll(2), removeAndCollect()];
    // Each error ends the test.
    const failed = Promise.all(working);
    while (acknowledged.size < 40 || removed.length < 3)
      await Promise.race([new Promise((resolve) => setImmediate(resolve)), failed]);
    const before = new Map(acknowledged);
    const target = join(await folderUntilEnd(t), 'copy');
    const copied = await copy(server.data, target);
    ending.abort();
    await failed;
    t.is(copied.stderr, '');
    t.regex(copied.stdout, /copy: the database, \d+ blobs, \d+ bytes\n$/);

    const second = await startTestServer(t, { data: target });
    const found = new TestRepository(second, 'app');
    for (const [tag, digest] of before) {
      const answer = await found.fetch(`manifests/${tag}`);
      const text = await answer.text();
      t.is(digestOf(text), digest, tag);
      for (const { digest: layer } of (JSON.parse(text) as { layers: { digest: string }[] }).layers) {
        const body = Buffer.from(await (await found.fetch(`blobs/${layer}`)).arrayBuffer());
        t.is(digestOf(body), layer);
      }
    }
    const scrubbed = await runJob(second, 'scrub');
    t.like(scrubbed, { corrupt: 0, missing: 0 });
    // The two share no state: content that one deletes stays in the other.
    await second.fetch(`/v2/app/manifests/${[...before.values()][0]}`, { method: 'DELETE' });
    await rm(join(target, 'blobs'), { recursive: true });
    t.is((await app.fetch(`manifests/${[...before.keys()][0]}`)).status, 200);
    t.is((await stat(target)).mode & 0o077, 0, 'only its user can read it');
  },
);

test.serial('if content is deleted after the database was copied, the database is copied again', async (t) => {
  const server = await startTestServer(t, { gc: { grace: '0s' } });
  const app = new TestRepository(server, 'app');
  const images = [await app.image('one'), await app.image('two'), await app.image('kept')];
  server.clock.now = Date.now() + 7_200_000;
  // Where there is a second disk, the files are copied and not linked.
  const target = join(await folderUntilEnd(t, inMemory), 'copy');
  let copies = 0;
  const settings = { data: server.data, database: { url: undefined } };
  await copyInstallation(settings, target, async () => {
    copies += 1;
    await app.fetch(`manifests/${images[copies - 1]!.digest}`, { method: 'DELETE' });
    t.true((await runJob(server, 'gc'))['blobs']! > 0);
  });
  t.is(copies, 2, 'the files of the second image were copied before its deletion');
  const second = await startTestServer(t, { data: target });
  const statusOf = async (tag: string) => (await new TestRepository(second, 'app').fetch(`manifests/${tag}`)).status;
  t.deepEqual([await statusOf('one'), await statusOf('two'), await statusOf('kept')], [404, 200, 200]);
  t.like(await runJob(second, 'scrub'), { missing: 0 });
});

test.serial('a copy says what is wrong, and copies nothing over other files', async (t) => {
  const server = await startTestServer(t);
  const { digest } = await new TestRepository(server, 'app').blob('lost');
  const folder = await folderUntilEnd(t);
  await writeFile(join(folder, 'mine'), 'x');
  const cases: [string, string[], RegExp][] = [
    [server.data, [], /^copy-sqlite: usage: /],
    [server.data, [folder], /^copy-sqlite: .*: the folder must be empty\n$/],
    [folder, [join(folder, 'new')], /^copy-sqlite: .*entrepot.db: there is no database; set ENTREPOT_DATA/],
  ];
  for (const [data, words, message] of cases) {
    const { code, stderr } = await copy(data, ...words);
    t.is(code, 1);
    t.regex(stderr, message);
  }
  t.deepEqual(await readdir(folder), ['mine']);
  await rm(join(server.data, 'blobs/sha256', digest.slice(7, 9), digest.slice(7)));
  const target = join(folder, 'copy');
  const { code, stderr } = await copy(server.data, target);
  t.is(code, 1);
  t.regex(stderr, new RegExp(`^copy-sqlite: the copy is complete, but 1 files are missing in .*: ${digest}\n$`));
  t.is((await entrepot({ ENTREPOT_DATA: target }, 'account', 'list')).code, 0);
});
