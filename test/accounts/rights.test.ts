import test from 'ava';
import type { Grant } from '../../src/accounts/grant-rows.ts';
import { Names, type NameKind, type Patterns } from '../../src/accounts/names.ts';
import { listsOf, ownerOf } from '../../src/accounts/owner.ts';
import type { Principal, Scope } from '../../src/accounts/principal.ts';
import { combined, type Right } from '../../src/accounts/rights.ts';
import { SharedNames, type AccountNames } from '../../src/accounts/shared-names.ts';
import { endOfToken } from '../../src/accounts/token-rows.ts';

const right = (scopes: readonly Scope[], ...packages: string[]): Right => ({
  scopes,
  patterns: packages.length === 0 ? null : { packages },
});
const names = ['a', 'b', 'c'];
/** Which of three names are allowed. */
const allowed = (given: Names | undefined) =>
  given === undefined ? 'all' : names.filter((name) => given.of('package').includes(name)).join(' ');

const seen = (rights: readonly Right[], limit?: Parameters<typeof combined>[1]) => {
  const { scopes, names: all, namesByScope } = combined(rights, limit);
  const each = namesByScope && Object.fromEntries([...namesByScope].map(([scope, of]) => [scope, allowed(of)]));
  return [[...scopes].join(' '), allowed(all), each];
};

test('rights together give each scope for the names of those that have it, within the limits of a token', (t) => {
  t.deepEqual(seen([]), ['', 'all', undefined]);
  t.deepEqual(seen([right(['read', 'write'])]), ['read write', 'all', undefined]);
  t.deepEqual(seen([right(['read', 'write'], 'a')]), ['read write', 'a', undefined]);
  t.deepEqual(seen([right(['read'], 'a'), right(['read'], 'b')]), ['read', 'a b', undefined]);
  t.deepEqual(seen([right(['read'], 'a'), right(['read'])]), ['read', 'all', undefined]);
  t.deepEqual(seen([right(['read'], 'a'), right(['write'], 'b')]), ['read write', 'a', { read: 'a', write: 'b' }]);
  t.deepEqual(seen([right(['read']), right(['write', 'read'], 'b')]), [
    'read write',
    'all',
    { read: 'all', write: 'b' },
  ]);
  t.deepEqual(seen([right(['write'], 'a'), right(['delete'])]), ['write delete', '', { write: 'a', delete: 'all' }]);
  const limit = { scopes: ['read'] as const, names: undefined };
  t.deepEqual(seen([right(['read', 'write'], 'a'), right(['write'])], limit), ['read', 'a', undefined]);
  const both = { scopes: ['read', 'write'] as const, names: new Names({ packages: ['b', 'c'] }) };
  t.deepEqual(seen([right(['read', 'write', 'admin'])], both), ['read write', 'b c', undefined]);
  t.deepEqual(seen([right(['read'], 'a', 'b'), right(['write'])], both), [
    'read write',
    'b',
    { read: 'b', write: 'b c' },
  ]);
});

test('shared names are listed by account, and a name belongs to the first account that hosts it under a shared name', async (t) => {
  const grants: [accountId: number, patterns: Patterns][] = [
    [2, { packages: ['Lib.*'] }],
    [3, { packages: ['Lib.B', 'Other'] }],
    [2, { packages: ['More'] }],
    [4, { containers: ['team/*'] }],
  ];
  const hosted: [accountId: number, name: string, as: string][] = [
    [1, 'lib.own', 'lib.own'],
    [2, 'lib.own', 'lib.own'],
    [3, 'lib.b', 'lib.b'],
    [2, 'lib.a', 'lib.a'],
    [2, 'other', 'other'],
    // What clients call so is stored under a name that is not shared.
    [2, 'lib.alias', 'secret'],
  ];
  const kind: AccountNames = {
    kind: 'package',
    hostedAs: (accountId, name) => Promise.resolve(hosted.find(([id, each]) => id === accountId && each === name)?.[2]),
    mirroredAmong: () => Promise.resolve([]),
  };
  const shared = new SharedNames(
    grants.map(([accountId, patterns]) => ({ accountId, patterns }) as Grant),
    new Map<NameKind, AccountNames>([['package', kind]]),
  );
  const listed = (of: string, within?: Names) =>
    shared.lists(1, of, within).map(({ accountId, only, without }) => {
      const found = ['lib.a', 'lib.b', 'more', 'other', 'team/app'].filter((name) => only!.includes(name));
      return [accountId, found.join(' '), without];
    });
  t.deepEqual(listed('package'), [
    [2, 'lib.a lib.b more', 1],
    [3, 'lib.b other', 1],
  ]);
  t.deepEqual(listed('container'), [[4, 'team/app', 1]]);
  t.deepEqual(listed('package', new Names({ packages: ['*b', 'More'] })), [
    [2, 'lib.b more', 1],
    [3, 'lib.b', 1],
  ]);
  t.deepEqual(listed('package', new Names({ containers: ['*'] })), []);
  for (const [name, owner] of [
    ['Lib.A', 2],
    ['lib.b', 3],
    ['Lib.Own', 1],
    ['lib.none', 1],
    ['lib.alias', 1],
    ['other', 1],
    ['unshared', 1],
  ] as const)
    t.is(await shared.ownerOf(1, 'package', name), owner, name);
  t.is(await shared.ownerOf(1, 'container', 'team/app'), 1, 'a kind that nobody shares');
  t.is(shared.ownerOf(1, 'package', 'unshared'), 1, 'without a look at what is hosted');

  const principal = { accountId: 1, shared, names: new Names({ packages: ['lib.a', 'own'] }) } as Principal;
  t.is(await ownerOf(principal, 'package', 'lib.a'), 2);
  for (const [action, owner] of [
    ['read', 2],
    ['account', 2],
    ['write', 1],
    ['any', 1],
  ] as const)
    t.is(await ownerOf(principal, 'package', 'lib.a', action), owner, action);
  t.is(ownerOf({ ...principal, shared: undefined }, 'package', 'lib.a'), 1);
  const [own, ...others] = listsOf(principal, 'package');
  t.deepEqual(
    [own.accountId, own.without, own.only!.includes('own'), own.only!.includes('x')],
    [1, undefined, true, false],
  );
  t.deepEqual(
    others.map(({ accountId, only, without }) => [
      accountId,
      only!.includes('lib.a'),
      only!.includes('lib.b'),
      without,
    ]),
    [
      [2, true, false, 1],
      [3, false, false, 1],
    ],
  );
  t.deepEqual(listsOf({ accountId: 1, names: undefined, shared: undefined } as Principal, 'package'), [
    { accountId: 1, only: undefined },
  ]);
});

const ends = (owner: string | null, expires: number | null, longest: number | null) =>
  endOfToken({
    owner_id: owner,
    expires_at: expires,
    created_at: 100,
    personal_tokens: JSON.stringify({ scopes: null, longest }),
  } as never);

test('a personal token ends at the end of the longest life in its account, or before', (t) => {
  t.deepEqual([ends('p', null, 1000), ends('p', 500, 1000), ends('p', 5000, 1000)], [1100, 500, 1100]);
  t.deepEqual([ends(null, 5000, 1000), ends(null, null, 1000), ends('p', 5000, null)], [5000, null, 5000]);
});
