import { mkdir, readdir, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { Accounts } from '../../src/accounts/accounts.ts';
import { Tokens } from '../../src/accounts/tokens.ts';
import type { Database } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { parsePeriod } from '../../src/usage/period.ts';
import { UsageRecord } from '../../src/usage/record.ts';
import { totalsOf } from '../../src/usage/report.ts';
import { Unwritten } from '../../src/usage/unwritten.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { holdSync, watchSyncs } from '../support/disk.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { within } from '../support/until.ts';

const at = Date.UTC(2027, 0, 15);
const january = parsePeriod('2027-01')!;

function parts(database: Database, folder: string, lines: string[] = []) {
  const log = pino({}, { write: (line: string) => void lines.push(line) });
  const usage = new UsageRecord(database, () => at);
  const tokens = new Tokens(database, () => at);
  return { usage, tokens, unwritten: new Unwritten({ usage, tokens, folder, log }) };
}

/** Counts `requests` downloads of different packages. */
function count(usage: UsageRecord, account: number, requests: number): void {
  for (let index = 0; index < requests; index += 1) {
    const use = { at, token: 'a', kind: 'package' as const, subject: `made.${index}`, act: 'download' as const };
    const counts = { status: 200, complete: true, cache: undefined, sent: 10, received: 0, fetched: 0 };
    usage.count(account, { ...use, ...counts }, '1.0.0');
  }
}

for (const dialect of dialects) {
  const prepared = async (t: Parameters<typeof openUntilEnd>[0]) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const { account } = await new Accounts(database, () => at).ensureDefault();
    return { database, account: account.id, folder: join(await folderUntilEnd(t), 'unwritten') };
  };

  test(`${dialect}: what a frozen database may or may not have committed is counted once`, async (t) => {
    const { database, account, folder } = await prepared(t);
    let commits = 0;
    const thawed = Promise.withResolvers<void>();
    // The second transaction is committed, and its end is not known.
    const freezing = changedDatabase(database, {
      transaction: async (work, options) => {
        commits += 1;
        if (commits > 2) await thawed.promise;
        const result = await database.transaction(work, options);
        if (commits === 2) await thawed.promise;
        return result;
      },
    });
    const closing = parts(freezing, folder);
    count(closing.usage, account, 250);
    const close = closing.usage.close.bind(closing.usage);
    let closed: Promise<void> | undefined;
    closing.usage.close = () => (closed = close());
    const startedAt = performance.now();
    await within(closing.unwritten.close(25_000));
    t.true(performance.now() - startedAt < 25_000);
    t.is((await readdir(folder)).length, 1);
    // The database answers after all, before the process has ended.
    thawed.resolve();
    await within(closed!);
    // Two workers start at the same time; a third one finds nothing.
    await Promise.all([1, 2].map(() => parts(database, folder).unwritten.restore()));
    await parts(database, folder).unwritten.restore();
    t.deepEqual(await readdir(folder), []);
    t.like(await totalsOf(database, account, january), { requests: 250, downloads: 250, egress_bytes: 2500 });
  });

  test(`${dialect}: a start that is interrupted after the counts and before the file is removed`, async (t) => {
    const { database, account, folder } = await prepared(t);
    const failing = changedDatabase(database, { transaction: () => Promise.reject(new Error('the database is gone')) });
    const closing = parts(failing, folder);
    count(closing.usage, account, 3);
    await closing.unwritten.close(1000);
    const [name] = await readdir(folder);
    const text = await readFile(join(folder, name!), 'utf8');
    await parts(database, folder).unwritten.restore();
    await writeFile(join(folder, name!), text);
    await parts(database, folder).unwritten.restore();
    t.like(await totalsOf(database, account, january), { requests: 3 });
  });

  test(`${dialect}: the time of the last use of a token is kept, and never goes back`, async (t) => {
    const { database, account, folder } = await prepared(t);
    const { token, value } = await new Tokens(database, () => at).create(account, { name: 'a', scopes: ['read'] });
    let isFrozen = true;
    const freezing = changedDatabase(database, {
      transaction: (work, options) => (isFrozen ? new Promise(() => undefined) : database.transaction(work, options)),
    });
    const closing = parts(freezing, folder);
    await closing.tokens.verify(value);
    // This flush, and the one of the closing, do not end.
    void closing.tokens.flush();
    await within(closing.unwritten.close(500));
    isFrozen = false;
    const next = parts(database, folder);
    await next.unwritten.restore();
    t.is((await next.tokens.get(account, token.id))!.lastUsedAt, at);
    await next.tokens.restore(new Map([[token.id, at - 1]]));
    t.is((await next.tokens.get(account, token.id))!.lastUsedAt, at);
  });
}

