import { randomBytes } from 'node:crypto';
import test from 'ava';
import { auditOf } from '../support/audit.ts';
import { TestFeed } from '../support/feed.ts';
import { digestOf, errorOf, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { databaseOf, flushEvents, flushUsage } from '../support/inside.ts';

const warning = (response: Response) => response.headers.get('x-entrepot-limit-warning');

async function ratio(server: TestServer, limit: string): Promise<number> {
  const text = await (await server.fetch('/metrics')).text();
  return Number(
    new RegExp(`^entrepot_account_limit_ratio\\{account="default",limit="${limit}"\\} (\\S+)$`, 'm').exec(text)?.[1],
  );
}

function logged(server: TestServer): number[] {
  const lines = server.lines.map((line) => JSON.parse(line) as { msg: string; percent: number });
  return lines.filter(({ msg }) => msg.includes('near its limit')).map(({ percent }) => percent);
}

test('storage: warnings at 80, 90 and 100 per cent, then pushes are refused and reads still work', async (t) => {
  const server = await startTestServer(t, { limits: { accountStorage: 100_000 } });
  const repository = new TestRepository(server, 'team/app');
  server.clock.now = Date.now();
  const push = async (bytes: number): Promise<Response> => {
    const body = randomBytes(bytes);
    // On a busy machine a measurement of the storage takes long, and is then used for twenty times as long.
    server.clock.now! += 600_000;
    return repository.fetch(`blobs/uploads/?digest=${digestOf(body)}`, { method: 'POST', body });
  };
  await repository.image('v1');
  const begun = await repository.start();
  t.is(warning(await push(80_000)), null);
  t.regex(warning(await push(10_000))!, /^storage: 8\d+ of 100000 bytes \(8\d %\)$/);
  t.deepEqual(logged(server), [80]);
  t.is((await push(9000)).status, 201);
  t.regex(warning(await push(100))!, /99 %/);
  t.deepEqual(logged(server), [80, 90], 'each once');
  const tooMuch = await push(2000);
  t.deepEqual(await errorOf(tooMuch), [403, 'DENIED']);
  const chunk = await repository.fetch(begun, { method: 'PATCH', body: randomBytes(2000) });
  t.deepEqual(await errorOf(chunk), [403, 'DENIED'], 'also in an upload that began below the limit');
  t.true((await ratio(server, 'storage')) > 0.99);

  const feed = new TestFeed(server);
  const refused = await feed.push({ payloadBytes: 5000 });
  t.is(refused.status, 413);
  t.is(refused.headers.get('content-type'), 'application/problem+json');
  t.like(await refused.json(), { code: 'QuotaExceeded', limit: 'storage', allowed: 100_000 });
  t.regex(refused.statusText, /its limit is 100000 bytes/);

  t.is((await repository.fetch('manifests/v1')).status, 200);
  t.is((await repository.fetch('manifests/v1', { method: 'DELETE' })).status, 202);
  const { limits } = (await (await server.fetch('/v1/account')).json()) as { limits: unknown[] };
  t.deepEqual(limits.slice(3), [
    { name: 'storage', unit: 'bytes', limit: 100_000 },
    { name: 'egress', unit: 'bytes per month', limit: null },
  ]);
});

test('storage: the metadata of packages counts, because it is stored separately', async (t) => {
  const server = await startTestServer(t, { limits: { accountStorage: 90_000 } });
  const feed = new TestFeed(server);
  const dependencies = Array.from({ length: 1000 }, (_, index) => ({ id: `Some.Package.${index}`, version: '1.0.0' }));
  t.is((await feed.push({ version: '1.0.0', dependencies })).status, 201);
  const database = databaseOf(server);
  const blobs = await database.get<{ bytes: number }>('SELECT SUM(size) AS bytes FROM blobs');
  t.true(blobs!.bytes < 80_000, `${blobs!.bytes} bytes of blobs`);
  const refused = await feed.push({ version: '1.0.1' });
  t.is(refused.status, 413);
  const { used } = (await refused.json()) as { used: number };
  const rows = await database.get<{ bytes: number }>(
    `SELECT OCTET_LENGTH(v.metadata) + 5 * OCTET_LENGTH(p.terms) AS bytes
     FROM packages p JOIN package_versions v ON v.package_row = p.id`,
  );
  t.is(used, blobs!.bytes + rows!.bytes);
});

test('egress: above the limit of a month, pushes are refused in both protocols until the next month, and reads still work', async (t) => {
  const server = await startTestServer(t, { limits: { accountEgress: 20_000 } });
  server.clock.now = Date.UTC(2027, 0, 31, 12);
  const repository = new TestRepository(server, 'team/app');
  const { digest } = await repository.blob(randomBytes(8500));
  const begun = await repository.start();
  const image = await repository.manifest();
  const feed = new TestFeed(server);
  const read = async () => {
    t.is((await (await repository.fetch(`blobs/${digest}`)).arrayBuffer()).byteLength, 8500);
    await flushUsage(server);
  };
  await read();
  await read();
  const warned = await feed.push({ version: '1.0.0' });
  t.is(warned.status, 201);
  t.regex(warning(warned)!, /^egress: \d+ of 20000 bytes \(8\d %\)$/);
  await read();
  const refused = await repository.fetch('blobs/uploads/', { method: 'POST' });
  t.deepEqual(await errorOf(refused), [403, 'DENIED']);
  // Each request that brings bytes is refused, also in an upload that began below the limit.
  const chunk = await repository.fetch(begun, { method: 'PATCH', body: 'x' });
  t.deepEqual(await errorOf(chunk), [403, 'DENIED']);
  const last = await repository.fetch(`${begun}?digest=${digestOf('x')}`, { method: 'PUT', body: 'x' });
  t.deepEqual(await errorOf(last), [403, 'DENIED']);
  t.deepEqual(await errorOf(await repository.put('v1', image)), [403, 'DENIED']);
  t.is((await repository.fetch(begun)).status, 204, 'its state can be read');
  t.is((await feed.push({ version: '1.0.1' })).status, 413);
  t.deepEqual(logged(server), [80, 100]);
  t.true((await ratio(server, 'egress')) > 1);
  server.clock.now += 60_000;
  await flushEvents(server);
  const [{ details } = { details: {} }, ...more] = await auditOf(server, 'type=limit.reached');
  t.like([details, more], [{ limit: 'egress', allowed: 20_000, count: 5 }, []], 'once for each refused request');
  await read();
  const other = await TestFeed.ofAccount(server, 'other');
  t.is((await other.push()).status, 201, 'another account has its own limit');
  server.clock.now = Date.UTC(2027, 1, 1);
  t.is((await feed.push({ version: '1.0.1' })).status, 201, 'a new month starts at zero');
});
