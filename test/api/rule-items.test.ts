import test from 'ava';
import { keyOperations } from '../../src/api/bundles/keys.ts';
import { cursorOf } from '../../src/api/framework/paging.ts';
import { publisherOperations } from '../../src/api/publishers/publishers.ts';
import { webhookOperations } from '../../src/api/webhooks/webhooks.ts';
import type { Publisher } from '../../src/identity/publisher.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import type { Webhook } from '../../src/webhooks/webhook.ts';
import { named, noted, runOf, scopes } from '../support/operations.ts';

// Which webhooks and rules a sender sees and changes, and which keys of bundles it trusts. Other files have requests.

const now = Date.UTC(2027, 0, 31);
const timeOf = (milliseconds: number) => new Date(milliseconds).toISOString();
const idsOf = (answer: Record<string, any>) => answer['items'].map(({ id }: { id: string }) => id);
const operator = scopes('admin', 'operate');

const webhook = (id: string, more: Partial<Webhook> = {}): Webhook => ({
  id,
  accountId: 7,
  name: `Name ${id}`,
  url: `https://${id}.example/Hook`,
  events: ['package.*'],
  patterns: null,
  names: undefined,
  enabled: true,
  disabledReason: null,
  operate: false,
  failingSince: null,
  createdAt: now,
  ...more,
});
const shownWebhook = {
  id: 'a',
  name: 'Name a',
  url: 'https://a.example/Hook',
  events: ['package.*'],
  patterns: null,
  enabled: true,
  disabled_reason: null,
  operate: false,
  failing_since: null,
  created_at: timeOf(now),
};
const row = {
  id: 'd',
  number: 3,
  event_position: 9,
  type: 'package.published',
  state: 'done',
  attempts: 1,
  created_at: now,
  next_at: now,
  attempted_at: null,
  body: '{}',
};
const shownRow = {
  id: 'd',
  event_id: '9',
  type: 'package.published',
  state: 'done',
  attempts: 1,
  created_at: timeOf(now),
  next_attempt_at: null,
  last_attempt: null,
};

function webhooks(one = webhook('a')) {
  const asked: unknown[] = [];
  const all = [
    webhook('a', { createdAt: 1 }),
    webhook('b', { createdAt: 2, name: '', events: ['image.pushed', 'tag.deleted'], failingSince: 5 }),
    webhook('c', { createdAt: 3, name: 'above', operate: true, enabled: false, events: ['*'] }),
  ];
  const parts = {
    webhooks: {
      get: noted(asked, 'get', one),
      list: (id: number, limit: number, after?: readonly [number, string]) => {
        asked.push(['list', id, limit, after]);
        return Promise.resolve(all.filter((each) => !after || each.createdAt > after[0]).slice(0, limit));
      },
      create: noted(asked, 'create', { webhook: one, secret: 'whsec_x' }),
      change: noted(asked, 'change', { webhook: one, secret: undefined }),
      delete: noted(asked, 'delete'),
      deliveries: noted(asked, 'deliveries', [row, { ...row, number: 2 }]),
      delivery: noted(asked, 'delivery', row),
      redeliver: noted(asked, 'redeliver', row),
      redeliverSince: noted(asked, 'since', 4),
    },
    test: noted(asked, 'test', {
      id: 'm',
      attempt: { at: now, duration: 2, status: 200, answer: 'ok', failure: null },
    }),
  };
  return { asked, parts, run: runOf(webhookOperations(parts as never)) };
}

