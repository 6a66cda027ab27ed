import { unlink, writeFile } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import { readAll } from '../../../src/storage/files/content.ts';
import { deletionTimes } from '../../../src/storage/blobs/states.ts';
import { openStore } from '../../support/store.ts';

const bytes = Buffer.from('stored bytes');

async function storeOne(t: ExecutionContext) {
  const clock = { now: 0 };
  const { blobs, driver } = await openStore(t, 'sqlite', Date.now, { ...deletionTimes, watch: () => clock.now });
  const arrival = await blobs.stageBytes(bytes);
  await blobs.commit([arrival], () => Promise.resolve());
  const read = async () => readAll(await blobs.open(arrival.digest, bytes.length), bytes.length);
  return { clock, path: driver.pathOf(arrival.digest), read };
}

test('a small blob is read from the disk once, and damaged bytes are neither served nor cached', async (t) => {
  const { path, read } = await storeOne(t);
  await writeFile(path, 'damaged byte');
  await t.throwsAsync(read(), { name: 'ContentDamaged' });
  await writeFile(path, bytes);
  t.deepEqual(await read(), bytes);
  await unlink(path);
  t.deepEqual(await read(), bytes, 'from memory');
});

test('memory does not hide a damage for longer than 5 seconds', async (t) => {
  const damages: [string, (path: string) => Promise<void>][] = [
    ['missing', (path) => unlink(path)],
    ['of another size', (path) => writeFile(path, 'short')],
    ['of the same size', (path) => writeFile(path, 'damaged byte')],
  ];
  for (const [name, damage] of damages) {
    const { clock, path, read } = await storeOne(t);
    t.deepEqual(await read(), bytes);
    clock.now += 5000;
    t.deepEqual(await read(), bytes, 'still there');
    await damage(path);
    clock.now += 4999;
    t.deepEqual(await read(), bytes, 'from memory');
    clock.now += 1;
    await t.throwsAsync(read(), { name: 'ContentDamaged' }, name);
  }
});

test('a small blob keeps no memory of other buffers', async (t) => {
  const { blobs } = await openStore(t, 'sqlite');
  for (const length of [1, 300, 5000]) {
    const arrival = await blobs.stageBytes(Buffer.alloc(length, 1));
    await blobs.commit([arrival], () => Promise.resolve());
    const content = await blobs.open(arrival.digest, length);
    t.is(content.bytes!.buffer.byteLength, length);
  }
});
