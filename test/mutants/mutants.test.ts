import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import test from 'ava';
import { mutants } from './all.ts';

const root = join(import.meta.dirname, '../..');

test('each mutant still applies: its text occurs once, its tests exist, and the changed file can be parsed', async (t) => {
  t.is(new Set(mutants.map(({ name }) => name)).size, mutants.length, 'names are unique');
  for (const { name, file, find, replace, tests } of mutants) {
    const text = await readFile(join(root, file), 'utf8');
    t.is(text.split(find).length - 1, 1, `${file}: the text of the mutant "${name}" must occur once: ${find}`);
    t.notThrows(() => stripTypeScriptTypes(text.replace(find, () => replace)), `${file}: ${name}`);
    for (const each of tests) t.true(existsSync(join(root, each)), `${name}: ${each} does not exist`);
  }
});
