import { stat } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { createConnection } from 'mysql2/promise';
import {
  openDatabase,
  placeholders,
  type Database,
  type Queryable,
  type Transaction,
  type TransactionOptions,
  type Value,
} from '../../src/database/database.ts';
import { isDomainError } from '../../src/runtime/errors.ts';
import { dialects, openUntilEnd, emptyDatabase } from '../support/databases.ts';
import { watchSyncs } from '../support/disk.ts';
import { longestTurn } from '../support/longest-turn.ts';
import { eventually, until } from '../support/until.ts';

// In a process of its own: it measures the process.

// One suite for the interface, run on both databases.

interface Item {
  id: number;
  name: string;
  amount: number | null;
  note: string | null;
}

async function withItems(t: ExecutionContext, url: string): Promise<Database> {
  const database = await openUntilEnd(t, url);
  const [serial, tail] =
    database.dialect === 'sqlite'
      ? ['INTEGER PRIMARY KEY AUTOINCREMENT', '']
      : ['BIGINT AUTO_INCREMENT PRIMARY KEY', ' DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin'];
  await database.transaction((tx) =>
    tx.run(`CREATE TABLE items (id ${serial}, name VARCHAR(50) NOT NULL UNIQUE, amount BIGINT, note TEXT)${tail}`),
  );
  return database;
}

function names(rows: readonly { name: string }[]): string[] {
  return rows.map(({ name }) => name);
}

/** Adds one to the row `counter`, and inserts a row of its own. */
function countAndInsert(database: Database, index: number): Promise<void> {
  return database.transaction(async (tx) => {
    await tx.run('UPDATE items SET amount = amount + 1 WHERE name = ?', ['counter']);
    await tx.insert('items', { name: `w${index}`, amount: 1 });
  });
}

function change(database: Database, sql: string): Promise<number> {
  return database.transaction((tx) => tx.run(sql));
}

