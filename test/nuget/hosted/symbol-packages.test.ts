import { buffer } from 'node:stream/consumers';
import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { openSymbols, publishSymbols, readSymbols } from '../../../src/nuget/hosted/symbol-packages.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { makePdb, makeSnupkg } from '../../support/builders/nupkg.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

const guid = (first: number) => Buffer.from(Array.from({ length: 16 }, (_, index) => (index === 0 ? first : index)));
/** The key by which a debugger asks for the PDB with this GUID. */
const keyOf = (first: number) => `030201${first.toString(16).padStart(2, '0')}0504070608090a0b0c0d0e0fffffffff`;

async function found(hosted: HostedPackages, file: string, key: string, account = 1, only?: NameSet) {
  const pdb = await openSymbols(hosted.context, account, file, key, only);
  if (!pdb) return undefined;
  const bytes = await buffer(pdb.stream);
  return { size: pdb.size, digest: digestOf(bytes) };
}

const shown = (pdb: Buffer) => ({ size: pdb.length, digest: digestOf(pdb) });

test('symbols are found by file name and signature in any case, in their account only', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push({ id: 'Lib', version: '1.0.0' });
  await hosted.push({ id: 'Lib', version: '1.0.0' }, { account: 2 });
  const [a, b] = [makePdb(guid(1), 100), makePdb(guid(2), 200)];
  await hosted.pushSymbols({ id: 'LIB', version: '1.0', files: { 'lib/Some/A.pdb': a, 'lib/Some/B.PDB': b } });
  for (const [file, key] of [
    ['A.pdb', keyOf(1)],
    ['a.PDB', keyOf(1).toUpperCase()],
  ] as const) {
    t.deepEqual(await found(hosted, file, key), shown(a));
    t.is(await found(hosted, file, key, 2), undefined);
    t.deepEqual(await found(hosted, file, key, 1, new NameSet(['other', 'l*'])), shown(a));
    t.is(await found(hosted, file, key, 1, new NameSet(['other'])), undefined);
  }
  t.deepEqual(await found(hosted, 'b.pdb', keyOf(2)), shown(b));
  for (const [file, key] of [
    ['a.pdb', keyOf(2)],
    ['b.pdb', keyOf(1)],
    ['c.pdb', keyOf(1)],
  ] as const)
    t.is(await found(hosted, file, key), undefined);
});

test('of symbols that several versions have, those of the newest row are sent', async (t) => {
  const hosted = await HostedPackages.open(t);
  const [one, two] = [makePdb(guid(1), 4), makePdb(guid(1), 8)];
  for (const [version, pdb] of [
    ['2.0.0', one],
    ['1.0.0', two],
  ] as const) {
    await hosted.push({ id: 'Lib', version });
    await hosted.pushSymbols({ id: 'Lib', version, files: { 'a.pdb': pdb } });
  }
  t.deepEqual(await found(hosted, 'a.pdb', keyOf(1)), shown(two));
});

test('symbols that are pushed again take the place of the earlier ones, with their bytes', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push({ id: 'Lib', version: '1.0.0' });
  await hosted.push({ id: 'Lib', version: '2.0.0' });
  const bytesOf = async () =>
    (await hosted.rows<{ metadata_bytes: number }>('SELECT metadata_bytes FROM packages'))[0]!.metadata_bytes;
  const before = await bytesOf();
  const many = Object.fromEntries(Array.from({ length: 250 }, (_, at) => [`lib/Äx${at}.pdb`, makePdb(guid(at % 256))]));
  const first = await hosted.pushSymbols({ id: 'Lib', version: '1.0.0', files: many });
  t.is((await hosted.rows('SELECT * FROM package_symbols')).length, 250);
  const sum = Object.keys(many).reduce(
    (all, path) => all + 100 + Buffer.byteLength(path) + Buffer.byteLength(path.slice(4)),
    0,
  );
  t.is((await bytesOf()) - before, sum);
  const pdb = makePdb(guid(7));
  const second = await hosted.pushSymbols({ id: 'Lib', version: '1.0.0', files: { 'x/A.pdb': pdb } });
  const [version] = await hosted.rows<{ id: number }>('SELECT id FROM package_versions ORDER BY id');
  t.deepEqual(await hosted.rows('SELECT * FROM package_symbols'), [
    { account_id: 1, file_name: 'a.pdb', signature: keyOf(7), version_row: version!.id, path: 'x/A.pdb' },
  ]);
  t.is((await bytesOf()) - before, 100 + 5 + 7);
  const digests = await hosted.rows<{ digest: string }>(
    `SELECT digest FROM package_blobs WHERE version_row = ${version!.id}`,
  );
  t.is(digests.length, 3);
  t.false(digests.some(({ digest }) => digest === digestOf(first)));
  t.true(digests.some(({ digest }) => digest === digestOf(second)));
  t.deepEqual(await hosted.rows('SELECT version, snupkg_digest FROM package_versions ORDER BY id'), [
    { version: '1.0.0', snupkg_digest: digestOf(second) },
    { version: '2.0.0', snupkg_digest: null },
  ]);
});

const missing = (name: string) => ({
  name: 'NotFound',
  message: `${name} does not exist in this feed. Push the package before its symbols.`,
});

test('refused symbols say why, and leave no file', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push({ id: 'Lib', version: '1.0.0' });
  const refusal = new Error('not permitted');
  const publish = async (options: Parameters<typeof makeSnupkg>[0], permit = () => {}, account = 1) =>
    publishSymbols(hosted.context, account, await hosted.stage(await makeSnupkg(options)), permit);
  await t.throwsAsync(publish({ id: 'Lib', version: '1.0.1' }), missing('Lib 1.0.1'));
  await t.throwsAsync(publish({ id: 'Other', version: '1.0' }), missing('Other 1.0.0'));
  await t.throwsAsync(publish({ id: 'Lib' }, undefined, 2), missing('Lib 1.0.0'));
  await t.throwsAsync(
    publish({ id: 'Lib' }, () => {
      throw refusal;
    }),
    { is: refusal },
  );
  t.deepEqual(await hosted.store.blobs.stagedIds(), []);
  t.deepEqual(await publish({ id: 'LIB', version: '1.0' }), { id: 'LIB', version: '1.0.0' });
  t.deepEqual(await hosted.store.blobs.stagedIds(), []);
});

const read = async (path: string) => {
  const bytes = await makeSnupkg({ version: '1.00-RC', files: { [path]: makePdb(guid(1)) } });
  return readSymbols(() => Promise.resolve(contentOf(bytes)));
};

const long = (length: number) =>
  'folder/'
    .repeat(200)
    .slice(-(length - 5))
    .concat('a.pdb');

test('the names of symbols have at most 255 characters in lower case, and a path can have 1,024', async (t) => {
  for (const path of [`${'n'.repeat(251)}.pdb`, long(1024), `${'İ'.repeat(125)}n.pdb`])
    t.deepEqual(await read(path), {
      id: 'Made.Package',
      version: '1.0.0-RC',
      pdbs: [{ path, fileName: path.split('/').at(-1)!, key: keyOf(1) }],
    });
  for (const path of [`${'n'.repeat(252)}.pdb`, `${'İ'.repeat(126)}.pdb`])
    await t.throwsAsync(read(path), {
      name: 'PackageInvalid',
      message: `The path '${path.slice(0, 100)}…' is too long. Use a shorter path.`,
    });
});
