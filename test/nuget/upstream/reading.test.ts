import { setImmediate } from 'node:timers/promises';
import test from 'ava';
import { flatIndex, readBytes, readEntry, readOnce } from '../../../src/nuget/upstream/documents.ts';
import { read } from '../../../src/nuget/upstream/reading/readers.ts';
import type { EntryMetadata } from '../../../src/mirror/store/entries.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { readRegistration } from '../../../src/nuget/upstream/reading/registration.ts';
import { within } from '../../support/until.ts';

const flatOf = (versions: number, name: string) =>
  Buffer.from(JSON.stringify({ versions: Array.from({ length: versions }, (_, each) => `1.0.${each}-${name}`) }));

test('long documents of one upstream do not stand before those of others', async (t) => {
  const order: string[] = [];
  const readOf = async (id: string, name: string) => {
    const sender = { of: 'upstream', id } as const;
    t.is((await read('flat', flatOf(10_000, name), {}, sender)).length, 10_000);
    order.push(name);
  };
  const many = Array.from({ length: 8 }, (_, each) => readOf('hostile', `hostile-${each}`));
  await Promise.all([...many, readOf('good', 'good')]);
  t.deepEqual(order.slice(0, 3), ['hostile-0', 'good', 'hostile-1']);
});

test('of each upstream, one long document is in memory, and one that the storage does not send holds no other upstream', async (t) => {
  const go = Promise.withResolvers<void>();
  let loaded = 0;
  const readOf = (name: string, upstream: string, wait?: Promise<void>) => {
    const made = flatOf(10_000, name);
    const bytes = async () => {
      loaded += 1;
      await wait;
      return made;
    };
    return readBytes(digestOf(made), { size: made.length, bytes }, flatIndex, upstream);
  };
  const held = ['x', 'y', 'z'].map((name) => readOf(name, 'slow', go.promise));
  t.is((await within(readOf('other', 'other'))).length, 10_000);
  t.is(loaded, 2);
  go.resolve();
  for (const versions of await Promise.all(held)) t.is(versions.length, 10_000);
  t.is(loaded, 4);
});

test('a storage that fails while a document is read is no fault of the upstream, for all who wait for it', async (t) => {
  const made = flatOf(1, 'unread');
  const [asked, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const read = async (): Promise<number> => {
    asked.resolve();
    await go.promise;
    throw new DomainError('StorageUnavailable', 'The storage is away.');
  };
  const readOne = () => {
    const metadata = { digest: digestOf(made), size: made.length } as EntryMetadata;
    const content = { size: made.length, read, close: () => undefined };
    const entry = {
      outcome: 'hit',
      type: '',
      size: made.length,
      content,
      metadata,
      complete: Promise.resolve(metadata),
    } as const;
    return readEntry(entry, 2 ** 20, flatIndex, 'up');
  };
  const first = readOne();
  await asked.promise;
  const all = Promise.allSettled([first, readOne(), readOne()]);
  for (let turn = 0; turn < 5; turn += 1) await setImmediate();
  go.resolve();
  for (const result of await all) t.like(result, { status: 'rejected', reason: { name: 'StorageUnavailable' } });
});

test('documents of sources of imports do not stand before those of upstreams', async (t) => {
  const order: string[] = [];
  const readOf = async (host: string) => {
    await readOnce(flatOf(60_000, 'x'), flatIndex, `https://${host}.test/`);
    order.push(host);
  };
  const many = Array.from({ length: 12 }, (_, each) => readOf(`hostile-${each}`));
  // Now all of them wait.
  await setImmediate();
  await read('flat', flatOf(10_000, 'x'), {}, { of: 'upstream', id: 'good' });
  t.true(order.length < many.length, `${order.length} of ${many.length} were read before`);
  await Promise.all(many);
});

const pageOf = (versions: readonly string[]) =>
  Buffer.from(JSON.stringify({ items: versions.map((version) => ({ catalogEntry: { id: 'Lib', version } })) }));

test('versions with many labels in any order take about as long as in their order', (t) => {
  const count = 6000;
  const labels = '1.'.repeat(118);
  const versions = Array.from({ length: count }, (_, each) => `1.0.0-${labels}${String(each).padStart(5, 'x')}`).sort();
  const shuffled = versions.map((_, each) => versions[(each * 3709) % count]!);
  const options = { index: false, key: 'lib', semVer2: true, base: 'https://x.test/', flat: 'https://x.test/flat/' };
  /** Milliseconds of the processor, the least of a few. */
  const time = (bytes: Buffer) => {
    let least = Infinity;
    for (let run = 0; run < 4; run += 1) {
      const before = process.threadCpuUsage();
      const lines = readRegistration(bytes, options).split('\n');
      const { user, system } = process.threadCpuUsage(before);
      least = Math.min(least, (user + system) / 1000);
      t.deepEqual(
        lines.map((line) => line.split(' ')[1]),
        versions,
      );
    }
    return least;
  };
  const [inOrder, inAnyOrder] = [time(pageOf(versions)), time(pageOf(shuffled))];
  t.log(`${inOrder} ms and ${inAnyOrder} ms`);
  t.true(inAnyOrder < 2 * inOrder, `${inOrder} ms and ${inAnyOrder} ms`);
});
