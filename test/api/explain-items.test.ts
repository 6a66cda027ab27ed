import test from 'ava';
import { grantOperations } from '../../src/api/account/grants.ts';
import { clientOperations } from '../../src/api/clients/clients.ts';
import { cursorOf } from '../../src/api/framework/paging.ts';
import type { Operation } from '../../src/api/framework/operation.ts';
import { policyOperations } from '../../src/api/policy/policy.ts';
import { explainOperations } from '../../src/api/upstreams/explain.ts';
import { clientKinds, clients } from '../../src/clients/client.ts';
import { named, noted, runOf, scopes } from '../support/operations.ts';

const at = (milliseconds: number) => new Date(milliseconds).toISOString();

/** Whether an operation takes a query or a body. */
function takes(operations: readonly Operation[], id: string, part: 'query' | 'body', value: unknown): boolean {
  return operations.find((each) => each.id === id)![part]!.safeParse(value).success;
}

const grant = {
  id: '11111111-1111-4111-8111-111111111111',
  accountId: 7,
  subject: { kind: 'token', issuer: null, id: 'bot' },
  verbs: ['read', 'operate', 'write'],
  patterns: { packages: ['Contoso.*'] } as Record<string, string[]> | null,
  acceptedAt: null as number | null,
  createdBy: { kind: 'system', id: null, name: null },
  createdAt: 1000,
};
const grantShown = {
  id: grant.id,
  account: 'alpha',
  subject: grant.subject,
  verbs: ['read', 'write'],
  packages: ['Contoso.*'],
  images: [],
  state: 'active',
  created_by: grant.createdBy,
  created_at: at(1000),
  accepted_at: null,
};

function grantRun(listed: readonly object[] = [grant]) {
  const asked: unknown[][] = [];
  const grants = {
    list: noted(asked, 'list', listed),
    get: noted(asked, 'get', listed[0]),
    add: noted(asked, 'add', listed[0]),
    accept: noted(asked, 'accept', listed[0]),
    remove: async (account: number, id: string, allowed: (found: object) => void) => {
      asked.push(['remove', account, id]);
      allowed(listed[0]!);
      return Promise.resolve();
    },
  };
  const access = {
    explain: noted(asked, 'explain', { allowed: true, because: 'a grant', grants: listed }),
    entitled: noted(asked, 'entitled', {
      entitled: [{ who: { kind: 'group', id: 'g' }, name: null, because: 'a grant' }],
      isComplete: false,
    }),
  };
  const accounts = { nameOf: (id: number) => Promise.resolve(id === 7 ? 'alpha' : undefined) };
  const operations = grantOperations({ grants, access, accounts } as never);
  return { asked, operations, run: runOf(operations) };
}

test('a grant is shown with its names, its state and who made it, if that is of the own account', async (t) => {
  for (const [change, shown] of [
    [{}, {}],
    [{ patterns: null }, { packages: [] }],
    [{ patterns: { containers: ['team/*'] } }, { packages: [], images: ['team/*'] }],
    [
      { subject: { ...grant.subject, kind: 'account' } },
      { subject: { ...grant.subject, kind: 'account' }, state: 'pending' },
    ],
    [
      { subject: { ...grant.subject, kind: 'account' }, acceptedAt: 5 },
      { subject: { ...grant.subject, kind: 'account' }, accepted_at: at(5) },
    ],
    [{ accountId: 8 }, { account: '', created_by: null }],
  ] as const) {
    const { run } = grantRun([{ ...grant, ...change }]);
    t.deepEqual(await run('getGrant', {}, scopes('admin', 'read', 'write', 'operate')), { ...grantShown, ...shown });
  }
});

test('grants are listed page by page, to a limited sender those within its limits', async (t) => {
  const listed = [1, 2, 3].map((each) => ({
    ...grant,
    id: String(each),
    createdAt: each,
    patterns: { packages: [`p${each}`] },
  }));
  const { run, asked } = grantRun(listed);
  const first = await run('listGrants', { query: { limit: '2', total: '1' } });
  t.deepEqual(
    [first['items'].map(({ id }: { id: string }) => id), first['next_cursor'], first['total']],
    [['1', '2'], cursorOf('grants', [2, '2']), { count: 3 }],
  );
  t.deepEqual(asked[0], ['list', 7, 3, undefined]);
  await run('listGrants', { query: { cursor: cursorOf('grants', [2, '2']) } });
  t.deepEqual(asked.at(-1), ['list', 7, 51, [2, '2']]);
  const limited = await run('listGrants', {}, named('p2'));
  t.deepEqual(
    limited['items'].map(({ id }: { id: string }) => id),
    ['2'],
  );
});

