import test, { type ExecutionContext } from 'ava';
import type { BadEntry } from '../../src/known-bad/entry.ts';
import type { KnownBad } from '../../src/known-bad/known-bad.ts';
import type { MirroredName } from '../../src/mirror/policy/admission.ts';
import { versionTest } from '../../src/nuget/format/range.ts';
import { decisionItem, heldItem } from '../../src/policy/decision-item.ts';
import type { Layer, LayerDecision } from '../../src/policy/decide.ts';
import { ListedNames } from '../../src/policy/listed-names.ts';
import { PolicyRefusals } from '../../src/policy/refusals.ts';
import { Releases } from '../../src/policy/releases.ts';
import { WaivedNames } from '../../src/policy/waived-names.ts';
import { stateAt, type Waiver } from '../../src/policy/waiver.ts';
import type { NewEvent } from '../../src/events/event.ts';
import { listOf } from '../support/known-bad.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// Parts of policies, each by itself.

const now = Date.UTC(2026, 10, 25, 12);

function nameOf(kind: MirroredName['kind'], name: string, more: object = {}): MirroredName {
  return {
    kind,
    name,
    shown: [`shown ${name}`],
    accountId: 7,
    upstream: { id: 'up', name: 'up.test' },
    facts: {},
    ...more,
  } as unknown as MirroredName;
}

const entry = (list: string, id: string): BadEntry => ({ list, id, reason: `why ${id}` });

function listedWith({
  lists,
  entries = {},
  digests,
  hasDigests = false,
}: {
  lists: ReturnType<typeof listOf>[];
  entries?: Record<string, BadEntry[]>;
  digests?: Record<string, BadEntry[]>;
  hasDigests?: boolean;
}) {
  const asked: string[] = [];
  const knownBad = {
    lists: () => Promise.resolve(lists),
    of: async (kind: string, name: string) => {
      asked.push(`${kind} ${name}`);
      return entries[`${kind} ${name}`] ?? [];
    },
    haveDigests: () => Promise.resolve(hasDigests),
    ofDigests: async (some: readonly string[]) => {
      asked.push(`digests ${some.join(' ')}`);
      return new Map(Object.entries(digests ?? {}));
    },
  } as unknown as KnownBad;
  const listed = new ListedNames(
    knownBad,
    ({ reason }, version) => reason === `why ${version}` || reason === 'why any',
  );
  return { listed, asked };
}

test('lists say what they have of a package or an image, but what the policy excepts', async (t) => {
  const lists = [
    listOf({ name: 'own', except: ['X-2'] }),
    listOf({ name: 'watched', mode: 'audit' }),
    listOf({ name: 'osv', except: ['X-1'] }),
  ];
  const entries = {
    'package lib': [
      entry('own', '1.0'),
      entry('own', 'X-2'),
      entry('osv', '1.0'),
      entry('osv', 'any'),
      entry('gone', 'any'),
    ],
    'package excepted': [entry('own', 'X-2')],
    'image one': [entry('own', 'I-1')],
    'image two': [entry('osv', 'X-1'), entry('watched', 'I-2')],
  };
  const { listed, asked } = listedWith({
    lists,
    entries,
    digests: { 'sha256:a': [entry('osv', 'D'), entry('own', 'X-2')] },
  });
  const lib = (await listed.of(nameOf('package', 'lib')))!;
  t.deepEqual(
    lib.layers.map(({ isExcepted: _isExcepted, lists: names, ...layer }) => ({ ...layer, lists: [...names!] })),
    [
      { isEnforced: true, lists: ['own', 'osv'] },
      { isEnforced: false, lists: ['watched'] },
    ].map((each) => ({
      scope: 'all' as const,
      age: { package: 0, image: 0 },
      fixesPass: false,
      unknownDate: 'firstSeen' as const,
      listsHeld: false,
      deniesWithdrawn: false,
      rules: [],
      regimes: [],
      ...each,
    })),
  );
  t.deepEqual(
    lib.layers.map((each) => each.isExcepted({} as never)),
    [false, false],
  );
  const of = await lib.entriesOf(['1.0', '2.0']);
  t.deepEqual(of('1.0'), [entry('own', '1.0'), entry('osv', '1.0'), entry('osv', 'any')]);
  t.deepEqual([of('2.0'), of('3.0')], [[entry('osv', 'any')], []]);
  t.is(await listed.of(nameOf('package', 'none')), undefined);
  t.is(await listed.of(nameOf('package', 'excepted')), undefined);
  t.is((await listed.of(nameOf('package', 'lib')))!.layers, lib.layers, 'they are made once');

  const image = (await listed.of(nameOf('image', 'any', { shown: ['one', 'two'] })))!;
  asked.length = 0;
  const found = await image.entriesOf(['v1', 'sha256:a', 'sha256:b']);
  t.deepEqual(asked, ['digests sha256:a sha256:b'], 'a tag is decided by its digest');
  const named = [entry('own', 'I-1'), entry('watched', 'I-2')];
  t.deepEqual([found('v1'), found('sha256:a'), found('sha256:b')], [named, [...named, entry('osv', 'D')], named]);
  t.is(await listed.of(nameOf('image', 'none', { shown: ['none'] })), undefined);
  t.is(await listed.ofContent(), undefined);
});

