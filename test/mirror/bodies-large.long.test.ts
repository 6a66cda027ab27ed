import test from 'ava';
import { randomBytes } from 'node:crypto';
import { readAll } from '../../src/storage/files/content.ts';
import type { StagedFile } from '../../src/storage/files/staged-file.ts';
import { openMirror, readEntry } from '../support/mirror.ts';
import { TestDisk } from '../support/test-disk.ts';
import { until } from '../support/until.ts';
import { endless, serve, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';

// In a process of its own: it measures the process.

test.serial('an endless body uses little memory', async (t) => {
  const server = await startFaultyUpstream(t);
  const { mirror, resource } = await openMirror(t, server.url);
  const sent = { bytes: 0 };
  server.on('/thing', endless(sent));
  const before = process.memoryUsage().rss;
  let most = 0;
  const timer = setInterval(() => (most = Math.max(most, process.memoryUsage().rss)), 10);
  // No reader: the fetch continues.
  const entry = await mirror.open(resource('/thing', { limit: 512 * 2 ** 20 }));
  entry!.content.close();
  await t.throwsAsync(entry!.complete);
  clearInterval(timer);
  t.true(sent.bytes > 500 * 2 ** 20);
  t.true(most - before < 250 * 2 ** 20, `grew by ${Math.round((most - before) / 2 ** 20)} MiB`);
});

test.serial('content that is verified as a whole continues in memory when the disk becomes full', async (t) => {
  const server = await startFaultyUpstream(t);
  const body = randomBytes(30 * 2 ** 20);
  const disk = new TestDisk();
  const { mirror, resource, staged, blobCount } = await openMirror(t, server.url, { disk });
  let verified = 0;
  const isBody = async (file: StagedFile) => {
    const content = await file.open();
    const read = await readAll(content, content.size);
    content.close();
    if (!read.equals(body) || !(await file.bytes()).equals(body)) throw new Error('another body');
    verified += 1;
    return {};
  };
  const verifiable = resource('/thing', { verify: isBody, idle: 5000 });
  // More in total than the memory takes, so that it has to be freed.
  for (const left of [0, 10 * 2 ** 20 + 77, 0, 12_345]) {
    for (const length of [true, false]) {
      server.on('/thing', serve(body, { length }));
      disk.left = left;
      const entry = await mirror.open(verifiable);
      const other = await mirror.open(verifiable);
      const [whole, ranged] = await Promise.all([readEntry(entry), readEntry(other, 10_000_000, 29_000_000)]);
      t.true(whole.equals(body));
      t.true(ranged.equals(body.subarray(10_000_000, 29_000_000)));
      await until(async () => (await staged()).length === 0);
      t.is(await blobCount(), 0);
    }
  }
  t.is(verified, 8);
  const wrong = randomBytes(2 ** 20);
  server.on('/thing', serve(wrong));
  disk.left = 0;
  await t.throwsAsync(readEntry(await mirror.open(verifiable)), { message: /another body/ });

  server.on('/thing', serve(randomBytes(65 * 2 ** 20), { length: false }));
  await t.throwsAsync(readEntry(await mirror.open(verifiable)), { name: 'StorageFull' }, 'more than 64 MiB');
  await until(async () => (await staged()).length === 0);
  server.on('/thing', serve(body));
  disk.left = Number.POSITIVE_INFINITY;
  t.true((await readEntry(await mirror.open(verifiable))).equals(body));
  await until(async () => (await blobCount()) === 1);
});