test('a grant is added, read, accepted and removed in the account of the sender, within its rights', async (t) => {
  const { run, asked } = grantRun();
  const admin = scopes('admin', 'read', 'write', 'operate');
  const body = { subject: grant.subject, verbs: ['read'] };
  t.deepEqual(await run('addGrant', { body: { ...body, packages: ['A'] } }, admin), grantShown);
  await run('addGrant', { body }, admin);
  await run('addGrant', { body: { ...body, images: ['b'], packages: [] } }, admin);
  t.deepEqual(asked, [
    ['add', 7, { ...body, packages: ['A'], patterns: { packages: ['A'] } }],
    ['add', 7, { ...body, patterns: null }],
    ['add', 7, { ...body, images: ['b'], packages: [], patterns: { packages: [], containers: ['b'] } }],
  ]);
  await t.throwsAsync(run('addGrant', { body: { ...body, verbs: ['operate'] } }, scopes('admin', 'read')), {
    name: 'ScopeMissing',
  });
  await t.throwsAsync(run('addGrant', { body }, { ...admin, ...named('A') }), { name: 'NameDenied' });
  asked.length = 0;
  await run('getGrant', { params: { id: 'x' } }, admin);
  await run('acceptGrant', { params: { id: 'x' } }, admin);
  t.is(await run('removeGrant', { params: { id: 'x' } }, admin), undefined as never);
  t.deepEqual(asked, [
    ['get', 7, 'x'],
    ['accept', 7, 'x'],
    ['remove', 7, 'x'],
  ]);
  for (const id of ['getGrant', 'removeGrant'])
    await t.throwsAsync(run(id, {}, { ...admin, ...named('Other') }), undefined, id);
});

test('rights are explained for a name of the account', async (t) => {
  const { run, asked, operations } = grantRun();
  const query = { verb: 'read', kind: 'image', name: ' team/app ' };
  t.deepEqual(await run('explainAccess', { query: { ...query, who: 'person', id: ' p ' } }), {
    allowed: true,
    because: 'a grant',
    grants: [grantShown],
  });
  t.deepEqual(await run('listEntitled', { query: { ...query, kind: 'package' } }), {
    items: [{ who: 'group', id: 'g', name: null, because: 'a grant' }],
    is_complete: false,
  });
  const question = { account: { id: 7, name: 'alpha' }, verb: 'read', name: 'team/app' };
  t.deepEqual(asked, [
    ['explain', { ...question, who: { kind: 'person', id: 'p' }, kind: 'container' }],
    ['entitled', { ...question, kind: 'package' }],
  ]);
  const good = { ...query, who: 'token', id: 'x'.repeat(255) };
  t.true(takes(operations, 'explainAccess', 'query', good));
  for (const bad of [
    { who: 'other' },
    { id: '' },
    { id: ' ' },
    { id: 'x'.repeat(256) },
    { verb: 'fly' },
    { kind: 'container' },
    { name: ' ' },
    { name: 'x'.repeat(256) },
    { name: undefined },
  ])
    t.false(takes(operations, 'explainAccess', 'query', { ...good, ...bad }), JSON.stringify(bad));
});

test('the request of a grant has a subject, verbs and patterns of some length', (t) => {
  const { operations } = grantRun();
  const good = { subject: { kind: 'person', id: 'x' }, verbs: ['read'] };
  const isTaken = (change: object) => takes(operations, 'addGrant', 'body', { ...good, ...change });
  for (const each of [
    {},
    { packages: ['x'.repeat(255)], images: [] },
    { packages: Array.from({ length: 50 }, () => 'x') },
    { subject: { kind: 'person', id: 'x'.repeat(255), issuer: 'x'.repeat(255) } },
    { subject: { kind: 'person', id: 'x', issuer: null } },
    { verbs: Array.from({ length: 50 }, () => 'read') },
  ])
    t.true(isTaken(each), JSON.stringify(each).slice(0, 80));
  for (const each of [
    { more: 1 },
    { verbs: [] },
    { verbs: ['fly'] },
    { verbs: Array.from({ length: 51 }, () => 'read') },
    { packages: [''] },
    { packages: [' '] },
    { images: ['x'.repeat(256)] },
    { images: Array.from({ length: 51 }, () => 'x') },
    { subject: { kind: 'other', id: 'x' } },
    { subject: { kind: 'person', id: ' ' } },
    { subject: { kind: 'person', id: 'x'.repeat(256) } },
    { subject: { kind: 'person', id: 'x', issuer: 'x'.repeat(256) } },
    { subject: { kind: 'person', id: 'x', more: 1 } },
  ])
    t.false(isTaken(each), JSON.stringify(each).slice(0, 80));
});

