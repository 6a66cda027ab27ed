import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import {
  Inventory,
  isLeftName,
  isMirroredName,
  namesAtATime,
  type InventoryName,
} from '../../src/takeover/inventory.ts';
import { testClock } from '../support/clock.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What is kept of the names of predecessors. requests.test.ts has what follows from it.

async function open(t: ExecutionContext, dialect: Dialect) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await migrate(database);
  const clock = testClock(5000);
  const inventory = new Inventory(database, clock.time);
  const of = async (predecessor: string, ...states: InventoryName['state'][]) => {
    const found: InventoryName[][] = [];
    for await (const page of inventory.pages(predecessor, states)) found.push([...page]);
    return found;
  };
  const names = async (predecessor: string, ...states: InventoryName['state'][]) =>
    (await of(predecessor, ...states)).flat().map(({ name }) => name);
  const events = async () =>
    (await database.select<{ type: string; details: string }>('SELECT type, details FROM events')).map((each) => [
      each.type,
      JSON.parse(each.details),
    ]);
  return { database, clock, inventory, of, names, events };
}

const named = (...names: string[]) => names.map((name) => ({ name, key: name.toLowerCase().replace('x/', '') }));

for (const dialect of dialects) {
  test(`${dialect}: names are added once, and are settled one by one`, async (t) => {
    const { inventory, names, of, clock, events } = await open(t, dialect);
    t.is(await inventory.takeover('old'), undefined);
    await inventory.begin('old', 'source');
    await inventory.begin('other', 'source');
    const row = { predecessor: 'old', source: 'source', read_at: null, warning: null, finished_at: null };
    t.deepEqual({ ...(await inventory.takeover('old')) }, row);
    t.deepEqual(await inventory.add('old', named('Lib', 'x/b')), []);
    t.deepEqual(await inventory.add('old', named('LIB', 'b', 'C')), [['x/b', 'b']], 'the first one is kept');
    await inventory.add('other', named('lib'));
    t.deepEqual(await names('old', 'new'), ['Lib', 'x/b', 'C']);
    t.deepEqual((await inventory.find('lib')).map(({ predecessor }) => predecessor).toSorted(), ['old', 'other']);
    await inventory.noteRead('old', 'w'.repeat(600));
    t.deepEqual({ ...(await inventory.takeover('old')) }, { ...row, read_at: 5000, warning: 'w'.repeat(500) });
    await inventory.noteRead('old', null);
    t.is((await inventory.takeover('old'))!.warning, null);
    t.is((await inventory.takeover('other'))!.read_at, null);

    const [lib, b] = (await of('old', 'new')).flat();
    await inventory.settle(lib!, 'conflict', 'n'.repeat(600));
    await inventory.settle(b!, 'partial', null);
    t.deepEqual(await names('old', 'new', 'partial'), ['x/b', 'C']);
    t.deepEqual(Object.fromEntries(await inventory.counts('old')), { conflict: 1, new: 1, partial: 1 });
    t.is((await inventory.find('lib')).find(({ predecessor }) => predecessor === 'old')!.note, 'n'.repeat(500));

    t.false(await inventory.leave('old', 'b'), 'nothing of it differs');
    t.false(await inventory.leave('other', 'lib'));
    t.true(await inventory.leave('old', 'LIB'));
    t.false(await inventory.leave('old', 'lib'), 'it was left before');
    const left = (await of('old', 'mirrored')).flat()[0]!;
    t.deepEqual([left.name, isLeftName(left), isMirroredName(left)], ['Lib', true, true]);
    clock.now = 7000;
    await inventory.finish(
      'old',
      Array.from({ length: 101 }, (_, index) => `n${index}`),
    );
    t.deepEqual(
      [(await inventory.takeover('old'))!.finished_at, (await inventory.takeover('other'))!.finished_at],
      [7000, null],
    );
    t.deepEqual(await events(), [
      ['takeover.left', { name: 'lib' }],
      ['takeover.finished', { accepted: Array.from({ length: 100 }, (_, index) => `n${index}`) }],
    ]);
  });

  test(`${dialect}: what came is noted by name, and another source of the same name begins anew`, async (t) => {
    const { database, inventory, names, of } = await open(t, dialect);
    for (const each of ['old', 'other']) await inventory.begin(each, 'source');
    const many = Array.from({ length: 600 }, (_, index) => `n${String(index).padStart(3, '0')}`);
    await inventory.add('old', named(...many));
    await inventory.add('other', named('a'));
    const pages = await of('old', 'new');
    t.deepEqual(
      pages.map(({ length }) => length),
      [namesAtATime, namesAtATime, namesAtATime],
    );
    const [one, two] = pages[0]!;
    await inventory.record(one!, '1.0.0');
    await inventory.record(one!, '1.0.0');
    await inventory.record(one!, 'r'.repeat(300));
    await inventory.record((await of('other', 'new'))[0]![0]!, '1.0.0');
    t.deepEqual(await inventory.came(one!), new Set(['1.0.0', 'r'.repeat(255)]));
    t.deepEqual([await inventory.hasCome(one!, '1.0.0'), await inventory.hasCome(one!, '2.0.0')], [true, false]);
    t.false(await inventory.hasCome(two!, '1.0.0'));
    await inventory.begin('old', 'source');
    t.is((await names('old', 'new')).length, 600, 'it goes on');
    await inventory.noteRead('old', null);
    await inventory.begin('old', 'another source');
    t.deepEqual(await names('old', 'new'), []);
    t.like(await inventory.takeover('old'), { source: 'another source', read_at: null });
    t.deepEqual(await names('other', 'new'), ['a']);
    t.is((await database.select('SELECT * FROM takeover_references')).length, 1);
  });
}

test('which names upstreams serve, and which a person left to them', (t) => {
  for (const [state, note, isMirrored, isLeft] of [
    ['mirrored', null, true, false],
    ['mirrored', '', true, true],
    ['alike', 'x', true, false],
    ['conflict', 'x', false, false],
    ['whole', null, false, false],
  ] as const)
    t.deepEqual([isMirroredName({ state }), isLeftName({ state, note })], [isMirrored, isLeft], state);
});
