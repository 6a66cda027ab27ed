import { assert, integer, option, property } from 'fast-check';
import test from 'ava';
import { versionTest } from '../../src/nuget/format/range.ts';
import { compileLayer } from '../../src/policy/compile.ts';
import {
  decide,
  evidenceText,
  refusesAll,
  strictest,
  waiverText,
  withdrawnText,
  type KnownFacts,
  type PolicySubject,
  type Regime,
  type WaiverFact,
} from '../../src/policy/decide.ts';
import { checkPolicy } from '../../src/policy/document.ts';

const day = 86_400_000;
const now = Date.parse('2026-11-25T12:00:00Z');

function layerOf(written: unknown, regimes: readonly Regime[] = []) {
  return compileLayer({ scope: 'all', document: checkPolicy(written)!.document, regimes }, versionTest);
}

const lib: PolicySubject = {
  kind: 'package',
  names: ['foo.lib'],
  reference: '2.1.0',
  upstream: 'nuget.org',
  account: 'default',
};
const image: PolicySubject = {
  kind: 'image',
  names: ['docker.io/library/alpine', 'docker.io/alpine'],
  reference: 'latest',
  upstream: 'docker.io',
  account: 'default',
};
const threeDays = { minimumAge: { packages: '3d', images: '2d' } };

test('a version is held until it is as old as the minimum age', (t) => {
  const layer = layerOf(threeDays);
  const at = (facts: KnownFacts, time = now) => decide(lib, facts, layer, time);
  t.like(at({ publishedAt: now - 3 * day }), { verdict: 'allow' });
  t.like(at({ publishedAt: now - 3 * day + 1 }), { verdict: 'hold', rule: 'age', until: now + 1 });
  t.like(at({ publishedAt: now - day }, now - day), { verdict: 'hold', until: now + 2 * day });
  t.like(
    at({ publishedAt: now, firstSeenAt: now - 3 * day }),
    { verdict: 'allow' },
    'the earlier of both times counts',
  );
  t.like(at({ publishedAt: now - 3 * day, firstSeenAt: now }), { verdict: 'allow' });
  t.like(at({}), { verdict: 'hold', until: undefined });
  t.like(at({ publishedAt: now + day }), { verdict: 'hold', until: undefined }, 'a time in the future is no date');
  t.like(at({ publishedAt: now + day, firstSeenAt: now - 3 * day }), { verdict: 'allow' });
  t.like(at({ firstSeenAt: now - day }), { verdict: 'hold', until: now + 2 * day });
  t.is(at({ publishedAt: now - day }).reason, 'it is younger than 3 days; it can be used from 2026-11-27T12:00Z on');
});

test('each kind has its own age, and 0 is none', (t) => {
  const layer = layerOf(threeDays);
  t.is(decide(image, { firstSeenAt: now - 2 * day }, layer, now).verdict, 'allow');
  t.is(decide(image, { firstSeenAt: now - 2 * day + 1 }, layer, now).verdict, 'hold');
  const packagesOnly = layerOf({ minimumAge: { packages: '3d' } });
  t.is(decide(image, {}, packagesOnly, now).verdict, 'allow');
});

test('an unknown date can hold for ever', (t) => {
  const layer = layerOf({ minimumAge: { packages: '3d', unknownDate: 'hold' } });
  t.like(decide(lib, { firstSeenAt: now - 100 * day }, layer, now), { verdict: 'hold', until: undefined });
  t.is(decide(lib, { publishedAt: now - 3 * day }, layer, now).verdict, 'allow');
});

function except(value: object) {
  return layerOf({ minimumAge: { packages: '3d', images: '3d', except: value } });
}

test('exceptions of the age are by package, image and upstream', (t) => {
  t.is(decide(lib, {}, except({ packages: ['Foo.*'] }), now).verdict, 'allow');
  t.is(decide(lib, {}, except({ packages: ['Bar.*'] }), now).verdict, 'hold');
  t.is(decide(lib, {}, except({ images: ['foo.*'] }), now).verdict, 'hold');
  t.is(decide(lib, {}, except({ upstreams: ['nuget.org'] }), now).verdict, 'allow');
  t.is(decide(lib, {}, except({ upstreams: ['other'] }), now).verdict, 'hold');
  t.is(decide(image, {}, except({ images: ['docker.io/library/*'] }), now).verdict, 'allow');
  t.is(decide(image, {}, except({ images: ['docker.io/alpine'] }), now).verdict, 'allow', 'under each of its names');
});

