import { hash } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { AdoptedCredentials } from '../../src/takeover/adopted.ts';
import type { AdoptedRight } from '../../src/takeover/adopted-rights.ts';
import type { Predecessor } from '../../src/takeover/predecessor.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { Refused } from '../../src/upstream/failures.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What credentials of old servers give, without servers. adopted.long.test.ts has requests.

const minute = 60_000;
const day = 86_400_000;
const start = 1_800_000_000_000;

const refusedBy = (verdict?: 'answered' | 'failing') =>
  new UpstreamError('UpstreamUnavailable', 'it refused', { cause: new Refused('no', { verdict: verdict as never }) });

const answer = (status: number) => ({ status, body: { destroy: () => undefined } });

async function setUp(t: ExecutionContext, names: Record<string, readonly AdoptedRight[]> = { old: [] }) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const clock = { now: start };
  /** What predecessors are asked, and what is done with tokens. */
  const told: string[] = [];
  const warned: string[] = [];
  const users: Record<string, string> = {};
  const state = { accepts: false, finished: [] as string[], failure: undefined as unknown, status: 401, closed: 0 };
  const made: object[] = [];
  const tokens = new Map<string, number>();
  const principal = (id: string) => (tokens.has(id) ? { accountId: tokens.get(id), tokenId: id } : undefined);
  const predecessors = Object.entries(names).map(([name, rights]) => ({
    name,
    rights,
    config: { adoptCredentials: name !== 'silent', account: name === 'orphan' ? 'none' : 'team' },
    remote: { pause: undefined as object | undefined },
    signInAddress: new URL(`http://${name}.test/`),
    warn: (message: string) => void warned.push(`${name}: ${message}`),
    asUser: ({ username, password }: { username: string; password: string }) => ({
      send: async ({ url }: { url: URL }) => {
        const isCheck = /^check-[0-9a-f]{16}$/.test(username) && /^[0-9a-f]{32}$/.test(password);
        told.push(`${url.host} ${isCheck ? 'check' : `${username}:${password}`}`);
        if (isCheck ? state.accepts : users[username] === password) return answer(200);
        if (!isCheck && state.failure !== undefined) throw state.failure;
        if (state.status === 401) throw refusedBy();
        return answer(state.status);
      },
      close: () => void (state.closed += 1),
    }),
  }));
  const parts = {
    database,
    now: () => clock.now,
    limits: {},
    accounts: { named: async (name: string) => (name === 'team' ? { id: 7, name } : undefined) },
    inventory: {
      takeover: async (name: string) => ({ finished_at: state.finished.includes(name) ? 1 : null }),
    },
    tokens: {
      create: async (accountId: number, options: object) => {
        made.push(options);
        const id = `t${made.length}`;
        tokens.set(id, accountId);
        return { token: { id } };
      },
      principalOf: async (id: string) => principal(id),
      verifiedById: async (id: string) => principal(id),
      revoke: async (accountId: number, id: string) => {
        told.push(`revoked ${id} of ${accountId}`);
        tokens.delete(id);
      },
    },
  } as unknown as ConstructorParameters<typeof AdoptedCredentials>[1];
  const open = () => new AdoptedCredentials(predecessors as unknown as Predecessor[], parts);
  const adopted = { of: open() };
  /** The ID of the token that a credential gives, and what the predecessors were asked for it. */
  const sign = async (user: string | undefined, secret: string): Promise<string[]> => {
    const found = await adopted.of.verifyForeign({ user, secret });
    return [found?.tokenId ?? 'none', ...told.splice(0)];
  };
  const rows = async () => {
    const found = await database.select<{ secret: string | null }>(
      'SELECT * FROM adopted_credentials ORDER BY token_id',
    );
    return found.map(({ secret, ...row }) => ({ ...row, secret: secret === null ? null : secret.length }));
  };
  const again = () => void (adopted.of = open());
  return { clock, told, warned, users, state, made, tokens, predecessors, adopted, again, sign, rows };
}

const scrypted = 24 + 1 + 44;

