import { mkdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { openRequirements } from '../../src/server/preflight.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { withVariables, type Variables } from '../support/mysql-variables.ts';
import { redisUrl } from '../support/processes/services.ts';
import { testClock } from '../support/clock.ts';
import { startTestServer } from '../support/server.ts';

/** A MySQL database and its storage, for several starts. */
interface Place {
  url: string;
  data: string;
}

async function newPlace(t: ExecutionContext): Promise<Place> {
  return { url: await temporaryDatabase(t, 'mysql'), data: await folderUntilEnd(t) };
}

/** The message of a start on a MySQL server with these system variables; undefined if it starts. */
async function refusal(t: ExecutionContext, place: Place, variables: Variables): Promise<string | undefined> {
  const url = await withVariables(t, place.url, variables);
  try {
    const server = await startTestServer(t, { data: place.data, database: { url } });
    await server.close();
    return undefined;
  } catch (error) {
    t.is((error as Error).name, 'ConfigError');
    t.notRegex((error as Error).message, /\n/);
    return (error as Error).message;
  }
}

const mysql = { version: '8.0.36', hostname: 'db', port: '3306' };

test('a group replication with several primaries is refused', async (t) => {
  const place = await newPlace(t);
  const group = { ...mysql, group_replication_group_name: '2ad1c1a5-3c3c-4e43-8d3b-0d9e2b1f7f11' };
  t.regex(
    (await refusal(t, place, () => ({ ...group, group_replication_single_primary_mode: 'OFF' })))!,
    /^ENTREPOT_DATABASE_URL: .*group_replication_single_primary_mode=OFF.*switch_to_single_primary_mode/,
  );
  t.is(await refusal(t, place, () => ({ ...group, group_replication_single_primary_mode: 'ON' })), undefined);
  // The plugin is loaded, and the server is in no group.
  const alone = { ...mysql, group_replication_group_name: '', group_replication_single_primary_mode: 'OFF' };
  t.is(await refusal(t, place, () => alone), undefined);
});

test('an address that leads to several Galera nodes is refused, and one that leads to one node is not', async (t) => {
  const place = await newPlace(t);
  const galera = { version: '10.11.6-MariaDB', port: '3306', wsrep_on: 'ON' };
  const node = (name: string) => ({ ...galera, hostname: name, wsrep_node_name: name });
  t.regex(
    (await refusal(t, place, (connection) => node(connection % 4 < 2 ? 'one' : 'two')))!,
    /^ENTREPOT_DATABASE_URL: .*several nodes.*\(one:3306, two:3306\).*Use an address that leads to one node/,
  );
  t.is(await refusal(t, place, () => node('one')), undefined);
  t.is(await refusal(t, place, (connection) => ({ ...node(`db-${connection}`), wsrep_on: 'OFF' })), undefined);
});

const tidb = (version: string, mode: string) => ({ ...mysql, version, tidb_txn_mode: mode });

test('a TiDB without row locks, or without GET_LOCK, is refused', async (t) => {
  const place = await newPlace(t);
  const optimistic = await refusal(t, place, () => tidb('8.0.11-TiDB-v7.5.0', ''));
  t.regex(optimistic!, /^ENTREPOT_DATABASE_URL: .*SET GLOBAL tidb_txn_mode = 'pessimistic'/);
  const old = await refusal(t, place, () => tidb('5.7.25-TiDB-v6.0.0', 'pessimistic'));
  t.regex(old!, /^ENTREPOT_DATABASE_URL: .*older than 6\.1.*Upgrade/);
  t.is(await refusal(t, place, () => tidb('5.7.25-TiDB-v6.1.0', 'pessimistic')), undefined);
});

test('a TiDB that may work is warned of at the start', async (t) => {
  const variables = tidb('8.0.11-TiDB-v7.5.0', 'pessimistic');
  const url = await withVariables(t, await temporaryDatabase(t, 'mysql'), () => variables);
  const server = await startTestServer(t, { database: { url } });
  t.is(server.lines.filter((line) => line.includes('TiDB is not tested')).length, 1);
});

test('a clock that differs from that of the database by more than 2 s is refused', async (t) => {
  const { data, url } = await newPlace(t);
  const start = async (ahead: number) => {
    const clock = testClock();
    clock.time = () => Date.now() + ahead;
    const server = await startTestServer(t, { data, database: { url } }, { requirementBounds: undefined }, clock);
    await server.close();
  };
  await t.throwsAsync(() => start(60_000), {
    name: 'ConfigError',
    message: /^ENTREPOT_DATABASE_URL: the clock of this machine is (?:60\.0|59\.\d) s ahead of .*at most 2 s.* NTP$/,
  });
  await t.throwsAsync(() => start(-60_000), { message: /is (?:60\.\d|59\.9) s behind the clock of the database/ });
  await t.notThrowsAsync(() => start(1500));
  await t.notThrowsAsync(() => start(-1500));
});

test('the clock of an embedded database is not checked', async (t) => {
  const clock = testClock(Date.now() + 3_600_000);
  const server = await startTestServer(t, {}, { requirementBounds: undefined }, clock);
  const { list } = await openRequirements(server.installation.core);
  t.deepEqual(
    list.map(({ subject }) => subject),
    ['instances'],
  );
});

test('a running server warns once of a clock that drifts away, and once that it is right again', async (t) => {
  const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, 'mysql') } });
  const lines: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) });
  let ahead = 0;
  const core = { ...server.installation.core, now: () => Date.now() + ahead, log };
  const requirements = await openRequirements(core);
  const [watch] = requirements.chores;
  const warned = async () => {
    await watch!.run();
    await watch!.run();
    return lines.splice(0).map((line) => (JSON.parse(line) as { level: number; msg: string }).msg);
  };
  t.deepEqual(await warned(), []);
  ahead = 60_000;
  const [warning, ...more] = await warned();
  t.regex(warning!, /^clock: .*ahead of the clock of the database/);
  t.deepEqual(more, []);
  ahead = 61_500;
  t.deepEqual(await warned(), [], 'a little more is the same state');
  ahead = 0;
  t.deepEqual(await warned(), ['clock: the problem is over']);
  await server.installation.core.database.close();
  t.deepEqual(await warned(), [], 'readiness reports the database');
});

