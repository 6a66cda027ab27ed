import { stripTypeScriptTypes } from 'node:module';
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { folderUntilEnd } from '../../support/folder.ts';
import { root } from '../checkout.ts';
import { apply, changedLines } from './change.ts';
import { changesOfText } from './changes.ts';
import { namesOfPlaces, renumbered, type Recorded } from './coverage.ts';
import { equivalent } from './equivalent.ts';
import { ownChanges } from './own.ts';
import { pick } from './pick.ts';
import { placeOfChange, placesOf, withHits } from './places.ts';
import { draw, folderOf, intervalOf } from './sample.ts';
import { lostConditions } from './sql.ts';
import { parse } from './tree.ts';

function own(source: string): string[] {
  return ownChanges(source, parse(source)).map((each) => apply(source, { file: '', ...each }));
}

const conditions = (text: string): string[] => lostConditions(text).map(({ start, end }) => text.slice(start, end));

function recorded(test: string, loaded: number[], reached: number[], imports: string[] = []): Recorded {
  const sets = { loaded: new Set(loaded), reached: new Set(reached), imports: new Set(imports) };
  return { test, isPassed: true, milliseconds: 1, ...sets };
}

const namesIn = (...files: [file: string, text: string][]) =>
  namesOfPlaces(files.map(([file, text]) => ({ file, text, places: placesOf(text) })));

const rounded = (found: number, total: number) => intervalOf(found, total).map((each) => Number(each.toFixed(4)));

test('the own rules remove an await, swap two arguments, and lose a condition', (t) => {
  t.deepEqual(own('x = await close();'), ['x = close();']);
  t.deepEqual(own('x = await (one || other);'), ['x = (one || other);']);
  t.deepEqual(own('await close();'), [], 'the lint refuses it');
  t.deepEqual(own('Math.max(a, b);'), [], 'the same number');
  t.deepEqual(own('move(from, to.name, 5);'), ['move(to.name, from, 5);', 'move(from, 5, to.name);']);
  t.deepEqual(own('move(from, from); call(() => 1, {}, "text");'), [], 'what a reader would see is not swapped');
  t.deepEqual(own("run('DELETE FROM tokens WHERE id = ? AND account_id = ?');"), [
    "run('DELETE FROM tokens WHERE COALESCE(?, 1) IS NOT NULL AND account_id = ?');",
    "run('DELETE FROM tokens WHERE id = ? AND COALESCE(?, 1) IS NOT NULL');",
  ]);
});

test('a record of an earlier source counts for the places with the same text, and a new place is as the one before it', (t) => {
  const old = namesIn(['a', 'one(); two(); two();'], ['b', 'three();']);
  t.is(new Set(old).size, 4, 'equal texts have different names');
  const now = namesIn(['a', 'zero(); one(); more(); two(); new1(); two();'], ['b', 'first(); three(); last();']);
  const from = (...numbers: number[]) => [...renumbered(new Set(numbers), old, now)];
  t.deepEqual(from(0), [1, 2]);
  t.deepEqual(from(1), [3, 4]);
  t.deepEqual(from(2), [5], 'a place of the next file is not new after it');
  t.deepEqual(from(3), [7, 8]);
  t.deepEqual([...renumbered(new Set([1, 3]), old, old)], [1, 3]);
});

test('a condition of SQL ends before the next word, outside of parentheses', (t) => {
  t.deepEqual(conditions('SELECT a FROM b WHERE c = 1 ORDER BY a'), ['c = 1']);
  t.deepEqual(conditions('WHERE (a = ? OR b = ?) AND c IN (SELECT d FROM e WHERE f = 1) LIMIT 2'), [
    '(a = ? OR b = ?)',
    'c IN (SELECT d FROM e WHERE f = 1)',
    'f = 1',
  ]);
  t.deepEqual(conditions('WHERE a BETWEEN ? AND ? AND b = 1'), ['a BETWEEN ? AND ?', 'b = 1']);
  t.deepEqual(conditions("WHERE name = 'this AND that' AND b"), ["name = 'this AND that'", 'b']);
  t.deepEqual(conditions('WHERE id IN (${placeholders(ids)}) AND b = 1'), ['b = 1'], 'its parameters are not known');
  t.deepEqual(conditions('a word, AND'), []);
});