test('a password is asked for once, remembered, and asked for again after a day', async (t) => {
  const { clock, users, state, made, sign, rows, again, adopted } = await setUp(t);
  users['alice'] = 'right';
  t.deepEqual(await sign('alice', 'right'), ['t1', 'old.test check', 'old.test alice:right']);
  t.is(state.closed, 2, 'no connection stays');
  t.deepEqual(made, [
    { name: 'user alice of old', scopes: ['read'], patterns: null, details: { adopted_from: 'old' } },
  ]);
  const row = { predecessor: 'old', kind: 'user', name: 'alice', scopes: 'read', token_id: 't1' };
  t.deepEqual(await rows(), [{ ...row, checked_at: start, secret: scrypted }]);
  t.deepEqual(await sign('alice', 'right'), ['t1']);
  t.deepEqual(await sign('alice', 'wrong'), ['none', 'old.test alice:wrong']);
  t.deepEqual(await sign('alice', 'wrong'), ['none']);
  clock.now += 5 * minute + 1;
  users['alice'] = 'changed';
  t.deepEqual(await sign('alice', 'right'), ['t1'], 'the row has it');
  clock.now += 5 * minute;
  t.deepEqual(await sign('alice', 'wrong'), ['none', 'old.test alice:wrong']);
  clock.now = start + day - 1;
  again();
  t.deepEqual(await sign('alice', 'right'), ['t1']);
  users['alice'] = 'right';
  clock.now = start + day;
  again();
  t.deepEqual(await sign('alice', 'right'), ['t1', 'old.test check', 'old.test alice:right']);
  t.deepEqual(await rows(), [{ ...row, checked_at: start + day, secret: scrypted }]);
  t.is(await adopted.of.count('old'), 1);
  t.is(await adopted.of.count('other'), 0);
  clock.now += day;
  again();
  delete users['alice'];
  t.deepEqual(await sign('alice', 'right'), ['none', 'old.test check', 'old.test alice:right', 'revoked t1 of 7']);
  t.deepEqual(await rows(), [], 'the predecessor does not accept it any more');
});

test('what cannot be a credential of another server is never sent on', async (t) => {
  const { sign } = await setUp(t);
  const nobody: [user: string | undefined, secret: string][] = [
    ['alice', ''],
    ['alice', 'ent_x'],
    ['alice', 'eyJhbGciOiJub25lIn0.e30.x'],
    ['alice', 'eyJ.e30.'],
    ['alice', 'x'.repeat(1025)],
    ['', 'secret'],
    ['u'.repeat(201), 'secret'],
    [undefined, 'secret'],
  ];
  for (const [user, secret] of nobody) t.deepEqual(await sign(user, secret), ['none'], `${user} ${secret}`);
  const sent: [user: string, secret: string][] = [
    ['alice', 'x'.repeat(1024)],
    ['u'.repeat(200), 'secret'],
    ['bob', 'eyJ.e30'],
    ['carol', 'xeyJ.e30.x'],
    ['dave', 'eyJ.e30.x more'],
    ['eve', 'xent_x'],
  ];
  for (const [user, secret] of sent)
    t.is((await sign(user, secret)).at(-1), `old.test ${user}:${secret}`, `${user} ${secret}`);
});

test('a predecessor that does not answer ends no credential for a week', async (t) => {
  const { clock, users, state, sign, again, predecessors } = await setUp(t);
  users['alice'] = 'right';
  await sign('alice', 'right');
  delete users['alice'];
  state.failure = new UpstreamError('UpstreamTimeout', 'it is slow');
  clock.now = start + 7 * day - 1;
  again();
  t.deepEqual(await sign('alice', 'right'), ['t1', 'old.test check', 'old.test alice:right']);
  const slow = { name: 'UpstreamTimeout', message: 'it is slow' };
  await t.throwsAsync(sign('alice', 'other'), slow, 'one that it never accepted');
  clock.now += 1;
  again();
  await t.throwsAsync(sign('alice', 'right'), slow);
  clock.now = start + day;
  const error = new DomainError('StorageFull', 'no room');
  state.failure = error;
  t.is(await t.throwsAsync(sign('alice', 'right')), error);
  state.failure = refusedBy('failing');
  again();
  t.is((await sign('alice', 'right'))[0], 't1', 'it did not say that the password is wrong');

  predecessors[0]!.remote.pause = { until: clock.now + 1 };
  again();
  t.deepEqual(await sign('alice', 'right'), ['t1']);
  const paused = await t.throwsAsync(sign('bob', 'right'), {
    name: 'UpstreamUnavailable',
    message: 'The predecessor old does not answer.',
  });
  t.like(paused, { upstream: 'old', retryAfter: 10 });
  predecessors[0]!.remote.pause = { until: clock.now };
  state.failure = undefined;
  t.deepEqual(await sign('bob', 'right'), ['none', 'old.test check', 'old.test bob:right']);
});

test('a server that lets everybody read proves nothing', async (t) => {
  const { clock, users, state, sign, warned, made } = await setUp(t);
  state.accepts = true;
  users['alice'] = 'right';
  t.deepEqual(await sign('alice', 'right'), ['none', 'old.test check']);
  t.deepEqual(await sign('bob', 'right'), ['none']);
  t.deepEqual(warned, ['old: it lets everybody read, so no credential of a client can be checked there']);
  state.accepts = false;
  state.status = 204;
  clock.now += 60 * minute;
  t.deepEqual(await sign('bob', 'right'), ['none'], 'for an hour');
  clock.now += 1;
  t.deepEqual(await sign('carol', 'other'), ['none', 'old.test check', 'old.test carol:other']);
  t.deepEqual(await sign('alice', 'right'), ['t1', 'old.test alice:right']);
  t.is(made.length, 1);
  t.is(warned.length, 1);
});

