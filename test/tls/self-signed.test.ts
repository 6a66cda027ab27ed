import { X509Certificate } from 'node:crypto';
import test from 'ava';
import { createSelfSigned } from '../../src/tls/self-signed.ts';

const subjectOf = (hosts: string[]) => new X509Certificate(createSelfSigned(hosts, 30, Date.now()).cert);

test('a common name has at most 64 characters, and each host is an alternative name', (t) => {
  const [longest, longer] = [64, 65].map((length) => `${'a'.repeat(length - 5)}.test`) as [string, string];
  t.is(subjectOf([longest]).subject, `CN=${longest}`);
  t.is(subjectOf([longer]).subject, 'CN=Entrepot');
  const both = subjectOf([longer, 'short.test', '192.0.2.1']);
  t.is(both.subject, 'CN=short.test');
  t.is(both.subjectAltName, `DNS:${longer}, DNS:short.test, IP Address:192.0.2.1`);
});
