import { setImmediate as turn } from 'node:timers/promises';
import { mock } from 'node:test';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { schema } from '../../src/config/schema.ts';
import type { Dialect } from '../../src/database/database.ts';
import type { Facts, Instance } from '../../src/instances/instances.ts';
import { checkStorage, openRequirements } from '../../src/server/preflight.ts';
import { activeStorage, installationIdentity, setActiveStorage } from '../../src/storage/upkeep/identity.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { testLog } from '../support/mirror.ts';

// When a start waits for other servers, and what it says; the other servers are those of the test.

const place = 's3 https://s3.test bucket prefix';

function server(id: string, changes: Partial<Instance> = {}): Instance {
  const facts: Facts = { storage: place, secret: null, redis: null, databaseNode: null };
  const times = { startedAt: 1, seenAt: 1, isLive: true };
  return { ...facts, ...times, id, name: id, address: null, version: '1.0.0', folder: 'folder', ...changes };
}

interface Setup {
  dialect?: Dialect;
  beat?: number;
  patience?: number;
  redis?: string;
  /** What Redis answers to the script that marks it, after the values of the script. */
  marked?: (values: readonly string[]) => unknown;
}

async function setUp(
  t: ExecutionContext,
  { dialect = 'sqlite', beat = 1_000_000, patience = 60_000, redis, marked = () => 0 }: Setup = {},
) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await database.transaction((tx) =>
    tx.insertNew('storage_identity', [{ id: 1, identity: 'identity', state: 'paired' }]),
  );
  const data = await folderUntilEnd(t);
  const { log, lines } = testLog();
  const noted: Facts[] = [];
  const scripts: string[][] = [];
  /** The servers that a look finds; `looks` is how many there were. */
  const state = {
    looks: 0,
    list: (): Instance[] => [],
    live: (): Promise<Instance[]> => Promise.resolve([]),
    fact: { place } as { place: string } | undefined,
  };
  const parts = {
    config: schema.parse({ data, ...(redis !== undefined && { redis: { url: redis } }) }),
    database,
    cache: {
      evaluate: (script: string, key: string, values: string[]) => {
        scripts.push([script.includes("'DEL'") ? 'release' : 'claim', key, ...values]);
        return Promise.resolve(marked(values));
      },
    },
    driver: { fact: () => Promise.resolve(state.fact) },
    instances: {
      id: 'own',
      times: { beat, lease: 4 * beat, answer: 1 },
      list: () => {
        state.looks += 1;
        return Promise.resolve(state.list());
      },
      live: () => state.live(),
      note: (facts: Facts) => void noted.push(facts),
    },
    now: Date.now,
    log,
  } as unknown as Parameters<typeof openRequirements>[0];
  const requirements = await openRequirements(parts, { clock: 2000, patience });
  const logged = () =>
    lines.splice(0).map((line) => {
      const { level, msg, before, now } = JSON.parse(line) as Record<string, unknown>;
      return { level, msg, ...(before !== undefined && { before, now }) };
    });
  return { database, data, parts, requirements, state, noted, scripts, logged };
}

const other = 's3 https://s3.test another prefix';
const differs = `ENTREPOT_STORAGE_S3_BUCKET: this server and the live server two have different storages (${place}, ${other}), but all servers of one database need the same. Correct the setting of one of the two, or end the other server`;
const waits = { level: 40, msg: `this start waits for a live server to end or to change: ${differs}` };

test('a start does not wait for servers that agree, that have ended, or that came later', async (t) => {
  const { database, requirements, state, logged, noted } = await setUp(t);
  state.list = () => [
    server('one'),
    server('two', { storage: other, isLive: false }),
    server('own', { storage: other }),
    server('two', { storage: other }),
  ];
  await requirements.agree();
  t.deepEqual([state.looks, logged(), noted], [1, [], []]);
  t.is(await activeStorage(database), place);
  await requirements.agree();
  t.deepEqual(logged(), []);
  await setActiveStorage(database, other);
  await requirements.agree();
  t.deepEqual(logged(), [
    { level: 40, msg: 'the servers of this database now use another storage', before: other, now: place },
  ]);
  state.fact = undefined;
  await requirements.agree();
  t.is(await activeStorage(database), place);
});

