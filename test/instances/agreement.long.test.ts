import { cp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { openRequirements } from '../../src/server/preflight.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf } from '../support/inside.ts';
import { withVariables } from '../support/mysql-variables.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { redisUrl } from '../support/processes/services.ts';
import { TestRepository } from '../support/registry.ts';
import { startS3 } from '../support/s3.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until } from '../support/until.ts';

type Settings = Record<string, unknown>;

/** The message of the refused start of a server; the first one is called `first`. */
async function refusal(t: ExecutionContext, settings: Settings): Promise<string> {
  const error = await t.throwsAsync(startTestServer(t, settings), { name: 'ConfigError' });
  t.regex(error.message, /the live server first/);
  t.notRegex(error.message, /\n/);
  return error.message;
}

/** The settings of a MySQL database and a data folder. */
async function place(t: ExecutionContext): Promise<{ data: string; database: { url: string } }> {
  return { data: await folderUntilEnd(t), database: { url: await temporaryDatabase(t, 'mysql') } };
}

function startFirst(t: ExecutionContext, settings: Settings): Promise<TestServer> {
  return startTestServer(t, settings, { instanceName: 'first', instanceTimes: { beat: 200, lease: 20_000 } });
}

async function listed(server: TestServer): Promise<Record<string, unknown>[]> {
  const body = (await (await server.fetch('/v1/instances')).json()) as { items: Record<string, unknown>[] };
  return body.items;
}

test('a copy of the data folder beside a live server is refused, and accepted when that one has ended', async (t) => {
  const settings = await place(t);
  const first = await startFirst(t, settings);
  const copy = join(await folderUntilEnd(t), 'copy');
  await cp(settings.data, copy, { recursive: true });
  t.regex(await refusal(t, { ...settings, data: copy }), /^ENTREPOT_DATA: .*different storages/);
  await t.notThrowsAsync(startTestServer(t, settings), 'the same folder');
  await first.close();
});

test('another bucket, prefix or endpoint beside a live server is refused', async (t) => {
  const s3 = await startS3(t);
  const other = await startS3(t);
  const settings = await place(t);
  const stored = { endpoint: s3.endpoint, bucket: s3.bucket, prefix: 'a', forcePathStyle: true };
  const keys = { accessKeyId: 'key', secretAccessKey: 'secret' };
  const inBucket = (more: object = {}) => ({
    ...settings,
    storage: { driver: 's3', cache: 0, s3: { ...stored, ...keys, ...more } },
  });
  const first = await startFirst(t, inBucket());
  // Copies of the storage: without them, the start would find no identity.
  for (const [key, object] of s3.objects) {
    other.objects.set(key, object);
    s3.objects.set(key.replace(/^a\//, 'b/'), object);
  }
  t.is((await listed(first))[0]!['storage'], `s3 ${s3.endpoint} artifacts a`);
  t.regex(
    await refusal(t, inBucket({ prefix: 'b' })),
    /^ENTREPOT_STORAGE_S3_PREFIX: .*different storages .*artifacts b/,
  );
  t.regex(await refusal(t, inBucket({ endpoint: other.endpoint })), /^ENTREPOT_STORAGE_S3_ENDPOINT: /);
  const same = await startTestServer(t, inBucket({ prefix: 'a/' }));
  await same.close();
});

test('another secret key beside a live server is refused, and its fingerprint is not the key', async (t) => {
  const settings = await place(t);
  const folder = await folderUntilEnd(t);
  const key = async (name: string, letter: string) => {
    await writeFile(join(folder, name), letter.repeat(40));
    return { ...settings, secretKeyFile: join(folder, name) };
  };
  const first = await startFirst(t, await key('one', 'x'));
  const message = await refusal(t, await key('two', 'y'));
  t.regex(message, /^ENTREPOT_SECRET_KEY_FILE: .*different keys/);
  const answer = await (await first.fetch('/v1/instances')).text();
  t.regex(answer, /"secret":"webhooks:[\w+/]{16}"/);
  for (const text of [message, answer]) t.notRegex(text, /xxxx|yyyy/);
  await t.notThrowsAsync(startTestServer(t, await key('three', 'x')), 'the same key in another file');
  await t.notThrowsAsync(startTestServer(t, settings), 'a server that has no key yet');
});

test('another secret of server.internal beside a live server is refused', async (t) => {
  const settings = await place(t);
  const folder = await folderUntilEnd(t);
  const withSecret = async (name: string, letter: string, more: object = {}) => {
    const secretFile = join(folder, name);
    await writeFile(secretFile, letter.repeat(40));
    return { ...settings, ...more, server: { internal: { host: '127.0.0.1', port: 0, secretFile } } };
  };
  const secretKeyFile = join(folder, 'key');
  await writeFile(secretKeyFile, 'x'.repeat(40));
  await startFirst(t, await withSecret('one', 'x', { secretKeyFile }));
  t.regex(
    await refusal(t, await withSecret('two', 'y', { secretKeyFile })),
    /^ENTREPOT_INTERNAL_SECRET_FILE: .*different/,
  );
  t.regex(await refusal(t, await withSecret('two', 'y')), /^ENTREPOT_INTERNAL_SECRET_FILE: /);
  await t.notThrowsAsync(startTestServer(t, await withSecret('three', 'x')), 'the same secret');
  await t.notThrowsAsync(startTestServer(t, { ...settings, secretKeyFile }), 'a server without one');
});

test('another Redis beside a live server is refused, and so is none', async (t) => {
  const own = await ownRedis(t);
  await own.start();
  const settings = await place(t);
  const first = await startFirst(t, { ...settings, redis: { url: redisUrl() } });
  t.regex(await refusal(t, { ...settings, redis: { url: own.url } }), /^ENTREPOT_REDIS_URL: .*different Redis servers/);
  t.regex(await refusal(t, settings), /^ENTREPOT_REDIS_URL: the live server first uses a Redis/);
  await t.notThrowsAsync(startTestServer(t, { ...settings, redis: { url: `${redisUrl()}/` } }), 'the same Redis');
  await own.kill();
  await t.notThrowsAsync(
    startTestServer(t, { ...settings, redis: { url: own.url } }),
    'it is not known which one it is',
  );
  await first.close();
});

test('a start waits until a live server has noticed a fail-over', async (t) => {
  const settings = { ...(await place(t)), redis: { url: redisUrl() } };
  const first = await startFirst(t, settings);
  const { redis, storage } = (await listed(first))[0] as { redis: string; storage: string };
  const facts = { redis, storage, secret: null, databaseNode: null };
  first.installation.core.instances.note({ ...facts, redis: 'the Redis before the fail-over' });
  await until(async () => (await listed(first))[0]!['redis'] !== redis);
  const bounds = { clock: Infinity, patience: 60_000 };
  let started = false;
  const starting = startTestServer(t, settings, { requirementBounds: bounds }).then(() => (started = true));
  // The second server has added itself, and the first one lives on.
  await until(async () => (await listed(first)).length === 2);
  const { seen_at: seenAt } = (await listed(first))[0]!;
  await until(async () => (await listed(first))[0]!['seen_at'] !== seenAt);
  t.false(started);
  first.installation.core.instances.note(facts);
  t.true(await starting);
});

test('a start waits until the lease of a killed server with other settings is over', async (t) => {
  const settings = await place(t);
  const first = await startTestServer(t, settings, { instanceTimes: { beat: 3_600_000, lease: 60_000 } });
  const change = (sql: string) => databaseOf(first).transaction((tx) => tx.run(sql));
  await change("UPDATE instances SET storage = 'folder elsewhere'");
  const starting = startTestServer(t, settings);
  await until(async () => (await listed(first)).length === 2);
  await change("UPDATE instances SET seen_at = seen_at - 60000 WHERE storage = 'folder elsewhere'");
  await t.notThrowsAsync(starting);
});

test('servers on different Galera nodes are refused, and a running one warns once', async (t) => {
  const { data, database } = await place(t);
  const galera = { version: '10.11.6-MariaDB', port: '3306', wsrep_on: 'ON', wsrep_node_name: '' };
  const nodes = ['one', 'one'];
  const through = async (server: number) => ({
    data,
    database: { url: await withVariables(t, database.url, () => ({ ...galera, hostname: nodes[server]! })) },
  });
  await startFirst(t, await through(0));
  const second = await startTestServer(t, await through(1));
  const lines: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) });
  const { chores } = await openRequirements({ ...second.installation.core, log });
  const warned = async () => {
    await chores[0]!.run();
    await chores[0]!.run();
    return lines.splice(0).map((line) => (JSON.parse(line) as { msg: string }).msg);
  };
  t.deepEqual(await warned(), []);
  nodes[1] = 'two';
  const [warning, ...more] = await warned();
  t.regex(warning!, /^instances: ENTREPOT_DATABASE_URL: .*Galera node two:3306, and the live server first to one:3306/);
  t.deepEqual(more, []);
  nodes[1] = 'one';
  t.deepEqual(await warned(), ['instances: the problem is over']);
  nodes[1] = 'two';
  t.regex(await refusal(t, await through(1)), /^ENTREPOT_DATABASE_URL: .*writes to the Galera node two:3306/);
});

