import test from 'ava';
import type { MirrorReader } from '../../../src/mirror/stored-only.ts';
import { plainPackages } from '../../../src/nuget/prefetch/plain.ts';
import type { FeedView } from '../../../src/nuget/upstream/feed-view.ts';
import type { PlainFile, PlainSource } from '../../../src/prefetch/plain.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { contentOf, readAll } from '../../../src/storage/files/content.ts';
import { makeNupkg } from '../../support/builders/nupkg.ts';
import { plainFolder } from '../../support/plain-files.ts';

const nupkg = (id: string, version: string) => makeNupkg({ id, version, payloadBytes: 0 });

/** The entries of a folder, with the texts of lists; and what was asked for. */
async function entriesOf(
  files: Record<string, Buffer | string | PlainFile>,
  {
    upstream,
    upstreams = ['one.test'],
    list,
  }: { upstream?: string; upstreams?: readonly string[]; list?: string } = {},
) {
  const asked: unknown[] = [];
  const mirror = {
    references: async (...of: unknown[]) => {
      asked.push(of);
      return ['0.5.0', '1.0.0'];
    },
    openStored: async ({ key }: { key: object }) => {
      asked.push(key);
      const bytes = list === undefined ? undefined : Buffer.from(list);
      const metadata = bytes && { digest: digestOf(bytes), size: bytes.length };
      return bytes && { content: contentOf(bytes), size: bytes.length, metadata, complete: Promise.resolve(metadata) };
    },
  } as unknown as MirrorReader;
  const all = upstreams.map((name) => ({ id: `id of ${name}`, name }));
  const view = { mirror: { origin: { all } } } as unknown as FeedView;
  const source: PlainSource = { ...plainFolder(files), path: 'packages' };
  const found: unknown[] = [];
  for await (const { key, type, digest, file } of plainPackages(mirror, view, source, { accountId: 1, upstream })) {
    const bytes = await readAll(await file.open(), 10_000);
    const kind =
      type === 'application/json' ? (JSON.parse(bytes.toString()) as unknown) : source.files.get(nameOf(bytes, files));
    found.push([
      key.upstream,
      key.kind,
      key.name,
      key.reference,
      type,
      digest,
      kind === file ? 'the file' : kind,
      bytes.length === file.size,
    ]);
  }
  return { found, asked };
}

function nameOf(bytes: Buffer, files: Record<string, unknown>): string {
  return Object.keys(files).find((name) => Buffer.isBuffer(files[name]) && files[name].equals(bytes))!;
}

test('the packages of a folder, and the list of the versions of each with those that are stored, in order', async (t) => {
  const files = {
    'a/x.nupkg': await nupkg('Lib', '2.0'),
    'b.NUPKG': await nupkg('LIB', '10.0.0-Beta'),
    'c.nupkg': await nupkg('Other', '1.0.0'),
    'd.symbols.nupkg': await nupkg('Lib', '3.0.0'),
    'e.snupkg': await nupkg('Lib', '3.0.0'),
    'f.nupkg.old': 'text',
  };
  const one = 'id of one.test';
  const file = (name: string, reference: string) => [
    one,
    'nupkg',
    name,
    reference,
    'application/octet-stream',
    undefined,
    'the file',
    true,
  ];
  const list = (name: string, ...versions: string[]) => [
    one,
    'flat',
    name,
    '',
    'application/json',
    undefined,
    { versions },
    true,
  ];
  const packages = [file('lib', '2.0.0'), file('lib', '10.0.0-beta'), file('other', '1.0.0')];
  const { found, asked } = await entriesOf(files);
  t.deepEqual(found, [
    ...packages,
    list('lib', '0.5.0', '1.0.0', '2.0.0', '10.0.0-beta'),
    list('other', '0.5.0', '1.0.0'),
  ]);
  t.deepEqual(
    asked,
    ['lib', 'other'].flatMap((name) => [
      [{ upstream: one, kind: 'nupkg', name }, 10_000],
      { upstream: one, kind: 'flat', name, reference: '' },
    ]),
  );
  const known = await entriesOf(files, { list: '{"versions":["0.1.0","2.0.0"]}' });
  t.deepEqual(known.found.slice(3), [
    list('lib', '0.1.0', '0.5.0', '1.0.0', '2.0.0', '10.0.0-beta'),
    list('other', '0.1.0', '0.5.0', '1.0.0', '2.0.0'),
  ]);
});

const message = (names: string) => `packages: name the upstream to which the packages belong with --upstream: ${names}`;

test('packages belong to the only upstream, or to the one that is named', async (t) => {
  const files = { 'a.nupkg': await nupkg('Lib', '1.0.0') };
  const upstreams = ['one.test', 'two.test'];
  const [entry] = (await entriesOf(files, { upstreams, upstream: 'two.test' })).found as [string[]];
  t.is(entry[0], 'id of two.test');
  for (const [options, names] of [
    [{ upstreams }, 'one.test, two.test'],
    [{ upstreams, upstream: 'none.test' }, 'one.test, two.test'],
    [{ upstreams: [] }, 'the settings have none'],
  ] as const)
    await t.throwsAsync(entriesOf(files, options), { name: 'Invalid', message: message(names) });
  t.deepEqual(await entriesOf({ 'a.txt': 'text' }, { upstreams: [] }), { found: [], asked: [] });
  await t.throwsAsync(entriesOf({ 'a.nupkg': 'no zip' }), {
    name: 'Invalid',
    message: /^packages: a\.nupkg is no package: ./,
  });
});
