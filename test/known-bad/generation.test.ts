import test, { type ExecutionContext } from 'ava';
import type { Database } from '../../src/database/database.ts';
import { defaultListLimits, type ListLimits } from '../../src/known-bad/entry.ts';
import { Generation, insertList, removeList, Superseded, sweepList } from '../../src/known-bad/generation.ts';
import type { Generations, Hits } from '../../src/known-bad/in-use.ts';
import type { NewEntry, ReadRecord } from '../../src/known-bad/record.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// How the entries of a list are replaced, without a source.

function entry(key: string, more: Partial<NewEntry> = {}): NewEntry {
  return { kind: 'package', key, detail: { reason: '' }, ...more };
}

const record = (id: string, ...entries: NewEntry[]): ReadRecord => ({ id, entries });
const state = { validator: 'v', etag: 'e' };
const noHits = () => Promise.resolve({ added: [], known: [] });

async function open(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  let transactions = 0;
  const counting = changedDatabase(database, {
    transaction: (work, options) => {
      transactions += 1;
      return database.transaction(work, options);
    },
  });
  return {
    database,
    counting,
    transactions: () => transactions,
    begin: (list: string, limits: Partial<ListLimits> = {}, on: Database = database) =>
      Generation.begin(on, list, { ...defaultListLimits, ...limits }),
    entries: async () =>
      (
        await database.select<{ list: string; generation: number; id: string; part: number; name_key: string }>(
          'SELECT list, generation, id, part, name_key FROM bad_entries ORDER BY list, generation, id, part',
        )
      ).map(({ list, generation, id, part, name_key: key }) => `${list}${generation} ${id}.${part} ${key}`),
    lists: () =>
      database.select(
        `SELECT name, generation, staged, entry_count AS entries, source_key AS source, validator, etag, refreshed_at AS refreshed,
           checked_at AS checked, failures, in_use AS hits FROM bad_lists ORDER BY name`,
      ),
    events: async () =>
      (
        await database.select<{ type: string; name: string; time: number; details: string }>(
          'SELECT type, subject_name AS name, time, details FROM events ORDER BY id',
        )
      ).map(({ type, name, time, details }) => `${type} ${name} ${time} ${details}`),
  };
}

