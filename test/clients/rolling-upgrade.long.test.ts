import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { createLayout, sha256 } from '../support/builders/images.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { commandLine, requiredCommand, temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { dotnet, sourceName } from '../support/clients/dotnet.ts';
import { Load } from '../support/clients/load.ts';
import { testWith } from '../support/clients/test-with.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { CommandLine, type Serving } from '../support/processes/command.ts';
import { startNginx, type Nginx } from '../support/processes/nginx.ts';
import { freePort, redisUrl } from '../support/processes/services.ts';
import { until, within } from '../support/until.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

// Two instances behind nginx, replaced one after the other under load, as docs/upgrade.md describes.

const token = 'bootstrap-token-of-the-rolling-upgrade';
const newerVersion = join(import.meta.dirname, '../support/processes/newer-version.ts');
const mebibyte = 2 ** 20;
/** For each step on a slow machine; milliseconds. */
const limit = 180_000;
/** How long an instance keeps accepting connections after SIGTERM. */
const delay = '5s';
/**
 * Slow transfers take about 8 seconds, longer than the delay, so that some end while an instance closes. curl reads the first
 * 10 MB without a limit.
 */
const slow = { bytes: 12 * mebibyte, rate: '1500K' };

interface Installation {
  nginx: Nginx;
  instances: [Serving, Serving];
  /** Replaces an instance on its port, with this program; by default with this version. `meanwhile` runs while it is down. */
  replace: (index: 0 | 1, program?: string, meanwhile?: () => Promise<void>) => Promise<void>;
  databaseUrl: string;
}

async function install(t: ExecutionContext, folder: string, upstream: UpstreamFeed): Promise<Installation> {
  const databaseUrl = await temporaryDatabase(t, 'mysql');
  const commands = await CommandLine.create(t, {
    ENTREPOT_DATABASE_URL: databaseUrl,
    ENTREPOT_REDIS_URL: redisUrl(),
    ENTREPOT_BOOTSTRAP_TOKEN: token,
    ENTREPOT_TRUST_PROXY: 'loopback',
    ENTREPOT_SHUTDOWN_DELAY: delay,
    ENTREPOT_UPSTREAMS: JSON.stringify([upstream.as('up.test')]),
  });
  const ports = [await freePort(), await freePort()] as const;
  const start = (index: 0 | 1, program?: string): Promise<Serving> =>
    commands.serve({ ENTREPOT_PORT: `${ports[index]}` }, program);
  const instances: [Serving, Serving] = [await start(0), await start(1)];
  const nginx = await startNginx(join(folder, 'nginx'), ports);
  t.teardown(() => nginx.stop());
  const replace: Installation['replace'] = async (index, program, meanwhile) => {
    const startedAt = performance.now();
    const { code, stderr } = await within(instances[index].stop(), 40_000);
    t.is(code, 0, stderr);
    const seconds = Math.round((performance.now() - startedAt) / 100) / 10;
    await meanwhile?.();
    instances[index] = await start(index, program);
    t.log(`instance ${index} ended in ${seconds} s, and started in ${Math.round(instances[index].startedIn)} ms`);
  };
  return { nginx, instances, replace, databaseUrl };
}

