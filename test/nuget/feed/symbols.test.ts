import { randomBytes } from 'node:crypto';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { makeNupkg, makePdb, makeSnupkg } from '../../support/builders/nupkg.ts';
import { startTestServer } from '../../support/server.ts';
import { until } from '../../support/until.ts';
import { databaseOf, flushUsage, rowsOf, tokenOf } from '../../support/inside.ts';

/** The key that debuggers request for a portable PDB with this GUID in .NET's byte order. */
function keyOf(guid: Buffer): string {
  const groups = [guid.subarray(0, 4), guid.subarray(4, 6), guid.subarray(6, 8)].map((group) => group.toReversed());
  return `${Buffer.concat([...groups, guid.subarray(8)]).toString('hex')}ffffffff`;
}

const symbolsPath = (name: string, guid: Buffer) => `/symbols/${name}/${keyOf(guid)}/${name}`;

for (const dialect of dialects) {
  test(`symbols are found by file and signature in any case, and replaced by a new push (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Contoso.Other' }, { id: 'Contoso.Lib' });
    const [guid, later, others] = [randomBytes(16), randomBytes(16), randomBytes(16)];
    // The symbols of another package stay as they are.
    const other = makePdb(others);
    const otherSymbols = await makeSnupkg({ id: 'Contoso.Other', files: { 'lib/Other.pdb': other } });
    t.is((await feed.push(otherSymbols, '/symbols')).status, 201);
    const bytesOfOther = "SELECT metadata_bytes FROM packages WHERE package_key = 'contoso.other'";
    const before = await rowsOf(server, bytesOfOther);
    const pdb = makePdb(guid, 5000);
    const first = await makeSnupkg({
      id: 'contoso.lib',
      files: { 'lib/net8.0/Contoso.Lib.pdb': pdb, 'lib/net9.0/Contoso.Lib.pdb': makePdb() },
    });
    const pushed = await feed.push(first, '/symbols');
    t.is(pushed.status, 201);
    t.deepEqual(await pushed.json(), { id: 'contoso.lib', version: '1.0.0' });
    const key = keyOf(guid);
    for (const path of [
      `Contoso.Lib.pdb/${key}/Contoso.Lib.pdb`,
      `contoso.lib.pdb/${key.toUpperCase()}/CONTOSO.LIB.PDB`,
    ]) {
      const response = await feed.fetch(`/symbols/${path}`);
      t.is(response.status, 200);
      t.is(response.headers.get('content-length'), String(pdb.length));
      t.deepEqual(Buffer.from(await response.arrayBuffer()), pdb);
      const head = await feed.fetch(`/symbols/${path}`, { method: 'HEAD' });
      for (const { headers } of [response, head]) {
        t.is(headers.get('content-length'), String(pdb.length));
        t.is(headers.get('content-type'), 'application/octet-stream');
        t.is(headers.get('cache-control'), 'private, max-age=31536000, immutable');
        t.is(headers.get('cache-status'), 'entrepot; hit; detail=hosted');
      }
    }
    for (const path of [
      `other.pdb/${key}/other.pdb`,
      `contoso.lib.pdb/${key}/other.pdb`,
      `contoso.lib.pdb/${keyOf(later)}/contoso.lib.pdb`,
    ]) {
      t.is((await feed.fetch(`/symbols/${path}`)).status, 404, path);
    }
    const second = await makeSnupkg({ id: 'Contoso.Lib', files: { 'lib/net8.0/Contoso.Lib.pdb': makePdb(later) } });
    t.is((await feed.push(second, '/symbols/')).status, 201);
    t.is((await feed.push(second, '/symbols/')).status, 201, 'again');
    t.is((await feed.fetch(`/symbols/contoso.lib.pdb/${key}/contoso.lib.pdb`)).status, 404);
    t.is((await feed.fetch(`/symbols/contoso.lib.pdb/${keyOf(later)}/contoso.lib.pdb`)).status, 200);
    const database = databaseOf(server);
    t.is((await database.select('SELECT * FROM package_blobs')).length, 6, 'two nupkgs, nuspecs and snupkgs');
    const theirs = await TestFeed.ofAccount(server, 'theirs');
    t.is((await theirs.fetch(`/symbols/contoso.lib.pdb/${keyOf(later)}/contoso.lib.pdb`)).status, 404);
    t.is((await server.fetch('/v1/packages/contoso.lib/1.0.0', { method: 'DELETE' })).status, 204);
    t.is((await feed.fetch(`/symbols/contoso.lib.pdb/${keyOf(later)}/contoso.lib.pdb`)).status, 404);
    t.is((await database.select('SELECT * FROM package_blobs')).length, 3);
    t.is((await database.select('SELECT * FROM package_symbols')).length, 1);
    const kept = await feed.fetch(symbolsPath('other.pdb', others));
    t.deepEqual(Buffer.from(await kept.arrayBuffer()), other);
    t.deepEqual(await rowsOf(server, bytesOfOther), before);
  });
}

test('symbols without their package, and invalid symbols packages, are refused', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Contoso.Lib', version: '1.0.0' });
  for (const each of [{ id: 'Orphan' }, { id: 'Contoso.Lib', version: '1.0.1' }]) {
    const orphan = await feed.push(await makeSnupkg(each), '/symbols');
    t.is(orphan.status, 404);
    t.regex(orphan.statusText, /^(?:Orphan 1\.0\.0|Contoso\.Lib 1\.0\.1) .*Push the package before its symbols/);
  }
  const theirs = await TestFeed.ofAccount(server, 'theirs');
  t.is((await theirs.push(await makeSnupkg({ id: 'Contoso.Lib' }), '/symbols')).status, 404);
  for (const [bytes, reason] of [
    [
      await makeSnupkg({ id: 'Contoso.Lib', files: { 'lib/a.pdb': Buffer.from('Microsoft C/C++ MSF 7.00') } }),
      /Windows PDB/,
    ],
    [await makeSnupkg({ id: 'Contoso.Lib', files: { 'lib/a.dll': 'MZ' } }), /does not belong/],
    [await makeSnupkg({ id: 'Contoso.Lib', files: {} }), /no \.pdb/],
    [await makeNupkg({ id: 'Contoso.Lib' }), /SymbolsPackage/],
    [await makeSnupkg({ id: 'Contoso.Lib', files: { [`${'x'.repeat(300)}.pdb`]: makePdb() } }), /too long/],
  ] as const) {
    const response = await feed.push(bytes, '/symbols');
    t.is(response.status, 400);
    t.regex(response.statusText, reason);
  }
  t.is((await rowsOf(server, 'SELECT * FROM package_symbols')).length, 0);
  const reader = await TestFeed.ofAccount(server, 'default', ['read']);
  t.is((await reader.push(await makeSnupkg({ id: 'Contoso.Lib' }), '/symbols')).status, 403);
});

test('symbols count as sent and as stored, those of the latest version are found, and there may be many', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const version of ['1.0.0', '2.0.0']) await feed.publish({ id: 'Contoso.Lib', version });
  const [guid, other] = [randomBytes(16), randomBytes(16)];
  const old = makePdb(guid, 70_000);
  // Rows of one statement are 100; the longest name and path are allowed.
  const longest = `${'x'.repeat(251)}.pdb`;
  const folder = 'y'.repeat(1024 - longest.length - 1);
  const many = Object.fromEntries(Array.from({ length: 100 }, (_, number) => [`lib/${number}.pdb`, makePdb(other)]));
  const push = async (version: string, files: Record<string, Buffer>) =>
    t.is((await feed.push(await makeSnupkg({ id: 'Contoso.Lib', version, files }), '/symbols')).status, 201);
  const bytes = async () => (await rowsOf<{ n: number }>(server, 'SELECT metadata_bytes AS n FROM packages'))[0]!.n;
  const before = await bytes();
  await push('1.0.0', { 'lib/Contoso.Lib.pdb': old });
  const sent = async () => {
    await flushUsage(server);
    const sum = "SELECT SUM(egress_bytes) AS n FROM usage_counts WHERE dimension = 'account'";
    return (await rowsOf<{ n: number }>(server, sum))[0]!.n;
  };
  const pdb = symbolsPath('contoso.lib.pdb', guid);
  t.is((await feed.fetch(pdb, { method: 'HEAD' })).status, 200);
  t.is((await (await feed.fetch(pdb)).bytes()).length, old.length);
  // A request counts when its answer has ended here, which may be after its client has it.
  const ended = () => server.lines.filter((line) => line.includes(pdb)).length;
  await until(() => ended() === 2);
  const lines = server.lines.filter((line) => line.includes(pdb)).map((line) => JSON.parse(line));
  t.deepEqual(
    lines.map(({ method, sent: each }) => [method, each]),
    [
      ['HEAD', 0],
      ['GET', old.length],
    ],
  );
  t.true((await sent()) >= old.length);

  const rowBytes = 100 + 'contoso.lib.pdb'.length + 'lib/Contoso.Lib.pdb'.length;
  t.is(await bytes(), before + rowBytes);
  const newer = makePdb(guid, 10);
  await push('2.0.0', { [`${folder}/${longest}`]: makePdb(other), ...many, 'lib/Contoso.Lib.pdb': newer });
  for (const name of ['99.pdb', '98.pdb', '0.pdb', longest])
    t.is((await feed.fetch(symbolsPath(name, other))).status, 200, name);
  t.deepEqual(Buffer.from(await (await feed.fetch(symbolsPath('contoso.lib.pdb', guid))).bytes()), newer);
  await push('2.0.0', { 'lib/Contoso.Lib.pdb': newer });
  t.is(await bytes(), before + 2 * rowBytes, 'only what is there counts');
  for (const name of [`x${longest}`, `${folder}y/${longest}`]) {
    const files = { [name]: makePdb() };
    t.is((await feed.push(await makeSnupkg({ id: 'Contoso.Lib', files }), '/symbols')).status, 400);
  }
});

test('a debugger that disconnects is no error', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Contoso.Lib' });
  const guid = randomBytes(16);
  // More than the buffers of a connection take.
  const pdb = Buffer.concat([makePdb(guid), randomBytes(32 * 2 ** 20)]);
  const snupkg = await makeSnupkg({ id: 'Contoso.Lib', files: { 'lib/net8.0/Contoso.Lib.pdb': pdb } });
  t.is((await feed.push(snupkg, '/symbols')).status, 201);
  const address = symbolsPath('contoso.lib.pdb', guid);
  const lines = () => server.lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  const ended = () => lines().filter(({ path }) => String(path).endsWith(address));
  const leaving = new AbortController();
  const { body } = await feed.fetch(address, { signal: leaving.signal });
  await body!.getReader().read();
  leaving.abort();
  await until(() => ended().length === 1);
  t.true((ended()[0]!['sent'] as number) < pdb.length);
  // The error of the reader comes after that line.
  t.is((await (await feed.fetch(address)).arrayBuffer()).byteLength, pdb.length);
  t.deepEqual(
    lines().filter(({ level }) => (level as number) >= 50),
    [],
  );
});

test('debuggers read symbols with any user name, which no other address takes', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Contoso.Lib' });
  const guid = randomBytes(16);
  const pdb = makePdb(guid);
  const snupkg = await makeSnupkg({ id: 'Contoso.Lib', files: { 'lib/net8.0/Contoso.Lib.pdb': pdb } });
  t.is((await feed.push(snupkg, '/symbols')).status, 201);
  const path = `/v3/symbols/contoso.lib.pdb/${keyOf(guid)}/contoso.lib.pdb`;
  const ask = (at: string, pair: string, init: RequestInit = {}) => {
    const authorization = `Basic ${Buffer.from(pair).toString('base64')}`;
    return server.fetch(at, { token: null, ...init, headers: { authorization } });
  };
  const reader = await tokenOf(server, ['read']);
  for (const user of ['api', '', 'anna', 'DOMAIN\\anna', 'ünï', 'x'.repeat(1000)]) {
    const response = await ask(path, `${user}:${reader}`);
    t.is(response.status, 200, user);
    t.deepEqual(Buffer.from(await response.arrayBuffer()), pdb);
    t.is((await ask(path, `${user}:${reader}`, { method: 'HEAD' })).status, 200, user);
  }
  for (const pair of [
    '',
    ':',
    'api:',
    'anna:',
    'anna',
    reader,
    `${reader}:`,
    `a:b:${reader}`,
    ':wrong',
    'anna:wrong',
  ]) {
    const response = await ask(path, pair);
    t.is(response.status, 401, pair);
    t.is(response.headers.get('www-authenticate'), 'Basic realm="Entrepot"');
    const text = await response.text();
    if (pair.endsWith('wrong')) t.notRegex(text, /user name/, 'the user name does not matter');
  }
  const writer = await tokenOf(server, ['write']);
  t.is((await ask(path, `:${writer}`)).status, 403, 'the token needs its scope');
  const theirs = await TestFeed.ofAccount(server, 'theirs');
  t.is((await ask(path, `:${theirs.token}`)).status, 404, 'the token says whose symbols are meant');
  const others = [
    '/v3/index.json',
    '/v3/package/contoso.lib/index.json',
    '/v3/package/contoso.lib/1.0.0/contoso.lib.1.0.0.nupkg',
    '/v3/registration/contoso.lib/index.json',
    '/v3/search',
    '/v2/',
    '/v2/_catalog',
    '/token',
    '/v1/packages',
    '/v1/account',
  ];
  for (const other of others) {
    t.is((await ask(other, `api:${server.token}`)).status, 200, other);
    for (const user of ['', 'anna']) t.is((await ask(other, `${user}:${server.token}`)).status, 401, other);
  }
  t.is((await ask('/v3/symbols', `anna:${server.token}`, { method: 'PUT' })).status, 401, 'a push of symbols');
  const page = await ask('/console/connect', `anna:${server.token}`, { redirect: 'manual' });
  t.is(page.status, 303, 'the console asks for a sign-in');
});

test('failed sign-ins of debuggers count for their address', async (t) => {
  const server = await startTestServer(t, { limits: { delay: '1ms', failedSignInsPerMinute: 1 } });
  server.clock.now = Date.UTC(2027, 0, 1);
  const ask = async (pair: string) => {
    const headers = { authorization: `Basic ${Buffer.from(pair).toString('base64')}` };
    return (await server.fetch(`/v3/symbols/a.pdb/${keyOf(randomBytes(16))}/a.pdb`, { token: null, headers })).status;
  };
  t.deepEqual([await ask('anna:wrong'), await ask(':wrong'), await ask(`anna:${server.token}`)], [401, 429, 404]);
});
