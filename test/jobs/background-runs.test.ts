import test from 'ava';
import { pino } from 'pino';
import { isInBackground } from '../../src/database/time-limits.ts';
import { BackgroundRuns } from '../../src/jobs/background-runs.ts';
import type { RunRows } from '../../src/jobs/run-rows.ts';
import { until, within } from '../support/until.ts';

const away = () => Promise.reject(new Error('the database is away'));

test('a run goes on while the database cannot be written, and ends with the server', async (t) => {
  let beats = 0;
  const ends: unknown[] = [];
  const rows: Pick<RunRows, 'beat' | 'isCancelled' | 'end'> = {
    beat: () => {
      beats += 1;
      return away();
    },
    isCancelled: away,
    end: (id, state, { error }: { error?: string }) => {
      ends.push([id, state, error]);
      return away();
    },
  };
  const lines: string[] = [];
  const runs = new BackgroundRuns('test', rows as RunRows, pino({}, { write: (line) => lines.push(line) }));
  t.is(runs.count, 0);
  let isStopped: boolean | undefined;
  runs.start(
    '1',
    {},
    {
      run: ({ any, stop }) =>
        new Promise<string>((_resolve, reject) => {
          any.addEventListener('abort', () => {
            isStopped = stop.aborted;
            reject(any.reason as Error);
          });
        }),
    },
  );
  t.is(runs.count, 1);
  await until(() => beats > 0);
  await new Promise(setImmediate);
  t.is(isStopped, undefined, 'it goes on');
  await within(runs.close());
  t.false(isStopped);
  t.deepEqual([ends, runs.count], [[['1', 'interrupted', undefined]], 0]);
  t.true(lines.some((line) => /the end of a run of test was not recorded/.test(line)));
});

test('a database that does not answer gets one heartbeat of a run at a time, with the time limit of a request', async (t) => {
  const beats: { isInBackground: boolean; answer: (goesOn: boolean) => void }[] = [];
  const states: string[] = [];
  const rows: Pick<RunRows, 'beat' | 'isCancelled' | 'end'> = {
    beat: () => {
      const { promise, resolve } = Promise.withResolvers<boolean>();
      beats.push({ isInBackground: isInBackground(), answer: resolve });
      return promise;
    },
    isCancelled: () => Promise.resolve(false),
    end: (_id, state) => Promise.resolve(void states.push(state)),
  };
  const runs = new BackgroundRuns('test', rows as RunRows, pino({ level: 'silent' }));
  const work = Promise.withResolvers<string>();
  t.teardown(() => work.resolve('done'));
  let isRunInBackground = false;
  runs.start(
    '1',
    {},
    {
      run: () => {
        isRunInBackground = isInBackground();
        return work.promise;
      },
    },
  );
  await until(() => beats.length > 0);
  // A timer of the same length that begins later also ends later.
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 1000);
  t.teardown(() => clearInterval(timer));
  await until(() => turns >= 1);
  t.is(beats.length, 1, 'no heartbeat begins while one waits');
  beats[0]!.answer(true);
  await until(() => beats.length > 1);
  for (const beat of beats) beat.answer(true);
  t.deepEqual([isRunInBackground, beats.map((beat) => beat.isInBackground)], [true, beats.map(() => false)]);
  work.resolve('done');
  await within(runs.close());
  t.deepEqual(states, ['done']);
});
