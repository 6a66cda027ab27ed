import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { encodeManifest } from '../../src/backup/format.ts';
import { Share } from '../../src/backup/share.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { damages } from '../support/damage.ts';
import { dialects } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { entrepot } from '../support/in-process.ts';
import { emptyPlace, manifestOf, serveOn } from './support.ts';
import type { Dialect } from '../../src/database/database.ts';

/** A backup in a folder, with the paths of its blobs in the order of their digests. */
async function setUp(t: ExecutionContext, dialect: Dialect = 'sqlite') {
  const place = await emptyPlace(t, dialect);
  const server = await serveOn(t, place);
  await new TestFeed(server).publish({ id: 'One', version: '1.0.0' }, { id: 'Two', version: '1.0.0' });
  const folder = join(place.folder, 'backup');
  const back = (...words: string[]) => entrepot(place.environment, 'backup', folder, '--incremental', ...words);
  t.is((await back()).code, 0);
  const files = await readdir(join(folder, 'blobs/sha256'), { recursive: true, withFileTypes: true });
  const paths = files.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name));
  return { place, folder, back, paths: paths.toSorted() };
}

const digestIn = (path: string) => `sha256:${path.split('/').at(-1)}` as Digest;

test('a blob that was damaged in a folder of backups is copied again by the next run', async (t) => {
  const { folder, back, paths } = await setUp(t);
  t.is(paths.length, 4);
  await damages.flipped(paths[1]!);
  t.is((await entrepot({}, 'verify', folder)).code, 1);
  const { code, stdout } = await back();
  t.is(code, 0);
  t.regex(stdout, / 4 blobs, .*copied 1,/);
  t.regex(stdout, /compared 4 blobs of the earlier backup with their digests/);
  t.true(stdout.includes(`damaged in the earlier backup: ${digestIn(paths[1]!)}, which was copied again\n`));
  t.deepEqual(await entrepot({}, 'verify', folder).then(({ code: after, stderr }) => [after, stderr]), [0, '']);
  t.regex((await back()).stdout, /copied 0,/);
});

test('a blob that is gone from a folder of backups is copied again, also if its share is not checked', async (t) => {
  const { folder, back, paths } = await setUp(t);
  await damages.missing(paths[1]!);
  // No digest comes after this one, so no blob is checked.
  await writeFile(join(folder, 'manifest'), encodeManifest({ ...(await manifestOf(folder)), checked_to: 'sha256:g' }));
  const { stdout } = await back();
  t.regex(stdout, / 4 blobs, .*copied 1,/);
  t.notRegex(stdout, /compared/);
  t.is((await entrepot({}, 'verify', folder)).code, 0);
});

test('a blob that is damaged in the backup and in the storage is reported', async (t) => {
  const { place, folder, back, paths } = await setUp(t);
  await damages.flipped(paths[0]!);
  await damages.flipped(paths[0]!.replace(folder, place.data));
  const { code, stdout, stderr } = await back();
  t.is(code, 1);
  t.regex(stdout, new RegExp(`damaged in the earlier backup: ${digestIn(paths[0]!)}\n`));
  t.regex(stderr, /1 blobs are missing or damaged in the storage itself/);
  t.is((await manifestOf(folder)).missing.count, 1);
  // No digest comes after this one, so the next run compares no blob.
  await writeFile(join(folder, 'manifest'), encodeManifest({ ...(await manifestOf(folder)), checked_to: 'sha256:g' }));
  const next = await back();
  t.is(next.code, 1, 'it is still damaged in both');
  t.regex(next.stderr, /1 blobs are missing or damaged in the storage itself/);
  t.is((await manifestOf(folder)).missing.count, 1);
});

test('each run checks the share that was not checked for the longest time, and --check checks all', async (t) => {
  const blobs = ['a', 'b', 'c', 'd', 'e'].map((text) => ({ digest: digestOf(text), size: 100_000 }));
  const named = blobs.toSorted((one, other) => (one.digest < other.digest ? -1 : 1));
  let from = '';
  const taken: number[][] = [];
  for (let run = 0; run < 4; run += 1) {
    const share = new Share(from, 200_000);
    taken.push(named.flatMap((blob, index) => (share.takes(blob) ? [index] : [])));
    from = share.next;
  }
  t.deepEqual(taken, [[0, 1], [2, 3], [4], [0, 1]]);

  const { folder, back, paths } = await setUp(t);
  await damages.flipped(paths[0]!);
  const manifest = await manifestOf(folder);
  await writeFile(join(folder, 'manifest'), encodeManifest({ ...manifest, checked_to: digestIn(paths[2]!) }));
  t.regex((await back()).stdout, /compared 1 blobs/);
  t.is((await manifestOf(folder)).checked_to, '');
  await writeFile(join(folder, 'manifest'), encodeManifest({ ...(await manifestOf(folder)), checked_to: 'sha256:f' }));
  const all = await back('--check');
  t.regex(all.stdout, /compared 4 blobs.*\ndamaged in the earlier backup: .* copied again/);
  const refused = await entrepot({ ENTREPOT_DATA: folder }, 'backup', join(folder, 'x.tar'), '--check');
  t.regex(refused.stderr, /--check needs --incremental/);
});

for (const dialect of dialects) {
  test(`${dialect}: a damaged backup is restored without what is damaged, if that is asked for`, async (t) => {
    const { folder, paths } = await setUp(t, dialect);
    await damages.flipped(paths[0]!);
    await damages.missing(paths[1]!);
    await damages.truncated(paths[2]!);
    const other = await emptyPlace(t, dialect);
    const refused = await entrepot(other.environment, 'restore', folder);
    t.is(refused.code, 1);
    t.regex(refused.stderr, /the backup is damaged: of its blobs, 3 are missing or wrong.*--without-damaged/);
    const restored = await entrepot(other.environment, 'restore', folder, '--without-damaged');
    t.deepEqual([restored.code, restored.stderr], [0, '']);
    const line = (path: string) => restored.stdout.split('\n').find((each) => each.includes(digestIn(path)))!;
    t.regex(line(paths[0]!), /^damaged in the backup: .*; needed by package (?:One|Two) 1\.0\.0$/i);
    t.regex(line(paths[1]!), /^missing in the backup: .*; needed by package/);
    t.regex(line(paths[2]!), /^missing in the backup: .*; needed by package/);
    t.regex(restored.stdout, /left out 3 blobs/);
    t.regex((await entrepot(other.environment, 'verify')).stderr, /3 blobs are missing or damaged/);
    const server = await serveOn(t, other);
    const found = ['one', 'two'].map((id) => new TestFeed(server).fetch(`/package/${id}/1.0.0/${id}.1.0.0.nupkg`));
    for (const { status } of await Promise.all(found)) t.true([200, 404, 500, 503].includes(status));
    await new TestFeed(server).publish({ id: 'Three', version: '1.0.0' });
  });
}
