import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { pino } from 'pino';
import test, { type ExecutionContext } from 'ava';
import { ServerCertificate } from '../../src/tls/certificate.ts';
import { createSelfSigned } from '../../src/tls/self-signed.ts';
import { createTlsServer } from '../../src/tls/server.ts';
import { createAuthority } from '../support/builders/certificates.ts';
import { askTls, connectTls, createPair, startTlsServer, type TestPair } from '../support/tls.ts';
import { within } from '../support/until.ts';

const day = 86_400_000;

/** A small HTTPS server, and its certificate, whose files a test reads again itself. */
async function start(t: ExecutionContext) {
  const pair = await createPair(t);
  const lines: string[] = [];
  const clock = { now: Date.now() };
  const log = pino({ level: 'info' }, { write: (line: string) => lines.push(line) });
  const certificate = (await ServerCertificate.open(pair.tls, { log, now: () => clock.now }))!;
  let answered = 0;
  const server = createTlsServer(certificate, {}, (_request, response) => {
    answered += 1;
    response.end('here');
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  const url = `https://127.0.0.1:${(server.address() as { port: number }).port}`;
  return { pair, lines, clock, certificate, url, answered: () => answered };
}

async function serial(url: string, pair: TestPair): Promise<string> {
  const socket = await connectTls(url, pair);
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}

async function checkStrict(t: ExecutionContext, url: string, pair: TestPair, when: string): Promise<void> {
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    const socket = await connectTls(url, pair, { minVersion: version, maxVersion: version });
    t.is(socket.getProtocol(), version, when);
    socket.destroy();
  }
  for (const options of [
    { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' },
    { maxVersion: 'TLSv1.2', ciphers: 'AES128-SHA:AES256-GCM-SHA384' },
    { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-ECDSA-AES128-SHA' },
  ] as const)
    await t.throwsAsync(within(connectTls(url, pair, options)), undefined, `${when}: ${JSON.stringify(options)}`);
}

test('changed files are used by new connections with the same bounds, and files that cannot be used are not', async (t) => {
  const { pair, lines, clock, certificate, url } = await start(t);
  await checkStrict(t, url, pair, 'at the start');
  const first = await serial(url, pair);
  const open = await connectTls(url, pair);
  t.teardown(() => open.destroy());
  await certificate.refresh();
  t.deepEqual(lines, [], 'the files are the same');

  const next = pair.authority.issue('127.0.0.1', 'localhost');
  const spoilt: [() => Promise<void>, RegExp][] = [
    [() => pair.replace({ cert: next.cert }), /does not belong to the first certificate/],
    [() => writeFile(pair.tls.certFile, next.cert.slice(0, 200)), /has no certificate in PEM/],
    [() => rm(pair.tls.certFile), /cannot read .*ENOENT/],
    [() => pair.replace({ ...next, key: 'x'.repeat(2 ** 20 + 1) }), /not a file of at most 1048576 bytes/],
    [() => pair.replace({ ...next, key: createAuthority().issue('127.0.0.1').key }), /does not belong/],
  ];
  for (const [spoil, reason] of spoilt) {
    lines.length = 0;
    await spoil();
    await certificate.refresh();
    await certificate.refresh();
    t.is(lines.length, 1, `once: ${String(reason)}`);
    t.regex(lines[0]!, reason);
    t.regex(lines[0]!, /the previous certificate stays in use/);
    await t.throwsAsync(certificate.check(), { message: reason });
    t.is(await serial(url, pair), first);
  }

  lines.length = 0;
  await pair.replace(next);
  await Promise.all([certificate.refresh(), certificate.refresh()]);
  await t.notThrowsAsync(certificate.check());
  t.deepEqual([lines.length, lines.filter((line) => line.includes('using a changed certificate')).length], [1, 1]);
  t.not(await serial(url, pair), first);
  t.is(certificate.expires, new X509Certificate(next.cert).validToDate.getTime());
  await checkStrict(t, url, pair, 'after the change');
  open.write('GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
  t.regex(await within(text(open)), /^HTTP\/1\.1 200 [^]*here/, 'an open connection goes on');

  const last = new X509Certificate(next.cert).validToDate.getTime();
  clock.now = last;
  await t.notThrowsAsync(certificate.check());
  clock.now = last + 1;
  await t.throwsAsync(certificate.check(), { message: /^the certificate expired at 20/ });
});

test('files that no client would accept at this time do not replace a certificate that clients accept', async (t) => {
  const { pair, lines, clock, certificate, url } = await start(t);
  const first = await serial(url, pair);
  const soon = clock.now + day / 2;
  for (const [issuedAt, reason] of [
    [clock.now - 3 * day, /the certificate expired at 20/],
    [soon, /the certificate is not valid before 20/],
  ] as const) {
    lines.length = 0;
    await pair.replace(createSelfSigned(['127.0.0.1'], 2, issuedAt));
    await certificate.refresh();
    t.is(lines.length, 1);
    t.regex(lines[0]!, /the previous certificate stays in use/);
    t.regex(lines[0]!, reason);
    await t.throwsAsync(certificate.check(), { message: reason });
    t.is(await serial(url, pair), first);
  }
  clock.now = soon;
  await certificate.refresh();
  await t.notThrowsAsync(certificate.check());
  t.not(certificate.pair.leaf.serialNumber, first, 'as soon as it is valid');

  await pair.replace(createSelfSigned(['127.0.0.1'], 1, clock.now));
  clock.now += 3 * day;
  await certificate.refresh();
  await t.throwsAsync(certificate.check(), { message: /^the certificate expired at 20/ });
  t.true(certificate.expires < soon + 1.5 * day, 'an expired one replaces another expired one');
});

test('plain HTTP on the TLS port gets 400 with a sentence and no redirect, and does not reach the service', async (t) => {
  const { url, pair, answered } = await start(t);
  for (const pieces of [
    ['GET /v3/index.json HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer secret\r\n\r\n'],
    ['PUT /v3/push HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n\r\n', Buffer.alloc(4_000_000)],
    [Buffer.from([0])],
  ]) {
    const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port) });
    for (const piece of pieces) socket.write(piece);
    const answer = await within(text(socket));
    t.regex(answer, /^HTTP\/1\.1 400 Bad Request\r\n/);
    t.notRegex(answer, /location/i);
    t.regex(answer, /\r\n\r\nThis port accepts only HTTPS\. Use a URL that begins with https:\/\/\.\n$/);
  }
  t.is(answered(), 0);
  for (const broken of ['', 'G', '\x16\x03']) {
    const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port) });
    await once(socket, 'connect');
    const closed = once(socket.on('error', () => undefined).resume(), 'close');
    socket.end(broken, 'latin1');
    await within(closed);
  }
  t.is(await serial(url, pair), await serial(url, pair), 'a connection that breaks ends nothing else');
});

