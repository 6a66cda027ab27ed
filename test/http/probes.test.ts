import { rm } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import express from 'express';
import { pino } from 'pino';
import { examine } from '../../src/cli/doctor.ts';
import { schema } from '../../src/config/schema.ts';
import { Health } from '../../src/http/health.ts';
import { Probes, type SeesAccounts } from '../../src/http/probes.ts';
import type { MetricsReport } from '../../src/metrics/report.ts';
import type { UpstreamFigures } from '../../src/metrics/upstreams.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { adminHostAdvice } from '../../src/server/admin-host.ts';
import { TestFeed } from '../support/feed.ts';
import { freePort } from '../support/processes/services.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { tokenOf } from '../support/inside.ts';
import { answerRequests } from '../support/answers.ts';

// What the operations endpoints show, and to whom.

const ratio = 'entrepot_account_limit_ratio';

/** A server whose metrics have a line about the account `secret-team`. */
async function withAccount(t: ExecutionContext, settings: Record<string, unknown> = {}): Promise<TestServer> {
  const server = await startTestServer(t, { limits: { accountStorage: '1MiB' }, ...settings });
  const feed = await TestFeed.ofAccount(server, 'secret-team');
  await feed.publish({ id: 'A', payloadBytes: 10_000 });
  await feed.publish({ id: 'B' });
  return server;
}

test('metrics about accounts need the scope operate', async (t) => {
  const server = await withAccount(t);
  const scrape = async (token: string | null) => {
    const response = await server.fetch('/metrics', { token });
    return { status: response.status, text: await response.text() };
  };
  const limited = await tokenOf(server, ['read', 'write', 'delete', 'admin']);
  for (const token of [null, limited]) {
    const { status, text } = await scrape(token);
    t.is(status, 200);
    t.true(text.includes('entrepot_http_requests_total{'));
    t.false(text.includes('secret-team'));
    t.false(text.includes(ratio));
  }
  for (const token of [server.token, await tokenOf(server, ['operate'], 'other')]) {
    const { status, text } = await scrape(token);
    t.is(status, 200);
    t.true(text.includes('entrepot_http_requests_total{'));
    t.regex(text, new RegExp(`^${ratio}\\{account="secret-team",limit="\\w+"\\} `, 'm'));
  }
  const wrong = await server.fetch('/metrics', { token: 'wrong' });
  t.is(wrong.status, 401);
  t.truthy(wrong.headers.get('www-authenticate'));
  t.false((await wrong.text()).includes('entrepot_'));
});

test('requests for metrics at the same time share one report, and no more than ten a second are made', async (t) => {
  const log = pino({ level: 'silent' });
  const probes = new Probes(new Health({ reads: [], writes: [], redisFailedAt: () => undefined, log }));
  let reports = 0;
  probes.gauge('reports', 'Reports', [], () => [[{}, (reports += 1)]]);
  const server = createServer(express().use(probes.router(() => Promise.resolve(false))));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const startedAt = performance.now();
  const answers = Array.from({ length: 100 }, () => fetch(`http://127.0.0.1:${port}/metrics`));
  for (const each of await Promise.all(answers)) t.regex(await each.text(), /^reports \d+$/m);
  const most = Math.floor((performance.now() - startedAt) / 100) + 2;
  t.true(reports <= most, `${reports} reports`);
  await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const before = reports;
  t.regex(await (await fetch(`http://127.0.0.1:${port}/metrics`)).text(), new RegExp(`^reports ${before + 1}$`, 'm'));
});

const isSigned = ({ headers }: IncomingMessage) => Promise.resolve(headers.authorization !== undefined);

