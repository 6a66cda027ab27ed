import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import test from 'ava';
import { oneLine } from '../../src/http/reason.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { tokenOf } from '../support/inside.ts';

// docker and podman show only the status line of a failure, so it contains the sentence.

async function statusLine(server: TestServer, path: string, method = 'GET', token?: string): Promise<string> {
  const headers = { authorization: `Bearer ${token ?? server.token}` };
  const asked = request(server.url + path, { method, headers, agent: false }).end();
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  response.resume();
  return `${response.statusCode} ${response.statusMessage}`;
}

test('the reason phrase of a refusal is its message, in every interface', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  const reader = await tokenOf(server, ['read']);
  upstream.unplug();
  for (const [path, expected, token, method] of [
    ['/v2/up.test/team/app/manifests/v1', /^502 .*up\.test/],
    ['/v2/up.test/team/app/manifests/v1', /^502 .*up\.test/, undefined, 'HEAD'],
    ['/v2/team/app/blobs/uploads/', /^403 This token lacks the scope "write"\.$/, reader, 'POST'],
    ['/v2/', /^401 The API token is not valid/, 'wrong'],
    ['/token?service=x', /^401 The API token is not valid/, 'wrong'],
    ['/v1/tokens', /^403 This token lacks the scope "admin"\.$/, reader],
    ['/v1/packages/None', /^404 .*None/],
    ['/v3/push', /^403 This token lacks the scope "write"\.$/, reader, 'PUT'],
    ['/v3/package/none/index.json', /^404 The package none does not exist/],
  ] as const) {
    t.regex(await statusLine(server, path, method, token), expected, path);
  }
  t.is(await statusLine(server, '/v2/'), '200 OK');
});

test('a reason phrase is one line of ASCII with at most 400 characters, whatever the request contains', async (t) => {
  const server = await startTestServer(t);
  for (const name of ['a%0d%0aSet-Cookie:%20x=1', '%C3%A9%E2%82%AC', 'a'.repeat(2000), '%00%7f', 'a%09b%20%20c']) {
    for (const path of [
      `/v1/packages/${name}`,
      `/v1/containers/${name}/v1`,
      `/v2/${name}/manifests/v1`,
      `/v2/a/manifests/${name}`,
      `/v3/package/${name}/1.0.0/x.nupkg`,
      `/v3/push/${name}/1.0.0`,
    ]) {
      const line = await statusLine(
        server,
        path,
        path.startsWith('/v3/push') || path.startsWith('/v1') ? 'DELETE' : 'GET',
      );
      t.regex(line, /^4\d\d [\x20-\x7e]{1,400}$/, path);
    }
  }
});

test('of a text there are up to 400 characters in one line, with ? for what is no ASCII', (t) => {
  t.is(oneLine('a  b\r\n\tc ~'), 'a b c ~');
  t.is(oneLine('\u00e9\u20ac\u0000\u007fx'), '????x');
  t.is(oneLine('x'.repeat(401)), 'x'.repeat(400));
  // So that a text of many spaces, which an attacker may send, takes no time.
  t.is(oneLine(`${' '.repeat(1599)}ab`), ' a');
});