function row(name: string, amount: number): { name: string; amount: number; note: string } {
  return { name, amount, note: `renewed ${amount}` };
}

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, database: Database, url: string) => Promise<void>) =>
    test(`${dialect}: ${title}`, async (t) => {
      const url = await emptyDatabase(t, dialect);
      await run(t, await withItems(t, url), url);
    });

  suite('values are bound, never part of the statement', async (t, database) => {
    const notes: (string | null)[] = [
      "'; DROP TABLE items; --",
      '$1 $$ ? ?',
      'a\\b"c`',
      '漢字 🎉 é',
      '',
      null,
      'a\nb\0c',
    ];
    const amounts: (number | null)[] = [0, -1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, 2 ** 32, null, 1];
    await database.transaction(async (tx) => {
      for (const [index, note] of notes.entries()) {
        await tx.insert('items', { name: `n${index}`, amount: amounts[index]!, note });
      }
    });
    const rows = await database.select<Item>('SELECT * FROM items ORDER BY id');
    t.deepEqual(
      rows.map((row) => row.note),
      notes,
    );
    t.deepEqual(
      rows.map((row) => row.amount),
      amounts,
    );
    t.like(await database.get<Item>('SELECT * FROM items WHERE note = ?', [notes[0]!]), { name: 'n0' });
    t.is(await database.get('SELECT * FROM items WHERE name = ?', ['none']), undefined);
    t.is((await database.get<{ total: Value }>('SELECT SUM(id) AS total FROM items'))!.total, 28);
    const wanted = ['n1', 'n3'];
    const found = await database.select<Item>(
      `SELECT * FROM items WHERE name IN (${placeholders(wanted)}) ORDER BY name LIMIT ?`,
      [...wanted, 10],
    );
    t.deepEqual(names(found), wanted);
  });

  suite('a statement after the end of its transaction is refused', async (t, database) => {
    const ended: Transaction[] = [];
    await database.transaction(async (tx) => void ended.push(tx));
    await t.throwsAsync(
      database.transaction((tx) => {
        ended.push(tx);
        return Promise.reject(new Error('undone'));
      }),
      { message: 'undone' },
    );
    for (const tx of ended) {
      await t.throwsAsync(tx.run('DELETE FROM items'));
      await t.throwsAsync(tx.insertNew('items', [{ name: 'late' }]));
      await t.throwsAsync(tx.select('SELECT * FROM items'));
    }
    t.deepEqual(await database.select('SELECT * FROM items'), []);
  });

  suite('text compares and sorts by bytes', async (t, database) => {
    const sorted = ['B', 'a', 'b', 'é', 'ｅ', '🎉'];
    await database.transaction((tx) =>
      tx.insertNew(
        'items',
        sorted.toReversed().map((name) => ({ name })),
      ),
    );
    t.deepEqual(names(await database.select<Item>('SELECT name FROM items ORDER BY name')), sorted);
    t.is((await database.select('SELECT 1 FROM items WHERE name = ?', ['e'])).length, 0);
  });

  suite('a transaction is applied completely or not at all', async (t, database) => {
    const result = await database.transaction(async (tx) => {
      const id = await tx.insert('items', { name: 'kept' });
      t.like(await tx.get<Item>('SELECT * FROM items WHERE id = ?', [id]), { name: 'kept' }, 'reads its own writes');
      t.is(
        await database.get('SELECT 1 FROM items WHERE id = ?', [id]),
        undefined,
        'other connections do not see them',
      );
      return id;
    });
    t.is(typeof result, 'number');
    const reason = new Error('on purpose');
    const failed = await t.throwsAsync(
      database.transaction(async (tx) => {
        await tx.insert('items', { name: 'lost' });
        await tx.run('UPDATE items SET name = ? WHERE id = ?', ['changed', result]);
        throw reason;
      }),
    );
    t.is(failed, reason);
    t.deepEqual(names(await database.select<Item>('SELECT * FROM items')), ['kept']);
    await t.throwsAsync(database.transaction((tx) => tx.insert('items', { name: 'kept' })));
    await database.transaction((tx) => tx.insert('items', { name: 'next' }));
    t.is((await database.select('SELECT 1 FROM items')).length, 2, 'a failed transaction does not block a later one');
  });

  suite('run returns the number of matched rows, and insert the key', async (t, database) => {
    await database.transaction(async (tx) => {
      const first = await tx.insert('items', { name: 'a', amount: 1 });
      const second = await tx.insert('items', { name: 'b', amount: 1 });
      t.true(second > first);
      t.is(await tx.run('UPDATE items SET amount = 2'), 2);
      t.is(await tx.run('UPDATE items SET amount = 2 WHERE name = ?', ['a']), 1, 'matched rows count, changed or not');
      t.is(await tx.run('UPDATE items SET amount = 3 WHERE name = ?', ['z']), 0);
      t.is(await tx.run('DELETE FROM items WHERE id >= ?', [first]), 2);
    });
  });

  suite('insertNew keeps existing rows and returns the number of new ones', async (t, database) => {
    await database.transaction((tx) => tx.insert('items', { name: 'a', amount: 1 }));
    const counts = await database.transaction(async (tx) => [
      await tx.insertNew('items', [
        { name: 'a', amount: 2 },
        { name: 'b', amount: 2 },
        { name: 'c', amount: 2 },
      ]),
      await tx.insertNew('items', [{ name: 'b', amount: 3 }]),
      await tx.insertNew('items', []),
    ]);
    t.deepEqual(counts, [2, 0, 0]);
    t.deepEqual(
      (await database.select<Item>('SELECT amount FROM items ORDER BY name')).map((row) => row.amount),
      [1, 2, 2],
    );
    await t.throwsAsync(
      database.transaction((tx) => tx.insertNew('items', [{ name: null, amount: 1 }])),
      undefined,
      'only a duplicate key is ignored',
    );
    t.is((await database.select('SELECT 1 FROM items')).length, 3);
  });

  suite('upsert inserts or updates with the new values', async (t, database) => {
    await database.transaction((tx) => tx.upsert('items', ['name'], [row('a', 1), row('b', 1)], 'amount = new.amount'));
    await database.transaction((tx) =>
      tx.upsert('items', ['name'], [row('b', 5), row('c', 5)], 'amount = amount + new.amount, note = new.note'),
    );
    await database.transaction((tx) => tx.upsert('items', ['name'], [], 'amount = new.amount'));
    const rows = await database.select<Item>('SELECT name, amount, note FROM items ORDER BY name');
    t.deepEqual(
      rows.map((each) => [each.name, each.amount, each.note]),
      [
        ['a', 1, 'renewed 1'],
        ['b', 6, 'renewed 5'],
        ['c', 5, 'renewed 5'],
      ],
    );
  });

  suite('many concurrent writers on two connection pools lose no write', async (t, database, url) => {
    const other = await openUntilEnd(t, url);
    await database.transaction((tx) => tx.insert('items', { name: 'counter', amount: 0 }));
    const turns = Array.from({ length: 24 }, (_, index) => index);
    await Promise.all(turns.map((index) => countAndInsert(index % 2 ? database : other, index)));
    t.is((await database.get<Item>('SELECT * FROM items WHERE name = ?', ['counter']))!.amount, 24);
    t.is((await database.select('SELECT 1 FROM items')).length, 25);
  });

  suite('two transactions that would deadlock both succeed', async (t, database, url) => {
    const other = await openUntilEnd(t, url);
    await database.transaction((tx) =>
      tx.insertNew('items', [
        { name: 'x', amount: 0 },
        { name: 'y', amount: 0 },
      ]),
    );
    let tries = 0;
    const touched: string[] = [];
    const bothTouched = Promise.withResolvers<void>();
    const cross = (through: Database, first: string, second: string) =>
      through.transaction(async (tx) => {
        tries += 1;
        await tx.run('UPDATE items SET amount = amount + 1 WHERE name = ?', [first]);
        if (touched.push(first) === 2) bothTouched.resolve();
        // SQLite has one writer at a time, so this one cannot wait for the other.
        if (dialect === 'mysql') await bothTouched.promise;
        await tx.run('UPDATE items SET amount = amount + 1 WHERE name = ?', [second]);
      });
    await Promise.all([cross(database, 'x', 'y'), cross(other, 'y', 'x')]);
    const rows = await database.select<Item>('SELECT amount FROM items');
    t.deepEqual(
      rows.map((row) => row.amount),
      [2, 2],
    );
    t.is(tries, dialect === 'mysql' ? 3 : 2, 'the aborted transaction was repeated from its start');
  });

  suite('readers do not wait for a writer', async (t, database) => {
    const held = Promise.withResolvers<void>();
    const started = Promise.withResolvers<void>();
    const writing = database.transaction(async (tx) => {
      await tx.insert('items', { name: 'slow' });
      started.resolve();
      await held.promise;
    });
    await started.promise;
    t.deepEqual(await database.select('SELECT * FROM items'), []);
    held.resolve();
    await writing;
    t.is((await database.select('SELECT * FROM items')).length, 1);
  });

  suite('a cached read returns the same as get, whichever instance wrote', async (t, database, url) => {
    const other = await openUntilEnd(t, url);
    const query = ['SELECT * FROM items WHERE name = ?', ['a']] as const;
    const both = async () => {
      const [cached, found] = [await database.getCached<Item>(...query), await other.get<Item>(...query)];
      t.deepEqual(cached, found);
      return cached;
    };
    t.is(await both(), undefined);
    for (const [index, writer] of [database, other, database, other].entries()) {
      await writer.transaction((tx) => tx.upsert('items', ['name'], [row('a', index)], 'amount = new.amount'));
      // Another process's write is visible from the next turn of the event loop on; no client can know of it earlier.
      if (writer === other) await new Promise(setImmediate);
      t.is((await both())!.amount, index);
      // Not only in the next turn of the event loop.
      await writer.transaction((tx) => tx.run('UPDATE items SET amount = -1'));
      if (writer === database) t.is((await database.getCached<Item>(...query))!.amount, -1);
    }
    await t.throwsAsync(database.getCached('SELECT * FROM nothing'));
    await t.throwsAsync(database.getCached('SELECT * FROM nothing'));
  });

  suite('values that look alike are cached separately', async (t, database) => {
    await database.transaction((tx) => tx.insertNew('items', [row('a', 1), row('1', 2), row('a","1', 3)]));
    const amounts = async (values: Value[]) =>
      (await database.getCached<Item>('SELECT amount FROM items WHERE name = ? AND ? IS NOT NULL', values))?.amount;
    for (let round = 0; round < 2; round += 1) {
      t.is(await amounts(['a', 'x']), 1);
      t.is(await amounts(['a', null]), undefined);
      t.is(await amounts(['1', 'x']), 2);
      t.is(await amounts(['a","1', 'x']), 3);
      t.is(await amounts(['a', '1","x']), 1);
    }
  });

  suite('exclusively runs one at a time, in this process and on all connections', async (t, database, url) => {
    const other = await openUntilEnd(t, url);
    let inside = 0;
    let most = 0;
    const work = async () => {
      inside += 1;
      most = Math.max(most, inside);
      await sleep(5);
      await database.select('SELECT 1 AS one');
      inside -= 1;
    };
    await Promise.all([database, other, database, other].map((each) => each.exclusively(work)));
    t.is(most, 1);
    await t.throwsAsync(
      database.exclusively(() => Promise.reject(new Error('on purpose'))),
      { message: 'on purpose' },
    );
    t.is(await other.exclusively(() => Promise.resolve('free again')), 'free again');
  });

  suite('close waits for running transactions', async (t, _database, url) => {
    const closing = await openDatabase(url);
    const writing = closing.transaction(async (tx) => {
      await tx.insert('items', { name: 'last' });
      await sleep(20);
      await tx.run('UPDATE items SET amount = 1');
    });
    await Promise.all([writing, closing.close()]);
    const again = await openUntilEnd(t, url);
    t.like(await again.get<Item>('SELECT * FROM items'), { name: 'last', amount: 1 });
  });
}

