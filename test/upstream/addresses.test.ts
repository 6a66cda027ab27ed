import test from 'ava';
import type { LookupAddress } from 'node:dns';
import { AddressRefused, checkAddress, type Resolve } from '../../src/upstream/addresses.ts';
import { answer, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { openUpstream } from '../support/mirror.ts';

const allowed = [
  '93.184.216.34',
  '2606:2800:220:1::1',
  '64:ff9b::93.184.216.34',
  '::ffff:93.184.216.34',
  '::93.184.216.34',
  '::ffff:0:93.184.216.34',
];
const privateOnly = [
  '127.0.0.1',
  '127.8.9.1',
  '10.1.2.3',
  '172.31.0.1',
  '192.168.1.1',
  '100.100.100.201',
  '::1',
  'fd00:ec3::254',
  '::ffff:127.0.0.1',
  '::ffff:7f00:1',
  '::ffff:10.0.0.1',
  '64:ff9b::127.0.0.1',
  '64:ff9b::a00:1',
  '::127.0.0.1',
  '::7f00:1',
  '::10.0.0.1',
  '::ffff:0:127.0.0.1',
  '::ffff:0:a00:1',
];
const never = [
  '0.0.0.0',
  '169.254.169.254',
  '::ffff:169.254.169.254',
  '64:ff9b::169.254.169.254',
  '224.0.0.1',
  '255.255.255.255',
  '::',
  'fe80::1',
  'fe80::1%eth0',
  'ff02::1',
  '2002:7f00:1::',
  '64:ff9b:1::a00:1',
  '::0.0.0.2',
  '::169.254.169.254',
  '::ffff:0:169.254.169.254',
  '168.63.129.16',
  '::ffff:168.63.129.16',
  '100.100.100.200',
  '64:ff9b::100.100.100.200',
  'fd00:ec2::254',
  'fd00:ec2::23',
  'fd20:ce::254',
  'nonsense',
];

for (const address of allowed) {
  test(`${address} is allowed`, (t) => {
    t.notThrows(() => checkAddress(address, false));
  });
}

for (const address of privateOnly) {
  test(`${address} is allowed only with allowPrivateNetwork`, (t) => {
    t.throws(() => checkAddress(address, false), { instanceOf: AddressRefused, message: /allowPrivateNetwork/ });
    t.notThrows(() => checkAddress(address, true));
  });
}

for (const address of never) {
  test(`${address} is never allowed`, (t) => {
    t.throws(() => checkAddress(address, false), { instanceOf: AddressRefused });
    t.throws(() => checkAddress(address, true), { instanceOf: AddressRefused });
  });
}

/** Resolves the names of a test; any other name is unknown. */
function names(addresses: Record<string, string[]>): Resolve {
  return (hostname, _options, done) => {
    const found = addresses[hostname];
    if (!found) return done(Object.assign(new Error('unknown'), { code: 'ENOTFOUND' }), []);
    const all: LookupAddress[] = found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
    return done(null, all);
  };
}

for (const host of ['127.0.0.1', '[::1]', '[::ffff:127.0.0.1]', '2130706433', '0x7f.1', 'localhost', 'inner.test']) {
  test(`an upstream at ${host} is refused without allowPrivateNetwork, and no request is sent`, async (t) => {
    const server = await startFaultyUpstream(t, { host: host.includes('::1]') ? '::1' : '127.0.0.1' });
    const url = new URL(`http://${host}:${server.url.port}/thing`);
    const { upstream } = await openUpstream(t, url, {
      settings: { allowPrivateNetwork: false },
      resolve: names({ localhost: ['127.0.0.1', '::1'], 'inner.test': ['93.184.216.34', '127.0.0.1'] }),
    });
    const error = await t.throwsAsync(upstream.send({ subject: 'thing', url }), { name: 'UpstreamUnavailable' });
    t.regex(error.message, /private address; set allowPrivateNetwork/);
    t.is(server.connections(), 0);
    t.is(upstream.unavailable(), undefined, 'a refused address says nothing about the upstream');
  });
}

test('a name that resolves to a private address is used with allowPrivateNetwork', async (t) => {
  const server = await startFaultyUpstream(t);
  server.on('/thing', answer(200, {}, 'here'));
  const url = new URL(`http://inner.test:${server.url.port}/thing`);
  const { upstream } = await openUpstream(t, url, { resolve: names({ 'inner.test': ['127.0.0.1'] }) });
  const { status, body } = await upstream.send({ subject: 'thing', url });
  t.is(status, 200);
  t.is((await body.toArray()).join(''), 'here');
});

test('an IPv6 literal is used with allowPrivateNetwork', async (t) => {
  const server = await startFaultyUpstream(t, { host: '::1' });
  server.on('/thing', answer(200, {}, 'here'));
  const { upstream } = await openUpstream(t, server.url);
  const { body } = await upstream.send({ subject: 'thing', url: new URL('/thing', server.url) });
  t.is((await body.toArray()).join(''), 'here');
});

test('cloud metadata is refused even with allowPrivateNetwork, by name and by address', async (t) => {
  const url = new URL('http://metadata.test/latest');
  const { upstream } = await openUpstream(t, url, { resolve: names({ 'metadata.test': ['169.254.169.254'] }) });
  for (const each of [url, new URL('http://169.254.169.254/latest'), new URL('http://[::ffff:a9fe:a9fe]/latest')]) {
    await t.throwsAsync(upstream.send({ subject: 'thing', url: each }), {
      name: 'UpstreamUnavailable',
      message: /never allowed/,
    });
  }
});
