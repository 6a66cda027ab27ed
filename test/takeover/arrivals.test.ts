import test from 'ava';
import type { ImportItem, ImportOptions, ImportResult } from '../../src/import/item.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { Arrivals } from '../../src/takeover/arrivals.ts';
import type { InventoryName } from '../../src/takeover/inventory.ts';
import type { Predecessor } from '../../src/takeover/predecessor.ts';

// What becomes of a name when its versions come, without servers.

/** A version of a predecessor: what becomes of it, and of one that came before. An error ends the list. */
type Version =
  | Error
  | { reference: string; result?: Partial<ImportResult> | Error; again?: Partial<ImportResult>; isHosted?: boolean };

interface Given {
  versions: Version[];
  came?: string[];
  state?: InventoryName['state'];
  note?: string | null;
}

const old = {
  name: 'old',
  config: { kind: 'nuget', account: 'team' },
  source: { from: 'old' },
  nameHere: (name: string) => name,
  isWanted: () => true,
} as unknown as Predecessor;

const resultOf = (given: Partial<ImportResult> | Error | undefined) => {
  if (given instanceof Error) throw given;
  return Promise.resolve({ outcome: 'imported' as const, bytes: 1, ...given });
};

const itemOf = (name: string, { reference, result, again, isHosted }: Exclude<Version, Error>): ImportItem => ({
  name,
  reference,
  run: async () => resultOf(result),
  ...(again && { again: async () => resultOf(again) }),
  ...(isHosted !== undefined && { isHosted }),
});

async function arrive(
  names: Record<string, Given>,
  { references, failure }: { references?: string[]; failure?: Error } = {},
) {
  const done: string[] = [];
  const importFrom = (source: { from: string }, options: ImportOptions) => {
    done.push(`asked ${source.from} ${options.accountId} ${options.names?.join()} ${options.references?.join()}`);
    return [
      (async function* () {
        for (const [name, { versions }] of Object.entries(names))
          yield {
            name: name.toUpperCase(),
            items: async function* () {
              for (const each of versions) {
                if (each instanceof Error) throw each;
                yield itemOf(name, each);
              }
            },
          };
        if (failure) throw failure;
        yield { name: 'another', items: async function* () {} };
      })(),
    ];
  };
  const settle = async ({ id }: InventoryName, state: string, note: string | null) =>
    void done.push(`settle ${id} ${state} ${note}`);
  const inventory = {
    came: async ({ name }: InventoryName) => new Set(names[name]!.came),
    record: async ({ id }: InventoryName, reference: string) => void done.push(`record ${id} ${reference}`),
    settle,
  };
  const parts = {
    inventory,
    accounts: { named: async (name: string) => (name === 'team' ? { id: 7, name } : undefined) },
    protocols: [
      { kind: 'container', upstreams: { kind: 'registry' }, importFrom: () => [], holds: () => true },
      { kind: 'package', upstreams: { kind: 'nuget' }, importFrom, holds: () => true },
    ],
  } as unknown as ConstructorParameters<typeof Arrivals>[0];
  const rows = Object.entries(names).map(([name, { state = 'new', note = null }]) => {
    return { id: name, name, state, note } as unknown as InventoryName;
  });
  const { signal } = new AbortController();
  const { found, stopped } = await new Arrivals(parts).run(old, rows, { signal, concurrency: 1, references });
  const told = found.map(({ ended, hadSome, came, imported, mirrored, problems, failure: why }) => {
    return { ended, hadSome, came, imported, mirrored, problems: [...problems.keys()], why: why?.message };
  });
  return { done: done.slice(1), asked: done[0], told, stopped };
}

const broken = new DomainError('Invalid', 'it is damaged');
const conflict = { outcome: 'conflict', note: 'it differs' } as const;
const shared = { ...conflict, note: 'up.test has other content', alsoAt: 'up.test' } as const;
const mirrored = { outcome: 'mirrored' } as const;

