import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../support/clients/clients.ts';
import { startDockerEngine, type DockerEngine } from '../support/clients/docker-engine.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { testWith } from '../support/clients/test-with.ts';

const folder = await temporaryFolder();
const withDocker = testWith('dockerd');
const contents = new Map(['one', 'two', 'three', 'four'].map((name) => [name, randomBytes(1_000_000)] as const));
let entrepot: Entrepot;
let engine: DockerEngine | undefined;

test.before(async () => {
  entrepot = await startEntrepot(folder.path);
});

test.after.always(async () => {
  await engine?.stop();
  await entrepot?.stop();
  await folder.remove();
});

withDocker('docker logs in with a token and refuses a wrong one', async (t) => {
  engine = await startDockerEngine(join(folder.path, 'engine'));
  const { docker } = engine;
  t.regex(await docker.fails('login', '-u', 'api', '-p', 'ent_wrong', entrepot.host), /unauthorized/i);
  t.regex(await docker.run('login', '-u', 'api', '-p', entrepot.token, entrepot.host), /Login Succeeded/);
});

withDocker('docker builds, pushes, removes and pulls an image with its content unchanged', async (t) => {
  const { docker } = started();
  const name = `${entrepot.host}/team/docker:1`;
  await docker.run('build', '--network', 'none', '--tag', name, await context());
  const pushed = /digest: (sha256:[0-9a-f]{64})/.exec(await docker.run('push', name))?.[1];
  t.truthy(pushed);
  await docker.run('image', 'rm', '--force', name);

  t.regex(await docker.run('pull', name), new RegExp(`Digest: ${pushed}`));
  const container = (await docker.run('create', '--network', 'none', name, '/none')).trim();
  for (const [file, content] of contents) {
    const copy = join(folder.path, `copy-${file}`);
    await docker.run('cp', `${container}:/${file}`, copy);
    t.deepEqual(await readFile(copy), content);
  }
  await docker.run('rm', container);
});

withDocker('docker pushes the same layers under another name and pulls by digest', async (t) => {
  const { docker } = started();
  const other = `${entrepot.host}/other/docker:2`;
  await docker.run('tag', `${entrepot.host}/team/docker:1`, other);
  const output = await docker.run('push', other);
  t.regex(output, /Mounted from team\/docker/);
  const digest = /digest: (sha256:[0-9a-f]{64})/.exec(output)?.[1];
  await docker.run('image', 'rm', '--force', other, `${entrepot.host}/team/docker:1`);
  await docker.run('pull', `${entrepot.host}/other/docker@${digest}`);
  t.pass();
});

withDocker('docker builds on an image that it pulls', async (t) => {
  const { docker } = started();
  await docker.run('image', 'prune', '--all', '--force');
  const build = join(folder.path, 'build-on');
  await mkdir(build);
  await writeFile(join(build, 'Dockerfile'), `FROM ${entrepot.host}/team/docker:1\nLABEL built=on\n`);
  await docker.run('build', '--network', 'none', '--tag', `${entrepot.host}/team/on:1`, build);
  await docker.run('push', `${entrepot.host}/team/on:1`);
  t.pass();
});

withDocker('docker gets "not found" for a missing image, and "unauthorized" after logout', async (t) => {
  const { docker } = started();
  t.regex(await docker.fails('pull', `${entrepot.host}/team/docker:none`), /manifest unknown|not found/i);
  await docker.run('logout', entrepot.host);
  t.regex(await docker.fails('pull', `${entrepot.host}/team/docker:1`), /no basic auth|unauthorized|denied/i);
});

function started(): DockerEngine {
  if (engine === undefined) throw new Error('the engine did not start');
  return engine;
}

/** An image with several layers and no base image. */
async function context(): Promise<string> {
  const build = join(folder.path, 'build');
  await mkdir(build);
  for (const [file, content] of contents) await writeFile(join(build, file), content);
  const steps = [...contents.keys()].map((file) => `COPY ${file} /${file}`);
  await writeFile(join(build, 'Dockerfile'), ['FROM scratch', ...steps, 'CMD ["/none"]', ''].join('\n'));
  return build;
}
