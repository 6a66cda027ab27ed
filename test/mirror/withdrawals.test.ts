import test, { type ExecutionContext } from 'ava';
import type { Database } from '../../src/database/database.ts';
import { entryId, type EntryKey } from '../../src/mirror/store/entries.ts';
import { Withdrawals } from '../../src/mirror/withdrawals.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { mirrorEntry } from '../support/builders/mirror-entry.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { testLog } from '../support/mirror.ts';

// What is noted of references that upstreams do not offer. `stored-state.test.ts` has the states of one reference on both databases.

const name = { upstream: 'u', kind: 'manifest', name: 'app' };
const subject = { kind: 'container', name: 'registry.test/app', upstream: 'registry.test' };

function rowFor(key: EntryKey) {
  return { ...mirrorEntry(digestOf(key.reference)), ...key, id: entryId(key), size_bytes: 10 };
}

/** Withdrawals of a new database with these entries of `name`; `changes` replace methods of the database. */
async function open(t: ExecutionContext, references: readonly string[], others: readonly EntryKey[] = []) {
  const real = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const rows = [...references.map((reference) => ({ ...name, reference })), ...others].map(rowFor);
  if (rows.length > 0) await real.transaction((tx) => tx.insertNew('mirror_entries', rows));
  const calls: string[] = [];
  const database = changedDatabase(real, {
    transaction: (work, options) => {
      calls.push('transaction');
      return real.transaction(work, options);
    },
    getCached: (sql, values, options) => {
      calls.push(`read ${JSON.stringify([values, options])}`);
      return real.getCached(sql, values, options);
    },
    selectCached: (sql, values, options) => {
      calls.push(`read ${JSON.stringify([values, options])}`);
      return real.selectCached(sql, values, options);
    },
  });
  const clock = { now: 1000 };
  const { log, lines } = testLog();
  const withdrawals = new Withdrawals(database, log, () => clock.now);
  const all = () =>
    real.select<{ reference: string }>(
      'SELECT * FROM mirror_withdrawn ORDER BY upstream DESC, kind DESC, name, reference',
    );
  return { withdrawals, database, clock, calls, lines, all, log };
}

const numbered = (count: number) => Array.from({ length: count }, (_, index) => `v${1000 + index}`);

test('what is missing is noted and read back in whole, and without it one row answers for all names', async (t) => {
  const { withdrawals, clock, calls, all } = await open(t, ['v1', 'v2']);
  t.deepEqual(await withdrawals.of(name), []);
  t.deepEqual(calls.splice(0), ['read [[],{"lag":5000}]']);
  t.deepEqual(await withdrawals.missing(name, ['v1', 'gone', 'v2'], 0), []);
  t.deepEqual(calls.splice(0), ['read [[],{"lag":5000}]', 'transaction']);
  const row = (reference: string) => ({
    id: entryId({ ...name, reference }),
    ...name,
    reference,
    missing_at: 1000,
    withdrawn_at: null,
  });
  t.deepEqual(await all(), [row('v1'), row('v2')]);
  const rows = await withdrawals.of(name);
  t.deepEqual(
    rows.map((each) => ({ ...each })).toSorted((a, b) => (a.reference < b.reference ? -1 : 1)),
    [
      { reference: 'v1', missingAt: 1000, withdrawnAt: null },
      { reference: 'v2', missingAt: 1000, withdrawnAt: null },
    ],
  );
  t.deepEqual(calls.splice(0), ['read [[],{"lag":5000}]', 'read [["manifest","app","u"],{"lag":5000}]']);
  clock.now = 1500;
  await withdrawals.mark({ ...name, reference: 'v2' }, subject);
  t.deepEqual([...(await withdrawals.times(name))], [['v2', 1500]]);
  calls.splice(0);
  t.deepEqual(await withdrawals.missing(name, ['v1', 'v2'], 500), ['v1'], 'what is known is not written again');
  t.deepEqual(await withdrawals.missing(name, ['v1', 'v2'], 501), []);
  t.false(calls.includes('transaction'));
});

