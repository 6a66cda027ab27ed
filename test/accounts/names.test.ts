import test from 'ava';
import { array, assert, asyncProperty, constantFrom, property } from 'fast-check';
import { mergedPatterns, NameSet, Names, parsePatterns, textMatcher } from '../../src/accounts/names.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

const expression = (pattern: string) => new RegExp(`^${pattern.replace(/[.!]/g, '\\$&').replaceAll('*', '.*')}$`, 's');
const many = (count: number) => Array.from({ length: count }, (_, index) => `p${index}`);

test('a star matches any characters, letter case of patterns does not count, and no other character is special', (t) => {
  const names = new NameSet(['Contoso.*', 'team/*', 'exact', 'a.b*c', '*-internal', 'x_y%*']);
  for (const name of ['contoso.', 'contoso.core', 'team/app', 'exact', 'a.bc', 'a.b.c', 'x-internal', 'x_y%z']) {
    t.true(names.includes(name), name);
  }
  for (const name of [
    'contoso',
    'Contoso.Core',
    'teams/app',
    'my.contoso.core',
    'exacts',
    'exactexact',
    'axbc',
    'xzy%z',
    '',
    'team',
  ]) {
    t.false(names.includes(name), name);
  }
  t.true(new NameSet(['*']).includes(''));
  t.false(new NameSet([]).includes(''));
  t.true(new NameSet([]).isEmpty);
  t.false(new NameSet(['a*']).isEmpty);
  t.true(new NameSet(['a'], new NameSet([])).isEmpty);
  t.false(new NameSet(['a'], new NameSet(['b'])).isEmpty, 'what two sets have in common is not looked for');
  t.false(new NameSet(['ab*ba']).includes('aba'), 'the two ends do not overlap');
  t.false(new NameSet(['a*b*b']).includes('ab'), 'nor does the middle overlap the end');
  const twice = new NameSet(['*ab*ab*']);
  t.deepEqual([twice.includes('ab'), twice.includes('abab')], [false, true], 'nor do two parts in the middle');
  t.deepEqual(
    ['xyz', 'x1y2z', 'xz', 'xzz'].map((name) => new NameSet(['x*y*z']).includes(name)),
    [true, true, false, false],
  );
});

const letters = array(constantFrom('a', 'b', '.', '*', '%', '_', '!'), { maxLength: 8 }).map((all) => all.join(''));

test('patterns match as regular expressions do, and cover the names that they match', (t) => {
  assert(
    property(letters, letters, letters, (pattern, other, text) => {
      const name = text.replaceAll('*', 'ab');
      const names = new NameSet([pattern]);
      t.is(names.includes(name), expression(pattern).test(name));
      const inner = new NameSet([other]);
      if (names.covers([other]) && inner.includes(name)) t.true(names.includes(name), `${pattern} covers ${other}`);
    }),
    { numRuns: 2000 },
  );
});

test('a pattern with many stars is not slow', (t) => {
  const names = new NameSet([`${'*a'.repeat(120)}*b`]);
  t.false(names.includes('a'.repeat(255)));
});

test('patterns have bounds, and a token needs at least one pattern', (t) => {
  for (const bad of [{}, { packages: [] }])
    t.throws(() => parsePatterns(bad), { name: 'Invalid' }, JSON.stringify(bad));
  for (const bad of ['', 'a b', ' a', 'a ', 'a,b', 'a\\b', 'a\u0007', 'a\n'])
    t.throws(() => parsePatterns({ packages: [bad] }), { name: 'Invalid' }, bad);
  t.throws(() => parsePatterns({ packages: ['x'.repeat(256)] }), { name: 'Invalid' });
  t.throws(() => parsePatterns({ containers: many(51) }), { name: 'Invalid' });
  t.truthy(parsePatterns({ packages: ['x'.repeat(255)], containers: many(50) }));
  t.is(parsePatterns(null), null);
  for (const none of [[], undefined])
    t.deepEqual(parsePatterns({ packages: ['a', 'B.*'], containers: none }), { packages: ['a', 'B.*'] });
});

test('names of a kind without patterns are not allowed, and limits within others allow what both do', (t) => {
  const names = new Names({ packages: ['Contoso.*', 'Lib'], containers: ['team/*'] });
  t.true(names.of('package').includes('contoso.core'));
  t.false(names.of('package').includes('team/app'));
  for (const patterns of [{ packages: ['*'] }, { containers: undefined }])
    t.true(new Names(patterns).of('container').isEmpty);
  for (const [patterns, isCovered] of [
    [{ packages: ['lib', 'Contoso.A*'] }, true],
    [{ packages: ['Lib', 'Lib2'] }, false],
    [{ packages: ['Lib'], containers: ['other/*'] }, false],
    [{ packages: ['Lib'], others: ['a'] }, false],
    [{ packages: ['Lib'], others: undefined }, true],
    [{}, true],
  ] as const)
    t.is(names.covers(patterns), isCovered, JSON.stringify(patterns));
  const within = new Names({ packages: ['*.core', 'Lib'], containers: ['*'] }, new Names({ packages: ['Contoso.*'] }));
  const allowed = (name: string) => within.of('package').includes(name);
  t.deepEqual(['contoso.core', 'contoso.web', 'fabrikam.core', 'lib'].map(allowed), [true, false, false, false]);
  t.true(within.of('container').isEmpty);
  t.false(within.of('container').includes('team/app'));
  t.deepEqual(
    mergedPatterns([{ packages: ['a'], containers: undefined }, null, { packages: ['b'], containers: ['c'] }]),
    {
      packages: ['a', 'b'],
      containers: ['c'],
    },
  );
});

test('a text matches a pattern as it is written', (t) => {
  t.deepEqual(['v1', 'V1', 'v12'].map(textMatcher('v1')), [true, false, false]);
  t.deepEqual(['v1', 'V1', 'xv1'].map(textMatcher('v*')), [true, false, false]);
});

for (const dialect of dialects) {
  test(`${dialect}: the database finds the same names`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    const collate = dialect === 'mysql' ? 'COLLATE utf8mb4_bin' : '';
    await assert(
      asyncProperty(array(letters, { maxLength: 3 }), letters, letters, async (patterns, other, text) => {
        const name = text.replaceAll('*', 'ab');
        const names = new NameSet(patterns, other === '' ? undefined : new NameSet([other, 'a*']));
        const { sql, values } = names.where('name');
        const found = await database.get(
          `SELECT 1 AS one FROM (SELECT CAST(? AS CHAR) ${collate} AS name) AS n WHERE ${sql}`,
          [name, ...values],
        );
        t.is(found !== undefined, names.includes(name), JSON.stringify([patterns, other, name]));
      }),
      { numRuns: 300 },
    );
  });

  test(`${dialect}: the database finds names by as many patterns as grants can have`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    for (const count of [199, 200, 201, 5000]) {
      const { sql, values } = new NameSet(many(count).map((each) => `${each}-*`)).where('name');
      const finds = async (name: string) =>
        (await database.get(`SELECT 1 AS one FROM (SELECT ? AS name) AS n WHERE ${sql}`, [name, ...values])) !==
        undefined;
      t.deepEqual(
        [await finds(`p${count - 1}-a`), await finds('p0-'), await finds(`p${count}-a`)],
        [true, true, false],
      );
    }
  });
}
