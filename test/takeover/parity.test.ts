import test from 'ava';
import type { ComparedReference, SideFacts } from '../../src/import/item.ts';
import type { InventoryName, NameState } from '../../src/takeover/inventory.ts';
import { finish, parityOf, type NameParity } from '../../src/takeover/parity.ts';
import type { Predecessor } from '../../src/takeover/predecessor.ts';
import type { Takeover } from '../../src/takeover/takeover.ts';

/** What a server has under a name, what came of it before, and its state; a list that cannot be read is an error. */
interface Given {
  references: ComparedReference[] | Error;
  state?: NameState;
  note?: string;
  came?: string[];
}

/** A takeover in which the servers have these names. */
function takeoverOf(names: Record<string, Given>) {
  const done: unknown[] = [];
  const rows = Object.entries(names).map(([name, { state = 'whole', note = null }]) => {
    return { name, name_key: name.toLowerCase(), state, note } as InventoryName;
  });
  const takeover = {
    readNames: async () => void done.push('read'),
    inventory: {
      pages: async function* () {
        yield rows;
      },
      came: async ({ name }: InventoryName) => new Set(names[name]!.came),
      finish: async (...given: unknown[]) => void done.push(given),
    },
    arrivals: {
      options: async () => ({}),
      comparedOf: (_: unknown, given: { names: string[] }, how: { reading: boolean; withUpstreams: boolean }) => {
        const name = given.names[0]!;
        done.push([name, how.reading, how.withUpstreams]);
        const references = async function* () {
          const found = names[name]!.references;
          if (found instanceof Error) throw found;
          yield* found;
        };
        const phase = async function* () {
          yield { name, references };
        };
        return [phase()];
      },
    },
    adopted: { end: async (name: string) => void done.push(`end ${name}`) },
  };
  return { takeover: takeover as unknown as Takeover, done };
}

const old = { name: 'old', isWanted: (name: string) => name !== 'Excluded' } as Predecessor;
const options = { reading: false, signal: new AbortController().signal };

async function parities(names: Record<string, Given>): Promise<NameParity[]> {
  const found: NameParity[] = [];
  for await (const each of parityOf(takeoverOf(names).takeover, old, options)) found.push(each);
  return found;
}

const same: SideFacts = { hash: 'x', listed: true, publishedAt: 5000, dependencies: 'a' };
const reference = (theirs: SideFacts | undefined, ours: SideFacts | undefined, name = '1.0.0'): ComparedReference => ({
  reference: name,
  theirs,
  ours,
});
const none = { both: 0, missing: [], deleted: [], extra: [], different: {} };

test('what differs of a version that both servers have', async (t) => {
  const cases: [theirs: Partial<SideFacts>, ours: Partial<SideFacts>, different: string[]][] = [
    [{}, {}, []],
    [{ hash: 'y' }, {}, ['hash']],
    [{ hash: undefined }, { hash: undefined }, ['hash']],
    [{ listed: false }, {}, ['listed']],
    [{ listed: false }, { listed: undefined }, ['listed']],
    [{ listed: undefined }, { listed: false }, []],
    [{}, { listed: undefined }, []],
    [{ publishedAt: 5999 }, {}, []],
    [{ publishedAt: 6000 }, {}, ['date']],
    [{ publishedAt: 4999 }, {}, ['date']],
    [{ publishedAt: 0 }, {}, []],
    [{ publishedAt: undefined }, {}, []],
    [{ publishedAt: 9000 }, { publishedAt: undefined }, []],
    [{ publishedAt: 9000, listed: false }, { listed: false }, []],
    [{ dependencies: 'b' }, {}, ['dependencies']],
    [{ dependencies: undefined }, {}, []],
    [{ hash: 'y', listed: false, dependencies: 'b' }, { listed: true }, ['hash', 'listed', 'dependencies']],
  ];
  for (const [theirs, ours, different] of cases) {
    const [found] = await parities({ A: { references: [reference({ ...same, ...theirs }, { ...same, ...ours })] } });
    const result = different.length > 0 ? 'different' : 'same';
    t.deepEqual(
      found as object,
      { ...none, name: 'a', both: 1, result, different: different.length > 0 ? { '1.0.0': different } : {} },
      JSON.stringify([theirs, ours]),
    );
  }
});

