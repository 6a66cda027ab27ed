import test from 'ava';
import { originForm, splitTarget } from '../../src/http/target.ts';
import { TestFeed } from '../support/feed.ts';
import { freePort } from '../support/processes/services.ts';
import { raw } from '../support/raw.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';

test('a target is split into path and query, also in absolute form', (t) => {
  for (const target of ['/v2/a/tags/list?n=1&last=b', 'http://registry.example:5000/v2/a/tags/list?n=1&last=b']) {
    const { path, query } = splitTarget(originForm(target));
    t.is(path, '/v2/a/tags/list');
    t.deepEqual(Object.fromEntries(new URLSearchParams(query)), { n: '1', last: 'b' });
  }
  t.deepEqual(splitTarget('/v2/'), { path: '/v2/', query: '' });
  t.is(originForm('http://registry.example'), '/');
  t.is(originForm('HTTP://registry.example/v2/'), '/v2/');
  t.is(originForm('http://registry.example?n=1'), '/?n=1');
  t.is(originForm('https://registry.example/a?b=http://c/d'), '/a?b=http://c/d');
  t.is(originForm('a/http://b/c'), '/a/http://b/c');
  t.is(originForm('*'), '/*');
  t.deepEqual(splitTarget('/a?b?c'), { path: '/a', query: 'b?c' });
  t.deepEqual(splitTarget('/a?'), { path: '/a', query: '' });
});

test('each interface answers only its own prefix, also in absolute form, and no similar prefix', async (t) => {
  const server = await startTestServer(t);
  for (const [target, status] of [
    ['/v2/', 200],
    ['/v2', 200],
    [`${server.url}/v2/`, 200],
    [`${server.url}/v3/index.json`, 200],
    [`${server.url}/v1/tokens?limit=1`, 200],
    ['/v1/tokens?limit=1&limit=2', 400],
    ['/token?service=x', 200],
    ['/v22/', 404],
    ['/tokens', 404],
    ['/v3', 404],
    ['/', 404],
    ['http://other.example', 404],
    ['/v3/package/%E0%A4%A/index.json', 400],
    ['/livez', 200],
  ] as const) {
    t.is((await raw(server, target)).status, status, target);
  }
  const others = { from: 'a@team.example', date: new Date(0).toUTCString() };
  t.is((await raw(server, '/v2/', { headers: others })).status, 200, 'headers whose names are as long as Host');
});

test('only the headers of a trusted proxy set scheme, host and client', async (t) => {
  const headers = {
    'X-Forwarded-Proto': 'https, http',
    'X-Forwarded-Host': 'packages.example, inner.example',
    'X-Forwarded-For': '192.0.2.7, 10.0.0.1',
  };
  const trusting = await startTestServer(t, { server: { trustProxy: 2 } });
  const wary = await startTestServer(t);
  for (const [server, base, remote] of [
    [trusting, 'https://packages.example', '192.0.2.7'],
    [wary, wary.url, '127.0.0.1'],
  ] as const) {
    const { body } = await raw(server, '/v3/index.json', { headers });
    const { resources } = JSON.parse(body.toString()) as { resources: { '@id': string }[] };
    t.true(
      resources.every((each) => each['@id'].startsWith(`${base}/v3/`)),
      base,
    );
    const line = JSON.parse(server.lines.find((each) => each.includes('/v3/index.json'))!) as { remote: string };
    t.is(line.remote, remote);
  }
  const strange = { ...headers, 'X-Forwarded-Proto': 'javascript' };
  t.true((await raw(trusting, '/v3/index.json', { headers: strange })).body.includes('"http://packages.example/v3/'));
  t.is((await raw(trusting, '/v3/index.json', { headers: { 'X-Forwarded-Host': 'a"b' } })).status, 400);
});

