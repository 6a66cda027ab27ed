import test from 'ava';
import type { KnownAdvisory, MirroredName, NameFacts, ReferenceFacts } from '../../src/mirror/policy/admission.ts';
import { versionTest } from '../../src/nuget/format/range.ts';
import { compileLayer } from '../../src/policy/compile.ts';
import type { Layer } from '../../src/policy/decide.ts';
import { checkPolicy } from '../../src/policy/document.ts';
import { PolicyGate } from '../../src/policy/gate.ts';
import { VerdictCache } from '../../src/policy/kept-verdicts.ts';
import type { ListedName } from '../../src/policy/listed-names.ts';
import { day, now } from '../support/policy.ts';

// What the gate decides of names, with policies and facts of the test and without a server.

function layerOf(written: unknown, scope: Layer['scope'] = 'all'): Layer {
  return compileLayer({ scope, document: checkPolicy(written)!.document, regimes: [] }, versionTest);
}

function nameOf(
  kind: MirroredName['kind'],
  facts: Partial<NameFacts> & { known?: Record<string, ReferenceFacts> } = {},
): MirroredName {
  const { known = {}, ...more } = facts;
  const of = async (references: readonly string[]) =>
    new Map(Object.entries(known).filter(([each]) => references.includes(each)));
  return {
    kind,
    name: 'lib',
    shown: [kind === 'package' ? 'lib' : 'up.test/lib'],
    accountId: 1,
    upstream: { id: 'up', name: 'up.test' },
    facts: { of, ...more },
  } as unknown as MirroredName;
}

function open(layers: readonly Layer[], listed?: ListedName) {
  const clock = { now };
  const calls: string[] = [];
  const gate = new PolicyGate({
    policies: { layersOf: () => Promise.resolve(layers) } as never,
    listed: { of: () => Promise.resolve(listed), ofContent: () => Promise.resolve(listed) } as never,
    waived: { of: () => Promise.resolve(undefined) } as never,
    fixesPass: { release: async (_: unknown, isServed: boolean) => void calls.push(`fixes ${isServed}`) } as never,
    kept: new VerdictCache({ stateOf: () => Promise.resolve('same') }),
    accountName: (id) => Promise.resolve(id === 1 ? 'team' : undefined),
    refusals: {
      count: (...given: unknown[]) => void calls.push(`count ${given.join(' ')}`),
      request: (_: unknown, references: readonly string[], refusals: readonly { verdict: string }[]) =>
        void calls.push(`request ${references.join(' ')}: ${refusals.map(({ verdict }) => verdict).join(' ')}`),
    } as never,
    now: () => clock.now,
  });
  const verdicts = async (
    name: MirroredName,
    references: readonly string[],
    purpose: 'list' | 'request' = 'request',
  ) => {
    const of = await gate.judge(name, references, purpose);
    return of && references.map((each) => of(each));
  };
  return { gate, clock, calls, verdicts };
}

const published = async () =>
  new Map([
    ['1.0', now - 9 * day],
    ['2.0', now - day],
    ['3.0', undefined],
  ]);

test('a young version is not there, an image says until when it is held, and what is denied says why', async (t) => {
  const age = { minimumAge: { packages: '3d', images: '3d' } };
  const { verdicts, calls } = open([
    layerOf({
      ...age,
      rules: [{ name: 'no', packages: ['lib'], versions: '[1.0]', verdict: 'deny', reason: 'see SEC-1' }],
    }),
  ]);
  const denied = { denied: 'The policy refuses lib: see SEC-1.' };
  t.deepEqual(await verdicts(nameOf('package', { published }), ['1.0', '2.0', '3.0', '4.0']), [
    denied,
    'hold',
    'hold',
    'hold',
  ]);
  t.deepEqual(calls, ['fixes true', 'request 1.0 2.0 3.0 4.0: deny hold hold hold']);
  const until = 'it is younger than 3 days; it can be used from 2026-11-28T12:00Z on';
  const known = { v1: { firstSeenAt: now }, v2: { firstSeenAt: now - 3 * day } };
  t.deepEqual(await verdicts(nameOf('image', { known }), ['v1', 'v2', 'v3', 'sha256:x']), [
    { denied: `The policy refuses up.test/lib: ${until}.`, isHidden: true },
    'allow',
    'allow',
    { denied: 'The policy refuses up.test/lib: its date is not known, and the minimum age is 3 days.', isHidden: true },
  ]);
  t.is(await verdicts(nameOf('symbols'), ['1.0']), undefined);
  t.is(await verdicts(nameOf('blob'), ['sha256:x']), undefined, 'a blob has no age');
  const shown = open([layerOf({ minimumAge: { packages: '3d', held: 'list' } })]);
  t.deepEqual(await shown.verdicts(nameOf('package', { published }), ['2.0']), [
    {
      denied: 'The policy refuses lib: it is younger than 3 days; it can be used from 2026-11-27T12:00Z on.',
      isHidden: false,
    },
  ]);
});

