import test, { type ExecutionContext } from 'ava';
import { Admission, type Fix, type MirroredName, type Verdict } from '../../../src/mirror/policy/admission.ts';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import type { MirrorEntry } from '../../../src/mirror/mirror.ts';
import { advisoryOf, readAdvisories } from '../../../src/nuget/upstream/known-advisories.ts';
import type { FeedViews } from '../../../src/nuget/upstream/feed-view.ts';
import { packageName, type PackageGate } from '../../../src/nuget/upstream/package-gate.ts';
import { refuseRepublished } from '../../../src/nuget/upstream/republished.ts';
import { partsOfStored, storedLists } from '../../../src/nuget/upstream/stored-lists.ts';
import type { WithdrawnVersions } from '../../../src/nuget/upstream/withdrawn-versions.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

const upstreamOf = (id: string) =>
  ({ id, name: `${id}.test`, config: { include: ['*'], exclude: [] }, serves: () => true }) as unknown as Upstream;
const one = upstreamOf('one');
const down = new UpstreamError('UpstreamUnavailable', 'It is down.');
const broken = new Error('it broke');

/** A gate that tells what it is asked. */
function gateOf(changes: Partial<PackageGate> = {}) {
  const asked: unknown[][] = [];
  const answers = { republished: new Map<string, number>(), withdrawn: new Map<string, number>() };
  const gate: PackageGate = {
    admission: new Admission(async () => undefined),
    accountId: 7,
    sightings: {
      firstSeen: async (...given: unknown[]) => (asked.push(['firstSeen', ...given]), new Map([['1.0.0', 5]])),
      firstListed: async (...given: unknown[]) => (asked.push(['firstListed', ...given]), new Map([['1.0.0', 6]])),
      republished: async (...given: unknown[]) => (asked.push(['republished', ...given]), answers.republished),
      republishedAt: async (...given: unknown[]) => (asked.push(['republishedAt', ...given]), 9),
    },
    datesOf: async (...given: unknown[]) => (asked.push(['datesOf', ...given]), new Map([['1.0.0', 8]])),
    advisoriesOf: async (key: string) => {
      asked.push(['advisoriesOf', key]);
      return readAdvisories(JSON.stringify([{ url: 'http://a.test/A-1', versions: '(, 2.0)', severity: 1 }])).map(
        advisoryOf,
      );
    },
    siblingsOf: async (...given: unknown[]) => (asked.push(['siblingsOf', ...given]), [{ name: 'b', version: '1' }]),
    ...changes,
  };
  const withdrawn = {
    times: async (...given: unknown[]) => (asked.push(['withdrawn', ...given]), answers.withdrawn),
  } as unknown as WithdrawnVersions;
  return { gate, asked, answers, facts: packageName(gate, withdrawn, one, 'lib').facts, withdrawn };
}

test('a package as policies see it has the facts of its upstream and of what was seen of it', async (t) => {
  const { facts, asked, answers } = gateOf();
  const name = { upstream: 'one', name: 'lib' };
  t.deepEqual([...(await facts.of(['1.0.0', '2.0.0']))], [['1.0.0', { firstSeenAt: 5 }]]);
  t.deepEqual([...(await facts.listed!(['1.0.0']))], [['1.0.0', 6]]);
  t.deepEqual([...(await facts.published!(44))!], [['1.0.0', 8]]);
  t.is(await facts.withdrawn!(), undefined);
  t.is(await facts.republished!(), undefined);
  t.deepEqual(
    (await facts.advisories!()).map(({ id }) => id),
    ['A-1'],
  );
  t.deepEqual(await facts.siblings!('2.0.0', '1.0.0'), [{ name: 'b', version: '1' }]);
  t.deepEqual(asked.splice(0), [
    ['firstSeen', name, 'version', ['1.0.0', '2.0.0']],
    ['firstListed', name, ['1.0.0']],
    ['datesOf', { upstream: one }, 'lib', 44],
    ['withdrawn', one, 'lib'],
    ['republished', { ...name, kind: 'nupkg' }],
    ['advisoriesOf', 'lib'],
    ['siblingsOf', { upstream: one }, 'lib', '2.0.0', '1.0.0'],
  ]);
  for (const kind of ['withdrawn', 'republished'] as const) {
    answers[kind].set('1.0.0', 3);
    t.deepEqual([...(await (await facts[kind]!())!(['1.0.0']))], [['1.0.0', 3]], kind);
  }
  const fix: Fix = { version: '2.0.0', advisory: 'A-1', affected: ['1.0.0'] };
  t.deepEqual(await facts.fixes!(new Set(['2.0.0']), ['1.0.0', '2.0.0']), []);
  t.deepEqual(await facts.fixes!(new Set(['2.0.0']), ['2.0.0', '2.1.0']), []);
  t.deepEqual(await facts.fixes!(new Set(['2.0.0', '2.1.0']), ['2.1.0', '2.0.0', '2.0.0-a', '1.0.0']), [
    { ...fix, affected: ['2.0.0-a'] },
  ]);
  t.deepEqual(asked.at(-1), ['advisoriesOf', 'lib']);
  const own = gateOf({
    advisoriesOf: async () =>
      readAdvisories(JSON.stringify([{ url: 'http://a.test/A-1', versions: '(, 1.5)', severity: 1 }])).map(advisoryOf),
  });
  t.deepEqual(await own.facts.fixes!(new Set(['1.6.0', '1.7.0']), ['1.7.0', '1.6.0', '1.0.0', '2.0.0']), [
    { ...fix, version: '1.6.0' },
  ]);
});