test('the text of metrics about accounts is made only for who may see it, and once for a report', async (t) => {
  const log = pino({ level: 'silent' });
  let [reports, reads] = [0, 0];
  const others = () => {
    reports += 1;
    const report = {
      metrics: [],
      get accounts() {
        reads += 1;
        return [];
      },
      upstreams: [],
    };
    return Promise.resolve([report]);
  };
  const health = new Health({ reads: [], writes: [], redisFailedAt: () => undefined, log });
  const probes = new Probes(health, { start: () => undefined, others });
  const server = createServer(express().use(probes.router(isSigned)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/metrics`;
  await (await fetch(url)).text();
  t.deepEqual([reports, reads], [1, 0]);
  const headers = { authorization: 'Bearer x' };
  await Promise.all(Array.from({ length: 20 }, async () => (await fetch(url, { headers })).text()));
  t.true(reads > 0 && reads < reports, `${reads} of ${reports}`);
});

const yes: SeesAccounts = () => Promise.resolve(true);

test('without the first process there are no metrics, and while the database fails there are none about accounts', async (t) => {
  const log = pino({ level: 'silent' });
  const health = new Health({ reads: [], writes: [], redisFailedAt: () => undefined, log });
  let reports: MetricsReport[] | undefined = [];
  const probes = new Probes(health, { start: () => undefined, others: () => Promise.resolve(reports) });
  probes.gauge('common', 'For all', [], () => [[{}, 1]]);
  probes.accountGauge('about', 'Of accounts', ['account'], () => [[{ account: 'team' }, 2]]);
  let sees: SeesAccounts = yes;
  const router = probes.router((request) => sees(request));
  const port = await answerRequests(t, (request, response) =>
    router(request as never, response as never, () => response.writeHead(500).end()),
  );
  const ask = async () => {
    const response = await fetch(`http://127.0.0.1:${port}/metrics`);
    const text = await response.text();
    return [response.status, /^common 1$/m.test(text), /^about\{account="team"\} 2$/m.test(text), text] as const;
  };
  t.deepEqual((await ask()).slice(0, 3), [200, true, true]);
  sees = () => Promise.reject(new DomainError('DatabaseUnavailable', 'It is away.'));
  t.deepEqual((await ask()).slice(0, 3), [200, true, false]);
  sees = () => Promise.reject(new DomainError('Unauthorized', 'Who is it?'));
  t.deepEqual((await ask()).slice(1, 3), [false, false]);
  sees = yes;
  reports = undefined;
  const [status, , , text] = await ask();
  t.is(status, 503);
  t.like(JSON.parse(text), { code: 'NotReady', detail: 'The first process of this instance does not answer.' });
  t.deepEqual(await probes.upstreams(), []);
  const own = { kind: 'nuget', id: 'up', startedAt: 1, processes: 1 } as UpstreamFigures;
  probes.observeUpstreams(() => [own]);
  t.is((await probes.upstreams())[0]?.id, 'up', 'what this process knows');
});

test('on the admin port, metrics about accounts need no token', async (t) => {
  const adminPort = await freePort();
  await withAccount(t, { server: { adminPort } });
  const text = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
  t.true(text.includes('account="secret-team"'));
});

test('the admin port can listen on an address of its own', async (t) => {
  const adminPort = await freePort();
  const server = await startTestServer(t, { server: { adminPort, adminHost: '127.0.0.2' } });
  t.is((await fetch(`http://127.0.0.2:${adminPort}/livez`)).status, 200);
  await t.throwsAsync(fetch(`http://127.0.0.1:${adminPort}/livez`));
  t.is((await server.fetch('/v2/')).status, 200);
  const wrong = startTestServer(t, { server: { adminPort: 0, adminHost: '192.0.2.1' } });
  await t.throwsAsync(wrong, { message: /^ENTREPOT_ADMIN_HOST: cannot listen/ });
});

test('a start and doctor warn of an admin port that listens on all addresses by default', async (t) => {
  const adminPort = await freePort();
  const text = /the admin port listens on 0\.0\.0\.0, .* set ENTREPOT_ADMIN_HOST to a private address/;
  for (const [settings, warned] of [
    [{ host: '0.0.0.0', adminPort }, true],
    [{ host: '0.0.0.0' }, false],
    [{ host: '0.0.0.0', adminPort, adminHost: '0.0.0.0' }, false],
    [{ adminPort }, false],
  ] as const) {
    const server = await startTestServer(t, { server: settings });
    const findings = await examine(server.installation, Date.now);
    t.is(
      server.lines.some((line) => text.test(line)),
      warned,
      JSON.stringify(settings),
    );
    t.is(
      findings.some((each) => text.test(each.text)),
      warned,
      JSON.stringify(settings),
    );
    await server.close();
  }
  for (const [host, isPublic] of [
    ['::', true],
    ['8.8.8.8', true],
    ['2001:db9::1', true],
    ['10.0.0.7', false],
    ['::1', false],
    ['fd00::7', false],
    ['localhost', false],
  ] as const) {
    const config = schema.parse({ server: { host, adminPort } });
    t.is(adminHostAdvice(config.server) !== undefined, isPublic, host);
  }
});

test('a server that is not ready says which part fails, and the reason only in its log, once', async (t) => {
  const server = await startTestServer(t);
  t.is((await server.fetch('/readyz', { token: null })).status, 200);
  await rm(join(server.data, 'staging'), { recursive: true });
  for (const method of ['GET', 'GET', 'HEAD']) {
    const response = await server.fetch('/readyz', { token: null, method });
    t.is(response.status, 503);
    const text = await response.text();
    t.false(text.includes(server.data), text);
    if (method === 'GET') t.like(JSON.parse(text), { code: 'NotReady', detail: 'The storage cannot be written.' });
  }
  const logged = server.lines.filter((line) => line.includes('not ready'));
  t.is(logged.length, 1);
  t.true(logged[0]!.includes('ENOENT'));
  t.true(logged[0]!.includes(join(server.data, 'staging')));
});

test('the operations endpoints and the interfaces have one spelling', async (t) => {
  const server = await startTestServer(t, { anonymousRead: 'all' });
  for (const path of [
    '/METRICS',
    '/Metrics',
    '/metrics/',
    '/metrics//',
    '/LIVEZ',
    '/livez/',
    '/READYZ',
    '/readyz/',
    '/V1/packages',
    '/V3/index.json',
    '/V2/',
    '/TOKEN',
  ]) {
    t.is((await server.fetch(path)).status, 404, path);
  }
  for (const path of ['/metrics', '/metrics?x', '/livez', '/readyz', '/v1/packages', '/v3/index.json']) {
    t.is((await server.fetch(path)).status, 200, path);
  }
  t.is((await server.fetch('/metrics', { method: 'HEAD' })).status, 200);
});