/** Usage that a database which is gone does not take. */
async function countedInVain(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const folder = join(await folderUntilEnd(t), 'unwritten');
  const failing = changedDatabase(database, { transaction: () => Promise.reject(new Error('the database is gone')) });
  const { usage, unwritten } = parts(failing, folder);
  count(usage, 1, 3);
  return { folder, unwritten };
}

test.serial('a file is complete, and synced, before it has its name', async (t) => {
  const { folder, unwritten } = await countedInVain(t);
  const barrier = await holdSync(t, (path) => path.includes('/unwritten/'));
  const closing = unwritten.close(1000);
  const path = await within(barrier.reached);
  t.regex(await readFile(path, 'utf8'), /made\.2.*\n$/);
  t.deepEqual(
    (await readdir(folder)).filter((each) => each.endsWith('.jsonl')),
    [],
  );
  barrier.release();
  await within(closing);
  const [name, ...others] = await readdir(folder);
  t.regex(name!, /\.jsonl$/);
  t.deepEqual(others, []);
  const modes = [await stat(folder), await stat(join(folder, name!))].map(({ mode }) => mode & 0o777);
  t.deepEqual(modes, [0o700, 0o600], 'for the user of the server only');
});

test.serial('a file that cannot be synced is removed, and the closing fails', async (t) => {
  const { folder, unwritten } = await countedInVain(t);
  await watchSyncs(t, (path) => {
    if (path.includes('/unwritten/')) throw new Error('no space is left');
  });
  await t.throwsAsync(unwritten.close(1000), { message: 'no space is left' });
  t.deepEqual(await readdir(folder), []);
});

test('a file that is too large is not read', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const folder = join(await folderUntilEnd(t), 'unwritten');
  await mkdir(folder);
  const path = join(folder, 'a.jsonl');
  await writeFile(path, '{"tokens":[["none",1]]}\n');
  await truncate(path, 3 * 16 * 2 ** 20 + 1);
  const lines: string[] = [];
  await parts(database, folder, lines).unwritten.restore();
  t.deepEqual(await readdir(folder), ['a.jsonl']);
  t.regex(lines.join(''), /the file is too large/);
});

test('a file that cannot be read stays, is logged, and stops nothing', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const folder = join(await folderUntilEnd(t), 'unwritten');
  await mkdir(folder);
  await writeFile(join(folder, 'a.jsonl'), '{"writer":"w","number":1,"entries":[{"accountId":"x"}]}\n');
  await writeFile(join(folder, 'b.jsonl'), '{"tokens":[["none",1]]}\n');
  await writeFile(join(folder, 'c.jsonl.part'), '{"tok');
  const lines: string[] = [];
  await parts(database, folder, lines).unwritten.restore();
  t.deepEqual(await readdir(folder), ['a.jsonl', 'c.jsonl.part']);
  t.is(lines.filter((each) => each.includes('could not be included')).length, 1);
  lines.length = 0;
  await parts(database, join(folder, 'none'), lines).unwritten.restore();
  t.deepEqual(lines, [], 'no folder is no failure');
  await parts(database, join(folder, 'a.jsonl'), lines).unwritten.restore();
  t.regex(lines.join(''), /"level":50,.*ENOTDIR.*usage of earlier processes cannot be read/);
});

test('a file has a bound: the rest is lost, and the log says so', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const folder = join(await folderUntilEnd(t), 'unwritten');
  const failing = changedDatabase(database, { transaction: () => Promise.reject(new Error('the database is gone')) });
  const lines: string[] = [];
  const { usage, unwritten } = parts(failing, folder, lines);
  for (let round = 0; round < 60_000; round += 1) {
    const use = { at, token: 'a', kind: 'package' as const, subject: `${round}${'x'.repeat(240)}`, act: undefined };
    usage.count(1, { ...use, status: 200, complete: true, cache: undefined, sent: 10, received: 0, fetched: 0 });
  }
  await unwritten.close(10_000);
  const [name] = await readdir(folder);
  t.true((await readFile(join(folder, name!))).length <= 16 * 2 ** 20);
  t.true(lines.some((each) => each.includes('some usage is lost')));
});