testWith(
  'skopeo',
  'umoci',
  'dotnet',
  'curl',
  'nginx',
)('during a rolling upgrade, and back to the older version, no command of a client fails', async (t) => {
  t.timeout(limit);
  const folder = await temporaryFolder();
  t.teardown(() => folder.remove());
  const upstream = await UpstreamFeed.start(t);
  const { nginx, instances, replace, databaseUrl } = await install(t, folder.path, upstream);
  const load = new Load();
  t.teardown(() => load.stop().catch(() => undefined));
  const pushed = await startLoad(load, nginx.url, folder.path, upstream);
  const session = await openSession(instances[0].url);
  await load.haveRun(1, limit);

  await replace(0, newerVersion, () => session.send(nginx.url, 1));
  const database = await openUntilEnd(t, databaseUrl);
  const count = async (sql: string): Promise<unknown> => (await database.get<{ n: number }>(sql))?.n;
  t.is(await count("SELECT COUNT(*) AS n FROM migrations WHERE name LIKE '999-%'"), 5);
  await load.haveRun(1, limit);
  await replace(1, newerVersion);
  await session.send(nginx.url, 2);
  await session.finish(nginx.url);
  await load.haveRun(1, limit);
  await replace(0);
  await load.haveRun(1, limit);
  await within(load.stop(), limit);

  const requests = (await nginx.requests()).map((line) => line.split(' '));
  const refused = requests.filter(([status]) => /^(?:499|5)/.test(status!)).map((fields) => fields.join(' '));
  const retried = requests.filter((fields) => fields.slice(3).join(' ').includes(',')).length;
  t.log(`commands: ${JSON.stringify(Object.fromEntries(load.ended))}`);
  t.log(`${requests.length} requests, ${retried} sent to a second instance, ${refused.length} failed`);
  for (const each of refused) t.log(each);
  t.deepEqual(load.failures, []);
  t.true(retried > 0, 'instances were down under load');
  for (const { url } of instances) {
    for (const path of [...pushed.images.map(({ name, digest }) => `/v2/${name}/manifests/${digest}`), session.blob]) {
      t.is((await request(url, path, { method: 'HEAD' })).status, 200, path);
    }
    for (const id of pushed.packages) {
      const key = id.toLowerCase();
      const answer = await request(url, `/v3/package/${key}/index.json`);
      t.deepEqual(await answer.json(), { versions: ['1.0.0'] }, id);
    }
  }
});

function request(url: string, path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set('authorization', `Bearer ${token}`);
  return fetch(new URL(path, url), { ...init, headers });
}

interface Session {
  /** The path of the blob. */
  blob: string;
  /** Sends the second (1) or third (2) part of the blob. */
  send(url: string, part: 1 | 2): Promise<void>;
  finish(url: string): Promise<void>;
}

/** Starts the upload of a blob of three parts at the instance `first`, and sends the first part there. */
async function openSession(first: string): Promise<Session> {
  const parts = ['first', 'second', 'third'].map((text) => Buffer.alloc(mebibyte, text));
  const started = await request(first, '/v2/team/session/blobs/uploads/', { method: 'POST' });
  const { pathname } = new URL(started.headers.get('location')!, first);
  const send = async (url: string, index: number): Promise<void> => {
    const start = index * mebibyte;
    const headers = { 'content-range': `${start}-${start + mebibyte - 1}`, 'content-type': 'application/octet-stream' };
    const answer = await request(url, pathname, { method: 'PATCH', headers, body: new Uint8Array(parts[index]!) });
    if (answer.status !== 202) throw new Error(`part ${index}: ${answer.status} ${await answer.text()}`);
  };
  await send(first, 0);
  const digest = sha256(Buffer.concat(parts));
  const finish = async (url: string): Promise<void> => {
    const answer = await request(url, `${pathname}?digest=${digest}`, { method: 'PUT' });
    if (answer.status !== 201) throw new Error(`the end: ${answer.status} ${await answer.text()}`);
  };
  return { blob: `/v2/team/session/blobs/${digest}`, send, finish };
}

interface Pushed {
  images: { name: string; digest: string }[];
  packages: string[];
}