async function sizeOf(file: string): Promise<number> {
  return (await stat(file)).size;
}

async function synchronous(tx: Transaction): Promise<number> {
  return (await tx.get<{ synchronous: number }>('PRAGMA synchronous'))!.synchronous;
}

test.serial(
  'sqlite: a write waits for the disk without the event loop, and others share the wait, unless it is fleeting',
  async (t) => {
    const url = await emptyDatabase(t, 'sqlite');
    await withItems(t, url);
    const database = await openUntilEnd(t, url);
    // The first write makes the log durable in its folder, which needs SQLite itself.
    const [normal, full] = [1, 2];
    t.is(await database.transaction(synchronous), full);
    const first = database.transaction((tx) => tx.insert('items', row('first', 1)));
    t.is(await database.transaction(synchronous), normal);
    await first;
    const held = Promise.withResolvers<void>();
    const synced: string[] = [];
    await watchSyncs(t, async (path) => {
      synced.push(path);
      await held.promise;
    });
    const log = `${url.slice('sqlite:'.length)}-wal`;
    const done: string[] = [];
    const insert = async (name: string, options?: TransactionOptions) => {
      await database.transaction((tx) => tx.insert('items', row(name, 1)), options);
      done.push(name);
    };
    const a = insert('a');
    await until(() => synced.length === 1);
    const reads = database.transaction(async (tx) => {
      await tx.get('SELECT * FROM items');
      done.push('read');
    });
    const others = [insert('b'), insert('c'), reads.then(() => done.push('answered'))];
    await insert('fleeting', { fleeting: true });
    // What a transaction has read may not be on the disk yet.
    t.deepEqual(done, ['read', 'fleeting']);
    // They are committed, and the event loop is free.
    t.is((await database.get<{ n: number }>('SELECT COUNT(*) AS n FROM items'))!.n, 5);
    held.resolve();
    await Promise.all([a, ...others]);
    t.deepEqual(synced, [log, log]);
  },
);

