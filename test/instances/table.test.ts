import { cp, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { migrate } from '../../src/database/migrate.ts';
import { folderIdentity } from '../../src/instances/folder.ts';
import { Instances } from '../../src/instances/instances.ts';
import { version } from '../../src/runtime/package.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { eventually, until } from '../support/until.ts';

interface Item {
  id: string;
  name: string;
  state: string;
  folder: string;
  seen_at: string;
}

async function listed(server: TestServer): Promise<Item[]> {
  const document = await OpenDocument.of(server);
  const body = await document.read('GET /instances', await server.fetch('/v1/instances'));
  return body['items'] as Item[];
}

function change(server: TestServer, sql: string): Promise<number> {
  return databaseOf(server).transaction((tx) => tx.run(sql));
}

const slow = { beat: 3_600_000, lease: 120_000 };

for (const dialect of dialects) {
  test(`${dialect}: an instance is listed from its start to its orderly end`, async (t) => {
    const settings = { data: await folderUntilEnd(t), database: { url: await temporaryDatabase(t, dialect) } };
    const one = await startTestServer(t, settings, { instanceName: 'host/1' });
    t.like(await listed(one), [{ name: 'host/1', state: 'live', version, address: null }]);
    const two = await startTestServer(t, settings, { instanceName: 'host/2' });
    const both = await listed(one);
    t.like(both, [
      { name: 'host/1', state: 'live' },
      { name: 'host/2', state: 'live' },
    ]);
    t.not(both[0]!.id, both[1]!.id);
    t.is(both[0]!.folder, both[1]!.folder, 'one data folder');
    await two.close();
    t.deepEqual(
      (await listed(one)).map(({ name }) => name),
      ['host/1'],
    );
    t.is((await one.fetch('/v1/instances', { token: await tokenOf(one, ['read', 'write', 'admin']) })).status, 403);
  });

  test(`${dialect}: an instance that was not seen is dead, and is removed an hour later`, async (t) => {
    const settings = { data: await folderUntilEnd(t), database: { url: await temporaryDatabase(t, dialect) } };
    const one = await startTestServer(t, settings, { instanceName: 'host/1', instanceTimes: slow });
    const states = async () => (await listed(one)).map(({ name, state }) => `${name} ${state}`);
    const back = (milliseconds: number) =>
      change(one, `UPDATE instances SET seen_at = seen_at - ${milliseconds} WHERE name = 'host/1'`);
    await back(60_000);
    t.deepEqual(await states(), ['host/1 live']);
    await back(-1_000_000);
    t.deepEqual(await states(), ['host/1 dead'], 'the clock of the database was set back');
    await back(1_081_000);
    t.deepEqual(await states(), ['host/1 dead']);
    await (await startTestServer(t, settings, { instanceName: 'host/2' })).close();
    t.deepEqual(await states(), ['host/1 dead']);
    await back(3_600_000);
    await startTestServer(t, settings, { instanceName: 'host/3' });
    t.deepEqual(await states(), ['host/3 live']);
  });

  test(`${dialect}: a heartbeat shows by the clock of the database that an instance is live`, async (t) => {
    const settings = { data: await folderUntilEnd(t), database: { url: await temporaryDatabase(t, dialect) } };
    const server = await startTestServer(t, settings, { instanceTimes: { beat: 25, lease: 2000 } });
    server.clock.now = Date.UTC(2040, 0, 1);
    const isLive = async () => (await listed(server))[0]?.state === 'live';
    await change(server, 'UPDATE instances SET seen_at = 0');
    await until(isLive);
    await change(server, 'UPDATE instances SET seen_at = seen_at + 1000000');
    await until(isLive);
    await change(server, 'DELETE FROM instances');
    await until(isLive);
    const seen = Date.parse((await listed(server))[0]!.seen_at);
    t.true(Math.abs(seen - Date.now()) < 60_000, String(seen));
  });
}

test('the command lists instances as a table and as JSON', async (t) => {
  const data = await folderUntilEnd(t);
  const server = await startTestServer(t, { data }, { instanceName: 'host/1' });
  const run = (...words: string[]) => listing(t, data, ...words);
  const [head, line, ...rest] = await run();
  t.is(head, 'name\tstate\tversion\taddress\tstarted\tseen');
  t.regex(line!, new RegExp(`^host/1\tlive\t${version.replaceAll('.', '\\.')}\t-\t[0-9T:.-]+Z\t[0-9T:.-]+Z$`));
  t.deepEqual(rest, []);
  const [json] = await run('--json');
  t.deepEqual(JSON.parse(json!), (await listed(server))[0]);
});

async function listing(t: ExecutionContext, data: string, ...words: string[]): Promise<string[]> {
  const { code, stdout, stderr } = await entrepot({ ENTREPOT_DATA: data }, 'instances', ...words);
  t.is(code, 0, stderr);
  return stdout.trimEnd().split('\n');
}

test('a data folder has one identity, and its copy another', async (t) => {
  const [first, second] = [await folderUntilEnd(t), await folderUntilEnd(t)];
  const folderOf = async (data: string) => {
    const server = await startTestServer(t, { data });
    const [item] = await listed(server);
    await server.close();
    return item!.folder;
  };
  const identity = await folderOf(first);
  t.is(await folderOf(first), identity);
  await cp(first, second, { recursive: true });
  t.not(await folderOf(second), identity);
});

test('an identity that a power cut has left empty is made anew, once for all that share the folder', async (t) => {
  const data = await folderUntilEnd(t);
  const file = join(data, 'folder-id');
  for (const empty of ['', '\0'.repeat(36)]) {
    await writeFile(file, empty);
    const made = await Promise.all(Array.from({ length: 20 }, () => folderIdentity(file)));
    t.regex(made[0]!, /^[0-9a-f-]{36}\.\d+$/);
    t.is(new Set(made).size, 1);
    const server = await startTestServer(t, { data });
    t.is((await listed(server))[0]!.folder, made[0]!);
    await server.close();
  }
  t.deepEqual(
    (await readdir(data)).filter((each) => each.startsWith('folder-id')),
    ['folder-id'],
  );
  await writeFile(file, '0123');
  await t.throwsAsync(startTestServer(t, { data }), {
    message: `ENTREPOT_DATA: the data folder cannot be used: ${file} is damaged. Delete it while no server runs`,
  });
});

for (const dialect of dialects) {
  test(`${dialect}: an instance that was not heard of, or is not listed, is gone`, async (t) => {
    const url = await temporaryDatabase(t, dialect);
    const own = await openUntilEnd(t, url);
    await migrate(own);
    const database = changedDatabase(own, { processes: undefined });
    const log = pino({ level: 'silent' });
    const [one, two] = [new Instances(database, 'f', log), new Instances(database, 'f', log)];
    t.is(one.processes.id, null, 'others cannot see it');
    await one.enter({ name: 'one', address: null });
    await two.enter({ name: 'two', address: null });
    t.is(one.processes.id, one.id);
    // Both may have started in the same millisecond.
    await database.transaction((tx) =>
      tx.run('UPDATE instances SET started_at = started_at - 1 WHERE id = ?', [one.id]),
    );
    const gone = async (silentFor: number) => [...(await one.processes.gone([one.id, two.id, 'unlisted'], silentFor))];
    t.deepEqual(await gone(0), ['unlisted']);
    await t.throwsAsync(two.refuseLive(), { message: /^the server one uses this database\. Stop all servers first/ });
    const inFolder = async (folder: string) => (await one.withFolder(folder)).map(({ name }) => name);
    for (const [older, order] of [
      [two.id, ['one', 'two']],
      [one.id, ['two', 'one']],
    ] as const) {
      // Repeated, because an instance can be seen again meanwhile.
      const names = async () => {
        const { at } = (await database.get<{ at: number }>('SELECT MAX(seen_at) AS at FROM instances'))!;
        await database.transaction((tx) =>
          tx.run('UPDATE instances SET seen_at = ? - CASE WHEN id = ? THEN 100 ELSE 0 END', [at, older]),
        );
        return inFolder('f');
      };
      const found = await eventually(names, (all) => all.join() === order.join());
      t.deepEqual(found, order, 'the one that was seen last comes first');
    }
    t.deepEqual(await inFolder('other'), []);
    await database.transaction((tx) =>
      tx.run('UPDATE instances SET seen_at = seen_at - 2 * lease WHERE id <> ?', ['unlisted']),
    );
    t.deepEqual(await gone(0), [two.id, 'unlisted'], 'never itself');
    await one.refuseLive();
    t.deepEqual(await gone(3_600_000), ['unlisted'], 'it was heard of in this time');
    const leaving = one.leave(5000);
    t.is(one.processes.id, null, 'it signs nothing that others would take over at once');
    await leaving;
    await two.leave(5000);
  });
}
