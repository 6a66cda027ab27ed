import { readdir } from 'node:fs/promises';
import { setImmediate as turn } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { checkPair } from '../../../src/storage/upkeep/identity.ts';
import { copyStorage } from '../../../src/storage/upkeep/copy.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { readAll, type Content } from '../../../src/storage/files/content.ts';
import { emptyPlace, serveOn } from '../../backup/support.ts';
import { changedDatabase, dialects } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { entrepot } from '../../support/in-process.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { s3Environment, s3Storage, startS3 } from '../../support/s3.ts';
import { openStoreOn } from '../../support/store.ts';
import type { Dialect } from '../../../src/database/database.ts';

// A copy between storages, most in memory. `copy.long.test.ts` has whole programs.

async function setUp(t: ExecutionContext, dialect: Dialect) {
  const { database, driver: source, blobs, paths } = await openStoreOn(t, dialect, () => new MemoryDriver());
  const target = new MemoryDriver();
  const commit = async (text: string) => {
    const arrival = await blobs.stageBytes(Buffer.from(text));
    await blobs.commit([arrival], () => Promise.resolve());
    return arrival.digest;
  };
  const lines: string[] = [];
  const parts = { database, source, target, stage: (size: number) => blobs.stageHosted(size, []) };
  const copy = () => copyStorage(parts, { rate: 2 ** 40, report: (line) => void lines.push(line) });
  const holds = async () => (await database.select('SELECT id FROM storage_holds')).length;
  const staged = async () => (await readdir(paths.staging)).length;
  return { database, source, target, parts, commit, copy, lines, holds, staged };
}

for (const dialect of dialects) {
  test(`${dialect}: a copy has all live content whose bytes are right, and then the identity`, async (t) => {
    const { database, source, target, commit, copy, lines, holds } = await setUp(t, dialect);
    const [there, other, damaged, missing] = [
      await commit('there'),
      await commit('of another size'),
      await commit('damaged'),
      await commit('missing'),
    ];
    await checkPair(database, source);
    const pending = { digest: digestOf('pending'), size: 7, stored_at: 0, state: 'pending' };
    await database.transaction((tx) => tx.insertNew('blobs', [pending]));
    target.damage(there, Buffer.from('there'));
    target.damage(other, Buffer.from('short'));
    source.damage(damaged, Buffer.from('dam@ged'));
    await source.delete(missing);
    let late: Promise<unknown> | undefined;
    const put: string[] = [];
    target.faults.before = async (operation, digest) => {
      if (operation !== 'put') return;
      t.is(await holds(), 1, 'nothing is collected meanwhile');
      t.is(await target.readIdentity(), undefined, 'no server starts on a part');
      put.push(digest!);
      await (late ??= commit('pushed meanwhile'));
    };
    const { problems, ...copied } = await copy();
    // All passes report the last number of blobs. A pass that copies nothing is the last one.
    t.like(copied, { blobs: 5, bytes: 50, copied: 2, copiedBytes: 31, isSettled: true });
    t.deepEqual([...problems].toSorted(), [damaged, missing].toSorted());
    t.deepEqual(
      lines.toSorted(),
      [`damaged ${damaged}: 7 bytes; not copied`, `missing ${missing}: 7 bytes; not copied`].toSorted(),
    );
    t.deepEqual(put.toSorted(), [other, digestOf('pushed meanwhile')].toSorted());
    t.deepEqual([...target.contents.values()].map(String).toSorted(), ['of another size', 'pushed meanwhile', 'there']);
    t.is(await target.readIdentity(), await source.readIdentity());
    t.is(await holds(), 0);
    target.faults = {};
    await commit('later');
    t.like(await copy(), { blobs: 6, copied: 1, passes: 2 }, 'a later copy continues');
  });

  test(`${dialect}: nothing is copied to the storage of another installation, or from one that is away`, async (t) => {
    const { database, source, target, commit, copy } = await setUp(t, dialect);
    await commit('content');
    await checkPair(database, source);
    await target.writeIdentity('other');
    await t.throwsAsync(copy(), { message: /^the target of the copy belongs to another installation/ });
    await target.writeIdentity((await source.readIdentity())!, true);
    source.faults.before = (operation) => {
      if (operation === 'check') throw new Error('away');
    };
    await t.throwsAsync(copy(), { message: 'away' });
    source.faults.before = (operation) => {
      if (operation === 'open') throw new Error('reset');
    };
    await t.throwsAsync(copy(), { message: 'reset' });
    t.is(target.contents.size, 0);
    source.faults = {};
    t.like(await copy(), { blobs: 1, copied: 1, passes: 2, isSettled: true });
  });
}