test.serial(
  'sqlite: a write that the disk does not confirm is no success, and closing waits for the disk',
  async (t) => {
    const url = await emptyDatabase(t, 'sqlite');
    await withItems(t, url);
    const database = await openDatabase(url);
    await database.transaction((tx) => tx.insert('items', row('first', 1)));
    let fails = true;
    const calls: string[] = [];
    await watchSyncs(t, async () => {
      await sleep(20);
      calls.push('synced');
      if (fails) throw Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO', syscall: 'fdatasync' });
    });
    const error = await t.throwsAsync(database.transaction((tx) => tx.insert('items', row('a', 1))));
    t.true(isDomainError(error, 'DatabaseUnavailable'));
    const logged = async () => (await database.select<{ log: number }>('PRAGMA wal_checkpoint(NOOP)'))[0]!.log;
    const before = await logged();
    fails = false;
    // The disk may lack what it did not confirm, so that is copied before anything else is confirmed.
    await database.transaction((tx) => tx.insert('items', row('next', 1)));
    t.true((await logged()) < before, `${before} pages were left in the log`);
    calls.length = 0;
    const last = database.transaction((tx) => tx.insert('items', row('b', 1))).then(() => calls.push('answered'));
    await database.close();
    calls.push('closed');
    await last;
    t.deepEqual(calls, ['synced', 'answered', 'closed']);
  },
);

