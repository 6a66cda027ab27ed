import test from 'ava';
import { batches } from '../../src/database/batches.ts';
import type { Row } from '../../src/database/database.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, defaultAccountOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

// What `entrepot exposed` prints of users of each kind. test/usage/exposed.long.test.ts records real ones.

const day = 86_400_000;

const time = (milliseconds: number) => new Date(milliseconds).toISOString();

test('each user of content is on a line, with what it pushed later', async (t) => {
  const data = await folderUntilEnd(t);
  const server = await startTestServer(t, { data });
  const account = defaultAccountOf(server);
  const today = Math.floor(Date.now() / day) * day;
  const at = today - 2 * day;
  const insert = (table: string, rows: readonly Row[]) =>
    databaseOf(server).transaction(async (tx) => {
      for (const some of batches(rows)) await tx.insertNew(table, some);
    });
  const content = (id: string, changes: Row = {}): Row => ({
    id,
    account_id: account,
    kind: 'package',
    name: 'own',
    reference: '1.0.0',
    last_day: today,
    is_compared: 1,
    ...changes,
  });
  await insert('pull_contents', [
    content('a'),
    content('b', { account_id: 99, reference: '2.0.0' }),
    content('c', { reference: '3.0.0' }),
    content('made', { kind: 'container', name: 'team/made', reference: 'sha256:m' }),
    content('many', { name: 'many' }),
  ]);
  const facts = { kind: 'token', name: 'build', ruleId: null, person: null, job: null };
  const job = { id: 'j', issuer: 'ci', repository: 'team/app', ref: 'main', run: '7', subject: 'repo:team' };
  const user = (id: string, changes: object): Row => ({
    id,
    account_id: account,
    facts: JSON.stringify({ ...facts, ...changes }),
    last_day: today,
  });
  await insert('pull_users', [
    user('1-token', {}),
    user('2-person', { name: 'laptop', person: 'Ann' }),
    user('3-job', { kind: 'job', name: 'release', job }),
    user('4-job', { kind: 'job', name: null, job: { ...job, run: null, ref: null } }),
    user('5-anonymous', { kind: 'anonymous', name: null }),
    ...Array.from({ length: 401 }, (_, each) => user(`m${String(each).padStart(3, '0')}`, {})),
  ]);
  const pull = (id: string, by: string, changes: Row = {}): Row => ({
    content_id: id,
    act: 'pull',
    user_id: by,
    day: at,
    count: 2,
    first_at: at + 1,
    last_at: at + 2,
    ...changes,
  });
  const users = ['1-token', '2-person', '3-job', '4-job', '5-anonymous', '6-unknown'];
  await insert('pulls', [
    ...users.map((each) => pull('a', each)),
    pull('b', '1-token', { day: at - 40 * day, first_at: at - 40 * day, last_at: at - 40 * day, count: 1 }),
    pull('made', '3-job', { act: 'push', first_at: at + 3, last_at: at + 4, count: 1 }),
    ...Array.from({ length: 401 }, (_, each) => pull('many', `m${String(each).padStart(3, '0')}`)),
  ]);
  const exposed = (...words: string[]) =>
    entrepot({ ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: '[]' }, 'exposed', ...words);
  const line = (name: string, who: string, first: number, last: number, count: number) =>
    `${name}\t${who}\t${time(first)}\t${time(last)}\t${count}`;
  const own = (who: string) => line('own 1.0.0', `default\t${who}`, at + 1, at + 2, 2);
  const all = await exposed('Own@*');
  t.deepEqual([all.code, all.stderr], [0, '']);
  t.deepEqual(all.stdout.split('\n'), [
    own('build\t1-token\t-'),
    own('laptop\t2-person\tAnn'),
    own('release\t3-job\tteam/app main 7'),
    `\tpushed later\tteam/made sha256:m\t${time(at + 4)}`,
    own('job\t4-job\tteam/app repo:team'),
    own('anonymous\t5-anonymous\t-'),
    own('-\t-\t-'),
    line('own 2.0.0', '-\tbuild\t1-token\t-', at - 40 * day, at - 40 * day, 1),
    '',
  ]);
  const since = await exposed('Own@*', '--since', '30d', '--account', 'default', '--json');
  const items = since.stdout
    .trimEnd()
    .split('\n')
    .map((each) => JSON.parse(each) as { user: { id: string } | null });
  t.deepEqual(
    items.map((each) => each.user?.id ?? null),
    [...users.slice(0, 5), null],
  );
  for (const words of [
    ['Own@3.0.0'],
    ['Own@*', '--since', time(Date.now() + 60_000)],
    ['Own@2.0.0', '--account', 'default'],
  ])
    t.deepEqual(await exposed(...words), {
      code: 0,
      stdout: '',
      stderr: 'Nobody pulled it from this server, as far as its records show.\n',
    });
  const many = await exposed('many@1.0.0');
  t.is(many.stdout.split('\n').length, 402);
  t.is(new Set(many.stdout.split('\n').map((each) => each.split('\t')[3])).size, 402);
  t.regex((await exposed('Own@*', '--account', 'none')).stderr, /There is no account "none"/);
  t.regex((await exposed('Own@*', '--since', 'x')).stderr, /--since needs a time such as/);
});