test('a generation is shown in one step, its list is told what is new, and the earlier one is deleted', async (t) => {
  const { database, begin, entries, lists, events } = await open(t);
  const asked: Generations[] = [];
  const hitsOf = (hits: Hits) => (generations: Generations) => {
    asked.push(generations);
    return Promise.resolve(hits);
  };
  const first = await begin('a');
  await first.add(record('X-1', entry('lib'), entry('other')));
  await first.add(record('X-1', entry('again')));
  await first.add(record('X-2', entry('lib', { kind: 'image' })));
  t.is(await first.publish('key', state, hitsOf({ added: [], known: [] }), 10), 2);
  t.deepEqual(await entries(), ['a1 X-1.0 again', 'a1 X-2.0 lib']);
  const shown = {
    name: 'a',
    generation: 1,
    staged: 1,
    entries: 2,
    source: 'key',
    ...state,
    refreshed: 10,
    checked: 10,
    failures: 0,
  };
  t.deepEqual(await lists(), [{ ...shown, hits: '[]' }]);

  // The same entries of another list say nothing of that list.
  const other = await begin('b');
  await other.add(record('X-1', entry('again')));
  await other.add(record('X-2', entry('lib', { kind: 'image' })));
  const hit = { id: 'X-1', kind: 'package', name: 'Again', references: ['1.0', '2.0'], digests: ['d'], usedAt: 5 };
  t.is(
    await other.publish(
      'key',
      { validator: 'w', etag: null },
      hitsOf({ added: [hit], known: [{ ...hit, id: 'X-2' }] }),
      20,
    ),
    2,
  );
  t.deepEqual(asked, [
    { list: 'a', next: 1, current: 0 },
    { list: 'b', next: 1, current: 0 },
  ]);
  t.like((await lists())[1], { name: 'b', hits: JSON.stringify([hit, { ...hit, id: 'X-2' }]), etag: null });
  t.deepEqual(await events(), [
    'known_bad.refreshed a 10 {"entries":2,"entries_before":0,"in_use":0}',
    'known_bad.in_use Again 20 {"list":"b","id":"X-1","references":["1.0","2.0"],"digests":["d"],"last_used_at":"1970-01-01T00:00:00.005Z"}',
    'known_bad.refreshed b 20 {"entries":2,"entries_before":0,"in_use":1}',
  ]);

  await database.transaction((tx) => tx.run('UPDATE bad_lists SET failures = 3'));
  const same = await begin('b');
  await same.add(record('X-2', entry('lib', { kind: 'image' })));
  await same.add(record('X-1', entry('again')));
  t.is(await same.publish('key 2', state, hitsOf({ added: [hit], known: [] }), 30), 2);
  t.is(asked.length, 2, 'of the same entries nothing is asked');
  t.like((await lists())[1], {
    generation: 2,
    source: 'key 2',
    refreshed: 30,
    failures: 0,
    hits: JSON.stringify([hit, { ...hit, id: 'X-2' }]),
  });
  t.is((await events()).length, 3);
  t.deepEqual(await entries(), ['a1 X-1.0 again', 'a1 X-2.0 lib', 'b2 X-1.0 again', 'b2 X-2.0 lib']);

  const fewer = await begin('b');
  await fewer.add(record('X-2', entry('lib')));
  await fewer.publish('key', state, hitsOf({ added: [], known: [] }), 40);
  t.deepEqual(asked[2], { list: 'b', next: 3, current: 2 });
  t.is((await events())[3], 'known_bad.refreshed b 40 {"entries":1,"entries_before":2,"in_use":0}');
  t.deepEqual(await entries(), ['a1 X-1.0 again', 'a1 X-2.0 lib', 'b3 X-2.0 lib']);
});

test('a change of any part of an entry is a change of the list', async (t) => {
  const { begin, events } = await open(t);
  const variants = [
    record('X', entry('a')),
    record('Y', entry('a')),
    record('Y', entry('b')),
    record('Y', entry('b', { kind: 'image' })),
    record('Y', entry('b', { kind: 'image', detail: { reason: 'why' } })),
    record('Y', entry('b', { kind: 'image', detail: { reason: 'why' } }), entry('c')),
    record('Y'),
  ];
  for (const [at, each] of variants.entries()) {
    for (let time = 0; time < 2; time += 1) {
      const generation = await begin('a');
      await generation.add(each);
      await generation.publish('', state, noHits, at);
    }
    t.is((await events()).length, at + 1, `variant ${at}`);
  }
});

test('what is in use is told before the list denies it', async (t) => {
  const { database, begin } = await open(t);
  const first = await begin('a');
  await first.add(record('X', entry('a')));
  const hit = { id: 'X', kind: 'package', name: 'a', references: [], digests: [], usedAt: 1 };
  const order: string[] = [];
  const watched = changedDatabase(database, {
    transaction: async (work, options) => {
      const result = await database.transaction(work, options);
      const [row] = await database.select<{ told: number }>(
        "SELECT COUNT(*) AS told FROM events WHERE type = 'known_bad.in_use'",
      );
      const [list] = await database.select<{ generation: number }>("SELECT generation FROM bad_lists WHERE name = 'b'");
      order.push(`${row!.told} ${list?.generation}`);
      return result;
    },
  });
  const second = await begin('b', {}, watched);
  await second.add(record('X', entry('a')));
  order.length = 0;
  await second.publish('', state, () => Promise.resolve({ added: [hit], known: [] }), 1);
  t.deepEqual(order.slice(0, 3), ['0 0', '1 0', '1 1']);
});

const large = (bytes: number) =>
  entry('large', { detail: { reason: 'x'.repeat(bytes - JSON.stringify({ reason: '' }).length) } });

