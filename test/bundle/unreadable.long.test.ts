import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { failReads } from '../support/disk.ts';

// A medium with a segment that cannot be read.

for (const [where, part] of [
  ['its beginning', 0],
  ['the middle of its content', 0.5],
] as const)
  test.serial(
    `a segment that cannot be read at ${where} is named, nothing is shown, and a good copy goes on`,
    async (t) => {
      const gap = await startAirGap(t);
      const { feed, near, far, path, file } = gap;
      const key = await trustedKey(gap);
      for (const id of ['One', 'Two', 'Three']) {
        const nupkg = await makeNupkg({ id, version: '1.0.0', files: { 'lib/net8.0/a.bin': randomBytes(700_000) } });
        await feed.offer({ id, versions: [{ version: '1.0.0', nupkg }] });
      }
      const list = await file('list.txt', 'One@1.0.0\nTwo@1.0.0\nThree@1.0.0\n');
      await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key, '--segment', '1MiB');
      const segment = join(path('bundle'), '0002.tar');
      const { size } = await stat(segment);
      const { repair } = await failReads(t, (read, at) => read === segment && at >= size * part);
      const failed = await far.run('bundle', 'import', path('bundle'));
      t.is(failed.code, 1);
      t.regex(
        failed.stderr,
        /^entrepot: \S+\/0002\.tar cannot be read: EIO[^\n]*\. What was read before stays; run the same command again with a good copy\n$/,
      );
      t.regex(
        await far.fails('bundle', 'verify', path('bundle')),
        /^entrepot: \S+\/0002\.tar cannot be read: EIO[^\n]*\n$/,
      );
      const server = await far.serve();
      const status = async (id: string) => (await server.fetch(`/v3/package/${id}/1.0.0/${id}.1.0.0.nupkg`)).status;
      const all = () => Promise.all(['one', 'two', 'three'].map(status));
      t.deepEqual(await all(), [504, 504, 504]);
      repair();
      t.regex(await far.ok('bundle', 'import', path('bundle')), /imported sha256/);
      t.deepEqual(await all(), [200, 200, 200]);
    },
  );
