import test from 'ava';
import * as fc from 'fast-check';
import {
  formatRange,
  isSemVer2Range,
  lowestApplicable,
  parseRange,
  satisfies,
  versionTest,
  type VersionRange,
} from '../../../src/nuget/format/range.ts';
import { normalize, parseVersion, type Version } from '../../../src/nuget/format/version.ts';

function range(text: string): VersionRange {
  const parsed = parseRange(text);
  if (!parsed) throw new Error(`${text} should be a range`);
  return parsed;
}

function version(text: string): Version {
  const parsed = parseVersion(text);
  if (!parsed) throw new Error(`${text} should be a version`);
  return parsed;
}

// The expected values are printed by NuGet.Versioning of the .NET 10 SDK, except `(,)`: it accepts only `(, )`.
for (const [text, normalized] of [
  ['1.0', '[1.0.0, )'],
  [' 1.0 ', '[1.0.0, )'],
  ['1.0.0.0', '[1.0.0, )'],
  ['[1.0,2.0)', '[1.0.0, 2.0.0)'],
  ['[ 1.0 , 2.0 ]', '[1.0.0, 2.0.0]'],
  ['(1.0,)', '(1.0.0, )'],
  ['[1.0,)', '[1.0.0, )'],
  ['[1.0,]', '[1.0.0, )'],
  ['(,1.0]', '(, 1.0.0]'],
  ['[,1.0)', '(, 1.0.0)'],
  ['( ,2.0)', '(, 2.0.0)'],
  ['[1.0]', '[1.0.0, 1.0.0]'],
  ['[1.0,1.0]', '[1.0.0, 1.0.0]'],
  ['(1.0,1.0)', '(1.0.0, 1.0.0)'],
  ['(, )', '(, )'],
  ['(,)', '(, )'],
  ['[ , ]', '(, )'],
  ['[1.0.0-A+meta,2.0.0+b]', '[1.0.0-A, 2.0.0]'],
  ['*', '[*, )'],
  ['1.*', '[1.*, )'],
  ['01.*', '[1.*, )'],
  ['1.2.*', '[1.2.*, )'],
  ['1.2.3.*', '[1.2.3.*, )'],
  ['*-*', '[*-*, )'],
  ['1.*-*', '[1.*-*, )'],
  ['1.2.*-beta*', '[1.2.*-beta*, )'],
  ['1.*-beta.*', '[1.*-beta.*, )'],
  ['*-beta*', '[*-beta*, )'],
  ['10.20.30.*', '[10.20.30.*, )'],
  ['10.20.*-*', '[10.20.*-*, )'],
  ['12-*', '[12.0.0-*, )'],
  ['10.20.30.40-*', '[10.20.30.40-*, )'],
  ['1-*', '[1.0.0-*, )'],
  ['1.0.0-*', '[1.0.0-*, )'],
  ['1.2.3.4-*', '[1.2.3.4-*, )'],
  ['1.0-beta*', '[1.0.0-beta*, )'],
  ['1.0.0-beta-*', '[1.0.0-beta-*, )'],
  ['1.0.0-a.b.*', '[1.0.0-a.b.*, )'],
  ['[1.*,2.0)', '[1.*, 2.0.0)'],
  ['(*,2.0)', '(*, 2.0.0)'],
  ['[1.0.0-*,1.0.0]', '[1.0.0-*, 1.0.0]'],
] as const) {
  test(`"${text}" is written as ${normalized}`, (t) => {
    t.is(formatRange(range(text)), normalized);
    t.is(formatRange(range(normalized)), normalized);
  });
}

for (const text of [
  '',
  ' ',
  'x',
  '()',
  '[]',
  '(1.0)',
  '[1.0)',
  '(1.0]',
  '[2.0,1.0]',
  '[1.0,1.0)',
  '(1.0,1.0]',
  '[1.0.0,1.0.0-a]',
  '[1.0,2.0,3.0]',
  '[1.0',
  '1.0]',
  'x[1.0]',
  'x[1.0,2.0)',
  '[1.0]x',
  '[1.0,2.0)x',
  'x1.0.0-*',
  '1.0,2.0',
  '[1.0,2.*)',
  '[1.*]',
  '(,*]',
  '[1.*,1.0)',
  '**',
  '*.*',
  '1.*.0',
  '1.*.*',
  '1.2.3.4.*',
  '1.*-',
  '*-',
  '1.0.0-*.a',
  '1.0.0-*-*',
  '1.0.0-*+m',
  '1.0.0+*',
  '1.0.0-01*',
  '1.0.0-a..*',
  '1.0.0-.*',
  '2147483648.*',
  '[1.0.0-*]',
]) {
  test(`${JSON.stringify(text)} is not a range`, (t) => t.is(parseRange(text), undefined));
}

