import test from 'ava';
import * as fc from 'fast-check';
import {
  compareVersions,
  fullString,
  isPrerelease,
  isSemVer2,
  normalize,
  parseVersion,
  sortKey,
  versionKey,
  type Version,
} from '../../../src/nuget/format/version.ts';

function version(text: string): Version {
  const parsed = parseVersion(text);
  if (!parsed) throw new Error(`${text} should be a version`);
  return parsed;
}

const number = fc.oneof(fc.nat({ max: 12 }), fc.nat({ max: 2 ** 31 - 1 }));
const label = fc
  .oneof(
    fc.constantFrom(
      '0',
      '-0',
      '-1',
      '-01',
      '-10',
      '-9',
      '9',
      '10',
      'a',
      'A',
      'a-',
      'a0',
      'B',
      'alpha',
      '-',
      '--',
      '1a',
    ),
    fc.constantFrom('2147483647', '2147483648', '-2147483648', '-2147483649', '99999999999', '100000000000'),
    fc.stringMatching(/^[0-9A-Za-z-]{1,6}$/),
    number.map(String),
  )
  .filter((text) => !/^0\d+$/.test(text));
const anyVersion = fc
  .record({
    numbers: fc.array(number, { minLength: 1, maxLength: 4 }),
    labels: fc.array(label, { maxLength: 6 }),
    metadata: fc.option(fc.stringMatching(/^[0-9A-Za-z-]{1,6}$/)),
  })
  .map(
    ({ numbers, labels, metadata }) =>
      numbers.join('.') + (labels.length > 0 ? `-${labels.join('.')}` : '') + (metadata ? `+${metadata}` : ''),
  )
  .filter((text) => parseVersion(text) !== undefined)
  .map(version);
/** Few distinct values, so that pairs share prefixes and later parts are compared too. */
const closeVersion = fc
  .tuple(
    fc.constantFrom('1', '1.0.0', '1.0.0.1', '1.10', '1.9', '10'),
    fc.array(fc.constantFrom('a', 'A', 'ab', 'a-', '0', '1', '2', '10', '-1', '-2', '-10', '-'), { maxLength: 3 }),
  )
  .map(([numbers, labels]) => version(labels.length > 0 ? `${numbers}-${labels.join('.')}` : numbers));
const versions = fc.oneof(anyVersion, closeVersion);

// The expected values are printed by NuGet.Versioning of the .NET 10 SDK.
for (const [text, normalized, full = normalized] of [
  ['1', '1.0.0'],
  ['1.0', '1.0.0'],
  ['1.0.0.0', '1.0.0'],
  ['01.2.3.4', '1.2.3.4'],
  ['00000000001.0', '1.0.0'],
  ['2147483647', '2147483647.0.0'],
  ['1.0.0-0', '1.0.0-0'],
  ['1.0.0-01a', '1.0.0-01a'],
  ['1.0.0--', '1.0.0--'],
  ['1.0.0--01', '1.0.0--01'],
  ['1.0-ALPHA.1+Meta.2', '1.0.0-ALPHA.1', '1.0.0-ALPHA.1+Meta.2'],
  ['1.0.0+01', '1.0.0', '1.0.0+01'],
  ['1.0.0+build.22.c-3', '1.0.0', '1.0.0+build.22.c-3'],
] as const) {
  test(`${text} is ${full}`, (t) => {
    t.is(normalize(version(text)), normalized);
    t.is(fullString(version(text)), full);
    t.is(versionKey(version(text)), normalized.toLowerCase());
    t.is(version(text).original, text);
  });
}

for (const text of [
  '',
  'v1.0',
  '1.',
  '.1',
  '1..2',
  '1.2.3.4.5',
  '2147483648',
  '-1.0',
  ' 1.2',
  '1.2 ',
  '1. 2',
  '1.2\n',
  '1.0.0-',
  '1.0.0+',
  '1.0.0-01',
  '1.0.0-00',
  '1.0.0-a.01',
  '1.0.0-09999999999',
  '1.0.0-a..b',
  '1.0.0+a..b',
  '1.0.0-a+b+c',
  '1.0.0-é',
  '1.0.0-a_b',
  '١.0.0',
  `1.0.0-${'a'.repeat(250)}`,
  `1-${'a'.repeat(252)}`,
  `1.0.0-${'a'.repeat(100)}+${'b'.repeat(149)}`,
  '1'.repeat(300),
]) {
  test(`${JSON.stringify(text)} is not a version`, (t) => t.is(parseVersion(text), undefined));
}

test('a normalised version has at most 255 characters, with its metadata', (t) => {
  t.is(normalize(version(`1.0.0-${'a'.repeat(249)}`)).length, 255);
  t.is(normalize(version(`1.0-${'a'.repeat(249)}`)).length, 255);
  t.is(parseVersion(`01.0.0-${'a'.repeat(249)}`), undefined, 'as it is written, too');
  t.truthy(version(`1.0.0-${'a'.repeat(100)}+${'b'.repeat(148)}`));
});