test('the first rule that matches decides', (t) => {
  const rules = [
    {
      name: 'two',
      packages: ['Foo.*'],
      versions: '[2.0.0, 3.0.0)',
      upstreams: ['nuget.org'],
      verdict: 'deny',
      reason: 'see SEC-12',
    },
    { name: 'fine', packages: ['Foo.Lib'], verdict: 'allow' },
    { name: 'all', packages: ['Foo.*'], verdict: 'deny' },
    { name: 'latest', images: ['docker.io/*'], tags: ['latest', 'Dev-*'], verdict: 'deny' },
  ];
  const layer = layerOf({ rules, minimumAge: { packages: '3d' } });
  const on = (subject: Partial<PolicySubject>, facts: KnownFacts = {}) =>
    decide({ ...lib, ...subject }, facts, layer, now);
  t.like(on({}), { verdict: 'deny', rule: 'two', reason: 'see SEC-12' });
  t.like(on({ reference: '3.0.0' }), { verdict: 'allow', rule: 'fine' }, 'allow lifts the age');
  t.like(on({ upstream: 'other' }), { verdict: 'allow', rule: 'fine' });
  t.like(on({ names: ['foo.other'], reference: '3.0.0' }), { verdict: 'deny', rule: 'all' });
  t.like(on({ names: ['bar'] }), { verdict: 'hold', rule: 'age' });
  t.like(on({ ...image }), { verdict: 'deny', rule: 'latest' });
  t.like(on({ ...image, reference: 'Latest' }), { verdict: 'allow' }, 'tags differ by letter case');
  t.like(on({ ...image, reference: 'Dev-1' }), { verdict: 'deny' });
  t.like(on({ ...image, reference: '3.20' }), { verdict: 'allow' });
});

test('rules are by account, by upstream alone, and by digest', (t) => {
  const digest = `sha256:${'a'.repeat(64)}`;
  const other = `sha256:${'b'.repeat(64)}`;
  const layer = layerOf({
    rules: [
      { name: 'team', packages: ['*'], accounts: ['team-*'], verdict: 'deny' },
      { name: 'bytes', digests: [digest], verdict: 'deny' },
      { name: 'there', upstreams: ['bad.test'], verdict: 'deny' },
      { name: 'mixed', images: ['docker.io/library/some'], digests: [digest], verdict: 'deny' },
      { name: 'both', packages: ['Some'], images: ['some'], verdict: 'deny' },
    ],
  });
  const on = (subject: PolicySubject, facts: KnownFacts = {}) => decide(subject, facts, layer, now).verdict;
  t.is(on({ ...lib, account: 'team-a' }), 'deny');
  t.is(on({ ...lib, account: 'default' }), 'allow');
  t.is(on({ ...lib, account: undefined }), 'allow');
  t.is(on({ ...image, reference: digest }), 'deny');
  t.is(on(image, { digest }), 'deny', 'a tag that has the digest');
  t.is(on(image, { digest: other }), 'allow');
  t.is(on({ ...image, names: ['docker.io/some', 'docker.io/library/some'] }), 'deny', 'one of its names');
  t.is(on({ ...lib, upstream: 'bad.test' }), 'deny');
  t.is(on({ ...image, upstream: 'bad.test' }), 'deny');
});

test('what was open before the age was made longer stays open', (t) => {
  const made = now - 10 * day;
  const none: Regime = { packages: 0, images: 0, until: made };
  const one: Regime = { packages: day, images: day, until: made };
  const long = { minimumAge: { packages: '30d', images: '30d' } };
  const on = (regime: Regime, facts: KnownFacts) => decide(lib, facts, layerOf(long, [regime]), now).verdict;
  t.is(on(none, { publishedAt: made - 2, firstSeenAt: made - 1 }), 'allow', 'stored before there was a policy');
  t.is(on(none, { publishedAt: made - 2, firstSeenAt: made }), 'hold');
  t.is(on(none, { publishedAt: made - 1 }), 'hold', 'it was not stored here');
  t.is(on(one, { publishedAt: made - day - 1, firstSeenAt: made - 1 }), 'allow');
  t.is(on(one, { publishedAt: made - day - 1, firstSeenAt: made }), 'hold');
  t.is(on(one, { publishedAt: made - day, firstSeenAt: made - day }), 'hold', 'it was still held');
  const layer = layerOf({ minimumAge: { packages: '30d', unknownDate: 'hold' } }, [{ ...none, unknownDate: 'hold' }]);
  t.deepEqual(decide(lib, { firstSeenAt: made - 1 }, layer, now), {
    verdict: 'allow',
    layer,
    rule: 'age',
    evidence: [{ what: 'first stored here', at: made - 1 }, 'was open before the age was made longer'],
  });
});

