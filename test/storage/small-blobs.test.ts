import { writeFile } from 'node:fs/promises';
import test from 'ava';
import { readAll } from '../../src/storage/content.ts';
import { openStore } from '../support/store.ts';

test('a small blob is read from the disk once, and damaged bytes are not cached', async (t) => {
  const { blobs, driver } = await openStore(t, 'sqlite');
  const bytes = Buffer.from('stored bytes');
  const arrival = await blobs.stageBytes(bytes);
  await blobs.commit([arrival], () => Promise.resolve());
  const path = driver.pathOf(arrival.digest);
  const read = async () => readAll(await blobs.open(arrival.digest, bytes.length), bytes.length);

  await writeFile(path, 'damaged byte');
  t.notDeepEqual(await read(), bytes);
  await writeFile(path, bytes);
  t.deepEqual(await read(), bytes);
  await writeFile(path, 'damaged byte');
  t.deepEqual(await read(), bytes, 'from memory');
});
