import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import test from 'ava';
import { examine } from '../../src/cli/doctor.ts';
import { CommandLine } from '../support/processes/command.ts';
import { createAuthority } from '../support/builders/certificates.ts';
import { freePort, redisUrl } from '../support/processes/services.ts';
import { startTestServer } from '../support/server.ts';
import { askTls, connectTls, createPair, startTlsServer, type TestPair } from '../support/tls.ts';
import { until, within } from '../support/until.ts';

// The certificate files, at the start and while the server runs.

/** The serial number of the certificate that a new connection gets. */
async function served(url: string, pair: TestPair): Promise<string> {
  const socket = await connectTls(url, pair);
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}

test('files that cannot be used stop the start with one line that names the setting', async (t) => {
  const pair = await createPair(t);
  const { certFile, keyFile } = pair.tls;
  const foreign = createAuthority().issue('127.0.0.1');
  const cases: [{ cert?: string; key?: string }, string][] = [
    [{ key: foreign.key }, `ENTREPOT_TLS_KEY_FILE: the key in ${keyFile} does not belong to the first certificate in`],
    [
      { cert: foreign.cert },
      `ENTREPOT_TLS_KEY_FILE: the key in ${keyFile} does not belong to the first certificate in`,
    ],
    [{ cert: '' }, `ENTREPOT_TLS_CERT_FILE: ${certFile} has no certificate in PEM`],
    [{ cert: pair.cert.slice(0, 300) }, `ENTREPOT_TLS_CERT_FILE: ${certFile} has no certificate in PEM`],
    [{ cert: pair.cert + pair.authority.ca.slice(0, 200) }, `ENTREPOT_TLS_CERT_FILE: ${certFile} cannot be used`],
    [{ key: pair.key.slice(0, 90) }, `ENTREPOT_TLS_KEY_FILE: ${keyFile} has no private key in PEM`],
    [{ key: 'x'.repeat(2 ** 20 + 1) }, `ENTREPOT_TLS_KEY_FILE: cannot read ${keyFile}: not a file of at most 1048576`],
  ];
  for (const [broken, message] of cases) {
    await pair.replace({ cert: pair.cert, key: pair.key, ...broken });
    const error = await t.throwsAsync(startTestServer(t, { server: { tls: pair.tls } }), { name: 'ConfigError' });
    t.true(error.message.startsWith(message), error.message);
    t.false(error.message.includes('\n'));
    t.false(error.message.includes('PRIVATE'));
  }
  for (const path of [certFile, keyFile]) {
    await pair.replace(pair);
    await rm(path);
    await t.throwsAsync(startTestServer(t, { server: { tls: pair.tls } }), {
      message: /_FILE: cannot read .*: ENOENT/,
    });
  }
});

test('a wrong pair stops the start of workers before the first one', async (t) => {
  const pair = await createPair(t);
  await pair.replace({ key: createAuthority().issue('127.0.0.1').key });
  const command = await CommandLine.create(t, {
    ENTREPOT_PORT: '18080',
    ENTREPOT_WORKERS: '2',
    ENTREPOT_REDIS_URL: redisUrl(),
    ENTREPOT_TLS_CERT_FILE: pair.tls.certFile,
    ENTREPOT_TLS_KEY_FILE: pair.tls.keyFile,
  });
  const { code, stdout, stderr } = await command.run('serve');
  t.is(code, 1);
  t.regex(stderr, /^entrepot: ENTREPOT_TLS_KEY_FILE: the key in .* does not belong to .*\n$/);
  t.is(stdout, '', 'no token was created');
});

