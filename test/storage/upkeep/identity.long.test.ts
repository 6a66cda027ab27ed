import { mkdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { digestOf } from '../../../src/runtime/digest.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { entrepot } from '../../support/in-process.ts';
import { databaseOf, rowsOf, runJob } from '../../support/inside.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';

// A database and a storage that do not belong together never start. One test at a time, because each starts many commands.

const identityIn = async (data: string) => (await readFile(join(data, 'blobs/identity'), 'utf8')).trim();

/** The one line with which a start and every command on these settings fail. */
async function refusal(t: ExecutionContext, environment: Record<string, string>): Promise<string> {
  const lines = new Set<string>();
  // `serve` comes last, because it would not end if it started.
  for (const words of [['gc'], ['token', 'list'], ['serve']]) {
    const { code, stdout, stderr } = await entrepot({ ...environment, ENTREPOT_PORT: '0' }, ...words);
    t.deepEqual([code, stdout], [1, ''], words.join(' '));
    lines.add(stderr);
  }
  t.is(lines.size, 1);
  const [line] = lines;
  t.regex(line!, /^entrepot: [^\n]*"entrepot adopt"[^\n]*\n$/);
  return line!;
}

for (const dialect of dialects) {
  test.serial(`${dialect}: nothing is adopted while a server of the database runs`, async (t) => {
    const url = await temporaryDatabase(t, dialect);
    const server = await startTestServer(t, { database: { url } }, { instanceName: 'first' });
    const environment = { ENTREPOT_DATA: await folderUntilEnd(t), ENTREPOT_DATABASE_URL: url };
    const before = await rowsOf(server, 'SELECT identity FROM storage_identity');
    const refused = await entrepot(environment, 'adopt');
    t.deepEqual([refused.code, refused.stdout], [1, '']);
    t.regex(refused.stderr, /^entrepot: the server first uses this database. Stop all servers first/);
    t.deepEqual(await rowsOf(server, 'SELECT identity FROM storage_identity'), before);
    await server.close();
    t.is((await entrepot(environment, 'adopt')).code, 0);
  });

  test.serial(
    `${dialect}: a database without content beside a storage with content stops the start, until it is adopted`,
    async (t) => {
      const first = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
      const { digest, size } = await new TestRepository(first, 'app').blob('precious');
      await first.close();
      const url = await temporaryDatabase(t, dialect);
      const environment = { ENTREPOT_DATA: first.data, ENTREPOT_DATABASE_URL: url, ENTREPOT_GC_GRACE: '0s' };
      const line = await refusal(t, environment);
      t.regex(line, /^entrepot: ENTREPOT_DATABASE_URL: the storage belongs to another database/);
      t.true(line.includes(first.data));

      const before = await identityIn(first.data);
      const adopted = await entrepot(environment, 'adopt');
      t.deepEqual(adopted, {
        code: 0,
        stdout: [
          'database: 0 blobs, 0 of them without a file in the storage',
          `storage: 1 files, ${size} bytes, 1 of the files without a row in the database`,
          'adopted: the database and the storage now have the same identity',
          '',
        ].join('\n'),
        stderr: '',
      });
      t.not(await identityIn(first.data), before, 'the former database does not fit any more');
      const server = await startTestServer(t, { data: first.data, database: { url }, gc: { grace: '0s' } });
      server.clock.now = Date.now() + 1e12;
      await runJob(server, 'gc');
      t.is(await readFile(pathOf(first.data, digest), 'utf8'), 'precious', 'no job deletes a file without a row');
      await new TestRepository(server, 'app').blob('new');
      await server.close();
      await (await startTestServer(t, { data: first.data, database: { url } })).close();
      const database = await openUntilEnd(t, url);
      await database.transaction((tx) => tx.run('DELETE FROM blobs'));
      t.regex(await refusal(t, environment), /^entrepot: ENTREPOT_DATABASE_URL: the database names no content/);
    },
  );

  test.serial(
    `${dialect}: a data folder that is not mounted, or the folder of another installation, stops the start`,
    async (t) => {
      const url = await temporaryDatabase(t, dialect);
      const server = await startTestServer(t, { database: { url } });
      const other = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
      await new TestRepository(server, 'app').blob('mine');
      await new TestRepository(other, 'app').blob('theirs');
      await server.close();
      await other.close();
      const environment = (data: string) => ({ ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url });
      const empty = await folderUntilEnd(t);
      t.regex(
        await refusal(t, environment(empty)),
        /^entrepot: ENTREPOT_DATA: the storage of this database is not here/,
      );
      t.regex(
        await refusal(t, environment(other.data)),
        /^entrepot: ENTREPOT_DATA, ENTREPOT_DATABASE_URL: the storage and the database belong to different installations/,
      );
      // Only the disk of the blobs is not mounted.
      await rename(join(server.data, 'blobs'), join(server.data, 'unmounted'));
      await refusal(t, environment(server.data));
      await rm(join(server.data, 'blobs'), { recursive: true });
      await rename(join(server.data, 'unmounted'), join(server.data, 'blobs'));
      const again = await startTestServer(t, { data: server.data, database: { url } });
      const digest = digestOf('mine');
      t.is((await new TestRepository(again, 'app').fetch(`blobs/${digest}`)).status, 200);
      await again.close();

      // Adopted without its files: what is missing is said.
      const adopted = await entrepot(environment(empty), 'adopt');
      t.regex(
        adopted.stdout,
        /^database: 1 blobs, 1 of them without a file in the storage\nstorage: 0 files, 0 bytes, 0 /,
      );
      await (await startTestServer(t, { data: empty, database: { url } })).close();
      await refusal(t, environment(server.data));
    },
  );

  test.serial(
    `${dialect}: an installation from before the identity gets one, unless its storage has other content`,
    async (t) => {
      const url = await temporaryDatabase(t, dialect);
      const server = await startTestServer(t, { database: { url } });
      const app = new TestRepository(server, 'app');
      const { digest } = await app.blob('kept');
      await app.blob('lost');
      await rm(pathOf(server.data, digestOf('lost')));
      const forget = async () => {
        await databaseOf(server).transaction((tx) => tx.run('DELETE FROM storage_identity'));
        await databaseOf(server).transaction((tx) => tx.run('DELETE FROM instances'));
        await rm(join(server.data, 'blobs/identity'));
      };
      await forget();
      const environment = { ENTREPOT_DATA: server.data, ENTREPOT_DATABASE_URL: url };
      t.deepEqual(await entrepot(environment, 'account', 'list').then(({ code, stderr }) => [code, stderr]), [0, '']);
      const [row] = await rowsOf<{ identity: string; state: string }>(
        server,
        'SELECT identity, state FROM storage_identity',
      );
      t.deepEqual({ ...row! }, { identity: await identityIn(server.data), state: 'paired' });

      await forget();
      const other = pathOf(server.data, digestOf('other'));
      await mkdir(dirname(other), { recursive: true });
      await rename(pathOf(server.data, digest), other);
      t.regex(await refusal(t, environment), /^entrepot: ENTREPOT_DATA: the storage has none of the content that/);
      await forget().catch(() => undefined);
      await databaseOf(server).transaction((tx) => tx.run('DELETE FROM blobs'));
      t.regex(await refusal(t, environment), /^entrepot: ENTREPOT_DATABASE_URL: the database names no content/);
    },
  );

  test.serial(`${dialect}: a first start that was killed between its two writes is continued`, async (t) => {
    const url = await temporaryDatabase(t, dialect);
    const server = await startTestServer(t, { database: { url } });
    await new TestRepository(server, 'app').blob('kept');
    const identity = await identityIn(server.data);
    const start = async () => (await startTestServer(t, { data: server.data, database: { url } })).close();
    const setNew = () => databaseOf(server).transaction((tx) => tx.run("UPDATE storage_identity SET state = 'new'"));
    await setNew();
    await start();
    await setNew();
    await rm(join(server.data, 'blobs/identity'));
    await start();
    t.is(await identityIn(server.data), identity);
    t.like(await rowsOf(server, 'SELECT state FROM storage_identity'), [{ state: 'paired' }]);
  });
}

test.serial('instances that start at the same time on one new database and storage agree on an identity', async (t) => {
  for (const dialect of dialects) {
    const url = await temporaryDatabase(t, dialect);
    const driver = new MemoryDriver();
    const starting = Array.from({ length: 6 }, () => startTestServer(t, { database: { url } }, { driver }));
    const servers = await Promise.all(starting);
    const rows = await rowsOf<{ identity: string }>(servers[0]!, 'SELECT identity FROM storage_identity');
    t.is(rows.length, 1);
    t.is(await driver.readIdentity(), rows[0]!.identity);
    await Promise.all(servers.map((server) => server.close()));
  }
});

test.serial(
  'of two instances that start at the same time with one database and two data folders, only the first starts',
  async (t) => {
    const [written, opened, mayWrite] = Array.from({ length: 3 }, () => Promise.withResolvers<void>());
    class Slow extends MemoryDriver {
      override async writeIdentity(identity: string): Promise<void> {
        written!.resolve();
        await mayWrite!.promise;
        await super.writeIdentity(identity);
      }
    }
    class Other extends MemoryDriver {
      override prepare(): Promise<void> {
        opened!.resolve();
        return super.prepare();
      }
    }
    const database = { url: await temporaryDatabase(t, 'mysql') };
    const first = startTestServer(t, { database }, { driver: new Slow() });
    await written!.promise;
    const other = new Other();
    const second = startTestServer(t, { database }, { driver: other });
    await opened!.promise;
    mayWrite!.resolve();
    await t.throwsAsync(second, { message: /^ENTREPOT_DATA: the storage of this database is not here/ });
    t.is(await other.readIdentity(), undefined);
    t.is((await (await first).fetch('/v1/account')).status, 200);
  },
);

test.serial('the first push of another instance during a start is no unknown content', async (t) => {
  class Listing extends MemoryDriver {
    isPushed = false;
    onList: (() => Promise<unknown>) | undefined;
    override async *list(prefix?: string) {
      await this.onList?.();
      yield* super.list(prefix);
    }
  }
  const database = { url: await temporaryDatabase(t, 'mysql') };
  const driver = new Listing();
  const first = await startTestServer(t, { database }, { driver });
  driver.onList = () => {
    driver.onList = undefined;
    driver.isPushed = true;
    return new TestRepository(first, 'app').blob('just pushed');
  };
  const second = await startTestServer(t, { database }, { driver });
  t.true(driver.isPushed);
  t.is((await new TestRepository(second, 'app').fetch(`blobs/${digestOf('just pushed')}`)).status, 200);
});

test.serial('an identity that cannot be read names the setting', async (t) => {
  const server = await startTestServer(t);
  await server.close();
  await rm(join(server.data, 'blobs/identity'));
  await mkdir(join(server.data, 'blobs/identity'));
  const { code, stderr } = await entrepot({ ENTREPOT_DATA: server.data }, 'jobs', 'list');
  t.is(code, 1);
  t.regex(stderr, /^entrepot: ENTREPOT_DATA: the storage cannot be read: EISDIR[^\n]*\n$/);
});

function pathOf(data: string, digest: string): string {
  const hex = digest.slice('sha256:'.length);
  return join(data, 'blobs/sha256', hex.slice(0, 2), hex);
}
