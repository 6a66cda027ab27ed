import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import type { BundleBlob, BundleEntry } from '../../src/bundle/format.ts';
import type { OpenBundle } from '../../src/bundle/read.ts';
import { checkSegments } from '../../src/bundle/runs/check-run.ts';
import type { BundleRunProgress } from '../../src/bundle/runs/run.ts';
import { BundleRunFiles } from '../../src/bundle/runs/run-files.ts';
import type { TrustedKey } from '../../src/bundle/trust.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { contentOf, readAll } from '../../src/storage/files/content.ts';
import { headerOf } from '../support/bundles.ts';
import { openStore } from '../support/store.ts';

// The files of bundles that operators make and import by `/v1`, and a check of them, without a server.

const notHere = {
  name: 'NotFound',
  message: 'This file is not here. The files of a bundle are kept for a day, on the server that made or received them.',
};

const kept = () => Promise.resolve(new Set(['kept']));

async function setUp(t: ExecutionContext) {
  const { blobs, data, paths } = await openStore(t, 'sqlite');
  const folder = join(data, 'bundles');
  const files = new BundleRunFiles(folder, blobs);
  const receive = (number: number, text: string, { limit = 100, announced = text.length } = {}, id = 'run') =>
    files.receive(id, number, Readable.from([Buffer.from(text)]), { limit, announced, consume: true });
  const staged = () => readdir(paths.staging);
  return { files, folder, receive, staged };
}

test('segments are received into the folder of their run, and read again', async (t) => {
  const { files, folder, receive, staged } = await setUp(t);
  t.is(files.folderOf('run'), join(folder, 'run'));
  t.deepEqual(await files.segments('run'), []);
  await t.throwsAsync(receive(1, 'one'), notHere);
  await files.create('run');
  await files.create('run');
  t.is((await stat(join(folder, 'run'))).mode & 0o077, 0);
  t.is(await receive(12, 'twelve'), 6);
  t.is(await receive(2, 'second', { announced: 0 }), 6);
  t.is(await receive(2, 'another second'), 14);
  for (const name of ['0003.tar.part', '00004.tar', 'bundle.json']) await writeFile(join(folder, 'run', name), 'x');
  t.deepEqual(await files.segments('run'), [
    { number: 2, size: 14 },
    { number: 12, size: 6 },
  ]);
  t.is(await readFile(join(folder, 'run', '0002.tar'), 'utf8'), 'another second');
  const content = await files.open('run', 2);
  t.is(content.size, 14);
  t.is(String(await readAll(content, 100)), 'another second');
  for (const [id, number] of [
    ['run', 3],
    ['other', 2],
  ] as const)
    await t.throwsAsync(files.open(id, number), notHere);
  t.deepEqual(await staged(), []);
});

test('segments that are too large, empty, too many or cut off leave nothing', async (t) => {
  const { files, folder, receive, staged } = await setUp(t);
  await files.create('run');
  const tooLarge = { name: 'TooLarge', message: 'A segment here has at most 5 bytes (bundles.segment).' };
  t.is(await receive(1, '12345', { limit: 5 }), 5);
  await t.throwsAsync(receive(2, '123456', { limit: 5 }), tooLarge);
  await t.throwsAsync(receive(2, '123456', { limit: 5, announced: 0 }), tooLarge);
  await t.throwsAsync(receive(2, ''), { name: 'Invalid', message: 'The segment is empty.' });
  const cut = Readable.from(
    (async function* () {
      yield Buffer.from('12');
      throw new Error('it was cut off');
    })(),
  );
  await t.throwsAsync(files.receive('run', 2, cut, { limit: 5, announced: 0, consume: true }));
  t.deepEqual(await files.segments('run'), [{ number: 1, size: 5 }]);
  t.deepEqual(await staged(), []);
  const gone = Readable.from(
    (async function* () {
      yield Buffer.from('12');
      await rm(join(folder, 'run'), { recursive: true });
    })(),
  );
  await t.throwsAsync(files.receive('run', 2, gone, { limit: 5, announced: 0, consume: true }), notHere);
  t.deepEqual(await staged(), []);

  await files.create('run');
  for (let number = 1; number <= 500; number += 1)
    await writeFile(join(folder, 'run', `${String(number).padStart(4, '0')}.tar`), 'x');
  await t.throwsAsync(receive(501, 'more'), {
    name: 'Invalid',
    message: 'An import here has at most 500 segments. Use the command.',
  });
  t.is(await receive(500, 'the last one again'), 18);
});