test('webhooks are filtered and in the order that was asked for; those of no account only with operate', async (t) => {
  const { run, asked } = webhooks();
  const list = (query: object, principal: object = operator) => run('listWebhooks', { query }, principal);
  t.deepEqual((await list({}, {}))['items'][0], { ...shownWebhook, created_at: timeOf(1) });
  t.deepEqual(idsOf(await list({}, scopes('admin'))), ['a', 'b']);
  t.deepEqual(idsOf(await list({}, { ...operator, ...named('a') })), ['a', 'b'], 'operate for some names');
  for (const [query, ids] of [
    [{}, ['a', 'b', 'c']],
    [{ q: 'ABOVE' }, ['c']],
    [{ q: 'b.example/hook' }, ['b']],
    [{ state: 'enabled' }, ['a']],
    [{ state: 'failing' }, ['b']],
    [{ state: 'disabled' }, ['c']],
    [{ event: 'package.published' }, ['a', 'c']],
    [{ event: 'tag.deleted' }, ['b', 'c']],
    [{ sort: 'created' }, ['c', 'b', 'a']],
    [{ sort: 'name' }, ['c', 'b', 'a']],
  ] as const)
    t.deepEqual(idsOf(await list(query)), ids, JSON.stringify(query));
  t.deepEqual((await list({ total: '1', state: 'failing', limit: '1' }))['total'], { count: 1 });
  t.false('total' in (await list({})));
  const first = await list({ limit: '1' });
  t.is(first['next_cursor'], cursorOf('webhooks', [1, 'a']));
  asked.length = 0;
  t.deepEqual(idsOf(await list({ limit: '1', cursor: first['next_cursor'] })), ['b']);
  t.deepEqual(asked, [['list', 7, 500, [1, 'a']]]);
  const byName = await list({ sort: 'name', limit: '1', total: '1' });
  t.deepEqual(
    [byName['next_cursor'], byName['total']],
    [cursorOf('webhooks by name', [null, 'above c']), { count: 3 }],
  );
  t.deepEqual(idsOf(await list({ sort: 'name', limit: '1', cursor: byName['next_cursor'] })), ['b']);
  t.deepEqual(asked.at(-1), ['list', 7, 20, undefined]);
});

test('each operation on a webhook is for its account, and for one of no account needs operate for all names', async (t) => {
  const calls: readonly (readonly [id: string, call: object, asks: unknown[], answer: unknown])[] = [
    ['getWebhook', {}, ['get', 7, '5'], shownWebhook],
    ['deleteWebhook', {}, ['delete', 7, 'a'], undefined],
    [
      'changeWebhook',
      { body: { name: 'n', rotate_secret: true } },
      ['change', 7, 'a', { name: 'n', rotateSecret: true }],
      shownWebhook,
    ],
    [
      'getWebhookDelivery',
      { params: { id: '5', delivery: 'd' } },
      ['delivery', 7, 'a', 'd'],
      { ...shownRow, request_body: '{}' },
    ],
    ['redeliverWebhookDelivery', { params: { id: '5', delivery: 'd' } }, ['redeliver', 7, 'a', 'd'], shownRow],
    ['redeliverWebhook', { body: { since: timeOf(now) } }, ['since', 7, 'a', now], { deliveries: 4 }],
  ];
  for (const [id, call, asks, answer] of calls) {
    const { run, asked } = webhooks();
    t.deepEqual(await run(id, call), answer as never, id);
    t.deepEqual([asked[0], asked.at(-1)], [['get', 7, '5'], asks]);
    const ofAll = webhooks(webhook('a', { operate: true }));
    await t.throwsAsync(ofAll.run(id, call), { name: 'ScopeMissing' }, id);
    await t.throwsAsync(ofAll.run(id, call, { ...operator, ...named('a') }), { name: 'NameDenied' }, id);
    await ofAll.run(id, call, operator);
  }
  const { run, asked, parts } = webhooks();
  const tested = await run('testWebhook');
  t.like(tested, { id: 'm', at: timeOf(now), status: 200 });
  t.deepEqual(asked.at(-1), ['test', 7, 'alpha', 'a']);
  const page = await run('listWebhookDeliveries', { query: { limit: '1' } });
  t.deepEqual(page, { items: [shownRow], next_cursor: cursorOf('webhooks/a', [3]) });
  await run('listWebhookDeliveries', { query: { limit: '1', cursor: page['next_cursor'] } });
  t.deepEqual(asked.at(-1), ['deliveries', 7, 'a', 2, 3]);
  const body = { name: 'n' };
  t.deepEqual(await run('createWebhook', { body }), { ...shownWebhook, secret: 'whsec_x' });
  t.deepEqual(asked.at(-1), ['create', 7, { name: 'n', operate: false }]);
  await run('createWebhook', { body }, operator);
  t.deepEqual(asked.at(-1), ['create', 7, { name: 'n', operate: true }]);
  parts.webhooks.change = noted(asked, 'change', { webhook: webhook('a'), secret: 'whsec_y' });
  t.deepEqual(await run('changeWebhook', { body }), { ...shownWebhook, secret: 'whsec_y' });
});

