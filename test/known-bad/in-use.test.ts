import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { hitsOf, type ContentInUse } from '../../src/known-bad/in-use.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { dialects, dyingDatabase } from '../support/databases.ts';
import { hour, linesOf, listOf, openLists, osv } from '../support/known-bad.ts';
import { longestAllowed, longestTurn } from '../support/longest-turn.ts';

// In a process of its own: it measures the process.

function isAffected({ versions }: { versions?: readonly string[] }, version: string): boolean {
  return versions!.includes(version);
}

test.serial(
  'many large entries of one name, of which many versions are in use, are compared in short turns',
  async (t) => {
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    const versions = Array.from({ length: 500 }, (_, at) => `9.${at}.0`);
    const affected = [{ package: { ecosystem: 'NuGet', name: 'lib' }, versions }];
    await writeFile(file, linesOf(Array.from({ length: 200 }, (_, at) => osv(`MAL-${at}`, 'lib', { affected }))));
    const lists = await openLists(t, 'sqlite', [listOf({ name: 'osv', file })]);
    await lists.refresh();
    const { database, clock } = lists;
    const rows = await database.select<{ generation: number }>('SELECT generation FROM bad_lists');
    const used = Array.from({ length: 2000 }, (_, at) => ({
      kind: 'package',
      name: 'lib',
      reference: `1.0.${at}`,
      digest: `sha256:${at}`,
      usedAt: clock.now,
    }));
    const content: ContentInUse = {
      named: () => Promise.resolve(used),
      withDigests: () => Promise.resolve([]),
      names: async function* () {},
    };
    const parts = { database, content, isAffected, signal: new AbortController().signal, now: clock.now };
    const generations = { list: 'osv', next: rows[0]!.generation, current: 0 };
    const time = await longestTurn(async () => t.deepEqual(await hitsOf(parts, generations), { added: [], known: [] }));
    t.true(time < longestAllowed, `${time.toFixed(0)} ms`);
  },
);

for (const dialect of dialects) {
  test(`${dialect}: what is in use is told before it is denied, wherever the process ends, and it is known until the list is read again`, async (t) => {
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    const records = [osv('MAL-0', 'other')];
    await writeFile(file, linesOf(records));
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })]);
    const use = { kind: 'package', name: 'Lib', reference: '1.0.0', digest: 'sha256:1', usedAt: lists.clock.now };
    lists.content = {
      named: async (names) => [use].filter(({ name }) => names.includes(name.toLowerCase())),
      withDigests: async () => [],
      names: async function* () {},
    };
    await lists.refresh();
    const inUse = async (later = 0) => {
      const [state] = await lists.knownBad.states(lists.clock.now + later);
      return state!.inUse.map(({ id, name, references }) => `${id} ${name} ${references.join()}`);
    };
    const told = async () => (await lists.events()).filter((each) => each.startsWith('known_bad.in_use')).length;
    t.deepEqual([await inUse(), await told()], [[], 0]);
    await writeFile(file, linesOf([...records, osv('MAL-1', 'lib')]));
    lists.clock.now += 6 * hour;
    let isToldBefore = false;
    for (let transactions = 1, isDenied = false; !isDenied; transactions += 1) {
      await lists.refresh(dyingDatabase(lists.database, transactions, true)).catch(() => undefined);
      isDenied = (await lists.idsOf('lib')).length > 0;
      if (isDenied) t.true((await told()) > 0);
      else {
        isToldBefore ||= (await told()) > 0;
        // Only deletes what the last run has left.
        await lists.refresh(dyingDatabase(lists.database, 2, true)).catch(() => undefined);
      }
    }
    t.true(isToldBefore);
    const before = await told();
    t.deepEqual(await inUse(), ['MAL-1 Lib 1.0.0']);
    await writeFile(file, linesOf([...records, osv('MAL-1', 'lib'), osv('MAL-2', 'third')]));
    lists.clock.now += 6 * hour;
    await lists.refresh();
    t.deepEqual([await inUse(), await told()], [['MAL-1 Lib 1.0.0'], before], 'it is not told again');
    const end = use.usedAt + 30 * 24 * hour - lists.clock.now;
    t.deepEqual(await inUse(end), ['MAL-1 Lib 1.0.0']);
    t.deepEqual(await inUse(end + 1), [], 'its last use is too long ago');
    lists.lists = [listOf({ name: 'osv', file, except: ['MAL-1'] })];
    t.deepEqual(await inUse(), []);
    lists.lists = [listOf({ name: 'osv', file })];
    await writeFile(file, linesOf(records));
    lists.clock.now += 6 * hour;
    await lists.refresh();
    t.deepEqual(await inUse(), [], 'the list has taken it back');
  });
}

const texts = (count: number, before = '') => Array.from({ length: count }, (_, at) => `${before}${at}`);

test('of very many uses, a bounded number is told and kept', async (t) => {
  const file = join(await folderUntilEnd(t), 'list.jsonl');
  await writeFile(file, linesOf([osv('MAL-1', 'lib'), { id: 'SEC-1', images: ['evil/*'] }]));
  const lists = await openLists(t, 'sqlite', [listOf({ name: 'osv', file })]);
  const { now } = lists.clock;
  const images = Array.from({ length: 600 }, (_, at) => `evil/${at}`);
  const asked: number[] = [];
  lists.content = {
    named: async (names, since) => {
      t.is(since, now - 30 * 24 * hour);
      asked.push(names.length);
      const uses = (kind: string, name: string, count: number) =>
        Array.from({ length: count }, (_, at) => {
          const usedAt = now - Math.abs(at - 7) * hour;
          return { kind, name, reference: `${at}`, digest: `sha256:${at}`, usedAt };
        });
      return names.flatMap((name) => uses(name === 'lib' ? 'package' : 'container', name, name === 'lib' ? 30 : 1));
    },
    withDigests: async () => [],
    names: async function* () {
      yield* ['good/0', ...images];
    },
  };
  await lists.refresh();
  t.deepEqual(asked, [1, 500, 100], 'up to 500 names are asked for at once');
  const [state] = await lists.knownBad.states(now);
  t.is(state!.inUse.length, 100);
  t.deepEqual(state!.inUse[0], {
    id: 'MAL-1',
    kind: 'package',
    name: 'lib',
    references: texts(5),
    digests: texts(5, 'sha256:'),
    usedAt: now,
  });
  const details = {
    list: 'osv',
    id: 'MAL-1',
    references: texts(20),
    digests: texts(20, 'sha256:'),
    last_used_at: new Date(now).toISOString(),
  };
  const told = (await lists.events()).filter((each) => each.startsWith('known_bad.in_use '));
  t.deepEqual([told.length, told[0]], [100, `known_bad.in_use lib ${JSON.stringify(details)}`]);
});
