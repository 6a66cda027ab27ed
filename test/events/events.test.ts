import test, { type ExecutionContext } from 'ava';
import { runForSystem } from '../../src/runtime/caller.ts';
import { openDatabase, type Database, type Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { Events, type EventPage } from '../../src/events/events.ts';
import { recordEvent, recordOutside } from '../../src/events/record.ts';
import { RepeatedEvents } from '../../src/events/repeated.ts';
import { addressKey } from '../../src/limits/address.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

const event = (name: string) =>
  ({ type: 'package.published', accountId: 1, subject: { kind: 'package', name } }) as const;

async function opened(t: ExecutionContext, dialect: Dialect) {
  const url = await temporaryDatabase(t, dialect);
  const database = await openUntilEnd(t, url);
  await migrate(database);
  return { url, database, events: eventsIn(database) };
}

function eventsIn(database: Database): Events {
  return new Events(database, () => Promise.resolve('default'));
}

function write(database: Database, ...names: string[]): Promise<void> {
  return database.transaction(async (tx) => {
    for (const name of names) await recordEvent(tx, event(name), 1);
  });
}

async function names(list: Promise<EventPage>): Promise<(string | null)[]> {
  return (await list).events.map(({ subject }) => subject.name);
}

async function all(events: Events): Promise<[number, string | null][]> {
  return (await events.listAfter({}, 10_000, 0)).events.map(({ position, subject }) => [position, subject.name]);
}

for (const dialect of dialects) {
  test(`${dialect}: an event is visible only with its position, and a rolled back one never`, async (t) => {
    const { database, events } = await opened(t, dialect);
    await write(database, 'a', 'b');
    await t.throwsAsync(
      database.transaction(async (tx) => {
        await recordEvent(tx, event('never'), 1);
        throw new Error('on purpose');
      }),
      { message: 'on purpose' },
    );
    t.deepEqual(await all(events), []);
    await events.dispatch();
    await write(database, 'c');
    t.deepEqual(await all(events), [
      [1, 'a'],
      [2, 'b'],
    ]);
    await events.dispatch();
    t.is(await events.latest(), 3);
    t.deepEqual(
      (await events.listBefore({}, 2)).events.map(({ position }) => position),
      [3, 2],
    );
    t.deepEqual(
      (await events.listBefore({}, 2, [0, 2])).events.map(({ position }) => position),
      [1],
    );
  });

  test(`${dialect}: events of an instance that was killed after the commit get their positions from another`, async (t) => {
    const { url, database } = await opened(t, dialect);
    await write(database, 'a');
    // An instance that dies while it gives positions: its transaction is rolled back.
    const dying = changedDatabase(database, {
      transaction: (work, options) =>
        database.transaction(async (tx) => {
          await work(tx);
          throw new Error('killed');
        }, options),
    });
    await t.throwsAsync(eventsIn(dying).dispatch(), { message: 'killed' });
    const other = eventsIn(await openUntilEnd(t, url));
    t.deepEqual(await all(other), []);
    await write(database, 'b');
    await other.dispatch();
    t.deepEqual(await all(other), [
      [1, 'a'],
      [2, 'b'],
    ]);
  });

  test(`${dialect}: positions have no gaps and no duplicates when several instances give them`, async (t) => {
    const { url, database, events } = await opened(t, dialect);
    const others = await Promise.all([1, 2].map(() => openUntilEnd(t, url)));
    const writing = [database, ...others].map(async (each, index) => {
      for (let number = 0; number < 10; number += 1) await write(each, `${index}-${number}`, `${index}+${number}`);
    });
    const seen: (string | null)[] = [];
    const over = new AbortController();
    const following = (async () => {
      for (let after = 0; ;) {
        const wasOver = over.signal.aborted;
        await new Promise(setImmediate);
        const { events: some } = await events.listAfter({}, 7, after);
        seen.push(...some.map(({ subject }) => subject.name));
        after = some.at(-1)?.position ?? after;
        if (wasOver && some.length === 0) return;
      }
    })();
    const dispatching = [database, ...others].map(async (each) => {
      while (!over.signal.aborted) {
        await eventsIn(each).dispatch();
        await new Promise(setImmediate);
      }
    });
    await Promise.all(writing);
    await events.dispatch();
    over.abort();
    await Promise.all([...dispatching, following]);
    const stored = await all(events);
    t.deepEqual(
      stored.map(([position]) => position),
      Array.from({ length: 60 }, (_, index) => index + 1),
    );
    t.deepEqual(
      seen,
      stored.map(([, name]) => name),
      'a follower sees each once, in order',
    );
    t.is(new Set(seen).size, 60);
  });

  test(`${dialect}: old events are deleted some at a time, and positions go on`, async (t) => {
    const { database, events } = await opened(t, dialect);
    await database.transaction(async (tx) => {
      for (let time = 0; time < 205; time += 1) await recordEvent(tx, event('old'), time);
    });
    t.is(await events.deleteSome(1000), 0, 'not before they are visible');
    await events.dispatch();
    t.deepEqual(
      [await events.deleteSome(203), await events.deleteSome(203), await events.deleteSome(203)],
      [200, 3, 0],
    );
    t.deepEqual(
      (await all(events)).map(([position]) => position),
      [204, 205],
    );
    await events.deleteSome(1000);
    await write(database, 'new');
    await events.dispatch();
    t.deepEqual(await all(events), [[206, 'new']]);
    t.deepEqual(
      (await events.listBefore({}, 10)).events.map(({ position }) => position),
      [206],
    );
  });

  test(`${dialect}: a filter that matches little is read in parts, and finds all`, async (t) => {
    const { database, events } = await opened(t, dialect);
    await write(database, 'first');
    await events.dispatch();
    // As if many other events had been between them.
    await database.transaction(async (tx) => {
      await tx.run('UPDATE event_positions SET position = 20000');
    });
    await write(database, 'last');
    await events.dispatch();
    t.deepEqual(await names(events.listBefore({ type: 'package.*' }, 10)), ['last', 'first']);
    t.deepEqual(await names(events.listAfter({ subject: 'FIRST' }, 10, 0)), ['first']);
    t.deepEqual(await names(events.listAfter({ subject: 'last' }, 10, 0)), ['last']);
    t.deepEqual(await names(events.listAfter({ actor: 'none' }, 10, 0)), []);
  });

  test(`${dialect}: repeated events of one period become one, and those that cannot be written are kept`, async (t) => {
    const { database, events } = await opened(t, dialect);
    let isDown = false;
    const failing = changedDatabase(database, {
      transaction: (work, options) =>
        isDown ? Promise.reject(new Error('away')) : database.transaction(work, options),
    });
    let now = 0;
    const repeated = new RepeatedEvents(failing, () => now);
    const note = (address: string) =>
      repeated.note(
        { type: 'sign_in.failed', accountId: 0, subject: { kind: 'token', name: null } },
        { actor: { kind: 'anonymous', id: null, name: null }, address, requestId: null },
      );
    for (let number = 0; number < 1200; number += 1) note(`10.0.${number >> 8}.${number & 255}`);
    now = 1000;
    note('10.0.0.7');
    await repeated.flush();
    await events.dispatch();
    t.deepEqual(await all(events), [], 'the minute is not over');
    now = 60_000;
    isDown = true;
    await t.throwsAsync(repeated.flush(), { message: 'away' });
    isDown = false;
    await repeated.flush();
    await repeated.flush(true);
    await events.dispatch();
    const { events: stored } = await events.listAfter({}, 10_000, 0);
    t.is(stored.length, 1001, 'a thousand addresses, and one event for all others');
    const counts = new Map(stored.map(({ address, details }) => [address, details['count']]));
    t.deepEqual([counts.get('10.0.0.7'), counts.get('10.0.0.8'), counts.get(null)], [2, 1, 200]);
    t.like(
      stored.find(({ address }) => address === '10.0.0.7'),
      {
        time: 1000,
        account: null,
        details: { since: '1970-01-01T00:00:00.000Z' },
      },
    );
  });
}

// On SQLite a statement stops all other work of the process.
test('one statement examines at most 1000 events', async (t) => {
  const { database } = await opened(t, 'sqlite');
  await database.transaction((tx) =>
    tx.run(
      `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1500)
       INSERT INTO events (position, time, type, account_id, actor_kind, subject_kind, details)
       SELECT n, n, 'tag.deleted', 1, 'system', 'image', '{}' FROM numbers`,
    ),
  );
  const bounds: unknown[] = [];
  const watched = changedDatabase(database, {
    select: (sql, values) => {
      if (sql.startsWith('SELECT *')) bounds.push(values);
      return database.select(sql, values);
    },
  });
  const page = await eventsIn(watched).listAfter({ type: 'package.*' }, 10, 0);
  t.deepEqual(page, { events: [], next: undefined });
  t.deepEqual(bounds, [
    [0, 1000, 'package.', 'package/'],
    [1000, 'package.', 'package/'],
  ]);
});

test('a client that causes very many events of one type takes a bounded memory, and no place from other types', async (t) => {
  const { database, events } = await opened(t, 'sqlite');
  const repeated = new RepeatedEvents(database, () => 0);
  const origin = { actor: { kind: 'anonymous', id: null, name: null }, address: '192.0.2.1', requestId: null } as const;
  for (let each = 0; each < 2300; each += 1) {
    const subject = { kind: 'package', name: `lib${each}`, reference: '1.0.0' };
    repeated.note({ type: 'policy.refused', accountId: 1, subject }, origin);
  }
  repeated.note({ type: 'sign_in.failed', accountId: 0, subject: { kind: 'token', name: null } }, origin);
  await repeated.flush(true);
  await events.dispatch();
  const { events: stored } = await events.listAfter({}, 10_000, 0);
  const ofType = (type: string) => stored.filter((each) => each.type === type);
  t.is(ofType('policy.refused').length, 2001);
  t.like(
    ofType('policy.refused').find(({ subject }) => subject.name === null),
    { subject: { kind: 'package' }, address: null, details: { count: 300 } },
  );
  t.is(ofType('sign_in.failed')[0]!.address, '192.0.2.1');
});

test('addresses of one client share one repeated event', async (t) => {
  const { database, events } = await opened(t, 'sqlite');
  const repeated = new RepeatedEvents(database, () => 0, addressKey);
  const note = (address: string | null) =>
    repeated.note(
      { type: 'sign_in.failed', accountId: 0, subject: { kind: 'token', name: null } },
      { actor: { kind: 'anonymous', id: null, name: null }, address, requestId: null },
    );
  for (let each = 0; each < 1100; each += 1) note(`2001:db8:1:2::${each.toString(16)}`);
  for (const other of ['2001:db8:1:3::1', '192.0.2.1', '::ffff:192.0.2.1', null]) note(other);
  await repeated.flush(true);
  await events.dispatch();
  const { events: stored } = await events.listAfter({}, 100, 0);
  t.deepEqual(
    stored.map(({ address, details }) => [address, details['count']]),
    [
      ['2001:db8:1:2::0', 1100],
      ['2001:db8:1:3::1', 1],
      ['192.0.2.1', 2],
      [null, 1],
    ],
  );
});

test('sqlite: to give positions and to write repeated events leaves cached rows', async (t) => {
  const { database, events } = await opened(t, 'sqlite');
  await write(database, 'a');
  const getCached = async () => {
    await new Promise(setImmediate);
    return database.getCached('SELECT COUNT(*) AS events FROM events');
  };
  const cached = await getCached();
  await events.dispatch();
  const repeated = new RepeatedEvents(database, () => 0);
  repeated.note(event('b'));
  await repeated.flush();
  await events.dispatch();
  await recordOutside(database, event('outside'), 0);
  await events.deleteSome(1000);
  t.is(await getCached(), cached);
  await write(database, 'c');
  t.not(await getCached(), cached);
});

test('mysql: to give positions and to write repeated events is not announced', async (t) => {
  const url = await temporaryDatabase(t, 'mysql');
  let announced = 0;
  const database = await openDatabase(url, {
    versions: () => Promise.resolve({ of: () => '1' }),
    announce: () => Promise.resolve(void (announced += 1)),
  });
  t.teardown(() => database.close());
  await migrate(database);
  await write(database, 'a');
  const before = announced;
  const events = eventsIn(database);
  await events.dispatch();
  const repeated = new RepeatedEvents(database, () => 0);
  repeated.note(event('b'));
  await repeated.flush();
  await recordOutside(database, event('outside'), 0);
  await events.dispatch();
  t.is(await events.deleteSome(1000), 3);
  t.is(announced, before);
});

// SQLite has one writer at a time: there the order of IDs is that of commits.
test('mysql: an event with a smaller ID that is committed later is not skipped', async (t) => {
  const { url, database, events } = await opened(t, 'mysql');
  const other = await openUntilEnd(t, url);
  const written = Promise.withResolvers<void>();
  const mayCommit = Promise.withResolvers<void>();
  const early = database.transaction(async (tx) => {
    await recordEvent(tx, event('earlier ID'), 1);
    written.resolve();
    await mayCommit.promise;
  });
  await written.promise;
  await write(other, 'later ID');
  await events.dispatch();
  const { events: first } = await events.listAfter({}, 10, 0);
  t.deepEqual(
    first.map(({ subject }) => subject.name),
    ['later ID'],
  );
  mayCommit.resolve();
  await early;
  const rows = await database.select<{ subject_name: string }>('SELECT subject_name FROM events ORDER BY id');
  t.deepEqual(
    rows.map((each) => each.subject_name),
    ['earlier ID', 'later ID'],
  );
  await events.dispatch();
  const { events: second } = await events.listAfter({}, 10, first.at(-1)!.position);
  t.deepEqual(
    second.map(({ subject }) => subject.name),
    ['earlier ID'],
  );
});

test('an event has the origin of the work that records it', async (t) => {
  const { database, events } = await opened(t, 'sqlite');
  await runForSystem('retention', () => write(database, 'a'));
  await write(database, 'x'.repeat(400));
  await events.dispatch();
  const [first, second] = (await events.listAfter({}, 10, 0)).events;
  t.deepEqual(first!.actor, { kind: 'system', id: null, name: 'retention' });
  t.deepEqual(second!.actor, { kind: 'system', id: null, name: null });
  t.is(second!.subject.name!.length, 255, 'a long name does not make the change fail');
});
