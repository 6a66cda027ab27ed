import type { IncomingMessage } from 'node:http';
import test from 'ava';
import { schema, type Config } from '../../src/config/schema.ts';
import { Aliases } from '../../src/http/aliases.ts';
import { Hosts, isOfOperations } from '../../src/http/hosts.ts';
import { Proxies } from '../../src/http/proxies.ts';
import { isHost } from '../../src/http/target.ts';
import { Urls } from '../../src/http/urls.ts';

// Which hosts are this server, and how its addresses begin, without a server.

const settings = (server: Record<string, unknown>): Config['server'] => schema.parse({ server }).server;

/** A request with these headers over a connection from this address. */
const requestOf = (
  headers: Record<string, string>,
  remoteAddress: string | undefined = '10.0.0.1',
  encrypted = false,
) => ({ headers, socket: { remoteAddress, encrypted } }) as unknown as IncomingMessage;

const aliases = new Aliases([{ host: 'old.test', to: 'feed' }]);
const named = settings({
  baseUrl: 'https://hub.test/',
  feedUrl: 'https://feed.test:8443',
  registryUrl: 'https://images.test/',
  hosts: ['more.test', 'other.test'],
});

test('a server with an address answers only at its own hosts, at loopback, and to probes', (t) => {
  const hosts = new Hosts(named, aliases);
  for (const host of ['hub.test', 'hub.test:81', 'HUB.test', 'feed.test', 'images.test', 'more.test', 'other.test'])
    t.true(hosts.serves(host, '/v2/'), host);
  for (const host of ['127.0.0.1:80', '[::1]', 'localhost', 'old.test:80', 'old.test'])
    t.true(hosts.serves(host, '/v2/'), host);
  for (const host of ['evil.test', 'hub.test.evil.test', '10.0.0.1']) {
    t.false(hosts.serves(host, '/v2/'), host);
    t.false(hosts.serves(host, '/v2/metrics'), host);
    for (const target of ['/livez', '/readyz', '/metrics', '/metrics?x=/v2/']) {
      t.true(hosts.serves(host, target), target);
      t.true(isOfOperations(target), target);
    }
    t.false(hosts.serves(host, '/v2/'), 'also after a probe');
  }
  t.true(hosts.serves('hub.test', '/v2/'));
  t.true(hosts.serves('hub.test', '/v2/'), 'once more');
  t.true(new Hosts(settings({ feedUrl: 'https://feed.test' }), aliases).serves('any.test', '/v2/'));
  t.false(isOfOperations('/livez/'));
});

test('a request is from a page of another site if the browser says so, or its origin is none of this server', (t) => {
  const hosts = new Hosts(named, aliases);
  const isFromOther = (headers: Record<string, string>) =>
    hosts.isFromOtherSite(requestOf({ host: 'here.test:8080', ...headers }));
  for (const site of ['same-origin', 'none']) {
    t.false(isFromOther({ 'sec-fetch-site': site }));
    t.false(isFromOther({ 'sec-fetch-site': site, origin: 'https://evil.test' }));
  }
  for (const site of ['cross-site', 'same-site', '', 'x'])
    t.true(isFromOther({ 'sec-fetch-site': site, origin: 'http://here.test:8080' }), site);
  t.false(isFromOther({}));
  for (const origin of ['http://here.test:8080', 'http://HERE.test:8080', 'https://hub.test', 'https://feed.test:8443'])
    t.false(isFromOther({ origin }), origin);
  for (const origin of ['null', '', 'x', 'file:///a', 'http://here.test', 'https://feed.test', 'https://evil.test'])
    t.true(isFromOther({ origin }), origin);
  // The standard port of the origin's scheme is no part of its host.
  t.false(isFromOther({ host: 'here.test:443', origin: 'https://here.test' }));
  // A URL of a file at localhost has no host.
  t.true(isFromOther({ host: 'localhost', origin: 'file:///a' }));
  t.true(isFromOther({ host: 'a b', origin: 'https://evil.test' }));
});

/** How addresses begin for a request. */
const urlsOf = (server: Config['server'], headers: Record<string, string>, encrypted = false) =>
  new Urls(server, aliases).of(requestOf(headers, '10.0.0.1', encrypted));

