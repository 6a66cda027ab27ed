import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import test from 'ava';
import { isBusy, Writer } from '../../src/database/sqlite.ts';
import { folderUntilEnd } from '../support/folder.ts';

test('a connection whose transaction cannot be ended is replaced, and cached rows of before are not used', async (t) => {
  const writer = new Writer(join(await folderUntilEnd(t), 'made.db'));
  t.teardown(() => writer.close());
  const first = writer.open();
  const { version } = writer;
  t.is(writer.version, version);
  await first.begin(performance.now());
  first.exec('CREATE TABLE made (id INTEGER)');
  first.exec = () => {
    throw new Error('the disk has failed');
  };
  writer.rollback();
  const second = writer.open();
  t.not(second, first);
  t.false(second.isTransaction);
  t.deepEqual(second.select("SELECT name FROM sqlite_schema WHERE name = 'made'", []), [], 'nothing was written');
  t.not(writer.version, version);
  await second.begin(performance.now());
  writer.rollback();
  t.is(writer.open(), second, 'an ended transaction leaves its connection');
});

test('a transaction that does not get the lock in time leaves the time limit of its connection', async (t) => {
  const path = join(await folderUntilEnd(t), 'made.db');
  const writer = new Writer(path);
  t.teardown(() => writer.close());
  const connection = writer.open();
  using other = new DatabaseSync(path);
  other.exec('BEGIN IMMEDIATE');
  t.true(isBusy(await t.throwsAsync(connection.begin(performance.now()))));
  t.deepEqual({ ...connection.prepare('PRAGMA busy_timeout').get() }, { timeout: 5000 });
});
