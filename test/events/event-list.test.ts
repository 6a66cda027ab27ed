import test, { type ExecutionContext } from 'ava';
import { batches } from '../../src/database/batches.ts';
import type { Dialect, Row } from '../../src/database/database.ts';
import { isByTime, type EventFilter, type EventKey } from '../../src/events/event-list.ts';
import { Events, type EventPage } from '../../src/events/events.ts';
import { keyOfSubject, recordFrom, recordOutside } from '../../src/events/record.ts';
import { RepeatedEvents } from '../../src/events/repeated.ts';
import { runFor } from '../../src/runtime/caller.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// Lists of events: which ones a filter means, in which order, and where a page ends.

const system = { kind: 'system', id: null, name: null } as const;

/** An event at a position; its time is another order than its position. */
function row(position: number | null, time: number, more: Row = {}): Row {
  return {
    position,
    time,
    type: 'tag.deleted',
    account_id: 1,
    actor_kind: 'token',
    actor_id: null,
    actor_name: null,
    subject_kind: 'container',
    subject_name: null,
    subject_key: null,
    subject_reference: null,
    address: null,
    request_id: null,
    details: '{}',
    ...more,
  };
}

const shown = ({ events: found, next }: EventPage) =>
  `${found.map(({ position }) => position).join(' ')}${next ? ` | ${next.join(' ')}` : ''}`;

async function open(t: ExecutionContext, rows: readonly Row[], dialect: Dialect = 'sqlite') {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await database.transaction(async (tx) => {
    for (const some of batches(rows)) await tx.insertNew('events', some);
  });
  const names: Record<number, string> = { 1: 'one', 2: 'two' };
  const events = new Events(database, (id) => Promise.resolve(names[id]));
  return {
    database,
    events,
    before: async (filter: EventFilter, limit = 99, from?: EventKey) =>
      shown(await events.listBefore(filter, limit, from)),
    from: async (filter: EventFilter, limit = 99, from?: EventKey) => shown(await events.listFrom(filter, limit, from)),
    after: async (filter: EventFilter, limit = 99, from = 0) => shown(await events.listAfter(filter, limit, from)),
  };
}

const subject = (name: string, more: Row = {}) => ({ subject_name: name, subject_key: name.toLowerCase(), ...more });
const rows = [
  row(1, 50, {
    type: 'package.deleted',
    ...subject('Lib'),
    subject_kind: 'package',
    subject_reference: '1.0',
    actor_id: 'a',
    actor_name: 'ann',
  }),
  row(2, 20, { type: 'package.published', account_id: 2, ...subject('Lib'), subject_kind: 'package' }),
  row(3, 30, { actor_id: 'ann', address: '192.0.2.1', request_id: 'r', details: '{"a":1}' }),
  row(4, 30, { type: 'packages.x', account_id: 0, ...subject('LIB'), subject_kind: 'else' }),
  row(5, 10, { type: 'package', account_id: 2, ...subject('other') }),
  row(null, 30, { type: 'package.deleted', ...subject('Lib') }),
  row(6, 40, { type: 'package.', ...subject('lib'), account_id: 7 }),
];

test('an event is told whole, with the name of its account if there is one', async (t) => {
  const { events } = await open(t, rows);
  const { events: all, next } = await events.listAfter({}, 9, 0);
  t.is(next, undefined);
  t.deepEqual(all[0], {
    position: 1,
    time: 50,
    type: 'package.deleted',
    accountId: 1,
    account: 'one',
    actor: { kind: 'token', id: 'a', name: 'ann' },
    subject: { kind: 'package', name: 'Lib', reference: '1.0' },
    address: null,
    requestId: null,
    details: {},
  });
  t.like(all[2], { address: '192.0.2.1', requestId: 'r', details: { a: 1 }, subject: { name: null, reference: null } });
  t.deepEqual(
    all.map(({ account }) => account),
    ['one', 'two', 'one', null, 'two', null],
  );
});