test('a server that lives and has another storage stops the start', async (t) => {
  const { database, requirements, state, logged } = await setUp(t);
  state.list = () => [server('one'), server('two', { storage: other, seenAt: state.looks })];
  await t.throwsAsync(requirements.agree(), { name: 'ConfigError', message: differs });
  t.is(state.looks, 2, 'it is known to live from its second heartbeat on');
  t.deepEqual(logged(), [waits]);
  t.is(await activeStorage(database), undefined);
});

test('with SQLite a server without a heartbeat in time has ended, and the start goes on', async (t) => {
  const { requirements, state, logged } = await setUp(t, { beat: 100 });
  state.list = () => [server('two', { storage: other })];
  await requirements.agree();
  t.is(state.looks, 2);
  t.deepEqual(logged(), [waits]);
});

test('a start waits for a silent server until it has ended or agrees, and says so once', async (t) => {
  const { database, requirements, state, logged } = await setUp(t);
  state.list = () => [server('two', { storage: state.looks < 4 ? other : place })];
  await requirements.agree();
  t.is(state.looks, 4);
  t.deepEqual(logged(), [waits]);
  t.is(await activeStorage(database), place);
});

test('with MySQL a start waits for a server that may not have noticed a fail-over yet, but not for ever', async (t) => {
  const { requirements, state, logged } = await setUp(t, { dialect: 'mysql', beat: 1, patience: 1700 });
  const two = () => server('two', { redis: 'mark', seenAt: state.looks });
  const message =
    'ENTREPOT_REDIS_URL: the live server two uses a Redis, which all servers of one database need to share. Correct the setting of one of the two, or end the other server';
  state.list = () => [two()];
  const startedAt = performance.now();
  await t.throwsAsync(requirements.agree(), { name: 'ConfigError', message });
  t.true(performance.now() - startedAt >= 1700, 'its heartbeats alone do not stop the start');
  t.deepEqual(logged(), [{ level: 40, msg: `this start waits for a live server to end or to change: ${message}` }]);
  const before = state.looks;
  state.list = () => [state.looks < before + 3 ? server('two', { redis: 'mark' }) : server('two', { redis: 'none' })];
  await requirements.agree();
  t.is(state.looks, before + 3, 'there, a server without heartbeats may be one that hangs');
});

test('a start notes what servers must have in common, and a running one tells a difference once', async (t) => {
  const { data, parts, requirements, state, noted, logged } = await setUp(t);
  await requirements.enforce();
  const facts = { storage: place, secret: null, redis: null, databaseNode: null };
  t.deepEqual(noted.splice(0), [facts]);
  const [watch, ...more] = requirements.chores;
  t.deepEqual(more, []);
  t.like(watch, { interval: 10_000, failure: 'the requirements for several instances were not checked' });
  const text = async () => (await requirements.list.at(-1)!.check()).text;
  state.live = () => Promise.resolve([server('own', { storage: other }), server('one')]);
  t.is(await text(), 'agrees with all live servers (1)');
  state.live = () => Promise.resolve([server('two', { storage: other })]);
  await t.throwsAsync(text(), { name: 'ConfigError', message: differs });
  await watch!.run();
  await watch!.run();
  t.deepEqual(logged(), [{ level: 40, msg: `instances: ${differs}` }]);
  t.deepEqual(noted.splice(0), [facts, facts]);
  state.live = () => Promise.reject(new Error('no database'));
  await watch!.run();
  t.deepEqual(logged(), [], 'readiness tells of it');
  state.live = () => Promise.resolve([]);
  await writeFile(join(data, 'secret-key'), 'x'.repeat(40));
  state.fact = undefined;
  await watch!.run();
  t.deepEqual(logged(), [{ level: 30, msg: 'instances: the problem is over' }]);
  const last = noted.at(-1)!;
  t.regex(last.secret!, /^webhooks:\S{16}$/);
  t.deepEqual({ ...last, secret: null }, { ...facts, storage: null });
  t.is(await installationIdentity(parts.database), 'identity');
});

