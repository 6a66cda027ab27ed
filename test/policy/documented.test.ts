import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { versionTest } from '../../src/nuget/format/range.ts';
import { compileLayer } from '../../src/policy/compile.ts';
import { refusesAll } from '../../src/policy/decide.ts';
import { parsePolicy } from '../../src/policy/document.ts';

test('the policies in docs/policy.md are valid, and refuse no old content that they do not mention', async (t) => {
  const text = await readFile(join(import.meta.dirname, '../../docs/policy.md'), 'utf8');
  const policies = [...text.matchAll(/```yaml\n([^`]+)```/g)].map(([, policy]) => policy!.replaceAll('…"', 'a"'));
  t.is(policies.length, 4);
  for (const each of policies) {
    const { document } = parsePolicy(each.replace('sha256:a', `sha256:${'a'.repeat(64)}`))!;
    const layer = compileLayer({ scope: 'all', document, regimes: [] }, versionTest);
    t.false(refusesAll(layer, Date.now()), each);
  }
});

test('each defect in docs/policy.md has the test that it names', async (t) => {
  const folder = join(import.meta.dirname, '../..');
  const text = await readFile(join(folder, 'docs/policy.md'), 'utf8');
  const rows = [...text.matchAll(/^\| [^|]+ \| `([\w-]+\/[\w.-]+)`: ([^|]+?) +\|$/gm)];
  t.true(rows.length >= 30, `${rows.length}`);
  for (const [, file, title] of rows) {
    // The tests of a suite run on several databases, in several files.
    const name = file!.endsWith('-suite') ? `${file}.ts` : `${file}.test.ts`;
    const source = await readFile(join(folder, 'test', name), 'utf8');
    const titles = [...source.matchAll(/\b(?:test|test\.serial|testWith\([^)]*\))\(\s*(['`])((?:[^\\]|\\.)*?)\1,/g)];
    const plain = titles.map(([, , each]) => each!.replace('${dialect}: ', ''));
    t.true(plain.includes(title!), `${file}: ${title}`);
  }
});
