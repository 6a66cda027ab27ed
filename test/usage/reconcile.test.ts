import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { migrate } from '../../src/database/migrate.ts';
import { noCounts } from '../../src/usage/counters.ts';
import { parsePeriod } from '../../src/usage/period.ts';
import { reconcile } from '../../src/usage/reconcile.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';

// Access logs, line by line. test/api/usage.test.ts compares those of a server.

const period = parsePeriod('2027-02')!;

const line = (changes: object = {}) => ({
  msg: 'request',
  account: 'default',
  billable: true,
  at: period.start,
  kind: 'package',
  subject: 'lib',
  act: 'download',
  status: 200,
  complete: true,
  sent: 100,
  received: 7,
  fetched: 3,
  cache: 'miss',
  ...changes,
});

async function setUp(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const folder = await folderUntilEnd(t);
  await database.transaction(async (tx) => {
    for (const name of ['default', 'team']) await tx.insert('accounts', { name, created_at: 0 });
    const month = { account_id: 1, dimension: 'account', period_start: period.start, name: '', day: period.start };
    await tx.insert('usage_counts', { ...month, ...noCounts(), requests: 4, downloads: 9 });
  });
  let files = 0;
  const file = async (...lines: (object | string)[]) => {
    files += 1;
    const path = join(folder, `log-${files}`);
    await writeFile(path, lines.map((each) => (typeof each === 'string' ? each : JSON.stringify(each))).join('\n'));
    return path;
  };
  /** The counters that differ or are not 0, and how many lines were skipped. */
  const compare = async (...paths: string[]) => {
    const { compared, skipped } = await reconcile(database, paths, period);
    const told = compared.filter(({ logged, recorded }) => logged > 0 || recorded > 0);
    return {
      compared: told.map(({ account, counter, logged, recorded }) => `${account} ${counter} ${logged} ${recorded}`),
      accounts: [...new Set(compared.map(({ account }) => account))],
      skipped,
    };
  };
  return { folder, file, compare };
}

test('requests of a month are counted by account, and other lines are left out', async (t) => {
  const { file, compare } = await setUp(t);
  const one = await file(
    'the first token is …',
    line(),
    '',
    '  ',
    line({ at: period.end - 1, act: undefined }),
    line({ at: period.start - 1 }),
    line({ at: period.end }),
    line({ billable: false }),
    line({ account: undefined }),
    line({ msg: 'closing' }),
    { msg: 'ready' },
  );
  const two = await file(
    line({ account: 'team' }),
    line({ msg: 'fetched', fetched: 50 }),
    line({ account: 'gone' }),
    'x',
  );
  const { compared, ...rest } = await compare(one, two);
  t.deepEqual(rest, { accounts: ['default', 'team'], skipped: 2 });
  t.true(compared.includes('default requests 2 4'), compared.join());
  t.true(compared.includes('default downloads 1 9'));
  t.true(compared.includes('default upstream_bytes 56 0'));
  t.true(compared.includes('team requests 1 0'));
  t.true(compared.includes('team upstream_bytes 3 0'));
  t.deepEqual(await compare(), {
    compared: ['default requests 0 4', 'default downloads 0 9'],
    accounts: ['default', 'team'],
    skipped: 0,
  });
});

test('a log that is damaged, that is none, or that cannot be read is refused', async (t) => {
  const { folder, file, compare } = await setUp(t);
  const refused = async (path: string) =>
    (await t.throwsAsync(compare(path), { name: 'Invalid' })).message.replaceAll(folder, '');
  t.is(
    await refused(await file(line(), '', '{"msg":"req')),
    '/log-1:3: this line of a JSON log is damaged or not complete',
  );
  t.is(
    await refused(await file('a text', 'another')),
    '/log-2: this file has no line of a JSON log, which begins with "{"',
  );
  t.is((await compare(await file())).skipped, 0, 'an empty log');
  t.regex(await refused(join(folder, 'none')), /^\/none: the log cannot be read: ENOENT/);
  t.regex(await refused(folder), /^: the log cannot be read: EISDIR/);
});
