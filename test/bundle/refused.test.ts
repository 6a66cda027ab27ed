import { copyFile, mkdir, readFile, rename, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { decodeList, refuseUnreadable, type BundleList } from '../../src/bundle/format.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { databaseOf, rowsOf } from '../support/inside.ts';

// What is refused, with one line, and leaves nothing to see.

async function bundled(t: ExecutionContext, ...options: string[]) {
  const gap = await startAirGap(t);
  const key = await trustedKey(gap);
  gap.registry.image('library/redis', '7');
  await gap.feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const list = await gap.file('list.txt', 'redis:7\nLib@1.0.0\n');
  const make = (name: string, ...more: string[]) =>
    gap.near.ok('bundle', 'create', list, '--to', gap.path(name), '--key', key, ...options, ...more);
  await make('bundle');
  /** Nothing of the bundle is served. */
  const showsNothing = async () => {
    const server = await gap.far.serve();
    t.is((await server.fetch('/v2/redis/manifests/7')).status, 502);
    t.is((await server.fetch('/v3/package/lib/index.json')).status, 504);
    t.is((await server.fetch('/v3/package/lib/1.0.0/lib.1.0.0.nupkg')).status, 504);
    await server.close();
  };
  return { ...gap, key, list, make, showsNothing };
}

/** Changes one byte at the first place of `text` after `from`, or at `from`. */
async function flip(file: string, text: string | Buffer, changed = (byte: number): number => byte ^ 1): Promise<void> {
  const bytes = await readFile(file);
  const at = bytes.indexOf(text);
  if (at < 0) throw new Error(`${file} does not have it`);
  bytes[at] = changed(bytes[at]!);
  await writeFile(file, bytes);
}

test('a bundle that is altered, unsigned, or signed by an unknown key is refused before anything is stored', async (t) => {
  const { near, far, path, make, key, list, showsNothing } = await bundled(t);
  const segment = join(path('bundle'), '0001.tar');

  await near.ok('bundle', 'keygen', '--to', path('other.key'));
  await near.ok('bundle', 'create', list, '--to', path('other'), '--key', path('other.key'));
  t.regex(
    await far.fails('bundle', 'import', path('other')),
    /signed by the key [0-9a-f]{16}, which is not trusted here/,
  );
  await near.ok('bundle', 'create', list, '--to', path('unsigned'));
  t.regex(await far.fails('bundle', 'import', path('unsigned')), /is not signed.*--unsigned/);

  await mkdir(path('altered'));
  await copyFile(segment, join(path('altered'), '0001.tar'));
  await flip(join(path('altered'), '0001.tar'), '"attributes"');
  t.regex(await far.fails('bundle', 'import', path('altered')), /0001\.tar: bundle\.json was altered/);

  const statement = JSON.parse((await readFile(segment)).toString('latin1').match(/\{"payloadType".*\}/)![0]) as {
    signatures: { sig: string }[];
  };
  await mkdir(path('forged'));
  await copyFile(segment, join(path('forged'), '0001.tar'));
  // Another letter of base64.
  await flip(join(path('forged'), '0001.tar'), statement.signatures[0]!.sig, (byte) => (byte === 65 ? 66 : 65));
  t.regex(
    await far.fails('bundle', 'import', path('forged')),
    /signature of near\.key that is not valid|near that is not valid/,
  );

  t.regex(await far.ok('bundle', 'trust', 'list'), /^[0-9a-f]{64}\tnear\.key\tboth\t/);
  await far.ok('bundle', 'trust', 'remove', 'near.key');
  t.regex(await far.fails('bundle', 'import', path('bundle')), /not trusted here/);
  await far.ok('bundle', 'trust', 'add', `${key}.pub`, '--role', 'receipts');
  t.regex(await far.fails('bundle', 'import', path('bundle')), /not trusted for bundles/);
  await far.ok('bundle', 'trust', 'add', `${key}.pub`, '--for', '1ms');
  t.regex(await far.fails('bundle', 'import', path('bundle')), /not trusted any more since/);
  await far.ok('bundle', 'trust', 'add', `${key}.pub`);
  await make('expired', '--expires', '1ms');
  t.regex(await far.fails('bundle', 'import', path('expired')), /was valid until/);
  t.regex(await far.fails('bundle', 'import', path('near.key.pub')), /near\.key\.pub: this is no bundle/);
  t.regex(await far.fails('bundle', 'trust', 'add', key), /private key; give the public key/);
  await showsNothing();
});

test('damaged bytes and a truncated segment are refused with their place, and a good copy goes on', async (t) => {
  const { far, path, showsNothing } = await bundled(t);
  const segment = join(path('bundle'), '0001.tar');
  const good = path('good.tar');
  await copyFile(segment, good);
  const bytes = await readFile(good);
  // A byte in the middle of the largest content.
  bytes[bytes.length - 60_000]! ^= 1;
  await writeFile(segment, bytes);
  t.regex(
    await far.fails('bundle', 'import', path('bundle')),
    /0001\.tar: the bytes of sha256:[0-9a-f]{64} are damaged/,
  );
  t.regex(await far.fails('bundle', 'verify', path('bundle')), /1 items are damaged/);
  await truncate(segment, 100_000);
  t.regex(
    await far.fails('bundle', 'import', path('bundle')),
    /0001\.tar: this is no complete tar file: it is truncated/,
  );
  await showsNothing();
  await rename(good, segment);
  t.regex(await far.ok('bundle', 'import', path('bundle')), /imported sha256/);

  // The same bundle again, of which some content is gone here: a run that fails holds nothing of it.
  const server = await far.serve();
  await databaseOf(server).transaction((tx) => tx.run("DELETE FROM mirror_entries WHERE name LIKE '%redis%'"));
  await writeFile(segment, bytes);
  t.regex(await far.fails('bundle', 'import', path('bundle')), /are damaged/);
  t.deepEqual(await rowsOf(server, 'SELECT digest FROM mirror_staged'), []);
});

test('a policy travels whatever its form, and a list that no receiver could read is not written', async (t) => {
  const { near, far, file, path, make } = await bundled(t);
  // It is longer than its bound as text that is easy to read.
  const rules = Array.from({ length: 90 }, (_, rule) => ({
    name: `rule-${rule}`,
    packages: Array.from({ length: 90 }, (_item, name) => `a${name}`),
    verdict: 'deny',
  }));
  await near.ok('policy', 'apply', await file('policy.json', JSON.stringify({ rules })));
  await make('large', '--policy');
  await far.ok('bundle', 'import', path('large'));
  const policy = await far.ok('bundle', 'inspect', path('large'), '--policy');
  await far.ok('policy', 'apply', await file('far.json', policy));
  t.regex(await far.ok('policy', 'show'), /rule-89/);

  const text = (await readFile(join(path('large'), '0001.tar'))).toString('latin1');
  const [lines] = text.match(/\{"format":"entrepot-bundle"[^]*?\n\]\n\}\n/)!;
  const list = await decodeList(lines.trimEnd().split('\n'));
  await refuseUnreadable(list);
  const { header, blobs, entries } = list;
  const tooLarge = { ...entries[0]!, attributes: { title: 'x'.repeat(4001) } };
  const cases: [BundleList, RegExp][] = [
    [{ ...list, blobs: Array(200_001).fill(blobs[0]!) }, /would have 200001 items, and can have 200000/],
    [{ ...list, entries: Array(200_001).fill(entries[0]!) }, /would have 200001 items, and can have 200000/],
    [{ ...list, header: { ...header, segments: 10_000 } }, /would have 10000 segments, and can have 9999/],
    [{ ...list, header: { ...header, policy: 'x'.repeat(65_537) } }, /^the policy is too large/],
    [
      { ...list, entries: [tooLarge] },
      new RegExp(`^what is known of the .*${tooLarge.name}.* is too large for a bundle`),
    ],
  ];
  for (const [each, message] of cases) await t.throwsAsync(refuseUnreadable(each), { name: 'Invalid', message });
});
