import test from 'ava';
import type { Session } from '../../src/accounts/sessions.ts';
import type { Token } from '../../src/accounts/token-rows.ts';
import { ownTokenOperations } from '../../src/api/account/own-tokens.ts';
import { sessionOperations } from '../../src/api/account/sessions.ts';
import { storageOperations } from '../../src/api/account/storage.ts';
import { tokenOperations } from '../../src/api/account/tokens.ts';
import { useOperations } from '../../src/api/account/uses.ts';
import { cursorOf } from '../../src/api/framework/paging.ts';
import { named, noted, runOf, scopes } from '../support/operations.ts';

// What an account sees of its tokens, sessions, uses and storage, with and without limits. Other files have requests.

const now = Date.UTC(2027, 0, 31);
const day = 86_400_000;
const timeOf = (milliseconds: number) => new Date(milliseconds).toISOString();
const idsOf = (answer: Record<string, any>) => answer['items'].map(({ id }: { id: string }) => id);

const token = (id: string, more: Partial<Token> = {}): Token => ({
  id,
  name: `Name ${id}`,
  tokenPrefix: 'ent_abc',
  scopes: ['read'],
  patterns: null,
  publisherId: null,
  personId: null,
  createdBy: null,
  createdAt: now,
  expiresAt: null,
  lastUsedAt: null,
  revokedAt: null,
  refusedBecause: null,
  ...more,
});
const shownToken = {
  id: 'a',
  name: 'Name a',
  token_prefix: 'ent_abc',
  scopes: ['read'],
  patterns: null,
  publisher_id: null,
  person_id: null,
  created_by: null,
  created_at: timeOf(now),
  expires_at: null,
  last_used_at: null,
  revoked_at: null,
  refused_because: null,
};

const limited = { packages: ['A.One'], containers: [] };
const all = [token('a'), token('b', { patterns: limited }), token('c', { scopes: ['read', 'operate'], createdAt: 5 })];

function tokens() {
  const asked: unknown[] = [];
  const parts = {
    list: (id: number, limit: number, after?: readonly [number, string]) => {
      asked.push(['list', id, limit, after]);
      return Promise.resolve(all.filter((each) => after === undefined || each.id > after[1]).slice(0, limit));
    },
    byUse: (id: number, limit: number, after?: readonly [number | null, string]) => {
      asked.push(['byUse', id, limit, after]);
      const ranked = all.toReversed().map((item, index) => ({ rank: [9 - index, item.id] as const, item }));
      return Promise.resolve(ranked.filter(({ rank }) => !after || rank[0] < after[0]!).slice(0, limit));
    },
    get: (accountId: number, id: string) => {
      asked.push(['get', accountId, id]);
      return Promise.resolve(all.find((each) => each.id === id));
    },
    find: noted(asked, 'find', all.slice(0, 2)),
    create: noted(asked, 'create', { token: all[0], value: 'ent_VALUE' }),
    revoke: noted(asked, 'revoke'),
  };
  return { parts, asked, run: runOf(tokenOperations(parts as never)) };
}

test('tokens are listed by their name, and to a limited one only those within its limits', async (t) => {
  const { run, asked } = tokens();
  const list = (query: object, principal?: object) => run('listTokens', { query }, principal);
  t.deepEqual(await list({}), {
    items: [
      shownToken,
      { ...shownToken, id: 'b', name: 'Name b', patterns: limited },
      { ...shownToken, id: 'c', name: 'Name c', scopes: ['read', 'operate'], created_at: timeOf(5) },
    ],
    next_cursor: null,
  });
  t.deepEqual(idsOf(await list({ name: 'NAME B' })), ['b']);
  t.deepEqual(idsOf(await list({}, named('a.*'))), ['b']);
  t.deepEqual(idsOf(await list({ name: 'x' }, named('a.*'))), []);
  t.deepEqual((await list({ total: '1', name: 'name' }))['total'], { count: 3 });
  const first = await list({ limit: '1' });
  t.deepEqual(idsOf(await list({ limit: '1', cursor: first['next_cursor'] })), ['b']);
  t.is(first['next_cursor'], cursorOf('tokens', [now, 'a']));
  t.deepEqual(asked.at(-1), ['list', 7, 2, [now, 'a']]);
  asked.length = 0;
  const used = await list({ sort: 'used', limit: '2', total: '1' });
  t.deepEqual(asked[0], ['byUse', 7, 3, undefined]);
  t.is(used['next_cursor'], cursorOf('tokens by used', [8, 'b']));
  t.deepEqual([idsOf(used), used['total']], [['c', 'b'], { count: 3 }]);
  t.deepEqual(idsOf(await list({ sort: 'used', cursor: used['next_cursor'] })), ['a']);
  t.deepEqual(idsOf(await list({ sort: 'used', name: 'a' }, named('a.*'))), ['b']);
  await t.throwsAsync(list({ cursor: used['next_cursor'] }), { name: 'Invalid' }, 'of the other order');
});

