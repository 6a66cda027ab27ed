import test from 'ava';
import { authorityOf, hostnameOf, isLoopback } from '../../src/runtime/authority.ts';
import { jsonItem } from '../../src/runtime/json-item.ts';
import { hasMoreValues } from '../../src/runtime/json-values.ts';
import { concatInTurns, joinInTurns, splitInTurns } from '../../src/runtime/long-texts.ts';
import { dayText, endOfDay } from '../../src/runtime/past-day.ts';
import { Recent } from '../../src/runtime/recent.ts';
import { sourceLines } from '../../src/runtime/source-lines.ts';

// Small functions for texts, names and times.

test('long texts are split, joined and put together as short ones', async (t) => {
  t.deepEqual(await splitInTurns(''), []);
  for (const text of ['a', 'a\nb', '\n\nc', `${'a'.repeat(20_000)}\nb\n${'c\n'.repeat(40_000)}d`, 'a'.repeat(16_384)]) {
    const lines = text.split('\n');
    t.deepEqual(await splitInTurns(text), lines);
    t.is(await joinInTurns(lines), text);
  }
  t.is(await joinInTurns([]), '');
  const pieces = [Buffer.from('one'), Buffer.alloc(0), Buffer.from('two')];
  const whole = await concatInTurns(pieces);
  t.is(whole.toString(), 'onetwo');
  t.is(whole.buffer.byteLength, 6, 'in memory of its own');
  t.is((await concatInTurns([])).length, 0);
});

const more = (text: string, most: number) => hasMoreValues(Buffer.from(text), most);

test('values of a JSON text are counted without those in strings', (t) => {
  for (const [text, values] of [
    ['1', 0],
    ['[1]', 1],
    ['[1,2]', 2],
    ['{"a":[1,{"b":2}]}', 4],
    ['["[,{", "\\"[,", "\\\\"]', 3],
    ['["[[[', 1],
  ] as const) {
    t.false(more(text, values), text);
    if (values > 0) t.true(more(text, values - 1), text);
  }
});

test('a day ends with its last millisecond, and days that do not exist or are to come are refused', (t) => {
  const now = Date.UTC(2026, 8, 2);
  t.is(endOfDay('2026-09-01', now), now - 1);
  t.is(endOfDay('2026-09-02', now), now + 86_400_000 - 1, 'today');
  t.is(dayText(now - 1), '2026-09-01');
  t.is(dayText(now), '2026-09-02');
  for (const text of ['2026-02-30', '2026-13-01', '2026-9-1', ' 2026-09-01', '2026-09-01T00:00:00Z', ''])
    t.throws(() => endOfDay(text, now), {
      name: 'Invalid',
      message: `"${text.slice(0, 20)}" is not a date. Write it as in as-of/2026-09-01.`,
    });
  t.throws(() => endOfDay('2026-09-03', now), {
    name: 'Invalid',
    message: "2026-09-03 is in the future. The latest date is today's: 2026-09-02 (UTC).",
  });
});

test('hosts are written as in a URL', (t) => {
  t.deepEqual(
    ['hub.test', '127.0.0.1', '::1'].map((host) => authorityOf(host, 80)),
    ['hub.test:80', '127.0.0.1:80', '[::1]:80'],
  );
  t.deepEqual(['HUB.test', '::1', '0:0::1', 'fe80::1%eth0', ''].map(hostnameOf), [
    'hub.test',
    '[::1]',
    '[::1]',
    'fe80::1%eth0',
    '',
  ]);
  for (const host of ['localhost', '[::1]', '127.0.0.1', '127.255.1.2']) t.true(isLoopback(host), host);
  for (const host of ['::1', '128.0.0.1', '127.0.0.1.test', 'a127.0.0.1', 'localhost.test', '[::2]'])
    t.false(isLoopback(host), host);
});

test('the fields of a row have the names of the interface, and its times are texts', (t) => {
  const row = { id: 1, createdAt: 0, endedAt: null, whatAt: 'x', atAll: 5, aBC: [1] };
  for (let each = 0; each < 2; each += 1)
    t.deepEqual(jsonItem(row) as object, {
      id: 1,
      created_at: '1970-01-01T00:00:00.000Z',
      ended_at: null,
      what_at: 'x',
      at_all: 5,
      a_b_c: [1],
    });
});

test('what was used last stays', (t) => {
  const recent = new Recent<string, number>(2);
  recent.set('a', 1).set('b', 2);
  t.is(recent.get('a'), 1);
  recent.set('c', 3);
  t.deepEqual([recent.get('a'), recent.get('b'), recent.get('c')], [1, undefined, 3]);
});

const last = (index: string) => sourceLines(index, 'ent_x').at(-1);

test('the lines for a feed allow insecure connections only where it has one', (t) => {
  const line =
    'dotnet nuget add source https://hub.test/v3/index.json --name entrepot --username api --password ent_x --store-password-in-clear-text';
  t.is(last('https://hub.test/v3/index.json'), line);
  t.is(last('http://hub.test/v3/index.json'), `${line.replace('https:', 'http:')} --allow-insecure-connections`);
});