const rule = (id: string, more: Partial<Publisher> = {}): Publisher => ({
  id,
  accountId: 7,
  name: `Rule ${id}`,
  issuer: 'github',
  issuerUrl: 'https://issuer.example',
  claims: { repository: ['a/b'] },
  scopes: ['read'],
  patterns: null,
  source: 'api',
  createdAt: now,
  updatedAt: null,
  ...more,
});

const comparison = (id: string, matches: boolean, mismatches: unknown) => ({
  id,
  name: `Rule ${id}`,
  issuer: 'github',
  matches,
  mismatches,
});

test('a limited sender sees and changes only rules within its limits, and gives no more than it has', async (t) => {
  const asked: unknown[] = [];
  const narrow = rule('b', { patterns: { packages: ['A.One'] } });
  const all = [rule('a'), narrow, rule('c', { scopes: ['operate'] })];
  const missed = [{ claim: 'repository', wanted: ['a/b'], found: ['x'] }];
  let problem: string | null = null;
  let before = all[0]!;
  const parts = {
    publishers: {
      issuers: [{ name: 'github', issuer: 'i', audience: 'u', kind: 'github', keys: 'secret' }],
      list: noted(asked, 'list', all),
      get: (account: number, id: string) =>
        Promise.resolve((asked.push(['get', account, id]), all.find((each) => each.id === id))),
      create: noted(asked, 'create', all[0]),
      update: (account: number, id: string, body: object, allowed: (rule: Publisher) => void) => {
        asked.push(['update', account, id, body]);
        allowed(before);
        return Promise.resolve(before);
      },
      delete: (account: number, id: string, allowed: (rule: Publisher) => void) => {
        asked.push(['delete', account, id]);
        return Promise.resolve().then(() => allowed(before));
      },
      warningsOf: ({ id }: Publisher) => [`check ${id}`],
    },
    uses: {
      lastOf: (ids: string[]) => Promise.resolve(new Map(ids.filter((id) => id === 'a').map((id) => [id, now]))),
    },
    exchange: {
      explain: (account: number, token: string) => {
        asked.push(['explain', account, token]);
        return Promise.resolve({
          issuer: 'github',
          problem,
          claims: { sub: 's' },
          rules: [
            { publisher: all[0], missed: [] },
            { publisher: narrow, missed },
            { publisher: all[2], missed: null },
          ],
        });
      },
    },
  };
  const run = runOf(publisherOperations(parts as never));
  const limits = named('a.*');
  const shown = {
    id: 'a',
    name: 'Rule a',
    issuer: 'github',
    issuer_url: 'https://issuer.example',
    claims: { repository: ['a/b'] },
    scopes: ['read'],
    patterns: null,
    source: 'api',
    created_at: timeOf(now),
    updated_at: null,
    last_used_at: timeOf(now),
    warnings: ['check a'],
  };
  const list = (query: object, principal?: object) => run('listPublishers', { query }, principal);
  const whole = await list({});
  t.deepEqual([whole['items'][0], idsOf(whole), whole['next_cursor']], [shown, ['a', 'b', 'c'], null]);
  t.is(whole['items'][1].last_used_at, null);
  t.deepEqual(idsOf(await list({ q: 'RULE B' })), ['b']);
  t.deepEqual(idsOf(await list({}, limits)), ['b']);
  t.deepEqual(await run('getPublisher', { params: { id: 'a' } }), shown);
  t.deepEqual(asked.at(-1), ['get', 7, 'a']);
  t.is((await run('getPublisher', { params: { id: 'b' } }, limits))['id'], 'b');
  await t.throwsAsync(run('getPublisher', { params: { id: 'a' } }, limits), { name: 'NameDenied' });

  const body = { name: 'n', issuer: 'github', claims: {}, scopes: ['read'] };
  const within = { ...body, patterns: { packages: ['A.One'] } };
  for (const [id, call] of [
    ['createPublisher', 'create'],
    ['updatePublisher', 'update'],
  ] as const) {
    before = all[0]!;
    t.deepEqual(await run(id, { body }), shown);
    t.deepEqual(asked.at(-1), call === 'create' ? ['create', 7, body] : ['update', 7, '5', body]);
    await t.throwsAsync(run(id, { body: { ...body, scopes: ['operate'] } }), { name: 'ScopeMissing' });
    await t.throwsAsync(run(id, { body }, limits), { name: 'NameDenied' });
    before = narrow;
    await run(id, { body: within }, limits);
  }
  before = all[2]!;
  for (const id of ['updatePublisher', 'deletePublisher']) {
    await t.throwsAsync(run(id, { body }), { name: 'ScopeMissing' }, 'it gave operate');
    await run(id, { body }, operator);
  }
  t.deepEqual(asked.at(-1), ['delete', 7, '5']);
  before = all[0]!;
  await t.throwsAsync(run('deletePublisher', {}, limits), { name: 'NameDenied' });

  const explain = (principal?: object) => run('explainPublishers', { body: { token: ' t ' } }, principal);
  t.deepEqual(await explain(), {
    issuer: 'github',
    problem: null,
    claims: { sub: 's' },
    rules: [comparison('a', true, []), comparison('b', false, missed), comparison('c', false, null)],
  });
  t.deepEqual(asked.at(-1), ['explain', 7, 't']);
  t.deepEqual((await explain(limits))['rules'], [comparison('b', false, missed)]);
  problem = 'expired';
  t.false((await explain())['rules'][0].matches);
  t.deepEqual(await run('listTrustedIssuers'), {
    items: [{ name: 'github', issuer: 'i', audience: 'u', kind: 'github' }],
    next_cursor: null,
  });
});

