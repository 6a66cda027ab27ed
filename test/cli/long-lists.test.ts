import test from 'ava';
import { batches } from '../../src/database/batches.ts';
import type { Row } from '../../src/database/database.ts';
import { noCounts } from '../../src/usage/counters.ts';
import { periodAt } from '../../src/usage/period.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, defaultAccountOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

// Commands read lists some rows at a time, and print all of them.

const numbers = Array.from({ length: 1001 }, (_, at) => at + 1);
const padded = (number: number) => String(number).padStart(5, '0');

test('lists of commands are whole and in order, however long they are', async (t) => {
  const data = await folderUntilEnd(t);
  const server = await startTestServer(t, { data });
  const database = databaseOf(server);
  const account = defaultAccountOf(server);
  const now = Date.UTC(2027, 0, 1);
  const far = Date.UTC(2100, 0, 1);
  const insert = (table: string, rowOf: (number: number) => Row) =>
    database.transaction(async (tx) => {
      for (const some of batches(numbers)) await tx.insertNew(table, some.map(rowOf));
    });
  const by = JSON.stringify({ kind: 'system', id: null, name: 'command' });
  await insert('grants', (number) => ({
    id: `grant-${padded(number)}`,
    account_id: account,
    subject_kind: 'token',
    issuer: null,
    subject_id: `token-${number}`,
    verbs: 'read',
    patterns: null,
    created_by: by,
    // Several at the same time.
    created_at: now + Math.floor(number / 7),
    accepted_at: null,
  }));
  await insert('promotions', (number) => ({
    state: number === 5 ? 'rejected' : 'requested',
    kind: 'container',
    from_account: account,
    from_name: 'app',
    reference: `v${number}`,
    digest: 'sha256:x',
    to_account: number === 7 ? 99 : account,
    to_name: 'app-prod',
    reason: 'see',
    requester: 'system:command',
    requested_by: by,
    requested_at: now,
  }));
  await insert('waivers', (number) => ({
    account_id: account,
    state: 'requested',
    layer: null,
    kind: 'package',
    name: `Lib${number}`,
    name_key: `lib${number}`,
    reference_list: '["1.0.0","2.0.0"]',
    lifts: 'age',
    reason: 'see',
    requester: 'system:command',
    requested_by: by,
    requested_at: now,
    expires_at: far,
    warned: 0,
  }));
  await insert('deleted_items', (number) => ({
    account_id: account,
    kind: 'container',
    type: 'tag',
    name: 'app',
    reference: `v${number}`,
    digest: 'sha256:x',
    size_bytes: 0,
    row_id: 0,
    part_of: 0,
    changed_at: now,
    deleted_by: by,
    deleted_at: now,
    ends_at: far,
  }));
  await insert('people', (number) => ({
    id: `person-${padded(number)}`,
    person: JSON.stringify({ issuer: 'https://a.test', subject: `s${number}`, name: `Ann ${number}`, claims: [] }),
    signed_in_at: now,
  }));
  await insert('packages', (number) => ({
    account_id: account,
    package_key: `lib${padded(number)}`,
    package_id: `Lib${padded(number)}`,
    standing: 0,
    version_count: 0,
    created_at: now,
    updated_at: now,
  }));
  const month = periodAt(Date.now()).start;
  await insert('usage_counts', (number) => ({
    ...noCounts(),
    account_id: account,
    dimension: 'package',
    period_start: month,
    name: number === 1 ? '' : padded(number),
    day: month,
    downloads: number,
  }));

  const lines = async (...words: string[]) => {
    const { code, stdout, stderr } = await entrepot({ ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: '[]' }, ...words);
    t.deepEqual([code, stderr], [0, ''], words.join(' '));
    return stdout.split('\n').slice(0, -1);
  };
  const columns = async (place: number, ...words: string[]) =>
    (await lines(...words)).map((line) => line.split('\t')[place]!);
  const latest = numbers.toReversed();
  t.deepEqual(
    await columns(0, 'grant', 'list'),
    latest.map((number) => `grant-${padded(number)}`),
  );
  t.deepEqual(
    await columns(4, 'promotion', 'list'),
    latest.map((number) => `v${number}`),
  );
  const promotions = await lines('promotion', 'list');
  t.is(promotions.at(-1), `1\trequested\tdefault\tapp\tv1\tdefault\tapp-prod\tsha256:x\tsee`);
  t.is(promotions.at(-7), `7\trequested\tdefault\tapp\tv7\t\tapp-prod\tsha256:x\tsee`, 'an account that is gone');
  t.deepEqual(await columns(4, 'promotion', 'list', '--state', 'rejected'), ['v5']);
  t.deepEqual(
    await columns(4, 'waiver', 'list'),
    latest.map((number) => `Lib${number}`),
  );
  t.is(
    (await lines('waiver', 'list')).at(-1),
    `1\trequested\tdefault\t-\tLib1\t1.0.0,2.0.0\tage\t2100-01-01T00:00:00.000Z\tsee`,
  );
  const deleted = await lines('deleted', 'list');
  t.deepEqual(
    deleted,
    latest.map((number) => `${number}\ttag\tapp\tv${number}\t2100-01-01T00:00:00.000Z`),
  );
  t.deepEqual(
    await lines('person', 'list'),
    numbers.map((number) => `person-${padded(number)}\t2027-01-01T00:00:00.000Z\t-\ts${number}\tAnn ${number}`),
  );
  t.deepEqual(
    await lines('claim', 'list'),
    numbers.map((number) => `package\tLib${padded(number)}\t2027-01-01T00:00:00.000Z`),
  );
  const usage = (await lines('usage', '--by', 'package')).map((line) => line.split('\t'));
  const title = usage.findIndex(([name]) => name === 'package');
  t.deepEqual(
    usage.slice(title + 1).map(([name, , downloads]) => `${name} ${downloads}`),
    numbers.map((number) => `${number === 1 ? '-' : padded(number)} ${number}`),
  );
});
