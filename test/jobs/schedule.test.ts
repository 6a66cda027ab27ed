import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import test from 'ava';
import { Schedule } from '../../src/jobs/schedule.ts';

const at = (text: string) => Date.parse(`${text}Z`);

test('the latest due time is in UTC, in any time zone of the machine', (t) => {
  const daily = new Schedule('15 3 * * *');
  t.is(daily.latest(at('2026-03-01T03:14:59'), at('2026-03-01T03:15:00')), at('2026-03-01T03:15:00'));
  t.is(daily.latest(at('2026-03-01T03:15:00'), at('2026-03-01T03:15:01')), undefined, 'once');
  t.is(daily.latest(at('2026-03-01T03:14:59'), at('2026-03-01T03:14:59.999')), undefined);
  t.is(daily.latest(at('2026-03-01T00:00:00'), at('2026-03-01T09:00:00')), at('2026-03-01T03:15:00'), 'hours late');
  t.is(daily.latest(at('2020-01-01T00:00:00'), at('2026-03-01T09:00:00')), at('2026-03-01T03:15:00'), 'ahead by years');
  t.is(daily.latest(at('2026-03-01T09:00:00'), at('2026-03-01T03:15:00')), undefined, 'set back');
});

test('due times at the end of a month and a year', (t) => {
  const monthly = new Schedule('0 0 1 * *');
  t.is(monthly.latest(at('2026-02-28T23:59:59.999'), at('2026-03-01T00:00:00')), at('2026-03-01T00:00:00'));
  t.is(monthly.latest(at('2026-02-28T23:59:00'), at('2026-02-28T23:59:59.999')), undefined);
  t.is(monthly.latest(at('2026-12-31T23:59:59'), at('2027-01-01T00:00:00')), at('2027-01-01T00:00:00'));
});

test('an expression with six fields is precise to the second', (t) => {
  const often = new Schedule('*/20 * * * * *');
  t.is(often.latest(at('2026-03-01T00:00:00'), at('2026-03-01T00:00:19.999')), undefined);
  t.is(often.latest(at('2026-03-01T00:00:00'), at('2026-03-01T00:01:05')), at('2026-03-01T00:01:00'));
  t.is(new Schedule('@hourly').latest(at('2026-03-01T00:30:00'), at('2026-03-01T01:30:00')), at('2026-03-01T01:00:00'));
});

test('the next time is in the future', (t) => {
  const next = new Schedule('30 4 * * *').next();
  t.true(next > Date.now() && next <= Date.now() + 86_400_000);
  t.regex(new Date(next).toISOString(), /T04:30:00\.000Z$/);
});

test('times are in UTC on a machine in another time zone', (t) => {
  const schedule = join(import.meta.dirname, '../../src/jobs/schedule.ts');
  const script = `
    const { Schedule } = await import(${JSON.stringify(schedule)});
    const daily = new Schedule('15 3 * * *');
    const latest = daily.latest(Date.parse('2026-03-01T00:00:00Z'), Date.parse('2026-03-01T23:59:00Z'));
    console.log([new Date().getTimezoneOffset(), new Date(latest).toISOString(), new Date(daily.next()).toISOString()].join());
  `;
  for (const [zone, offset] of [
    ['Asia/Kolkata', '-330'],
    ['Etc/GMT+11', '660'],
  ] as const) {
    const env = { ...process.env, TZ: zone };
    const said = execFileSync(process.execPath, ['--input-type=module', '--eval', script], { env, encoding: 'utf8' });
    t.regex(said, new RegExp(`^${offset},2026-03-01T03:15:00.000Z,.*T03:15:00.000Z$`, 'm'), zone);
  }
});