const registryUpstream = { id: 'u1', name: 'one', isOffline: false, config: { kind: 'registry' } };
const offlineUpstream = { id: 'u2', name: 'two', isOffline: true, config: { kind: 'registry' } };

interface Story {
  [part: string]: unknown;
}

function explainRun(story: Story = {}, known: readonly object[] = [], isAbsent = false) {
  const asked: unknown[][] = [];
  const whole = {
    isHosted: false,
    nameThere: 'library/app',
    spellings: ['app', 'library/app'],
    document: { kind: 'manifest', reference: 'latest' },
    upstreams: [
      { upstream: registryUpstream, rule: 'asked' },
      { upstream: offlineUpstream, rule: 'excluded', pattern: 'app*' },
    ],
    ...story,
  };
  const decision = { verdict: 'hold', evidence: [] };
  const parts = {
    protocols: [
      { kind: 'package', explain: noted(asked, 'packages', whole) },
      { kind: 'container', explain: noted(asked, 'images', whole) },
    ],
    overview: {
      list: () =>
        Promise.resolve([offlineUpstream, registryUpstream].map((upstream) => ({ upstream, figures: undefined }))),
      storedUnder: ({ id }: { id: string }, name: string) => {
        asked.push(['stored', id, name]);
        return Promise.resolve(id === 'u1' ? { entries: 3, validatedAt: 2000 } : { entries: 0, validatedAt: null });
      },
    },
    failures: { list: noted(asked, 'failures', known) },
    isAbsent: noted(asked, 'absent', isAbsent),
    gate: {
      explain: noted(asked, 'gate', {
        enforced: decision,
        audited: { ...decision, verdict: story['audits'] ?? 'hold' },
        facts: (story['facts'] as object | undefined) ?? {},
      }),
    },
  };
  const operations = explainOperations(parts as never);
  return { asked, operations, run: runOf(operations) };
}

const operator = scopes('operate', 'read');

test('the origin of a name is explained by each upstream that could have it', async (t) => {
  const { run, asked } = explainRun();
  const upstream = {
    id: 'u1',
    kind: 'registry',
    name_there: 'library/app',
    included: true,
    rule: 'asked',
    pattern: null,
    state: 'unused',
    entries: 3,
    confirmed_at: at(2000),
    said_not_found: false,
    last_outcome: 'stored',
    last_failure: null,
  };
  const other = {
    ...upstream,
    id: 'u2',
    included: false,
    rule: 'excluded',
    pattern: 'app*',
    state: 'offline',
    entries: 0,
    confirmed_at: null,
    last_outcome: 'not asked yet',
  };
  t.deepEqual(await run('explainName', { query: { kind: 'image', name: 'App' } }, operator), {
    kind: 'container',
    name: 'App',
    origin: { hosted: false, reserved_by: null, missing_registry: null, upstreams: [upstream, other] },
    refused: null,
  });
  const document = { name: 'library/app', kind: 'manifest', reference: 'latest' };
  t.deepEqual(asked.slice(0, 2), [
    ['images', 7, 'App'],
    ['failures', { kind: 'container', names: ['app', 'library/app'] }, 100],
  ]);
  t.deepEqual(
    new Set(asked.slice(2).map((each) => JSON.stringify(each))),
    new Set(
      [
        ['stored', 'u1', 'library/app'],
        ['stored', 'u2', 'library/app'],
        ['absent', { upstream: 'u1', ...document }],
        ['absent', { upstream: 'u2', ...document }],
      ].map((each) => JSON.stringify(each)),
    ),
  );
  const hosted = await explainRun({ isHosted: true, reservedBy: 'a*', missing: 'example.com', upstreams: [] }).run(
    'explainName',
    { query: { kind: 'package', name: 'A' } },
    operator,
  );
  t.deepEqual(hosted['origin'], { hosted: true, reserved_by: 'a*', missing_registry: 'example.com', upstreams: [] });
  await t.throwsAsync(run('explainName', { query: { kind: 'package', name: 'A' } }, { ...operator, ...named('b') }), {
    name: 'NameDenied',
  });
  await t.notThrowsAsync(run('explainName', { query: { kind: 'package', name: 'A' } }, { ...operator, ...named('a') }));
});

