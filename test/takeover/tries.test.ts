import test from 'ava';
import { Tries } from '../../src/takeover/tries.ts';
import { testClock } from '../support/clock.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { until, within } from '../support/until.ts';

const refused = { name: 'TooManyRequests' };

/** As several processes on one database, and questions that the test answers. */
for (const dialect of dialects) {
  test(`${dialect}: of many wrong passwords of one user at the same time, three are asked for`, async (t) => {
    const url = await temporaryDatabase(t, dialect);
    const clock = testClock(1_800_000_000_000);
    const processes: Tries[] = [];
    for (let at = 0; at < 5; at += 1) processes.push(new Tries(await openUntilEnd(t, url), clock.time));
    const answers: ((isRight: boolean) => void)[] = [];
    let asked = 0;
    const ask = () => {
      asked += 1;
      return new Promise<boolean>((resolve) => answers.push(resolve));
    };
    const run = (at: number, user: string) => processes[at]!.run('old', user, ask);

    const wrong = processes.map((_, at) => run(at, 'alice'));
    const ended = Promise.allSettled(wrong);
    await until(() => asked >= 3);
    const other = run(0, 'bob');
    await until(() => asked >= 4);
    for (const answer of answers) answer(false);
    const states = (await within(ended)).map(({ status }) => status).sort();
    t.deepEqual(states, ['fulfilled', 'fulfilled', 'fulfilled', 'rejected', 'rejected']);
    t.is(asked, 4, 'the fourth is of another user');
    t.false(await within(other));
    await t.throwsAsync(run(4, 'alice'), refused);
    clock.now! += 30 * 60_000 - 1;
    await t.throwsAsync(run(4, 'alice'), refused);
    clock.now! += 1;
    const later = run(4, 'alice');
    await until(() => asked >= 5);
    answers.at(-1)!(true);
    t.true(await within(later));
  });

  test(`${dialect}: names that a directory takes as one user are one user`, async (t) => {
    const tries = new Tries(await openUntilEnd(t, await temporaryDatabase(t, dialect)), Date.now);
    const asked: string[] = [];
    const run = (user: string) =>
      tries.run('old', user, () => {
        asked.push(user);
        return Promise.resolve(false);
      });
    for (const user of ['alice', 'Alice', ' ALICE ']) t.false(await run(user));
    for (const user of ['aLICE', 'alice', '\uff21lice']) await t.throwsAsync(run(user), refused, user);
    t.false(await run('alicia'));
    t.deepEqual(asked, ['alice', 'Alice', ' ALICE ', 'alicia']);
  });

  test(`${dialect}: the right password ends the count, a predecessor that fails does not, and each one counts by itself`, async (t) => {
    const tries = new Tries(await openUntilEnd(t, await temporaryDatabase(t, dialect)), Date.now);
    const answered = (isRight: boolean, predecessor = 'old') =>
      tries.run(predecessor, 'carol', () => Promise.resolve(isRight));
    for (const isRight of [false, false, true, false, false]) t.is(await answered(isRight), isRight);
    const failing = tries.run('old', 'carol', () => Promise.reject(new Error('it is down')));
    await t.throwsAsync(failing, { message: 'it is down' });
    const { retryAfter } = (await t.throwsAsync(answered(true), {
      ...refused,
      message: /^Not signed in: too many wrong passwords of this user/,
    })) as unknown as { retryAfter?: number };
    t.is(retryAfter, 30 * 60);
    t.false(await answered(false, 'other'));
  });

  test(`${dialect}: many processes with the right password of one user all get it accepted`, async (t) => {
    const url = await temporaryDatabase(t, dialect);
    const processes: Tries[] = [];
    for (let at = 0; at < 6; at += 1) processes.push(new Tries(await openUntilEnd(t, url), Date.now));
    let [asking, most] = [0, 0];
    const ask = async () => {
      asking += 1;
      most = Math.max(most, asking);
      await until(() => most >= 3);
      asking -= 1;
      return true;
    };
    t.deepEqual(
      await within(Promise.all(processes.map((each) => each.run('old', 'alice', ask)))),
      processes.map(() => true),
    );
  });

  test(`${dialect}: questions of a process that died do not hold others for ever`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    const clock = testClock(1_800_000_000_000);
    const tries = new Tries(database, clock.time);
    for (let at = 0; at < 3; at += 1) await tries.run('old', 'alice', () => Promise.resolve(false));
    await database.transaction((tx) => tx.run('UPDATE adopted_tries SET asking = 1'));
    const waiting = tries.run('old', 'alice', () => Promise.resolve(true));
    clock.now! += 60_000;
    await within(t.throwsAsync(waiting, refused));
  });
}
