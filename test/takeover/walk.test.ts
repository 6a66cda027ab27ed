import test from 'ava';
import type { InventoryName } from '../../src/takeover/inventory.ts';
import type { Predecessor } from '../../src/takeover/predecessor.ts';
import { walk } from '../../src/takeover/walk.ts';

// How the job reads inventories and brings what they name. requests.test.ts has what comes.

interface Given {
  /** The names that a predecessor lists; an error ends the list. */
  lists?: (string | Error)[];
  rows?: Partial<InventoryName>[];
  finishedAt?: number;
  stopped?: string;
}

const problems = (...outcomes: string[]) => new Map(outcomes.map((outcome, at) => [String(at), { outcome }]));

/** Walks through these predecessors; tells what was done and said. */
async function walked(given: Record<string, Given>, { onlyNames = false, signal = new AbortController().signal } = {}) {
  const done: string[] = [];
  const said: string[] = [];
  const predecessors = Object.keys(given).map((name) => ({
    name,
    sourceKey: `source of ${name}`,
    nameHere: (each: string) => each.replace('old/', ''),
    isWanted: (each: string) => each !== 'Excluded',
    config: { rate: 7 },
  })) as unknown as Predecessor[];
  const inventory = {
    begin: async (name: string, source: string) => void done.push(`begin ${name} ${source}`),
    takeover: async (name: string) => ({ finished_at: given[name]!.finishedAt ?? null }),
    add: async (name: string, some: { name: string; key: string }[]) => {
      done.push(`add ${name} ${some.length > 9 ? some.length : some.map(({ key }) => key).join()}`);
      return some.some(({ key }) => key === 'twice') ? [['Twice', 'old/twice']] : [];
    },
    noteRead: async (name: string, warning: string | null) => void done.push(`read ${name} ${warning}`),
    pages: async function* (name: string) {
      yield given[name]!.rows ?? [];
      yield [];
    },
  };
  const arrivals = {
    options: async () => ({}),
    groupsOf: ({ name }: Predecessor) => [
      (async function* () {
        for (const each of given[name]!.lists ?? []) {
          if (each instanceof Error) throw each;
          yield { name: each };
        }
      })(),
    ],
    run: async ({ name }: Predecessor, rows: InventoryName[], options: { concurrency: number; rate: number }) => {
      done.push(`run ${rows.map((row) => row.name).join()} ${options.concurrency} ${options.rate}`);
      const found = [
        { imported: 2, mirrored: 1, problems: problems('conflict', 'failed', 'failed'), ended: true },
        { imported: 1, mirrored: 0, problems: problems(), failure: new Error('cut'), ended: false },
        { imported: 0, mirrored: 0, problems: problems(), failure: new Error('late'), ended: true },
      ];
      return { found, stopped: given[name]!.stopped };
    },
  };
  const parts = { predecessors, inventory, arrivals, onlyNames } as unknown as Parameters<typeof walk>[0];
  const counts = await walk(parts, { signal, say: (line) => void said.push(line) }).catch((error: Error) => error);
  return { counts, done, said };
}

const row = (name: string, more: Partial<InventoryName> = {}) => ({ name, state: 'new' as const, note: null, ...more });

test('names are read and brought, without those that are left out or left to upstreams', async (t) => {
  const rows = [row('A'), row('Excluded'), row('Left', { state: 'mirrored', note: 'x' })];
  const { counts, done } = await walked({
    old: { lists: ['A', 'old/B'], rows },
    done: { finishedAt: 5, lists: ['C'] },
  });
  t.deepEqual(done, [
    'begin old source of old',
    'add old a,b',
    'read old null',
    'run A 4 7',
    'begin done source of done',
  ]);
  t.deepEqual(counts, { names: 2, imported: 3, mirrored: 1, conflicts: 1, failed: 3 });
  const names = await walked({ old: { lists: ['A'], rows } }, { onlyNames: true });
  t.deepEqual(names.counts, { names: 1, imported: 0, mirrored: 0, conflicts: 0, failed: 0 });
  t.false(names.done.some((each) => each.startsWith('run')));
  const none = await walked({ old: { rows: rows.slice(1) } });
  t.deepEqual(none.done.slice(1), ['add old ', 'read old null']);
});

test('names are added 200 at a time, and the first one that cannot be kept is told', async (t) => {
  const many = Array.from({ length: 401 }, (_, at) => `n${at}`);
  const { done, counts } = await walked({ old: { lists: many } }, { onlyNames: true });
  t.deepEqual(done.slice(1), ['add old 200', 'add old 200', 'add old n400', 'read old null']);
  t.like(counts, { names: 401 });
  const long = 'l'.repeat(256);
  const warned = await walked({ old: { lists: [long, 'l'.repeat(255), 'Twice', 'old/twice'] } }, { onlyNames: true });
  t.is(warned.done.at(-1), `read old ${'l'.repeat(50)}… would be too long a name here.`);
  t.like(warned.counts, { names: 4 });
  const twice = await walked({ old: { lists: ['Twice', 'old/twice'] } }, { onlyNames: true });
  t.is(
    twice.done.at(-1),
    'read old Twice and old/twice would have one name here: rename one of them, or leave it out.',
  );
});

test('a predecessor that fails does not stop the others, and the job fails at its end', async (t) => {
  const { counts, done, said } = await walked({
    down: { lists: ['A', new Error('it is down')] },
    cut: { lists: ['B'], rows: [row('B')], stopped: 'its list was cut' },
    fine: { lists: ['C'] },
  });
  t.is((counts as Error).message, 'its list was cut');
  t.deepEqual(said, ['down: it is down', 'cut: its list was cut']);
  t.is(done.at(-1), 'read fine null');
  t.false(done.includes('read down null'));
  const stop = new AbortController();
  stop.abort(new Error('stopped'));
  const stopped = await walked({ old: { lists: ['A'] }, other: {} }, { signal: stop.signal });
  t.is((stopped.counts as Error).message, 'stopped');
  t.deepEqual(stopped.said, []);
  t.false(stopped.done.some((each) => each.includes('other')));
});