test('each condition of a filter leaves out what it does not mean', async (t) => {
  const { before, from, after } = await open(t, rows);
  const names = {
    of: (kind: string) => ({
      where: (column: string) =>
        kind === 'package' ? { sql: `${column} = ?`, values: ['lib'] } : { sql: '1 = 0', values: [] },
    }),
  };
  for (const [filter, positions] of [
    [{}, '1 2 3 4 5 6'],
    [{ type: '*' }, '1 2 3 4 5 6'],
    [{ type: 'package.deleted' }, '1'],
    [{ type: 'package.*' }, '1 2'],
    [{ type: 'package' }, '5'],
    [{ accountId: 2 }, '2 5'],
    [{ accountId: 0 }, '4'],
    [{ accountId: 9 }, ''],
    [{ actor: 'ann' }, '1 3'],
    [{ actor: 'a' }, '1'],
    [{ subject: 'lIb' }, '1 2 4 6'],
    [{ subject: 'lib', accountId: 1 }, '1'],
    [{ subject: 'lib', since: 40 }, '1 6'],
    [{ subject: 'lib', until: 40 }, '2 4'],
    [{ subject: 'none' }, ''],
    [{ names }, '1 2'],
    [{ names, accountId: 2, type: 'package.*' }, '2'],
  ] as const) {
    t.is(await after(filter), positions, JSON.stringify(filter));
    t.is(await from(filter), positions, JSON.stringify(filter));
    t.is(await before(filter), positions.split(' ').toReversed().join(' '), JSON.stringify(filter));
  }
});

test('a list with times is in their order, except that of a subject', async (t) => {
  t.deepEqual([{}, { since: 0 }, { until: 0 }, { subject: 'a', since: 0 }, { accountId: 1 }].map(isByTime), [
    false,
    true,
    true,
    false,
    false,
  ]);
  const { before, from, after } = await open(t, rows);
  t.is(await from({ since: 20 }), '2 3 4 6 1');
  t.is(await before({ since: 20 }), '1 6 4 3 2');
  t.is(await from({ until: 40 }), '5 2 3 4');
  t.is(await from({ since: 30, until: 31 }), '3 4');
  t.is(await after({ since: 20, until: 50 }), '2 3 4 6', 'in the order of positions');
  t.is(await from({ since: 20, accountId: 1 }), '3 1');
  t.is(await before({ since: 30, accountId: 1 }), '1 3');
  t.is(await before({ until: 30, accountId: 2 }), '2 5');
  t.is(await from({ since: 21, accountId: 2 }), '');
  t.is(await from({ until: 20, accountId: 1 }), '');
});

