import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { pack } from 'tar-stream';
import { isPlain, openPlain } from '../../src/bundle/plain.ts';
import type { PlainEntry, PlainSource } from '../../src/prefetch/plain.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { readAll } from '../../src/storage/files/content.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import { folderUntilEnd } from '../support/folder.ts';

// Folders and archives of other tools, as a bundle. plain.long.test.ts imports real ones.

/** Writes a tar archive with these empty members. */
async function writeTar(path: string, ...names: string[]): Promise<string> {
  const archive = pack();
  for (const name of names) archive.entry({ name }, '');
  archive.finalize();
  const pieces: Buffer[] = [];
  for await (const piece of archive as AsyncIterable<Buffer>) pieces.push(piece);
  await writeFile(path, Buffer.concat(pieces));
  return path;
}

test('paths are plain unless one of them is a bundle, a part of one, or is not there', async (t) => {
  const folder = await folderUntilEnd(t);
  const path = (...names: string[]) => join(folder, ...names);
  const folderOf = async (name: string, ...files: string[]) => {
    await mkdir(path(name));
    for (const file of files) await writeFile(path(name, file), '');
    return path(name);
  };
  const plain = [
    await folderOf('empty'),
    await folderOf('packages', 'a.nupkg', '0001.tar.gz', '10001.tar', '001.tar', 'x0001.tar', '0001-tar', 'abcd.tar'),
    await writeTar(path('images.tar'), 'manifest.json', 'of/bundle.json'),
    await writeTar(path('0002.tar'), 'part'),
  ];
  await writeFile(path('lib.nupkg'), '');
  plain.push(path('lib.nupkg'));
  t.true(await isPlain([]));
  for (const each of plain) t.true(await isPlain([each]), each);
  t.true(await isPlain(plain));
  await mkdir(path('first'));
  const others = [
    await folderOf('bundle', '0001.tar'),
    await folderOf('rest', 'note.txt', '0017.tar'),
    await writeTar(path('first', '0001.tar'), 'part'),
    await writeTar(path('whole.tar'), 'bundle.dsse.json', 'bundle.json'),
    path('none'),
    path('none.tar'),
  ];
  for (const each of others)
    for (const paths of [[each], [...plain, each], [each, ...plain]]) t.false(await isPlain(paths), paths.join(' '));
});

const upstreams = [
  { id: 'hub', name: 'hub.test', config: { kind: 'oci' } },
  { id: 'feed', name: 'feed.test', config: { kind: 'nuget' } },
  { id: 'second', name: 'feed.test', config: { kind: 'nuget' } },
] as unknown as Upstream[];

const options = { source: 'files', now: 77 };

/** A folder with these files. */
async function sourceOf(folder: string, files: Record<string, string>) {
  await mkdir(folder);
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  return folder;
}

const key = (upstream: string, kind: string, name: string, reference: string) => ({ upstream, kind, name, reference });

/** An entry in a file. Its source says its digest, or does not. */
type Found = [file: string, key: PlainEntry['key'], digest?: Digest];

/** Finds these entries in sources that have their files. */
const finding = (...entries: Found[]) =>
  async function* (source: PlainSource): AsyncGenerator<PlainEntry> {
    for (const [name, of, digest] of entries) {
      const file = source.files.get(name);
      if (file) yield { key: of, type: `type of ${name}`, digest, file };
    }
  };

test('the entries of plain content are those of a bundle without a signature, each with its content', async (t) => {
  const folder = await folderUntilEnd(t);
  const one = await sourceOf(join(folder, 'one'), { image: 'the image', package: 'the package' });
  const two = await sourceOf(join(folder, 'two'), { other: 'the other', same: 'the image' });
  const stated = digestOf('as the source says');
  const entriesIn = finding(
    ['image', key('hub', 'manifest', 'app', 'v1')],
    ['package', key('feed', 'nupkg', 'lib', '1.0.0'), stated],
    ['other', key('second', 'nupkg', 'lib', '1.0.0')],
    ['same', key('hub', 'manifest', 'app', 'v1')],
    ['same', key('hub', 'manifest', 'app', '')],
  );
  await using bundle = await openPlain([one, two], upstreams, entriesIn, options);
  const common = { etag: null, modified: null, attributes: {}, validated_at: 77, seen: [] };
  const [ofImage, ofOther] = [digestOf('the image'), digestOf('the other')];
  const manifest = {
    protocol: 'oci',
    upstream: 'hub.test',
    kind: 'manifest',
    name: 'app',
    size: 9,
    type: 'type of same',
  };
  const nupkg = { protocol: 'nuget', kind: 'nupkg', name: 'lib', reference: '1.0.0' };
  t.deepEqual(bundle.list.entries as object[], [
    { ...common, ...manifest, reference: 'v1', digest: ofImage },
    // Two upstreams have this name.
    { ...common, ...nupkg, upstream: 'feed', digest: stated, size: 11, type: 'type of package' },
    { ...common, ...nupkg, upstream: 'second', digest: ofOther, size: 9, type: 'type of other' },
    { ...common, ...manifest, reference: '', digest: ofImage },
  ]);
  const blobs = [
    { digest: ofImage, size: 9, segment: 1 },
    { digest: stated, size: 11, segment: 1 },
    { digest: ofOther, size: 9, segment: 1 },
  ];
  t.deepEqual(bundle.list.blobs as object[], blobs);
  t.like(bundle.list.header, { source: 'files', created_at: 77, entry_count: 4, blob_count: 3, bytes: 29 });
  t.true(bundle.isPlain);
  const contents = [];
  for (const blob of bundle.list.blobs) {
    const { content, place } = (await bundle.open(blob))!;
    contents.push([String(await readAll(content, 100)), place]);
  }
  t.deepEqual(contents, [
    ['the image', two],
    ['the package', one],
    ['the other', two],
  ]);
});

const image = (reference: string) => key('hub', 'manifest', 'app', reference);
const invalid = (message: string) => ({ name: 'Invalid', message });

async function open(paths: string[], ...entries: Found[]): Promise<void> {
  const bundle = await openPlain(paths, upstreams, finding(...entries), options);
  await bundle[Symbol.asyncDispose]();
}

test('other content under one name, and a path without any content, are refused', async (t) => {
  const folder = await folderUntilEnd(t);
  const [one, two] = [
    await sourceOf(join(folder, 'one'), { a: 'a' }),
    await sourceOf(join(folder, 'two'), { b: 'b', c: 'c' }),
  ];
  const twice = (name: string) =>
    `${two}: ${name} is there twice, with different content. Leave one out, or import them one after the other`;
  await t.throwsAsync(open([one, two], ['a', image('v1')], ['b', image('v1')]), invalid(twice('app v1')));
  await t.throwsAsync(open([two], ['c', image('')], ['b', image('')]), invalid(twice('app')));
  const nothing = `${two}: this is no bundle, no OCI image layout, no archive of "docker save" and no folder of packages`;
  await t.throwsAsync(open([two]), invalid(nothing));
  await t.throwsAsync(open([one, two], ['a', image('v1')]), invalid(nothing), 'each path needs some');
  await t.notThrowsAsync(open([one, two], ['a', image('v1')], ['b', image('v2')], ['b', image('v2')]));
});