test('references of the same name at another upstream, of another kind or of another name are others', async (t) => {
  const key = { ...name, reference: 'v1' };
  const others = [
    { ...key, upstream: 'a' },
    { ...key, kind: 'blob' },
    { ...key, name: 'other' },
  ];
  const { withdrawals, clock, all } = await open(t, ['v1'], others);
  for (const each of others) await withdrawals.missing(each, ['v1'], 0);
  t.deepEqual(await withdrawals.of(name), []);
  await withdrawals.missing(name, ['v1'], 0);
  t.is((await withdrawals.of(name)).length, 1);
  clock.now = 2000;
  await withdrawals.postpone(key);
  const missingAt = async () => (await all()).map((each) => (each as unknown as { missing_at: number }).missing_at);
  t.deepEqual(await missingAt(), [2000, 1000, 1000, 1000]);
  await withdrawals.mark(key, subject);
  for (const each of others) t.is(await withdrawals.at(each), undefined);
  t.is(await withdrawals.at(key), 2000);
  await withdrawals.mark(others[0]!, subject);
  await withdrawals.mark(others[1]!, subject);
  t.deepEqual(
    new Map(await withdrawals.counts()),
    new Map([
      ['a', 1],
      ['u', 2],
    ]),
  );
  await withdrawals.offered(name, () => true, subject);
  t.deepEqual(
    (await all()).map((each) => ({ ...each, id: undefined, missing_at: undefined })),
    [
      { ...others[2]!, withdrawn_at: null },
      { ...others[1]!, withdrawn_at: 2000 },
      { ...others[0]!, withdrawn_at: 2000 },
    ].map((each) => ({ ...each, id: undefined, missing_at: undefined })),
  );
});

test('events of withdrawn references have the whole name, and nobody who caused them', async (t) => {
  const { withdrawals, database, clock } = await open(t, ['v1']);
  const key = { ...name, reference: 'v1' };
  await withdrawals.missing(name, ['v1'], 0);
  clock.now = 1100;
  await withdrawals.mark(key, subject);
  clock.now = 1200;
  await withdrawals.offered(name, (reference) => reference === 'v1', subject);
  const events = await database.select('SELECT * FROM events ORDER BY id');
  const common = {
    account_id: 0,
    actor_kind: 'system',
    actor_id: null,
    subject_kind: 'container',
    subject_name: 'registry.test/app',
    subject_key: 'registry.test/app',
    subject_reference: 'v1',
    address: null,
    request_id: null,
    details: '{"upstream":"registry.test"}',
  };
  t.like(events, [
    { ...common, time: 1100, type: 'upstream.withdrawn' },
    { ...common, time: 1200, type: 'upstream.restored' },
  ]);
  t.is(events.length, 2);
});

test('two hundred references are noted or taken back in one transaction, and more in further ones', async (t) => {
  const references = numbered(400);
  const { withdrawals, calls, all } = await open(t, [...references, 'last']);
  const writes = () => calls.splice(0).filter((each) => each === 'transaction').length;
  const noted = async () => (await all()).map(({ reference }) => reference);
  await withdrawals.missing(name, references.slice(0, 200), 0);
  t.is(writes(), 1);
  t.deepEqual(await noted(), references.slice(0, 200));
  await withdrawals.offered(name, () => true);
  t.is(writes(), 1);
  t.deepEqual(await noted(), []);
  await withdrawals.missing(name, [...references, 'last'], 0);
  t.is(writes(), 3);
  t.deepEqual(await noted(), ['last', ...references].toSorted());
  await withdrawals.offered(name, (reference) => reference !== 'last');
  t.is(writes(), 2);
  t.deepEqual(await noted(), ['last']);
  await withdrawals.offered(name, () => false);
  t.is(writes(), 0);
});

test('a transaction of many references has those of its turn only', async (t) => {
  const references = numbered(201);
  const { withdrawals, database, log } = await open(t, references);
  let left = 1;
  const failing = changedDatabase(database, {
    transaction: (work) => {
      left -= 1;
      if (left < 0) return Promise.reject(new DomainError('DatabaseUnavailable', 'down'));
      return database.transaction(work);
    },
  });
  const noting = new Withdrawals(failing, log, () => 1000);
  await noting.missing(name, references, 0);
  t.is((await withdrawals.of(name)).length, 200);
  await withdrawals.missing(name, references, 0);
  t.is((await withdrawals.of(name)).length, 201);
  left = 1;
  await noting.offered(name, () => true);
  t.is((await withdrawals.of(name)).length, 1);
});

test('pages of what upstreams do not offer are in the order of IDs, of one kind', async (t) => {
  const other = { ...name, kind: 'blob', reference: 'b' };
  const { withdrawals } = await open(t, ['v1', 'v2', 'v3'], [other]);
  await withdrawals.missing(name, ['v1', 'v2', 'v3'], 0);
  await withdrawals.missing(other, ['b'], 0);
  const rows = ['v1', 'v2', 'v3']
    .map((reference) => ({ id: entryId({ ...name, reference }), ...name, reference }))
    .toSorted((a, b) => (a.id < b.id ? -1 : 1));
  t.deepEqual(await withdrawals.page('manifest', '', 2), rows.slice(0, 2));
  t.deepEqual(await withdrawals.page('manifest', rows[1]!.id, 2), rows.slice(2));
  t.deepEqual(await withdrawals.page('manifest', rows[0]!.id, 1), [rows[1]!]);
  t.deepEqual(await withdrawals.page('blob', '', 2), [{ id: entryId(other), ...other }]);
});