test('a Redis is marked for the installation, and another one that has marked it is told', async (t) => {
  let answer: unknown = 'identity random';
  const { requirements, noted, scripts, logged } = await setUp(t, { redis: 'redis://localhost', marked: () => answer });
  t.deepEqual(
    requirements.list.map(({ subject }) => subject),
    ['redis owner', 'instances'],
  );
  await requirements.enforce();
  const [claim] = scripts;
  t.is(noted.at(-1)!.redis, null, 'with SQLite it need not be the same');
  t.deepEqual([claim!.slice(0, 3), claim!.at(-1)], [['claim', 'installation', 'identity'], '60000']);
  const text = async () => (await requirements.list[0]!.check()).text;
  t.is(await text(), 'only this installation uses its keys');
  answer = undefined;
  t.is(await text(), 'not known, because Redis does not answer or its user may not run scripts');
  answer = 'identity2 random';
  const message =
    'ENTREPOT_REDIS_URL: another installation, whose database has the same address but other content, uses this Redis. Give each installation its own Redis or database number, such as redis://host:6379/1; if the other one was just ended, wait for a minute';
  await t.throwsAsync(requirements.enforce(), { name: 'ConfigError', message });
  t.deepEqual(logged(), []);
});

test.serial(
  'a server that ends removes the mark if no other one lives, and waits a bounded time for the answer',
  async (t) => {
    const { requirements, state, scripts } = await setUp(t, {
      redis: 'redis://localhost',
      marked: () => 'identity random',
    });
    await requirements.close(1000);
    t.deepEqual(scripts, [], 'nothing was marked');
    await requirements.enforce();
    scripts.length = 0;
    state.live = () => Promise.resolve([server('own'), server('one')]);
    await requirements.close(1000);
    state.live = () => Promise.reject(new Error('no database'));
    await requirements.close(1000);
    t.deepEqual(scripts, []);
    state.live = () => new Promise(() => {});
    mock.timers.enable({ apis: ['setTimeout'] });
    t.teardown(() => mock.timers.reset());
    let isClosed = false;
    const closing = requirements.close(1000).then(() => (isClosed = true));
    await turn();
    mock.timers.tick(400);
    for (let each = 0; each < 5; each += 1) await turn();
    t.false(isClosed);
    mock.timers.tick(599);
    for (let each = 0; each < 5; each += 1) await turn();
    t.true(isClosed);
    await closing;
    t.deepEqual(scripts, []);
    mock.timers.reset();
    state.live = () => Promise.resolve([server('own')]);
    await requirements.close(1000);
    t.deepEqual(scripts, [['release', 'installation', 'identity random']]);
    const without = await setUp(t);
    without.state.live = () => Promise.reject(new Error('not asked'));
    await t.notThrowsAsync(without.requirements.close(1000));
    t.deepEqual(without.scripts, []);
  },
);

test('a command is refused if the servers use another storage than it', async (t) => {
  const { database, parts, state } = await setUp(t);
  await t.notThrowsAsync(checkStorage(parts));
  state.live = () => Promise.resolve([server('one'), server('unknown', { storage: null })]);
  await t.notThrowsAsync(checkStorage(parts));
  const message = `ENTREPOT_STORAGE_S3_BUCKET: the servers of this database use another storage (${other}) than this command (${place}). Give the command the settings of the servers; if they are to use this storage from now on, start a server with it first`;
  state.live = () => Promise.resolve([server('one'), server('two', { storage: other })]);
  await t.throwsAsync(checkStorage(parts), { name: 'ConfigError', message });
  state.live = () => Promise.resolve([]);
  await setActiveStorage(database, other);
  await t.throwsAsync(checkStorage(parts), { name: 'ConfigError', message });
  state.fact = undefined;
  await t.notThrowsAsync(checkStorage(parts), 'what is not known is not compared');
  await setActiveStorage(database, place);
  state.fact = { place };
  await t.notThrowsAsync(checkStorage(parts));
});