function hold(until?: number) {
  return { verdict: 'hold', until, evidence: [] } as const;
}

test('of several layers the strictest decides', (t) => {
  const allow = { verdict: 'allow', evidence: [] } as const;
  const deny = { verdict: 'deny', evidence: [] } as const;
  t.is(strictest([]).verdict, 'allow');
  t.is(strictest([allow, deny, hold(5)]), deny);
  t.is(strictest([hold(5), allow]).verdict, 'hold');
  t.is(strictest([hold(5), hold(7), hold(6)]).until, 7);
  t.is(strictest([hold(5), hold()]).until, undefined);
  t.is(strictest([hold(), hold(5)]).until, undefined);
});

test('a later time never holds what was open', (t) => {
  const layer = layerOf(threeDays);
  const time = option(integer({ min: now - 10 * day, max: now }), { nil: undefined });
  assert(
    property(time, time, integer({ min: 0, max: 20 * day }), (publishedAt, firstSeenAt, later) => {
      const facts = { publishedAt, firstSeenAt };
      const before = decide(lib, facts, layer, now);
      if (before.verdict === 'allow') t.is(decide(lib, facts, layer, now + later).verdict, 'allow');
      if (before.until !== undefined) {
        t.is(decide(lib, facts, layer, before.until).verdict, 'allow');
        t.is(decide(lib, facts, layer, before.until - 1).verdict, 'hold');
      }
    }),
  );
});

test('a decision says which layer and what decided, why, and what is known', (t) => {
  const bad = { list: 'own', id: 'M-1', reason: 'It steals tokens.' };
  const rules = [
    { name: 'no', packages: ['No'], verdict: 'deny' },
    { name: 'fine', packages: ['Fine'], verdict: 'allow' },
  ];
  const layer = layerOf({
    rules,
    minimumAge: { packages: '1d', except: { packages: ['Old'] } },
    advisories: { severity: 'moderate', except: ['CVE-9'] },
    withdrawn: 'deny',
  });
  const listing = { ...layerOf({ mode: 'enforce' }), lists: new Set(['own']) };
  const open = layerOf({ mode: 'enforce' });
  const on = (facts: KnownFacts, name = 'foo.lib', of = layer) => decide({ ...lib, names: [name] }, facts, of, now);
  const hour = 3_600_000;
  const published = { what: 'published', at: now - hour };
  const young = {
    verdict: 'hold',
    layer,
    rule: 'age',
    reason: 'it is younger than 1 day; it can be used from 2026-11-26T11:00Z on',
    until: now - hour + day,
  };
  const cases: [found: unknown, expected: unknown][] = [
    [
      on({ bad: [{ ...bad, list: 'other' }, bad] }, undefined, listing),
      {
        verdict: 'deny',
        layer: listing,
        rule: 'M-1',
        list: 'own',
        reason: 'it is known to be bad (M-1): It steals tokens',
        evidence: [],
      },
    ],
    [on({ bad: [{ ...bad, reason: '..' }] }, undefined, listing).reason, 'it is known to be bad (M-1)'],
    [
      on({ bad: [{ ...bad, reason: 'It steals... All.' }] }, undefined, listing).reason,
      'it is known to be bad (M-1): It steals... All',
    ],
    [on({ bad: [bad] }, 'fine').verdict, 'allow'],
    [on({ advisories: [{ id: 'CVE-1', severity: 3 }] }, 'old', open).verdict, 'allow'],
    [on({}, 'no'), { verdict: 'deny', layer, rule: 'no', reason: 'the rule no denies it', evidence: ['rule no'] }],
    [on({}, 'fine'), { verdict: 'allow', layer, rule: 'fine', evidence: ['rule fine'] }],
    [on({}, 'old'), { verdict: 'allow', layer, rule: 'except', evidence: ['exception of the age'] }],
    [
      on({
        advisories: [
          { id: 'CVE-0', severity: 0 },
          { id: 'CVE-1', severity: 1 },
          { id: 'CVE-3', severity: 2 },
          { id: 'cve-9', severity: 3 },
        ],
      }),
      {
        verdict: 'deny',
        layer,
        rule: 'advisories',
        reason: 'it has a known vulnerability of the severity high (CVE-3)',
        evidence: [],
      },
    ],
    [on({ advisories: [{ id: 'CVE-0', severity: 0 }] }, 'old').verdict, 'allow'],
    [
      on({ withdrawnAt: now }, 'old'),
      { verdict: 'deny', layer, rule: 'withdrawn', reason: 'its upstream does not offer it any more', evidence: [] },
    ],
    [on({ withdrawnAt: now }, 'old', open), { verdict: 'allow', evidence: [] }],
    [
      on({ republishedAt: 7 }, 'old', open),
      {
        verdict: 'deny',
        layer: open,
        rule: 'republished',
        reason: 'its upstream has published this version again with other content',
        evidence: [{ what: 'other content than the first one stored here', at: 7 }],
      },
    ],
    [on({ republishedAt: 7 }, 'old', listing).verdict, 'allow'],
    [on({ publishedAt: now - hour }), { ...young, evidence: [published] }],
    [
      on({ publishedAt: now - hour, listedAt: 1, firstSeenAt: now }),
      { ...young, evidence: [published, { what: 'first stored here', at: now }] },
    ],
    [
      on({ listedAt: now - hour, firstSeenAt: now }),
      {
        ...young,
        evidence: [
          { what: 'first offered', at: now - hour },
          { what: 'first stored here', at: now },
        ],
      },
    ],
    [on({ publishedAt: now + 5 * 60_000 }).until, now + 5 * 60_000 + day],
    [on({ publishedAt: now + 5 * 60_000 + 1 }).until, undefined],
    [
      on({}),
      {
        verdict: 'hold',
        layer,
        rule: 'age',
        reason: 'its date is not known, and the minimum age is 1 day',
        until: undefined,
        evidence: [],
      },
    ],
    [on({ publishedAt: now - day }), { verdict: 'allow', evidence: [{ what: 'published', at: now - day }] }],
  ];
  for (const [index, [found, expected]] of cases.entries()) t.deepEqual(found, expected, `case ${index}`);
});

