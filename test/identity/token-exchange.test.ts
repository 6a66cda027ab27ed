import test from 'ava';
import { hash } from 'node:crypto';
import { TokenExchange } from '../../src/identity/exchange.ts';
import type { VerifiedToken } from '../../src/identity/identity-token.ts';
import type { Publisher } from '../../src/identity/publisher.ts';
import { DomainError } from '../../src/runtime/errors.ts';

const issuer = { name: 'ci', issuer: 'https://ci.example', audience: 'x', kind: 'github', allowPrivateNetwork: false };
const other = { ...issuer, name: 'other', issuer: 'https://other.example' };
const rule: Publisher = {
  id: 'rule',
  accountId: 7,
  name: 'main',
  issuer: 'ci',
  issuerUrl: issuer.issuer,
  claims: { repository_id: ['100'] },
  scopes: ['read', 'write'],
  patterns: null,
  source: 'api',
  createdAt: 1,
  updatedAt: 1,
};

const keyOf = (address: string, sub: string) => hash('sha256', JSON.stringify([address, sub]));

/** An exchange with this rule, and what it did. */
function exchangeWith({ isUnchanged = true, isNew = true, verify = (): object => ({}) } = {}) {
  const created: unknown[] = [];
  const rows: object[] = [];
  const asked: unknown[] = [];
  const attempts: string[] = [];
  const tx = { insertNew: async (_table: string, given: object[]) => (rows.push(...given), isNew ? 1 : 0) };
  const claims: Record<string, unknown> = { iss: issuer.issuer, repository_id: '100', sub: 'repo:team/app' };
  const exchange = new TokenExchange({
    database: undefined,
    accounts: { named: (name: string) => Promise.resolve(name === 'default' ? { id: 7 } : undefined) },
    tokens: {
      create: async (accountId: number, given: object, work: (transaction: unknown) => Promise<void>) => {
        await work(tx);
        created.push({ accountId, ...given });
        return { value: 'made' };
      },
    },
    publishers: {
      issuers: [other, issuer],
      list: () => Promise.resolve([rule]),
      isUnchanged: () => Promise.resolve(isUnchanged),
    },
    identityTokens: () =>
      Promise.resolve({
        read: (token: string) => {
          if (token === 'none') throw new DomainError('Unauthorized', 'no token');
          return claims;
        },
        verify: async (_token: string, senderIsKnown?: boolean) => {
          asked.push(senderIsKnown);
          return { issuer, claims: { ...claims }, useId: 'use', acceptedUntil: 1000, ...verify() } as VerifiedToken;
        },
      }),
    now: () => 5000,
  } as unknown as ConstructorParameters<typeof TokenExchange>[0]);
  const attempt = <T>(identity: string, work: () => Promise<T>) => (attempts.push(identity), work());
  return { exchange, created, rows, asked, attempts, attempt };
}

test('an exchange makes a token of 15 minutes, and keeps for an hour longer that the identity token was used', async (t) => {
  const { exchange, created, rows } = exchangeWith();
  const made = await exchange.exchange({ token: 'x', account: 'default' });
  t.deepEqual(made, { value: 'made', expiresAt: 905_000, scopes: ['read', 'write'] });
  t.deepEqual(rows, [{ id: 'use', expires_at: 3_601_000 }]);
  t.like(created[0], {
    accountId: 7,
    name: 'main',
    scopes: ['read', 'write'],
    expiresAt: 905_000,
    publisherId: 'rule',
    createdBy: { kind: 'rule', id: 'rule', name: 'main' },
    details: { identity: { issuer: 'ci', subject: 'repo:team/app' } },
    job: { issuer: 'ci', subject: 'repo:team/app' },
  });
  const named = await exchange.exchange({ token: 'x', account: ({ useId }) => (useId === 'use' ? 'default' : '') });
  t.is(named.value, 'made');
  const narrowed = await exchange.exchange({ token: 'x', account: 'default', scopes: ['read'] });
  t.deepEqual(narrowed.scopes, ['read']);
  t.deepEqual((await exchange.exchange({ token: 'x', account: 'default', scopes: [] })).scopes, ['read', 'write']);
  await t.throwsAsync(exchange.exchange({ token: 'x', account: 'nobody' }), { message: /^No rule of this account/ });
});

test('a token is neither made for one that was exchanged, nor by a rule that has changed meanwhile', async (t) => {
  for (const [change, message] of [
    [{ isNew: false }, /exchanged before/],
    [{ isUnchanged: false }, /^No rule of this account matches the token\.$/],
  ] as const) {
    const { exchange, created } = exchangeWith(change);
    await t.throwsAsync(exchange.exchange({ token: 'x', account: 'default' }), { name: 'Unauthorized', message });
    t.deepEqual(created, []);
  }
});

test('attempts are counted for a subject of an issuer, and without one for the token', async (t) => {
  for (const [sub, key, subject] of [
    ['a', keyOf(issuer.issuer, 'a'), 'a'],
    ['x'.repeat(501), keyOf(issuer.issuer, 'x'.repeat(501)), 'x'.repeat(500)],
    ['', 'use', ''],
    [undefined, 'use', null],
    [7, 'use', null],
  ] as const) {
    const verify = () => ({ claims: { repository_id: '100', sub } });
    const { exchange, created, attempts, attempt } = exchangeWith({ verify });
    await exchange.exchange({ token: 'x', account: 'default', attempt });
    t.deepEqual(attempts, [key]);
    t.like(created[0], { details: { identity: { issuer: 'ci', subject } } });
  }
});

test('an explanation compares also a token that is not accepted, and passes on other failures', async (t) => {
  const failing = (error: Error) =>
    exchangeWith({
      verify: () => {
        throw error;
      },
    });
  const { exchange, asked } = exchangeWith();
  t.like(await exchange.explain(7, 'x'), { issuer: 'ci', problem: null, rules: [{ publisher: rule, missed: [] }] });
  t.deepEqual(asked, [true], 'keys are fetched for a sender who is known');
  for (const name of ['Unauthorized', 'UpstreamUnavailable'] as const) {
    const found = await failing(new DomainError(name, 'why')).exchange.explain(7, 'x');
    t.like(found, { issuer: null, problem: 'why', rules: [{ publisher: rule, missed: [] }] });
    t.is(found.claims['repository_id'], '100');
  }
  const conflict = new DomainError('Denied', 'other');
  t.is(await t.throwsAsync(failing(conflict).exchange.explain(7, 'x')), conflict);
  const broken = Object.assign(new Error('broken'), { name: 'Unauthorized' });
  t.is(await t.throwsAsync(failing(broken).exchange.explain(7, 'x')), broken);
  const refused = await t.throwsAsync<DomainError>(exchange.explain(7, 'none'), {
    name: 'Invalid',
    message: 'no token',
  });
  t.deepEqual(refused.detail, { errors: [{ field: 'token', message: 'no token' }] });
});
