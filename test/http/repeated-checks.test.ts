import test from 'ava';
import { pino } from 'pino';
import { Health, healthTimes, type Check } from '../../src/http/health.ts';

test('a check that costs money is repeated at once only after a request has met a failure', async (t) => {
  let runs = 0;
  const run = () => Promise.resolve((runs += 1));
  const check: Check = { part: 'storage', failure: 'The storage cannot be read.', run, every: 3_600_000 };
  const health = new Health({
    reads: [check],
    writes: [],
    redisFailedAt: () => undefined,
    log: pino({ level: 'silent' }),
    times: { ...healthTimes, perSecond: Number.POSITIVE_INFINITY },
  });
  const runsAfterLook = async () => {
    await health.look();
    return runs;
  };
  t.deepEqual([await runsAfterLook(), await runsAfterLook()], [1, 1]);
  health.note('database');
  t.is(await runsAfterLook(), 1, 'a failure of another part');
  health.note('storage');
  t.is(await runsAfterLook(), 2);
});
