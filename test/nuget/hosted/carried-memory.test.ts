import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { maxHostedMemory, type HostedEntry } from '../../../src/bundle/hosted-contents.ts';
import { carriedPackages } from '../../../src/nuget/hosted/carried.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { allOf } from '../../support/all-of.ts';
import { makeNupkg, makePdb } from '../../support/builders/nupkg.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

const stage = (bytes: Buffer) => Promise.resolve(digestOf(bytes));

test('packages and symbols that would take too much memory together are refused', async (t) => {
  const hosted = await HostedPackages.open(t);
  const contents = carriedPackages(hosted.context, () => Promise.resolve(undefined));
  const label = 'x'.repeat(110);
  const dependencies = Array.from({ length: 1000 }, (_, index) => ({
    id: `D${index}`.padEnd(100, 'd'),
    version: `[1.0.0-${label}, 2.0.0-${label}]`,
  }));
  const large = await makeNupkg({ id: 'Large', dependencies });
  await hosted.push(large);
  const files = Object.fromEntries(
    Array.from({ length: 1500 }, (_, at) => [`lib/a/long/enough/path/${at}.pdb`, makePdb()]),
  );
  const symbols = await hosted.pushSymbols({ id: 'Large', files });
  const [row] = await hosted.rows<{ bytes: number }>(
    'SELECT metadata_bytes AS bytes FROM package_versions WHERE metadata LIKE \'{"id":"Large"%\'',
  );
  const count = Math.floor(maxHostedMemory / row!.bytes);
  t.true(row!.bytes < 1500 * 300, 'so that the symbols are too much');
  const [nupkg, snupkg] = (await allOf(contents.entries(1, new NameSet(['large'])))) as [HostedEntry, HostedEntry];
  t.deepEqual([nupkg.digest, snupkg.digest], [digestOf(large), digestOf(symbols)]);
  await t.throwsAsync(contents.prepare(2, [...Array.from({ length: count }, () => nupkg), snupkg], stage), {
    name: 'Invalid',
    message: 'the bundle has too many hosted packages. Carry them in several bundles',
  });
});
