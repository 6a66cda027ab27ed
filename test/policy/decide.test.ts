import { assert, integer, option, property } from 'fast-check';
import test from 'ava';
import { versionTest } from '../../src/nuget/format/range.ts';
import { compileLayer } from '../../src/policy/compile.ts';
import { decide, strictest, type KnownFacts, type Regime, type PolicySubject } from '../../src/policy/decide.ts';
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
    ],
  });
  const on = (subject: PolicySubject, facts: KnownFacts = {}) => decide(subject, facts, layer, now).verdict;
  t.is(on({ ...lib, account: 'team-a' }), 'deny');
  t.is(on({ ...lib, account: 'default' }), 'allow');
  t.is(on({ ...lib, account: undefined }), 'allow');
  t.is(on({ ...image, reference: digest }), 'deny');
  t.is(on(image, { digest }), 'deny', 'a tag that has the digest');
  t.is(on(image, { digest: other }), 'allow');
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