test('sqlite: a start waits for another one that makes the same file', async (t) => {
  const url = await emptyDatabase(t, 'sqlite');
  const other = new DatabaseSync(url.slice('sqlite:'.length));
  other.exec('BEGIN IMMEDIATE; CREATE TABLE made (id INTEGER)');
  const opening = openUntilEnd(t, url);
  other.exec('COMMIT');
  other.close();
  t.deepEqual(await (await opening).select('SELECT * FROM made'), []);
});

test('sqlite: a cached row is not read again until any process writes', async (t) => {
  const url = await emptyDatabase(t, 'sqlite');
  const database = await withItems(t, url);
  const other = await openUntilEnd(t, url);
  await database.transaction((tx) => tx.insertNew('items', [row('a', 1)]));
  const getCached = () => database.getCached('SELECT * FROM items');
  const first = await getCached();
  await sleep(0);
  await other.transaction((tx) => tx.get('SELECT * FROM items'));
  t.is(await getCached(), first);
  await other.transaction((tx) => tx.run("UPDATE items SET note = 'new'"));
  // A later turn of the event loop, as for another request.
  await sleep(0);
  t.like(await getCached(), { note: 'new' });
});

test('sqlite: a cached read sees each write that ended before it began, also in the same turn of the event loop', async (t) => {
  const url = await emptyDatabase(t, 'sqlite');
  const database = await withItems(t, url);
  await database.transaction((tx) => tx.insert('items', { name: 'seen', amount: 1 }));
  const other = new DatabaseSync(url.slice('sqlite:'.length));
  t.teardown(() => other.close());
  const read = () => database.getCached<Item>('SELECT amount FROM items WHERE name = ?', ['seen']);
  await read();
  await new Promise((resolve) => setImmediate(resolve));
  t.like(await read(), { amount: 1 });
  other.exec("UPDATE items SET amount = 2 WHERE name = 'seen'");
  t.like(await read(), { amount: 2 });
});

test('sqlite: a write of rows that no cached read uses leaves cached rows, and hides no other write', async (t) => {
  const url = await emptyDatabase(t, 'sqlite');
  const database = await withItems(t, url);
  const other = await openUntilEnd(t, url);
  await database.transaction((tx) => tx.insertNew('items', [row('a', 1)]));
  const getCached = async () => {
    // A later turn of the event loop, as for another request.
    await sleep(0);
    return database.getCached<Item>("SELECT * FROM items WHERE name = 'a'");
  };
  const first = await getCached();
  await database.transaction((tx) => tx.insertNew('items', [row('b', 1)]), { uncached: true });
  await database.transaction((tx) => tx.insertNew('items', [row('c', 1)]), { fleeting: true });
  t.is(await getCached(), first);
  await t.throwsAsync(
    database.transaction(() => Promise.reject(new Error('on purpose')), { uncached: true }),
    { message: 'on purpose' },
  );
  t.is(await getCached(), first);
  let meanwhile: unknown;
  const others = await database.transaction(
    async (tx) => {
      await tx.insertNew('items', [row('d', 1)]);
      meanwhile = await getCached();
      return other.transaction.bind(other);
    },
    { uncached: true },
  );
  t.is(meanwhile, first, 'read during the transaction');
  await others((tx) => tx.run("UPDATE items SET amount = 2 WHERE name = 'a'"));
  t.is((await getCached())?.amount, 2);
  await database.transaction((tx) => tx.run("UPDATE items SET amount = 3 WHERE name = 'a'"));
  t.is((await getCached())?.amount, 3);
});

