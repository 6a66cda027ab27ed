import { mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { startAirGap, type Site } from '../support/bundles.ts';
import { TestFeed } from '../support/feed.ts';
import { linesOf, osv } from '../support/known-bad.ts';
import { comparePrinted, Mask } from '../support/printed.ts';
import { ociManifest } from '../support/registry.ts';

// What the commands of bundles print on the way from the keys to the next bundle is in `printed.txt`. After an intended change,
// write the file again, and read what differs:
//   ENTREPOT_TEST_SHOWN=write npm test -- test/bundle/printed.test.ts

const printedFile = join(import.meta.dirname, 'printed.txt');

test('the commands of bundles say what they made, checked, brought in and trust', async (t) => {
  t.timeout(240_000);
  const gap = await startAirGap(t);
  const { feed, registry, near, far, path, file } = gap;
  const mask = new Mask(gap.folder);
  const printed: string[] = [];
  const command = (site: Site) => async (words: string) => {
    const paths = words.split(' ').map((each) => (each.startsWith('@') ? path(each.slice(1)) : each));
    const { code, stdout, stderr } = await site.run('bundle', ...paths);
    const text = mask
      .of(`$ ${site === near ? 'near' : 'far'}: bundle ${words}\n${stdout}${stderr}= ${code}\n`)
      // The segment of each small content depends on its digest.
      .replace(/checked .*(?=\nentrepot: Segments are missing)/, 'checked …')
      .replace(/stored \S+ KiB;/, 'stored …;');
    printed.push(text);
  };
  const [there, here] = [command(near), command(far)];

  for (const name of ['near', 'far', 'offline']) await there(`keygen --to @${name}.key`);
  await there('keygen --to @next.key --signed-by @near.key --role bundles --for 90d');
  await there('keygen --to @near.key');
  await there('trust add @far.key.pub --role receipts');
  await here('trust add @near.key.pub');
  await here('trust add @offline.key.pub --role revoke --name offline --for 365d');
  await here('trust list');

  await feed.offer({
    id: 'Lib',
    versions: [{ version: '1.0.0', nupkg: await makeNupkg({ id: 'Lib', version: '1.0.0' }) }],
  });
  const layers = [registry.blob('team/big', Buffer.alloc(1_500_000, 'layer'))];
  const config = registry.blob('team/big', '{}');
  registry.manifest('team/big', { schemaVersion: 2, mediaType: ociManifest, config, layers }, '1');
  await file('list.txt', 'Lib@1.0.0\nteam/big:1\n');
  await file('more.txt', 'Lib@1.0.0\nredis:8\n');
  const source = await near.serve();
  await new TestFeed(source).publish({ id: 'Contoso.Lib', version: '1.0.0' });
  await source.close();
  await there('create @list.txt --to @bundle --dry-run');
  await there('create @more.txt --to @bundle');
  const records = await file('osv.jsonl', linesOf([osv('MAL-1', 'Other'), osv('MAL-2', 'Another')]));
  const lists = [{ name: 'osv', file: records, mode: 'audit' }];
  await near.ok('policy', 'apply', await file('policy.json', JSON.stringify({ knownBad: { lists } })));
  await near.ok('jobs', 'run', 'known-bad');
  const all = '--policy --known-bad --new-key @next.key.signed --expires 30d --hosted default/contoso.*';
  await there(`create @list.txt --to @bundle --key @near.key --segment 1MiB ${all}`);
  await there('create @more.txt --to @unsigned --allow-missing');

  for (const flags of ['', ' --list', ' --policy', ' --known-bad osv', ' --known-bad other', ' --new-key'])
    await here(`inspect @bundle${flags}`);
  await here('inspect @unsigned');
  for (const flags of ['--policy', '--known-bad osv', '--new-key']) await here(`inspect @unsigned ${flags}`);
  const segments = (await readdir(path('bundle'))).toSorted();
  await mkdir(path('later'));
  await rename(join(path('bundle'), segments.at(-1)!), join(path('later'), segments.at(-1)!));
  await here('inspect @bundle');
  await here('verify @bundle');
  await here('import @bundle');
  await here('import @later');
  await here('import @bundle @later');
  await here('import @unsigned');
  await here('verify @unsigned');
  await here('verify @unsigned --unsigned --sbom @sbom.json');
  await here('verify @bundle @later --for @list.txt');
  await here('verify @bundle @later --for @more.txt');

  await here('receipt --to @receipt --key @far.key --hosted default');
  await here('receipt --to @receipt.unsigned');
  await here('receipt --to @list.txt');
  await there('create @list.txt --to @next --key @near.key --against @receipt --hosted default/contoso.*');
  await there('create @list.txt --to @next.unsigned --against @receipt.unsigned');
  await here('inspect @next');
  await here('verify @next');
  await here('import @next');

  await here('trust add @next.key.signed');
  await there('revoke @near.key.pub --key @offline.key --to @near.revoked');
  await here('trust revoke @near.revoked');
  await here('trust revoke @near.revoked');
  await here('trust list');
  await here('trust remove next.key');
  await here('trust add @none.pub');

  await comparePrinted(t, printedFile, printed);
});
