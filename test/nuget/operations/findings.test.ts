import test from 'ava';
import {
  marksOfPackage,
  marksOfRange,
  marksOfVersion,
  vulnerabilitiesOf,
  type Finding,
} from '../../../src/nuget/operations/findings.ts';

const finding = (version: string, severities: readonly number[], isDeprecated = false): Finding => ({
  key: 'lib',
  id: 'Lib',
  version,
  upstream: null,
  vulnerabilities: severities.map((severity) => ({ severity, url: `https://example.com/${version}/${severity}` })),
  isDeprecated,
});

const versions = [finding('1.0.0', [0]), finding('1.5.0-Beta', [3, 1]), finding('2.0.0', [], true)];
const known = {
  byPackage: new Map([
    ['lib', new Map(versions.map((each) => [each.version, each]))],
    ['old', new Map([['1.0.0', finding('1.0.0', [], true)]])],
  ]),
  isComplete: true,
};
const [nothing, isDeprecated] = [
  { severity: null, deprecated: false },
  { severity: null, deprecated: true },
];

test('a package is marked with the highest severity of its versions, and as deprecated if one of them is', (t) => {
  t.deepEqual(marksOfPackage(known, 'LIB'), { severity: 'critical', deprecated: true });
  t.deepEqual(marksOfPackage(known, 'old'), isDeprecated);
  t.deepEqual(marksOfPackage(known, 'other'), nothing);
});

test('a version is marked with what is known of itself', (t) => {
  t.deepEqual(marksOfVersion(known, 'Lib', '1.0.0'), { severity: 'low', deprecated: false });
  t.deepEqual(marksOfVersion(known, 'Lib', '2.0.0'), isDeprecated);
  for (const [id, version] of [
    ['Lib', '3.0.0'],
    ['other', '1.0.0'],
  ] as const)
    t.deepEqual(marksOfVersion(known, id, version), nothing);
});

const marks = (range: string, id = 'Lib', isKnown = true) => marksOfRange(known, id, range, () => isKnown);

test('a range is marked with its lowest version, if it has one that may be known', (t) => {
  t.deepEqual(marks('1.0'), { severity: 'low', deprecated: false });
  t.deepEqual(marks('[1.5.0-beta, 2.0.0]'), { severity: 'critical', deprecated: false });
  t.deepEqual(marks('2.0.0'), isDeprecated);
  for (const range of ['(1.0.0, )', '(, 2.0.0]', '1.0.1', 'no range']) t.deepEqual(marks(range), nothing, range);
  t.deepEqual(marks('1.0.0', 'other'), nothing);
  t.deepEqual(marks('1.0.0', 'Lib', false), nothing);
});

test('the vulnerabilities of a version are found by its key', (t) => {
  t.deepEqual(vulnerabilitiesOf(known, 'LIB', '1.5.0-beta'), versions[1]!.vulnerabilities);
  t.deepEqual(vulnerabilitiesOf(known, 'Lib', '1.1.0'), []);
  t.deepEqual(vulnerabilitiesOf(known, 'other', '1.0.0'), []);
  t.deepEqual(vulnerabilitiesOf(undefined, 'Lib', '1.0.0'), []);
});
