import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { mutants } from './all.ts';
import { apply } from './generated/change.ts';
import { changesOf } from './generated/changes.ts';

const root = join(import.meta.dirname, '../..');

/** A source without what makes no difference: spaces, brackets, and the kind of quotes. */
function plain(source: string): string {
  return source.replaceAll(/[\s();{}]/g, '').replaceAll(/["`]/g, "'");
}

test('no mutant is one that a rule makes, too', async (t) => {
  t.timeout(240_000);
  const same: string[] = [];
  for (const [file, some] of Map.groupBy(mutants, (each) => each.file)) {
    const text = await readFile(join(root, file), 'utf8');
    const made = new Set((await changesOf(root, file)).map((change) => plain(apply(text, change))));
    for (const { name, find, replace } of some)
      if (made.has(plain(text.replace(find, () => replace)))) same.push(`${file}: ${name}`);
  }
  t.deepEqual(same, [], 'the run with --generated draws them');
});