test('a copy tells how far it is, passes what only the target has, and stops when it is told to', async (t) => {
  const { database, source, target, commit, lines } = await setUp(t, 'sqlite');
  const digests = [await commit('one'), await commit('two'), await commit('six')];
  const cut = await commit('cut off');
  await checkPair(database, source);
  const pending = { digest: digestOf('pending'), size: 7, stored_at: 0, state: 'pending' };
  await database.transaction((tx) => tx.insertNew('blobs', [pending]));
  source.damage(cut, Buffer.from('cut'));
  for (let index = 0; index < 250; index += 1) target.damage(digestOf(`foreign ${index}`), Buffer.from('x'));
  target.damage(digests[1]!, Buffer.from('two'));
  const progress: { known: number; ended: number; received: number }[] = [];
  const put: string[] = [];
  const parts = {
    database,
    source,
    target: Object.assign(target, {
      putContent: async (digest: Digest, content: Content, size: number) => {
        put.push(`${digest} ${size}`);
        target.damage(digest, await readAll(content, size));
      },
    }),
    stage: () => Promise.reject(new Error('nothing is staged for such a target')),
  };
  const report = (line: string) => void lines.push(line);
  const options = { rate: 2 ** 40, report, onProgress: (each: (typeof progress)[number]) => void progress.push(each) };
  const ended = AbortSignal.abort();
  await t.throwsAsync(copyStorage(parts, { ...options, signal: ended }), { name: 'AbortError' });
  t.deepEqual([progress, put, await target.readIdentity()], [[], [], undefined]);
  const { problems, ...copied } = await copyStorage(parts, { ...options, signal: new AbortController().signal });
  t.deepEqual(copied, { blobs: 4, bytes: 16, copied: 2, copiedBytes: 6, passes: 2, isSettled: true });
  t.deepEqual([...problems], [cut]);
  t.deepEqual(lines, [`damaged ${cut}: 7 bytes; not copied`]);
  t.deepEqual(put.toSorted(), [`${digests[0]} 3`, `${digests[2]} 3`].toSorted());
  t.deepEqual(
    progress.map(({ known, ended: seen }) => [known, seen]),
    [
      [4, 1],
      [4, 2],
      [4, 3],
      [4, 4],
      [4, 4],
    ],
  );
  t.deepEqual([progress[0]!.received, progress.at(-1)!.received], [0, 6]);
});

test('a copy ends after five passes while pushes go on, and closes all that it has opened', async (t) => {
  const { database, source, target, commit, copy, staged } = await setUp(t, 'sqlite');
  const damaged = await commit('damaged');
  await commit('first');
  await checkPair(database, source);
  source.damage(damaged, Buffer.from('dam@ged'));
  const open = source.open.bind(source);
  const counts = { opened: 0, closed: 0 };
  const checks = new Set<unknown>();
  source.open = async (...given: [Digest, number, boolean?]) => {
    checks.add(given[2]);
    const content = await open(given[0], given[1]);
    counts.opened += 1;
    return {
      ...content,
      close: () => {
        counts.closed += 1;
        content.close();
      },
    };
  };
  let pushed = 0;
  target.faults.after = async (operation) => {
    if (operation === 'put') await commit(`pushed ${(pushed += 1)}`);
  };
  t.like(await copy(), { copied: 5, passes: 5, isSettled: false });
  t.is(await target.readIdentity(), await source.readIdentity());
  t.deepEqual(counts, { opened: 6, closed: 6 });
  t.deepEqual([...checks], [true], 'no local copies are read or made');
  t.is(await staged(), 0);
});

test('after a failure no further blob is copied', async (t) => {
  const { database, source, commit, copy } = await setUp(t, 'sqlite');
  const digests: Digest[] = [];
  for (let index = 0; index < 30; index += 1) digests.push(await commit(`blob ${index}`));
  await checkPair(database, source);
  const [first] = digests.toSorted();
  let opened = 0;
  source.faults.before = (operation, digest) => {
    if (operation !== 'open') return;
    opened += 1;
    if (digest === first) throw new Error('reset');
  };
  await t.throwsAsync(copy(), { message: 'reset' });
  t.true(opened < 30, String(opened));
});

