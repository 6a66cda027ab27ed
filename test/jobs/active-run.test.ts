import test, { type ExecutionContext } from 'ava';
import { ActiveRun } from '../../src/jobs/active-run.ts';
import type { Runs } from '../../src/jobs/runs.ts';
import { until } from '../support/until.ts';

// A run while the database is away.

function activeRun(t: ExecutionContext, runs: Partial<Runs>, lease: number): ActiveRun {
  const active = new ActiveRun({ runs: runs as Runs, name: 'work', id: 1, lease });
  t.teardown(() => active.stop());
  return active;
}

test('a run goes on during a short outage of the database, and is aborted after its lease', async (t) => {
  let isAway = false;
  let beats = 0;
  const beat = async () => {
    beats += 1;
    if (isAway) throw new Error('the database is away');
    return true;
  };
  const { signal } = activeRun(t, { beat }, 300);
  await until(() => beats > 0);
  isAway = true;
  const before = beats;
  await until(() => beats > before);
  t.false(signal.aborted, 'one heartbeat is missing');
  isAway = false;
  await until(() => beats > before + 3);
  t.false(signal.aborted);
  isAway = true;
  await until(() => signal.aborted);
  t.regex(String(signal.reason), /unreachable for too long/);
});

test('the outcome of a run is recorded again after a failure, at most ten times', async (t) => {
  let failures = 3;
  let attempts = 0;
  const end = async () => {
    attempts += 1;
    if (attempts <= failures) throw new Error('the database is away');
  };
  const active = activeRun(t, { end, beat: async () => true }, 50);
  await active.end('done', {}, null);
  t.is(attempts, 4);
  failures = 1000;
  attempts = 0;
  await t.throwsAsync(active.end('done', {}, null), { message: /away/ });
  t.is(attempts, 10);
});
