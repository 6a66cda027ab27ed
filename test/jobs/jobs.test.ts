import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { openDatabase, type Database, type Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { Jobs, type Job, type Work } from '../../src/jobs/jobs.ts';
import { Runs, type Counts, type RunningJob } from '../../src/jobs/runs.ts';
import { Schedule } from '../../src/jobs/schedule.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { eventually, until, within } from '../support/until.ts';

const start = Date.parse('2026-03-01T03:14:00Z');
const minute = 60_000;

interface Setup {
  url: string;
  database: Database;
  runs: Runs;
  /** Shared by all instances of a test. */
  clock: { now: number };
  /** Another instance, with its own connections. */
  instance: (run: Job['run'], options?: { lease?: number; jitter?: number }) => Promise<Jobs>;
  /**
   * Resolves when every started instance has acted on the current time. An instance checks the clock every
   * 5 ms and starts due runs at most 30 ms later: after ten checks all due runs are claimed or being claimed.
   */
  settled: () => Promise<void>;
}

async function setUp(t: ExecutionContext, dialect: Dialect): Promise<Setup> {
  const url = await temporaryDatabase(t, dialect);
  const database = await openUntilEnd(t, url);
  await migrate(database);
  const clock = { now: start };
  const now = () => clock.now;
  const instances: { looks: number; runs: WatchedRuns }[] = [];
  return {
    url,
    database,
    clock,
    runs: new Runs(database, now),
    instance: async (run, { lease = 60_000, jitter = 0 } = {}) => {
      const own = await openDatabase(url);
      const job: Job = { name: 'work', summary: '', schedule: new Schedule('* * * * *'), canDryRun: true, run };
      const watch = { looks: 0, runs: new WatchedRuns(own, now) };
      const jobs = new Jobs({
        runs: watch.runs,
        jobs: [job],
        log: pino({ level: 'silent' }),
        now: () => {
          // The first check is at the start.
          if (watch.looks === 0) instances.push(watch);
          watch.looks += 1;
          return clock.now;
        },
        tick: 5,
        jitter,
        lease,
      });
      t.teardown(async () => {
        await jobs.close();
        await own.close();
      });
      return jobs;
    },
    settled: async () => {
      const enough = instances.map(({ looks }) => looks + 10);
      await until(() => instances.every(({ looks, runs }, index) => looks >= enough[index]! && runs.claiming === 0));
    },
  };
}

/** Records the queries of an instance. */
class WatchedRuns extends Runs {
  claiming = 0;
  /** Every read of the active runs, and its time. */
  readonly looks: { beat: number | undefined; at: number }[] = [];

  override async claim(...asked: Parameters<Runs['claim']>): ReturnType<Runs['claim']> {
    this.claiming += 1;
    try {
      return await super.claim(...asked);
    } finally {
      this.claiming -= 1;
    }
  }

  override async held(): Promise<RunningJob[]> {
    const held = await super.held();
    this.looks.push({ beat: held[0]?.beat, at: performance.now() });
    return held;
  }
}

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, setup: Setup) => Promise<void>) =>
    test(`${dialect}: ${title}`, async (t) => run(t, await setUp(t, dialect)));

  suite(
    'at each due time, one of several instances performs the run',
    async (t, { instance, clock, runs, settled }) => {
      const done: [number, number][] = [];
      const instances = await Promise.all(
        [1, 2, 3].map((each) =>
          instance(
            () => {
              done.push([each, clock.now]);
              return Promise.resolve({ things: each });
            },
            { jitter: 30 },
          ),
        ),
      );
      for (const each of instances) each.start();
      await settled();
      t.deepEqual(done, [], 'nothing is due at the start');
      for (let turn = 1; turn <= 5; turn += 1) {
        clock.now = start + turn * minute;
        await until(() => done.length === turn);
        await settled();
        t.is(done.length, turn, 'once');
      }
      const history = await eventually(
        () => runs.latest('work', 10),
        (all) => all.every(({ outcome, endedAt }) => outcome === 'done' && endedAt !== null),
      );
      t.deepEqual(
        history.map(({ scheduledAt }) => scheduledAt),
        [5, 4, 3, 2, 1].map((turn) => start + turn * minute),
      );
      t.deepEqual(
        history.map(({ counts }) => counts['things']!).toReversed(),
        done.map(([each]) => each),
      );
    },
  );

  suite('after the clock jumps, nothing runs twice and nothing stops', async (t, { instance, clock, settled }) => {
    const done: number[] = [];
    const run = () => {
      done.push(clock.now);
      return Promise.resolve({});
    };
    const [one, two] = [await instance(run), await instance(run)];
    one.start();
    two.start();
    const at = async (now: number, runs: number, what: string) => {
      clock.now = now;
      await until(() => done.length >= runs);
      await settled();
      t.is(done.length, runs, what);
    };
    await at(start + minute, 1, 'due');
    await at(start + 30_000, 1, 'back by half a minute');
    await at(start + minute + 1000, 1, 'the same time a second time');
    await at(start + 2 * minute, 2, 'the next time runs');
    await at(start + 600 * minute, 3, 'ahead by hours: only the latest due time runs');
    await at(start + 3 * minute, 3, 'back by hours');
    await at(start + 4 * minute, 4, 'it does not wait for the hours to pass');
    await at(start + 400 * 24 * 60 * minute, 5, 'ahead by a year');
    await at(start + 5 * minute, 5, 'and back');
    await at(start + 6 * minute, 6, 'it does not wait for a year');
    await at(start + 4 * minute, 6, 'back again');
    await at(start + 6 * minute, 6, 'a time that has run does not run again');
    await at(start + 7 * minute, 7, 'on');
  });

  suite('runs do not overlap', async (t, { instance, clock, runs, settled }) => {
    let [running, most] = [0, 0];
    const gates: PromiseWithResolvers<void>[] = [];
    let isOver = false;
    const run = async (): Promise<Counts> => {
      if (isOver) return {};
      most = Math.max(most, (running += 1));
      const gate = Promise.withResolvers<void>();
      gates.push(gate);
      await gate.promise;
      running -= 1;
      return {};
    };
    const [one, two] = [await instance(run, { lease: 3000 }), await instance(run, { lease: 3000 })];
    // The instances close only when their runs have ended.
    t.teardown(() => {
      isOver = true;
      for (const gate of gates) gate.resolve();
    });
    one.start();
    two.start();
    clock.now = start + minute;
    await until(() => gates.length === 1);
    clock.now = start + 2 * minute;
    await settled();
    t.is(gates.length, 1, 'the due time during the run is skipped');
    gates[0]!.resolve();
    await until(async () => (await runs.held()).length === 0);
    await settled();
    t.is(gates.length, 1, 'for good');
    clock.now = start + 3 * minute;
    await until(() => gates.length === 2);
    const byHand = [one.run('work'), two.run('work')].map((each) => t.throwsAsync(each, { name: 'Invalid' }));
    await Promise.all(byHand);
    gates[1]!.resolve();
    await until(async () => (await runs.held()).length === 0);
    t.is(most, 1);
  });

  suite('after an instance is killed during a run, another one takes over', async (t, { url, runs, clock }) => {
    const script = join(import.meta.dirname, '../support/processes/run-job.ts');
    const child = spawn(process.execPath, [script, url, '900'], { stdio: ['ignore', 'pipe', 'inherit'] });
    const closed = once(child, 'close');
    t.teardown(() => child.kill('SIGKILL'));
    await once(child.stdout, 'data');
    const own = await openDatabase(url);
    t.teardown(() => own.close());
    const [held] = await runs.held();
    t.is(held?.name, 'endless');
    const times: number[] = [];
    const watched = new WatchedRuns(own, () => clock.now);
    clock.now = Date.now();
    const follower = new Jobs({
      runs: watched,
      jobs: [
        {
          name: 'endless',
          summary: '',
          schedule: new Schedule('0 0 29 2 *'),
          canDryRun: false,
          run: () => Promise.resolve({ followed: times.push(watched.looks.length) }),
        },
      ],
      log: pino({ level: 'silent' }),
      now: () => clock.now,
      tick: 20,
      jitter: 0,
      lease: 900,
    });
    t.teardown(() => follower.close());
    follower.start();
    await until(async () => (await runs.held())[0]!.beat > 6);
    t.deepEqual(times, [], 'while it is alive, nothing is taken over for two leases');
    child.kill('SIGKILL');
    await closed;
    await until(() => times.length === 1);
    const seen = watched.looks.slice(0, times[0]);
    const same = seen.filter(({ beat }) => beat === seen.at(-1)!.beat);
    t.true(
      same.at(-1)!.at - same[0]!.at > 450,
      'it showed no heartbeat for its lease, of which a busy machine can see the beginning late',
    );
    await until(async () => (await runs.held()).length === 0);
    const [again, lost] = await runs.latest('endless', 10);
    t.like(lost, { outcome: 'lost', id: held!.runId });
    t.like(again, { outcome: 'done', scheduledAt: lost!.scheduledAt, counts: { followed: 1 } });
    const looks = watched.looks.length;
    await until(() => watched.looks.length > looks + 1);
    t.is(times.length, 1);
  });

  suite(
    'the run of a closed instance is interrupted, and another instance starts it again',
    async (t, { instance, runs, clock }) => {
      const begun: Work[] = [];
      const over = Promise.withResolvers<Counts>();
      const run = (work: Work) =>
        new Promise<Counts>((resolve, reject) => {
          begun.push(work);
          work.signal.addEventListener('abort', () => reject(work.signal.reason as Error));
          if (begun.length === 2) resolve({});
          over.promise.then(resolve, reject);
        });
      const one = await instance(run, { lease: 300 });
      // An instance that does not interrupt its run would never end.
      t.teardown(() => over.resolve({}));
      one.start();
      clock.now = start + minute;
      await until(() => begun.length === 1);
      await within(one.close());
      t.like((await runs.latest('work', 1))[0], { outcome: 'interrupted', error: 'the instance was closed' });
      const two = await instance(run, { lease: 300 });
      two.start();
      await until(() => begun.length === 2);
      await until(async () => (await runs.held()).length === 0);
      t.like((await runs.latest('work', 1))[0], { outcome: 'done', scheduledAt: start + minute });
    },
  );

  for (const [what, stopAt] of [
    ['a due run', 'claim'],
    ['the run of another one', 'takeOver'],
  ] as const) {
    suite(`an instance that closes while it claims ${what} does not begin it`, async (t, { url, runs, clock }) => {
      const own = await openDatabase(url);
      t.teardown(() => own.close());
      const [claimed, closing] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const stopping = new Runs(own, () => clock.now);
      const claim = stopping[stopAt].bind(stopping) as (...asked: unknown[]) => Promise<number>;
      stopping[stopAt] = async (...asked: unknown[]) => {
        const id = await claim(...asked);
        claimed.resolve();
        await closing.promise;
        return id;
      };
      if (stopAt === 'takeOver') await runs.claim('work', clock.now);
      let begun = 0;
      const run = () => {
        begun += 1;
        return new Promise<Counts>(() => undefined);
      };
      const jobs = new Jobs({
        runs: stopping,
        jobs: [{ name: 'work', summary: '', schedule: new Schedule('* * * * *'), canDryRun: false, run }],
        log: pino({ level: 'silent' }),
        now: () => clock.now,
        tick: 5,
        jitter: 0,
        lease: 30,
      });
      jobs.start();
      if (stopAt === 'claim') clock.now = start + minute;
      await within(claimed.promise);
      const closed = jobs.close();
      closing.resolve();
      await within(closed);
      t.is(begun, 0);
      const [last] = await runs.latest('work', 1);
      t.like(last, { outcome: 'interrupted', error: 'the instance was closed' });
      t.like(await runs.held(), [{ runId: last!.id }], 'another instance starts it again');
    });
  }

  suite(
    'a run that another instance has taken over is aborted and changes nothing',
    async (t, { instance, runs, clock }) => {
      let reason: unknown;
      const one = await instance(
        ({ signal }) =>
          new Promise((_resolve, reject) => {
            signal.addEventListener('abort', () => {
              // That of the first run: the instance starts another one.
              reason ??= signal.reason;
              reject(signal.reason as Error);
            });
          }),
        { lease: 200 },
      );
      one.start();
      clock.now = start + minute;
      await until(async () => (await runs.held()).length === 1);
      const [{ runId }] = (await runs.held()) as [RunningJob];
      // As if this process was paused for longer than the lease.
      await until(async () => (await runs.takeOver((await runs.held())[0]!)) !== undefined);
      await until(() => reason !== undefined);
      await one.close();
      t.regex(String(reason), /taken over this run/);
      const history = await runs.latest('work', 10);
      t.is(history.find(({ id }) => id === runId)!.outcome, 'lost', 'the old run does not record its outcome');
      t.is((await runs.held())[0]?.runId, history[0]!.id, 'the old run does not end the new one');
    },
  );

  suite('a run that shows a heartbeat in the last moment is not taken over', async (t, { runs, clock }) => {
    const id = (await runs.claim('work', clock.now)) as number;
    const [seen] = await runs.held();
    t.true(await runs.beat('work', id));
    t.is(await runs.takeOver(seen!), undefined);
    await runs.abandon(seen!);
    t.like(await runs.held(), [{ runId: id, beat: seen!.beat + 1 }]);
    t.true(await runs.beat('work', id), 'it is still the current run');
  });

  suite('a run that kills its instance each time is not started again', async (t, { runs, clock }) => {
    let id = await runs.claim('work', clock.now);
    for (let lost = 1; lost <= 3; lost += 1) {
      t.is(typeof id, 'number');
      const [held] = await runs.held();
      id = (await runs.takeOver(held!)) ?? 'past';
    }
    t.is(id, 'past');
    t.deepEqual(await runs.held(), [], 'the job is free for the next due time');
    t.is(await runs.claim('work', clock.now), 'past');
    t.is(typeof (await runs.claim('work', clock.now + minute)), 'number');
  });

  suite(
    'the lost run of a job that is off ends and is not started again, so that the job can be started',
    async (t, { database, clock }) => {
      const runs = new Runs(database, () => clock.now);
      let begun = 0;
      const run = () => Promise.resolve({ begun: (begun += 1) });
      const jobs = new Jobs({
        runs,
        jobs: [{ name: 'work', summary: '', schedule: undefined, canDryRun: false, run }],
        log: pino({ level: 'silent' }),
        now: () => clock.now,
        lease: 30,
      });
      t.teardown(() => jobs.close());
      jobs.start();
      // By hand, and due before the job was set to off. Nobody beats: the instance was killed.
      for (const scheduledAt of [null, clock.now]) {
        t.is(typeof (await runs.claim('work', scheduledAt)), 'number');
        await until(async () => (await runs.held()).length === 0);
        t.like((await runs.latest('work', 1))[0], { outcome: 'lost', scheduledAt, endedAt: clock.now });
      }
      t.is(begun, 0);
      t.deepEqual(await jobs.run('work'), { begun: 1 });
    },
  );

  suite(
    'a failure is recorded with its reason, and the history is bounded',
    async (t, { database, instance, runs }) => {
      const jobs = await instance(() => Promise.reject(new Error('on purpose')));
      const observed: string[] = [];
      jobs.start((name, outcome) => observed.push(`${name} ${outcome}`));
      await t.throwsAsync(jobs.run('work'), { message: 'on purpose' });
      t.like((await jobs.list())[0]!.last, { outcome: 'failed', error: 'on purpose', scheduledAt: null });
      await jobs.launch('work');
      await until(() => observed.length === 2);
      t.deepEqual(observed, ['work failed', 'work failed']);
      t.like((await jobs.list())[0]!.last, { outcome: 'failed', error: 'on purpose', scheduledAt: null });
      await t.throwsAsync(jobs.run('walk'), { name: 'NotFound', message: /The jobs are work/ });
      const old = { job: 'other', scheduled_at: 0, started_at: 0, ended_at: 0, outcome: 'done', counts: '{}' };
      for (let some = 0; some < 5; some += 1) {
        await database.transaction((tx) =>
          tx.insertNew(
            'job_runs',
            Array.from({ length: 300 }, () => old),
          ),
        );
      }
      const id = (await runs.claim('other', 1)) as number;
      const history = await runs.latest('other', 5000);
      t.deepEqual([history.length, history[0]!.id], [1000, id]);
      t.is((await runs.latest('work', 10)).length, 2, 'each job has its own history');
    },
  );
}

