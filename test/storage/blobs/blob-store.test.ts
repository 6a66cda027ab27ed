import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { dialects } from '../../support/databases.ts';
import { openStore, storedSize, type Store } from '../../support/store.ts';

async function setUp(t: ExecutionContext, dialect: Dialect): Promise<Store> {
  const opened = await openStore(t, dialect);
  await opened.database.transaction((tx) =>
    tx.run('CREATE TABLE refs (name VARCHAR(50) NOT NULL, digest VARCHAR(135) NOT NULL, parts BIGINT NOT NULL)'),
  );
  return opened;
}

/** Stores `text` under its digest, referred to by `name`. */
async function store({ blobs }: Store, name: string, text: string): Promise<Digest> {
  const staged = await blobs.stage();
  await staged.append(Readable.from([Buffer.from(text)]));
  const digest = await staged.digest();
  await blobs.commit([{ staged, digest }], (tx) => tx.insert('refs', { name, digest, parts: 1 }));
  return digest;
}

/** Every file under the blobs folder. */
async function files({ paths }: Store): Promise<string[]> {
  const entries = await readdir(paths.blobs, { recursive: true, withFileTypes: true });
  return entries.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name));
}

function digestsOf(list: readonly { digest: Digest }[]): Digest[] {
  return list.map(({ digest }) => digest).sort();
}

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, store: Store) => Promise<void>) =>
    test(`${dialect}: ${title}`, async (t) => run(t, await setUp(t, dialect)));

  suite('committed content can be read completely and in part', async (t, each) => {
    const digest = await store(each, 'a', 'hello world');
    t.is(await storedSize(each, digest), 11);
    t.is((await readAll(await each.blobs.open(digest, 11), 100)).toString(), 'hello world');
    const content = await each.blobs.open(digest, 11);
    const target = Buffer.alloc(5);
    t.is(await content.read(target, 6), 5);
    t.is(target.toString(), 'world');
    t.is(await content.read(target, 9), 2, 'to the end');
    t.is(await content.read(target, 11), 0, 'at the end');
    const reading = content.read(target, 0);
    content.close();
    content.close();
    t.is(await reading, 5, 'a read that started before close still succeeds');
    t.deepEqual(await readdir(each.paths.staging), [], 'no staged file is left');
    t.is((await stat(each.driver.pathOf(digest))).mode & 0o077, 0, 'only the user of the server may read the file');
  });

  suite('a failed commit leaves nothing', async (t, each) => {
    const kept = await store(each, 'kept', 'kept');
    const arrivals = [
      await each.blobs.stageBytes(Buffer.from('new')),
      await each.blobs.stageBytes(Buffer.from('kept')),
    ];
    const failed = each.blobs.commit(arrivals, async (tx) => {
      await tx.insert('refs', { name: 'new', digest: arrivals[0]!.digest, parts: 2 });
      throw new Error('on purpose');
    });
    await t.throwsAsync(failed, { message: 'on purpose' });
    t.is(await storedSize(each, arrivals[0]!.digest), undefined);
    t.deepEqual(await each.database.select('SELECT name FROM refs'), [{ name: 'kept' }]);
    t.deepEqual(await readdir(each.paths.staging), []);
    t.deepEqual(await files(each), [each.driver.pathOf(kept)]);
    t.is((await readAll(await each.blobs.open(kept, 4), 4)).toString(), 'kept');
  });

  suite('the same content, stored concurrently and again, is stored once', async (t, each) => {
    const names = ['a', 'b', 'c', 'd', 'e', 'f'];
    const digests = await Promise.all(names.map((name) => store(each, name, 'shared')));
    t.is(new Set(digests).size, 1);
    t.is(await store(each, 'later', 'shared'), digests[0]!);
    t.is((await files(each)).length, 1);
    t.is((await each.database.select('SELECT 1 FROM blobs')).length, 1);
    t.is((await each.database.select('SELECT 1 FROM refs')).length, 7);
    const twice = [await each.blobs.stageBytes(Buffer.from('x')), await each.blobs.stageBytes(Buffer.from('x'))];
    await each.blobs.commit(twice, () => Promise.resolve());
    t.is((await files(each)).length, 2);
    t.deepEqual([...each.blobs.added], [], 'no account hosts them');
    for (const [owner, texts] of [
      [3, ['one', 'shared']],
      [3, ['four']],
      [4, ['x']],
    ] as const) {
      const arrivals = await Promise.all(texts.map((text) => each.blobs.stageBytes(Buffer.from(text))));
      await each.blobs.commit(arrivals, () => Promise.resolve(), owner);
    }
    t.deepEqual(
      [...each.blobs.added],
      [
        [3, 13],
        [4, 1],
      ],
    );
  });

  suite('missing content and a digest with another size are errors', async (t, each) => {
    const digest = digestOf('never stored');
    t.is(await storedSize(each, digest), undefined);
    await t.throwsAsync(each.blobs.open(digest, 1), { instanceOf: DomainError, name: 'BlobUnknown' });
    const stored = await store(each, 'a', 'four');
    const staged = await each.blobs.stage();
    await staged.write(Buffer.from('fifth'));
    await t.throwsAsync(
      each.blobs.commit([{ staged, digest: stored }], () => Promise.resolve()),
      { message: /4 bytes/ },
    );
    t.is((await readAll(await each.blobs.open(stored, 4), 4)).toString(), 'four');
  });

  suite('abandoned staged files expire, claimed and recent ones do not', async (t, each) => {
    const make = async (age: number, text = 'x') => {
      const staged = await each.blobs.stage();
      await staged.write(Buffer.from(text));
      await staged.close();
      const at = (Date.now() - age) / 1000;
      await utimes(staged.path, at, at);
      return staged.id;
    };
    const [old, claimed, recent] = [await make(10_000), await make(10_000), await make(0)];
    const older = await make(20_000, 'four');
    t.is(await each.blobs.stagedBytes(), 7);
    t.deepEqual((await each.blobs.stagedIds()).sort(), [old, older, claimed, recent].sort());
    t.deepEqual([await each.blobs.stagedSize(older), await each.blobs.stagedSize('missing')], [4, undefined]);
    const removed = await each.blobs.expireStaged(Date.now() - 5000, (id) => Promise.resolve(id === claimed));
    t.deepEqual(removed, { files: 2, bytes: 5 });
    t.deepEqual((await readdir(each.paths.staging)).sort(), [claimed, recent].sort());
    t.false((await readdir(each.paths.staging)).includes(old));
  });

  suite('after a process is killed during a commit, nothing is visible in part', async (t, each) => {
    const acknowledged: string[] = [];
    for (const target of [1, 6, 25]) {
      const script = join(import.meta.dirname, '../../support/processes/commit-forever.ts');
      const child = spawn(process.execPath, [script, each.url, each.data], { stdio: ['ignore', 'pipe', 'inherit'] });
      const closed = once(child, 'close');
      let output = '';
      child.stdout.on('data', (chunk: Buffer) => {
        output += chunk.toString();
        if (output.split('\n').length > target) child.kill('SIGKILL');
      });
      await closed;
      acknowledged.push(...output.split('\n').slice(0, -1));
    }
    const refs = await each.database.select<{ name: string; digest: Digest; parts: number }>('SELECT * FROM refs');
    const names = new Set(refs.map(({ name }) => name));
    t.deepEqual(
      acknowledged.filter((name) => !names.has(name)),
      [],
      'every acknowledged commit exists',
    );
    t.true(acknowledged.length >= 32);
    for (const name of names) {
      const parts = refs.filter((ref) => ref.name === name);
      t.is(parts.length, parts[0]!.parts, 'a commit is complete or absent');
    }
    const rows = await each.database.select<{ digest: Digest; size: number }>(
      "SELECT digest, size FROM blobs WHERE state = 'live'",
    );
    t.deepEqual(digestsOf(rows), digestsOf(refs), 'no live blob without a reference, no reference without a live blob');
    for (const { digest, size } of rows) {
      const bytes = await readFile(each.driver.pathOf(digest));
      t.is(bytes.length, size);
      t.is(digestOf(bytes), digest);
    }
    const known = new Set(
      (await each.database.select<{ digest: Digest }>('SELECT digest FROM blobs')).map((row) => row.digest),
    );
    t.true(known.size - rows.length <= 3 * 12, 'other rows belong only to interrupted commits');
    for await (const listed of each.driver.list()) for (const { digest } of listed) t.true(known.has(digest), digest);
    await each.blobs.expireStaged(Date.now() + 1000, () => Promise.resolve(false));
    t.deepEqual(await readdir(each.paths.staging), []);
    const again = await store(each, 'again', 'after the crash');
    t.is(await storedSize(each, again), 15);
  });
}
