import test from 'ava';
import { ago, putPolicy, versionsOf } from '../support/policy.ts';
import type { FeedVersion } from '../support/upstreams/upstream-feed.ts';
import { advisory, age, fixesOn, old, start, young } from './fixes-pass-suite.ts';

// Versions that fix a known vulnerability are not held by the minimum age.

fixesOn('sqlite');

const idOf = (at: number) => `p${at}`;

test('only the lowest version of the same major, at the exclusive end of a range, is a fix', async (t) => {
  const cases: [advisories: string[], versions: FeedVersion[], open: string[]][] = [
    [['[1.0.0, 1.0.0]'], [old('1.0.0'), young('1.0.1')], []],
    [['[1.0.0, 1.0.1]'], [old('1.0.0'), young('1.0.2')], []],
    [['[1.0.0, )'], [old('1.0.0'), young('1.0.1')], []],
    [['[1.0.0, 1.0.1)'], [old('1.0.0'), young('1.0.2'), young('1.0.3')], ['1.0.2']],
    [['[1.0.0, 1.0.1)'], [old('1.0.0'), old('1.0.1'), young('1.0.2')], []],
    [['[1.0.0, 2.0.1)'], [old('1.0.0'), young('1.0.1'), young('2.0.1')], []],
    [['[1.0.0, 2.0.1)'], [old('1.0.0'), old('2.0.0'), young('2.0.1')], ['2.0.1']],
    [['[1.0.0, 1.0.1)'], [young('1.0.0'), young('1.0.1')], []],
    [['[1.0.0, 1.0.1)'], [old('0.9.0'), young('1.0.1')], []],
    [['(, 1.1.0)'], [old('1.0.0'), young('1.1.1-rc.1'), young('1.1.1')], ['1.1.1']],
    [['(, 1.1.0)'], [old('1.0.0-rc.1'), young('1.1.0-rc.1'), young('1.1.1-rc.1'), young('1.1.1')], ['1.1.1-rc.1']],
    [
      ['[1.0.0, 1.0.1)', '[3.0.0, 3.2.0)'],
      [old('1.0.0'), young('1.0.1'), old('3.1.0'), young('3.2.0')],
      ['1.0.1', '3.2.0'],
    ],
  ];
  const { server } = await start(
    t,
    Object.fromEntries(cases.map(([, versions], at) => [idOf(at), versions])),
    Object.fromEntries(cases.map(([ranges], at) => [idOf(at), ranges.map((each, n) => advisory(`GHSA-${n}`, each))])),
  );
  await putPolicy(server, { minimumAge: age });
  for (const [at, [ranges, versions, open]] of cases.entries()) {
    const expected = versions.filter(({ version, published }) => published === ago(100) || open.includes(version));
    t.deepEqual(
      await versionsOf(server, idOf(at)),
      expected.map(({ version }) => version),
      `${at} ${ranges.join()}`,
    );
  }
});