test('sqlite: an own write leaves cached rows of other tables; one of another process, or of a table that is not known, leaves none', async (t) => {
  const url = await emptyDatabase(t, 'sqlite');
  const database = await withItems(t, url);
  const other = await openUntilEnd(t, url);
  await database.transaction((tx) => tx.run('CREATE TABLE more (name TEXT)'));
  await database.transaction((tx) => tx.insertNew('items', [row('a', 1)]));
  const getCached = () => database.getCached<Item>("SELECT * FROM items WHERE name = 'a'");
  const isKept = async () => {
    const known = await getCached();
    return async () => (await getCached()) === known;
  };

  let kept = await isKept();
  await change(database, "INSERT INTO more (name) VALUES ('x')");
  t.true(await kept(), 'another table');
  await t.throwsAsync(
    database.transaction(async (tx) => {
      await tx.run("UPDATE items SET amount = 9 WHERE name = 'a'");
      throw new Error('on purpose');
    }),
    { message: 'on purpose' },
  );
  t.true(await kept(), 'a write that was taken back');
  await change(database, "UPDATE items SET amount = 2 WHERE name = 'b'");
  t.false(await kept(), 'the same table');
  kept = await isKept();
  await change(database, 'CREATE TABLE third (name TEXT)');
  t.false(await kept(), 'a change of the schema');
  kept = await isKept();
  await change(other, "INSERT INTO more (name) VALUES ('y')");
  t.false(await kept(), 'another table, by another process');
  await change(other, "UPDATE items SET amount = 3 WHERE name = 'a'");
  await database.transaction(async (tx) => {
    await tx.run("INSERT INTO more (name) VALUES ('z')");
    t.is((await getCached())?.amount, 3, 'within an own transaction');
  });
  const joined = 'SELECT COUNT(*) AS amount FROM items, more';
  t.like(await database.getCached(joined), { amount: 3 });
  await change(database, "INSERT INTO more (name) VALUES ('w')");
  t.like(await database.getCached(joined), { amount: 4 }, 'tables that are not known');
});

test('mysql: a cached row is not read again while the version stays, and read each time without a version', async (t) => {
  const url = await emptyDatabase(t, 'mysql');
  const writer = await withItems(t, url);
  const changes = { current: 'a' as string | undefined, announced: 0 };
  const database = await openDatabase(url, {
    versions: async () => (changes.current === undefined ? undefined : { of: () => changes.current! }),
    announce: async () => void (changes.announced += 1),
  });
  t.teardown(() => database.close());
  const cached = async () => (await database.getCached<Item>("SELECT * FROM items WHERE name = 'a'"))?.amount;
  const write = (amount: number) =>
    writer.transaction((tx) => tx.upsert('items', ['name'], [row('a', amount)], 'amount = new.amount'));
  t.is(await cached(), undefined);
  await write(1);
  t.is(await cached(), undefined);
  changes.current = 'b';
  t.is(await cached(), 1);
  await write(2);
  t.is(await cached(), 1);
  changes.current = 'a';
  t.is(await cached(), 2, 'no row of an older version');
  changes.current = undefined;
  for (const amount of [3, 4]) {
    await write(amount);
    t.is(await cached(), amount);
  }
  await database.transaction((tx) => tx.get('SELECT * FROM items'));
  t.is(changes.announced, 0, 'no write');
  await database.transaction((tx) => tx.run('UPDATE items SET amount = 5'));
  t.is(changes.announced, 1);
  await database.transaction((tx) => tx.run('UPDATE items SET amount = 7'), { fleeting: true });
  t.is(changes.announced, 1, 'fleeting writes are not announced');
  await database.transaction((tx) => tx.run('UPDATE items SET amount = 8'), { uncached: true });
  t.is(changes.announced, 1, 'nor are writes of rows that no cached read uses');
  await t.throwsAsync(
    database.transaction(async (tx) => {
      await tx.run('UPDATE items SET amount = 6');
      throw new Error('on purpose');
    }),
  );
  t.is(changes.announced, 1);
});