test('a token is found, shown and revoked within the limits of who asks', async (t) => {
  const { run, asked } = tokens();
  t.deepEqual(idsOf(await run('findTokens', { body: { token: 'ent_abc' } })), ['a', 'b']);
  t.deepEqual(asked.pop(), ['find', 7, 'ent_abc']);
  const found = await run('findTokens', { body: { token: 'ent_abc' } }, named('a.one'));
  t.deepEqual([idsOf(found), found['next_cursor']], [['b'], null]);
  const get = (id: string, principal?: object) => run('getToken', { params: { id } }, principal);
  t.deepEqual(await get('a'), shownToken);
  t.is((await get('b', named('a.one')))['id'], 'b');
  const none = { name: 'NotFound', message: 'This account has no such token.' };
  await t.throwsAsync(get('x'), none);
  await t.throwsAsync(get('a', named('a.one')), none);

  const revoke = async (id: string, principal: object) => {
    asked.length = 0;
    await run('revokeToken', { params: { id } }, principal);
    t.deepEqual(asked.at(-1), ['revoke', 7, id]);
    return asked.length;
  };
  t.is(await revoke('mine', {}), 1, 'itself, without a right');
  t.is(await revoke('a', scopes('admin')), 2);
  t.is(await revoke('x', scopes('admin')), 2, 'it says that there is none');
  await revoke('c', scopes('admin', 'operate'));
  await revoke('b', { ...scopes('admin'), ...named('a.one') });
  await t.throwsAsync(revoke('a', {}), { name: 'ScopeMissing' });
  await t.throwsAsync(revoke('c', scopes('admin')), { name: 'ScopeMissing' });
  await t.throwsAsync(revoke('a', { ...scopes('admin'), ...named('a.one') }), { name: 'NameDenied' });
});

test('a token that another one makes ends with it, and with its rule, person and job', async (t) => {
  const { run, asked } = tokens();
  const body = { name: 'new', scopes: ['read'] };
  const make = async (more: object = {}, principal: object = {}) => {
    t.deepEqual(
      await run(
        'createToken',
        { body: { ...body, ...more } },
        { ...scopes('read', 'admin'), expiresAt: null, ...principal },
      ),
      {
        ...shownToken,
        token: 'ent_VALUE',
      },
    );
    return asked.pop();
  };
  const made = { ...body, patterns: null, expiresAt: null, publisherId: null, personId: null, job: null };
  t.deepEqual(await make(), ['create', 7, made]);
  const job = { repository: 'r' };
  t.deepEqual(
    await make(
      { patterns: limited, expires_at: timeOf(now) },
      { publisherId: 'rule', personId: 'ann', job, ...named('a.*') },
    ),
    ['create', 7, { ...made, patterns: limited, expiresAt: now, publisherId: 'rule', personId: 'ann', job }],
  );
  t.deepEqual(await make({}, { expiresAt: now }), ['create', 7, { ...made, expiresAt: now }]);
  t.deepEqual(await make({}, { kind: 'person', personId: 'ann' }), ['create', 7, made]);
  await t.throwsAsync(make({ expires_at: timeOf(now + 1) }, { expiresAt: now }), { name: 'Invalid' });
  await t.throwsAsync(make({ scopes: ['operate'] }), { name: 'ScopeMissing' });
  await t.throwsAsync(make({}, named('a.*')), { name: 'NameDenied' });
});

const ann = { kind: 'person', personId: 'ann', ...scopes('read', 'write') };