test('a separate port can serve the operations endpoints', async (t) => {
  const adminPort = await freePort();
  const server = await startTestServer(t, { server: { adminPort } });
  const admin = { ...server, url: `http://127.0.0.1:${adminPort}` };
  t.deepEqual(JSON.parse((await raw(admin, '/livez')).body.toString()), { status: 'ok' });
  t.deepEqual(JSON.parse((await raw(admin, '/readyz')).body.toString()), { status: 'ready' });
  t.regex((await raw(admin, '/metrics')).body.toString(), /^entrepot_http_requests_total\{/m);
  t.is((await raw(admin, '/v2/')).status, 404);
  for (const path of ['/livez', '/readyz', '/metrics']) t.is((await raw(server, path)).status, 404, path);
});

test('every answer has the request ID of its log line', async (t) => {
  const server = await startTestServer(t);
  for (const [method, target, status] of [
    ['GET', '/v2/', 200],
    ['GET', '/v2/team/app/manifests/none', 404],
    ['PATCH', '/v2/', 405],
    ['HEAD', '/v3/index.json', 200],
    ['OPTIONS', '/livez', 200],
    ['GET', '/token?service=x', 200],
    ['GET', '/v3/package/%E0%A4%A/index.json', 400],
    ['GET', '/', 404],
  ] as const) {
    server.lines.length = 0;
    const answer = await raw(server, target, { method });
    t.is(answer.status, status, target);
    const lines = server.lines.map((each) => JSON.parse(each) as { msg: string; request: string; seconds: number });
    const line = lines.find(({ msg }) => msg === 'request');
    t.is(answer.headers['x-request-id'], line!.request, target);
    t.true(line!.seconds > 0, target);
  }
});

test('the log line of a request says who asked for what, how it ended, and what was sent', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Some.Lib', version: '1.0.0' });
  const { items } = (await (await server.fetch('/v1/tokens')).json()) as { items: { id: string }[] };
  const lineOf = async (method: string, target: string, headers: Record<string, string> = {}) => {
    server.lines.length = 0;
    const { body, headers: answered } = await raw(server, target, {
      method,
      headers: { 'user-agent': 'a test', ...headers },
    });
    const lines = server.lines.map((each) => JSON.parse(each) as Record<string, unknown>);
    const found = lines.filter(({ msg }) => msg === 'request');
    for (const each of found) {
      t.is(each['request'], answered['x-request-id']);
      for (const name of ['time', 'at', 'seconds', 'request', 'pid', 'hostname']) delete each[name];
    }
    return { lines: found, size: body.length };
  };
  const path = '/v3/package/some.lib/1.0.0/some.lib.1.0.0.nupkg';
  const common = {
    level: 30,
    complete: true,
    received: 0,
    fetched: 0,
    remote: '127.0.0.1',
    agent: 'a test',
    msg: 'request',
  };
  const known = { ...common, account: 'default', token: items[0]!.id };
  const download = await lineOf('GET', `${path}?a=b`);
  t.deepEqual(download.lines, [
    {
      ...known,
      method: 'GET',
      path,
      status: 200,
      sent: download.size,
      kind: 'package',
      subject: 'some.lib',
      act: 'download',
      cache: 'entrepot; hit; detail=hosted',
      billable: true,
    },
  ]);
  const file = '/v1/packages/Some.Lib/1.0.0/file';
  const byPage = (await lineOf('GET', file, { range: 'bytes=0-9' })).lines;
  t.like(byPage, [{ path: file, status: 206, sent: 10, subject: 'some.lib', act: 'download' }] as never);
  t.is((await lineOf('HEAD', file)).lines[0]!['act'], undefined, 'nothing was downloaded');
  const other = { kind: 'other', subject: '' };
  const head = { method: 'HEAD', status: 200, sent: 0, billable: true };
  t.like((await lineOf('HEAD', path)).lines[0], { ...head, path, cache: 'entrepot; hit; detail=hosted' });
  for (const each of ['/v1/account', '/v3/index.json', '/v3/vulnerabilities/index.json', '/v2/', '/v3/search'])
    t.like((await lineOf('HEAD', each)).lines[0], { ...head, path: each }, each);
  const refused = await lineOf('GET', '/v1/account', { authorization: 'Bearer wrong' });
  t.deepEqual(refused.lines, [
    { ...common, ...other, method: 'GET', path: '/v1/account', status: 401, sent: refused.size, billable: false },
  ]);
  const lost = await lineOf('GET', '/nowhere');
  t.deepEqual(lost.lines, [
    { ...common, ...other, method: 'GET', path: '/nowhere', status: 404, sent: lost.size, billable: false },
  ]);
  server.lines.length = 0;
  const form = new URLSearchParams({ grant_type: 'password', password: server.token }).toString();
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  t.is((await server.fetch('/token', { method: 'POST', token: null, body: form, headers })).status, 200);
  await until(() => server.lines.some((each) => each.includes('"path":"/token"')));
  t.like(JSON.parse(server.lines.find((each) => each.includes('"path":"/token"'))!), { received: form.length });
  for (const each of ['/livez', '/livez?a', '/readyz']) t.deepEqual((await lineOf('GET', each)).lines, [], each);
  t.is((await lineOf('HEAD', '/livez')).lines.length, 1, 'a person may have sent it');
});

test('the metrics count requests and bytes by method, status and direction', async (t) => {
  const server = await startTestServer(t);
  const { body } = await raw(server, '/v2/');
  await raw(server, '/v2/', { method: 'HEAD' });
  await raw(server, '/v2/');
  for (const scrapes of [0, 1]) {
    const text = (await raw(server, '/metrics')).body.toString();
    t.true(text.includes(`entrepot_http_requests_total{method="GET",status="200"} ${2 + scrapes}\n`), text);
    t.true(text.includes('entrepot_http_requests_total{method="HEAD",status="200"} 1\n'));
    if (scrapes === 0) t.true(text.includes(`entrepot_http_body_bytes_total{direction="out"} ${2 * body.length}\n`));
    t.true(text.includes('entrepot_http_body_bytes_total{direction="in"} 0\n'));
    t.true(text.includes(`entrepot_http_request_seconds_count ${3 + scrapes}\n`));
  }
});
