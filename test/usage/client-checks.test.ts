import test, { type ExecutionContext } from 'ava';
import { migrate } from '../../src/database/migrate.ts';
import type { DomainError } from '../../src/runtime/errors.ts';
import { checkedFor, checkIn, checkState, ClientChecks } from '../../src/usage/client-checks.ts';
import { testClock } from '../support/clock.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What is kept of checks of clients. test/http/client-checks.test.ts has the requests.

type Request = Parameters<typeof checkState>[1][number];

const request: Request = {
  status: 404,
  reason: null,
  hasCredential: true,
  agent: 'docker',
  address: '192.0.2.1',
  host: 'hub.test',
  path: '/v2/',
  accountId: 1,
  tokenId: 'token',
};

async function open(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const clock = testClock(Date.UTC(2027, 0, 1));
  const checks = new ClientChecks(database, clock.time);
  const start = (accountId = 1, client = 'docker') =>
    checks.start({ accountId, client, reference: 'latest', denied: null, kind: 'container' }, (id) => `named-${id}`);
  /** Notes a request for the own name of a check. */
  const note = (id: string, more: Partial<Request> = {}) =>
    checks.note(`/v2/entrepot-check/${id}/manifests/latest`, undefined, () => ({ ...request, ...more }));
  return { database, clock, checks, start, note };
}

test('an account has at most 20 checks that go on, each is kept for a day, and other accounts see none of them', async (t) => {
  const { database, clock, checks, start, note } = await open(t);
  const begun = clock.now!;
  const first = await start();
  t.deepEqual(first, {
    accountId: 1,
    client: 'docker',
    reference: 'latest',
    denied: null,
    id: first.id,
    name: `named-${first.id}`,
    createdAt: begun,
    expiresAt: begun + checkedFor,
  });
  t.regex(first.id, /^[0-9a-f]{32}$/);
  for (let count = 1; count < 20; count += 1) await start();
  const tooMany = { name: 'TooManyRequests', message: /^This account has 20 checks of clients/ };
  t.is((await t.throwsAsync<DomainError>(start(), tooMany)).retryAfter, 900);
  await t.notThrowsAsync(start(2), 'another account has its own');
  t.deepEqual((await checks.read(first.id, 1)).check, first);
  await t.throwsAsync(checks.read(first.id, 2), { name: 'NotFound' });

  note(first.id);
  await checks.flush();
  clock.now = begun + checkedFor - 1;
  await t.throwsAsync(start(), { name: 'TooManyRequests' });
  note(first.id);
  await checks.flush();
  clock.now += 1;
  note(first.id);
  await checks.flush();
  await t.notThrowsAsync(start());
  const noted = { ...request, count: 2, firstAt: begun, lastAt: begun + checkedFor - 1 };
  t.deepEqual((await checks.read(first.id, 1)).requests, [noted], 'after its end it takes none');

  clock.now = begun + checkedFor + 86_400_000 - 1;
  await checks.deleteOld();
  t.is((await checks.read(first.id, 1)).requests.length, 1);
  clock.now += 1;
  await t.throwsAsync(checks.read(first.id, 1), { name: 'NotFound' });
  await checks.deleteOld();
  t.deepEqual(await database.select('SELECT * FROM client_check_requests'), []);
  t.is((await database.select('SELECT * FROM client_checks')).length, 1, 'the last one');
});

test('a check keeps the first 20 different requests, cut, and counts equal ones', async (t) => {
  const { clock, checks, start, note } = await open(t);
  const [check, other] = [await start(), await start()];
  const begun = clock.now!;
  const agents = Array.from({ length: 25 }, (_, index) => `agent ${String(index).padStart(2, '0')}`);
  for (const agent of agents.slice(0, 15)) {
    clock.now! += 1;
    note(check.id, { agent });
  }
  note(other.id);
  await checks.flush();
  for (const agent of agents) {
    clock.now! += 1;
    note(check.id, { agent });
    note(check.id, { agent });
  }
  const { requests } = await checks.read(check.id, 1);
  t.deepEqual(
    requests.map(({ agent, count }) => [agent, count]),
    agents.slice(0, 20).map((agent, index) => [agent, index < 15 ? 3 : 2]),
  );
  t.deepEqual([requests[0]!.firstAt, requests[0]!.lastAt], [begun + 1, begun + 16]);
  t.like(await checks.read(other.id, 1), { requests: [{ count: 1 }] });

  const long = 'y'.repeat(300);
  note(other.id, { agent: long, reason: long, status: 401 });
  const cut = { agent: 'y'.repeat(255), reason: 'y'.repeat(255), status: 401 };
  t.like((await checks.read(other.id, 1)).requests[1], cut);

  // 200 different ones in memory; of those that are known more are counted.
  const third = await start();
  for (let index = 0; index < 200; index += 1) note(other.id, { agent: `many ${index}` });
  note(third.id);
  note(other.id, { agent: 'many 0' });
  t.deepEqual((await checks.read(third.id, 1)).requests, []);
  const many = (await checks.read(other.id, 1)).requests.find(({ agent }) => agent === 'many 0');
  t.is(many?.count, 2);
});

