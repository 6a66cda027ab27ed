import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import { newKeyPair, readSigningKey } from '../../src/bundle/keys.ts';
import { BundleRuns } from '../../src/bundle/runs/bundle-runs.ts';
import type { MakeSettings } from '../../src/bundle/runs/run.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import type { StagedFile } from '../../src/storage/files/staged-file.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { until } from '../support/until.ts';

// What operators start by `/v1`, up to its start, without a server.

const identity = '99999999-9999-4999-8999-999999999999';

async function setUp(t: ExecutionContext, bundles: { key?: string } = {}) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    await tx.run('DELETE FROM storage_identity');
    await tx.insertNew('storage_identity', [{ id: 1, identity, state: 'paired' }]);
  });
  const folder = await folderUntilEnd(t);
  const told: unknown[] = [];
  const logged: unknown[] = [];
  const state = { of: 'receiving', segments: [] as object[], isRunning: false, fails: undefined as Error | undefined };
  let hold = Promise.resolve();
  const table = {
    rows: {},
    get: async (direction: string, id: string) => ({ direction, id, state: state.of }),
    beginImport: async () => 'begun',
    receive: async (id: string) => void told.push(`in use ${id}`),
    startImport: async (id: string) => {
      told.push(`start ${id}`);
      throw new DomainError('Invalid', 'not now');
    },
    cancel: async (direction: string, id: string) => {
      told.push(`cancel ${direction} ${id}`);
      return state.isRunning;
    },
    withFiles: async () => new Set(['kept']),
  };
  const files = {
    create: async (id: string) => void told.push(`create ${id}`),
    remove: async (id: string) => void told.push(`remove ${id}`),
    segments: async () => state.segments,
    open: async (id: string, number: number) => `${id} ${number}`,
    receiptFile: async () => {
      await hold;
      return join(folder, 'receipt');
    },
    removeOthers: async (find: () => Promise<Set<string>>) => void told.push(await find()),
    receive: async (id: string, number: number, _: Readable, options: object) => {
      told.push([id, number, options]);
      await hold;
      if (state.fails) throw state.fails;
      return 7;
    },
  };
  const runs = new BundleRuns({
    database,
    table,
    files,
    now: () => 5000,
    upstreams: [],
    accounts: {},
    protocols: [],
    trust: {},
    blobs: { stageHosted: async (...given: unknown[]) => given },
    read: async (given: unknown[]) => {
      told.push(given);
      return [];
    },
    config: { bundles: { segment: 100, ...bundles }, prefetch: {} },
    log: { error: (...given: unknown[]) => void logged.push(given) },
  } as unknown as ConstructorParameters<typeof BundleRuns>[0]);
  const held = () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    hold = promise;
    return resolve;
  };
  return { runs, database, folder, told, logged, state, held };
}

test('eight segments are received at a time', async (t) => {
  const { runs, told, state, held } = await setUp(t);
  const receive = (number: number) =>
    runs.receive('run', number, Readable.from([]), { announced: 3, consume: true, idle: 9 });
  t.is(await receive(1), 7);
  t.deepEqual(told.splice(0), [
    'in use run',
    ['run', 1, { announced: 3, consume: true, idle: 9, limit: 100 }],
    'in use run',
  ]);
  const release = held();
  const received = [1, 2, 3, 4, 5, 6, 7, 8].map(receive);
  await until(() => told.length === 16);
  const error = await t.throwsAsync(receive(9), {
    name: 'TooManyRequests',
    message: '8 segments are received now. Send this one later.',
  });
  t.like(error, { retryAfter: 10 });
  release();
  t.deepEqual(await Promise.all(received), [7, 7, 7, 7, 7, 7, 7, 7]);
  state.fails = new Error('cut off');
  for (let time = 0; time < 9; time += 1) await t.throwsAsync(receive(1), { message: 'cut off' });
  state.fails = undefined;
  t.is(await receive(9), 7);
});