// Serial: any transaction of this process would count as its own.
test.serial(
  'mysql: without a write signal, another process’s write may stay unseen for the lag that the caller allows',
  async (t) => {
    const url = await emptyDatabase(t, 'mysql');
    const database = await withItems(t, url);
    const elsewhere = await createConnection(url);
    t.teardown(() => elsewhere.end());
    const amount = async (lag: number) =>
      (await database.getCached<Item>('SELECT amount FROM items', [], { lag }))?.amount;
    await database.transaction((tx) => tx.insertNew('items', [row('a', 1)]));
    const day = 86_400_000;
    t.is(await amount(day), 1);
    await elsewhere.query('UPDATE items SET amount = 2');
    t.is(await amount(day), 1);
    t.is(await amount(0), 2);
    await eventually(
      () => amount(10),
      (found) => found === 2,
    );
    await database.transaction((tx) => tx.run('UPDATE items SET amount = 3'));
    t.is(await amount(day), 3, 'its own write is visible at once');

    // While the version is unknown, an instance must not use cached rows.
    const cutOff = await openDatabase(url, { versions: async () => undefined, announce: async () => undefined });
    t.teardown(() => cutOff.close());
    for (const written of [4, 5]) {
      await elsewhere.query('UPDATE items SET amount = ?', [written]);
      t.like(await cutOff.getCached<Item>('SELECT amount FROM items', [], { lag: day }), { amount: written });
    }
  },
);

test('opening an unreachable database fails at once', async (t) => {
  await t.throwsAsync(openDatabase('mysql://nobody:secret@127.0.0.1:1/none'), { message: /ECONNREFUSED/ });
  await t.throwsAsync(openDatabase(`sqlite:${import.meta.filename}/entrepot.db`), { code: 'EEXIST' });
});

async function many(from: Queryable): Promise<void> {
  for (let query = 0; query < 20_000; query += 1) await from.select('SELECT * FROM items');
}

test('sqlite: many queries of one request let others run between them', async (t) => {
  const database = await withItems(t, await emptyDatabase(t, 'sqlite'));
  const outside = await longestTurn(() => many(database));
  t.true(outside < 50, `${outside} ms`);
  const inside = await longestTurn(() => database.transaction(many));
  t.true(inside < 50, `${inside} ms`);
  const writing = await longestTurn(() =>
    database.transaction(async (tx) => {
      for (let name = 0; name < 3000; name += 1) await tx.insertNew('items', [row(String(name), 1)]);
    }),
  );
  t.true(writing < 50, `${writing} ms`);
});

/** Reads as often as it can until `signal` is aborted. */
async function readOn(from: Queryable, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    for (let query = 0; query < 5; query += 1) await from.select('SELECT SUM(amount * amount) AS sum FROM items');
    await sleep(Math.random() * 20);
  }
}

test('sqlite: transactions go on while reads use all of the time', async (t) => {
  const database = await withItems(t, await emptyDatabase(t, 'sqlite'));
  const rows = Array.from({ length: 5000 }, (_, index) => row(String(index), index));
  await database.transaction((tx) => tx.insertNew('items', rows));
  const end = new AbortController();
  const readers = Array.from({ length: 100 }, () => readOn(database, end.signal));
  const started = process.threadCpuUsage();
  for (let count = 0; count < 20; count += 1)
    await database.transaction(async (tx) => {
      for (let step = 0; step < 20; step += 1) await tx.run('UPDATE items SET amount = amount + 1 WHERE id = 1');
    });
  const { user, system } = process.threadCpuUsage(started);
  const took = (user + system) / 1000;
  end.abort();
  await Promise.all(readers);
  // Each of the 400 statements would wait for a turn of the reads, which takes more than 8 ms.
  t.true(took < 1600, `${took} ms of processor time`);
});