test('an age is told in the largest unit that divides it', (t) => {
  for (const [age, text] of [
    ['1s', '1 second'],
    ['90s', '90 seconds'],
    ['1m', '1 minute'],
    ['90m', '90 minutes'],
    ['1h', '1 hour'],
    ['36h', '36 hours'],
    ['24h', '1 day'],
    ['2d', '2 days'],
  ]) {
    const { reason } = decide(lib, {}, layerOf({ minimumAge: { packages: age } }), now);
    t.is(reason, `its date is not known, and the minimum age is ${text}`);
  }
});

test('a waiver lifts what it names, in its layer only', (t) => {
  const waiver = (lifts: string, changes: Partial<WaiverFact> = {}): WaiverFact => ({
    id: 4,
    layer: 'all',
    lifts,
    until: now + day,
    by: 'ann',
    ...changes,
  });
  const layer = layerOf({
    rules: [{ name: 'age', packages: ['Foo.*'], verdict: 'deny' }],
    minimumAge: { packages: '3d' },
    withdrawn: 'deny',
    advisories: { severity: 'low' },
  });
  const ruled = (...waivers: WaiverFact[]) => decide(lib, { waivers }, layer, now);
  t.is(ruled(waiver('age')).rule, 'age', 'the word means the age and not a rule of that name');
  t.is(ruled(waiver('age')).verdict, 'deny');
  const other = { ...lib, names: ['other'] };
  const on = (facts: KnownFacts, ...waivers: WaiverFact[]) => decide(other, { ...facts, waivers }, layer, now);
  t.deepEqual(on({ publishedAt: now }, waiver('age')), {
    verdict: 'allow',
    layer,
    rule: 'age',
    evidence: [{ what: 'published', at: now }],
    waivers: [waiver('age')],
  });
  t.false('waivers' in on({ publishedAt: 0 }, waiver('age')), 'nothing was lifted');
  t.false('waivers' in on({}, waiver('withdrawn')), 'nothing was lifted');
  t.is(on({}, waiver('age', { layer: 'account' })).verdict, 'hold');
  t.is(on({}, waiver('withdrawn')).verdict, 'hold');
  const advisories = [{ id: 'CVE-1', severity: 0 }] as const;
  t.like(on({ publishedAt: 0, advisories }, waiver('cve-1')), { verdict: 'allow', waivers: [waiver('cve-1')] });
  t.is(on({ publishedAt: 0, advisories }, waiver('CVE-2')).rule, 'advisories');
  t.is(on({ publishedAt: 0, withdrawnAt: 1 }, waiver('Withdrawn')).verdict, 'allow');
  t.is(on({ publishedAt: 0, withdrawnAt: 1 }, waiver('republished')).rule, 'withdrawn');
  t.is(on({ publishedAt: 0, republishedAt: 1 }, waiver('republished')).verdict, 'allow');
  const named = layerOf({
    rules: [
      { name: 'no', packages: ['Foo.*'], verdict: 'deny' },
      { name: 'fine', packages: ['Foo.*'], verdict: 'allow' },
    ],
  });
  t.deepEqual(decide(lib, { waivers: [waiver('NO'), waiver('fine')] }, named, now), {
    verdict: 'allow',
    layer: named,
    rule: 'fine',
    evidence: ['rule fine'],
    waivers: [waiver('NO')],
  });
  const bad = [{ list: 'own', id: 'M-1', reason: '' }];
  const listing = { ...layerOf({ mode: 'enforce' }), lists: new Set(['own']) };
  t.is(decide(lib, { bad, waivers: [waiver('m-1')] }, listing, now).verdict, 'allow');
  t.is(decide(lib, { bad, waivers: [waiver('m-2')] }, listing, now).verdict, 'deny');
  t.is(
    waiverText(waiver('age', { until: now })),
    'waiver 4 in the policy of all accounts, until 2026-11-25T12:00Z, by ann',
  );
  t.is(
    waiverText(waiver('age', { until: now, layer: 'account' })),
    'waiver 4 in the policy of the account, until 2026-11-25T12:00Z, by ann',
  );
  t.is(withdrawnText(now), 'withdrawn by its upstream, as seen here 2026-11-25T12:00Z');
  t.is(evidenceText('rule a'), 'rule a');
  t.is(evidenceText({ what: 'published', at: now }), 'published 2026-11-25T12:00Z');
});

