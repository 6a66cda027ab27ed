import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import type { Use } from '../../src/usage/counters.ts';
import { clientKind, TokenUses, type TokenUse } from '../../src/usage/token-uses.ts';
import { testClock } from '../support/clock.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What is noted of the use of tokens. test/console/tokens.test.ts has the requests.

const minute = 60_000;
const day = 86_400_000;

async function open(t: ExecutionContext, dialect: Dialect) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await migrate(database);
  const clock = testClock(100 * day);
  const uses = new TokenUses(database, clock.time);
  /** Notes a download of `subject` with the token `userId`, a minute after the one before. */
  const note = (userId: string, subject: string, more: Partial<Use> = {}, accountId = 1, client = 'a client') => {
    clock.now! += minute;
    const use = { kind: 'package', subject, act: 'download', status: 200, complete: true, at: clock.now! } as Use;
    uses.note(accountId, userId, { ...use, ...more }, client);
    return clock.now!;
  };
  return { database, clock, uses, note };
}

const namesOf = (list: readonly { name: string }[]) => list.map(({ name }) => name);

for (const dialect of dialects) {
  test(`${dialect}: the use of a token is told by name, the latest first, and only to its account`, async (t) => {
    const { uses, note } = await open(t, dialect);
    note('ann', 'old', { act: 'upload', status: 201 });
    const first = note('ann', 'lib');
    const both = note('ann', 'both', { act: 'upload', status: 201 });
    // None of these is a download or an upload of something.
    for (const more of [
      { act: 'version-check' },
      { act: undefined },
      { kind: 'other' },
      { subject: '' },
      { status: 404 },
      { act: 'upload', status: 403 },
      { complete: false },
    ] as const)
      note('ann', 'nothing', more);
    t.deepEqual(await uses.of(1, 'ann', 'other', 10), []);
    await uses.flush();
    const bob = note('bob', 'lib');
    const again = note('ann', 'lib');
    const image = note('ann', 'lib', { kind: 'container' });
    note('eve', 'lib', {}, 2);
    const whole: TokenUse[] = [
      { kind: 'package', name: 'lib', userId: 'ann', downloads: 2, uploads: 0, lastAt: again },
      { kind: 'package', name: 'both', userId: 'ann', downloads: 0, uploads: 1, lastAt: both },
    ];
    t.deepEqual(await uses.of(1, 'ann', 'package', 2), whole);
    t.deepEqual(namesOf(await uses.of(1, 'ann', 'package', 10)), ['lib', 'both', 'old']);
    t.deepEqual(await uses.of(2, 'ann', 'package', 10), []);
    const byBob = { kind: 'package', name: 'lib', userId: 'bob', downloads: 1, uploads: 0, lastAt: bob };
    t.deepEqual(await uses.under(1, 'package', 'lib', 10), [whole[0]!, byBob]);
    t.deepEqual(await uses.under(1, 'package', 'lib', 1), [whole[0]!]);

    const latest = await uses.latest(1, 'package', ['lib', 'both', 'none']);
    t.deepEqual([latest.size, latest.get('lib'), latest.get('both')], [2, ...whole]);
    t.like((await uses.latest(1, 'container', ['lib'])).get('lib'), { userId: 'ann', lastAt: image });
    t.like((await uses.latest(2, 'package', ['lib'])).get('lib'), { userId: 'eve', downloads: 1 });
    t.deepEqual(await uses.latest(1, 'package', []), new Map());
    t.true(first < again);
    // Another account uses the same name at the same time.
    note('eve', 'lib', { at: again }, 2);
    for (const [accountId, userId] of [
      [1, 'ann'],
      [2, 'eve'],
    ] as const)
      t.like((await uses.latest(accountId, 'package', ['lib'])).get('lib'), { userId, lastAt: again });
  });

  test(`${dialect}: the latest twenty clients of a token are kept, and its other uses for 30 days`, async (t) => {
    const { uses, note, clock, database } = await open(t, dialect);
    const client = async (userId: string) => namesOf(await uses.of(1, userId, clientKind, 50));
    const early = note('ann', 'lib', {}, 1, 'x'.repeat(300));
    note('bob', '', {}, 1, 'of bob');
    await uses.flush();
    t.deepEqual(await client('ann'), ['x'.repeat(255)]);
    for (let number = 1; number <= 25; number += 1) note('ann', '', {}, 1, `client ${number}`);
    const last = clock.now!;
    t.is(await uses.latestClient(1), last, 'also before it is written');
    t.is(await uses.latestClient(2), null);
    t.deepEqual(
      await client('ann'),
      Array.from({ length: 20 }, (_, index) => `client ${25 - index}`),
    );
    t.deepEqual(await client('bob'), ['of bob']);
    t.deepEqual(namesOf(await uses.of(1, 'ann', 'package', 10)), ['lib'], 'it is no client');
    t.is(await uses.latestClient(1), last);
    const ofBob = last - 25 * minute;
    const latest = new Map([
      ['ann', last],
      ['bob', ofBob],
    ]);
    t.deepEqual(await uses.lastOf(['ann', 'bob', 'eve']), latest);
    t.deepEqual(await uses.lastOf([]), new Map());

    clock.now = early + 30 * day - 1;
    await uses.deleteOld();
    t.is((await uses.of(1, 'ann', 'package', 10)).length, 1);
    clock.now += 1;
    await uses.deleteOld();
    t.is((await uses.of(1, 'ann', 'package', 10)).length, 0);
    t.is((await database.select('SELECT * FROM token_uses')).length, 21);
  });
}

test('at most 5,000 different uses are in memory, and known ones go on', async (t) => {
  const { uses, note } = await open(t, 'sqlite');
  // The client is one of them.
  for (let number = 1; number <= 5000; number += 1) note('ann', `lib-${number}`);
  note('ann', 'lib-1');
  const kept = await uses.of(1, 'ann', 'package', 6000);
  t.is(kept.length, 4999);
  t.like(kept[0], { name: 'lib-1', downloads: 2 });
  t.is(kept[1]!.name, 'lib-4999');
});

test('the last use of each of very many names is told, of one account and kind', async (t) => {
  const { uses, note } = await open(t, 'sqlite');
  const names = Array.from({ length: 501 }, (_, number) => `lib-${number}`);
  const first = note('ann', 'lib-0');
  const last = new Map([['lib-500', note('ann', 'lib-500')]]);
  note('eve', 'lib-1', {}, 2);
  note('ann', 'lib-2', { kind: 'container' });
  const again = note('bob', 'lib-0');
  note('ann', 'another');
  t.true(first < again);
  t.deepEqual(await uses.lastUnder(1, 'package', names), new Map([['lib-0', again], ...last]));
  t.deepEqual(await uses.lastUnder(1, 'package', []), new Map());
  t.deepEqual(await uses.lastUnder(2, 'container', names), new Map());
});

test('of the clients of a token only the latest twenty stay, also if they come one by one', async (t) => {
  const { uses, note } = await open(t, 'sqlite');
  for (let number = 1; number <= 22; number += 1) {
    note('ann', '', {}, 1, `client ${number}`);
    await uses.flush();
  }
  const names = Array.from({ length: 20 }, (_, index) => `client ${22 - index}`);
  t.deepEqual(namesOf(await uses.of(1, 'ann', clientKind, 50)), names);
  // A known one is the latest again, and puts out none.
  note('ann', '', {}, 1, 'client 3');
  t.deepEqual(namesOf(await uses.of(1, 'ann', clientKind, 50)), ['client 3', ...names.slice(0, -1)]);
});