test('all workers serve HTTPS, and each uses changed files', async (t) => {
  const pair = await createPair(t);
  const command = await CommandLine.create(t, {
    ENTREPOT_WORKERS: '2',
    ENTREPOT_REDIS_URL: redisUrl(),
    ENTREPOT_UPSTREAMS: '[]',
    ENTREPOT_TLS_CERT_FILE: pair.tls.certFile,
    ENTREPOT_TLS_KEY_FILE: pair.tls.keyFile,
  });
  const serving = await command.serve({ ENTREPOT_PORT: `${await freePort()}` });
  t.regex(serving.url, /^https:/);
  const ready = () => serving.said().match(/"msg":"ready"/g)!.length;
  await until(() => ready() === 2);
  t.regex(serving.said(), /Entrepot serves at https:/);
  const first = await served(serving.url, pair);
  await pair.replace(pair.authority.issue('127.0.0.1'));
  const changed = () => serving.said().match(/using a changed certificate/g)?.length;
  await until(() => changed() === 2);
  for (let connection = 0; connection < 20; connection++) t.not(await served(serving.url, pair), first);
  t.is((await serving.stop()).code, 0);
});

test('changed files are used for new connections, and open connections go on', async (t) => {
  const { server, pair } = await startTlsServer(t);
  const open = await connectTls(server.url, pair);
  const first = await served(server.url, pair);
  await pair.replace(pair.authority.issue('127.0.0.1'));
  await until(async () => (await served(server.url, pair)) !== first);
  open.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const [answer] = (await within(once(open, 'data'))) as [Buffer];
  t.regex(answer.toString(), /^HTTP\/1\.1 200 /);
  open.destroy();
  t.true(server.lines.some((line) => line.includes('using a changed certificate')));
  t.is((await askTls(server, pair, '/readyz')).body, '{"status":"ready"}');
});

test('files that cannot be used keep the certificate, degrade readiness, and are used when they are whole', async (t) => {
  const { server, pair } = await startTlsServer(t);
  const first = await served(server.url, pair);
  const next = pair.authority.issue('127.0.0.1');
  const isDegraded = async () => {
    const { status, body } = await askTls(server, pair, '/readyz');
    t.is(status, 200);
    t.false(body.includes(pair.tls.certFile), 'readiness shows no path');
    return body.includes('"degraded":[{"part":"certificate"');
  };
  const steps: [() => Promise<void>, RegExp][] = [
    [() => pair.replace({ cert: next.cert }), /does not belong to the first certificate/],
    [() => writeFile(pair.tls.certFile, next.cert.slice(0, 200)), /has no certificate in PEM/],
    [() => rm(pair.tls.certFile), /cannot read .*ENOENT/],
  ];
  for (const [spoil, reason] of steps) {
    await spoil();
    const isLogged = (line: string) => line.includes('the previous certificate stays in use') && reason.test(line);
    await until(() => server.lines.some(isLogged));
    t.is(await served(server.url, pair), first);
    await until(isDegraded);
  }
  t.regex((await askTls(server, pair, '/metrics')).body, /^entrepot_degraded\{part="certificate"\} 1$/m);
  await pair.replace(next);
  await until(async () => (await served(server.url, pair)) !== first);
  await until(async () => (await askTls(server, pair, '/readyz')).body === '{"status":"ready"}');
});

test('an expired certificate degrades readiness', async (t) => {
  const { server, pair } = await startTlsServer(t);
  t.is((await askTls(server, pair, '/readyz')).body, '{"status":"ready"}');
  server.clock.now = Date.now() + 3 * 86_400_000;
  await until(async () => (await askTls(server, pair, '/readyz')).body.includes('"part":"certificate"'));
  t.is((await askTls(server, pair, '/livez')).status, 200);
});

test('doctor reports the files as they are now', async (t) => {
  const { server, pair } = await startTlsServer(t);
  const finding = async (now = Date.now()) =>
    (await examine(server.installation, () => now)).find(({ subject }) => subject === 'certificate')!;
  const good = await finding();
  t.true(good.ok);
  t.regex(good.text, /^valid until \d{4}-.* for IP Address:127\.0\.0\.1, DNS:localhost$/);
  t.regex((await finding(Date.now() + 3 * 86_400_000)).text, /^the certificate expired at .*: replace the files/);
  await pair.replace({ key: createAuthority().issue('127.0.0.1').key });
  const bad = await finding();
  t.false(bad.ok);
  t.regex(bad.text, /^ENTREPOT_TLS_KEY_FILE: the key in .* does not belong to/);
});