test('a policy that refuses every name that it does not mention is found', (t) => {
  for (const [written, expected] of [
    [{ mode: 'enforce' }, false],
    [{ minimumAge: { packages: '3d', images: '3d' } }, false],
    [{ minimumAge: { images: '3d', unknownDate: 'hold' } }, true],
    [{ minimumAge: { packages: '3d', unknownDate: 'hold' } }, false],
    [{ rules: [{ name: 'a', images: ['**'], verdict: 'deny' }] }, true],
    [{ rules: [{ name: 'a', packages: ['*'], verdict: 'deny' }] }, true],
    [{ rules: [{ name: 'a', packages: ['*'], versions: '[0.1.0, )', verdict: 'deny' }] }, true],
    [{ rules: [{ name: 'a', packages: ['Foo.*'], verdict: 'deny' }] }, false],
    [{ mode: 'audit', rules: [{ name: 'a', packages: ['*'], verdict: 'deny' }] }, false],
  ] as const)
    t.is(refusesAll(layerOf(written), now), expected, JSON.stringify(written));
});

test('of decisions that allow, the one that says why is kept', (t) => {
  const plain = { verdict: 'allow', evidence: [] } as const;
  const known = { verdict: 'allow', evidence: [{ what: 'published', at: 1 }] } as const;
  const ruled = { verdict: 'allow', rule: 'fine', evidence: ['rule fine'] } as const;
  const other = { verdict: 'allow', rule: 'second', evidence: ['rule second'] } as const;
  t.is(strictest([plain, known]), known);
  t.is(strictest([known, plain]), known);
  t.is(strictest([known, ruled]), ruled);
  t.is(strictest([ruled, known, plain]), ruled);
  t.is(strictest([ruled, other]), ruled);
  const [first, second] = [
    { verdict: 'deny', rule: 'a', evidence: [] } as const,
    { verdict: 'deny', rule: 'b', evidence: [] } as const,
  ];
  t.is(strictest([first, second]), first);
  t.is(strictest([hold(5), first, hold()]), first);
  t.is(strictest([hold(), first]), first, 'also after a hold without an end');
  t.is(strictest([known, hold(5)]).verdict, 'hold');
  t.deepEqual(strictest([]), { verdict: 'allow', evidence: [] });
  const [one, same] = [hold(5), hold(5)];
  t.is(strictest([one, same]), one);
});