/** What is told of the upstreams of an image. */
const said = async (known: readonly object[], isAbsent = false, story: Story = {}) => {
  const { run } = explainRun(story, known, isAbsent);
  const { origin, refused } = await run('explainName', { query: { kind: 'image', name: 'app' } }, operator);
  const [one, two] = origin.upstreams;
  return { one: [one.last_outcome, one.last_failure, one.said_not_found], two: two.last_outcome, refused };
};

test('what an upstream said last is its failure, its content, or that it has none', async (t) => {
  const failure = { upstream: 'one', accountId: 8, lastAt: 2001, reason: 'it is away', code: 'X', status: 502 };
  const own = { ...failure, upstream: null, accountId: 7, lastAt: 1500, code: 'Denied', reason: 'held', status: 403 };
  const told = { time: at(2001), reason: 'it is away' };
  t.deepEqual(await said([failure, own]), {
    one: ['failed: it is away', told, false],
    two: 'not asked yet',
    refused: { time: at(1500), code: 'Denied', reason: 'held', status: 403 },
  });
  const earlier = { ...failure, lastAt: 2000 };
  t.deepEqual((await said([earlier])).one, ['stored', { time: at(2000), reason: 'it is away' }, false]);
  t.is((await said([{ ...failure, upstream: 'two', lastAt: 1 }])).two, 'failed: it is away');
  t.deepEqual((await said([failure], true)).one, ['not found', told, true]);
  t.deepEqual((await said([], true, { document: undefined })).one, ['stored', null, false]);
  t.is((await said([failure])).refused, null);
});

test('a reference is explained with what the policy decides of it, and what is known', async (t) => {
  const reference = { name: 'key', reference: '1.0.0', isListed: () => Promise.resolve(false) };
  const explain = async (story: Story, query: object = {}) => {
    const { run, asked } = explainRun(story);
    const whole = { kind: 'package', name: 'A', reference: ' 1.0 ', ...query };
    const { verdict, audited, facts } = await run('explainName', { query: whole }, operator);
    return { verdict, audited: audited && audited.verdict, facts, gate: asked.find(([name]) => name === 'gate') };
  };
  const none = { published_at: null, first_seen_at: null, withdrawn_at: null, listed: null, digest: null };
  let text: unknown;
  const referenceTo = (given: string) => {
    text = given;
    return Promise.resolve(reference);
  };
  t.deepEqual(await explain({ referenceTo }), {
    verdict: 'hold',
    audited: null,
    facts: { ...none, listed: false },
    gate: ['gate', 'key', '1.0.0', undefined],
  });
  t.is(text, '1.0');
  const facts = { publishedAt: 1, firstSeenAt: 2, withdrawnAt: 3, digest: 'd' };
  const other = { referenceTo: () => Promise.resolve({ name: 'key', reference: '2' }), facts, audits: 'deny' };
  t.deepEqual(await explain(other, { at: '2020-01-01T00:00:00Z' }), {
    verdict: 'hold',
    audited: 'deny',
    facts: { published_at: at(1), first_seen_at: at(2), withdrawn_at: at(3), listed: null, digest: 'd' },
    gate: ['gate', 'key', '2', Date.parse('2020-01-01T00:00:00Z')],
  });
  for (const story of [{}, { referenceTo: () => Promise.resolve() }])
    t.deepEqual(await explain(story), { verdict: undefined, audited: undefined, facts: null, gate: undefined });
  const { operations } = explainRun();
  const good = { kind: 'container', name: 'x'.repeat(255), reference: 'x'.repeat(255) };
  t.true(takes(operations, 'explainName', 'query', good));
  for (const bad of [
    { kind: 'other' },
    { name: ' ' },
    { name: undefined },
    { name: 'x'.repeat(256) },
    { reference: ' ' },
    { reference: 'x'.repeat(256) },
    { at: 'today' },
  ])
    t.false(takes(operations, 'explainName', 'query', { ...good, ...bad }), JSON.stringify(bad));
});

interface Stored {
  [part: string]: unknown;
}