test('records are written some at a time, by their number, their rows and their bytes', async (t) => {
  const { counting, transactions, begin } = await open(t);
  const writes = async (records: readonly ReadRecord[]) => {
    const generation = await begin('a', {}, counting);
    const before = transactions();
    const after: number[] = [];
    for (const each of records) {
      await generation.add(each);
      after.push(transactions() - before);
    }
    return [after.findIndex((count) => count > 0), after.at(-1)];
  };
  const many = (count: number, entries = 1) =>
    Array.from({ length: count }, (_, at) =>
      record(`X-${at}`, ...Array.from({ length: entries }, (_, part) => entry(`p${part}`))),
    );
  t.deepEqual(await writes(many(499)), [-1, 0]);
  t.deepEqual(await writes(many(1000)), [499, 2]);
  t.deepEqual(await writes(many(1000, 0)), [499, 2], 'withdrawn records, too');
  t.deepEqual(await writes(many(10, 100)), [4, 2]);
  t.deepEqual(await writes([record('L', large(2 ** 20 - 1)), record('M', large(20)), record('N')]), [1, 1]);
  t.deepEqual(await writes([record('L', large(2 ** 20)), ...many(3)]), [0, 1]);
});

test('each bound of a list can be reached, and is told when it is passed', async (t) => {
  const { begin } = await open(t);
  const bytes = JSON.stringify({ reason: '' }).length;
  const cases: [limits: Partial<ListLimits>, records: ReadRecord[], message: string | undefined][] = [
    [{ entries: 2 }, [record('X', entry('a'), entry('b'))], undefined],
    [{ entries: 1 }, [record('X', entry('a'), entry('b'))], 'has more than 1 entries'],
    [{ entryBytes: 2 * bytes }, [record('X', entry('a')), record('Y', entry('b'))], undefined],
    [
      { entryBytes: 2 * bytes - 1 },
      [record('X', entry('a')), record('Y', entry('b'))],
      `has more than ${2 * bytes - 1} bytes of entries`,
    ],
    [
      { entriesOfName: 2 },
      [record('X', entry('a'), entry('a')), record('Y', entry('b'), entry('a', { kind: 'image' }))],
      undefined,
    ],
    [
      { entriesOfName: 1, bytesOfName: 99 },
      [record('X', entry('a')), record('Y', entry('a'))],
      'has more than 1 entries, or 99 bytes, for package a',
    ],
    [
      { bytesOfName: 2 * bytes },
      [record('X', entry('a')), record('Y', entry('a')), record('Z', entry('b'))],
      undefined,
    ],
    [
      { bytesOfName: 2 * bytes - 1, entriesOfName: 9 },
      [record('X', entry('a')), record('Y', entry('a'))],
      `has more than 9 entries, or ${2 * bytes - 1} bytes, for package a`,
    ],
    [
      { entriesOfName: 1, bytesOfName: 99 },
      [record('X', entry('a*', { kind: 'pattern' }), entry('b*', { kind: 'pattern' }))],
      'has more than 1 entries, or 99 bytes, for patterns',
    ],
    [
      { entriesOfName: 1, bytesOfName: 99 },
      [record('X', entry('d1', { kind: 'digest' }), entry('d2', { kind: 'digest' }))],
      undefined,
    ],
  ];
  for (const [at, [limits, records, message]] of cases.entries()) {
    const work = async () => {
      const generation = await begin(`l${at}`, limits);
      for (const each of records) await generation.add(each);
      return generation.publish('', state, noHits, 1);
    };
    if (message === undefined)
      t.is(
        await work(),
        records.reduce((sum, { entries }) => sum + entries.length, 0),
        `case ${at}`,
      );
    else await t.throwsAsync(work(), { message }, `case ${at}`);
  }
});

test('more entries than one statement reads are all counted', async (t) => {
  const { begin } = await open(t);
  const generation = await begin('a', { entriesOfName: 2000 });
  for (let at = 0; at < 1001; at += 1) await generation.add(record(`X-${at}`, entry('same')));
  t.is(await generation.publish('', state, noHits, 1), 1001);
  const strict = await begin('a', { entriesOfName: 1000 });
  for (let at = 0; at < 1001; at += 1) await strict.add(record(`X-${at}`, entry('same')));
  await t.throwsAsync(strict.publish('', state, noHits, 1), { message: /^has more than 1000 entries/ });
});

