import test from 'ava';
import { CommonDatabase } from '../../src/database/common-database.ts';
import type { Queryable, Row, Transaction } from '../../src/database/database.ts';
import type { Versions } from '../../src/database/row-cache.ts';
import type { Tables } from '../../src/database/statement-tables.ts';
import { inBackground, timeLimits } from '../../src/database/time-limits.ts';
import type { Effects } from '../../src/database/transaction-work.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { within } from '../support/until.ts';

// What both databases do in the same way, without one.

const conflict = Object.assign(new Error('deadlock'), { isConflict: true });
const tx = {} as Transaction;

/** A database whose transactions do and find what the test says. */
class FakeDatabase extends CommonDatabase {
  readonly dialect = 'sqlite';
  readonly told: unknown[] = [];
  readonly deadlines: number[] = [];
  version: Versions | undefined = { of: (tables) => `v1 ${tables?.join()}` };
  effects: (effects: Effects) => void = () => undefined;
  reads = 0;

  get wrote(): boolean {
    return this.hasWritten;
  }

  override async select<T extends object = Row>(sql: string, values: readonly unknown[] = []): Promise<T[]> {
    this.reads += 1;
    return [{ sql, values: values.join() }, { second: true }] as unknown as T[];
  }

  protected override async attempt<T>(
    work: (tx: Transaction) => Promise<T>,
    effects: Effects,
    deadline: number,
  ): Promise<T> {
    this.deadlines.push(deadline);
    const result = await work(tx);
    this.effects(effects);
    return result;
  }

  protected override isConflict(error: unknown): boolean {
    return error === conflict;
  }

  protected override async versions(lag: number): Promise<Versions | undefined> {
    this.told.push(`lag ${lag}`);
    return this.version;
  }

  protected override async afterWrite(tables: Tables): Promise<void> {
    await super.afterWrite(tables);
    this.told.push(tables);
  }

  override snapshot<T>(read: (from: Queryable) => Promise<T>): Promise<T> {
    return read(this);
  }

  override exclusively<T>(work: () => Promise<T>): Promise<T> {
    return work();
  }

  override async checkReads(): Promise<void> {}
}

const writes = (of: Effects) => {
  of.wrote = true;
  of.tables?.add('tags').add('blobs');
};
const unknown = (of: Effects) => Object.assign(of, { wrote: true, tables: undefined });
const open = (transaction = timeLimits.transaction) => new FakeDatabase({ ...timeLimits, transaction });

test('a transaction is repeated after a conflict, ten times at most and not after its deadline', async (t) => {
  const database = open();
  let tries = 0;
  const failing = (times: number) => async (given: Transaction) => {
    t.is(given, tx);
    tries += 1;
    if (tries <= times) throw conflict;
    return 'done';
  };
  t.is(await database.transaction(failing(9)), 'done');
  t.is(tries, 10);
  t.is(new Set(database.deadlines).size, 1, 'all of them have one deadline');
  tries = 0;
  t.is(await t.throwsAsync(database.transaction(failing(10))), conflict);
  t.is(tries, 10);
  tries = 0;
  t.is(await t.throwsAsync(open(-1).transaction(failing(1))), conflict);
  t.is(tries, 1, 'too late for another');
  const other = new Error('broken');
  tries = 0;
  const broken = database.transaction(async () => {
    tries += 1;
    throw other;
  });
  t.is(await t.throwsAsync(broken), other);
  t.is(tries, 1);
  const locked = Object.assign(new Error('busy'), { errcode: 5 });
  const error = await t.throwsAsync(database.transaction(() => Promise.reject(locked)));
  t.true(error instanceof DomainError);
  t.like(error, { name: 'DatabaseUnavailable', cause: locked });
  const { counts } = database.times.transaction;
  t.is(
    counts.reduce((sum, each) => sum + each, 0),
    4,
    'with those that failed',
  );
});

test('a transaction of a request and one of background work have their own deadlines', async (t) => {
  const database = open();
  const before = performance.now();
  await database.transaction(async () => undefined);
  await inBackground(() => database.transaction(async () => undefined));
  const after = performance.now();
  const [request, background] = database.deadlines as [number, number];
  t.true(request >= before + timeLimits.transaction && request <= after + timeLimits.transaction);
  t.true(background >= before + timeLimits.background && background <= after + timeLimits.background);
});

test('a write tells which tables it wrote, unless cached rows stay valid', async (t) => {
  const database = open();
  const run = async (effects: (of: Effects) => void, options?: object) => {
    database.effects = effects;
    await database.transaction(async () => undefined, options);
    return [database.wrote, ...database.told.splice(0)];
  };
  t.deepEqual(await run(() => undefined), [false]);
  t.deepEqual(await run(writes), [true, ['tags', 'blobs']]);
  t.deepEqual(await run(() => undefined), [false]);
  t.deepEqual(await run(unknown), [true, undefined]);
  t.deepEqual(await run(writes, { fleeting: true }), [true]);
  t.deepEqual(await run(writes, { uncached: true }), [true]);
  t.deepEqual(await run(writes, { fleeting: true, uncached: false }), [true, ['tags', 'blobs']]);
});

test('cached reads read once while the version stays, and each time without one', async (t) => {
  const database = open();
  const sql = 'SELECT * FROM tags WHERE a = ?';
  const row = { sql, values: '1' };
  t.deepEqual(await database.get(sql, [1]), row);
  for (let time = 0; time < 2; time += 1) {
    t.deepEqual(await database.getCached(sql, [1]), row);
    t.deepEqual(await database.selectCached(sql, [1], { lag: 5 }), [row, { second: true } as never]);
  }
  t.is(database.reads, 2);
  t.deepEqual(await database.getCached(sql), { sql, values: '' });
  t.deepEqual(database.told.splice(0), ['lag 0', 'lag 5', 'lag 0', 'lag 5', 'lag 0']);
  t.is(await database.stateOf(['tags', 'blobs']), 'v1 tags,blobs');
  t.deepEqual(database.told, ['lag 0']);
  database.version = undefined;
  t.is(await database.stateOf(['tags']), undefined);
  for (let time = 0; time < 2; time += 1) t.deepEqual(await database.getCached(sql, [1]), row);
  t.is(database.reads, 5);
});

test('closing waits for the transactions that run, also for those that fail', async (t) => {
  const database = open();
  const [one, two] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const running = [database.transaction(() => one.promise), database.transaction(() => two.promise)];
  const ended: string[] = [];
  const closing = database.close().then(() => ended.push('closed'));
  void running[0]!.then(() => ended.push('first'));
  running[1]!.catch(() => ended.push('second'));
  one.resolve();
  await running[0];
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  t.deepEqual(ended, ['first']);
  two.reject(new Error('broken'));
  await within(closing);
  t.deepEqual(ended, ['first', 'second', 'closed']);
  await within(database.close());
});