test('lists show what is denied, and layers that only watch refuse nothing', async (t) => {
  const rules = [{ name: 'no', packages: ['lib'], verdict: 'deny' }];
  const strict = open([layerOf({ rules })]);
  t.is(await strict.verdicts(nameOf('package'), ['1.0'], 'list'), undefined);
  t.deepEqual(await strict.verdicts(nameOf('package'), ['1.0']), [
    { denied: 'The policy refuses lib: the rule no denies it.' },
  ]);
  t.deepEqual(strict.calls, ['request 1.0: deny']);
  const watching = open([layerOf({ mode: 'audit', rules, minimumAge: { packages: '3d' } })]);
  t.is(await watching.verdicts(nameOf('package', { published }), ['1.0'], 'list'), undefined);
  t.deepEqual(await watching.verdicts(nameOf('package', { published }), ['1.0', '2.0']), ['allow', 'allow']);
  t.deepEqual(watching.calls, ['request 1.0 2.0: deny deny']);
  const failing = nameOf('package', { published: () => Promise.reject(new Error('away')) });
  const aged = open([layerOf({ mode: 'audit', minimumAge: { packages: '3d' } })]);
  t.deepEqual(await aged.verdicts(failing, ['1.0']), ['allow'], 'what it cannot get is no reason to refuse');
  await t.throwsAsync(open([layerOf({ minimumAge: { packages: '3d' } })]).verdicts(failing, ['1.0']), {
    message: 'away',
  });
  for (const other of [{ packages: ['other'] }, { images: ['*'] }, { packages: ['lib'], upstreams: ['down'] }])
    t.is(
      await open([layerOf({ rules: [{ name: 'no', verdict: 'deny', ...other }] })]).verdicts(nameOf('package'), [
        '1.0',
      ]),
      undefined,
      JSON.stringify(other),
    );
  t.is(
    await open([layerOf({ rules: [{ name: 'fine', packages: ['lib'], verdict: 'allow' }] })]).verdicts(
      nameOf('package'),
      ['1.0'],
    ),
    undefined,
  );
});

test('verdicts are kept until their time is over, and only what is missing is decided', async (t) => {
  let reads = 0;
  const name = nameOf('package', {
    published: async () => (
      (reads += 1),
      new Map([
        ['1.0', now - 3 * day + 5000],
        ['2.0', now],
      ])
    ),
  });
  const { verdicts, clock } = open([layerOf({ minimumAge: { packages: '3d' } })]);
  t.deepEqual(await verdicts(name, ['1.0']), ['hold']);
  t.deepEqual(await verdicts(name, ['1.0']), ['hold']);
  t.is(reads, 1);
  t.deepEqual(await verdicts(name, ['2.0', '1.0']), ['hold', 'hold']);
  t.is(reads, 2);
  clock.now += 5000;
  t.deepEqual(await verdicts(name, ['1.0', '2.0']), ['allow', 'hold'], 'the first hold has ended');
  t.is(reads, 3);
});

const indexes = (firstSeenAt: number) => ({
  'sha256:m': { firstSeenAt: now, namedBy: async () => new Map([['sha256:i', { firstSeenAt }]]) },
});

test('a version without a date waits from when it was first offered, and a manifest is as old as its index', async (t) => {
  const asked: string[][] = [];
  const listed = async (references: readonly string[]) => {
    asked.push([...references]);
    return new Map([['3.0', now - 5 * day]]);
  };
  const { verdicts } = open([layerOf({ minimumAge: { packages: '3d', images: '3d' } })]);
  t.deepEqual(await verdicts(nameOf('package', { published, listed }), ['3.0', '4.0', '1.0']), [
    'allow',
    'hold',
    'allow',
  ]);
  t.deepEqual(asked, [['3.0']], 'not for a version that is not offered');
  t.deepEqual(await verdicts(nameOf('image', { known: indexes(now - 3 * day) }), ['sha256:m']), ['allow']);
  const young = open([layerOf({ minimumAge: { images: '3d' } })]);
  t.like((await young.verdicts(nameOf('image', { known: indexes(now - 2 * day) }), ['sha256:m']))![0], {
    isHidden: true,
  });
});

const times = (reference: string) => async () => async () => new Map([[reference, now]]);