test('a key of bundles is trusted by its text until a time in the future, and removed only if it is trusted', async (t) => {
  const asked: unknown[] = [];
  const key = { id: 'k', name: 'Site', role: 'sign', pem: 'PEM', addedAt: now, expiresAt: null, vouchedBy: null };
  const trust = {
    list: () => Promise.resolve([key]),
    revoked: () => Promise.resolve([{ id: 'r', name: null, revokedBy: 'k', revokedAt: now }]),
    remove: noted(asked, 'remove'),
    add: () => Promise.reject(new DomainError('Denied', 'it is revoked')),
  };
  const run = runOf(keyOperations({ trust, now: () => now } as never));
  t.deepEqual(await run('listBundleKeys'), {
    items: [
      {
        id: 'k',
        name: 'Site',
        role: 'sign',
        added_at: timeOf(now),
        expires_at: null,
        vouched_by: null,
        public_key: 'PEM',
      },
    ],
    revoked: [{ id: 'r', name: null, revoked_by: 'k', revoked_at: timeOf(now) }],
    next_cursor: null,
  });
  const wrong = async (body: object) => {
    const error = await t.throwsAsync(run('trustBundleKey', { body: { name: 'n', role: 'sign', ...body } }), {
      name: 'Invalid',
    });
    return (error as DomainError).detail?.['errors'];
  };
  t.deepEqual(await wrong({ public_key: 'x', expires_at: timeOf(now) }), [
    { field: 'expires_at', message: 'Choose a time in the future.' },
  ]);
  const either = [{ field: 'public_key', message: 'Send either a public key or a signed statement.' }];
  t.deepEqual(await wrong({}), either);
  t.deepEqual(await wrong({ public_key: 'x', statement: '{}', expires_at: null }), either);
  t.like(await wrong({ public_key: 'x', expires_at: timeOf(now + 1) }), [{ field: 'public_key' }]);
  t.like(await wrong({ statement: 'x' }), [{ field: 'statement' }]);
  await t.throwsAsync(run('removeBundleKey', { params: { id: 'x' } }), {
    name: 'NotFound',
    message: 'No trusted key has this ID.',
  });
  await run('removeBundleKey', { params: { id: 'k' } });
  t.deepEqual(asked, [['remove', 'k']]);
});