function policyRun(stored?: Stored, refusesAll = false) {
  const asked: unknown[][] = [];
  const reads: string[] = [];
  const policies = {
    get: noted(asked, 'get', stored),
    put: noted(asked, 'put', stored),
    check: (...given: unknown[]) => {
      asked.push(['check', given[0]]);
      return { refusesAll };
    },
  };
  const readLists = () => {
    reads.push('read');
    return Promise.reject(new Error('a run goes on'));
  };
  const operations = policyOperations(policies as never, readLists, () => 5000);
  return { asked, reads, operations, run: runOf(operations) };
}

const written = { rules: [] };
const document = { knownBad: { lists: [] as object[] } };
const stored = { document, written, revision: 3, changedAt: 1000, suspendedUntil: 0 };

test('a policy is shown as it was written, with its suspension while it lasts', async (t) => {
  const empty = { policy: null, text: null, revision: 0, changed_at: null, suspended_until: null };
  const { run, asked } = policyRun();
  t.deepEqual(await run('getPolicy'), { layer: 'account', ...empty });
  t.deepEqual(await run('getPolicy', { query: { layer: 'all' } }, scopes('operate')), { layer: 'all', ...empty });
  t.deepEqual(asked, [
    ['get', 7],
    ['get', 0],
  ]);
  await t.throwsAsync(run('getPolicy', { query: { layer: 'all' } }, scopes('admin')), { name: 'ScopeMissing' });
  const shown = { layer: 'account', policy: written, revision: 3, changed_at: at(1000), suspended_until: null };
  for (const [change, more] of [
    [{}, {}],
    [{ suspendedUntil: 5000 }, {}],
    [{ suspendedUntil: 5001 }, { suspended_until: at(5001) }],
  ] as const) {
    const { text, ...rest } = await policyRun({ ...stored, ...change }).run('getPolicy');
    t.deepEqual(rest, { ...shown, ...more });
    t.true(String(text).includes('rules: []'));
  }
  t.is((await policyRun({ ...stored, document: undefined }).run('getPolicy'))['text'], null);
  const sized = (length: number) => ({ ...stored, written: { a: 'x'.repeat(length - '{"a":""}'.length) } });
  t.not((await policyRun(sized(8192)).run('getPolicy'))['text'], null);
  t.is((await policyRun(sized(8193)).run('getPolicy'))['text'], null);
});

test('a policy is replaced by those who may, and its new lists are read', async (t) => {
  for (const [lists, reads] of [
    [[], []],
    [[{}], ['read']],
  ] as const) {
    const made = policyRun({ ...stored, document: { knownBad: { lists } } });
    const { revision } = await made.run('putPolicy', { body: written }, scopes('admin'));
    t.deepEqual([revision, made.reads, made.asked], [3, reads, [['put', 7, written, 'client']]] as never);
  }
  const { run, asked, reads } = policyRun({ ...stored, document: undefined });
  await run('putPolicy', { body: {}, query: { layer: 'all' } }, scopes('operate'));
  t.deepEqual([asked, reads], [[['put', 0, {}, 'client']], []]);
  await t.throwsAsync(run('putPolicy', { body: {}, query: { layer: 'all' } }, scopes('admin')), {
    name: 'ScopeMissing',
  });
  await t.throwsAsync(run('putPolicy', { body: {} }, scopes('operate')), { name: 'ScopeMissing' });
  await t.throwsAsync(run('putPolicy', { body: {} }, { ...scopes('admin'), ...named('A') }), { name: 'NameDenied' });
});

test('the text of a policy is checked for those who can change one', async (t) => {
  const { run, asked, operations } = policyRun();
  t.deepEqual(await run('checkPolicy', { body: { text: '' } }, scopes('operate')), { policy: null, warning: null });
  t.deepEqual(asked, [['check', null]]);
  const warned = await policyRun(undefined, true).run('checkPolicy', { body: { text: '' } }, scopes('admin'));
  t.is(typeof warned['warning'], 'string');
  await t.throwsAsync(run('checkPolicy', { body: { text: '' } }, scopes('read')), { name: 'ScopeMissing' });
  t.true(takes(operations, 'checkPolicy', 'body', { text: 'x'.repeat(8192) }));
  t.false(takes(operations, 'checkPolicy', 'body', { text: 'x'.repeat(8193) }));
});

const urlsNow = () => ({ feed: 'https://here.example:8443/v3/index.json', registry: 'https://here.example:8443' });