for (const [text, inside, outside] of [
  ['[1.0,2.0)', ['1.0', '1.5.0-a', '2.0.0-a'], ['0.9', '1.0.0-a', '2.0']],
  ['(1.0,2.0]', ['1.0.0.1', '2.0'], ['1.0', '2.0.0.1']],
  ['1.0', ['1.0', '99.0'], ['0.9']],
  ['[1.0]', ['1', '1.0.0.0', '1.0.0+m'], ['1.0.1', '1.0.0-a']],
  ['(, )', ['0.0.0-a', '9.9'], []],
  ['(1.0,1.0)', [], ['1.0']],
  ['1.*', ['1.0', '2.0.0', '1.5.0-a'], ['1.0.0-a']],
  ['1.*-*', ['1.0.0-0', '1.0.0-a'], ['0.9']],
  ['1.0.0-beta*', ['1.0.0-beta', '1.0.0-beta.0', '1.0.0'], ['1.0.0-alpha']],
  ['1.0.0-beta.*', ['1.0.0-beta.1', '1.0.0'], ['1.0.0-alpha', '1.0.0-beta']],
] as const) {
  test(`${text} contains the expected versions`, (t) => {
    for (const v of inside) t.true(satisfies(range(text), version(v)), v);
    for (const v of outside) t.false(satisfies(range(text), version(v)), v);
  });
}

for (const [text, versions, best] of [
  ['[1.0,2.0)', '1.5.0 1.2.0 3.0.0', '1.2.0'],
  ['1.0', '2.0.0-a 2.0.0 1.5.0-a', '2.0.0'],
  ['1.0', '1.5.0-a', undefined],
  ['(,2.0]', '1.0.0 0.5.0-a 1.5.0', '1.0.0'],
  ['[1.0,2.0-b)', '1.5.0-a 3.0.0', '1.5.0-a'],
  ['1.0.0-beta', '1.0.0-alpha 1.0.0-rc 1.0.0', '1.0.0-rc'],
  ['1.*', '1.0.0 1.5.0 2.0.0 1.9.0-beta', '1.5.0'],
  ['1.*', '3.0.0 2.0.0', '2.0.0'],
  ['[1.*,1.5)', '1.4.0 1.6.0 1.2.0', '1.4.0'],
  ['1.0.0-*', '1.0.0-a 1.0.0-b 0.9.0', '1.0.0-b'],
  ['1.0.0-*', '1.0.0-a 1.0.0 2.0.0', '1.0.0'],
  ['1.0.0-beta.*', '1.0.0-beta.1 1.0.0-BETA.3 1.0.0-rc', '1.0.0-BETA.3'],
  ['1.0.0-BETA.*', '1.0.0-beta.1 1.0.0-beta.3 1.0.0-rc', '1.0.0-beta.3'],
  ['*', '1.0.0 3.0.0 4.0.0-a', '3.0.0'],
  ['*', '3.0.0-a', undefined],
  ['[1.*, 2.0.0-b]', '1.5.0-a 1.4.0', '1.4.0'],
  ['*-*', '3.0.0-a 2.0.0', '3.0.0-a'],
] as const) {
  test(`${text} selects ${best ?? 'nothing'} of ${versions}`, async (t) => {
    const found = await lowestApplicable(range(text), versions.split(' '));
    t.is(found && normalize(found), best);
  });
}

test('a range is SemVer 2.0.0 if one of its bounds is', (t) => {
  t.deepEqual(
    ['1.0', '[1.0-a,2.0)', '1.0-a.b', '[1.0,2.0+m]', '(,2.0-a.1)', '(, )'].map((text) => isSemVer2Range(range(text))),
    [false, false, true, true, true, false],
  );
});

test('formatting is stable, and the parser throws for no text', (t) => {
  const text = fc.oneof(fc.string({ maxLength: 30 }), fc.stringMatching(/^[[(][0-9.*a-]{0,6},? ?[0-9.*a-]{0,6}[\])]$/));
  fc.assert(
    fc.property(text, (input) => {
      const parsed = parseRange(input);
      return parsed === undefined || formatRange(range(formatRange(parsed))) === formatRange(parsed);
    }),
    { numRuns: 5000 },
  );
  t.pass();
});

test('the range of a rule has brackets and does not float; what is no version is not in it', (t) => {
  for (const text of ['1.0.0', '[1.*, 2.0)', '[1.0-*, )', '[2.0, 1.0]', 'x[1.0]'])
    t.is(versionTest(text), undefined, text);
  const isIn = versionTest('  [1.0, 2.0)')!;
  t.deepEqual(['1.0.0', '2.0.0', 'x'].map(isIn), [true, false, false]);
});
