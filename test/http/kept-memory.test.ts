import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { collectGarbage } from '../support/garbage.ts';
import { bytesOfBuffers } from '../support/measures.ts';
import { raw } from '../support/raw.ts';
import { startTestServer } from '../support/server.ts';
import { eventually } from '../support/until.ts';

// In a process of its own: it measures the process.

// What a server keeps in memory is counted with the memory that it really takes.

const mebibyte = 2 ** 20;

function bytesInUse(): number {
  collectGarbage();
  return bytesOfBuffers();
}

test.serial('a short document keeps no more memory than it has bytes', async (t) => {
  const server = await startTestServer(t, { log: { level: 'fatal' } });
  await new TestFeed(server).publish({ id: 'Short' });
  for (const form of ['registration-gz-semver2', 'package']) {
    const before = bytesInUse();
    // Each host has its own document, because documents have absolute addresses.
    for (let index = 0; index < 500; index += 1) {
      const host = `host-${form}-${index}.test`;
      const { status } = await raw(server, `/v3/${form}/short/index.json`, { headers: { host } });
      t.is(status, 200);
      // Other work of a server also takes parts of the memory that small buffers share.
      for (let part = 0; part < 3; part += 1) Buffer.allocUnsafe(4000);
    }
    // The buffers of a connection are free some time after its end.
    const kept = await eventually(
      () => Promise.resolve((bytesInUse() - before) / mebibyte),
      (each) => each < 1.5,
    );
    t.log(`500 documents of ${form} keep ${kept} MiB`);
  }
});
