import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import test from 'ava';
import { CommandLine } from '../support/processes/command.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';

const badHosts = [
  'x:99999',
  '999.999.999.999',
  '1.2.3.4.5:80',
  '256.1',
  '[::1',
  '[:::]',
  '[1.2.3.4]',
  'a b',
  'a/b',
  'u@h',
  'a?b',
  'a#b',
  'a\\b',
  'a"b',
  'h:',
  ':80',
  '',
  'h:8e1',
  '%41',
];
const goodHosts = ['x:65535', 'hub.example', 'HUB.example:80', '127.0.0.1:8080', '[::1]:8080', 'a_b', 'localhost'];

/** The status line of the answer to a hand-written request. */
async function ask(url: string, target: string, headers: readonly string[]): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write([`GET ${target} HTTP/1.1`, ...headers, 'Connection: close', '', ''].join('\r\n'));
  return (await text(socket)).split('\r\n', 1)[0]!;
}

for (const anonymousRead of [true, false]) {
  test(`a Host that is invalid in a URL is refused everywhere, anonymous reading ${anonymousRead}`, async (t) => {
    const server = await startTestServer(t, { anonymousRead });
    const bearer = `Authorization: Bearer ${server.token}`;
    const targets = [
      '/v2/',
      '/v2/a/manifests/b?ns=docker.io',
      '/v2/_catalog',
      '/token',
      '/v3/index.json',
      '/v1/account',
    ];
    for (const target of targets) {
      for (const host of badHosts) {
        for (const more of [[], [bearer]]) {
          t.regex(await ask(server.url, target, [`Host: ${host}`, ...more]), / 400 /, `${target} ${host}`);
        }
      }
      t.regex(await ask(server.url, target, ['Host: a.example', 'Host: b.example', bearer]), / 400 /);
      t.regex(await ask(server.url, target, ['Host: a.example', 'hOST: a.example', bearer]), / 400 /);
    }
    for (const host of goodHosts) {
      t.regex(await ask(server.url, '/v3/index.json', [`Host: ${host}`, bearer]), / 200 /, host);
      t.regex(await ask(server.url, '/v2/', [`Host: ${host}`, bearer]), / 200 /, host);
    }
    t.is((await server.fetch('/v2/')).status, 200);
    t.deepEqual(
      server.lines.filter((line) => line.includes('"level":50')),
      [],
    );
  });
}

test('a rejected promise that no code catches is logged and answered, and the process continues', async (t) => {
  const preload = join(import.meta.dirname, '../support/processes/provoke-rejection.ts');
  const command = await CommandLine.create(t, { ENTREPOT_UPSTREAMS: '[]', NODE_OPTIONS: `--import=${preload}` });
  const server = await command.serve();
  const before = await fetch(`${server.url}/livez?provoke=before`);
  t.is(before.status, 500);
  t.like(await before.json(), { code: 'Internal' });
  const after = request(`${server.url}/livez?provoke=after`, { agent: false }).end();
  const [begun] = (await once(after, 'response')) as [IncomingMessage];
  t.is(begun.statusCode, 200, 'an answer that has begun is not interrupted');
  after.destroy();
  t.is((await fetch(`${server.url}/livez`)).status, 200);
  await server.stop();
  const lines = server.said().split('\n');
  for (const when of ['before', 'after']) {
    const line = lines.find((each) => each.includes(`provoked ${when} the head`));
    t.regex(line ?? '', /"level":50.*"request":"[0-9a-f-]{36}"/, when);
  }
});

const long = (bytes: number) => ['Host: a.example', `X-Long: ${'x'.repeat(bytes)}`];

test('a request head of more than 16 KiB is refused, and the connection closed', async (t) => {
  const server = await startTestServer(t);
  t.regex(await ask(server.url, '/livez', long(15_000)), / 200 /);
  t.regex(await ask(server.url, '/livez', long(17_000)), / 431 /);
  t.regex(await ask(server.url, `/livez?${'x'.repeat(17_000)}`, ['Host: a.example']), / 431 /);
});

test('checks of health in HTTP/1.0 need no Host, and nothing else goes without it', async (t) => {
  const server = await startTestServer(t, {
    server: { baseUrl: 'https://hub.test' },
    aliases: [{ path: '/nuget', to: 'feed' }],
  });
  const old = async (target: string, ...headers: string[]) => {
    const socket = connect(Number(new URL(server.url).port), '127.0.0.1');
    await once(socket, 'connect');
    socket.write([`GET ${target} HTTP/1.0`, ...headers, '', ''].join('\r\n'));
    return Number((await text(socket)).split(' ', 2)[1]);
  };
  for (const target of ['/livez', '/readyz', '/metrics']) {
    t.is(await old(target), 200, target);
    t.is(await old(target, 'Host: a b'), 400, target);
    t.regex(await ask(server.url, target, []), / 400 /);
  }
  for (const target of ['/v2/', '/v3/index.json', '/', '/livez/x']) t.is(await old(target), 400, target);
});

test('after a body in chunks in HTTP/1.0, nothing on the connection is a request', async (t) => {
  const server = await startTestServer(t);
  const chunks = 'Host: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n';
  const next = 'GET /v3/index.json HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n';
  for (const [version, answers] of [
    ['1.0', [400]],
    ['1.1', [400, 401]],
  ] as const) {
    const socket = connect(Number(new URL(server.url).port), '127.0.0.1');
    await once(socket, 'connect');
    socket.write(`POST /v1/token-exchange HTTP/${version}\r\nConnection: keep-alive\r\n${chunks}${next}`);
    const said = await text(socket);
    t.deepEqual(
      [...said.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => Number(status)),
      [...answers],
      version,
    );
  }
});

test('all headers of a request count, however many there are', async (t) => {
  const server = await startTestServer(t, { server: { trustProxy: 'loopback' } });
  const many = Array.from({ length: 2000 }, () => 'a:b');
  const bearer = `Authorization: Bearer ${server.token}`;
  t.regex(await ask(server.url, '/v3/index.json', [...many, 'Host: a.example', bearer]), / 200 /);
  t.regex(await ask(server.url, '/v3/index.json', ['Host: a.example', ...many, 'Host: b.example', bearer]), / 400 /);
  // A proxy can append its value as a header of its own.
  const forged = ['Host: a.example', 'X-Forwarded-For: 203.0.113.9', ...many, 'X-Forwarded-For: 192.0.2.7'];
  t.regex(await ask(server.url, '/v3/vulnerabilities/index.json', [...forged, bearer]), / 200 /);
  await until(() => server.lines.some((line) => line.includes('"path":"/v3/vulnerabilities/index.json"')));
  const line = server.lines.find((each) => each.includes('"path":"/v3/vulnerabilities/index.json"'))!;
  t.is((JSON.parse(line) as { remote: string }).remote, '192.0.2.7');
});