test('requests for what a policy refuses are noted for each check that waits for their name', async (t) => {
  const { database, clock, checks } = await open(t);
  const now = clock.now!;
  const row = (id: string, more: object = {}) => ({
    id,
    account_id: 1,
    client: 'dotnet',
    kind: 'package',
    name: 'Lib',
    reference: '1.0.0-RC',
    denied: JSON.stringify(['lib', 'Old.Lib']),
    created_at: now,
    expires_at: now + 5000,
    ...more,
  });
  const ids = ['one', 'two', 'theirs', 'image', 'ended'];
  await database.transaction((tx) =>
    tx.insertNew('client_checks', [
      row('one'),
      row('two', { reference: '2.0.0' }),
      row('theirs', { account_id: 2 }),
      row('image', { kind: 'container' }),
      row('ended', { expires_at: now + 1000 }),
    ]),
  );
  clock.now! += 1000;
  await checks.flush();
  const asked = { accountId: 1, kind: 'package', name: 'LIB', reference: '' };
  const noting = async (more: Partial<typeof asked>, path = '/v3/') => {
    checks.note(path, { ...asked, ...more }, () => ({ ...request, path: JSON.stringify(more) }));
    await checks.flush();
    const found = [];
    for (const id of ids) {
      const rows = await database.select<{ request: string }>(
        'SELECT request FROM client_check_requests WHERE check_id = ?',
        [id],
      );
      if (rows.some((each) => (JSON.parse(each.request) as Request).path === JSON.stringify(more))) found.push(id);
    }
    return found;
  };
  t.deepEqual(await noting({}), ['one', 'two'], 'a list has no version');
  t.deepEqual(await noting({ reference: '1.0.0-rc' }), ['one']);
  t.deepEqual(await noting({ name: 'old.lib', reference: '2.0.0' }), ['two']);
  t.deepEqual(await noting({ reference: '3.0.0' }), []);
  t.deepEqual(await noting({ name: 'other' }), []);
  t.deepEqual(await noting({ accountId: 2 }), ['theirs']);
  t.deepEqual(await noting({ kind: 'container' }), ['image']);
});

test('the own name of a check is found in paths and queries', (t) => {
  const id = '0123456789abcdef'.repeat(2);
  for (const target of [
    `/v3/package/entrepot-check.${id}/index.json`,
    `/v2/docker.io/entrepot-check/${id}/manifests/latest`,
    `/v3/search?q=entrepot-check.${id}`,
    `/v2/entrepot-check%2F${id}/tags/list`,
  ])
    t.is(checkIn(target), id, target);
  for (const target of [
    '/v2/',
    '/v2/entrepot-check/none/manifests/latest',
    `/v2/entrepot-check/${id}0/manifests/latest`,
    `/v2/xentrepot-check/${id}/manifests/latest`,
    `/v2/entrepot-check/${id.toUpperCase()}/manifests/latest`,
    `/v2/entrepot-check/${id}/%zz`,
  ])
    t.is(checkIn(target), undefined, target);
});

test('how a check stands follows from its requests, until and after its end', (t) => {
  const check = { ...request, id: '', client: 'docker', name: 'app', reference: 'V1', denied: null, createdAt: 0 };
  const state = (requests: Partial<Request>[], denied: string[] | null = null, now = 99) => {
    const open = { ...check, accountId: 1, denied, expiresAt: 100 };
    return checkState(
      open,
      requests.map((more) => ({ ...request, ...more })),
      now,
    );
  };
  const served = { path: '/v2/app/manifests/v1', status: 200 };
  t.is(state([]), 'waiting');
  t.is(state([], null, 100), 'unused');
  t.is(state([{}]), 'used');
  t.is(state([{ status: 403 }]), 'refused');
  t.is(state([{ status: 403 }], ['app']), 'used');
  t.is(state([{ status: 401 }], ['app']), 'refused');
  t.is(state([served], ['app']), 'served');
  t.is(state([served]), 'refused', 'the own name of a check is never sent');
  t.is(state([{ ...served, status: 400 }], ['app']), 'used');
  t.is(state([{ ...served, path: '/v2/app/tags/list' }], ['app']), 'used', 'a list is no content');
  t.is(state([{ accountId: 2 }]), 'refused');
  const stranger = { accountId: null, status: 401 };
  t.is(state([stranger]), 'refused');
  t.is(state([{ ...stranger, hasCredential: false }]), 'waiting', 'clients ask without a credential first');
  t.is(state([{ ...stranger, hasCredential: false }], null, 100), 'refused');
  t.is(state([{ ...stranger, status: 404 }]), 'waiting');
});
