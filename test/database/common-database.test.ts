import test, { type ExecutionContext } from 'ava';
import { openDatabase, type Database, type Dialect, type Transaction } from '../../src/database/database.ts';
import type { Tables } from '../../src/database/statement-tables.ts';
import { inBackground, type TimeLimits } from '../../src/database/time-limits.ts';
import type { Effects } from '../../src/database/transaction-work.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { dialects, emptyDatabase, patientLimits } from '../support/databases.ts';
import { within } from '../support/until.ts';

// What both databases do in the same way, on both.

/** Errors after which a transaction is repeated, as each of them comes from the driver. */
const conflicts: Record<Dialect, readonly Error[]> = {
  sqlite: [Object.assign(new Error('database is locked'), { errcode: 5 })],
  mysql: [1213, 1205].map((errno) => Object.assign(new Error('deadlock'), { parent: { errno } })),
};

/** The parts of a database that are watched here. */
interface Inside {
  attempt: (work: (tx: Transaction) => Promise<unknown>, effects: Effects, deadline: number) => Promise<unknown>;
  afterWrite: (tables: Tables) => Promise<void>;
  readonly hasWritten: boolean;
}

/** A real database, and what its parts are asked. */
interface Watched {
  database: Database;
  /** Those of all attempts. */
  deadlines: number[];
  /** Tables of the writes that were told. */
  told: unknown[];
  /** Statements that were read outside of transactions. */
  reads: string[];
  hasWritten: () => boolean;
  /** Its own, which a test may change. */
  limits: TimeLimits;
  close: () => Promise<void>;
}

async function openWatched(t: ExecutionContext, dialect: Dialect): Promise<Watched> {
  const limits = { ...patientLimits };
  const database = await openDatabase(await emptyDatabase(t, dialect), undefined, limits);
  let closed: Promise<void> | undefined;
  const close = () => (closed ??= database.close());
  t.teardown(close);
  for (const table of ['tags', 'blobs'])
    await database.transaction((tx) => tx.run(`CREATE TABLE ${table} (a INTEGER PRIMARY KEY, b INTEGER)`));
  const [deadlines, told, reads]: [number[], unknown[], string[]] = [[], [], []];
  const inside = database as unknown as Inside;
  const { attempt, afterWrite } = inside;
  const select = database.select.bind(database);
  Object.assign(database, {
    attempt: (work, effects, deadline) => {
      deadlines.push(deadline);
      return attempt.call(database, work, effects, deadline);
    },
    afterWrite: (tables) => {
      told.push(tables);
      return afterWrite.call(database, tables);
    },
    select: (sql, values) => {
      reads.push(sql);
      return select(sql, values) as Promise<never>;
    },
  } satisfies Partial<Inside & Database>);
  return { database, deadlines, told, reads, hasWritten: () => inside.hasWritten, limits, close };
}

const nothing = async () => undefined;
const insert = (table: string, a: number) => (tx: Transaction) => tx.insertNew(table, [{ a, b: 0 }]);

