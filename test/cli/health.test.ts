import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import test from 'ava';
import { stringify } from 'yaml';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { CommandLine } from '../support/processes/command.ts';
import { freePort } from '../support/processes/services.ts';
import { databaseOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { startTlsServer } from '../support/tls.ts';

const dockerfile = join(import.meta.dirname, '../../docker/Dockerfile');
const ready = '{"status":"ready"}\n';

test('the health check of the image uses the settings in the file, and a success leaves no line in the log', async (t) => {
  const check = /^HEALTHCHECK .* CMD (\[.*\])$/m.exec(await readFile(dockerfile, 'utf8'));
  const [program, ...words] = JSON.parse(check![1]!) as string[];
  t.is(program, 'entrepot');
  const file = join(await folderUntilEnd(t), 'settings.yaml');
  await writeFile(file, stringify({ server: { host: '0.0.0.0', port: await freePort() } }));
  const commands = await CommandLine.create(t, { ENTREPOT_CONFIG: file });
  const none = await commands.run(...words);
  t.is(none.code, 1);
  t.regex(none.stderr, /^entrepot: no server answers at http:\/\/127\.0\.0\.1:\d+: .*ECONNREFUSED/);
  const server = await commands.serve({ ENTREPOT_PORT: '' });
  t.deepEqual(await commands.run(...words), { code: 0, stdout: ready, stderr: '' });
  await fetch(`${server.url}/readyzz`);
  await server.stop();
  t.true(server.said().includes('/readyzz'));
  t.false(server.said().includes('"/readyz"'));
});

const errorOf = async (environment: Record<string, string>) => (await entrepot(environment, 'health')).stderr;

test('health names the setting that is 0, and says why no server answers', async (t) => {
  t.regex(await errorOf({ ENTREPOT_PORT: '0' }), /^entrepot: ENTREPOT_PORT is 0/);
  t.regex(await errorOf({ ENTREPOT_ADMIN_PORT: '0' }), /^entrepot: ENTREPOT_ADMIN_PORT is 0/);
  const port = String(await freePort());
  t.regex(
    await errorOf({ ENTREPOT_HOST: '::', ENTREPOT_PORT: port }),
    /^entrepot: no server .*:\d+: .*ECONNREFUSED.*\n$/,
  );
});

test('health asks the admin port, and HTTPS with any certificate', async (t) => {
  const adminPort = await freePort();
  await startTestServer(t, { server: { adminPort } });
  const admin = { ENTREPOT_ADMIN_PORT: String(adminPort), ENTREPOT_ADMIN_HOST: '0.0.0.0', ENTREPOT_PORT: '1' };
  t.deepEqual(await entrepot(admin, 'health'), { code: 0, stdout: ready, stderr: '' });
  const { server, pair } = await startTlsServer(t);
  const secure = {
    ENTREPOT_PORT: new URL(server.url).port,
    ENTREPOT_TLS_CERT_FILE: pair.tls.certFile,
    ENTREPOT_TLS_KEY_FILE: pair.tls.keyFile,
  };
  t.deepEqual(await entrepot(secure, 'health'), { code: 0, stdout: ready, stderr: '' });
});

test('health fails with the answer of a server that is not ready, and for a port that is not known', async (t) => {
  const server = createServer((_request, response) => response.writeHead(503).end('{"detail":"No database."}'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  t.like(await entrepot({ ENTREPOT_PORT: String(port) }, 'health'), {
    code: 1,
    stderr: `entrepot: the server at http://127.0.0.1:${port} is not ready: {"detail":"No database."}\n`,
  });
  t.like(await entrepot({ ENTREPOT_PORT: '0' }, 'health'), {
    code: 1,
    stderr: 'entrepot: ENTREPOT_PORT is 0, so the port of the server is not known\n',
  });
});

test('failed and unusual requests to /livez and /readyz are logged, and successes with the level debug', async (t) => {
  const usual = await startTestServer(t, { log: { level: 'info' } });
  await usual.fetch('/livez');
  await usual.fetch('/livez', { method: 'POST' });
  t.is(usual.lines.filter((each) => each.includes('"/livez"')).length, 1);
  t.is((await usual.fetch('/readyz')).status, 200);
  databaseOf(usual).checkReads = () => Promise.reject(new Error('the connection is lost'));
  t.is((await usual.fetch('/readyz')).status, 503);
  t.is(usual.lines.filter((each) => each.includes('"/readyz"')).length, 1);
  const debug = await startTestServer(t, { log: { level: 'debug' } });
  await debug.fetch('/livez');
  t.is(debug.lines.filter((each) => each.includes('"/livez"')).length, 1);
});
