import test from 'ava';
import * as fc from 'fast-check';
import { pino } from 'pino';
import { writeAccess, type AccessLine } from '../../src/http/access-log.ts';

const text = fc.oneof(
  fc.string(),
  fc.string({ unit: 'binary' }),
  fc.constantFrom('\ud800', 'a"b\\c', '\u0000\n\u007f'),
);
const maybe = fc.option(text, { nil: undefined });
const count = fc.nat();
const line: fc.Arbitrary<AccessLine> = fc.record({
  request: fc.uuid(),
  at: count,
  method: fc.constantFrom('GET', 'M-SEARCH'),
  path: text,
  status: count,
  complete: fc.boolean(),
  seconds: fc.double({ min: 0, max: 1e9, noNaN: true }),
  received: count,
  sent: count,
  fetched: count,
  remote: maybe,
  agent: maybe,
  account: maybe,
  token: maybe,
  kind: fc.constantFrom('package', 'container', 'other'),
  subject: text,
  act: fc.constantFrom('download', undefined),
  cache: maybe,
  billable: fc.boolean(),
});

function parsed(each: string): [string, unknown][] {
  return Object.entries(JSON.parse(each) as object).filter(([name]) => name !== 'time');
}

test('a line is the same as the one of pino', (t) => {
  const lines: string[] = [];
  const log = pino({ base: { pid: 7, hostname: 'a"b' } }, { write: (each: string) => lines.push(each) });
  fc.assert(
    fc.property(line, (each) => {
      lines.length = 0;
      writeAccess(log, each);
      log.info(each, 'request');
      t.is(lines.length, 2);
      t.regex(lines[0]!, /^[^\n]*\n$/);
      t.deepEqual(parsed(lines[0]!), parsed(lines[1]!));
    }),
  );
});

test('a log of level warn has no access lines', (t) => {
  const lines: string[] = [];
  const log = pino({ level: 'warn' }, { write: (each: string) => lines.push(each) });
  writeAccess(log, fc.sample(line, 1)[0]!);
  log.warn('this');
  t.is(lines.length, 1);
});