test('a person makes, sees and revokes own tokens, for 90 days or as long as the limits say', async (t) => {
  const { parts, asked } = tokens();
  const open = ({ absolute = 365 * day, longest = null as number | null, allowed = null as string[] | null } = {}) =>
    runOf(
      ownTokenOperations(
        {
          ...parts,
          list: noted(asked, 'list', all),
          get: noted(asked, 'get', token('a', { personId: 'ann' })),
        } as never,
        { tokenTimes: { absolute } } as never,
        { of: noted(asked, 'limits', { scopes: allowed, longest }) } as never,
        () => now,
      ),
    );
  const body = { name: 'own', scopes: ['read', 'write'] };
  const end = async (limits: Parameters<typeof open>[0], wanted?: number) => {
    const more = wanted === undefined ? {} : { expires_at: timeOf(wanted) };
    const made = await open(limits)('createOwnToken', { body: { ...body, ...more } }, ann);
    t.is(made['token'], 'ent_VALUE');
    const [, account, { expiresAt, ...given }] = asked.pop() as [string, number, { expiresAt: number }];
    t.deepEqual([account, given], [7, { ...body, patterns: null, personId: 'ann' }]);
    return (expiresAt - now) / day;
  };
  t.is(await end({}), 90);
  t.is(await end({ absolute: 30 * day }), 30);
  t.is(await end({ longest: 7 * day }), 7);
  t.is(await end({ absolute: 6 * day, longest: 7 * day }), 6);
  t.is(await end({}, now + 365 * day), 365);
  for (const [limits, message] of [
    [{}, 'A personal token expires after 365 days at the latest (signIn.tokens.absolute).'],
    [
      { longest: 7 * day },
      'A personal token expires after 7 days at the latest (an administrator of this account set that).',
    ],
  ] as const)
    t.like(await t.throwsAsync(end(limits, now + 365 * day + 1), { name: 'Invalid', message }), {
      detail: { errors: [{ field: 'expires_at', message }] },
    });
  await end({ allowed: ['read', 'write'] });
  await t.throwsAsync(end({ allowed: ['read', 'promote'] }), {
    message: 'Personal tokens of this account have at most read, promote.',
  });
  const message = 'Personal tokens of this account have at most no scope.';
  t.like(await t.throwsAsync(end({ allowed: [] }), { message }), {
    detail: { errors: [{ field: 'scopes', message }] },
  });

  const run = open();
  await t.throwsAsync(run('createOwnToken', { body: { ...body, scopes: ['admin'] } }, ann), { name: 'ScopeMissing' });
  for (const id of ['listOwnTokens', 'createOwnToken', 'revokeOwnToken'])
    await t.throwsAsync(run(id, { body }), { name: 'Denied', message: /belong to people/ });
  const first = await run('listOwnTokens', { query: { limit: '2' } }, ann);
  t.deepEqual(idsOf(first), ['a', 'b']);
  t.is(first['next_cursor'], cursorOf('me/tokens', [now, 'b']));
  t.deepEqual(asked.at(-1), ['list', 7, 3, undefined, 'ann']);
  await run('listOwnTokens', { query: { limit: '2', cursor: first['next_cursor'] } }, ann);
  t.deepEqual(asked.at(-1), ['list', 7, 3, [now, 'b'], 'ann']);
  await run('revokeOwnToken', { params: { id: 'a' } }, ann);
  t.deepEqual(asked.slice(-2), [
    ['get', 7, 'a'],
    ['revoke', 7, 'a'],
  ]);
  await t.throwsAsync(run('revokeOwnToken', { params: { id: 'a' } }, { ...ann, personId: 'bob' }), {
    name: 'NotFound',
    message: 'You have no such token in this account.',
  });
});

const session = (id: string, more: Partial<Session> = {}): Session => ({
  id,
  tokenId: 'other',
  tokenName: 'Build',
  person: null,
  scopes: new Set(['read']),
  agent: 'Browser',
  address: '10.0.0.1',
  createdAt: now,
  lastUsedAt: now + 1,
  ...more,
});
const byPerson = { tokenId: null, tokenName: null, person: { id: 'ann', name: 'Ann', accounts: ['alpha'] } };

function sessions(one: Session | undefined = session('a')) {
  const asked: unknown[] = [];
  const list = [
    session('a'),
    session('b', { tokenId: 'mine', tokenName: null }),
    session('c', byPerson),
    session('d', { ...byPerson, person: { ...byPerson.person, accounts: ['beta'] } }),
  ];
  const parts = { list: noted(asked, 'list', list), get: noted(asked, 'get', one), end: noted(asked, 'end') };
  return { asked, run: runOf(sessionOperations(parts as never)) };
}