test('the changes of a source are each once, leave out messages, and can be parsed', async (t) => {
  const source = `export function f(a: number, b?: { c?: string }): string {
  if (a < 1 || a > 9) throw new RangeError(\`\${a} is less than \${1 + 2}\`);
  log.info({ a: a + 1 }, 'text');
  const options = { description: a > 2 ? 'x' : 'y' };
  meta({ title: 'T', description: 'D' });
  return b?.c!.slice(0, a) ?? \`\${options.description}\`;
}
`;
  const changes = await changesOfText('src/f.ts', source);
  const made = changes.map((each) => apply(source, each));
  t.is(new Set(made).size, made.length);
  for (const each of made) t.notThrows(() => stripTypeScriptTypes(each));
  t.true(made.some((each) => each.includes('a >= 9')));
  t.true(made.some((each) => each.includes('a < 1 && a > 9')));
  const lines = new Set(changes.flatMap((each) => changedLines(source, each).becomes));
  t.false([...lines].some((each) => each.startsWith('log.') || each.startsWith('const options = { d')));
  t.false(
    [...lines].some((each) => each.startsWith('meta({')),
    'an object of descriptions',
  );
  t.false([...lines].some((each) => each.includes('1 - 2')));
});

test('an instrumented source still runs, and says which places it reaches', async (t) => {
  const source = `let at = 0;
export function f(a) {
  if (a > 1) return a > 5 ? 'many' : 'some';
  switch (a) {
    case 1:
      at += 1;
  }
  return [a].map((each) => ({ each }))[0].each || 'none';
}
class C { x = 5; static y = 6; }
export const c = new C();
`;
  const places = placesOf(source);
  const reached: number[] = [];
  Object.assign(globalThis, { reachedInTest: (number: number) => reached.push(number - 100) });
  t.teardown(() => Reflect.deleteProperty(globalThis, 'reachedInTest'));
  const hits = moduleOf('export const hitPlace = globalThis.reachedInTest;');
  const loaded = (await import(moduleOf(withHits(source, places, 100, hits)))) as {
    f(a: number): unknown;
    c: { x: number };
  };
  t.is(loaded.c.x, 5);
  const find = (text: string): number =>
    placeOfChange(places, {
      file: '',
      start: source.indexOf(text),
      end: source.indexOf(text) + text.length,
      text: '',
      rule: '',
    });
  for (const [argument, result, texts] of [
    [9, 'many', ["'many'"]],
    [3, 'some', ["'some'"]],
    [1, 1, ['at += 1', '{ each }']],
    [0, 'none', ["'none'", '{ each }']],
  ] as const) {
    reached.length = 0;
    t.is(loaded.f(argument), result);
    for (const text of ["'many'", "'some'", 'at += 1', '{ each }', "'none'"])
      t.is(reached.includes(find(text)), (texts as readonly string[]).includes(text), `f(${argument}) reaches ${text}`);
  }
});

function moduleOf(text: string): string {
  return `data:text/javascript,${encodeURIComponent(text)}`;
}

test('a hit is written at once, apart from those while modules load', async (t) => {
  const folder = await folderUntilEnd(t);
  await copyFile(join(import.meta.dirname, 'hits.mjs'), join(folder, 'hits.mjs'));
  await writeFile(join(folder, 'hits'), new Uint8Array(8));
  await writeFile(
    join(folder, 'source.mjs'),
    "import { hitPlace } from './hits.mjs'; hitPlace(1); export const f = () => (hitPlace(1), hitPlace(3));",
  );
  const hits = async (): Promise<number[]> => [...(await readFile(join(folder, 'hits')))];
  const { f } = (await import(join(folder, 'source.mjs'))) as { f: () => void };
  t.deepEqual(await hits(), [0, 0, 1, 0, 0, 0, 0, 0]);
  f();
  t.deepEqual(await hits(), [0, 0, 1, 1, 0, 0, 0, 1]);
});

test('a body is reached later than its function', (t) => {
  const source = 'export function f() { return 1; }\nconst g = () => f();';
  const places = placesOf(source);
  const body = placeOfChange(places, {
    file: '',
    start: source.indexOf('{'),
    end: source.indexOf('}') + 1,
    text: '{}',
    rule: 'BlockStatement',
  });
  t.is(source.slice(places[body]!.start, places[body]!.end), 'return 1;');
  const start = source.indexOf('() => f');
  const arrow = placeOfChange(places, {
    file: '',
    start,
    end: start + 9,
    text: '() => undefined',
    rule: 'ArrowFunction',
  });
  t.is(source.slice(places[arrow]!.start, places[arrow]!.end), 'f()');
});

