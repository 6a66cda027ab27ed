import test from 'ava';
import { AccountViews } from '../../src/mirror/policy/account-views.ts';
import {
  Admission,
  isHidden,
  isServed,
  noJudge,
  type Judge,
  type MirroredName,
} from '../../src/mirror/policy/admission.ts';
import { releaseClaim, type ClaimObstacle } from '../../src/mirror/policy/claims.ts';
import { proposeReserved } from '../../src/mirror/policy/reserved.ts';
import { matcher, UpstreamPolicy } from '../../src/mirror/policy/upstream-policy.ts';
import { CountedNames, type CountedName, type NameOrder } from '../../src/mirror/store/counted-names.ts';
import type { Rank } from '../../src/runtime/ranked.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import { until } from '../support/until.ts';

// What decides which names and references of upstreams an account gets, without upstreams.

/** An upstream as far as policies see it. */
function upstream(
  id: string,
  { include = ['*'], exclude = [] as string[], accounts = undefined as string[] | undefined } = {},
) {
  const serves = (account: string | undefined) =>
    accounts === undefined || (account !== undefined && accounts.includes(account));
  return { id, config: { include, exclude, accounts }, serves } as unknown as Upstream;
}

const ids = (upstreams: readonly Upstream[]) => upstreams.map(({ id }) => id);

test('a pattern means whole names in any case, and only its star is special', (t) => {
  const is = matcher(['Contoso.*', 'a+b', 'one', '*.end']);
  for (const name of ['contoso.', 'CONTOSO.Core', 'a+b', 'ONE', 'x\ny.end']) t.true(is(name), name);
  for (const name of ['contoso', 'contosoxcore', 'my.contoso.core', 'aab', 'one2', 'zone', 'endx', 'x.ends'])
    t.false(is(name), name);
  t.false(matcher([])(''));
});

test('a name is asked only of upstreams that include it, in order, and never if it is reserved', (t) => {
  const upstreams = [
    upstream('first', { exclude: ['*.internal'] }),
    upstream('second', { include: ['lib*'] }),
    upstream('team', { accounts: ['team'] }),
  ];
  const policy = new UpstreamPolicy(upstreams, undefined, ['Own.*', 'Corp.Deep.*'], ['merged*']);
  t.deepEqual(ids(policy.candidates('other')), ['first']);
  t.deepEqual(ids(policy.candidates('library')), ['first', 'second']);
  t.deepEqual(ids(policy.candidates('lib.internal')), ['second']);
  t.deepEqual(ids(policy.candidates('x', 'x.internal')), [], 'one excluded spelling is enough');
  t.deepEqual(ids(policy.candidates('x', 'lib')), ['first', 'second'], 'and one included spelling');
  t.deepEqual(ids(policy.candidates('lib', 'own.lib')), []);
  t.deepEqual(
    [ids(policy.all), ids(policy.hidden), policy.idsIfLimited],
    [['first', 'second'], ['team'], ['first', 'second']],
  );
  const all = new UpstreamPolicy(upstreams, 'team', []);
  t.deepEqual([ids(all.all), all.idsIfLimited], [['first', 'second', 'team'], undefined]);
  t.true(policy.isReserved('own.x'));
  t.false(policy.isReserved('x.own.x'));
  t.true(policy.isMerged('merged.x'));
  t.false(policy.isMerged('own.x'));

  const rules = (...names: string[]) => {
    const { reservedBy, upstreams: each } = policy.explain(...names);
    return [reservedBy, ...each.map(({ upstream: { id }, rule, pattern }) => `${id} ${rule} ${pattern}`)];
  };
  const hidden = 'team other account undefined';
  t.deepEqual(rules('lib'), [undefined, 'first asked undefined', 'second asked undefined', hidden]);
  t.deepEqual(rules('x.internal'), [undefined, 'first excluded *.internal', 'second not included undefined', hidden]);
  t.deepEqual(rules('own.internal'), ['Own.*', 'first reserved Own.*', 'second reserved Own.*', hidden]);

  const begins = (word: string) => policy.beginsReserved(word, '.');
  t.deepEqual(['own.', 'corp.de', 'corp.deep.', 'corp.'].map(begins), [true, true, true, true]);
  t.deepEqual(['own', 'corp', 'own.x', 'orp.'].map(begins), [false, false, false, false]);
});