test('lists with digests may say something of any image, and no list nothing of anything', async (t) => {
  const lists = [listOf({ name: 'own', mode: 'audit' })];
  const { listed, asked } = listedWith({ lists, hasDigests: true, digests: { 'sha256:a': [entry('own', 'D')] } });
  const any = (await listed.ofContent())!;
  t.deepEqual(
    any.layers.map(({ isEnforced, lists: names }) => [isEnforced, [...names!]]),
    [[false, ['own']]],
  );
  t.deepEqual((await any.entriesOf(['sha256:a']))('sha256:a'), [entry('own', 'D')]);
  t.truthy(await listed.of(nameOf('blob', 'app', { shown: ['app'] })));
  t.deepEqual(asked, ['digests sha256:a', 'image app']);
  t.is(await listed.of(nameOf('package', 'app')), undefined);
  const none = listedWith({ lists: [], entries: { 'package lib': [entry('own', 'any')] }, hasDigests: true });
  t.deepEqual(
    [await none.listed.of(nameOf('package', 'lib')), await none.listed.ofContent(), none.asked],
    [undefined, undefined, []],
  );
});

const layer = (isEnforced: boolean, scope: Layer['scope'] = 'all') => ({ isEnforced, scope }) as Layer;

function decision(verdict: LayerDecision['verdict'], of: Layer, more: Partial<LayerDecision> = {}): LayerDecision {
  return { verdict, layer: of, evidence: [], ...more };
}

test('a refused request counts once in each mode, and is told if the mode is enforced', (t) => {
  const events: NewEvent[] = [];
  const refusals = new PolicyRefusals((event) => void events.push(event));
  const counted = () =>
    [...refusals.counts]
      .filter(({ count }) => count > 0)
      .map(({ kind, verdict, mode, count }) => `${kind} ${verdict} ${mode} ${count}`);
  t.deepEqual(
    [...refusals.counts].map(({ kind, verdict, mode, count }) => `${kind} ${verdict} ${mode} ${count}`),
    ['package', 'image', 'blob'].flatMap((kind) =>
      ['hold', 'deny'].flatMap((verdict) => ['enforce', 'audit'].map((mode) => `${kind} ${verdict} ${mode} 0`)),
    ),
    'all are there from the start',
  );
  const more = { rule: 'no', list: 'own', reason: 'why' };
  refusals.request(
    nameOf('package', 'lib'),
    ['1.0', '2.0'],
    [decision('hold', layer(true)), decision('deny', layer(true, 'account'), more), decision('hold', layer(false))],
  );
  t.deepEqual(counted(), ['package hold audit 1', 'package deny enforce 1']);
  t.deepEqual(events.splice(0), [
    {
      type: 'policy.refused',
      accountId: 7,
      subject: { kind: 'package', name: 'shown lib', reference: '1.0' },
      details: { verdict: 'deny', layer: 'account', ...more, upstream: 'up.test' },
    },
  ]);
  refusals.request(nameOf('blob', 'app'), ['sha256:a'], [decision('deny', layer(false))]);
  refusals.request(nameOf('image', 'app'), ['v1'], []);
  t.deepEqual(events, []);
  refusals.request(nameOf('blob', 'app'), ['sha256:a'], [decision('hold', layer(true))]);
  t.like(events, [
    { subject: { kind: 'container', name: 'shown app' }, details: { verdict: 'hold', rule: undefined } },
  ]);
  refusals.count('image', 'deny', true);
  refusals.count('image', 'deny', true);
  refusals.count('other', 'deny', false);
  t.deepEqual(counted(), [
    'package hold audit 1',
    'package deny enforce 1',
    'image deny enforce 2',
    'blob hold enforce 1',
    'blob deny audit 1',
    'other deny audit 1',
  ]);
});

