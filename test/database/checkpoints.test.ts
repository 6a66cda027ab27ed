import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { Checkpoints } from '../../src/database/checkpoints.ts';
import { Connection } from '../../src/database/sqlite.ts';
import { folderUntilEnd } from '../support/folder.ts';

// When the log of a SQLite database is copied into its file, by what it says of its length.

async function setUp(t: ExecutionContext) {
  const path = join(await folderUntilEnd(t), 'made.db');
  const connection = new Connection(path);
  t.teardown(() => connection.close());
  connection.exec('CREATE TABLE made (id INTEGER)');
  const checkpoints = new Checkpoints(path);
  /** A connection that says this of the log. */
  const begin = (pages: number, lacking: number) =>
    checkpoints.begin({ log: { pages, lacking } } as unknown as Connection);
  /** Whether the log was copied since the last call. */
  const isCopied = async () => {
    await checkpoints.end();
    const copied = connection.log!.lacking === 0;
    connection.exec('INSERT INTO made VALUES (1)');
    return copied;
  };
  return { checkpoints, begin, isCopied };
}

test('the log is copied when the file lacks 4000 pages more than the last run has left', async (t) => {
  const { checkpoints, begin, isCopied } = await setUp(t);
  begin(3999, 3999);
  t.false(await isCopied());
  checkpoints.begin({ log: undefined } as unknown as Connection);
  checkpoints.begin({
    get log(): undefined {
      throw new Error('within a transaction');
    },
  } as unknown as Connection);
  t.false(await isCopied());
  begin(4000, 4000);
  begin(9000, 9000);
  t.true(await isCopied());
  // A long read keeps what was there when the run had ended.
  begin(9000, 5000);
  begin(12_000, 8999);
  t.false(await isCopied());
  begin(12_000, 9000);
  t.true(await isCopied());
  begin(12_100, 9000);
  begin(12_200, 12_999);
  t.false(await isCopied());
  // It began anew.
  begin(4000, 4000);
  t.true(await isCopied());
});

test('writes wait for a copy when the log is too long, and each time that they have to', async (t) => {
  const { checkpoints, begin, isCopied } = await setUp(t);
  begin(11_999, 0);
  await checkpoints.room(false);
  t.false(await isCopied());
  await checkpoints.room(true);
  t.true(await isCopied());
  // It may then grow by as much again.
  begin(23_998, 0);
  await checkpoints.room(false);
  t.false(await isCopied());
  begin(23_999, 0);
  await checkpoints.room(false);
  t.true(await isCopied());
  begin(10, 0);
  begin(12_000, 0);
  await checkpoints.room(false);
  t.true(await isCopied(), 'the log began anew');
});

test('a copy that fails is no failure of the write', async (t) => {
  const checkpoints = new Checkpoints(join(await folderUntilEnd(t), 'none', 'made.db'));
  await t.notThrowsAsync(checkpoints.room(true));
  await t.notThrowsAsync(checkpoints.end());
});
