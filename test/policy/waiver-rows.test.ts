import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import type { NameStory } from '../../src/mirror/policy/upstream-policy.ts';
import { checkTexts, liftable, resolveReferences } from '../../src/policy/waiver-request.ts';
import { Waivers } from '../../src/policy/waivers.ts';
import { versionTest } from '../../src/nuget/format/range.ts';
import type { Actor } from '../../src/runtime/caller.ts';
import type { DomainError } from '../../src/runtime/errors.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { asActor } from '../support/as-actor.ts';

// What is stored of waivers, without a server: who may decide them, when they end, and what is recorded.

const day = 86_400_000;
const start = Date.parse('2026-11-25T12:00:00Z');
const signal = new AbortController().signal;
const ann: Actor = { kind: 'person', id: 'a', name: 'ann' };

const end = (message: string) => ({ name: 'Invalid', message });
const ids = (some: readonly { id: number }[]) => some.map(({ id }) => id);

async function open(t: ExecutionContext, dialect: Dialect) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  const clock = { now: start };
  const waivers = new Waivers({ database, readRange: versionTest, now: () => clock.now, longest: 30 * day });
  const wanted = {
    accountId: 1,
    kind: 'package',
    name: 'Lib',
    key: 'lib',
    references: ['1.0.0'],
    lifts: 'age',
    reason: 'a build needs it',
    requester: 'person a',
    expiresAt: start + 10 * day,
  } as const;
  return {
    database,
    clock,
    waivers,
    wanted,
    request: (changes: object = {}) => asActor(ann, () => waivers.request({ ...wanted, ...changes })),
    approve: (id: number, layer: 'all' | 'account' = 'account') =>
      waivers.decide(undefined, id, { state: 'approved', layer }, undefined),
    events: async () =>
      (
        await database.select<{ type: string; kind: string; name: string; reference: string | null; details: string }>(
          `SELECT type, subject_kind AS kind, subject_name AS name, subject_reference AS reference, details
           FROM events ORDER BY id`,
        )
      ).map(({ details, ...each }) => ({ ...each, details: JSON.parse(details) })),
  };
}

