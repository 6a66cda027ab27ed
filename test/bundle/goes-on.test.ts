import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { writeDurably } from '../../src/bundle/write.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { folderUntilEnd } from '../support/folder.ts';

// What an attempt to make a bundle left in its folder, and the same command again.

const partName = 'bundle.json.part';

/** The list in a segment. */
function planIn(segment: Buffer): Buffer {
  const start = segment.indexOf('{"format":"entrepot-bundle"');
  return segment.subarray(start, segment.indexOf('\n]\n}\n', start) + '\n]\n}\n'.length);
}

/** A bundle with an image. `begin` leaves of it what an attempt leaves that ended before its only segment was complete. */
async function made(t: ExecutionContext, ...flags: string[]) {
  const { registry, near, file, path } = await startAirGap(t);
  registry.image('library/redis', '7');
  const list = await file('list.txt', 'redis:7');
  const words = ['bundle', 'create', list, '--to', path('bundle')];
  await near.ok(...words, ...flags);
  const first = await readFile(join(path('bundle'), '0001.tar'));
  const plan = planIn(first);
  return {
    near,
    words,
    first,
    folder: path('bundle'),
    begin: async () => {
      await rm(path('bundle'), { recursive: true });
      await mkdir(path('bundle'));
      await writeFile(join(path('bundle'), partName), plan);
    },
  };
}

test('a bundle goes on after its list could not be written', async (t) => {
  const { near, words, first, folder, begin } = await made(t);
  await begin();
  await writeFile(join(folder, `${partName}.new`), '{"form');
  await near.ok(...words);
  t.deepEqual(await readdir(folder), ['0001.tar']);
  t.true(first.equals(await readFile(join(folder, '0001.tar'))), 'the list that was begun');

  await begin();
  await rm(join(folder, partName));
  await writeFile(join(folder, `${partName}.new`), '{"form');
  await near.ok(...words);
  t.deepEqual(await readdir(folder), ['0001.tar']);

  await rm(join(folder, '0001.tar'));
  await writeFile(join(folder, 'other.json.new'), '');
  t.regex(await near.fails(...words), /is not empty: it has other\.json\.new/);
});

test('a bundle that expires goes on, with the end that it had, until then', async (t) => {
  const { near, words, first, folder, begin } = await made(t, '--expires', '30d');
  await begin();
  await near.ok(...words, '--expires', '30d');
  t.true(first.equals(await readFile(join(folder, '0001.tar'))));
  await begin();
  for (const other of [[], ['--expires', '29d']])
    t.regex(await near.fails(...words, ...other), /a part of another bundle/, other.join(' '));

  const short = await made(t, '--expires', '1ms');
  await short.begin();
  t.regex(
    await short.near.fails(...short.words, '--expires', '1ms'),
    /: the bundle that was begun there was valid until \d{4}-\S+Z\. Delete the part, or name a new folder\n$/,
  );
  t.deepEqual(await readdir(short.folder), [partName]);
});

test('a bundle that goes on with another key has one signature in all segments', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const images = Array.from({ length: 6 }, (_, at) => registry.image(`team/app${at}`, '1'));
  const list = await file('list.txt', images.map((_, at) => `docker.io/team/app${at}:1`).join('\n'));
  const folder = path('bundle');
  const words = ['bundle', 'create', list, '--to', folder, '--segment', '1MiB'];
  await near.ok('bundle', 'keygen', '--to', path('other.key'));
  await near.ok(...words, '--key', path('other.key'));
  const segments = await readdir(folder);
  t.true(segments.length > 1);
  await writeFile(join(folder, partName), planIn(await readFile(join(folder, '0001.tar'))));
  await rm(join(folder, segments.at(-1)!));
  await near.ok(...words, '--key', key);
  t.deepEqual(await readdir(folder), segments);
  for (const each of segments) await far.run('bundle', 'import', join(folder, each));
  const server = await far.serve();
  for (const at of images.keys())
    t.is((await server.fetch(`/v2/team/app${at}/manifests/1`)).status, 200, `image ${at}`);
  await server.close();
});

test('a file that could not be written leaves nothing', async (t) => {
  const folder = await folderUntilEnd(t);
  await mkdir(join(folder, 'taken'));
  await t.throwsAsync(writeDurably(join(folder, 'taken'), [Buffer.from('x')]), { code: 'EISDIR' });
  t.deepEqual(await readdir(folder), ['taken']);
});
