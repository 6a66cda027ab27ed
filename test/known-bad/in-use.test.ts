import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { hitsOf, type ContentInUse } from '../../src/known-bad/in-use.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { linesOf, listOf, openLists, osv } from '../support/known-bad.ts';
import { longestAllowed, longestTurn } from '../support/longest-turn.ts';

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
    const time = await longestTurn(async () => t.deepEqual(await hitsOf(parts, generations), []));
    t.true(time < longestAllowed, `${time.toFixed(0)} ms`);
    t.deepEqual(
      await hitsOf(parts, { ...generations, current: generations.next }),
      [],
      'what is seen already is no hit',
    );
  },
);
