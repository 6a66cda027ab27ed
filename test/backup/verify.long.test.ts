import { join } from 'node:path';
import test from 'ava';
import type { Digest } from '../../src/runtime/digest.ts';
import { damages, filesOf } from '../support/damage.ts';
import { TestFeed } from '../support/feed.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, rowsOf } from '../support/inside.ts';
import { dialects } from '../support/databases.ts';
import { emptyPlace, manifestOf, serveOn } from './support.ts';

for (const dialect of dialects) {
  test(`${dialect}: verify finds missing and damaged content, and a backup goes on without it`, async (t) => {
    const place = await emptyPlace(t, dialect);
    const server = await serveOn(t, place);
    await new TestFeed(server).publish(...['A', 'B', 'C', 'D'].map((id) => ({ id, version: '1.0.0' })));
    t.is((await entrepot(place.environment, 'verify')).code, 0);
    const rows = await rowsOf<{ digest: Digest; size: number }>(
      server,
      'SELECT digest, size FROM blobs ORDER BY digest',
    );
    const [missing, flipped, short, unnamed] = rows.map(({ digest }) => digest);
    const setState = (state: string) =>
      databaseOf(server).transaction((tx) => tx.run('UPDATE blobs SET state = ? WHERE digest = ?', [state, unnamed!]));
    await damages.longer(filesOf(server, short!).stored);
    await setState('pending');
    const before = await entrepot(place.environment, 'verify');
    const sizes = `damaged ${short}: it has ${rows[2]!.size + 1} bytes, and not ${rows[2]!.size}; needed by`;
    t.true(before.stdout.includes(sizes), before.stdout);
    t.true(before.stdout.includes(`missing ${unnamed}: package_blobs names it`), before.stdout);
    await setState('live');
    await damages.missing(filesOf(server, missing!).stored);
    await damages.flipped(filesOf(server, flipped!).stored);
    await damages.truncated(filesOf(server, short!).stored);
    await databaseOf(server).transaction((tx) => tx.run('DELETE FROM blobs WHERE digest = ?', [unnamed!]));
    const { code, stdout, stderr } = await entrepot(place.environment, 'verify');
    t.is(code, 1);
    t.regex(stderr, /4 blobs are missing or damaged; see above/);
    const lines = stdout.split('\n');
    const line = (digest: string | undefined) => lines.find((each) => each.includes(digest!)) ?? '';
    t.regex(line(missing), /^missing .* bytes; needed by package \w 1\.0\.0/);
    t.regex(line(flipped), /^damaged .*another digest; needed by package/);
    t.regex(line(short), /^damaged .*it has \d+ bytes, and not \d+; needed by/);
    t.regex(line(unnamed), /^missing .*package_blobs names it/);
    t.is((await rowsOf(server, 'SELECT digest FROM blobs')).length, rows.length - 1, 'it changes nothing');

    for (const name of ['backup.tar', 'folder']) {
      const target = join(place.folder, name);
      const made = await entrepot(place.environment, 'backup', target);
      t.is(made.code, 1);
      t.regex(made.stderr, /The backup is complete, but 3 blobs are missing or damaged/);
      t.is((await manifestOf(target)).missing.count, 3);
      const verified = await entrepot({}, 'verify', target);
      t.is(verified.code, 1);
      t.regex(verified.stdout, /already when the backup was made/);
      const other = await emptyPlace(t, dialect);
      const restored = await entrepot(other.environment, 'restore', target);
      t.deepEqual([restored.code, restored.stderr], [0, '']);
      t.is(restored.stdout.match(/already when the backup was made: sha256/g)?.length, 3);
      t.regex((await entrepot(other.environment, 'verify')).stderr, /4 blobs/);
    }
  });
}

for (const dialect of dialects) {
  test(`${dialect}: a blob that is still being stored or deleted is not in a backup`, async (t) => {
    const place = await emptyPlace(t, dialect);
    const server = await serveOn(t, place);
    await new TestFeed(server).publish({ id: 'Whole', version: '1.0.0' });
    const select = 'SELECT digest, size, state FROM blobs ORDER BY digest';
    const whole = await rowsOf<{ size: number }>(server, select);
    const bytes = whole.reduce((sum, { size }) => sum + size, 0);
    await databaseOf(server).transaction((tx) =>
      tx.insertNew(
        'blobs',
        ['pending', 'deleting'].map((state, index) => ({
          digest: `sha256:${String(index).repeat(64)}`,
          size: 10,
          stored_at: Date.now(),
          state,
          generation: 1,
        })),
      ),
    );
    const folder = join(place.folder, 'folder');
    for (const target of [join(place.folder, 'backup.tar'), folder]) {
      const made = await entrepot(place.environment, 'backup', target);
      t.deepEqual([made.code, made.stderr], [0, '']);
      const { blobs, missing } = await manifestOf(target);
      t.deepEqual([blobs, missing.count], [{ count: whole.length, bytes }, 0]);
      t.is((await entrepot({}, 'verify', target)).code, 0);
    }
    const other = await emptyPlace(t, dialect);
    t.is((await entrepot(other.environment, 'restore', folder)).code, 0);
    const restored = await serveOn(t, other);
    t.deepEqual(await rowsOf(restored, select), whole);
  });
}

test('without mirrored content, the rows and the blobs of mirror entries are left out', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const server = await serveOn(t, place);
  await new TestFeed(server).publish({ id: 'Hosted', version: '1.0.0' });
  const { blobs } = server.installation.core;
  const arrival = await blobs.stageBytes(Buffer.from('mirrored'));
  const entry = {
    id: 'e'.repeat(64),
    upstream: 'up',
    kind: 'blob',
    name: 'n',
    reference: 'r',
    digest: arrival.digest,
    size_bytes: 8,
    content_type: 'x/y',
    attributes: '{}',
    stored_at: 1,
    validated_at: 1,
    used_at: 1,
  };
  await blobs.commit([arrival], async (tx) => void (await tx.insertNew('mirror_entries', [entry])));
  const [all, less] = [join(place.folder, 'all.tar'), join(place.folder, 'less.tar')];
  t.is((await entrepot(place.environment, 'backup', all)).code, 0);
  t.is((await entrepot(place.environment, 'backup', less, '--without-mirrored')).code, 0);
  const [whole, part] = [await manifestOf(all), await manifestOf(less)];
  const entries = (manifest: typeof whole) => manifest.tables.find(({ name }) => name === 'mirror_entries')!.rows;
  t.deepEqual([entries(whole), entries(part), whole.blobs.count - part.blobs.count], [1, 0, 1]);
  const other = await emptyPlace(t, 'sqlite');
  t.regex((await entrepot(other.environment, 'restore', less)).stdout, /no mirrored content/);
  t.is((await entrepot(other.environment, 'verify')).code, 0);
});
