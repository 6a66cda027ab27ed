import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { greeting } from '../../src/cli/greeting.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { CommandLine } from '../support/processes/command.ts';
import { freePort, redisUrl } from '../support/processes/services.ts';
import { within } from '../support/until.ts';

/** The whole log of a first start on which a client lists the packages, as a container engine or a shell keeps it. */
async function logOfFirstStart(t: ExecutionContext, settings: Record<string, string> = {}) {
  // Nothing on the internet, whose answers would be in the log.
  const command = await CommandLine.create(t, { ENTREPOT_UPSTREAMS: '[]', ...settings });
  const server = await command.serve();
  const token = /^ {2}(ent_\S+)$/m.exec(server.said())![1]!;
  for (const path of ['/v1/packages', '/v3/index.json']) {
    const response = await fetch(server.url + path, { headers: { authorization: `Bearer ${token}` } });
    t.is(response.status, 200);
    await response.text();
  }
  const { code, stdout, stderr } = await server.stop();
  t.deepEqual([code, stderr], [0, '']);
  return { data: command.data, log: stdout };
}

test('the first start of two workers prints the first token, also at an IPv6 address', async (t) => {
  const command = await CommandLine.create(t, { ENTREPOT_UPSTREAMS: '[]', ENTREPOT_HOST: '::1' });
  const port = await freePort();
  const workers = { ENTREPOT_WORKERS: '2', ENTREPOT_REDIS_URL: redisUrl(), ENTREPOT_PORT: `${port}` };
  const server = await command.serve(workers);
  t.is(server.url, `http://[::1]:${port}`);
  t.regex(server.said(), /^ {2}ent_\S+$/m);
  t.regex(server.said(), new RegExp(`docker login \\[::1\\]:${port} --username api`));
  t.is((await server.stop()).code, 0);
});

for (const setting of ['ENTREPOT_PORT', 'ENTREPOT_ADMIN_PORT']) {
  test(`${setting}: a port that is taken stops the start of workers before the first one`, async (t) => {
    const other = createServer();
    await once(other.listen(0, '127.0.0.1'), 'listening');
    t.teardown(() => other.close());
    const command = await CommandLine.create(t, {
      ENTREPOT_UPSTREAMS: '[]',
      ENTREPOT_WORKERS: '2',
      ENTREPOT_REDIS_URL: redisUrl(),
      ENTREPOT_PORT: `${await freePort()}`,
      [setting]: `${(other.address() as AddressInfo).port}`,
    });
    const { child, end } = command.begin('serve');
    t.teardown(() => child.kill('SIGKILL'));
    const { code, stdout, stderr } = await within(end);
    t.is(code, 1);
    t.regex(stderr, new RegExp(`^entrepot: ${setting}: cannot listen: .*EADDRINUSE.*\\n$`));
    t.is(stdout, '', 'no token was created');
  });
}

test('the first token is printed for each address', (t) => {
  for (const [url, base, host] of [
    ['http://127.0.0.1:8080', 'http://127.0.0.1:8080', '127.0.0.1:8080'],
    ['http://[::]:8080', 'http://127.0.0.1:8080', '127.0.0.1:8080'],
    ['https://hub.example.com/', 'https://hub.example.com', 'hub.example.com'],
    ['https://hub.example.com/below', 'https://hub.example.com/below', 'hub.example.com'],
    // No URL can have the name of an interface.
    ['http://[fe80::1%eth0]:8080', 'http://[fe80::1%eth0]:8080', '[fe80::1%eth0]:8080'],
  ] as const) {
    const text = greeting(url, 'ent_value');
    t.true(text.includes(`serves at ${base}. `), url);
    t.true(text.includes(`docker login ${host} --username api`), url);
    t.is(text.includes('--allow-insecure-connections'), url.startsWith('http:'), url);
  }
});

for (const dialect of dialects) {
  test(`${dialect}: the log of a first start warns of nothing, and usage reconcile reads it`, async (t) => {
    const settings = { ENTREPOT_DATABASE_URL: await temporaryDatabase(t, dialect) };
    const { data, log } = await logOfFirstStart(t, settings);
    const environment = { ENTREPOT_DATA: data, ...settings };
    const reconcile = (file: string) => entrepot(environment, 'usage', 'reconcile', '--access-log', file);
    const lines = log.split('\n').filter((line) => line.startsWith('{'));
    const entries = lines.map((line) => JSON.parse(line) as { level: number; msg: string });
    t.deepEqual(
      entries.map(({ level, msg }) => `${level} ${msg}`),
      ['30 ready', '30 request', '30 request', '30 closing'],
    );

    const folder = await folderUntilEnd(t);
    const file = join(folder, 'log');
    // What npm prints before the log of `npm start`.
    await writeFile(file, `\n> entrepot@0.1.0 start\n> node bin/entrepot.js serve\n\n${log}`);
    const compared = await reconcile(file);
    t.deepEqual([compared.code, compared.stderr], [0, '']);
    t.regex(compared.stdout, /^default\trequests\t2\t2\t0$/m);

    await writeFile(file, log.replace(/^\{.*"msg":"request"\}\n/m, 'lost\n'));
    const lost = await reconcile(file);
    t.is(lost.code, 1);
    t.regex(lost.stderr, /^entrepot: \d of \d+ counters differ; \d+ lines that are not JSON were skipped\n$/);

    await writeFile(file, `${log}{"level":30,"time":17`);
    const broken = await reconcile(file);
    t.is(broken.code, 1);
    t.regex(broken.stderr, new RegExp(`^entrepot: ${file}:${log.split('\n').length}: this line .*not complete`));
    await writeFile(file, 'GET /v3/index.json 200\n');
    const other = await reconcile(file);
    t.is(other.code, 1);
    t.regex(other.stderr, /log: this file has no line of a JSON log/);
  });
}
