import test, { type ExecutionContext } from 'ava';
import type { Dialect, Row } from '../../src/database/database.ts';
import { auditPage, auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { createToken, databaseOf, defaultAccountOf, eventsOf, tokenOf } from '../support/inside.ts';
import { longestTurnOf } from '../support/longest-turn.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

// In a process of its own: it measures the process.

const start = Date.parse('2027-01-01T00:00:00Z');

async function opened(t: ExecutionContext, dialect: Dialect): Promise<TestServer> {
  return startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
}

interface Written {
  type?: string;
  account: number;
  name: string;
  time: number;
}

/** Writes events in this order. */
async function write(server: TestServer, events: readonly Written[]): Promise<void> {
  const rows = events.map(({ type = 'image.pushed', account, name, time }): Row => ({
    time,
    type,
    account_id: account,
    actor_kind: 'token',
    subject_kind: 'container',
    subject_name: name,
    subject_key: name,
    details: '{}',
  }));
  await databaseOf(server).transaction(async (tx) => {
    for (let from = 0; from < rows.length; from += 500) await tx.insertNew('events', rows.slice(from, from + 500));
  });
  await eventsOf(server).dispatch();
}

/** Writes very many events with one statement. */
async function writeMany(server: TestServer, count: number, account: number): Promise<void> {
  await databaseOf(server).transaction(async (tx) => {
    const last = (await tx.get<{ position: number }>('SELECT position FROM event_positions'))!.position;
    await tx.run(
      `INSERT INTO events (position, time, type, account_id, actor_kind, subject_kind, subject_name, subject_key, details)
       SELECT ? + n, ? + n, 'image.pushed', ?, 'token', 'container', 'team/app', 'team/app', '{}' FROM (
         WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
         SELECT (a.n - 1) * 1000 + b.n AS n FROM numbers a JOIN numbers b WHERE a.n <= ?) AS every_number`,
      [last, start, account, count / 1000],
    );
    await tx.run('UPDATE event_positions SET position = ?', [last + count]);
  });
}

async function allPages(server: TestServer, query: string, token?: string): Promise<(string | null)[]> {
  const found: (string | null)[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const page = await auditPage(server, `${query}${cursor && `&cursor=${cursor}`}`, token);
    found.push(...page.items.map(({ subject }) => subject.name));
    cursor = page.next_cursor;
  }
  return found;
}

const at = (time: number) => new Date(time).toISOString();

for (const dialect of dialects) {
  test.serial(`${dialect}: lists with times leave out no event that was written late or early`, async (t) => {
    const server = await opened(t, dialect);
    const account = defaultAccountOf(server);
    const pushes = Array.from({ length: 1300 }, (_, index) => ({
      account,
      name: `push-${index}`,
      time: start + 1000 + index,
    }));
    // Failed sign-ins are counted for a minute before they are written.
    await write(server, [...pushes, { type: 'sign_in.failed', account, name: 'late', time: start }]);
    const failed = 'type=sign_in.failed';
    for (const query of [
      `until=${at(start + 2250)}`,
      `until=${at(start + 1)}`,
      `since=${at(start)}`,
      `since=${at(start)}&until=${at(start + 2250)}`,
      `since=${at(start)}&after=0`,
      `subject=late&until=${at(start + 2250)}`,
    ]) {
      t.deepEqual(await allPages(server, `${failed}&${query}`), ['late'], query);
    }
    t.deepEqual(await allPages(server, `${failed}&until=${at(start)}`), []);
    t.deepEqual(await allPages(server, `until=${at(start + 1002)}&type=image.*&limit=1`), ['push-1', 'push-0']);

    // A job gives all its events the time of its begin.
    const deleted = Array.from({ length: 1100 }, () => ({ type: 'tag.deleted', account, name: 'x', time: start }));
    await write(server, [{ account, name: 'early', time: start + 10_000 }, ...deleted]);
    t.deepEqual(await allPages(server, `type=image.*&since=${at(start + 9000)}`), ['early']);
    t.deepEqual(await allPages(server, `type=image.*&since=${at(start)}&subject=early`), ['early']);
    t.is((await allPages(server, `type=tag.*&until=${at(start + 1)}&limit=200`)).length, 1100);
  });

  test.serial(`${dialect}: a list whose filter matches little reads a bounded number of events`, async (t) => {
    const server = await opened(t, dialect);
    const other = (await createToken(server, ['admin'], 'other')).token;
    t.truthy(other);
    await write(server, [{ account: defaultAccountOf(server), name: 'first', time: start }]);
    await writeMany(server, 101_000, defaultAccountOf(server));
    const theirs = await tokenOf(server, ['admin'], 'other');

    for (const query of ['actor=none', 'actor=none&until=2028-01-01T00:00:00Z', 'actor=none&after=0']) {
      let next: string | null = null;
      const turn = await longestTurnOf(async () => {
        const page = await auditPage(server, query);
        t.deepEqual(page.items, []);
        next = page.next_cursor;
      });
      t.true(turn < 50, `${query}: ${turn} ms`);
      t.not(next, null, query);
    }
    t.deepEqual(await allPages(server, 'subject=first&actor=none'), []);
    t.deepEqual(await allPages(server, 'subject=first'), ['first']);
    const page = await auditPage(server, 'type=token.*&until=2028-01-01T00:00:00Z', theirs);
    t.is(page.next_cursor, null, 'events of other accounts do not count');
    t.is(page.items.length, 2);
    t.is((await auditOf(server, 'type=token.*&since=2026-01-01T00:00:00Z', theirs)).length, 2);
  });
}

test.serial('an account reads two lists of events at a time, and another one does not wait', async (t) => {
  const server = await opened(t, 'sqlite');
  const theirs = await tokenOf(server, ['admin'], 'other');
  let [running, most] = [0, 0];
  const events = eventsOf(server);
  const list = events.listBefore.bind(events);
  const held = Promise.withResolvers<void>();
  events.listBefore = async (filter, ...rest) => {
    if (filter.actor === 'none') {
      running += 1;
      most = Math.max(most, running);
      await held.promise;
      running -= 1;
    }
    return list(filter, ...rest);
  };
  const asked = Array.from({ length: 30 }, () => server.fetch('/v1/audit?actor=none'));
  const refused = await Promise.any(
    asked.map(async (each) => ((await each).status === 429 ? true : Promise.reject(new Error('not refused')))),
  );
  t.true(refused);
  await auditPage(server, '', theirs);
  held.resolve();
  const statuses = (await Promise.all(asked)).map(({ status }) => status);
  t.is(most, 2);
  t.true(statuses.every((each) => each === 200 || each === 429));
  t.true(statuses.filter((each) => each === 429).length >= 8);
});