test('a decision is told with all that is known of it', (t) => {
  const none = { layer: null, rule: null, list: null, reason: null, until: null, evidence: [] };
  t.deepEqual(decisionItem({ verdict: 'allow', evidence: [] }), { ...none, verdict: 'allow' });
  const all = decision('hold', layer(true, 'account'), {
    rule: 'age',
    list: 'own',
    reason: 'why',
    until: now,
    evidence: ['a', { what: 'published', at: now }],
  });
  const item = {
    verdict: 'hold',
    layer: 'account',
    rule: 'age',
    list: 'own',
    reason: 'why',
    until: '2026-11-25T12:00:00.000Z',
    evidence: ['a', 'published 2026-11-25T12:00Z'],
  };
  t.deepEqual(decisionItem(all) as object, item);
  const reference = { kind: 'package', name: 'Lib', reference: '1.0', upstream: 'up' };
  t.deepEqual(heldItem({ ...reference, decision: all, isBelowVisible: true }) as object, {
    ...reference,
    ...item,
    below_visible: true,
  });
});

async function openReleases(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const clock = { now };
  return { database, clock, releases: new Releases(database, () => clock.now) };
}

test('a release is recorded once, with what it needs, and told', async (t) => {
  const { database, clock, releases } = await openReleases(t);
  const lib = { upstream: 'up', name: 'lib' };
  const siblings = [
    { name: 'lib.core', version: '2.0' },
    { name: 'lib.more', version: '2.1' },
  ];
  const advisories = Array.from({ length: 11 }, (_, at) => `CVE-${at}`);
  const release = { layer: 0, version: '2.0', advisories, publishedAt: 5 };
  await releases.record(lib, release, siblings);
  await releases.record(lib, { ...release, advisories: ['other'] }, [{ name: 'lib.new', version: '1' }]);
  const known = { layer: 0, advisories: advisories.slice(0, 10), fix: { name: 'lib', version: '2.0' }, publishedAt: 5 };
  t.deepEqual(await releases.of(lib, 1), [{ ...known, version: '2.0' }]);
  t.deepEqual(await releases.of({ upstream: 'up', name: 'lib.core' }, 1), [{ ...known, version: '2.0' }]);
  t.deepEqual(await releases.of({ upstream: 'up', name: 'lib.more' }, 1), [{ ...known, version: '2.1' }]);
  t.deepEqual(await releases.of({ upstream: 'up', name: 'lib.new' }, 1), []);
  t.deepEqual(await releases.of({ upstream: 'other', name: 'lib' }, 1), []);
  t.deepEqual({ ...releases.counts }, { all: 3, account: 0 });
  await releases.record(lib, { layer: 1, version: '3.0', advisories: [], publishedAt: null }, []);
  t.deepEqual(
    (await releases.of(lib, 1)).map(({ layer: of, version, publishedAt }) => [of, version, publishedAt]),
    [
      [0, '2.0', 5],
      [1, '3.0', null],
    ],
  );
  t.is((await releases.of(lib, 2)).length, 1, 'that of another account');
  t.deepEqual({ ...releases.counts }, { all: 3, account: 1 });
  const events = await database.select<{ details: string }>(
    'SELECT type, account_id, subject_kind, subject_name, subject_reference, time, details FROM events ORDER BY id',
  );
  const about = { type: 'policy.released', subject_kind: 'package', subject_name: 'lib', time: now };
  t.deepEqual(events.map((each) => ({ ...each, details: JSON.parse(each.details) as object })) as object[], [
    {
      ...about,
      account_id: 0,
      subject_reference: '2.0',
      details: { layer: 'all', upstream: 'up', advisories: advisories.slice(0, 10), with: siblings },
    },
    {
      ...about,
      account_id: 1,
      subject_reference: '3.0',
      details: { layer: 'account', upstream: 'up', advisories: [], with: [] },
    },
  ]);
  clock.now += 400 * 86_400_000;
  await releases.record(lib, { ...release, version: '4.0' }, []);
  t.is((await releases.of(lib, 1)).length, 3);
  clock.now += 1;
  await releases.record(lib, { ...release, version: '5.0' }, []);
  t.deepEqual(
    (await releases.of(lib, 1)).map(({ version }) => version),
    ['4.0', '5.0'],
    'the old ones are gone',
  );
});