function clientRun(noticed: readonly object[] = []) {
  const asked: unknown[][] = [];
  const check = {
    id: 'c',
    accountId: 7,
    client: 'docker',
    name: 'n',
    reference: 'r',
    denied: null,
    createdAt: 1,
    expiresAt: 2,
  };
  const checks = {
    now: () => 9,
    read: (...given: unknown[]) => {
      asked.push(['read', ...given]);
      return Promise.resolve({ check, requests: noticed });
    },
    start: (wanted: object, name: (id: string) => string) => {
      asked.push(['start', wanted, name('ID')]);
      return Promise.resolve(check);
    },
  };
  const config = {
    upstreams: [
      { name: 'one.example', kind: 'registry' },
      { name: 'two.example', kind: 'registry', accounts: ['beta'] },
    ],
  };
  const operations = clientOperations({ checks, config, urlsNow, gate: {}, protocols: [] } as never);
  return { asked, operations, run: runOf(operations) };
}

test('configurations of clients are for the registries of the account', async (t) => {
  const { run, operations } = clientRun();
  const list = await run('listClients');
  t.deepEqual(list, {
    items: clientKinds.map((each) => ({ kind: each, title: clients[each].title })),
    next_cursor: null,
    registries: ['one.example'],
  });
  t.deepEqual((await run('listClients', {}, { accountName: 'beta' }))['registries'].toSorted(), [
    'one.example',
    'two.example',
  ]);
  await t.throwsAsync(run('getClient', { params: { kind: 'other' } }), { name: 'NotFound' });
  const textOf = async (query: object = {}) =>
    JSON.stringify(await run('getClient', { params: { kind: 'containerd' }, query }));
  const plain = await textOf();
  t.true(plain.startsWith('{"kind":"containerd"'));
  t.true(plain.includes('one.example') && !plain.includes('two.example') && plain.includes('TOKEN'));
  t.is(await textOf({ form: 'mirror', fallback: '0', ca: '0', credentials: '1' }), plain);
  t.not(await textOf({ fallback: '1' }), plain);
  t.not(await textOf({ ca: '1' }), plain);
  t.false((await textOf({ credentials: '0' })).includes('TOKEN'));
  for (const bad of [{ form: 'x' }, { fallback: '2' }, { ca: 'yes' }, { credentials: '' }])
    t.false(takes(operations, 'getClient', 'query', bad), JSON.stringify(bad));
});

test('a check of a client shows the requests of the own account, and of others only that they came', async (t) => {
  const noticed = {
    status: 404,
    reason: 'none',
    hasCredential: true,
    accountId: 7,
    tokenId: 't',
    address: 'a',
    agent: 'g',
    host: 'h',
    path: 'p',
    count: 2,
    firstAt: 3,
    lastAt: 4,
  };
  const { run, asked } = clientRun([noticed, { ...noticed, accountId: 8 }, { ...noticed, accountId: null }]);
  const { requests, line, state, conclusion, ...rest } = await run('getClientCheck', { params: { id: 'c' } });
  t.deepEqual(rest, { id: 'c', client: 'docker', created_at: at(1), expires_at: at(2) });
  t.deepEqual([typeof line, typeof state, typeof conclusion], ['string', 'string', 'string']);
  const own = {
    status: 404,
    reason: 'none',
    has_credential: true,
    account: 'own',
    token_id: 't',
    address: 'a',
    user_agent: 'g',
    host: 'h',
    path: 'p',
    count: 2,
    first_at: at(3),
    last_at: at(4),
  };
  const hidden = { reason: null, token_id: null, address: null, user_agent: null, host: null, path: null };
  t.deepEqual(requests, [own, { ...own, account: 'other', ...hidden }, { ...own, account: null }]);
  t.deepEqual(asked, [['read', 'c', 7]]);
  const started = await run('startClientCheck', { body: { client: 'docker', form: 'prefix' } });
  t.deepEqual([started['id'], started['requests'], started['state']], ['c', [], 'waiting']);
  t.deepEqual(asked.at(-1), [
    'start',
    { accountId: 7, client: 'docker', kind: 'container', reference: 'latest', denied: null },
    'here.example:8443/one.example/entrepot-check/ID',
  ]);
  const other = { body: { client: 'docker', form: 'mirror', registry: 'two.example' } };
  await t.throwsAsync(run('startClientCheck', other), { name: 'Invalid' });
  await t.notThrowsAsync(run('startClientCheck', other, { accountName: 'beta' }));
});