test('sqlite: a thread copies a long log into the file, which then does not grow, also beside readers', async (t) => {
  const url = await emptyDatabase(t, 'sqlite');
  const database = await withItems(t, url);
  const path = url.slice('sqlite:'.length);
  const note = 'x'.repeat(100_000);
  let turn = 0;
  const write = async (count: number) => {
    for (let index = 0; index < count; index += 1) {
      turn += 1;
      await database.transaction((tx) => tx.insert('items', { name: `n${turn}`, amount: turn, note }));
      if (index % 20 === 0) await database.select('SELECT COUNT(*) AS n FROM items');
    }
  };
  await write(100);
  t.true((await sizeOf(path)) < 1e6, 'the log is short');
  await write(100);
  await until(async () => (await sizeOf(path)) > 1e6);
  await write(600);
  t.true((await sizeOf(`${path}-wal`)) < 60e6, String(await sizeOf(`${path}-wal`)));
  t.is((await database.get<{ n: number }>('SELECT COUNT(*) AS n FROM items'))!.n, 800);
  t.deepEqual(await database.select('PRAGMA integrity_check'), [{ integrity_check: 'ok' }]);
});

test.serial('sqlite: what a transaction has read of another process is on the disk when it ends', async (t) => {
  const url = await emptyDatabase(t, 'sqlite');
  await withItems(t, url);
  const [one, two] = [await openUntilEnd(t, url), await openUntilEnd(t, url)];
  await one.transaction((tx) => tx.insert('items', row('first', 1)));
  await two.transaction((tx) => tx.insert('items', row('second', 1)));
  const read = () => two.transaction((tx) => tx.get('SELECT COUNT(*) AS n FROM items'));
  await read();
  let syncs = 0;
  let fails = false;
  await watchSyncs(t, () => {
    syncs += 1;
    if (fails) throw Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO', syscall: 'fdatasync' });
  });
  await read();
  t.is(syncs, 0, 'nothing was written');
  await one.transaction((tx) => tx.insert('items', row('a', 1)), { fleeting: true });
  t.deepEqual({ ...(await read()) }, { n: 3 });
  await read();
  t.is(syncs, 1, 'once for what the other one wrote');
  await one.transaction((tx) => tx.insert('items', row('b', 1)), { fleeting: true });
  fails = true;
  await t.throwsAsync(read(), { name: 'DatabaseUnavailable' });
});

test.serial('sqlite: a write that waited behind one that the disk did not confirm is no success either', async (t) => {
  const url = await emptyDatabase(t, 'sqlite');
  await withItems(t, url);
  const database = await openUntilEnd(t, url);
  await database.transaction((tx) => tx.insert('items', row('first', 1)));
  const held = Promise.withResolvers<void>();
  let syncs = 0;
  await watchSyncs(t, async () => {
    syncs += 1;
    if (syncs > 1) return;
    await held.promise;
    throw Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO', syscall: 'fdatasync' });
  });
  const insert = (name: string) => database.transaction((tx) => tx.insert('items', row(name, 1)));
  const a = insert('a');
  await until(() => syncs === 1);
  const b = insert('b');
  await until(async () => (await database.get<{ n: number }>('SELECT COUNT(*) AS n FROM items'))!.n === 3);
  held.resolve();
  const outcomes = await Promise.allSettled([a, b]);
  t.deepEqual(
    outcomes.map((each) => each.status === 'rejected' && isDomainError(each.reason, 'DatabaseUnavailable')),
    [true, true],
  );
  t.is(syncs, 2);
  await t.notThrowsAsync(insert('c'));
});