test('of two runs that write one list, the earlier one fails', async (t) => {
  const { begin, entries, lists } = await open(t);
  const early = await begin('a');
  await early.add(record('X', entry('a')));
  const late = await begin('a');
  await late.add(record('Y', entry('a')));
  const superseded = { instanceOf: Superseded, message: 'another run reads the list "a" now' };
  await t.throwsAsync(early.publish('', state, noHits, 1), superseded);
  t.is(await late.publish('', state, noHits, 2), 1);
  t.deepEqual(await entries(), ['a2 Y.0 a']);
  const empty = await begin('b');
  await begin('b');
  await t.throwsAsync(empty.publish('', state, noHits, 1), {
    ...superseded,
    message: 'another run reads the list "b" now',
  });
  t.like((await lists())[1], { name: 'b', generation: 0, staged: 2, entries: 0, refreshed: null });
});

test('what is not published is discarded, and what is published stays', async (t) => {
  const { database, begin, entries } = await open(t);
  const published = await begin('a');
  await published.add(record('X', entry('a')));
  await published.publish('', state, noHits, 1);
  await published.discard();
  t.deepEqual(await entries(), ['a1 X.0 a']);
  const dropped = await begin('a');
  for (let at = 0; at < 1001; at += 1) await dropped.add(record(`Y-${at}`, entry('b')));
  t.is((await entries()).length, 1001, 'the last one waits');
  await dropped.discard();
  t.deepEqual(await entries(), ['a1 X.0 a']);
  await database.transaction((tx) => tx.run('DELETE FROM bad_lists'));
  await dropped.discard();
  t.is((await entries()).length, 1);
});

test('what earlier runs have left is swept, and a list that is not configured any more is removed', async (t) => {
  const { database, begin, entries, lists } = await open(t);
  const write = async (list: string, id: string, isPublished: boolean) => {
    const generation = await begin(list, {});
    // Enough for a write.
    for (let at = 0; at < 500; at += 1) await generation.add(record(`${id}-${at}`, entry(id.toLowerCase())));
    if (isPublished) await generation.publish('', state, noHits, 1);
  };
  await write('b', 'X', true);
  await write('a', 'X', false);
  await write('a', 'Y', true);
  t.is((await entries()).length, 1000, 'a publication deletes what is before it');
  await sweepList(database, 'a', 2);
  t.like(await lists(), [{ name: 'a', staged: 2 }, { name: 'b' }], 'nothing is left');
  await write('a', 'Z', false);
  await sweepList(database, 'a', 2);
  t.like(await lists(), [
    { name: 'a', generation: 2, staged: 4 },
    { name: 'b', staged: 1 },
  ]);
  t.deepEqual([...new Set((await entries()).map((each) => each.split(' ')[0]))], ['a2', 'b1']);
  const some = { list: 'a', kind: 'package', name_key: 'x', part: 0, size_bytes: 1, hash: 'h', detail: '{}' };
  await database.transaction((tx) => tx.insertNew('bad_entries', [{ ...some, generation: 1, id: 'old' }]));
  await sweepList(database, 'a', 2);
  t.is((await entries()).length, 1000);

  await removeList(database, 'a');
  t.deepEqual([...new Set((await entries()).map((each) => each.split(' ')[0]))], ['b1']);
  t.like(await lists(), [{ name: 'b', generation: 1, entries: 500 }]);
  t.is((await lists()).length, 1);
  await database.transaction((tx) => insertList(tx, 'b'));
  t.like(await lists(), [{ name: 'b', generation: 1, entries: 500 }], 'it is there already');
  await database.transaction((tx) => insertList(tx, 'c'));
  t.deepEqual((await lists())[1], {
    name: 'c',
    generation: 0,
    staged: 0,
    entries: 0,
    source: '',
    validator: '',
    etag: null,
    refreshed: null,
    checked: null,
    failures: 0,
    hits: null,
  });
});