test('servers on an embedded database need the same storage and key, and may have different Redis servers', async (t) => {
  const folder = await folderUntilEnd(t);
  const key = join(folder, 'key');
  await writeFile(key, 'x'.repeat(40));
  const settings = { data: join(folder, 'data'), secretKeyFile: key };
  const database = { url: `sqlite:${join(settings.data, 'entrepot.db')}` };
  const first = await startFirst(t, { ...settings, database, redis: { url: redisUrl() } });
  const second = await startTestServer(t, { ...settings, database });
  t.like((await listed(second))[0], { name: 'first', redis: null, database_node: null });
  t.regex(String((await listed(second))[0]!['storage']), /^folder [0-9a-f-]{36}\.\d+\.\d+$/);
  await second.close();
  await writeFile(join(folder, 'other'), 'y'.repeat(40));
  const withOther = { ...settings, database, secretKeyFile: join(folder, 'other') };
  t.regex(await refusal(t, withOther), /^ENTREPOT_SECRET_KEY_FILE: .*different keys/);
  const copy = join(folder, 'copy');
  await cp(settings.data, copy, { recursive: true });
  t.regex(await refusal(t, { ...settings, database, data: copy }), /^ENTREPOT_DATA: .*different storages/);
  const environment = { ENTREPOT_DATA: copy, ENTREPOT_DATABASE_URL: database.url, ENTREPOT_UPSTREAMS: '[]' };
  const scrub = await entrepot(environment, 'scrub');
  t.regex(scrub.stderr, /^entrepot: ENTREPOT_DATA: the servers of this database use another storage/);
  await first.close();
  const other = await startTestServer(t, { ...settings, database, data: copy });
  await other.close();
});

