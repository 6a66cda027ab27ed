import test, { type ExecutionContext } from 'ava';
import { raw } from '../support/raw.ts';
import { startTestServer } from '../support/server.ts';

// Which forwarded headers count. The test is the nearest proxy, at 127.0.0.1.

interface Seen {
  base: string;
  remote: string;
}

async function seenWith(
  t: ExecutionContext,
  trustProxy: unknown,
  headers: Record<string, string>,
): Promise<Seen & { url: string }> {
  const server = await startTestServer(t, { server: { trustProxy } });
  const { status, body } = await raw(server, '/v3/index.json', { headers });
  t.is(status, 200);
  const { resources } = JSON.parse(body.toString()) as { resources: { '@id': string }[] };
  const line = JSON.parse(server.lines.find((each) => each.includes('"path":"/v3/index.json"'))!) as { remote: string };
  return { base: resources[0]!['@id'].split('/v3/')[0]!, remote: line.remote, url: server.url };
}

const forged = {
  'X-Forwarded-For': '203.0.113.9, 192.0.2.7, 10.0.0.1',
  'X-Forwarded-Host': 'evil.example, hub.example, inner.example',
  'X-Forwarded-Proto': 'http, https, http',
};

test('a client cannot forge its address, host or scheme through the trusted proxies', async (t) => {
  for (const [trustProxy, base, remote] of [
    [1, 'http://inner.example', '10.0.0.1'],
    [true, 'http://inner.example', '10.0.0.1'],
    ['true', 'http://inner.example', '10.0.0.1'],
    ['2', 'https://hub.example', '192.0.2.7'],
    ['loopback', 'http://inner.example', '10.0.0.1'],
    ['127.0.0.1', 'http://inner.example', '10.0.0.1'],
    ['loopback, 10.0.0.0/8', 'https://hub.example', '192.0.2.7'],
    [['loopback', '10.0.0.0/8'], 'https://hub.example', '192.0.2.7'],
    ['loopback,uniquelocal,10.0.0.1', 'https://hub.example', '192.0.2.7'],
  ] as const) {
    const seen = await seenWith(t, trustProxy, forged);
    t.like(seen, { base, remote }, String(trustProxy));
  }
});

test('the headers of a proxy that is not trusted are ignored', async (t) => {
  for (const trustProxy of [false, 'false', 0, '0', '10.0.0.0/8', ['192.0.2.0/24', '::1']]) {
    const seen = await seenWith(t, trustProxy, forged);
    t.like(seen, { base: seen.url, remote: '127.0.0.1' }, String(trustProxy));
  }
});

test('one value counts as that of the nearest proxy, and a value that is no address is not logged', async (t) => {
  const one = { 'X-Forwarded-Host': 'hub.example', 'X-Forwarded-Proto': 'https' };
  t.like(await seenWith(t, 'loopback', one), { base: 'https://hub.example', remote: '127.0.0.1' });
  t.like(await seenWith(t, 2, { ...one, 'X-Forwarded-For': 'unknown' }), { remote: '127.0.0.1' });
  t.like(await seenWith(t, 1, { ...one, 'X-Forwarded-For': '1.2.3.4, x' }), { remote: '127.0.0.1' });
  t.like(await seenWith(t, 1, { ...one, 'X-Forwarded-For': '2001:db8::7' }), { remote: '2001:db8::7' });
  // Some proxies append the port of the connection, too.
  t.like(await seenWith(t, 1, { 'X-Forwarded-For': '1.2.3.4, 192.0.2.7:4711' }), { remote: '192.0.2.7' });
  t.like(await seenWith(t, 1, { 'X-Forwarded-For': '[2001:db8::7]:4711' }), { remote: '2001:db8::7' });
  t.like(await seenWith(t, 1, { 'X-Forwarded-For': '[2001:db8::7]' }), { remote: '2001:db8::7' });
  for (const none of ['[2001:db8::]7', '2001:[db8::7]', '192.0.2.7:', '192.0.2:4711.7', '::ffff:192.0.2.7:4711'])
    t.like(await seenWith(t, 1, { 'X-Forwarded-For': none }), { remote: '127.0.0.1' }, none);
  const through = { 'X-Forwarded-For': '192.0.2.7:1, 10.0.0.1:4711' };
  t.like(await seenWith(t, 'loopback, 10.0.0.0/8', through), { remote: '192.0.2.7' });
  t.like(await seenWith(t, 'loopback', through), { remote: '10.0.0.1' });
});