test('one receipt is written at a time, with the key of the settings', async (t) => {
  const { publicKey, privateKey } = newKeyPair();
  const path = join(await folderUntilEnd(t), 'own.key');
  await writeFile(path, privateKey);
  const { runs, folder, held, database } = await setUp(t, { key: path });
  t.true(runs.signs);
  t.is(runs.segmentLimit, 100);
  const release = held();
  const writing = runs.writeReceipt();
  const error = await t.throwsAsync(runs.writeReceipt(), {
    name: 'TooManyRequests',
    message: 'A receipt is written now. Try again later.',
  });
  t.like(error, { retryAfter: 10 });
  release();
  const written = await writing;
  t.is(written.key, publicKey.id);
  t.is(readSigningKey(privateKey, path).id, publicKey.id);
  t.deepEqual([written.digests, written.size], [0, (await readFile(join(folder, 'receipt'))).length]);
  t.is((await runs.writeReceipt()).key, publicKey.id);
  t.is((await database.select("SELECT id FROM events WHERE type = 'bundle.receipt'")).length, 2);

  const other = await setUp(t, { key: `${path}.none` });
  await t.throwsAsync(other.runs.writeReceipt(), {
    name: 'Invalid',
    message: 'The file in the setting bundles.key cannot be read: ENOENT.',
  });
  t.is(other.logged.length, 1);
  await writeFile(path, publicKey.pem);
  await t.throwsAsync(runs.writeReceipt(), { message: 'the setting bundles.key: this is no private key in PEM' });
  const none = await setUp(t);
  t.false(none.runs.signs);
  t.is((await none.runs.writeReceipt()).key, null);
});

test('an import needs a segment, and a bundle is open when it is made', async (t) => {
  const { runs, told, state } = await setUp(t);
  t.like(await runs.beginImport(), { direction: 'imported', id: 'begun' });
  t.deepEqual(told.splice(0), ['create begun']);
  const options = { unsigned: false, older: false };
  for (const each of ['receiving', 'incomplete', 'failed']) {
    state.of = each;
    await t.throwsAsync(runs.runImport('run', options), {
      name: 'Invalid',
      message: 'No segment of this import is on this server. Send at least one.',
    });
  }
  t.deepEqual(told, []);
  for (const each of ['done', 'expired']) {
    state.of = each;
    await t.throwsAsync(runs.runImport('run', options), { message: 'not now' }, 'the table says why');
  }
  state.of = 'receiving';
  state.segments = [{}];
  await t.throwsAsync(runs.runImport('run', options), { message: 'not now' });
  t.deepEqual(told.splice(0), ['start run', 'start run', 'start run']);
  await t.throwsAsync(runs.open('run', 3), {
    name: 'NotFound',
    message: 'This bundle is not made: it is receiving.',
  });
  state.of = 'done';
  const opened: unknown = await runs.open('run', 3);
  t.is(opened, 'run 3');
  t.like(await runs.makingOf('run'), { direction: 'made', id: 'run' });
  t.like(await runs.importOf('run'), { direction: 'imported', id: 'run' });
  await runs.cancel('made', 'run');
  state.isRunning = true;
  await runs.cancel('imported', 'run');
  t.deepEqual(told.splice(0), ['cancel made run', 'remove run', 'cancel imported run']);
  await runs.clean();
  t.deepEqual(told, [new Set(['kept'])]);
  const staged: unknown = await runs.stage();
  t.deepEqual(staged, [0, []]);
});

test('a bundle of nothing is not made, and errors have no paths of the server', async (t) => {
  const { runs, told, folder } = await setUp(t);
  const settings = { kind: 'list', stored: false } as unknown as MakeSettings;
  await t.throwsAsync(runs.make(7, settings, [{ file: 'a.txt', text: 'x' }] as never, undefined), {
    name: 'Invalid',
    message: 'The files list no package and no image from an upstream.',
  });
  t.deepEqual(told, [[{ file: 'a.txt', text: 'x', kind: 'list' }]]);
  const path = join(folder, 'staged');
  await writeFile(path, 'no receipt');
  await t.throwsAsync(runs.readReceipt({ path } as StagedFile), {
    name: 'Invalid',
    message: 'the receipt: the statement that is signed cannot be read',
  });
});
