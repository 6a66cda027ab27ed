import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import type { Database } from '../../src/database/database.ts';
import { Generation } from '../../src/known-bad/generation.ts';
import { defaultListLimits } from '../../src/known-bad/entry.ts';
import { changedDatabase, dialects, dyingDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { hour, linesOf, listOf, openLists, type TestLists } from '../support/known-bad.ts';

/** Enough for several transactions. */
const count = 1200;

/** A list whose entries all begin with `prefix`, for the same packages. */
function wholeList(prefix: string): string {
  return linesOf(
    Array.from({ length: count }, (_, index) => ({ id: `${prefix}-${index}`, packages: [{ id: `p${index}` }] })),
  );
}

/** What readers see: of which list it is, with the number of its entries that were looked at. */
async function seen({ idsOf }: Pick<TestLists, 'idsOf'>): Promise<string> {
  const found = await Promise.all([0, 1, 499, 500, 501, 998, 1000, count - 1].map((index) => idsOf(`p${index}`)));
  const prefixes = found.map((ids) => ids.map((id) => id.split('-')[0]).join('+') || 'nothing');
  return [...new Set(prefixes)].join(' and ');
}

async function rowsIn(database: Database): Promise<number> {
  return (await database.get<{ entries: number }>('SELECT COUNT(*) AS entries FROM bad_entries'))!.entries;
}

const noHits = () => Promise.resolve({ added: [], known: [] });

for (const dialect of dialects) {
  test(`${dialect}: a process that ends at any step leaves the whole old list or the whole new one`, async (t) => {
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    await writeFile(file, wholeList('A'));
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })]);
    await lists.refresh();
    let [shown, next] = ['A', 'B'];
    const outcomes = new Set<string>();
    for (const afterCommit of [false, true]) {
      for (let transactions = 1, done = false; !done; transactions += 1) {
        await writeFile(file, wholeList(next));
        lists.clock.now += 6 * hour;
        done = await lists.refresh(dyingDatabase(lists.database, transactions, afterCommit)).then(
          () => true,
          () => false,
        );
        const found = await seen(lists);
        t.true([shown, next].includes(found), `${transactions}, ${afterCommit}: ${found}`);
        outcomes.add(found === shown ? 'old' : 'new');
        await lists.refresh();
        if (found === shown) lists.clock.now += 6 * hour;
        await lists.refresh();
        t.is(await seen(lists), next);
        t.is(await rowsIn(lists.database), count, 'what is left is deleted');
        [shown, next] = [next, shown];
        t.true(transactions < 50);
      }
    }
    t.deepEqual(outcomes, new Set(['old', 'new']));
  });

  test(`${dialect}: a list that is removed is gone at once, wherever the process ends`, async (t) => {
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    await writeFile(file, wholeList('A'));
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })]);
    for (let transactions = 1, done = false; !done; transactions += 1) {
      lists.lists = [listOf({ name: 'osv', file })];
      await lists.refresh();
      lists.lists = [];
      done = await lists.refresh(dyingDatabase(lists.database, transactions, true)).then(
        () => true,
        () => false,
      );
      t.is(await seen(lists), 'nothing');
      await lists.refresh();
      t.is(await rowsIn(lists.database), 0);
      t.true(transactions < 50);
    }
  });

  test(`${dialect}: readers see one whole list while it is replaced`, async (t) => {
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    await writeFile(file, wholeList('A'));
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })]);
    await lists.refresh();
    await writeFile(file, wholeList('B'));
    lists.clock.now += 6 * hour;
    const found: string[] = [];
    const watched = changedDatabase(lists.database, {
      transaction: async (work, options) => {
        const result = await lists.database.transaction(work, options);
        found.push(await seen(lists));
        return result;
      },
    });
    await lists.refresh(watched);
    t.regex(found.join(), /^(?:A,){4,}(?:B,)+B$/);
  });

  test(`${dialect}: a run that another one has overtaken writes and deletes nothing of it`, async (t) => {
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    await writeFile(file, wholeList('A'));
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })]);
    await lists.refresh();
    const { database } = lists;
    const entries = Array.from({ length: 600 }, (_, index) => ({
      kind: 'package' as const,
      key: `p${index}`,
      detail: { reason: '' },
    }));
    const state = { validator: 'x', etag: null };
    const late = await Generation.begin(database, 'osv', defaultListLimits);
    await late.add({ id: 'late', entries });
    t.is(await rowsIn(database), count + entries.length);
    await writeFile(file, wholeList('B'));
    lists.clock.now += 6 * hour;
    let transactions = 0;
    const inBetween = changedDatabase(database, {
      transaction: async (work, options) => {
        const result = await database.transaction(work, options);
        transactions += 1;
        // The new run has its number after its second transaction, or its third if it deletes what the late one has written.
        if (transactions < 4) return result;
        await t.throwsAsync(late.publish('x', state, noHits, 1), { message: 'another run reads the list "osv" now' });
        await t.throwsAsync(late.add({ id: 'later', entries }));
        await late.discard();
        return result;
      },
    });
    await lists.refresh(inBetween);
    t.true(transactions > 4);
    t.is(await seen(lists), 'B');
    t.is(await rowsIn(database), count);
    await t.throwsAsync(late.publish('x', state, noHits, 1));
    await late.discard();
    t.is(await seen(lists), 'B');
  });

  test(`${dialect}: a run that ends in the middle changes nothing`, async (t) => {
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    await writeFile(file, wholeList('A'));
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })]);
    await lists.refresh();
    await writeFile(file, wholeList('B'));
    lists.clock.now += 6 * hour;
    const closing = new AbortController();
    let transactions = 0;
    const ending = changedDatabase(lists.database, {
      transaction: (work, options) => {
        transactions += 1;
        if (transactions === 3) closing.abort(new Error('the instance was closed'));
        return lists.database.transaction(work, options);
      },
    });
    await t.throwsAsync(lists.refresh(ending, closing.signal), { message: 'the instance was closed' });
    t.is(await seen(lists), 'A');
    t.is(await rowsIn(lists.database), count);
    t.like((await lists.knownBad.states(lists.clock.now))[0], { failures: 0, failure: null });
  });

  test(`${dialect}: kill -9 leaves a whole list`, async (t) => {
    const folder = await folderUntilEnd(t);
    const files = ['A', 'B'].map((prefix) => join(folder, prefix));
    for (const [index, prefix] of ['A', 'B'].entries()) await writeFile(files[index]!, wholeList(prefix));
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file: files[0] })]);
    await lists.refresh();
    for (let round = 0; round < 4; round += 1) {
      await killWhileReading(t, lists.url, files, round * 40);
      const found = await seen(lists);
      t.true(['A', 'B'].includes(found), found);
    }
    lists.clock.now += 24 * hour;
    await lists.refresh();
    t.is(await rowsIn(lists.database), count);
  });
}

/** Kills a process that reads lists, some milliseconds after it has begun its second one. */
async function killWhileReading(t: ExecutionContext, url: string, files: readonly string[], delay: number) {
  const script = join(import.meta.dirname, '../support/processes/refresh-lists.ts');
  const child = spawn(process.execPath, [script, url, ...files], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  let lines = 0;
  for await (const _ of createInterface({ input: child.stdout })) {
    lines += 1;
    if (lines === 2) break;
  }
  t.is(lines, 2);
  await sleep(delay);
  child.kill('SIGKILL');
  await ended;
}