function failing(error: Error) {
  const fail = async () => {
    throw error;
  };
  return { advisoriesOf: fail, siblingsOf: fail, datesOf: fail };
}

test('fixes and siblings are not known while an upstream fails, and other errors are not hidden', async (t) => {
  const { facts } = gateOf(failing(down));
  t.is(await facts.fixes!(new Set(), []), undefined);
  t.is(await facts.siblings!('2.0.0', '1.0.0'), undefined);
  await t.throwsAsync(async () => facts.advisories!(), { is: down });
  await t.throwsAsync(facts.published!(0), { is: down });
  const other = gateOf(failing(broken)).facts;
  await t.throwsAsync(async () => other.fixes!(new Set(), []), { is: broken });
  await t.throwsAsync(async () => other.siblings!('2.0.0', '1.0.0'), { is: broken });
});

/** What is decided of a nupkg that arrives, by a policy about versions that were published again. */
async function arriving(
  verdict: Verdict | undefined,
  {
    seen = true,
    at = 9,
    complete = Promise.resolve({ digest: 'sha256:new' }),
  }: { seen?: boolean; at?: number | null; complete?: Promise<object> } = {},
) {
  const judged: unknown[][] = [];
  const asked: unknown[][] = [];
  const judge = async ({ facts, isPast }: MirroredName, references: readonly string[], purpose: string) => {
    const times = await (await facts.republished!())!(references);
    judged.push([...times, isPast, references, purpose]);
    if (verdict === undefined) return undefined;
    return () => verdict;
  };
  const sightings = {
    firstSeen: async (...given: unknown[]) => {
      asked.push(['firstSeen', ...given]);
      return new Map(seen ? [['1.0.0', 5]] : []);
    },
    republishedAt: async (...given: unknown[]) => {
      asked.push(['republishedAt', ...given]);
      return at ?? undefined;
    },
  };
  const { gate, withdrawn } = gateOf({ admission: new Admission(judge), sightings: sightings as never });
  let closed = 0;
  complete.catch(() => undefined);
  const entry = { complete, content: { close: () => (closed += 1) } } as unknown as MirrorEntry;
  const error = await refuseRepublished(gate, packageName(gate, withdrawn, one, 'lib'), '1.0.0', entry).then(
    () => undefined,
    (reason: Error) => reason,
  );
  return { judged, asked, error, closed };
}

const key = { upstream: 'one', kind: 'nupkg', name: 'lib' };
const firstSeen = ['firstSeen', key, 'version', ['1.0.0']];
const republishedAt = ['republishedAt', { ...key, reference: '1.0.0' }, 'sha256:new'];
const decided = [['1.0.0', 0], true, ['1.0.0'], 'content'];

test('a nupkg with other content than the first is refused before its last byte, where the policy refuses it', async (t) => {
  const never = new Promise<object>(() => undefined);
  for (const verdict of [undefined, 'allow'] as const)
    t.deepEqual(await arriving(verdict, { complete: never }), {
      judged: [decided],
      asked: [],
      error: undefined,
      closed: 0,
    });
  const denied = { denied: 'It is other content.' };
  t.deepEqual(await arriving(denied, { seen: false, complete: never }), {
    judged: [decided],
    asked: [firstSeen],
    error: undefined,
    closed: 0,
  });
  const same = await arriving(denied, { at: null });
  t.deepEqual([same.error, same.closed, same.judged], [undefined, 0, [decided]]);
  const { error, closed, judged, asked } = await arriving(denied);
  t.like(error, { name: 'Denied', message: 'It is other content.' });
  t.is(closed, 1);
  t.deepEqual(judged, [decided, [['1.0.0', 9], true, ['1.0.0'], 'request']]);
  t.deepEqual(asked, [firstSeen, republishedAt]);
  const cut = await arriving(denied, { complete: Promise.reject(broken) });
  t.deepEqual([cut.error, cut.closed], [broken, 1]);
});

