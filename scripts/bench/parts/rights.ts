import { randomUUID } from 'node:crypto';
import { Accounts } from '../../../src/accounts/accounts.ts';
import { personIdOf } from '../../../src/accounts/people.ts';
import { Tokens } from '../../../src/accounts/tokens.ts';
import { openDatabase, type Database, type Row } from '../../../src/database/database.ts';
import type { Bench, Place } from '../bench.ts';
import { bodyOf } from '../bodies.ts';
import { pushImage, pushPackage } from '../content.ts';
import type { Peer } from '../processes.ts';
import { rate, rates } from '../requests.ts';
import { mixed, queries } from '../store/queries.ts';
import { storeOf } from '../store/store.ts';

const groups = 500;
const grantsOfGroup = 2;
/** It is never asked: the rows of the person are written to the database. */
const issuer = 'http://127.0.0.1:9/people';
const settings = {
  ENTREPOT_SIGN_IN_OIDC_ISSUER: issuer,
  ENTREPOT_SIGN_IN_OIDC_CLIENT_ID: 'bench',
  ENTREPOT_SIGN_IN_OIDC_ALLOW_PRIVATE_NETWORK: 'true',
  ENTREPOT_SIGN_IN_OIDC_RULES: JSON.stringify([
    { claim: 'groups', value: 'all', account: 'default', scopes: ['read'] },
  ]),
};

/**
 * What grants cost: reads by a personal token whose person has 500 groups with 1,000 grants, and by one without; and searches and
 * lists of an account in the names that another one shares with it, and of that one in its own.
 */
export async function rights(bench: Bench): Promise<void> {
  const { seconds, rounds } = bench;
  const peers = [await readerOf(bench, 'without grants'), await readerOf(bench, '1,000 grants', groups)];
  for (const [title, path] of [
    ['a manifest', '/v2/team/app/manifests/v1'],
    ['a flat index', '/v3/package/bench.package/index.json'],
    ['a package', '/v3/package/bench.package/1.0.0/bench.package.1.0.0.nupkg'],
  ] as const)
    await rates(title, 3 * rounds, peers, (peer) => rate(peer, [path], { seconds }), {}, '≥ 0.95 ×');
  await bench.endPart();

  const place = await storeOf(bench, bench.many);
  const other = await sharing(place);
  const owner = await bench.serve(place, { name: 'own names' });
  const both: Peer[] = [owner, { ...owner, name: 'shared names', headers: { Authorization: `Bearer ${other}` } }];
  for (const peer of both) {
    const found = JSON.parse((await bodyOf(peer, '/v3/search?q=json')).toString()) as { totalHits: number };
    if (found.totalHits === 0) throw new Error(`a search finds nothing in ${peer.name}`);
  }
  for (const [title, paths] of [
    ['search', mixed(queries())],
    ['list of packages', ['/v1/packages']],
    ['list of packages by name', ['/v1/packages?q=json']],
    ['list of images', ['/v1/containers?tags=0']],
  ] as const) {
    const load = (peer: Peer) => rate(peer, paths, { seconds, connections: 16 });
    await rates(`${title} among ${bench.many} names`, rounds, both, load, { p95: {} }, '≥ 0.5 ×');
  }
}

/** A server whose client has a personal token, of a person in so many groups with grants. */
async function readerOf(bench: Bench, name: string, groupCount = 0): Promise<Peer> {
  const place = await bench.place(`rights-${groupCount}`);
  const server = await bench.serve(place, { name, settings });
  await pushPackage(server, { id: 'Bench.Package', version: '1.0.0', payloadBytes: 50_000 });
  await pushImage(server, 'team/app');
  const token = await write(place, async (database) => {
    const { account } = await new Accounts(database, Date.now).ensureDefault();
    const names = Array.from({ length: groupCount }, (_, at) => `group-${at}`);
    const person = { issuer, subject: 'ann', name: 'Ann', claims: [['groups', 'all']], groups: names };
    const personId = personIdOf(person);
    const grants = names.flatMap((id, at) =>
      Array.from({ length: grantsOfGroup }, (_, more) =>
        grantRow(account.id, { kind: 'group', issuer, id }, { packages: [`Team${at}.${more}.*`] }),
      ),
    );
    await database.transaction(async (tx) => {
      await tx.insert('people', { id: personId, person: JSON.stringify(person), signed_in_at: Date.now() });
      await tx.insertNew('grants', grants);
      await tx.run('UPDATE accounts SET grants_version = ? WHERE id = ?', [grants.length, account.id]);
    });
    return (await new Tokens(database, Date.now).create(account.id, { name: 'mine', scopes: ['read'], personId }))
      .value;
  });
  return { ...server, headers: { Authorization: `Bearer ${token}` } };
}

/** The token of an account that reads all names of the default account. */
function sharing(place: Place): Promise<string> {
  return write(place, async (database) => {
    const accounts = new Accounts(database, Date.now);
    const { account: owner } = await accounts.ensureDefault();
    const reader = await accounts.create('reader');
    const all = { packages: ['*'], containers: ['*'] };
    await database.transaction(async (tx) => {
      await tx.insertNew('grants', [grantRow(owner.id, { kind: 'account', issuer: null, id: 'reader' }, all)]);
      await tx.run('UPDATE accounts SET grants_version = 1 WHERE id IN (?, ?)', [owner.id, reader.id]);
    });
    return (await new Tokens(database, Date.now).create(reader.id, { name: 'reader', scopes: ['read'] })).value;
  });
}

function grantRow(
  accountId: number,
  subject: { kind: string; issuer: string | null; id: string },
  patterns: object,
): Row {
  return {
    id: randomUUID(),
    account_id: accountId,
    subject_kind: subject.kind,
    issuer: subject.issuer,
    subject_id: subject.id,
    verbs: 'read',
    patterns: JSON.stringify(patterns),
    created_by: JSON.stringify({ kind: 'system', id: 'bench', name: 'bench' }),
    created_at: Date.now(),
    accepted_at: Date.now(),
  };
}

async function write<T>(place: Place, work: (database: Database) => Promise<T>): Promise<T> {
  const database = await openDatabase(place.databaseUrl);
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}