async function* each(names: string[]) {
  yield* names;
}

const propose = (names: string[], open: string[] = []) =>
  proposeReserved(each(names), '.', (prefix) => Promise.resolve(open.includes(prefix)));

test('private names are proposed by their prefix, and one by one where the prefix is public', async (t) => {
  t.deepEqual(await propose(['a.x', 'a.y', 'alone', 'b.x.y']), { patterns: ['a.*', 'alone', 'b.*'], more: 0 });
  t.deepEqual(await propose(['a.x', 'a.y', 'b.z'], ['a.']), { patterns: ['a.x', 'a.y', 'b.*'], more: 0 });
  const many = Array.from({ length: 8 }, (_, index) => `a.${index}`);
  t.deepEqual(await propose(many.slice(0, 5), ['a.']), { patterns: many.slice(0, 5), more: 0 });
  t.deepEqual(await propose(many, ['a.']), { patterns: many.slice(0, 5), more: 1 });
  t.deepEqual(await propose(many), { patterns: ['a.*'], more: 0 });
  // Two accounts may host the same name.
  t.deepEqual(await propose(['alone', 'b.x', 'alone', 'b.x', 'b.y'], ['b.']), {
    patterns: ['alone', 'b.x', 'b.y'],
    more: 0,
  });
  t.deepEqual(await propose(Array(8).fill('b.x'), ['b.']), { patterns: ['b.x'], more: 0 });
  const prefixes = Array.from({ length: 22 }, (_, index) => `p${index}.x`);
  const proposed = await propose(prefixes);
  t.deepEqual([proposed.patterns.length, proposed.more], [20, 2]);
});

test('the view of an account has the upstreams that name it, and is remembered once the account exists', async (t) => {
  const names = new Map([
    [1, 'team'],
    [2, 'other'],
  ]);
  const opened: [string | undefined, number][] = [];
  const views = (upstreams: readonly Upstream[]) =>
    new AccountViews(
      upstreams,
      (id) => Promise.resolve(names.get(id)),
      (account, id) => {
        opened.push([account, id]);
        return { account };
      },
    );
  const limited = views([upstream('a'), upstream('b', { accounts: ['team', 'later'] })]);
  t.is((await limited.of(1)).account, 'team');
  t.is((await limited.of(2)).account, undefined, 'no upstream names it');
  t.is(limited.of(1), await limited.of(1));
  t.is((await limited.of(3)).account, undefined);
  names.set(3, 'later');
  t.is((await limited.of(3)).account, 'later', 'it was created since');
  t.deepEqual(opened.splice(0), [
    ['team', 1],
    [undefined, 2],
    [undefined, 3],
    ['later', 3],
  ]);
  const open = views([upstream('a')]);
  t.deepEqual(open.of(1), { account: undefined });
  t.is(open.of(1), open.of(1));
  t.deepEqual(opened, [[undefined, 1]]);
});

const name = { accountId: 1, kind: 'package', name: 'lib' } as unknown as MirroredName;
const denied = { denied: 'bad' };
const judges = (verdicts: Record<string, 'hold' | { denied: string; isHidden?: boolean }>): Judge => {
  const verdictOf = (reference: string) => verdicts[reference] ?? 'allow';
  return () => Promise.resolve(verdictOf);
};

test('what is held is not served, whatever else is denied, and what is denied says why', async (t) => {
  t.true(isServed([]));
  t.true(isServed(['allow', 'allow']));
  t.false(isServed([denied, 'hold']));
  t.throws(() => isServed(['allow', denied]), { name: 'Denied', message: 'bad' });
  t.deepEqual(
    ['allow', 'hold', denied, { ...denied, isHidden: true }].map((each) => isHidden(each as never)),
    [false, true, false, true],
  );
  const admission = new Admission(judges({ held: 'hold', bad: denied }));
  t.true(await admission.serves(name, 'good'));
  t.false(await admission.serves(name, 'good', 'held'));
  await t.throwsAsync(admission.serves(name, 'bad', 'good'), { name: 'Denied' });
  t.true(await admission.isLimited(name));
  const open = new Admission(noJudge);
  t.true(await open.serves(name, 'bad'));
  t.false(await open.isLimited(name));
  t.is(await open.decided(name, ['bad']), undefined);

  const both = admission.and(judges({ old: 'hold', bad: { denied: 'other' }, held: { denied: 'other' } }));
  const verdictOf = (await both(name, [], 'list'))!;
  t.deepEqual(['held', 'bad', 'old', 'good'].map(verdictOf), ['hold', denied, 'hold', 'allow']);
  const one = (await open.and(judges({ old: 'hold' }))(name, [], 'list'))!;
  t.deepEqual(['old', 'good'].map(one), ['hold', 'allow']);
  t.is(await open.and(noJudge)(name, [], 'list'), undefined);
});

