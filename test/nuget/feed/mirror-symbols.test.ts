import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { schema } from '../../../src/config/schema.ts';
import { symbolsOf } from '../../../src/upstream/configured.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../../support/feed.ts';
import { makePdb, makeSnupkg } from '../../support/builders/nupkg.ts';
import { startTestServer } from '../../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { rowsOf } from '../../support/inside.ts';

// Symbols that are not hosted come from the upstreams' symbol servers.

/** The key that debuggers request for a portable PDB with this GUID in .NET's byte order. */
function keyOf(guid: Buffer): string {
  const groups = [guid.subarray(0, 4), guid.subarray(4, 6), guid.subarray(6, 8)].map((group) => group.toReversed());
  return `${Buffer.concat([...groups, guid.subarray(8)]).toString('hex')}ffffffff`;
}

const guid = randomBytes(16);
const key = keyOf(guid);
const pdb = makePdb(guid, 100_000);
const path = `/symbols/Lib.pdb/${key.toUpperCase()}/lib.PDB`;
const theirs = `/symbols/lib.pdb/${key}/lib.pdb`;

async function mirrored(t: ExecutionContext, settings: Record<string, unknown> = {}) {
  const up = await UpstreamFeed.start(t);
  const upstream = up.as('up.test', { symbolsUrl: `${up.url}/symbols`, negativeFor: '1m', timeout: '60s' });
  const server = await startMirrorOf(t, [upstream], settings);
  server.clock.now = Date.now();
  return { up, server, feed: new TestFeed(server) };
}

test('a file that is not hosted is requested once, and stored', async (t) => {
  const { up, feed } = await mirrored(t);
  up.upstream.on(theirs, answer(200, {}, pdb));
  for (const how of ['entrepot; fwd=miss; stored', 'entrepot; hit']) {
    const response = await feed.fetch(path, { headers: { symbolchecksum: 'SHA256:0123abcd' } });
    t.is(response.headers.get('cache-status'), how);
    t.is(response.headers.get('content-type'), 'application/octet-stream');
    t.deepEqual(Buffer.from(await response.arrayBuffer()), pdb);
  }
  t.is((await feed.fetch(path, { method: 'HEAD' })).headers.get('content-length'), String(pdb.length));
  t.deepEqual(up.asked, [theirs]);
  t.is(up.upstream.asked[0]!.headers['symbolchecksum'], 'SHA256:0123abcd');
});

test('a file that no upstream has is not found, and requested again later', async (t) => {
  const { up, server, feed } = await mirrored(t);
  t.is((await feed.fetch(path, { headers: { symbolchecksum: 'SHA256:"0"' } })).status, 404);
  t.is(up.upstream.asked[0]!.headers['symbolchecksum'], undefined, 'only what a checksum is made of goes further');
  up.upstream.on(theirs, answer(200, {}, pdb));
  t.is((await feed.fetch(path)).status, 404);
  server.clock.now! += 61_000;
  t.is((await feed.fetch(path)).status, 200);
});