test('a due run that could not be claimed is tried again', async (t) => {
  const { database, clock } = await setUp(t, 'sqlite');
  const runs = new Runs(database, () => clock.now);
  const claim = runs.claim.bind(runs);
  let tries = 0;
  runs.claim = (...asked) => {
    tries += 1;
    return tries === 1 ? Promise.reject(new Error('the database is away')) : claim(...asked);
  };
  let begun = 0;
  const jobs = new Jobs({
    runs,
    jobs: [
      {
        name: 'work',
        summary: '',
        schedule: new Schedule('* * * * *'),
        canDryRun: false,
        run: () => Promise.resolve({ begun: (begun += 1) }),
      },
    ],
    log: pino({ level: 'silent' }),
    now: () => clock.now,
    tick: 20,
    jitter: 0,
  });
  t.teardown(() => jobs.close());
  jobs.start();
  clock.now = start + minute;
  await until(async () => (await runs.latest('work', 1))[0]?.outcome === 'done');
  t.deepEqual([begun, tries], [1, 2]);
});

test('a dry run is not recorded', async (t) => {
  const { instance, runs } = await setUp(t, 'sqlite');
  const said: string[] = [];
  const jobs = await instance(({ dryRun, say }) => {
    say(dryRun ? 'would' : 'does');
    return Promise.resolve({ things: 3 });
  });
  t.deepEqual(await jobs.run('work', { dryRun: true, say: (line) => said.push(line) }), { things: 3 });
  t.deepEqual(said, ['would']);
  t.deepEqual(await runs.latest('work', 1), []);
});
