import { readdir, readlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import test from 'ava';
import { syncPath } from '../../../src/storage/files/durable.ts';
import { openFileContent, openWholeFile } from '../../../src/storage/files/file-content.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { until } from '../../support/until.ts';

// In a process of its own: it measures the process.

/** Descriptors of this process for a file. */
async function opened(path: string): Promise<number> {
  const links = await Promise.all(
    (await readdir('/proc/self/fd')).map((each) => readlink(`/proc/self/fd/${each}`).catch(() => '')),
  );
  return links.filter((each) => each === path).length;
}

test('closed content leaves no descriptor, also if reads are in progress', async (t) => {
  const path = join(await folderUntilEnd(t), 'content');
  await writeFile(path, Buffer.alloc(100_000, 'x'));
  const idle = await openFileContent(path, 100_000);
  const busy = await openFileContent(path, undefined);
  const whole = (await openWholeFile(path, 100_000))!;
  t.is(await openWholeFile(path, 5), undefined);
  t.is(await opened(path), 3);
  idle.close();
  idle.close();
  const reads = [0, 50_000].map((position) => busy.read(Buffer.alloc(50_000), position));
  busy.close();
  t.deepEqual(await Promise.all(reads), [50_000, 50_000], 'reads end with their bytes');
  t.is(await whole.read(Buffer.alloc(10), 99_995), 5, 'no byte after the size');
  whole.close();
  await syncPath(path);
  const folder = await openFileContent(dirname(path), undefined);
  await t.throwsAsync(folder.read(Buffer.alloc(10), 0), { code: 'EISDIR' });
  folder.close();
  await until(async () => (await opened(path)) === 0);
  t.is(await opened(path), 0);
});