test('the bytes that stay are those of each content once, also of what is kept with it', async (t) => {
  const { withdrawals, database } = await open(t, ['v1', 'v2', 'v3']);
  t.is(await withdrawals.bytes(), 0);
  await withdrawals.missing(name, ['v1'], 0);
  t.is(await withdrawals.bytes(), 10);
  const kept = ['v1', 'v2'].map((reference) => ({ id: entryId({ ...name, reference }) }));
  await database.transaction((tx) => tx.insertNew('mirror_kept', kept));
  t.is(await withdrawals.bytes(), 20);
  await database.transaction((tx) =>
    tx.run('UPDATE mirror_entries SET digest = ? WHERE reference <> ?', [digestOf('v1'), 'v3']),
  );
  t.is(await withdrawals.bytes(), 10);
});

test('references that are said to be missing elsewhere come first, and once', async (t) => {
  const { withdrawals, calls, all } = await open(t, ['v1', 'v2']);
  await withdrawals.missing(name, ['v1', 'v2'], 0);
  const asked: object[] = [];
  const elsewhere = [
    { reference: 'v9', missingAt: 3, withdrawnAt: 4 },
    { reference: 'v2', missingAt: 5, withdrawnAt: null },
  ];
  const both = withdrawals.with((about) => {
    asked.push(about);
    return elsewhere;
  });
  const here = { reference: 'v1', missingAt: 1000, withdrawnAt: null };
  t.deepEqual(
    (await both.of(name)).map((each) => ({ ...each })),
    [...elsewhere, here],
  );
  t.deepEqual(asked, [name]);
  t.deepEqual([...(await both.times(name))], [['v9', 4]]);
  t.is(await both.at({ ...name, reference: 'v9' }), 4);
  calls.splice(0);
  t.deepEqual(await both.missing(name, ['v2', 'v9', 'v1'], 900), ['v2']);
  t.false(calls.includes('transaction'));
  // It writes with the clock, the log and the database of the others.
  await both.mark({ ...name, reference: 'v1' }, subject);
  t.like(await all(), [{ reference: 'v1', withdrawn_at: 1000 }, { reference: 'v2' }]);
});

const failures = {
  'the database is not available': new DomainError('DatabaseUnavailable', 'down'),
  'the disk is full': new DomainError('StorageFull', 'full'),
  'the disk of the database is full': Object.assign(new Error('no space'), { code: 'ENOSPC' }),
};

for (const [what, error] of Object.entries(failures)) {
  test(`nothing fails because nothing can be noted: ${what}`, async (t) => {
    const { database, log, lines, all } = await open(t, ['v1', 'v2']);
    const working = new Withdrawals(database, log, () => 1000);
    await working.missing(name, ['v1'], 0);
    const failing: Database = changedDatabase(database, { transaction: () => Promise.reject(error) });
    const withdrawals = new Withdrawals(failing, log, () => 2000);
    const key = { ...name, reference: 'v1' };
    t.deepEqual(await withdrawals.missing(name, ['v1', 'v2'], 0), ['v1']);
    await withdrawals.postpone(key);
    await withdrawals.mark(key, subject);
    await withdrawals.offered(name, () => true, subject);
    t.like(await all(), [{ reference: 'v1', missing_at: 1000, withdrawn_at: null }]);
    const told = lines.map((line) => JSON.parse(line) as Record<string, unknown> & { err: { message: string } });
    t.deepEqual(
      told.map(({ level, msg, upstream, kind, name: about, reference, err }) => [
        level,
        msg,
        upstream,
        kind,
        about,
        reference,
        err.message,
      ]),
      [undefined, 'v1', 'v1', undefined].map((reference) => [
        40,
        'what an upstream does not offer any more was not recorded',
        ...Object.values(name),
        reference,
        error.message,
      ]),
    );
  });
}

test('an error that is no fault of the database or its disk is thrown', async (t) => {
  const { database, log, lines } = await open(t, ['v1']);
  for (const error of [new Error('a mistake'), new DomainError('StorageUnavailable', 'no storage')]) {
    const failing = changedDatabase(database, { transaction: () => Promise.reject(error) });
    const withdrawals = new Withdrawals(failing, log, () => 1000);
    t.is(await t.throwsAsync(withdrawals.missing(name, ['v1'], 0)), error);
    t.is(await t.throwsAsync(withdrawals.postpone({ ...name, reference: 'v1' })), error);
    t.is(await t.throwsAsync(withdrawals.mark({ ...name, reference: 'v1' }, subject)), error);
  }
  t.deepEqual(lines, []);
});