test('hosted symbols are served first, and a hosted or reserved name is not sent upstream', async (t) => {
  const { up, feed } = await mirrored(t, { reserved: { packages: ['Secret.*'] } });
  await feed.publish({ id: 'Lib', version: '1.0.0' });
  const snupkg = await makeSnupkg({ id: 'Lib', version: '1.0.0', files: { 'lib/net8.0/Lib.pdb': pdb } });
  t.is((await feed.push(snupkg, '/symbols')).status, 201);
  const response = await feed.fetch(path);
  t.is(response.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  await response.arrayBuffer();
  const other = keyOf(randomBytes(16));
  for (const name of ['lib.pdb', 'secret.plans.pdb']) {
    t.is((await feed.fetch(`/symbols/${name}/${other}/${name}`)).status, 404);
  }
  t.deepEqual(up.asked, []);
});

test('an address with two file names is not found, and no upstream is asked', async (t) => {
  const { up, feed } = await mirrored(t);
  up.upstream.on(theirs, answer(200, {}, pdb));
  t.is((await feed.fetch(`/symbols/lib.pdb/${key}/other.pdb`)).status, 404);
  t.deepEqual(up.asked, []);
});

test('only PDBs are requested', async (t) => {
  const { up, feed } = await mirrored(t);
  for (const [name, signature] of [
    ['lib.dll', '5f1a2b3c1000'],
    ['lib.pdb', 'nothing'],
    ['lib.pdb', '%2e%2e'],
    ['..%2flib.pdb', key],
  ]) {
    t.is((await feed.fetch(`/symbols/${name}/${signature}/${name}`)).status, 404);
  }
  t.deepEqual(up.asked, []);
});

test('a file that is not the requested PDB is refused; a Windows PDB is recognised by its first bytes', async (t) => {
  const { up, server, feed } = await mirrored(t);
  for (const wrong of [makePdb(), Buffer.from('<html>Sign in</html>'), pdb.subarray(0, 50)]) {
    up.upstream.on(theirs, answer(200, {}, wrong));
    await t.throwsAsync(async () => {
      const response = await feed.fetch(path);
      if (response.status !== 200) throw new Error(String(response.status));
      await response.arrayBuffer();
    });
  }
  t.is((await rowsOf(server, `SELECT id FROM mirror_entries WHERE kind = 'symbols'`)).length, 0);
  const old = `${'0123456789abcdef'.repeat(2)}1`;
  const bytes = Buffer.concat([Buffer.from('Microsoft C/C++ MSF 7.00\r\n'), randomBytes(100)]);
  up.upstream.on(`/symbols/old.pdb/${old}/old.pdb`, answer(200, {}, bytes));
  t.deepEqual(Buffer.from(await (await feed.fetch(`/symbols/old.pdb/${old}/old.pdb`)).arrayBuffer()), bytes);
});

test('a failing symbol server does not affect the rest of its upstream, and is not "not found"', async (t) => {
  const { up, feed } = await mirrored(t);
  await up.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
  up.upstream.on(theirs, answer(500));
  const response = await feed.fetch(path);
  t.is(response.status, 502);
  t.regex(response.statusText, /up\.test/);
  t.is((await feed.fetch('/package/a/index.json')).status, 200);
  t.is((await feed.json('/search?q=a')).totalHits, 1);
});

test('a second upstream can serve the file while the first fails', async (t) => {
  const [first, second] = [await UpstreamFeed.start(t), await UpstreamFeed.start(t)];
  first.upstream.on(theirs, answer(500));
  second.upstream.on(theirs, answer(200, {}, pdb));
  const upstreams = [first, second].map((up, index) => up.as(`up${index}.test`, { symbolsUrl: `${up.url}/symbols/` }));
  const feed = new TestFeed(await startMirrorOf(t, [...upstreams, first.as('without.test')]));
  t.is((await feed.fetch(path)).status, 200);
  const other = keyOf(randomBytes(16));
  first.upstream.on(`/symbols/lib.pdb/${other}/lib.pdb`, answer(500));
  t.is((await feed.fetch(`/symbols/lib.pdb/${other}/lib.pdb`)).status, 502);
});

test('symbols of another server of this project are mirrored, with credentials', async (t) => {
  const up = await startTestServer(t);
  const upFeed = new TestFeed(up);
  await upFeed.publish({ id: 'Lib', version: '1.0.0' });
  const snupkg = await makeSnupkg({ id: 'Lib', version: '1.0.0', files: { 'lib/net8.0/Lib.pdb': pdb } });
  t.is((await upFeed.push(snupkg, '/symbols')).status, 201);
  const server = await startMirrorOf(t, [
    {
      name: 'up.test',
      kind: 'nuget',
      url: `${up.url}/v3/index.json`,
      symbolsUrl: `${up.url}/v3/symbols`,
      allowPrivateNetwork: true,
      auth: { username: 'api', password: up.token },
    },
  ]);
  const response = await new TestFeed(server).fetch(path);
  t.deepEqual(Buffer.from(await response.arrayBuffer()), pdb);
});

function of(upstream: object): string | undefined {
  return symbolsOf(schema.parse({ upstreams: [upstream] }).upstreams[0]!)?.href;
}

test('a public feed has its known symbol server address', (t) => {
  t.is(of({ name: 'gallery.example', kind: 'nuget' }), 'https://symbols.gallery.example/download/symbols');
  t.is(of({ name: 'gallery.example', kind: 'nuget', url: 'https://x.example/v3/index.json' }), undefined);
  t.is(of({ name: 'images.example', kind: 'registry' }), undefined);
  t.is(of({ name: 'x.example', kind: 'nuget', symbolsUrl: 'https://y.example/s' }), 'https://y.example/s');
});