test('the files of other runs are removed, and the receipt stays', async (t) => {
  const { files, folder } = await setUp(t);
  await files.removeOthers(kept);
  await t.throwsAsync(files.openReceipt(), {
    name: 'NotFound',
    message: 'No receipt was written on this server. Write one first.',
  });
  t.is(await files.receipt(), undefined);
  t.is(await files.receiptFile(), join(folder, 'receipt'));
  t.is((await stat(folder)).mode & 0o077, 0);
  await writeFile(await files.receiptFile(), 'a receipt');
  t.deepEqual(await files.receipt(), { size: 9, writtenAt: (await stat(join(folder, 'receipt'))).mtimeMs });
  t.is(String(await readAll(await files.openReceipt(), 100)), 'a receipt');
  for (const id of ['kept', 'old', 'older']) await files.create(id);
  await writeFile(join(folder, 'old', '0001.tar'), 'x');
  await files.removeOthers(async () => {
    // A run that begins meanwhile has a row before it has a folder.
    await mkdir(join(folder, 'begun'));
    return kept();
  });
  t.deepEqual((await readdir(folder)).toSorted(), ['begun', 'kept', 'receipt']);
  await files.remove('kept');
  await files.remove('none');
  t.deepEqual((await readdir(folder)).toSorted(), ['begun', 'receipt']);
});

test('a check compares the bytes of all segments that are here, and says what an import would', async (t) => {
  const { database } = await openStore(t, 'sqlite');
  await database.transaction(async (tx) => {
    await tx.run('DELETE FROM storage_identity');
    await tx.insertNew('storage_identity', [{ id: 1, identity: headerOf({} as never).source, state: 'paired' }]);
  });
  const texts = ['one', 'two', 'three'];
  const blobs: BundleBlob[] = [
    ...texts.map((text, at) => ({ digest: digestOf(text), size: text.length, segment: at + 1 })),
    { digest: digestOf('known'), size: 5, base: true },
  ];
  const bytes = new Map<Digest, string>(texts.map((text) => [digestOf(text), text]));
  const entries = [
    { kind: 'nupkg', size: 3 },
    { kind: 'blob', size: 5 },
  ] as BundleEntry[];
  const counts = { segments: 3, blob_count: 4, entry_count: 2, bytes: 11 };
  let key: TrustedKey | undefined = { id: 'k' } as TrustedKey;
  const trust = {
    signerOfBundle: async (_: unknown, unsigned: boolean) => (unsigned ? undefined : key),
    announced: async (text: string) => ({ statement: text, id: 'new' }),
  };
  const parts = { database, trust, now: () => 5000 } as unknown as Parameters<typeof checkSegments>[0];
  const check = async (more: object = {}, unsigned = false) => {
    const asked: unknown[] = [];
    const opened = {
      id: digestOf('id'),
      envelope: 'envelope',
      list: { header: { ...headerOf(counts), ...more }, blobs, entries },
      open: async ({ digest }: BundleBlob) =>
        bytes.has(digest) ? { content: contentOf(Buffer.from(bytes.get(digest)!)), place: 'a.tar' } : undefined,
      lacking: async (given: unknown) => {
        asked.push(given);
        return [2];
      },
    } as unknown as OpenBundle;
    const progress: BundleRunProgress = {};
    const { signal } = new AbortController();
    const state = await checkSegments(parts, opened, unsigned, progress, signal);
    t.deepEqual(asked, [blobs]);
    return { state, ...progress };
  };
  const none = { count: 0, bytes: 0 };
  const result = {
    id: digestOf('id'),
    counts: { packages: { count: 1, bytes: 3 }, manifests: none, layers: { count: 1, bytes: 5 }, documents: none },
    segments: 3,
    bytes: 11,
    key: 'k' as string | null,
    policy: false,
    knownBad: undefined,
    newKey: undefined,
  };
  t.deepEqual((await check()) as object, { state: 'checked', bytes: 11, of: 11, lacking: [2], result });
  const knownBad = [{ name: 'one', records: 1 }];
  const more = await check({ policy: '{}', known_bad: knownBad, new_key: 'a statement' }, true);
  const newKey = { statement: 'a statement', id: 'new' };
  t.deepEqual(more.result as object, { ...result, key: null, policy: true, knownBad, newKey });
  await t.throwsAsync(check({ expires_at: 5000 }), { name: 'Invalid', message: /^the bundle was valid until / });
  bytes.set(digestOf('one'), 'One');
  bytes.delete(digestOf('two'));
  bytes.set(digestOf('three'), 'Three');
  await t.throwsAsync(check(), {
    name: 'Invalid',
    message: `2 items are damaged, such as ${digestOf('one')} in a.tar. Send a good copy`,
  });
  key = undefined;
  trust.signerOfBundle = () => Promise.reject(new Error('a stranger'));
  await t.throwsAsync(check(), { message: 'a stranger' });
});
