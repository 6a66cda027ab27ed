import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { temporaryDatabase } from '../support/databases.ts';
import { CommandLine, type Serving } from '../support/processes/command.ts';
import { redisUrl } from '../support/processes/services.ts';
import { tcpProxy, type TcpProxy } from '../support/processes/tcp-proxy.ts';
import { until, within } from '../support/until.ts';

// How a server ends, as a process. It ends within `shutdownGrace` and 5 seconds, whatever does not answer.

const token = 'a-token-of-tests-with-32-characters';
const grace = 1000;
/** The promise, and five seconds for a busy machine. */
const bound = grace + 5000 + 5000;
const settings = {
  ENTREPOT_SHUTDOWN_GRACE: `${grace}ms`,
  ENTREPOT_BOOTSTRAP_TOKEN: token,
  ENTREPOT_UPSTREAMS: '[]',
};
const authorization = `Bearer ${token}`;

interface Proxied {
  commands: CommandLine;
  server: Serving;
  database: TcpProxy;
  redis: TcpProxy;
  databaseUrl: string;
}

async function withProxies(t: ExecutionContext): Promise<Proxied> {
  const databaseUrl = await temporaryDatabase(t, 'mysql');
  const database = await tcpProxy(t, databaseUrl);
  const redis = await tcpProxy(t, redisUrl());
  const commands = await CommandLine.create(t, settings);
  const server = await commands.serve({
    ENTREPOT_DATABASE_URL: database.through(databaseUrl),
    ENTREPOT_REDIS_URL: redis.through(redisUrl()),
  });
  t.is((await fetch(`${server.url}/v1/packages`, { headers: { authorization } })).status, 200);
  return { commands, server, database, redis, databaseUrl };
}

/** Requests of the token in the usage of this month. */
async function requests(server: Serving): Promise<number> {
  const answer = await fetch(`${server.url}/v1/account/usage`, { headers: { authorization } });
  return ((await answer.json()) as { requests: { total: number } }).requests.total;
}

const faults: [string, (proxies: Proxied) => unknown, string[]][] = [
  ['a stopped MariaDB', ({ database }) => database.stop(), []],
  ['a frozen MariaDB', ({ database }) => database.freeze(), ['the database']],
  ['a stopped Redis', ({ redis }) => redis.stop(), []],
  ['a frozen Redis', ({ redis }) => redis.freeze(), []],
];
for (const [what, fault, unclosed] of faults) {
  test.serial(`with ${what}, SIGTERM ends the process in time, and no usage is lost`, async (t) => {
    const proxied = await withProxies(t);
    const { commands, server, databaseUrl } = proxied;
    await fault(proxied);
    const startedAt = performance.now();
    const { code, stderr, stdout } = await within(server.stop(), bound);
    t.true(performance.now() - startedAt < bound);
    t.is(code, unclosed.length > 0 ? 1 : 0, stderr);
    for (const part of unclosed) {
      t.true(stderr.includes(part), stderr);
      t.regex(stdout, new RegExp(`closing: ${part} did not close`));
    }
    const again = await commands.serve({ ENTREPOT_DATABASE_URL: databaseUrl, ENTREPOT_REDIS_URL: redisUrl() });
    t.deepEqual(await readdir(join(commands.data, 'unwritten')).catch(() => []), []);
    // The request before the stop; the requests of `requests` itself are written some seconds later.
    t.is(await requests(again), 1);
    const tokens = await fetch(`${again.url}/v1/tokens`, { headers: { authorization } });
    const { items } = (await tokens.json()) as { items: { last_used_at: string | null }[] };
    t.truthy(items[0]!.last_used_at);
  });
}

test.serial('a client in the middle of a long download, and a quiet connection, do not keep the process', async (t) => {
  const commands = await CommandLine.create(t, settings);
  const server = await commands.serve();
  const { port } = new URL(server.url);
  // Bytes that wait in the socket of a client which reads nothing.
  const client = connect(Number(port), '127.0.0.1').pause();
  const quiet = connect(Number(port), '127.0.0.1');
  const kept = connect(Number(port), '127.0.0.1');
  for (const each of [client, quiet, kept]) each.on('error', () => undefined);
  kept.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await once(kept, 'data');
  const request = `GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${authorization}\r\n\r\n`;
  client.write(request.repeat(200));
  await until(() => client.bytesRead === 0 && client.bytesWritten > 10_000);
  t.is((await within(server.stop(), bound)).code, 0);
});

for (const signal of ['SIGHUP', 'SIGINT'] as const) {
  test.serial(`${signal} drains: a request under way is answered`, async (t) => {
    const commands = await CommandLine.create(t, { ...settings, ENTREPOT_SHUTDOWN_GRACE: '20s' });
    const server = await commands.serve();
    const { port } = new URL(server.url);
    const socket = connect(Number(port), '127.0.0.1');
    let answer = '';
    socket.on('data', (piece: Buffer) => (answer += piece.toString()));
    const body = JSON.stringify({ name: 'made while closing', scopes: ['read'] });
    socket.write(
      `POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${authorization}\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 5)}`,
    );
    // Another request, so that the first has surely begun.
    t.is((await fetch(`${server.url}/livez`)).status, 200);
    const end = server.stop(signal);
    await until(() => server.said().includes('"msg":"closing"'));
    socket.write(body.slice(5));
    t.is((await within(end, bound)).code, 0);
    t.regex(answer, /^HTTP\/1\.1 201 /);
  });
}

test.serial('a second SIGTERM ends the process at once', async (t) => {
  const commands = await CommandLine.create(t, { ...settings, ENTREPOT_SHUTDOWN_GRACE: '1h' });
  const server = await commands.serve();
  const { port } = new URL(server.url);
  const socket = connect(Number(port), '127.0.0.1').on('error', () => undefined);
  socket.write('POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Le');
  t.is((await fetch(`${server.url}/livez`)).status, 200);
  const end = server.stop();
  await until(() => server.said().includes('"msg":"closing"'));
  await server.stop();
  t.is((await within(end, 30_000)).code, null);
});

test.serial('during the delay readiness is red, and requests are answered on connections that close', async (t) => {
  const commands = await CommandLine.create(t, {
    ...settings,
    ENTREPOT_SHUTDOWN_GRACE: '20s',
    ENTREPOT_SHUTDOWN_DELAY: '5s',
  });
  const server = await commands.serve();
  const end = server.stop();
  await until(() => server.said().includes('"msg":"closing"'));
  const ready = await fetch(`${server.url}/readyz`);
  t.is(ready.status, 503);
  t.is(ready.headers.get('connection'), 'close');
  t.regex(await ready.text(), /shutting down/);
  t.is((await fetch(`${server.url}/v1/packages`, { headers: { authorization } })).status, 200);
  t.is((await within(end, bound)).code, 0);
});
