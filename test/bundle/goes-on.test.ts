import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { writeDurably } from '../../src/bundle/write.ts';
import { startAirGap } from '../support/bundles.ts';
import { folderUntilEnd } from '../support/folder.ts';

// What an attempt to make a bundle left in its folder, and the same command again.

const partName = 'bundle.json.part';

/** A bundle with an image. `begin` leaves of it what an attempt leaves that ended before its only segment was complete. */
async function made(t: ExecutionContext, ...flags: string[]) {
  const { registry, near, file, path } = await startAirGap(t);
  registry.image('library/redis', '7');
  const list = await file('list.txt', 'redis:7');
  const words = ['bundle', 'create', list, '--to', path('bundle')];
  await near.ok(...words, ...flags);
  const first = await readFile(join(path('bundle'), '0001.tar'));
  const start = first.indexOf('{"format":"entrepot-bundle"');
  const plan = first.subarray(start, first.indexOf('\n]\n}\n', start) + '\n]\n}\n'.length);
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

test('a file that could not be written leaves nothing', async (t) => {
  const folder = await folderUntilEnd(t);
  await mkdir(join(folder, 'taken'));
  await t.throwsAsync(writeDurably(join(folder, 'taken'), [Buffer.from('x')]), { code: 'EISDIR' });
  t.deepEqual(await readdir(folder), ['taken']);
});