for (const dialect of dialects) {
  test(`${dialect}: a waiver is requested by one and decided by another, and each step is recorded`, async (t) => {
    const { clock, waivers, wanted, request, events } = await open(t, dialect);
    const made = await request();
    const { id } = made;
    const { key, references, expiresAt, ...same } = wanted;
    const requested = {
      ...same,
      id,
      state: 'requested',
      layer: null,
      key,
      references: [...references],
      requestedBy: ann,
      requestedAt: start,
      decidedBy: null,
      decidedAt: null,
      expiresAt,
      endedAt: null,
    };
    t.deepEqual(made as object, requested);
    t.deepEqual(await waivers.get(1, id), made);
    t.deepEqual(await waivers.get(undefined, id), made);
    await t.throwsAsync(waivers.get(2, id), {
      name: 'NotFound',
      message: `There is no waiver ${id} in this account.`,
    });
    await t.throwsAsync(waivers.get(undefined, id + 1), {
      name: 'NotFound',
      message: `There is no waiver ${id + 1}.`,
    });
    const decide = (decider: string | undefined, accountId: number | undefined = 1) =>
      waivers.decide(accountId, id, { state: 'approved', layer: 'account' }, decider);
    await t.throwsAsync(decide('person a'), { name: 'Denied' });
    await t.throwsAsync(decide('person b', 2), { name: 'NotFound' });
    clock.now += day;
    const bob: Actor = { kind: 'token', id: 'b', name: 'bob' };
    const approved = { ...requested, state: 'approved', layer: 'account', decidedBy: bob, decidedAt: start + day };
    t.deepEqual((await asActor(bob, () => decide('person b'))) as object, approved);
    await t.throwsAsync(decide('person b'), {
      name: 'Invalid',
      message: `The waiver ${id} is approved, so it cannot be approved.`,
    });
    const other = await request({ references: ['1.0.0', '2.0.0'], kind: 'image', name: 'up.test/app' });
    const rejected = await waivers.decide(1, other.id, { state: 'rejected' }, 'person b');
    t.like(rejected, { state: 'rejected', layer: null, endedAt: clock.now, decidedAt: clock.now });
    await t.throwsAsync(waivers.end(1, other.id), {
      name: 'Invalid',
      message: `The waiver ${other.id} is rejected already.`,
    });
    clock.now += day;
    t.like(await waivers.end(1, id), { state: 'ended', endedAt: clock.now, decidedAt: start + day });
    await t.throwsAsync(waivers.end(1, id), { name: 'Invalid', message: `The waiver ${id} is ended already.` });
    const expires_at = new Date(expiresAt).toISOString();
    const about = (waiver: number, more: object) => ({
      waiver,
      references: ['1.0.0'],
      lifts: 'age',
      reason: 'a build needs it',
      layer: null,
      expires_at,
      ...more,
    });
    const lib = { kind: 'package', name: 'Lib', reference: '1.0.0' };
    const app = { kind: 'container', name: 'up.test/app', reference: null };
    t.deepEqual(await events(), [
      { type: 'waiver.requested', ...lib, details: about(id, {}) },
      { type: 'waiver.approved', ...lib, details: about(id, { layer: 'account' }) },
      { type: 'waiver.requested', ...app, details: about(other.id, { references: ['1.0.0', '2.0.0'] }) },
      { type: 'waiver.rejected', ...app, details: about(other.id, { references: ['1.0.0', '2.0.0'] }) },
      { type: 'waiver.ended', ...lib, details: about(id, { layer: 'account' }) },
    ]);
  });

  test(`${dialect}: a waiver ends in time, and is announced once before`, async (t) => {
    const { clock, waivers, request, approve, events } = await open(t, dialect);
    await t.throwsAsync(request({ expiresAt: start }), end('expected a time in the future'));
    await t.throwsAsync(
      request({ expiresAt: start + 30 * day + 1 }),
      end('a waiver can last until 2026-12-25T12:00:00.000Z (setting waivers.longest)'),
    );
    const longest = await request({ expiresAt: start + 30 * day });
    const soon = await request({ expiresAt: start + 7 * day });
    const later = await request({ expiresAt: start + 7 * day + 1 });
    const undecided = await request({ expiresAt: start + 7 * day });
    for (const { id } of [longest, soon, later]) await approve(id);
    t.deepEqual(await waivers.review(signal), { ended: 0, announced: 0 }, 'who approves it knows its end');
    clock.now += 1;
    t.deepEqual(await waivers.review(signal), { ended: 0, announced: 1 });
    t.deepEqual(await waivers.review(signal), { ended: 0, announced: 0 });
    clock.now = start + 7 * day;
    await t.throwsAsync(approve(undecided.id), {
      name: 'Invalid',
      message: `The waiver ${undecided.id} is ended, so it cannot be approved.`,
    });
    t.deepEqual(await waivers.review(signal), { ended: 2, announced: 0 });
    t.like(await waivers.get(1, soon.id), { state: 'ended', endedAt: clock.now });
    t.like(await waivers.get(1, undecided.id), { state: 'ended', endedAt: clock.now });
    t.is((await waivers.get(1, later.id)).state, 'approved');
    const told = (await events()).filter(({ type }) => type === 'waiver.expiring' || type === 'waiver.ended');
    t.deepEqual(
      told.map(({ type, details }) => [type, details.waiver]),
      [
        ['waiver.expiring', later.id],
        ['waiver.ended', soon.id],
        ['waiver.ended', undecided.id],
      ],
    );
    t.is(await waivers.deleteEnded(clock.now, signal), 0);
    t.is(await waivers.deleteEnded(clock.now + 1, signal), 2);
    await t.throwsAsync(waivers.get(1, soon.id), { name: 'NotFound' });
    t.is((await waivers.get(1, longest.id)).state, 'approved');
    await t.throwsAsync(waivers.review(AbortSignal.abort(new Error('stopped'))), { message: 'stopped' });
  });

  test(`${dialect}: waivers are found by account, kind, name and state`, async (t) => {
    const { clock, waivers, request, approve } = await open(t, dialect);
    t.deepEqual(await waivers.approved(1, 'package', 'lib'), []);
    const made = [];
    for (const changes of [
      {},
      { lifts: 'CVE-1' },
      { accountId: 2 },
      { kind: 'image' },
      { key: 'other' },
      { name: 'LIB' },
    ])
      made.push(await request(changes));
    const [first, second, foreign, image, other, open_] = made.map(({ id }) => id) as [
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    for (const id of [first, second, foreign, image, other]) await approve(id);
    const found = await waivers.approved(1, 'package', 'lib');
    t.deepEqual(ids(found), [first, second]);
    t.deepEqual(ids(await waivers.approved(1, 'image', 'lib')), [image]);
    t.deepEqual(ids(await waivers.approved(2, 'package', 'lib')), [foreign]);
    t.deepEqual(await waivers.approved(3, 'package', 'lib'), []);
    const list = async (...given: Parameters<Waivers['list']>) =>
      ids(await waivers.list(...given)).toSorted((a, b) => a - b);
    t.deepEqual(await list(1, 'requested', 9), [open_]);
    t.deepEqual(await list(1, undefined, 9), [first, second, image, other, open_]);
    t.deepEqual(await list(undefined, 'approved', 9), [first, second, foreign, image, other]);
    t.is((await list(undefined, undefined, 2)).length, 2);
    clock.now += 1;
    await waivers.end(1, first);
    t.deepEqual(ids(await waivers.approved(1, 'package', 'lib')), [second]);
    t.deepEqual(await list(undefined, 'ended', 9), [first]);
  });

  test(`${dialect}: a person has a bounded number of requests, and an account of waivers`, async (t) => {
    const { database, waivers, request, approve } = await open(t, dialect);
    const { id } = await request();
    const [row] = await database.select('SELECT * FROM waivers');
    const add = (count: number, changes: object) =>
      database.transaction((tx) =>
        tx.insertNew(
          'waivers',
          Array.from({ length: count }, () => ({ ...row, id: (next += 1), ...changes })),
        ),
      );
    let next = id;
    await add(98, {});
    await add(50, { state: 'ended' });
    await add(50, { account_id: 2 });
    await approve(id);
    await request();
    const last = await request();
    await t.throwsAsync(request(), {
      name: 'QuotaExceeded',
      message: 'You have 100 requests that nobody has decided. End one that is not needed.',
    });
    await t.notThrowsAsync(request({ requester: 'person b' }));
    next = last.id + 10;
    await add(898, { state: 'approved', expires_at: start + 20 * day });
    await t.throwsAsync(request({ requester: 'person b' }), {
      name: 'QuotaExceeded',
      message: 'An account has at most 1000 requested and approved waivers. End one that is not needed.',
    });
    await waivers.end(1, id);
    await t.notThrowsAsync(request({ requester: 'person b' }));
    // More than one transaction ends.
    const late = new Waivers({ database, readRange: versionTest, now: () => start + 10 * day, longest: day });
    t.deepEqual(await late.review(signal), { ended: 152, announced: 0 });
  });
}

/** A name of packages, or of images. */
function storyOf(kind: 'package' | 'image', changes: object = {}): NameStory {
  const story = {
    policyName: kind === 'package' ? 'lib' : 'up.test/app',
    isHosted: false,
    referenceTo: (text: string) =>
      Promise.resolve(/^[\w.-]+$|^sha256:/.test(text) ? { reference: text.toLowerCase() } : undefined),
    ...(kind === 'image' && {
      digestOf: (tag: string) => Promise.resolve(tag === 'gone' ? undefined : `sha256:${tag}`),
    }),
    ...changes,
  };
  return story as unknown as NameStory;
}

const resolve = (kind: 'package' | 'image', references: readonly string[], changes: object = {}) =>
  resolveReferences(storyOf(kind, changes), 'Name', references, versionTest);

test('the references of a waiver are those that policies see, and a tag has its digest beside it', async (t) => {
  t.deepEqual(await resolve('package', [' 1.0.0-A ', '1.0.0-a', '[2.0.0, 3.0.0)', '(2.0.0,3.0.0]', '[2.0.0]']), {
    name: 'Name',
    key: 'lib',
    references: ['1.0.0-a', '[2.0.0, 3.0.0)', '(2.0.0,3.0.0]', '[2.0.0]'],
  });
  t.deepEqual(await resolve('image', ['V1', 'sha256:ab']), {
    name: 'up.test/app',
    key: 'up.test/app',
    references: ['v1', 'sha256:v1', 'sha256:ab'],
  });
  const fifty = Array.from({ length: 50 }, (_, index) => `1.0.${index}`);
  t.is((await resolve('package', fifty)).references.length, 50);
  const cases: [found: Promise<unknown>, message: string][] = [
    [resolve('package', ['1.0'], { policyName: undefined }), 'Name: no upstream serves it'],
    [
      resolve('package', ['1.0'], { policyName: undefined, isHosted: true }),
      'Name: it is hosted here, and a policy concerns mirrored content only',
    ],
    [resolve('package', [...fifty, '2.0.0']), 'a waiver has at most 50 references'],
    [resolve('package', ['[x']), '[x: expected a range of versions such as [2.0.0, 2.1.0)'],
    ...['[2.0.0,)', '(,2.0.0]', '[2.0.0, )', '( , 2.0.0)'].map((each): [Promise<unknown>, string] => [
      resolve('package', [each]),
      `${each}: a range needs a first and a last version, such as [2.0.0, 2.1.0)`,
    ]),
    [resolve('image', ['[2.0.0]']), '[2.0.0]: expected a version, a range such as [2.0.0, 2.1.0), a tag or a digest'],
    [
      resolve('package', ['1.0'], { referenceTo: undefined }),
      '1.0: expected a version, a range such as [2.0.0, 2.1.0), a tag or a digest',
    ],
    [resolve('image', ['gone']), 'gone: the upstream has no such tag'],
  ];
  for (const [found, message] of cases) {
    const { detail } = await t.throwsAsync<DomainError>(found, { name: 'Invalid', message });
    const [error] = (detail?.['errors'] ?? []) as { field: string }[];
    t.is(error?.field, message.startsWith('Name: ') ? 'name' : 'references', message);
  }
});

const check = (lifts: string, reason: string) => checkTexts({ lifts, reason });

test('a waiver needs a word for what it lifts, and a reason', (t) => {
  for (const lifts of ['age', 'GHSA-1:2+x_y.z', 'x'.repeat(100)])
    t.notThrows(() => check(lifts, 'x'.repeat(500)), lifts);
  for (const lifts of ['', 'a b', ' age', 'age\n', 'x'.repeat(101)])
    t.throws(() => check(lifts, 'why'), { name: 'Invalid', message: /^expected age, withdrawn/ }, lifts);
  for (const reason of ['', ' \n', 'x'.repeat(501)])
    t.throws(() => check('age', reason), { name: 'Invalid', message: /^say in 1 to 500 characters/ });
  const { detail } = t.throws<DomainError>(() => check('a b', 'why'));
  t.deepEqual(detail, { errors: [{ field: 'lifts', message: `expected ${liftable}` }] });
});