test('the sessions of the account are shown, to a limited token only its own', async (t) => {
  const { run, asked } = sessions();
  const list = (query: object, principal?: object) => run('listSessions', { query }, principal);
  const { items } = await list({});
  t.deepEqual(items.slice(1), [
    {
      id: 'b',
      token_id: 'mine',
      token_name: null,
      person: null,
      agent: 'Browser',
      address: '10.0.0.1',
      created_at: timeOf(now),
      last_used_at: timeOf(now + 1),
    },
    {
      id: 'c',
      token_id: null,
      token_name: null,
      person: { id: 'ann', name: 'Ann' },
      agent: 'Browser',
      address: '10.0.0.1',
      created_at: timeOf(now),
      last_used_at: timeOf(now + 1),
    },
  ]);
  t.deepEqual(asked.pop(), ['list', 7, 500, undefined, { tokenId: undefined, isOldest: false }]);
  t.deepEqual(idsOf(await list({ q: 'BUILD' })), ['a']);
  t.deepEqual(idsOf(await list({ q: 'ann' })), ['c']);
  t.deepEqual(idsOf(await list({ q: 'here' })), [], 'one without a name');
  t.deepEqual(idsOf(await list({}, named('a'))), ['b']);
  t.deepEqual(idsOf(await list({}, { ...named('a'), kind: 'person', personId: 'ann' })), ['c', 'd']);
  t.deepEqual(idsOf(await list({}, { ...named('a'), kind: 'person', personId: 'bob' })), []);
  const id = '4e4d2183-d716-4510-b3a0-54fdbd34e843';
  const first = await list({ limit: '1', sort: 'oldest', token_id: id, total: '1' });
  t.deepEqual(first['total'], { count: 3 });
  t.is(first['next_cursor'], cursorOf('sessions, the oldest first', [now, 'a']));
  await list({ limit: '1', sort: 'oldest', token_id: id, cursor: first['next_cursor'] });
  t.deepEqual(asked.at(-1), ['list', 7, 500, [now, 'a'], { tokenId: id, isOldest: true }]);
});

test('a session is ended by an administrator, one with operate only with operate, and the own one always', async (t) => {
  const end = async (one: Session | undefined, principal?: object) => {
    const { run, asked } = sessions(one);
    await run('endSession', {}, principal);
    t.deepEqual(asked, [
      ['get', 7, '5'],
      ['end', 7, one!.id],
    ]);
  };
  const operates = { scopes: new Set(['read', 'operate']) } as Partial<Session>;
  const none = { name: 'NotFound', message: 'This account has no such session. It may have ended.' };
  await end(session('a'));
  await end(session('a', operates), scopes('operate'));
  await end(session('a', { ...operates, tokenId: 'mine' }));
  await end(session('a', { ...operates, ...byPerson }), { kind: 'person', personId: 'ann' });
  await end(session('a', { tokenId: 'mine' }), named('a'));
  await t.throwsAsync(end(session('a', operates)), { name: 'ScopeMissing' });
  await t.throwsAsync(end(session('a', { ...operates, tokenId: null })), { name: 'ScopeMissing' });
  await t.throwsAsync(end(session('a'), named('a')), none);
  await t.throwsAsync(end(session('a', { ...byPerson, person: { ...byPerson.person, accounts: [] } })), none);
  const { run } = sessions(null as never);
  await t.throwsAsync(run('endSession'), none);
});

const use = (kind: string, name: string, userId: string) => ({
  kind,
  name,
  userId,
  downloads: 1,
  uploads: 2,
  lastAt: now,
});

test('uses are of a name or of a token, and a limited token sees names and tokens within its limits', async (t) => {
  const { parts, asked } = tokens();
  const found = [
    use('package', 'a.one', 'a'),
    use('package', 'a.one', 'b'),
    use('package', 'b', 'b'),
    use('client', '10.0.0.1 x', 'b'),
    use('client', '10.0.0.1 x', 'rule'),
  ];
  const uses = { under: noted(asked, 'under', found), of: noted(asked, 'of', found) };
  const run = runOf(useOperations(uses as never, parts as never));
  const answer = await run('listUses', { query: { kind: 'package', name: 'A.One' } });
  t.deepEqual(asked, [
    ['under', 7, 'package', 'a.one', 200],
    ['get', 7, 'a'],
    ['get', 7, 'b'],
    ['get', 7, 'rule'],
  ]);
  const shown = (index: number, name: string | null) => {
    const { userId, lastAt: _lastAt, ...rest } = found[index]!;
    return { ...rest, token_id: userId, token_name: name, last_used_at: timeOf(now) };
  };
  t.deepEqual(answer, {
    items: [shown(0, 'Name a'), shown(1, 'Name b'), shown(2, 'Name b'), shown(3, 'Name b'), shown(4, null)],
    next_cursor: null,
  });
  asked.length = 0;
  const narrow = await run('listUses', { query: { kind: 'client', token_id: 'b' } }, named('a.one'));
  t.deepEqual(asked[0], ['of', 7, 'b', 'client', 200]);
  t.deepEqual(narrow['items'], [shown(1, 'Name b'), shown(3, 'Name b')]);
  for (const query of [{ kind: 'package' }, { kind: 'package', name: 'a', token_id: 'b' }])
    await t.throwsAsync(run('listUses', { query }), { name: 'Invalid', message: 'Send name or token_id.' });
});