test('a start on an embedded database does not wait for the lease of a server that gives no sign of life', async (t) => {
  const data = await folderUntilEnd(t);
  const first = await startTestServer(t, { data }, { instanceTimes: { beat: 3_600_000 } });
  const change = (sql: string) => databaseOf(first).transaction((tx) => tx.run(sql));
  await change("UPDATE instances SET storage = 'folder elsewhere'");
  await t.notThrowsAsync(startTestServer(t, { data }, { instanceTimes: { beat: 500 } }));
});

for (const dialect of dialects) {
  test(`${dialect}: a server or a command with another driver than the servers is refused`, async (t) => {
    const s3 = await startS3(t);
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const stored = { endpoint: s3.endpoint, bucket: s3.bucket, forcePathStyle: true };
    const keys = { accessKeyId: 'key', secretAccessKey: 'secret' };
    const settings = { data, database: { url }, storage: { s3: { ...stored, ...keys } } };
    const inBucket = { ...settings, storage: { ...settings.storage, driver: 's3' } };
    const first = await startFirst(t, settings);
    await new TestRepository(first, 'app').image('1');
    const environment: Record<string, string> = {
      ENTREPOT_DATA: data,
      ENTREPOT_DATABASE_URL: url,
      ENTREPOT_UPSTREAMS: '[]',
      ENTREPOT_STORAGE_S3_ENDPOINT: s3.endpoint,
      ENTREPOT_STORAGE_S3_BUCKET: s3.bucket,
      ENTREPOT_STORAGE_S3_FORCE_PATH_STYLE: 'true',
      ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: 'key',
      ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: 'secret',
    };
    t.is((await entrepot(environment, 'storage', 'copy', '--to', 's3')).code, 0);
    t.regex(await refusal(t, inBucket), /^ENTREPOT_STORAGE_DRIVER: .*different storages \(s3 .*, a folder\)/);
    await new TestRepository(first, 'app').image('2');
    const inS3 = { ...environment, ENTREPOT_STORAGE_DRIVER: 's3' };
    const wrong = async (settingsOfCommand: Record<string, string>) => {
      for (const command of ['scrub', 'gc', 'verify', 'storage copy --to filesystem']) {
        const { code, stdout, stderr } = await entrepot(settingsOfCommand, ...command.split(' '));
        t.deepEqual([code, stdout], [1, ''], command);
        t.regex(stderr, /^entrepot: ENTREPOT_STORAGE_DRIVER: the servers of this database use another storage/);
      }
    };
    await wrong(inS3);
    await first.close();
    await wrong(inS3);
    t.is((await entrepot(environment, 'storage', 'copy', '--to', 's3')).code, 0);
    const second = await startTestServer(t, inBucket);
    t.true(second.lines.some((line) => line.includes('now use another storage')));
    await second.close();
    await wrong(environment);
    t.is((await entrepot(inS3, 'verify')).code, 0);
    t.is((await entrepot(inS3, 'scrub')).code, 0);
  });
}

test('doctor compares itself with the live servers', async (t) => {
  const own = await ownRedis(t);
  await own.start();
  const settings = await place(t);
  await startFirst(t, { ...settings, redis: { url: redisUrl() } });
  const line = async (redis: string) => {
    const environment = {
      ENTREPOT_DATA: settings.data,
      ENTREPOT_DATABASE_URL: settings.database.url,
      ENTREPOT_REDIS_URL: redis,
      ENTREPOT_UPSTREAMS: '[]',
    };
    const { stdout } = await entrepot(environment, 'doctor');
    return stdout.split('\n').find((each) => each.includes(' instances:'))!;
  };
  t.is(await line(redisUrl()), 'ok    instances: agrees with all live servers (1)');
  t.regex(await line(own.url), /^FAIL {2}instances: ENTREPOT_REDIS_URL: .*different Redis servers/);
});