function waiverOf(id: number, more: Partial<Waiver> = {}): Waiver {
  return {
    id,
    layer: 'all',
    lifts: 'age',
    expiresAt: now + 1,
    decidedBy: { kind: 'person', id: 'b', name: 'bob' },
    references: [],
    state: 'approved',
    ...more,
  } as Waiver;
}

const naming = async () => (reference: string) => (reference === 'sha256:child' ? ['sha256:index', '1.0'] : []);

test('a waiver is for its references, its ranges and what its manifests name, until it ends', async (t) => {
  const approved = [
    waiverOf(1, { references: ['1.0', '[2.0,3.0)'] }),
    waiverOf(2, {
      references: ['(1.0,2.5]'],
      layer: 'account',
      lifts: 'CVE-1',
      decidedBy: { kind: 'token', id: 't', name: null },
    }),
    waiverOf(3, { references: ['1.0'], expiresAt: now }),
    waiverOf(4, { references: ['[x', '1.0'], decidedBy: null }),
  ];
  const asked: unknown[] = [];
  let read = 0;
  const waived = new WaivedNames(
    {
      approved: async (...given) => {
        asked.push(given);
        return approved;
      },
    },
    (range) => {
      read += 1;
      return versionTest(range);
    },
  );
  const of = (await waived.of(nameOf('package', 'lib'), 'package', now))!;
  t.deepEqual(asked, [[7, 'package', 'shown lib']]);
  const facts = [
    { id: 1, layer: 'all', lifts: 'age', until: now + 1, by: 'bob' },
    { id: 2, layer: 'account', lifts: 'CVE-1', until: now + 1, by: 't' },
    { id: 4, layer: 'all', lifts: 'age', until: now + 1, by: 'the system' },
  ] as const;
  t.deepEqual(
    [of('1.0'), of('2.2'), of('2.8'), of('4.0')],
    [[facts[0], facts[2]], [facts[0], facts[1]], [facts[0]], []],
  );
  await waived.of(nameOf('package', 'lib'), 'package', now);
  t.is(read, 3, 'they are read once');
  t.is(await waived.of(nameOf('package', 'lib'), 'package', now + 1), undefined, 'all have ended');
  const image = (await waived.of(nameOf('image', 'app', { facts: { naming } }), 'image', now))!;
  t.deepEqual([image('sha256:child').map(({ id }) => id), image('sha256:other')], [[1, 4], []]);
});

test('a waiver whose time has passed has ended, unless it was rejected', (t) => {
  for (const state of ['requested', 'approved', 'rejected', 'ended'] as const) {
    const at = (time: number) => stateAt(waiverOf(1, { state, expiresAt: now }), time);
    t.deepEqual([at(now - 1), at(now)], [state, state === 'rejected' ? 'rejected' : 'ended'], state);
  }
});