const itself = (item: string) => item;

test('a list without what is hidden is the same array while the verdicts stay', async (t) => {
  const admission = new Admission(judges({ held: 'hold', bad: denied, hidden: { denied: 'x', isHidden: true } }));
  const items = ['good', 'held', 'bad', 'hidden'];
  const shown = await admission.listed(name, items, itself);
  t.deepEqual(shown, ['good', 'bad']);
  t.is(await admission.listed(name, items, itself), shown);
  t.deepEqual(await admission.listed(name, items, () => 'good'), items, 'another way to read the references');
  const good = ['good'];
  t.is(await admission.listed(name, good, itself), good);
  const none: string[] = [];
  t.is(await admission.listed(name, none, itself), none);
  t.is(await new Admission(noJudge).listed(name, items, itself), items);
});

const release = (obstacle: ClaimObstacle | undefined) =>
  releaseClaim(
    'package',
    { contents: 'versions', list: () => Promise.resolve([]), release: () => Promise.resolve(obstacle) },
    1,
    'Lib',
  );

test('a claim that cannot be released says what to do', async (t) => {
  await release(undefined);
  await t.throwsAsync(release('unclaimed'), { name: 'NotFound', message: 'This account claims no package "Lib".' });
  await t.throwsAsync(release('deleted'), { name: 'Invalid', message: /has deleted versions that can be restored/ });
  await t.throwsAsync(release('in use'), { name: 'Invalid', message: /still has versions/ });
});

const counted = (listed: string, refs: number): CountedName => {
  const totals = { refs, bytes: 10 * refs, storedAt: 1, usedAt: 1, downloads: 0 };
  return { upstream: 'u', name: listed, listed, ...totals };
};

const isShown = (each: CountedName) => each.listed !== 'hidden';

const show = (some: readonly CountedName[]) =>
  Promise.resolve(new Map(some.filter(({ listed }) => listed !== 'gone').map((each) => [each, each.listed])));

test('counted names are sorted, filtered and added up in pages, without those that are gone', async (t) => {
  const all = [counted('b', 2), counted('a', 2), counted('gone', 5), counted('c', 9), counted('hidden', 7)];
  async function* read(accountId: number) {
    yield accountId === 1 ? all.slice(0, 3) : [];
    yield accountId === 1 ? all.slice(3) : [];
  }
  const names = new CountedNames(read, () => 1000);
  const walk = async (limit: number, by: NameOrder['by'], filter = '') => {
    const found: string[] = [];
    let after: Rank | undefined;
    for (;;) {
      const page = await names.page(1, { by, text: filter, isShown }, limit, after, show);
      t.true(page.length <= limit);
      if (page.length === 0) return found.join('');
      for (const { item } of page) found.push(item);
      after = page.at(-1)!.rank;
    }
  };
  for (const account of [1, 2]) await until(async () => (await names.asOf(account)) === 1000);
  for (const limit of [1, 2, 9]) {
    t.is(await walk(limit, 'refs'), 'cab');
    t.is(await walk(limit, undefined), 'abc');
    t.is(await walk(limit, undefined, 'a'), 'a');
  }
  t.deepEqual(await names.total(1, { text: '', isShown }), { count: 4, bytes: 180 });
  t.deepEqual(await names.total(1, { text: 'o', isShown }), { count: 1, bytes: 50 });
  t.deepEqual(await names.total(2, { text: '', isShown }), { count: 0, bytes: 0 });
});
