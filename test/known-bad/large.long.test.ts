import { createWriteStream } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import test from 'ava';
import { writeZip } from '../support/builders/zip.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { hour, linesOf, listOf, openLists, osv } from '../support/known-bad.ts';
import { longestAllowed, longestTurn } from '../support/longest-turn.ts';

// In a process of its own: it measures the process.

test.serial('a million records and more are read in short turns, and refused', async (t) => {
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'list.jsonl');
  const out = createWriteStream(file);
  for (let part = 0; part < 1000; part += 1)
    out.write(linesOf(Array.from({ length: 1000 }, (_, index) => ({ id: `GHSA-${part * 1000 + index}` }))));
  out.end(`${JSON.stringify(osv('MAL-1', 'a'))}\n`);
  await finished(out);
  const lists = await openLists(t, 'sqlite', [listOf({ name: 'osv', file })]);
  t.true((await longestTurn(() => lists.refresh())) < longestAllowed);
  t.is((await lists.knownBad.states(lists.clock.now))[0]!.failure, 'has more than 1000000 records');
});

test.serial('the largest records are read in short turns', async (t) => {
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'list.jsonl');
  const versions = Array.from({ length: 10_000 }, (_, index) => `1.0.${index}-${'x'.repeat(70)}`);
  const ranges = Array.from({ length: 20 }, () => ({
    type: 'SEMVER',
    events: Array.from({ length: 1000 }, () => ({ introduced: '0' })),
  }));
  const records = [
    osv('MAL-1', 'a', { affected: [{ package: { ecosystem: 'NuGet', name: 'a' }, versions }] }),
    osv('MAL-2', 'b', { affected: [{ package: { ecosystem: 'NuGet', name: 'b' }, ranges }] }),
    osv('MAL-3', 'c', {
      affected: Array.from({ length: 1000 }, () => ({ package: { ecosystem: 'NuGet', name: 'c' } })),
    }),
    { id: 'MAL-4', affected: [], text: '['.repeat(900_000) },
  ];
  const lists = await openLists(t, 'sqlite', [listOf({ name: 'osv', file })]);
  let round = 0;
  const longest = await longestTurn(async () => {
    round += 1;
    await writeFile(file, linesOf([...records, { id: `OTHER-${round}` }]));
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 1002 });
    for (const name of ['a', 'b', 'c']) await lists.knownBad.of('package', name);
  });
  t.true(longest < longestAllowed, `${longest} ms`);
});

test.serial('a zip with 70,000 records is read, and 20,000 entries are replaced, in short turns', async (t) => {
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'list');
  const zipped = Array.from({ length: 70_000 }, (_, index) => ({
    name: `${index}.json`,
    data: `{"id":"MAL-${index}"}`,
  }));
  const last = { name: 'last.json', data: JSON.stringify(osv('MAL-last', 'last')) };
  await writeFile(file, writeZip([...zipped, last], { zip64: {} }));
  const lists = await openLists(t, 'sqlite', [listOf({ name: 'osv', file })]);
  t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 1 });
  let round = 0;
  const longest = await longestTurn(async () => {
    round += 1;
    const packages = Array.from({ length: 1000 }, (_, index) => ({ id: `p${round}.${index}` }));
    await writeFile(file, linesOf(Array.from({ length: 20 }, (_, index) => ({ id: `S-${index}`, packages }))));
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 20_000 });
  });
  t.true(longest < longestAllowed, `${longest} ms`);
  t.is((await lists.idsOf(`P${round}.999`)).length, 20);
  t.deepEqual(await lists.idsOf('last'), []);
});