for (const dialect of dialects) {
  for (const conflict of conflicts[dialect])
    test(`${dialect}: a transaction is repeated as a whole after ${JSON.stringify(conflict)}, ten times at most`, async (t) => {
      const { database, deadlines } = await openWatched(t, dialect);
      let tries = 0;
      const failing = (times: number, error: Error = conflict) => {
        tries = 0;
        return database.transaction(async (tx) => {
          tries += 1;
          await insert('tags', tries)(tx);
          if (tries <= times) throw error;
          return 'done';
        });
      };
      t.is(await failing(9), 'done');
      t.is(tries, 10);
      t.is(new Set(deadlines).size, 1, 'all of them have one deadline');
      t.deepEqual(await database.select('SELECT a FROM tags'), [{ a: 10 }]);
      const error = await t.throwsAsync(failing(10));
      t.true(error instanceof DomainError);
      t.like(error, { name: 'DatabaseUnavailable', cause: conflict });
      t.is(tries, 10);
      const other = new Error('broken');
      t.is(await t.throwsAsync(failing(1, other)), other);
      t.is(tries, 1);
      t.deepEqual(await database.select('SELECT a FROM tags'), [{ a: 10 }]);
    });

  test(`${dialect}: a transaction is not repeated after its deadline`, async (t) => {
    const { database, deadlines, limits } = await openWatched(t, dialect);
    const [conflict] = conflicts[dialect];
    const tries: number[] = [];
    // A machine that pauses may leave no time for a first try.
    for (limits.transaction = 300; tries.length === 0; limits.transaction *= 2)
      await t.throwsAsync(
        database.transaction(async () => {
          const deadline = deadlines.at(-1)!;
          tries.push(deadline);
          while (performance.now() <= deadline) await new Promise((resolve) => setImmediate(resolve));
          throw conflict!;
        }),
        { name: 'DatabaseUnavailable' },
      );
    t.is(tries.length, 1);
  });

  test(`${dialect}: transactions are timed, also those that fail`, async (t) => {
    const { database } = await openWatched(t, dialect);
    const count = () => database.times.transaction.counts.reduce((sum, each) => sum + each, 0);
    const before = count();
    await database.transaction(nothing);
    await t.throwsAsync(database.transaction(() => Promise.reject(new Error('broken'))));
    t.is(count() - before, 2);
  });

  test(`${dialect}: a transaction of a request and one of background work have their own deadlines`, async (t) => {
    const { database, deadlines, limits } = await openWatched(t, dialect);
    const before = performance.now();
    await database.transaction(nothing);
    await inBackground(() => database.transaction(nothing));
    const after = performance.now();
    const [request, background] = deadlines as [number, number];
    t.true(request >= before + limits.transaction && request <= after + limits.transaction);
    t.true(background >= before + limits.background && background <= after + limits.background);
  });

  test(`${dialect}: a write tells which tables it wrote, unless cached rows stay valid`, async (t) => {
    const { database, told, hasWritten } = await openWatched(t, dialect);
    let row = 0;
    const writes = async (tx: Transaction) => {
      row += 1;
      await insert('tags', row)(tx);
      await insert('blobs', row)(tx);
      await tx.run('UPDATE tags SET b = 1');
    };
    const run = async (work: (tx: Transaction) => Promise<unknown>, options?: object) => {
      await database.transaction(work, options);
      return [hasWritten(), ...told.splice(0)];
    };
    told.length = 0;
    t.deepEqual(await run(nothing), [false]);
    t.deepEqual(await run(writes), [true, ['tags', 'blobs']]);
    t.deepEqual(await run((tx) => tx.select('SELECT * FROM tags')), [false]);
    t.deepEqual(await run((tx) => tx.run('CREATE TABLE more (a INTEGER)')), [true, undefined]);
    t.deepEqual(await run(writes, { fleeting: true }), [true]);
    t.deepEqual(await run(writes, { uncached: true }), [true]);
    t.deepEqual(await run(writes, { fleeting: true, uncached: false }), [true, ['tags', 'blobs']]);
  });

  test(`${dialect}: cached reads read once until a write to their tables, and each time without a version`, async (t) => {
    const { database, reads } = await openWatched(t, dialect);
    await database.transaction(insert('tags', 1));
    await database.transaction(insert('tags', 2));
    const sql = 'SELECT a FROM tags WHERE a < ? ORDER BY a';
    const rows = [{ a: 1 }, { a: 2 }];
    const lag = 86_400_000;
    const readsOf = async (work: () => Promise<unknown>) => {
      reads.length = 0;
      await work();
      return reads.length;
    };
    t.deepEqual(await database.get(sql, [9]), rows[0]);
    const twice = async () => {
      for (let time = 0; time < 2; time += 1) {
        t.deepEqual(await database.getCached(sql, [9], { lag }), rows[0]);
        t.deepEqual(await database.selectCached(sql, [9], { lag }), rows);
      }
    };
    t.is(await readsOf(twice), 1);
    t.is(await readsOf(twice), 0);
    t.is(await readsOf(async () => t.deepEqual(await database.getCached(sql, [1], { lag }), undefined)), 1);
    t.is(await readsOf(async () => t.deepEqual(await database.getCached('SELECT 1 AS a'), rows[0])), 1);
    await database.transaction(insert('blobs', 1));
    t.is(await readsOf(twice), 0, 'another table');
    await database.transaction(insert('tags', 3));
    rows.push({ a: 3 });
    t.is(await readsOf(twice), 1);
    // With MySQL nothing tells of the writes of others here.
    const unknown = async () => {
      for (let time = 0; time < 2; time += 1) t.deepEqual(await database.selectCached(sql, [9]), rows);
    };
    t.is(await readsOf(unknown), dialect === 'mysql' ? 2 : 0);
  });

  test(`${dialect}: closing waits for the transactions that run, also for those that fail`, async (t) => {
    const { database, close } = await openWatched(t, dialect);
    const [one, two] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const running = [database.transaction(() => one.promise), database.transaction(() => two.promise)];
    const ended: string[] = [];
    const closing = close().then(() => ended.push('closed'));
    void running[0]!.then(() => ended.push('first'));
    running[1]!.catch(() => ended.push('second'));
    one.resolve();
    await running[0];
    for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    t.deepEqual(ended, ['first']);
    two.reject(new Error('broken'));
    await within(closing);
    t.deepEqual(ended, ['first', 'second', 'closed']);
  });

  test(`${dialect}: closing waits for a transaction that is to be repeated`, async (t) => {
    const { database, close } = await openWatched(t, dialect);
    let closing: Promise<void> | undefined;
    const repeated = database.transaction(async () => {
      if (closing) return 'done';
      closing = close();
      throw conflicts[dialect][0]!;
    });
    t.is(await within(repeated), 'done');
    await within(closing!);
  });
}

test('sqlite: the state of tables stays until they are written; mysql: none is known without a signal', async (t) => {
  const { database } = await openWatched(t, 'sqlite');
  const state = await database.stateOf(['tags']);
  t.is(typeof state, 'string');
  await database.transaction(insert('blobs', 1));
  t.is(await database.stateOf(['tags']), state);
  await database.transaction(insert('tags', 1));
  t.not(await database.stateOf(['tags']), state);
  t.is(await (await openWatched(t, 'mysql')).database.stateOf(['tags']), undefined);
});