test('the storage of an account has its largest names and those that nobody uses, and for operators the disk', async (t) => {
  const asked: unknown[] = [];
  const old = now - 90 * day - 1;
  const name = (each: string, sizeBytes: number, changedAt = now, lastUsedAt: number | null = null) => ({
    name: each,
    sizeBytes,
    changedAt,
    lastUsedAt,
  });
  const packages = [
    name('Old', 5, old),
    name('Used', 4, old, now - 90 * day),
    ...Array.from({ length: 20 }, (_, index) => name(`p${index}`, 2)),
  ];
  const parts = {
    limits: {},
    mirror: {},
    stored: {
      of: noted(asked, 'of', { hosted: 1, mirrored: 2, asOf: now }),
      history: noted(asked, 'history', [{ day: now, hosted: 3, mirrored: 4 }]),
    },
    room: { measure: noted(asked, 'room', { free: 6, reserve: 7 }) },
    protocols: [
      { kind: 'package', largest: noted(asked, 'packages', packages) },
      { kind: 'container', largest: noted(asked, 'images', [name('image', 9, old, old)]) },
    ],
    now: () => now,
  };
  const read = (more: object = {}, query: object = {}, principal: object = {}) =>
    runOf(storageOperations({ ...parts, ...more } as never))('getStorage', { query }, principal);
  const { largest, unused, ...rest } = await read();
  t.deepEqual(rest, {
    as_of: timeOf(now),
    hosted_bytes: 1,
    mirrored_bytes: 2,
    limit_bytes: null,
    mirror_limit_bytes: null,
    disk: null,
    history: [{ date: '2027-01-31', hosted_bytes: 3, mirrored_bytes: 4 }],
  });
  const image = { kind: 'container', name: 'image', size_bytes: 9, last_used_at: timeOf(old), changed_at: timeOf(old) };
  const unusedPackage = { kind: 'package', name: 'Old', size_bytes: 5, last_used_at: null, changed_at: timeOf(old) };
  t.is(largest.length, 20);
  t.deepEqual(largest.slice(0, 2), [image, unusedPackage]);
  t.deepEqual(unused, [image, unusedPackage]);
  t.deepEqual(asked, [
    ['of', 7],
    ['history', 7, now - 30 * day],
    ['packages', 7, 2000],
    ['images', 7, 2000],
  ]);
  const settings = { limits: { accountStorage: 50 }, mirror: { maxSize: 60 } };
  asked.length = 0;
  t.like(await read(settings, { days: '365' }, scopes('operate')), {
    limit_bytes: 50,
    mirror_limit_bytes: 60,
    disk: { free_bytes: 6, reserve_bytes: 7 },
  });
  t.deepEqual(asked[1], ['history', 7, now - 365 * day]);
  t.like(await read(settings), { limit_bytes: 50, mirror_limit_bytes: null });
  t.is((await read({}, {}, scopes('operate')))['mirror_limit_bytes'], null);
  t.deepEqual((await read({}, {}, named('old')))['largest'], [unusedPackage]);
  const many = {
    ...parts.protocols[0],
    largest: noted(
      asked,
      'packages',
      packages.map((each) => ({ ...each, changedAt: old, lastUsedAt: null })),
    ),
  };
  t.is((await read({ protocols: [many] }))['unused'].length, 20);
  t.like(await read({ stored: { ...parts.stored, of: noted(asked, 'of') } }), {
    as_of: null,
    hosted_bytes: 0,
    mirrored_bytes: 0,
  });
});