test('a Redis that another installation with the same address uses is refused until that one has ended', async (t) => {
  const folder = await folderUntilEnd(t);
  const data = join(folder, 'data');
  const point = async (name: string) => {
    await mkdir(join(folder, name), { recursive: true });
    await rm(data, { force: true });
    await symlink(join(folder, name), data);
  };
  const settings = { data, redis: { url: redisUrl() } };
  await point('one');
  const first = await startTestServer(t, settings);
  // Another instance of the same installation.
  const second = await startTestServer(t, settings);
  await point('two');
  const other = () => startTestServer(t, settings);
  await t.throwsAsync(other, {
    name: 'ConfigError',
    message: /^ENTREPOT_REDIS_URL: another installation.*its own Redis or database number/,
  });
  // So that they find their own database when they end.
  await point('one');
  await first.close();
  await second.close();
  await point('two');
  await t.notThrowsAsync(other);
});

test('installations are separate in one Redis, and a new password of the database changes nothing', async (t) => {
  const url = await temporaryDatabase(t, 'mysql');
  const data = await folderUntilEnd(t);
  const redis = { url: redisUrl() };
  const first = await startTestServer(t, { data, redis, database: { url } });
  const renamed = url.replace('root@', 'root:@');
  t.not(renamed, url);
  const second = await startTestServer(t, { data, redis, database: { url: renamed } });
  const { cache: one } = first.installation.core;
  const { cache: two } = second.installation.core;
  await one.set('shared', 1, 60_000);
  t.is(await two.get('shared'), 1);
  const apart = await startTestServer(t, { redis });
  t.is(await apart.installation.core.cache.get('shared'), undefined);
});

test('doctor shows the requirements', async (t) => {
  const { data, url: database } = await newPlace(t);
  const group = { ...mysql, group_replication_group_name: 'g', group_replication_single_primary_mode: 'OFF' };
  const lines = async (url: string) => {
    const environment = {
      ENTREPOT_DATA: data,
      ENTREPOT_DATABASE_URL: url,
      ENTREPOT_REDIS_URL: redisUrl(),
      ENTREPOT_UPSTREAMS: '[]',
    };
    await entrepot(environment, 'account', 'create', 'team');
    return (await entrepot(environment, 'doctor')).stdout;
  };
  const good = await lines(database);
  t.regex(good, /^ok {4}database server: M\w+ [\d.]+$/m);
  t.regex(good, /^ok {4}clock: agrees with the clock of the database to 2 s$/m);
  t.regex(good, /^ok {4}redis owner: only this installation/m);
  const bad = await lines(await withVariables(t, database, () => group));
  t.regex(bad, /^FAIL {2}database server: ENTREPOT_DATABASE_URL: .*several primaries/m);
});

test('a server starts at once beside a live one after another server or doctor has ended', async (t) => {
  const { data, url } = await newPlace(t);
  const settings = { data, redis: { url: redisUrl() }, database: { url } };
  await startTestServer(t, settings);
  const waited = async () => {
    const server = await startTestServer(t, settings);
    await server.close();
    return server.lines.filter((line) => line.includes('this start waits'));
  };
  t.deepEqual(await waited(), []);
  t.deepEqual(await waited(), []);
  const doctor = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_REDIS_URL: redisUrl() };
  await entrepot({ ...doctor, ENTREPOT_UPSTREAMS: '[]' }, 'doctor');
  t.deepEqual(await waited(), []);
});
