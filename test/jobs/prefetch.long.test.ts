import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { readPathInThread } from '../../src/prefetch/reader-thread.ts';
import { inputs } from '../../src/server/installation.ts';
import { wishesIn } from '../support/prefetch.ts';
import { held, serve } from '../support/upstreams/faulty-upstream.ts';
import { startTestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { until, within } from '../support/until.ts';
import { flushUses, runJob } from '../support/inside.ts';

test('the scheduled prefetch fetches what the settings list, and reports missing content', async (t) => {
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'images.txt');
  await writeFile(file, 'team/app:1\nteam/none:1\n');
  const registry = await startUpstreamRegistry(t);
  const { layer } = registry.image('team/app', '1');
  const server = await startTestServer(t, {
    upstreams: [registry.settings('docker.io', { default: true })],
    prefetch: { files: [file], platforms: ['linux/amd64'] },
  });
  const said: string[] = [];
  const run = (dryRun: boolean) => runJob(server, 'prefetch', { dryRun, say: (line) => said.push(line) });
  t.like(await run(true), { manifests: 1, blobs: 2, missing: 1 });
  t.is(registry.count(`/v2/team/app/blobs/${layer.digest}`), 0);
  t.like(await run(false), { manifests: 0, blobs: 2, present: 1, missing: 1 });
  t.deepEqual(said, Array(2).fill(`missing: team/none:1 (${file}:2): docker.io does not have this image`));
  await registry.stop();
  t.is((await server.fetch(`/v2/team/app/blobs/${layer.digest}`)).status, 200);

  await writeFile(file, 'no image at all\n');
  await t.throwsAsync(run(false), { message: /images\.txt:1: "no image at all" is not/ });
});

test('a folder with a file that takes a parser long neither stops the server, nor its end', async (t) => {
  const folder = await folderUntilEnd(t);
  await writeFile(join(folder, 'Dockerfile'), `FROM a${'\\\n'.repeat(2 ** 19)}`);
  const server = await startTestServer(t, { prefetch: { files: [folder] } });
  let isEnded = false;
  const run = runJob(server, 'prefetch').finally(() => (isEnded = true));
  run.catch(() => undefined);
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 10);
  await until(() => turns > 20);
  clearInterval(timer);
  t.false(isEnded);
  const [closed, ended] = await within(Promise.allSettled([server.close(), run]));
  t.deepEqual([closed.status, ended.status], ['fulfilled', 'rejected']);
});

test('many items in a folder arrive complete and in order', async (t) => {
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'list.txt');
  const lines = Array.from({ length: 4001 }, (_, index) => `p${index}@1.0.0`);
  await writeFile(file, lines.join('\n'));
  const found = await readPathInThread(inputs.modules, file, new AbortController().signal);
  t.deepEqual(found, wishesIn(file, lines.join('\n')));
});

test('a server that closes ends its prefetch at once', async (t) => {
  const registry = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [registry.settings('docker.io', { default: true })] });
  const { layer } = registry.image('team/app', '1');
  registry.on(`/v2/team/app/blobs/${layer.digest}`, held(serve(layer.bytes)).behaviour);
  t.is((await server.fetch('/v2/team/app/manifests/1')).status, 200);
  await flushUses(server);
  const run = runJob(server, 'prefetch');
  await until(() => registry.count(`/v2/team/app/blobs/${layer.digest}`) > 0);
  const [closed, ended] = await within(Promise.allSettled([server.close(), run]));
  t.is(closed.status, 'fulfilled');
  t.is(ended.status, 'rejected');
});
