import test, { type ExecutionContext } from 'ava';
import type { IssuerKind } from '../../src/config/identity.ts';
import { Publishers } from '../../src/identity/publishers.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// The rules in a database, without a server.

const kind: IssuerKind = 'other';
const issuers = ['ci', 'lab'].map((name) => ({
  name,
  issuer: `https://${name}.example`,
  audience: 'x',
  kind,
  allowPrivateNetwork: false,
}));

const given = (name: string, more: object = {}) => ({
  name,
  issuer: 'ci',
  claims: { sub: 'a' },
  scopes: ['read'],
  ...more,
});

/** The rules, with each statement that reads whole rows, and the rules whose tokens were revoked. */
async function setUp(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const reads: number[] = [];
  const hook: { onRead?: () => Promise<unknown> } = {};
  const watched = changedDatabase(database, {
    select: async (sql, values) => {
      const isWhole = sql.startsWith('SELECT * FROM publishers');
      if (isWhole) {
        reads.push(values?.length ?? 0);
        await hook.onRead?.();
      }
      return database.select(sql, values);
    },
  });
  const revoked: string[] = [];
  const tokens = { revokeGiven: async (_tx: unknown, id: string) => void revoked.push(id) };
  const clock = { now: 1000 };
  const open = () =>
    new Publishers({
      database: watched,
      tokens: tokens as never,
      issuers,
      settings: [],
      accountName: () => Promise.resolve(undefined),
      now: () => clock.now,
    });
  return { database, publishers: open(), open, reads, hook, revoked, clock };
}

test('rules are read 20 at a time, and again only after a change', async (t) => {
  const { publishers, open, reads, clock, database, hook } = await setUp(t);
  const names = Array.from({ length: 45 }, (_, index) => `rule ${index}`);
  for (const name of names) {
    await publishers.create(1, given(name));
    clock.now += 1;
  }
  const listed = async (from = publishers) => (await from.list(1)).map(({ name }) => name);
  t.deepEqual(await listed(), names);
  t.deepEqual(reads.splice(0), [20, 20, 5]);
  t.deepEqual(await listed(), names);
  t.deepEqual(reads, []);
  const [first, second] = await publishers.list(1);
  await publishers.update(1, first!.id, given('renamed'));
  t.deepEqual(await listed(), ['renamed', ...names.slice(1)]);
  t.deepEqual(reads.splice(0), [1]);
  // A rule that is deleted while the others are read.
  hook.onRead = () => database.transaction((tx) => tx.run('DELETE FROM publishers WHERE id = ?', [second!.id]));
  t.deepEqual(await listed(open()), ['renamed', ...names.slice(2)]);
});

test('a change or deletion of a rule leaves the others, and ends only its own tokens', async (t) => {
  const { publishers, revoked, clock } = await setUp(t);
  const patterns = { packages: ['A.*'] };
  const [one, two] = [await publishers.create(1, given('one')), await publishers.create(1, given('two', { patterns }))];
  t.deepEqual([two.patterns, two.createdAt, two.source, two.issuerUrl], [patterns, 1000, 'api', 'https://ci.example']);
  const denied = new Error('not allowed');
  const refuse = () => {
    throw denied;
  };
  t.is(await t.throwsAsync(publishers.update(1, one.id, given('new'), refuse)), denied);
  t.is(await t.throwsAsync(publishers.delete(1, one.id, refuse)), denied);
  for (const name of ['one', 'two']) await t.throwsAsync(publishers.create(1, given(name)), { name: 'AlreadyExists' });
  await t.throwsAsync(publishers.update(1, one.id, given('two')), { name: 'AlreadyExists' });
  for (const account of [1, 2]) {
    const id = account === 1 ? 'none' : one.id;
    await t.throwsAsync(publishers.get(account, id), { name: 'NotFound' });
    await t.throwsAsync(publishers.update(account, id, given('x')), { name: 'NotFound' });
    await t.throwsAsync(publishers.delete(account, id), { name: 'NotFound' });
  }
  t.deepEqual(revoked, []);
  const updated = await publishers.update(1, one.id, given('one', { scopes: ['write', 'read'], issuer: 'lab' }));
  t.like(updated, { id: one.id, scopes: ['read', 'write'], issuer: 'lab', createdAt: 1000, updatedAt: 1001 });
  t.deepEqual(await publishers.get(1, one.id), updated);
  t.deepEqual(await publishers.get(1, two.id), two);
  clock.now = 5000;
  t.is((await publishers.update(1, one.id, given('one'))).updatedAt, 5000);
  await publishers.delete(1, one.id);
  t.deepEqual(await publishers.list(1), [two]);
  t.deepEqual(revoked, [one.id, one.id, one.id]);
});