test('names are the same, different, mirrored, left to upstreams, or cannot be compared', async (t) => {
  const references = [
    reference(same, same),
    reference(same, undefined, '2.0.0'),
    reference(same, undefined, '3.0.0'),
    reference(undefined, same, '4.0.0'),
  ];
  const clean = [references[0]!, references[3]!];
  const names: Record<string, Given> = {
    Whole: { references: clean },
    Missing: { references, came: ['3.0.0'] },
    Deleted: { references, came: ['2.0.0', '3.0.0'] },
    Mirrored: { references: clean, state: 'mirrored' },
    Alike: { references, state: 'alike' },
    Left: { references, state: 'mirrored', note: 'it was a conflict' },
    Conflict: { references: clean, state: 'conflict', note: 'up.test has other content' },
    Broken: { references: new Error('it is down') },
    Excluded: { references },
  };
  const both = { ...none, both: 1, extra: ['4.0.0'] };
  t.deepEqual((await parities(names)) as object[], [
    { ...both, name: 'whole', result: 'same' },
    { ...both, name: 'missing', result: 'different', missing: ['2.0.0'], deleted: ['3.0.0'] },
    { ...both, name: 'deleted', result: 'same', deleted: ['2.0.0', '3.0.0'] },
    { ...both, name: 'mirrored', result: 'mirrored' },
    { ...both, name: 'alike', result: 'different', missing: ['2.0.0', '3.0.0'] },
    { ...none, name: 'left', result: 'mirrored' },
    { ...both, name: 'conflict', result: 'different', note: 'up.test has other content' },
    { ...none, name: 'broken', result: 'failed', note: 'it is down' },
  ]);
  const many = (theirs?: SideFacts, ours?: SideFacts) =>
    Array.from({ length: 1001 }, (_, at) => reference(theirs, ours, `1.0.${at}`));
  const [found] = await parities({
    A: { references: [...many(same), ...many(undefined, same), ...many(same, { ...same, hash: 'y' })] },
  });
  t.deepEqual(
    [found!.missing.length, found!.extra.length, Object.keys(found!.different).length, found!.both],
    [1000, 1000, 1000, 1001],
  );
});

test('a takeover ends only if nothing differs but what is accepted', async (t) => {
  const broken = { references: new Error('it is down') };
  const ending = async (names: Record<string, Given>, accepted: string[] = [], reading = false) => {
    const { takeover, done } = takeoverOf(names);
    const watched: string[] = [];
    const watch = ({ name }: NameParity) => void watched.push(name);
    const error = await finish(takeover, old, accepted, { ...options, reading, watch }).catch((each: Error) => each);
    return { done, watched, message: error?.message };
  };
  const names: Record<string, Given> = {
    Same: { references: [] },
    Mirrored: { references: [], state: 'mirrored' },
    Broken: broken,
  };
  t.deepEqual(await ending(names, ['BROKEN'], true), {
    done: [
      'read',
      ['Same', true, false],
      ['Mirrored', true, true],
      ['Broken', true, false],
      ['old', ['BROKEN']],
      'end old',
    ],
    watched: ['same', 'mirrored', 'broken'],
    message: undefined,
  });
  const refused = await ending(names);
  t.is(refused.message, 'old is not taken over: broken differ. Bring them, or name them with --accept.');
  t.deepEqual(refused.done.at(-1), ['Broken', false, false], 'it goes on');
  const many = Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`n${at}`, broken]));
  const list = Array.from({ length: 10 }, (_, at) => `n${at}`).join(', ');
  t.is(
    (await ending(many)).message,
    `old is not taken over: ${list} and 2 more differ. Bring them, or name them with --accept.`,
  );
});