test('a server with TLS says so in its addresses, its metrics and its readiness, and counts a connection once', async (t) => {
  const { server, pair } = await startTlsServer(t, {
    server: { trustProxy: '127.0.0.2' },
    limits: { connectionsPerAddress: 2 },
  });
  t.regex(server.url, /^https:\/\/127\.0\.0\.1:\d+$/);
  const index = await askTls(server, pair, '/v3/index.json');
  const { resources } = JSON.parse(index.body) as { resources: { '@id': string }[] };
  for (const resource of resources) t.true(resource['@id'].startsWith(`${server.url}/`), resource['@id']);
  const expires = new X509Certificate(pair.cert).validToDate.getTime();
  server.clock.now = expires + day;
  const metrics = (await askTls(server, pair, '/metrics')).body;
  t.true(metrics.includes(`entrepot_certificate_expires_seconds ${expires / 1000}\n`));
  t.regex((await askTls(server, pair, '/readyz')).body, /^\{"status":"degraded","degraded":\[\{"part":"certificate",/);

  const idle = await connectTls(server.url, pair);
  const one = await connectTls(server.url, pair);
  for (const socket of [idle, one]) t.teardown(() => socket.destroy());
  await t.throwsAsync(within(connectTls(server.url, pair)), undefined, 'a third one');
  one.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await within(once(one, 'data'));
  const closed = [idle, one].map((socket) => within(once(socket.resume(), 'close')));
  const startedAt = performance.now();
  // Connections that are not counted would be waited for.
  await Promise.all([server.close(300_000), ...closed]);
  t.true(performance.now() - startedAt < 60_000);
});

test('a self-signed certificate is valid from an hour before, for a server only, and its authority signs no other', (t) => {
  const now = Date.UTC(2027, 0, 1);
  const made = createSelfSigned(['hub.test'], 30, now);
  const [leaf, chained] = made.cert.match(/-----BEGIN CERTIFICATE-----[^]*?-----END CERTIFICATE-----\n/g)!;
  t.is(chained, made.ca, 'the server sends its authority, too');
  const [server, authority] = [leaf, made.ca].map((pem) => new X509Certificate(pem)) as [
    X509Certificate,
    X509Certificate,
  ];
  for (const each of [server, authority]) {
    t.is(each.validFromDate.getTime(), now - 3_600_000);
    t.is(each.validToDate.getTime(), now + 30 * day);
  }
  t.true(server.checkIssued(authority));
  t.deepEqual([server.ca, authority.ca], [false, true]);
  t.deepEqual(server.keyUsage, ['1.3.6.1.5.5.7.3.1'], 'only to authenticate a server');
  t.not(createSelfSigned(['hub.test'], 30, now).ca, made.ca);
  t.not(new X509Certificate(createSelfSigned(['hub.test'], 30, now).ca).subject, authority.subject);
  t.not(server.serialNumber, authority.serialNumber);
  const long = new X509Certificate(
    createSelfSigned(
      Array.from({ length: 100 }, (_, at) => `${'x'.repeat(200)}.${at}.test`),
      30,
      now,
    ).cert,
  );
  t.is(long.subjectAltName!.split(', ').length, 100, 'lengths of two bytes');
});