/** Lists of stored packages of account 1, which hosts `own` and, merged, `merged`. */
async function listsOf(t: ExecutionContext, { fails = false } = {}) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    for (const id of ['own', 'merged'])
      await tx.run(
        `INSERT INTO packages (account_id, package_key, package_id, standing, created_at, updated_at)
         VALUES (1, ?, ?, 0, 0, 0)`,
        [id, id],
      );
  });
  const two = upstreamOf('two');
  const asked: unknown[][] = [];
  const view = (isAsking: boolean) => ({
    mirror: {
      origin: new UpstreamPolicy([one, two], undefined, [], ['merged']),
      owner: async (id: string) => {
        if (id === 'gone') throw down;
        if (id === 'broken') throw broken;
        return id === 'none' ? undefined : { upstream: one };
      },
      nameOf: (upstream: Upstream, name: string) => ({ upstream, name, isAsking }),
      allVersions: async (...given: unknown[]) => {
        asked.push(given);
        if (fails) throw down;
        return given[1] === 'empty' ? undefined : { value: ['1.0.0', '3.0.0'], outcome: 'hit' };
      },
      withdrawn: { keys: async () => ['2.0.0'] },
    },
  });
  const views = (isAsking: boolean) =>
    ({
      of: async (accountId: number) => (t.true([1, 2].includes(accountId)), view(isAsking)),
    }) as unknown as FeedViews;
  return { lists: storedLists(database, views(false), views(true)), two, asked };
}

const entry = (name: string) => ({ name, reference: '' });

test('stored packages are found at the upstream that owns them, unless the account hosts them alone', async (t) => {
  const { lists, two, asked } = await listsOf(t);
  const { kind, entryKind, contentKind, hasVersions } = lists;
  t.deepEqual([kind, entryKind, contentKind, hasVersions], ['package', 'flat', 'nupkg', true]);
  t.deepEqual(await lists.upstreams(1), [one, two]);
  t.is(lists.shownName(one, 'Lib'), 'Lib');
  for (const name of ['own', 'gone', 'none']) t.is(await lists.find(1, one, entry(name)), undefined, name);
  await t.throwsAsync(lists.find(1, one, entry('broken')), { is: broken });
  t.is(await lists.find(1, two, entry('lib')), undefined);
  t.truthy(await lists.find(2, one, entry('own')));
  t.truthy(await lists.find(1, one, entry('merged')));
  const found = (await lists.find(1, one, entry('lib')))!;
  t.deepEqual(found.name as object, { upstream: one, name: 'lib', isAsking: false });
  t.deepEqual(found.asking as object, { upstream: one, name: 'lib', isAsking: true });
  t.deepEqual(asked, []);
  t.deepEqual(await found.references(), ['1.0.0', '2.0.0', '3.0.0']);
  t.deepEqual(asked, [[{ upstream: one }, 'lib']]);
  t.is(await (await lists.find(1, one, entry('empty')))!.references(), undefined);
  const other = await listsOf(t, { fails: true });
  t.is(await (await other.lists.find(1, one, entry('lib')))!.references(), undefined);
});

test('a view of what is stored records nothing, and does without advisories that are not stored', async (t) => {
  const { gate, asked } = gateOf();
  const opened: unknown[] = [];
  const mirror = {
    openStored: async (resource: unknown) => {
      opened.push(resource);
      return undefined;
    },
  };
  const parts = partsOfStored(mirror as never, gate);
  const name = { upstream: 'one', name: 'lib' };
  const { sightings } = parts.gate;
  t.deepEqual([...(await sightings.firstSeen(name, 'version', ['1.0.0']))], [['1.0.0', 5]]);
  t.deepEqual([...(await sightings.firstListed(name, ['1.0.0']))], [['1.0.0', 5]]);
  t.deepEqual([...(await sightings.republished({ ...name, kind: 'nupkg' }))], []);
  t.is(await sightings.republishedAt({ ...name, kind: 'nupkg', reference: 'x' }, 'sha256:1'), 9);
  t.deepEqual(asked, [
    ['firstSeen', name, 'version', ['1.0.0']],
    ['firstSeen', name, 'listed', ['1.0.0']],
    ['republished', { ...name, kind: 'nupkg' }],
    ['republishedAt', { ...name, kind: 'nupkg', reference: 'x' }, 'sha256:1'],
  ]);
  t.is((await parts.gate.advisoriesOf('lib')).length, 1);
  t.is(parts.gate.accountId, 7);
  t.is(parts.gate.admission, gate.admission);
  const without = partsOfStored(mirror as never, gateOf(failing(down)).gate);
  t.deepEqual(await without.gate.advisoriesOf('lib'), []);
  const bad = partsOfStored(mirror as never, gateOf(failing(broken)).gate);
  await t.throwsAsync(bad.gate.advisoriesOf('lib'), { is: broken });
  const resource = { key: { upstream: 'one', kind: 'flat', name: 'lib', reference: '' } };
  await t.throwsAsync(parts.mirror.open(resource as never), { message: 'No upstream was asked.' });
  t.deepEqual(opened, [{ ...resource, lifetime: 'immutable' }]);
});