test('a source without its content is not copied further than 1,000 missing blobs', async (t) => {
  const { database, source, copy, lines } = await setUp(t, 'sqlite');
  await checkPair(database, source);
  const add = (from: number, to: number) => {
    const numbers = Array.from({ length: to - from }, (_, index) => from + index);
    const rows = numbers.map((number) => ({ digest: digestOf(`${number}`), size: 4, stored_at: 0, state: 'live' }));
    return database.transaction((tx) => tx.insertNew('blobs', rows));
  };
  await add(0, 1000);
  t.like(await copy(), { blobs: 1000, copied: 0, passes: 1, isSettled: true });
  t.is(lines.length, 1000);
  await add(1000, 1001);
  await t.throwsAsync(copy(), { message: 'more than 1000 blobs are missing or damaged in the source. Is it mounted?' });
});

test('a copy whose hold is lost ends, and says that it can be started again', async (t) => {
  const { database, source, target, parts, commit } = await setUp(t, 'sqlite');
  await commit('content');
  await checkPair(database, source);
  const hook: { onTransaction?: () => void } = {};
  const watched = changedDatabase(database, {
    transaction: async (work, options) => {
      const result = await database.transaction(work, options);
      hook.onTransaction?.();
      return result;
    },
  });
  target.faults.before = async (operation) => {
    if (operation !== 'put') return;
    await database.transaction((tx) => tx.run('DELETE FROM storage_holds'));
    await new Promise<void>((resolve) => (hook.onTransaction = resolve));
    await turn();
  };
  const copying = copyStorage({ ...parts, database: watched }, { rate: 2 ** 40, report: () => t.fail(), lease: 600 });
  await t.throwsAsync(copying, {
    name: 'DatabaseUnavailable',
    message: /during a copy has expired.*Start the copy again/,
  });
  t.is(await target.readIdentity(), undefined);
});

test('a later copy that is cut off leaves a target on which no server starts, until it is complete', async (t) => {
  const s3 = await startS3(t);
  const place = await emptyPlace(t, 'sqlite');
  const inBucket = { storage: s3Storage(s3) };
  const environment = { ...place.environment, ...s3Environment(s3), ENTREPOT_STORAGE_DRIVER: 'filesystem' };
  const copy = () => entrepot(environment, 'storage', 'copy', '--to', 's3', '--rate', '10GiB');
  const first = await serveOn(t, place);
  await new TestFeed(first).publish({ id: 'A', version: '1.0.0' });
  const done = await copy();
  t.like(done, { code: 0, stderr: '' });
  t.deepEqual(done.stdout.trimEnd().split('\n').slice(-4), [
    'next: 1. stop all servers',
    '      2. run "entrepot storage copy --to s3" again: it copies what was pushed since',
    '      3. set storage.driver: s3 (ENTREPOT_STORAGE_DRIVER=s3) for all instances, and start them',
    '      4. run "entrepot verify", then remove the content from the old place',
  ]);
  await new TestFeed(first).publish({ id: 'B', version: '1.0.0' });
  s3.fault = ({ method, key }) =>
    method === 'PUT' && key.startsWith('blobs/') ? { status: 403, code: 'AccessDenied' } : undefined;
  t.is((await copy()).code, 1);
  s3.fault = () => undefined;
  await first.close();
  await t.throwsAsync(serveOn(t, place, inBucket), { message: /a copy to this storage is not finished/ });

  t.like(await copy(), { code: 0, stderr: '' });
  const moved = new TestFeed(await serveOn(t, place, inBucket));
  t.is((await moved.fetch('/package/b/1.0.0/b.1.0.0.nupkg')).status, 200);
  s3.requests.length = 0;
  environment.ENTREPOT_STORAGE_DRIVER = 's3';
  t.regex((await copy()).stdout, /the servers use this storage already/);
  const written = s3.requests.filter(({ method, key }) => method === 'PUT' && key.endsWith('identity'));
  t.is(written.length, 1, 'the storage of servers gets no mark');
});