test('a name is settled by what became of its versions', async (t) => {
  const cases: [given: Given, done: string[], told?: object][] = [
    [{ versions: [] }, ['settle lib whole null'], { ended: true, came: 0, problems: [] }],
    [
      { versions: [{ reference: '1.0' }, { reference: '2.0', result: { outcome: 'present' } }] },
      ['record lib 1.0', 'record lib 2.0', 'settle lib whole null'],
      { came: 2, imported: 1, mirrored: 0, hadSome: false },
    ],
    [
      { versions: [{ reference: '1.0' }, { reference: '2.0', result: broken }] },
      ['record lib 1.0', 'settle lib partial it is damaged'],
      { problems: ['2.0'], ended: true },
    ],
    [{ versions: [{ reference: '1.0', result: broken }] }, ['settle lib new it is damaged']],
    [
      { versions: [{ reference: '1.0' }, { reference: '2.0', result: conflict }] },
      ['record lib 1.0', 'settle lib partial it differs'],
    ],
    [{ versions: [{ reference: '1.0', result: conflict }] }, ['settle lib partial it differs']],
    [
      { versions: [{ reference: '1.0', result: shared }] },
      ['settle lib conflict up.test has other content'],
      { problems: ['1.0'] },
    ],
    [
      { versions: [{ reference: '1.0' }, { reference: '2.0', result: shared }] },
      ['record lib 1.0', 'settle lib partial up.test has other content'],
    ],
    [{ versions: [{ reference: '1.0', result: mirrored }] }, ['settle lib mirrored null'], { mirrored: 1, came: 0 }],
    [
      {
        versions: [
          { reference: '1.0', result: mirrored },
          { reference: '2.0', result: broken },
        ],
      },
      ['settle lib alike it is damaged'],
    ],
    [{ versions: [], state: 'mirrored' }, []],
    [{ versions: [], state: 'mirrored', note: 'old' }, ['settle lib mirrored null']],
    [
      { versions: [{ reference: '1.0' }], state: 'mirrored' },
      ['settle lib new null', 'record lib 1.0', 'settle lib whole null'],
    ],
    [
      { versions: [{ reference: '1.0', isHosted: true, result: broken }], state: 'alike' },
      ['settle lib new null', 'settle lib new it is damaged'],
    ],
    [{ versions: [{ reference: '1.0' }], came: ['1.0'], state: 'whole' }, [], { hadSome: true, came: 0 }],
    [
      { versions: [{ reference: '1.0', again: conflict }], came: ['1.0'], state: 'whole' },
      ['settle lib partial it differs'],
      { hadSome: true, problems: ['1.0'] },
    ],
    [
      { versions: [{ reference: '1.0', again: { outcome: 'present' } }], came: ['1.0'], state: 'partial', note: 'x' },
      ['settle lib whole null'],
      { came: 0, imported: 0 },
    ],
    [
      { versions: [{ reference: '1.0' }, new DomainError('Invalid', 'the list is cut')] },
      ['record lib 1.0', 'settle lib new the list is cut'],
      { ended: false, why: 'the list is cut' },
    ],
    [
      { versions: [new DomainError('Invalid', 'the list is cut')], note: 'the list is cut' },
      [],
      { ended: false, why: 'the list is cut' },
    ],
  ];
  for (const [given, done, told = { ended: true, why: undefined }] of cases) {
    const found = await arrive({ lib: given });
    t.deepEqual(found.done, done, JSON.stringify(given));
    t.like(found.told[0], told, JSON.stringify(given));
    t.is(found.asked, 'asked old 7 lib undefined');
    t.is(found.stopped, undefined);
  }
});

test('a name of which only some versions were asked for is not whole because of them', async (t) => {
  const { done, asked } = await arrive({ lib: { versions: [{ reference: '1.0' }] } }, { references: ['1.0'] });
  t.is(asked, 'asked old 7 lib 1.0');
  t.deepEqual(done, ['record lib 1.0']);
  const one = await arrive({ lib: { versions: [{ reference: '1.0', result: mirrored }] } }, { references: ['1.0'] });
  t.deepEqual(one.done, ['settle lib alike null']);
});

test('the first hundred problems of a name are kept, and names that were not reached say why', async (t) => {
  const versions = Array.from({ length: 101 }, (_, at) => ({ reference: `1.0.${at}`, result: conflict }));
  const { told } = await arrive({ lib: { versions } });
  t.is(told[0]!.problems.length, 100);
  const failure = new DomainError('Invalid', 'its list is cut');
  const cut = await arrive({ lib: { versions: [] } }, { failure });
  t.like(cut.told[0], { ended: true, why: undefined });
  const speechless = new Arrivals({ protocols: [] } as never);
  t.deepEqual(speechless.groupsOf(old, {} as never), []);
  t.deepEqual(speechless.comparedOf(old, {} as never, {} as never), []);
});
