import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { Agent, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { temporaryDatabase } from './databases.ts';
import { TestFeed } from './feed.ts';
import { folderUntilEnd } from './folder.ts';
import { entrepot } from './in-process.ts';
import { flushUsage } from './inside.ts';
import { digestOf, TestRepository } from './registry.ts';
import { startTestServer, type TestServer } from './server.ts';
import { eventually } from './until.ts';
import { startUpstreamRegistry } from './upstreams/upstream-registry.ts';

interface Mixture {
  dialect: Dialect;
  instances: number;
  requests: number;
}

interface Ask {
  method: string;
  path: string;
  token: string;
  body?: Buffer;
  headers?: Record<string, string>;
  /** Disconnects in the middle of the answer. */
  leave?: boolean;
}

function ask(server: TestServer, agent: Agent, { method, path, token, body, headers, leave }: Ask): Promise<void> {
  return new Promise((resolve, reject) => {
    const authorization = `Bearer ${token}`;
    const options = {
      method,
      headers: { authorization, ...headers },
      ...(leave ? { agent: false as const } : { agent }),
    };
    const sent = httpRequest(server.url + path, options, (response) => {
      response.on('error', () => undefined).once('close', resolve);
      if (leave) response.once('data', () => response.destroy());
      else response.resume();
    });
    sent.once('error', reject);
    sent.end(body);
  });
}

/**
 * Sends requests of all kinds to some instances of one installation, around midnight. Throws unless their access logs and the usage
 * that they recorded are the same, to the byte. Resolves to what was counted for the account `default`.
 */
export async function reconcileMixed(
  t: Pick<ExecutionContext, 'teardown'>,
  { dialect, instances, requests }: Mixture,
): Promise<Record<string, number>> {
  const folder = await folderUntilEnd(t);
  const upstream = await startUpstreamRegistry(t);
  upstream.image('library/app', 'v1');
  const url = await temporaryDatabase(t, dialect);
  // More requests than a client makes in a minute, by a clock that stands still.
  const limits = Object.fromEntries(
    ['failedSignIns', 'searches', 'pushes', 'misses'].map((each) => [`${each}PerMinute`, 'off']),
  );
  const settings = { data: folder, database: { url }, upstreams: [upstream.settings('up.test')], limits };
  const servers: TestServer[] = [];
  for (let index = 0; index < instances; index += 1) servers.push(await startTestServer(t, settings));
  for (const { clock } of servers) clock.now = Date.UTC(2026, 1, 10, 23, 59, 59);

  const [first] = servers as [TestServer];
  await new TestFeed(first).publish({ id: 'Made.Package', version: '1.0.0' });
  const other = await TestFeed.ofAccount(first, 'other');
  await other.publish({ id: 'Other.Package', version: '1.0.0' });
  const repository = new TestRepository(first, 'team/app');
  const image = await repository.image('v1');
  const large = await repository.blob(randomBytes(4 * 2 ** 20));
  const { token } = first;
  const theirs = other.token;
  const small = randomBytes(300);
  const nupkg = '/v3/package/made.package/1.0.0/made.package.1.0.0.nupkg';
  const kinds: ((index: number) => Ask)[] = [
    () => ({ method: 'GET', path: nupkg, token }),
    () => ({ method: 'HEAD', path: nupkg, token }),
    () => ({ method: 'GET', path: nupkg, token, headers: { range: 'bytes=10-99' } }),
    () => ({ method: 'GET', path: nupkg, token: theirs }),
    () => ({ method: 'GET', path: '/v3/package/other.package/index.json', token: theirs }),
    () => ({ method: 'GET', path: '/v3/registration/made.package/index.json', token }),
    () => ({ method: 'GET', path: '/v3/index.json', token: 'wrong' }),
    () => ({ method: 'GET', path: '/v3/search?q=made', token }),
    () => ({ method: 'GET', path: '/v2/team/app/manifests/v1', token }),
    () => ({ method: 'HEAD', path: '/v2/team/app/manifests/v1', token }),
    () => ({ method: 'GET', path: '/v2/team/app/tags/list', token }),
    () => ({ method: 'GET', path: '/v2/team/app/manifests/none', token }),
    () => ({
      method: 'PUT',
      path: '/v2/team/app/manifests/v2',
      token,
      body: Buffer.from(image.bytes),
      headers: { 'content-type': image.mediaType },
    }),
    () => ({ method: 'PUT', path: '/v2/team/app/manifests/broken', token, body: small }),
    () => ({ method: 'GET', path: '/v2/up.test/library/app/manifests/v1', token }),
    () => ({ method: 'POST', path: `/v2/team/app/blobs/uploads/?digest=${digestOf(small)}`, token, body: small }),
    () => ({ method: 'GET', path: '/v1/packages', token }),
    () => ({ method: 'GET', path: '/v1/tokens', token: theirs }),
    (index) => ({ method: 'GET', path: `/v2/team/app/blobs/${large.digest}`, token, leave: index % 1000 > 0 }),
  ];
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  t.teardown(() => agent.destroy());
  let next = 0;
  const client = async () => {
    for (let index = next++; index < requests; index = next++) {
      // All kinds at all instances.
      const server = servers[Math.floor(index / 5) % instances]!;
      if (index === requests / 2) for (const each of servers) each.clock.now! += 2000;
      if (index % 400 === 0) flushUsage(server).catch(() => undefined);
      // The large ones are rare.
      const kind = index % 250 === 0 ? kinds.at(-1)! : kinds[(index * 7) % (kinds.length - 1)]!;
      await ask(server, agent, kind(index));
    }
  };
  await Promise.all(Array.from({ length: 8 }, client));
  const logLines = () => servers.flatMap(({ lines }) => lines).filter((line) => line.includes('"msg":"request"'));
  await eventually(
    () => Promise.resolve(logLines().length),
    (count) => count >= requests,
  );
  for (const server of servers) await server.close();

  const files = await Promise.all(
    servers.map(async ({ lines }, index) => {
      const file = join(folder, `access-${index}.log`);
      await writeFile(file, lines.join(''));
      return file;
    }),
  );
  const environment = { ENTREPOT_DATA: folder, ENTREPOT_DATABASE_URL: url, ENTREPOT_UPSTREAMS: '[]' };
  const usage = (...words: string[]) => entrepot(environment, 'usage', ...words);
  const { code, stdout } = await usage('reconcile', '--access-log', ...files, '--period', '2026-02');
  const rows = stdout
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => line.split('\t'));
  assert.equal(rows.length, 2 * 9);
  for (const [account, counter, logged, recorded, difference] of rows) {
    assert.equal(logged, recorded, `${account} ${counter}`);
    assert.equal(difference, '0', `${account} ${counter}`);
  }
  assert.equal(code, 0);
  const figures: Record<string, number> = Object.fromEntries(
    rows.filter(([account]) => account === 'default').map(([, name, n]) => [name, Number(n)]),
  );
  for (const [name, value] of Object.entries(figures)) assert.ok(value > 0, name);
  assert.ok(figures['requests']! > requests / 2 && figures['requests']! < requests);

  await writeFile(files[0]!, logLines().slice(1).join(''));
  const short = await usage('reconcile', '--access-log', files[0]!, '--period', '2026-02');
  assert.equal(short.code, 1);
  assert.match(short.stderr, /^entrepot: \d+ of 18 counters differ\n$/);
  const shown = await usage('--period', '2026-02', '--by', 'day');
  assert.match(shown.stdout, new RegExp(`^requests\t${figures['requests']}$`, 'm'));
  assert.match(shown.stdout, /^2026-02-10\t\d+[^]*^2026-02-11\t\d+/m);
  return figures;
}