test('a rule of an older version gets the address of the issuer that has its name', async (t) => {
  const { database, publishers } = await setUp(t);
  const { id: ci } = await publishers.create(1, given('ci'));
  const { id: lab } = await publishers.create(1, given('lab', { issuer: 'lab' }));
  const { id: gone } = await publishers.create(1, given('gone'));
  const set = (sql: string, id: string) =>
    database.transaction((tx) => tx.run(`UPDATE publishers SET ${sql} WHERE id = ?`, [id]));
  const addresses = async () =>
    Object.fromEntries((await publishers.list(1)).map(({ id, issuer, issuerUrl }) => [id, [issuer, issuerUrl]]));
  await set("issuer_url = NULL, updated_at = 7, issuer = 'gone'", gone);
  await set('issuer_url = NULL, updated_at = 7', lab);
  // An older version has changed only the name.
  await set("issuer = 'lab', updated_at = 7", ci);
  t.deepEqual(await addresses(), { [ci]: ['lab', null], [lab]: ['lab', null], [gone]: ['gone', null] });
  await publishers.nameIssuers();
  await set('updated_at = 8', ci);
  await set('updated_at = 8', lab);
  await set('updated_at = 8', gone);
  const named = ['lab', 'https://lab.example'];
  t.deepEqual(await addresses(), { [ci]: named, [lab]: named, [gone]: ['gone', null] });
  // The same issuer under another name.
  await set("issuer = 'old', issuer_url = 'old https://ci.example', updated_at = 9", ci);
  t.deepEqual((await addresses())[ci], ['ci', 'https://ci.example']);
});

test('patterns count to the size of rules, as the database counts them', async (t) => {
  const { publishers } = await setUp(t);
  const texts = Array.from({ length: 50 }, (_, index) => `${index}-`.padEnd(90, 'x'));
  const patterns = { packages: texts, containers: texts };
  let made = 0;
  const refused = await t.throwsAsync(
    (async () => {
      for (; made < 20; made += 1) await publishers.create(1, given(`rule ${made}`, { patterns }));
    })(),
  );
  t.regex(refused.message, /at most 128 KiB/);
  const { claims } = (await publishers.list(1))[0]!;
  const stored = JSON.stringify(claims).length + JSON.stringify((await publishers.list(1))[0]!.patterns).length;
  t.is(made, Math.floor((128 * 1024) / stored));
});

test('memory keeps rules of 8 MiB, and others are read again', async (t) => {
  const { database, publishers, reads } = await setUp(t);
  const claims = JSON.stringify({ sub: ['x'.repeat(100_000)] });
  const row = { account_id: 1, issuer: 'ci', issuer_url: null, claims, scopes: 'read', patterns: null };
  const add = (from: number, to: number) => {
    const ids = Array.from({ length: to - from }, (_, index) => `rule ${from + index}`);
    const rows = ids.map((id) => ({ ...row, id, name: id, created_at: 1, updated_at: 1 }));
    return database.transaction((tx) => tx.insertNew('publishers', rows));
  };
  const readsOf = async (count: number) => {
    reads.length = 0;
    t.is((await publishers.list(1)).length, count);
    return reads.reduce((all, each) => all + each, 0);
  };
  await add(0, 80);
  t.deepEqual([await readsOf(80), await readsOf(80)], [80, 0]);
  await add(80, 90);
  t.is(await readsOf(90), 10);
  t.true((await readsOf(90)) > 0);
});