test('the tests of the source that few others reach are picked first', (t) => {
  const text = 'export function f() { one(); }\nexport function g() { two(); }';
  const places = placesOf(text);
  const [one, two] = places.map((_, index) => 10 + index) as [number, number];
  const source = { file: 'src/f.ts', text, places, first: 10 };
  const records = [
    recorded('whole', [], [one, 1, 2, 3]),
    recorded('own', [], [one, two]),
    recorded('small', [], [one]),
    recorded('other', [one], [1]),
  ];
  const change = { file: 'src/f.ts', start: text.indexOf('one'), end: text.indexOf('one') + 5, text: '', rule: '' };
  t.deepEqual(
    pick(source, change, records).map(({ test }) => test),
    ['own', 'small', 'other', 'whole'],
  );
  t.deepEqual(
    pick(source, change, records.slice(3)).map(({ test }) => test),
    ['other'],
    'loads it',
  );
  const direct = recorded('direct', [], [one, 1, 2, 3, 4], ['src/e.ts', 'src/f.ts']);
  t.is(pick(source, change, [...records, direct])[0]!.test, 'direct', 'it imports the source');
  const loading = ['test/elsewhere/small.ts', 'test/f/large.ts', 'test/f/small.ts'].map((test) =>
    recorded(test, [one], test.includes('large') ? [5, 6] : [5]),
  );
  t.deepEqual(
    pick(source, change, loading).map(({ test }) => test),
    ['test/f/small.ts', 'test/f/large.ts', 'test/elsewhere/small.ts'],
  );
  const using = recorded('using', [one], [two, 7, 8]);
  t.is(pick(source, change, [...loading, using])[0]!.test, 'using', 'it uses the functions beside what it loads');
  const later = [recorded('later', [], [one, 3, 4]), recorded('latest', [], [one, 3, 4, 6])];
  t.deepEqual(
    pick(source, change, [...loading, ...later]).map(({ test }) => test),
    ['later', 'test/f/small.ts', 'latest', 'test/f/large.ts', 'test/elsewhere/small.ts'],
    'a file that starts a process loads it later',
  );
  const named = ['test/g/large.ts', 'test/g/searches-two.test.ts', 'test/g/two.ts'].map((test) =>
    recorded(test, [one], [9]),
  );
  t.deepEqual(
    pick({ ...source, file: 'src/g/two-search.ts' }, { ...change, file: 'src/g/two-search.ts' }, named).map(
      ({ test }) => test,
    ),
    ['test/g/searches-two.test.ts', 'test/g/two.ts', 'test/g/large.ts'],
    'its name has the same words',
  );
});

test('a sample is the same for a seed, and keeps its changes when others come', (t) => {
  const items = Array.from({ length: 1000 }, (_, index) => `change ${index}`);
  const sample = draw(items, 100, '1', String);
  t.is(new Set(sample).size, 100);
  t.deepEqual(draw(items.toReversed(), 100, '1', String), sample);
  t.notDeepEqual(draw(items, 100, '2', String), sample);
  const more = draw([...items, 'new'], 100, '1', String);
  t.true(more.filter((each) => sample.includes(each)).length >= 99);
  t.is(draw(['same', 'same', 'same'], 2, '1', String).length, 2);
});

test('the interval is that of Wilson', (t) => {
  // Newcombe (1998), Statistics in Medicine 17, table I, method 3.
  t.deepEqual(rounded(81, 263), [0.2553, 0.3662]);
  t.deepEqual(rounded(15, 148), [0.0624, 0.1605]);
  t.deepEqual(rounded(0, 20), [0, 0.1611]);
  t.deepEqual(rounded(1, 29), [0.0061, 0.1718]);
  t.deepEqual(intervalOf(0, 0), [0, 1]);
});

test('a score is reported for the folders of src', (t) => {
  t.is(folderOf('src/nuget/hosted/files.ts'), 'src/nuget');
  t.is(folderOf('src/main.ts'), 'src');
});

test('each equivalent change is still one that can be made', async (t) => {
  for (const file of new Set(equivalent.map((each) => each.file))) {
    const source = await readFile(join(root, file), 'utf8');
    const made = new Set(
      (await changesOfText(file, source)).map((each) => {
        const { was, becomes } = changedLines(source, each);
        return `${was.join('\n')}\n${becomes.join('\n')}`;
      }),
    );
    for (const { was, becomes } of equivalent.filter((each) => each.file === file))
      t.true(made.has(`${was}\n${becomes}`), `${file}: ${was} → ${becomes}`);
  }
  t.true(equivalent.every(({ reason }) => reason.length > 20));
});