test('addresses begin as the settings say, else as the request, and at an old host always as the request', (t) => {
  const here = { base: 'http://a.test:81', feed: 'http://a.test:81', registry: 'http://a.test:81' };
  t.deepEqual(urlsOf(settings({}), { host: 'a.test:81' }), here);
  t.is(urlsOf(settings({}), { host: 'a.test' }, true).base, 'https://a.test');
  const all = { base: 'https://hub.test', feed: 'https://feed.test:8443', registry: 'https://images.test' };
  t.deepEqual(urlsOf(named, { host: 'a.test' }), all);
  const old = 'http://old.test';
  t.deepEqual(urlsOf(named, { host: 'old.test' }), { base: old, feed: old, registry: old });
  const base = 'https://hub.test/sub';
  t.deepEqual(urlsOf(settings({ baseUrl: 'https://hub.test/sub//' }), { host: 'a.test' }), {
    base,
    feed: base,
    registry: base,
  });
  t.deepEqual(urlsOf(settings({ feedUrl: 'https://feed.test' }), { host: 'a.test:81' }), {
    ...here,
    feed: 'https://feed.test',
  });
});

const forwarded = {
  host: 'direct.test',
  'x-forwarded-for': '203.0.113.9, 192.0.2.7',
  'x-forwarded-host': 'forged.test, hub.test ',
  'x-forwarded-proto': 'http, HTTPS',
};

/** Host, scheme and address of the client of a request. */
const seen = (trustProxy: unknown, headers: Record<string, string>, address?: string, encrypted = false) => {
  const proxies = new Proxies(settings({ trustProxy }).trustProxy);
  const request = requestOf(headers, address, encrypted);
  return [proxies.hostOf(request), proxies.schemeOf(request), proxies.remoteOf(request)];
};

const isProxy = (trusted: unknown, address?: string) =>
  new Proxies(settings({ trustProxy: trusted }).trustProxy).isProxy(address);

test('what a trusted proxy appended counts, and nothing else', (t) => {
  for (const trusted of [1, '10.0.0.0/8'])
    t.deepEqual(seen(trusted, forwarded), ['hub.test', 'https', '192.0.2.7'], String(trusted));
  t.deepEqual(seen(2, forwarded), ['forged.test', 'http', '203.0.113.9']);
  t.deepEqual(seen(9, forwarded), ['forged.test', 'http', '203.0.113.9']);
  for (const none of [0, false]) t.deepEqual(seen(none, forwarded), ['direct.test', 'http', '10.0.0.1']);
  t.deepEqual(seen('10.0.0.0/8', forwarded, '11.0.0.1'), ['direct.test', 'http', '11.0.0.1']);
  t.deepEqual(seen(1, { host: 'direct.test' }, undefined, true), ['direct.test', 'https', '10.0.0.1']);
  t.is(seen(1, { host: 'direct.test', 'x-forwarded-proto': 'http' }, undefined, true)[1], 'http');
  t.is(seen(1, { host: 'direct.test', 'x-forwarded-host': 'a.test, ' })[0], 'direct.test');
  t.is(seen(1, { ...forwarded, 'x-forwarded-for': 'unknown' })[2], '10.0.0.1');
  // A socket has no address after its client has left.
  const left = requestOf({ host: 'direct.test' });
  Object.assign(left.socket, { remoteAddress: undefined });
  for (const trustProxy of [1, '10.0.0.0/8'])
    t.is(new Proxies(settings({ trustProxy }).trustProxy).remoteOf(left), undefined, String(trustProxy));
  t.deepEqual(
    [isProxy(1, '192.0.2.1'), isProxy(0, '192.0.2.1'), isProxy('10.0.0.0/8', '10.1.1.1')],
    [true, false, true],
  );
  t.deepEqual([isProxy('10.0.0.0/8', '11.1.1.1'), isProxy('10.0.0.0/8')], [false, false]);
});

test('a host is valid if it fits into a URL and the request has only one', (t) => {
  const one = { rawHeaders: ['Accept', '*/*', 'Host', 'a.test'] } as IncomingMessage;
  for (const host of ['a.test', 'a.test', 'A-b_c.test:8080', '127.0.0.1', '[::1]:5000', '[2001:DB8::7]'])
    t.true(isHost(one, host), host);
  for (const host of [
    undefined,
    '',
    'a b',
    'a.test:',
    'a.test:123456',
    'a.test:99999',
    'a/b',
    'u@a.test',
    '::1',
    '[::1',
  ])
    t.false(isHost(one, host), host);
  for (const host of ['xa.test/', '?a.test', '[x::1]', '256.0.0.1', 'a.test:1x', 'a.test:1x'])
    t.false(isHost(one, host), host);
  const two = { rawHeaders: ['Host', 'a.test', 'hOST', 'b.test'] } as IncomingMessage;
  t.false(isHost(two, 'a.test'));
  for (const names of [
    ['X', 'Y'],
    ['From', 'Date'],
  ]) {
    const rawHeaders = [...names.flatMap((name) => [name, 'host']), 'Host', 'a.test'];
    t.true(isHost({ rawHeaders } as IncomingMessage, 'a.test'), names.join());
  }
});
