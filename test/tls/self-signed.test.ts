import { createPrivateKey, X509Certificate } from 'node:crypto';
import test from 'ava';
import { der } from '../../src/tls/der.ts';
import { createSelfSigned } from '../../src/tls/self-signed.ts';

const subjectOf = (hosts: string[]) => new X509Certificate(createSelfSigned(hosts, 30, Date.now()).cert);
const namesOf = (...hosts: string[]) => subjectOf(hosts).subjectAltName!.split(', ');

test('each form of an address becomes the address', (t) => {
  t.deepEqual(
    namesOf('10.0.0.255', '::1', '2001:db8::7', 'fd00:1:2:3:4:5:6:7abc', '::ffff:192.0.2.1', '::', 'a.test'),
    [
      'IP Address:10.0.0.255',
      'IP Address:0:0:0:0:0:0:0:1',
      'IP Address:2001:DB8:0:0:0:0:0:7',
      'IP Address:FD00:1:2:3:4:5:6:7ABC',
      'IP Address:0:0:0:0:0:FFFF:C000:201',
      'IP Address:0:0:0:0:0:0:0:0',
      'DNS:a.test',
    ],
  );
});

test('the certificates have the extensions of RFC 5280 that clients check, and are signed', (t) => {
  const made = createSelfSigned(['hub.test'], 30, Date.now());
  const [server, authority] = [new X509Certificate(made.cert), new X509Certificate(made.ca)];
  t.true(server.verify(authority.publicKey));
  t.true(authority.verify(authority.publicKey));
  t.true(server.checkPrivateKey(createPrivateKey(made.key)));
  t.is(server.issuer, authority.subject);
  t.regex(authority.subject, /^CN=Entrepot trial authority [0-9a-f]{8}$/);
  const [ofServer, ofAuthority] = [server, authority].map(({ raw }) => raw.toString('hex')) as [string, string];
  // Critical: an authority for certificates only, and a server that only signs.
  for (const extension of ['551d130101ff040530030101ff', '551d0f0101ff040403020204'])
    t.true(ofAuthority.includes(extension), extension);
  for (const extension of ['551d130101ff04023000', '551d0f0101ff040403020780'])
    t.true(ofServer.includes(extension), extension);
  // serverAuth
  t.true(ofServer.includes('551d25040c300a06082b06010505070301'), 'only for servers');
  const keyId = /551d0e04160414([0-9a-f]{40})/.exec(ofAuthority)![1]!;
  t.true(ofServer.includes(`551d23041830168014${keyId}`), 'the key of the authority');
  for (const each of [server, authority]) t.regex(each.serialNumber, /^01[0-9A-F]{30}$/);
});

test('a value in a certificate has the shortest form of its length', (t) => {
  for (const [length, head] of [
    [0, '0400'],
    [127, '047f'],
    [128, '048180'],
    [255, '0481ff'],
    [256, '04820100'],
    [65_535, '0482ffff'],
  ] as const)
    t.is(
      der(4, Buffer.alloc(length))
        .subarray(0, head.length / 2)
        .toString('hex'),
      head,
      `${length} bytes`,
    );
});

test('a common name has at most 64 characters, and each host is an alternative name', (t) => {
  const [longest, longer] = [64, 65].map((length) => `${'a'.repeat(length - 5)}.test`) as [string, string];
  t.is(subjectOf([longest]).subject, `CN=${longest}`);
  t.is(subjectOf([longer]).subject, 'CN=Entrepot');
  const both = subjectOf([longer, 'short.test', '192.0.2.1']);
  t.is(both.subject, 'CN=short.test');
  t.is(both.subjectAltName, `DNS:${longer}, DNS:short.test, IP Address:192.0.2.1`);
});

test('the certificates are valid from an hour before for the days, and their PEM has lines of 64 characters', (t) => {
  const { ca, cert } = createSelfSigned(['hub.test'], 30, Date.UTC(2026, 0, 2, 3, 4, 5, 678));
  for (const each of [ca, cert]) {
    const { validFromDate, validToDate } = new X509Certificate(each);
    t.is(validFromDate.toISOString(), '2026-01-02T02:04:05.000Z');
    t.is(validToDate.toISOString(), '2026-02-01T03:04:05.000Z');
  }
  const lines = ca.split('\n');
  t.deepEqual([lines[0], lines.at(-2), lines.at(-1)], ['-----BEGIN CERTIFICATE-----', '-----END CERTIFICATE-----', '']);
  t.true(lines.slice(1, -3).every(({ length }) => length === 64));
});