test('a user and a key have the rights of their line', async (t) => {
  const patterns = { packages: ['a*'], containers: null } as unknown as NonNullable<AdoptedRight['patterns']>;
  const rights: AdoptedRight[] = [
    { kind: 'user', name: 'Alice', scopes: ['read', 'write'], patterns },
    { kind: 'user', name: 'Bob', scopes: ['write'], patterns: null },
    { kind: 'key', name: 'ci', key: 'the key', scopes: ['write', 'delete'], patterns: null },
  ];
  const { users, made, sign, rows, told, tokens, again, adopted, predecessors } = await setUp(t, { old: rights });
  Object.assign(users, { Alice: 'right', alice: 'right', Bob: 'right', bob: 'right', carol: 'right' });
  t.deepEqual(await sign(undefined, 'the key'), ['t1']);
  t.deepEqual(await sign('whoever', 'the key'), ['t1'], 'with any user');
  t.deepEqual(await sign('bob', 'right'), ['none'], 'the line of Bob gives no reading');
  t.deepEqual(await sign('Alice', 'right'), ['t2', 'old.test check', 'old.test Alice:right']);
  t.deepEqual(await sign('alice', 'right'), ['t3', 'old.test alice:right']);
  const of = { details: { adopted_from: 'old' } };
  t.deepEqual(made, [
    { name: 'key ci of old', scopes: ['write', 'delete'], patterns: null, ...of },
    { name: 'user Alice of old', scopes: ['read', 'write'], patterns, ...of },
    { name: 'user alice of old', scopes: ['read'], patterns, ...of },
  ]);
  const named = hash('sha256', JSON.stringify(patterns)).slice(0, 32);
  const row = { predecessor: 'old', kind: 'user', checked_at: start, secret: scrypted };
  t.deepEqual(await rows(), [
    { ...row, kind: 'key', name: 'ci', scopes: 'write,delete', token_id: 't1', secret: null },
    { ...row, name: 'Alice', scopes: `read,write ${named}`, token_id: 't2' },
    { ...row, name: 'alice', scopes: `read ${named}`, token_id: 't3' },
  ]);

  // Other rights need another token; a token that was revoked stays the only one.
  predecessors[0]!.rights = [{ ...rights[2]!, scopes: ['read'] }, rights[0]!];
  again();
  t.deepEqual(await sign(undefined, 'the key'), ['t4', 'revoked t1 of 7']);
  tokens.delete('t4');
  t.deepEqual(await sign(undefined, 'the key'), ['none']);
  predecessors[0]!.rights = [{ ...rights[2]!, scopes: ['write'] }];
  again();
  t.deepEqual(await sign(undefined, 'the key'), ['none']);
  tokens.delete('t2');
  users['ALICE'] = 'right';
  t.deepEqual(await sign('ALICE', 'right'), ['none', 'old.test check', 'old.test ALICE:right'], 'the same person');
  t.is(made.length, 4);

  await adopted.of.end('other');
  t.is((await rows()).length, 3);
  await adopted.of.end('old');
  t.deepEqual(told, ['revoked t3 of 7']);
  t.deepEqual(await rows(), []);
});

test('predecessors are asked one after another, without those that are taken over or adopt nothing', async (t) => {
  const { users, state, made, sign, told } = await setUp(t, { silent: [], done: [], orphan: [], first: [], last: [] });
  state.finished.push('done');
  users['alice'] = 'right';
  t.deepEqual(await sign('alice', 'right'), [
    't1',
    'orphan.test check',
    'orphan.test alice:right',
    'first.test check',
    'first.test alice:right',
  ]);
  t.is(made.length, 1);
  state.failure = new UpstreamError('UpstreamTimeout', 'it is slow');
  await t.throwsAsync(sign('bob', 'wrong'), { message: 'it is slow' });
  t.is(told.splice(0).at(-1), 'last.test bob:wrong', 'all of them were asked');
  const none = await setUp(t, { silent: [] });
  t.deepEqual(await none.sign('alice', 'right'), ['none']);
});

test('requests with the same credential look once', async (t) => {
  const { users, sign, told, made, adopted } = await setUp(t);
  users['alice'] = 'right';
  const found = await Promise.all([1, 2, 3].map(() => adopted.of.verifyForeign({ user: 'alice', secret: 'right' })));
  t.deepEqual(
    found.map((each) => each?.tokenId),
    ['t1', 't1', 't1'],
  );
  t.deepEqual(told.splice(0), ['old.test check', 'old.test alice:right']);
  t.is(made.length, 1);
  t.deepEqual(await sign('alice', 'right'), ['t1']);
});