test('vulnerabilities, withdrawals and republished versions deny where a layer says so', async (t) => {
  const advisory: KnownAdvisory = { id: 'CVE-1', severity: 3, affects: (version) => version === '1.0' };
  const name = nameOf('package', {
    advisories: async () => [advisory],
    withdrawn: times('2.0'),
    republished: times('3.0'),
  });
  const reason = async (written: unknown) =>
    ((await open([layerOf(written)]).verdicts(name, ['1.0', '2.0', '3.0'])) ?? []).map((each) =>
      typeof each === 'object' ? each.denied.replace('The policy refuses lib: ', '') : each,
    );
  const republished = 'its upstream has published this version again with other content.';
  t.deepEqual(await reason({ mode: 'enforce' }), ['allow', 'allow', republished]);
  t.deepEqual(await reason({ advisories: { severity: 'high' }, withdrawn: 'deny' }), [
    'it has a known vulnerability of the severity critical (CVE-1).',
    'its upstream does not offer it any more.',
    republished,
  ]);
  const failing = nameOf('package', { advisories: () => Promise.reject(new Error('away')) });
  await t.throwsAsync(open([layerOf({ advisories: { severity: 'low' } })]).verdicts(failing, ['1.0']), {
    message: 'away',
  });
  t.is(await open([layerOf({ mode: 'audit', advisories: { severity: 'low' } })]).verdicts(failing, ['1.0']), undefined);
});

test('a decision is explained by all layers and by those that are enforced, and one layer can be asked alone', async (t) => {
  const strict = layerOf({ minimumAge: { packages: '3d', images: '3d' } });
  const watching = layerOf(
    { mode: 'audit', rules: [{ name: 'no', packages: ['lib'], images: ['*'], verdict: 'deny' }] },
    'account',
  );
  const { gate, calls } = open([strict, watching]);
  const name = nameOf('package', { published, withdrawn: async () => async () => new Map([['2.0', now]]) });
  const explained = await gate.explain(name, '2.0');
  t.like(explained, {
    enforced: { verdict: 'hold', rule: 'age', until: now + 2 * day },
    audited: { verdict: 'deny', rule: 'no' },
    facts: { publishedAt: now - day, withdrawnAt: now },
    waitsOnceSeen: false,
  });
  t.deepEqual(explained.enforced.evidence, [
    { what: 'published', at: now - day },
    'withdrawn by its upstream, as seen here 2026-11-25T12:00Z',
  ]);
  t.is((await gate.explain(name, '2.0', now + 2 * day)).enforced.verdict, 'allow');
  t.deepEqual(calls, ['fixes false', 'fixes false']);
  t.true((await gate.explain(nameOf('image'), 'v1')).waitsOnceSeen);
  t.false((await gate.explain(nameOf('image', { known: { v1: { firstSeenAt: now } } }), 'v1')).waitsOnceSeen);
  t.like(await gate.decideBy(strict, name, '2.0', now), { verdict: 'hold' });
  t.like(await gate.decideBy(strict, name, '2.0', now + 2 * day), { verdict: 'allow' });
  t.like(await gate.decideBy(watching, name, '2.0', now), { verdict: 'deny', rule: 'no' });
  const tagged = nameOf('image', {
    known: { v1: { firstSeenAt: now - 9 * day, digest: 'sha256:d' }, 'sha256:d': { firstSeenAt: now } },
  });
  t.like(await gate.decideBy(strict, tagged, 'v1', now), { verdict: 'hold' }, 'by the digest of the tag');

  const all = await gate.decideAll(tagged, async () => ['v1', 'v2']);
  t.deepEqual(
    [...all].map(([reference, { verdict }]) => `${reference} ${verdict}`),
    ['v1 hold', 'v2 allow'],
  );
  const none = open([watching]).gate;
  t.is((await none.decideAll(tagged, () => Promise.reject(new Error('not asked')))).size, 0);
});

test('a push of what a list names is refused, and one that a list only watches is counted', async (t) => {
  const layers = [true, false].map((isEnforced) => ({
    ...layerOf({ mode: 'enforce' }),
    isEnforced,
    lists: new Set([isEnforced ? 'own' : 'watched']),
  }));
  const entries: Record<string, string> = { 'sha256:bad': 'own', 'sha256:odd': 'watched' };
  const listed = {
    layers,
    entriesOf: async () => (reference: string) =>
      reference in entries ? [{ list: entries[reference]!, id: 'X-1', reason: 'evil' }] : [],
  };
  const { gate, calls } = open([], listed);
  await gate.examinePush('team/app', ['sha256:fine', 'sha256:odd']);
  t.deepEqual(calls.splice(0), ['count image deny false']);
  await t.throwsAsync(gate.examinePush('team/app', ['sha256:fine', 'sha256:bad', 'sha256:odd']), {
    name: 'Denied',
    message: 'The policy refuses team/app: it is known to be bad (X-1): evil.',
  });
  t.deepEqual(calls, ['count image deny true']);
  await t.notThrowsAsync(open([]).gate.examinePush('team/app', ['sha256:bad']));
});
