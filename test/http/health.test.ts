import test from 'ava';
import { pino } from 'pino';
import { Health, healthTimes, type Check } from '../../src/http/health.ts';

// What the checks find, and how often they run.

const never = Number.POSITIVE_INFINITY;
const times = { ...healthTimes, perSecond: never, writeEvery: 0, remember: never };

/** A check that fails while `failing.reason` is set. */
function checkOf(part: Check['part'], failure: string) {
  const state = { runs: 0, reason: undefined as Error | undefined };
  const run = () => {
    state.runs += 1;
    return state.reason ? Promise.reject(state.reason) : Promise.resolve();
  };
  return { state, check: { part, failure, run } as Check };
}

function healthOf({ redisAt = () => undefined as number | undefined, more = {} } = {}) {
  const lines: string[] = [];
  const [read, write] = [checkOf('database', 'No reads.'), checkOf('storage', 'No writes.')];
  const health = new Health({
    reads: [read.check],
    writes: [write.check],
    redisFailedAt: redisAt,
    log: pino({}, { write: (line: string) => void lines.push(line) }),
    times: { ...times, ...more },
  });
  const look = async () => {
    const { failed, troubles } = await health.look();
    return [failed.map(({ failure }) => failure), Object.fromEntries(troubles)];
  };
  return { health, read: read.state, write: write.state, lines, look };
}

test.serial('each check runs again when its time has come, and all of them a few times a second', async (t) => {
  let at = 100_000;
  performance.now = () => at;
  t.teardown(() => Reflect.deleteProperty(performance, 'now'));
  const rare = healthOf({ more: { writeEvery: 3000 } });
  const writes = async (time: number) => {
    at = time;
    await rare.look();
    return rare.write.runs;
  };
  const found = [await writes(100_000), await writes(102_999), await writes(103_000), await writes(105_999)];
  t.deepEqual(found, [1, 1, 2, 2]);
  const often = healthOf({ more: { perSecond: 2 } });
  const runs: number[] = [];
  for (at of [110_000, 110_000, 110_000, 110_999, 111_000, 111_000, 111_000]) {
    await often.look();
    runs.push(often.read.runs);
  }
  t.deepEqual(runs, [1, 2, 2, 2, 3, 4, 4]);
  const { state, check } = checkOf('storage', 'No reads.');
  const health = new Health({
    reads: [{ ...check, every: 5000 }],
    writes: [],
    redisFailedAt: () => undefined,
    log: pino({ level: 'silent' }),
    times: { ...times, remember: 30_000 },
  });
  const costly: number[] = [];
  for (at of [120_000, 124_999, 125_000, 125_001]) {
    await health.look();
    costly.push(state.runs);
  }
  t.deepEqual(costly, [1, 1, 2, 2]);
  at = 125_000;
  health.note('storage');
  await health.look();
  t.is(state.runs, 3, 'a request has met a failure at the time of the last success');
  at = 155_000;
  t.deepEqual(health.recentlyMet(), ['storage']);
  at = 155_001;
  t.deepEqual(health.recentlyMet(), []);
});

test('a check that fails says what clients are told, and each failure is logged once with its reason', async (t) => {
  const { read, write, lines, look } = healthOf();
  t.deepEqual(await look(), [[], {}]);
  t.deepEqual([read.runs, write.runs], [1, 1]);
  write.reason = new Error('disk');
  t.deepEqual(await look(), [[], { storage: 'No writes.' }]);
  read.reason = new Error('socket');
  t.deepEqual(await look(), [['No reads.'], { storage: 'No writes.', database: 'No reads.' }]);
  t.is(lines.length, 2);
  t.regex(lines[0]!, /disk.*the service is not ready or degraded: No writes\./);
  t.regex(lines[1]!, /socket.*the service is not ready or degraded: No reads\./);
  [read.reason, write.reason] = [undefined, undefined];
  t.deepEqual(await look(), [[], {}]);
  read.reason = new Error('socket');
  await look();
  t.is(lines.length, 3, 'a new failure');
});

test('writes are checked more rarely, and their last result counts until then', async (t) => {
  const { read, write, look } = healthOf({ more: { writeEvery: 3_600_000 } });
  write.reason = new Error('disk');
  for (const runs of [1, 2]) {
    t.deepEqual(await look(), [[], { storage: 'No writes.' }]);
    t.deepEqual([read.runs, write.runs], [runs, 1]);
  }
});

test('callers at the same time share the checks, and further ones of a second get the latest result', async (t) => {
  const { health, read, look } = healthOf();
  t.is(health.look(), health.look());
  await Promise.all([look(), look(), look()]);
  t.is(read.runs, 1);
  await look();
  t.is(read.runs, 2);
  const limited = healthOf({ more: { perSecond: 0 } });
  await limited.look();
  limited.read.reason = new Error('socket');
  t.deepEqual(await limited.look(), [[], {}]);
  t.is(limited.read.runs, 1);
});

test('a check that hangs fails after the limit, and is not started again before its end', async (t) => {
  let runs = 0;
  const hanging = Promise.withResolvers<void>();
  const run = () => {
    runs += 1;
    return hanging.promise;
  };
  const lines: string[] = [];
  const health = new Health({
    reads: [{ part: 'storage', failure: 'It hangs.', run }],
    writes: [],
    redisFailedAt: () => undefined,
    log: pino({}, { write: (line: string) => void lines.push(line) }),
    times: { ...times, limit: 20 },
  });
  for (let look = 0; look < 2; look += 1) t.is((await health.look()).failed.length, 1);
  t.is(runs, 1);
  t.regex(lines[0]!, /no answer within 20 ms/);
  hanging.resolve();
  await hanging.promise;
  await health.look();
  t.is((await health.look()).failed.length, 0);
  t.true(runs > 1);
});

test('what requests have met counts for a time, but for it the service stays ready', async (t) => {
  const { health, look } = healthOf();
  health.note('database');
  t.deepEqual(await look(), [[], { database: 'Requests have met an unavailable database.' }]);
  health.note('storage');
  const troubles = {
    database: 'Requests have met an unavailable database.',
    storage: 'Requests have met an unavailable storage.',
  };
  t.deepEqual(await look(), [[], troubles]);
  t.deepEqual(health.recentlyMet(), ['database', 'storage']);
  const redis = healthOf({ redisAt: () => performance.now() });
  t.deepEqual(await redis.look(), [[], { redis: 'Requests have met an unavailable Redis.' }]);
  const past = healthOf({ redisAt: () => performance.now() - 60_000, more: { remember: 30_000 } });
  t.deepEqual(await past.look(), [[], {}]);
  t.deepEqual(past.health.recentlyMet(), []);
});