for (const dialect of dialects) {
  test(`${dialect}: pages follow one another without gaps and repetitions, in each order`, async (t) => {
    const { before, from, after } = await open(t, rows, dialect);
    t.is(await before({}, 2), '6 5 | 10 5');
    t.is(await before({}, 2, [10, 5]), '4 3 | 30 3');
    t.is(await before({}, 2, [30, 3]), '2 1');
    t.is(await from({}, 5), '1 2 3 4 5 | 10 5');
    t.is(await from({}, 6), '1 2 3 4 5 6');
    t.is(await after({}, 9, 4), '5 6');
    t.is(await from({ since: 0 }, 3), '5 2 3 | 30 3');
    t.is(await from({ since: 0 }, 1, [30, 3]), '4 | 30 4');
    t.is(await from({ since: 0 }, 9, [30, 4]), '6 1');
    t.is(await before({ since: 0 }, 2, [40, 6]), '4 3 | 30 3');
    t.is(await before({ since: 0 }, 9, [30, 3]), '2 5');
    t.is(await before({ accountId: 2 }, 1), '5 | 10 5');
    t.is(await before({ accountId: 2 }, 1, [10, 5]), '2');
    t.is(await before({ accountId: 2 }, 1, [20, 2]), '');
    t.is(await from({ accountId: 2 }, 1), '2 | 20 2');
    t.is(await from({ accountId: 2 }, 1, [20, 2]), '5');
    t.is(await from({ subject: 'lib' }, 2, [20, 2]), '4 6');
    t.is(await from({ since: 0, accountId: 1 }, 1, [30, 3]), '1');
  });

  test(`${dialect}: each of many events of one time is read once, in the order of positions`, async (t) => {
    const { before, from } = await open(
      t,
      Array.from({ length: 1100 }, (_, at) => row(at + 1, 5)),
      dialect,
    );
    const positions = Array.from({ length: 1100 }, (_, at) => at + 1);
    t.is(await from({ since: 5 }, 9999), positions.join(' '));
    t.is(await before({ until: 6 }, 9999), positions.toReversed().join(' '));
  });

  test(`${dialect}: a page in the order of times begins at its place by an index`, async (t) => {
    const many = Array.from({ length: 2000 }, (_, at) => row(at + 1, at + 1));
    const { database } = await open(t, many, dialect);
    if (dialect === 'mysql') await database.select('ANALYZE TABLE events');
    const plans: Promise<Row[]>[] = [];
    const watched = changedDatabase(database, {
      select: (sql, values) => {
        plans.push(database.select(`EXPLAIN ${dialect === 'sqlite' ? 'QUERY PLAN ' : ''}${sql}`, values));
        return database.select(sql, values);
      },
    });
    const events = new Events(watched, () => Promise.resolve(undefined));
    t.is(shown(await events.listFrom({ until: 2000 }, 1, [1990, 1990])), '1991 | 1991 1991');
    t.is(shown(await events.listBefore({ since: 0 }, 1, [10, 10])), '9 | 9 9');
    for (const [plan] of await Promise.all(plans)) {
      if (dialect === 'sqlite')
        t.regex(String(plan!['detail']), /^SEARCH .* INDEX events_time \(.*\(time,position\)[<>]/);
      else t.true(plan!['key'] === 'events_time' && Number(plan!['rows']) < 100, JSON.stringify(plan));
    }
  });
}

test('an account or a subject with few events is found among many of others, and a long search ends', async (t) => {
  const many = Array.from({ length: 3500 }, (_, at) =>
    row(at + 1, at + 1, at === 0 || at === 1800 || at === 3499 ? { account_id: 2, ...subject('X') } : {}),
  );
  const { database, before, from } = await open(t, many);
  for (const filter of [{ accountId: 2 }, { subject: 'x' }, { accountId: 2, since: 0 }]) {
    t.is(await from(filter), '1 1801 3500');
    t.is(await before(filter), '3500 1801 1');
  }
  t.is(await before({ type: 'none' }), '');
  t.is(await from({ since: 2, until: 3500, accountId: 2 }), '1801');
  t.is(await from({ since: 1, until: 3501, accountId: 2 }), '1 1801 3500');
  const first = many.slice(0, 1000).map((each) => each['position']);
  t.is(await from({}, 1000), `${first.join(' ')} | 1000 1000`);
  const last = Array.from({ length: 1001 }, (_, at) => 3500 - at);
  for (const filter of [{}, { since: 0 }]) t.is(await before(filter, 1001), `${last.join(' ')} | 2500 2500`);

  let statements = 0;
  const endless = changedDatabase(database, {
    select: (sql, values) => {
      if (sql.includes('OFFSET')) {
        statements += 1;
        // As if there were always more.
        return Promise.resolve([{ time: statements, position: statements }]) as never;
      }
      return sql.startsWith('SELECT *') ? Promise.resolve([]) : database.select(sql, values);
    },
  });
  const page = await new Events(endless, () => Promise.resolve(undefined)).listAfter({ type: 'none' }, 5, 0);
  t.deepEqual([page, statements], [{ events: [], next: [100, 100] }, 100], 'a page without events has a next one');
});

test('a reader that has left gets no page', async (t) => {
  const { events } = await open(t, rows);
  const origin = { actor: system, address: null, requestId: null };
  const left = { account: undefined, gone: true, whenGone: () => () => undefined, origin };
  await t.throwsAsync(
    runFor(left, () => events.listAfter({}, 9, 0)),
    { name: 'Aborted' },
  );
});

test('the number of events without a position, and the last position, are told', async (t) => {
  const { database, events } = await open(t, [row(null, 1), row(null, 2)]);
  t.deepEqual([await events.undispatched(), await events.latest()], [2, 0]);
  await database.transaction(async (tx) => {
    for (const some of batches(Array.from({ length: 399 }, (_, at) => row(null, at))))
      await tx.insertNew('events', some);
  });
  await events.dispatch();
  t.deepEqual([await events.undispatched(), await events.latest()], [0, 401]);
  const found = await database.select<{ id: number; position: number }>('SELECT id, position FROM events ORDER BY id');
  t.deepEqual(
    found.map(({ position }) => position),
    Array.from({ length: 401 }, (_, at) => at + 1),
  );
  await events.dispatch();
  t.is(await events.latest(), 401);
  await database.transaction(async (tx) => {
    for (const some of batches(Array.from({ length: 10_001 }, (_, at) => row(null, at))))
      await tx.insertNew('events', some);
  });
  t.is(await events.undispatched(), 10_000);
});

test('old events are deleted up to a position, the oldest first', async (t) => {
  const { database, events } = await open(t, rows);
  const left = async () =>
    (await database.select<{ position: number | null }>('SELECT position FROM events ORDER BY id')).map(
      ({ position }) => position,
    );
  t.is(await events.deleteSome(10), 0);
  t.is(await events.deleteSome(31, 3), 2);
  t.deepEqual(await left(), [1, 4, 5, null, 6]);
  t.is(await events.deleteSome(40), 2);
  t.deepEqual(await left(), [1, null, 6], 'not one without a position');
  t.is(await events.deleteSome(41, 5), 0);
});

test('a recorded event has its origin, and texts that its columns can hold', async (t) => {
  const { database } = await open(t, []);
  const long = 'x'.repeat(300);
  const actor = { kind: 'person', id: long, name: long } as const;
  const event = {
    type: 'tag.deleted',
    accountId: 3,
    subject: { kind: 'container', name: `N${long}`, reference: long },
  } as const;
  await database.transaction((tx) => recordFrom(tx, event, 9, { actor, address: long, requestId: long }));
  await runFor(
    {
      account: undefined,
      gone: false,
      whenGone: () => () => undefined,
      origin: { actor: system, address: 'here', requestId: 'r' },
    },
    () =>
      recordOutside(
        database,
        { type: 'job.started', accountId: 0, subject: { kind: 'job', name: null }, details: { a: [1] } },
        10,
      ),
  );
  const cut = 'x'.repeat(255);
  const [first, second] = await database.select('SELECT * FROM events ORDER BY id');
  t.deepEqual(first, {
    id: 1,
    position: null,
    time: 9,
    type: 'tag.deleted',
    account_id: 3,
    actor_kind: 'person',
    actor_id: cut,
    actor_name: cut,
    subject_kind: 'container',
    subject_name: `N${cut.slice(1)}`,
    subject_key: `n${cut.slice(1)}`,
    subject_reference: cut,
    address: 'x'.repeat(64),
    request_id: 'x'.repeat(64),
    details: '{}',
  });
  t.like(second, {
    subject_name: null,
    subject_key: null,
    subject_reference: null,
    address: 'here',
    request_id: 'r',
    actor_kind: 'system',
    details: '{"a":[1]}',
  });
  t.is(keyOfSubject(`A${long}`), `a${'x'.repeat(254)}`);
});

test('repetitions of an event wait for their period, and have the first details and the last time', async (t) => {
  const { database } = await open(t, []);
  let now = 1_000_000;
  const repeated = new RepeatedEvents(database, () => now);
  const origin = { actor: system, address: '192.0.2.1', requestId: 'first' };
  const note = (type: 'limit.reached' | 'job.started', details: object, more = {}) =>
    repeated.note(
      { type, accountId: 1, subject: { kind: 'job', name: 'a' }, details: { ...details } },
      { ...origin, ...more },
    );
  const written = async () => {
    const found = await database.select<{ type: string; time: number; request_id: string; details: string }>(
      'SELECT type, time, request_id, details FROM events ORDER BY id',
    );
    return found.map(
      ({ type, time, request_id: request, details }) => `${type} ${time - 1_000_000} ${request} ${details}`,
    );
  };
  note('limit.reached', { n: 1 });
  note('job.started', { n: 1 });
  now += 500;
  note('limit.reached', { n: 2 }, { requestId: 'second' });
  note('job.started', { n: 2 }, { requestId: 'second' });
  await repeated.flush();
  const since = '"since":"1970-01-01T00:16:40.000Z"';
  t.deepEqual(await written(), [`job.started 500 first {"n":1,"count":2,${since}}`], 'it has no period');
  now = 1_059_999;
  await repeated.flush();
  t.is((await written()).length, 1);
  now = 1_060_000;
  await repeated.flush();
  t.deepEqual((await written())[1], `limit.reached 500 first {"n":1,"count":2,${since}}`);
  note('limit.reached', { n: 3 });
  now -= 1;
  await repeated.flush();
  t.is((await written()).length, 3, 'the clock was set back');
  await repeated.flush(true);
  t.is((await written()).length, 3);

  const many = Array.from({ length: 101 }, (_, at) => `10.0.0.${at}`);
  for (const address of many) note('limit.reached', {}, { address });
  const sizes: number[] = [];
  const watched = changedDatabase(database, {
    transaction: async (work, options) => {
      const count = async () => (await database.get<{ count: number }>('SELECT COUNT(*) AS count FROM events'))!.count;
      const before = await count();
      const result = await database.transaction(work, options);
      sizes.push((await count()) - before);
      return result;
    },
  });
  const split = new RepeatedEvents(watched, () => now);
  for (const address of many)
    split.note({ type: 'job.started', accountId: 1, subject: { kind: 'job', name: 'a' } }, { ...origin, address });
  await split.flush();
  t.deepEqual(sizes, [100, 1]);
});