test('the sort key of the longest versions fits its column', (t) => {
  for (const labels of [
    Array.from({ length: 125 }, () => '1'),
    Array.from({ length: 125 }, () => 'a'),
    ['a'.repeat(249)],
  ]) {
    t.true(sortKey(version(`1.0.0-${labels.join('.')}`)).length <= 512);
  }
  t.true(sortKey(version(`2147483647.2147483647.2147483647.2147483647-${'1.'.repeat(105)}1`)).length <= 512);
});

test('SemVer 2.0.0 versions and prereleases are distinguished', (t) => {
  t.deepEqual(
    ['1.0', '1.0-a', '1.0-a.b', '1.0+m', '1.0-a+m'].map((text) => [
      isPrerelease(version(text)),
      isSemVer2(version(text)),
    ]),
    [
      [false, false],
      [true, false],
      [true, true],
      [false, true],
      [true, true],
    ],
  );
});

test('versions are ordered as NuGet orders them', (t) => {
  const ascending = [
    '0.0.0-0',
    '0.0.0',
    '0.9',
    '0.10',
    '1.0.0--2147483648',
    '1.0.0--10',
    '1.0.0--9',
    '1.0.0-0',
    '1.0.0-9',
    '1.0.0-9.a',
    '1.0.0-10',
    '1.0.0-2147483647',
    '1.0.0--2147483649',
    '1.0.0--a',
    '1.0.0-10000000000',
    '1.0.0-1a',
    '1.0.0-9999999999',
    '1.0.0-alpha',
    '1.0.0-ALPHA.1',
    '1.0.0-alpha.beta',
    '1.0.0-alpha-x',
    '1.0.0-alphab',
    '1.0.0-Beta',
    '1.0.0',
    '1.0.0.1-a',
    '1.0.0.1',
    '1.0.1',
    '2147483647.2147483647.2147483647.2147483647',
  ].map(version);
  for (const [i, a] of ascending.entries()) {
    for (const [j, b] of ascending.entries()) {
      t.is(Math.sign(compareVersions(a, b)), Math.sign(i - j), `${a.original} against ${b.original}`);
      t.is(order(sortKey(a), sortKey(b)), Math.sign(i - j), `sort key of ${a.original} against ${b.original}`);
    }
  }
});

test('case, metadata, zeros and a signed zero make no difference in order', (t) => {
  for (const [a, b] of [
    ['1.0.0-A', '1.0.0-a'],
    ['1.0+a', '1.0.0.0+b'],
    ['1.0.0--0', '1.0.0-0'],
    ['1.0.0--01', '1.0.0--1'],
  ] as const) {
    t.is(compareVersions(version(a), version(b)), 0);
    t.is(sortKey(version(a)), sortKey(version(b)));
  }
});

test('the byte order of sort keys is the order of versions', (t) => {
  fc.assert(
    fc.property(versions, versions, (a, b) => order(sortKey(a), sortKey(b)) === Math.sign(compareVersions(a, b))),
    { numRuns: 20_000 },
  );
  t.pass();
});

test('a sort key stays what the rows of released versions have', (t) => {
  t.is(sortKey(version('1.20.0')), '011200000~');
  t.is(sortKey(version('1.2.3.45-Beta.0.10.-12.-A')), '010203145$beta#00#110!887$-a');
});

test('a sort key is short printable ASCII', (t) => {
  fc.assert(
    fc.property(versions, (v) => /^[!-~]{9,}$/.test(sortKey(v)) && sortKey(v).length <= 1.5 * v.original.length + 12),
    { numRuns: 5000 },
  );
  // The longest keys of a version of 255 characters fit into their column of 512.
  for (const labels of ['1.'.repeat(124) + '1', '-1.'.repeat(82) + '1', 'a.'.repeat(124) + 'a']) {
    t.true(sortKey(version(`0.0.0-${labels}`)).length <= 512);
  }
});

test('order is antisymmetric and transitive', (t) => {
  fc.assert(
    fc.property(versions, versions, versions, (a, b, c) => {
      const sorted = [a, b, c].sort(compareVersions) as [Version, Version, Version];
      return (
        Math.sign(compareVersions(a, b)) === 0 - Math.sign(compareVersions(b, a)) &&
        compareVersions(sorted[0], sorted[2]) <= 0
      );
    }),
  );
  t.pass();
});

test('a printed version parses to the same version', (t) => {
  fc.assert(
    fc.property(
      versions,
      (v) =>
        compareVersions(version(normalize(v)), v) === 0 &&
        fullString(version(fullString(v))) === fullString(v) &&
        versionKey(version(versionKey(v))) === versionKey(v),
    ),
  );
  t.pass();
});

function order(a: string, b: string): number {
  return Math.sign(Buffer.compare(Buffer.from(a), Buffer.from(b)));
}