/** Starts all clients, each with its own retries. */
async function startLoad(load: Load, url: string, folder: string, upstream: UpstreamFeed): Promise<Pushed> {
  const pushed: Pushed = { images: [], packages: [] };
  const { host } = new URL(url);
  const feed = { url: `${url}/v3/index.json`, username: 'api', password: token };
  const credentials = `api:${token}`;
  const curlOptions = ['--silent', '--show-error', '--fail-with-body', '--retry', '3', '--retry-all-errors'];
  const curl = commandLine('curl', requiredCommand('curl'), [...curlOptions, '--user', credentials], {});
  const savePackage = async (id: string, payloadBytes: number): Promise<string> => {
    const path = join(folder, `${id}.nupkg`);
    await writeFile(path, await makeNupkg({ id, payloadBytes }));
    return path;
  };
  const pushByCurl = (path: string, ...options: string[]): Promise<string> =>
    curl.run(...options, '--request', 'PUT', '--form', `package=@${path}`, `${url}/v3/push`);
  const slowId = 'Rolling.Slow';
  const slowPackage = await savePackage(slowId, slow.bytes);
  await pushByCurl(slowPackage);
  const slowBytes = await readFile(slowPackage);

  const layout = await createLayout(join(folder, 'images'));
  load.repeat('skopeo push', async (index, command) => {
    const image = await layout.image(`image${index}`, { layers: 4, bytes: mebibyte });
    const name = `team/image${index}`;
    const skopeo = await containerClient('skopeo', join(folder, 'push'), [host]);
    const target = `docker://${host}/${name}:1`;
    const retries = ['--retry-times', '3', '--preserve-digests'];
    await command(() => skopeo.run('copy', ...retries, '--dest-creds', credentials, image.reference, target));
    pushed.images.push({ name, digest: image.digest });
  });
  load.repeat('skopeo pull', async (index, command) => {
    await until(() => pushed.images.length > 0, limit);
    const { name } = pushed.images.at(-1)!;
    const skopeo = await containerClient('skopeo', join(folder, 'pull'), [host]);
    const copy = join(folder, `copy${index}`);
    const source = `docker://${host}/${name}:1`;
    await command(() => skopeo.run('copy', '--retry-times', '3', '--src-creds', credentials, source, `dir:${copy}`));
    await rm(copy, { recursive: true });
  });
  load.repeat('curl push', async (index, command) => {
    const id = `Rolling.Curl${index}`;
    const path = await savePackage(id, 300_000);
    await command(() => pushByCurl(path));
    pushed.packages.push(id);
  });
  load.repeat('slow curl push', async (index, command) => {
    const id = `Rolling.Slow${index}`;
    const path = await savePackage(id, slow.bytes);
    await command(() => pushByCurl(path, '--limit-rate', slow.rate));
    pushed.packages.push(id);
  });
  load.repeat('slow curl download', async (index, command) => {
    const path = join(folder, `slow${index}`);
    const key = slowId.toLowerCase();
    const address = `${url}/v3/package/${key}/1.0.0/${key}.1.0.0.nupkg`;
    await command(async () => {
      await curl.run('--limit-rate', slow.rate, '--output', path, address);
      if (!(await readFile(path)).equals(slowBytes)) throw new Error('the package has other bytes');
    });
    await rm(path);
  });
  const publisher = await dotnet(join(folder, 'publisher'), feed);
  load.repeat('dotnet push', async (index, command) => {
    const id = `Rolling.Dotnet${index}`;
    const path = await savePackage(id, 300_000);
    await command(() => publisher.run('nuget', 'push', path, '--source', sourceName, '--api-key', token));
    pushed.packages.push(id);
  });
  const consumer = await dotnet(join(folder, 'consumer'), feed);
  load.repeat('dotnet restore', async (index, command) => {
    await until(() => pushed.packages.length > 0, limit);
    // Each restore fetches all of them from the server, and each needs packages that the mirror has not stored yet.
    const references: Record<string, string> = { [pushed.packages.at(-1)!]: '1.0.0' };
    for (let each = 0; each < 5; each += 1) {
      const id = `Mirrored.Package${index}.${each}`;
      const nupkg = await makeNupkg({ id, version: '1.0.0', payloadBytes: 100_000 });
      await upstream.offer({ id, versions: [{ version: '1.0.0', nupkg }] });
      references[id] = '1.0.0';
    }
    for (const cache of ['packages', 'http-cache']) {
      await rm(join(consumer.folder, cache), { recursive: true, force: true });
      await mkdir(join(consumer.folder, cache));
    }
    const project = await consumer.project(`Program${index}`, references);
    await command(() => consumer.run('restore', project));
  });
  return pushed;
}
