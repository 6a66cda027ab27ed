import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import test from 'ava';
import { auditOf } from '../../support/audit.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { packageForm, TestFeed } from '../../support/feed.ts';
import { makeNupkg, makeNuspec, zip } from '../../support/builders/nupkg.ts';

import { startTestServer, type TestServer } from '../../support/server.ts';
import { eventually, within } from '../../support/until.ts';
import { databaseOf, flushUsage, rowsOf } from '../../support/inside.ts';

const staged = (server: TestServer) => readdir(join(server.data, 'staging'));

/** Whether a refused push left nothing. */
async function holdsNothing(server: TestServer): Promise<boolean> {
  const rows = await databaseOf(server).get<{ n: number }>(
    `SELECT (SELECT COUNT(*) FROM packages) + (SELECT COUNT(*) FROM package_versions)
      + (SELECT COUNT(*) FROM package_blobs) + (SELECT COUNT(*) FROM package_terms) AS n`,
  );
  return rows!.n === 0 && (await staged(server)).length === 0;
}

test('a push is visible to the very next request, byte for byte, under the normalised version', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  const nupkg = await makeNupkg({ id: 'Contoso.Json', version: '1.02.0.0', tags: 'json fast' });
  const pushed = await feed.push(nupkg, '/push/');
  t.is(pushed.status, 201);
  t.deepEqual(await pushed.json(), { id: 'Contoso.Json', version: '1.2.0' });
  t.is(pushed.headers.get('x-nuget-warning'), null, 'a normalised version needs no warning');
  const file = await feed.fetch(pushed.headers.get('location')!);
  t.deepEqual(Buffer.from(await file.arrayBuffer()), nupkg);
  t.deepEqual(await feed.json('/package/contoso.json/index.json'), { versions: ['1.2.0'] });
  t.is((await feed.json('/registration/contoso.json/index.json')).items[0].items[0].catalogEntry.id, 'Contoso.Json');
  t.is((await feed.json('/search?q=fast')).data[0].version, '1.2.0');
  t.deepEqual((await feed.json('/autocomplete?q=cont')).data, ['Contoso.Json']);
  const [event] = await auditOf(feed.server, 'type=package.published');
  t.deepEqual(event!.details, { size_bytes: nupkg.length });
});

test('the body itself may be the package', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  const nupkg = await makeNupkg({ id: 'Raw' });
  const response = await feed.fetch('/push', {
    method: 'PUT',
    headers: { 'content-type': 'application/octet-stream' },
    body: new Uint8Array(nupkg),
  });
  t.is(response.status, 201);
  const file = await feed.fetch('/package/raw/1.0.0/raw.1.0.0.nupkg');
  t.deepEqual(Buffer.from(await file.arrayBuffer()), nupkg);
});

for (const dialect of dialects) {
  test(`a version that is too long for the database column is refused as invalid (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    for (const version of [
      `1.0.0-${'a'.repeat(250)}`,
      `1+${'a'.repeat(253)}`,
      `1.0.0+${'a'.repeat(250)}`,
      `1.0.0-${'0.'.repeat(125)}0`,
    ]) {
      const response = await feed.push({ id: 'Long', version });
      t.is(response.status, 400, version);
      t.regex(response.statusText, /version .* is not valid. Use one of at most 255 characters/);
      t.is((await feed.fetch(`/package/long/${encodeURIComponent(version)}/long.nuspec`)).status, 404);
    }
    for (const version of [
      `1.0.0-${'a'.repeat(58)}`,
      `1+${'a'.repeat(249)}`,
      `2147483647.2147483647.2147483647.2147483647-${'0.'.repeat(10)}`.slice(0, -1),
      `1.0.0-${'0.'.repeat(29)}`.slice(0, -1),
    ]) {
      t.is((await feed.push({ id: 'Long', version })).status, 201, version);
      t.is((await feed.fetch(`/package/long/${encodeURIComponent(version)}/long.nuspec`)).status, 200);
    }
    t.is((await feed.json('/registration-gz-semver2/long/index.json')).items[0].count, 4);
  });

  test(`of concurrent pushes of one version one succeeds, and its bytes are served (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    const made = await Promise.all(
      ['1.0', '1.0.0', '1.0.0.0', '1.0.0', '01.0.0'].map((version) => makeNupkg({ id: 'Race', version })),
    );
    const statuses = await Promise.all(made.map(async (each) => (await feed.push(each)).status));
    t.deepEqual(
      statuses.toSorted((a, b) => a - b),
      [201, 409, 409, 409, 409],
    );
    const file = await feed.fetch('/package/race/1.0.0/race.1.0.0.nupkg');
    t.deepEqual(Buffer.from(await file.arrayBuffer()), made[statuses.indexOf(201)]);
    const database = databaseOf(server);
    t.is((await database.select('SELECT digest FROM package_blobs')).length, 2, 'the nupkg and the nuspec');
    t.deepEqual(await staged(server), []);
  });

  test(`concurrent pushes of many versions of one new package all succeed (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    const versions = Array.from({ length: 8 }, (_, minor) => `1.${minor}.0`);
    const responses = await Promise.all(versions.map((version) => feed.push({ id: 'Many', version })));
    t.deepEqual(
      responses.map(({ status }) => status),
      versions.map(() => 201),
    );
    t.deepEqual(await feed.json('/package/many/index.json'), { versions });
    const { data, totalHits } = await feed.json('/search?q=many');
    t.is(totalHits, 1);
    t.is(data[0].version, '1.7.0');
    const details = (await (await server.fetch('/v1/packages/many')).json()) as any;
    t.is(details.version_count, 8);
    t.is(
      details.size_bytes,
      details.versions.reduce((sum: number, each: any) => sum + each.size_bytes, 0),
    );
  });
}

test('a version never changes: pushed again it is 409, also when unlisted, in any spelling', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  await feed.publish({ id: 'Once', version: '2.0.0-RC.1' });
  await feed.fetch('/push/Once/2.0.0-rc.1', { method: 'DELETE' });
  const again = await feed.push({ id: 'ONCE', version: '2.0.0-rc.1+build.5' });
  t.is(again.status, 409);
  t.regex(again.statusText, /^ONCE 2\.0\.0-rc\.1 exists already, and a version cannot be changed/);
  t.is(again.headers.get('content-type'), 'application/problem+json');
  const problem = (await again.json()) as { status: number; code: string; detail: string };
  t.is(problem.code, 'AlreadyExists');
  t.is(problem.detail, again.statusText);
});

test('the id is shown in the spelling of the last push, and the push warns', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  await feed.publish({ id: 'CONTOSO.Core', version: '1.0.0' });
  const pushed = await feed.push({ id: 'Contoso.Core', version: '1.1.0' });
  t.is(
    pushed.headers.get('x-nuget-warning'),
    'The id of this package was shown as CONTOSO.Core; it is now shown as Contoso.Core.',
  );
  t.deepEqual((await feed.json('/autocomplete?q=contoso')).data, ['Contoso.Core']);
});

test('an invalid package is refused with the reason, and nothing is stored', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const good = await makeNupkg();
  const refused: [name: string, body: Buffer, reason: RegExp][] = [
    ['text', Buffer.from('this is no zip'), /zip/i],
    ['cut off', good.subarray(0, good.length - 40), /zip/i],
    ['no nuspec', await zip({ 'readme.txt': 'hello' }), /no \.nuspec/],
    ['two nuspecs', await zip({ 'a.nuspec': makeNuspec(), 'b.nuspec': makeNuspec() }), /more than one \.nuspec/],
    ['bad id', await makeNupkg({ id: 'Bad..Id' }), /id 'Bad\.\.Id' is not valid/],
    ['id of other letters', await makeNupkg({ id: 'Pakét' }), /ASCII/],
    [
      'id that climbs',
      await makeNupkg({ id: 'x', nuspec: makeNuspec({ id: '../../etc/passwd' }) }),
      /id '\.\.\/\.\.\/etc\/passwd' is not valid/,
    ],
    [
      'second id with a prefix',
      await makeNupkg({ nuspec: makeNuspec().replace('<id>', '<n:id xmlns:n="urn:n">Other</n:id><id>') }),
      /<id> with a prefix/,
    ],
    ['bad version', await makeNupkg({ version: '1.x' }), /version '1\.x' is not valid/],
    ['bad range', await makeNupkg({ dependencies: [{ id: 'A', version: '[1' }] }), /range '\[1'/],
    ['entity bomb', await makeNupkg({ nuspec: '<!DOCTYPE p [<!ENTITY a "b">]><package/>' }), /entities/],
    ['symbols package', await makeNupkg({ packageTypes: [{ name: 'SymbolsPackage' }] }), /symbols/],
    ['empty', Buffer.alloc(0), /contains no package/],
  ];
  for (const [name, body, reason] of refused) {
    const response = await feed.push(body);
    t.is(response.status, 400, name);
    t.regex(response.statusText, reason, name);
    const text = await response.text();
    t.is((JSON.parse(text) as { title: string }).title, 'Bad Request', name);
    t.notRegex(text, /\.ts|node_modules|at Object/, name);
  }
  t.true(await holdsNothing(server));
  t.is((await feed.push()).status, 201, 'the server still works');
});

test('malformed forms are refused and nothing is stored', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const good = packageForm(await makeNupkg());
  const two = packageForm(await makeNupkg());
  const bodies: [name: string, type: string, body: Buffer | string][] = [
    ['no boundary', 'multipart/form-data', good.body],
    ['another boundary', 'multipart/form-data; boundary=other', good.body],
    ['no closing boundary', good.type, good.body.subarray(0, good.body.length - 20)],
    ['cut in the headers', good.type, good.body.subarray(0, 60)],
    [
      'fields only',
      good.type,
      '--made-boundary\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n--made-boundary--\r\n',
    ],
    ['two files', good.type, Buffer.concat([good.body.subarray(0, good.body.length - 19), two.body])],
    ['nothing', good.type, ''],
    ['another form', 'multipart/mixed; boundary=made-boundary', good.body],
    ['JSON', 'application/json', '{}'],
  ];
  for (const [name, type, body] of bodies) {
    const response = await feed.fetch('/push', {
      method: 'PUT',
      headers: { 'content-type': type },
      body: typeof body === 'string' ? body : new Uint8Array(body),
    });
    t.is(response.status, 400, name);
    t.is(response.headers.get('content-type'), 'application/problem+json', name);
  }
  t.true(await holdsNothing(server));
  // Of a part's headers the first fifty count.
  const [start, rest] = [good.body.subarray(0, 17), good.body.subarray(17)];
  t.is(start.toString(), '--made-boundary\r\n');
  const withHeaders = (count: number) =>
    new Uint8Array(Buffer.concat([start, Buffer.from('X-More: x\r\n'.repeat(count)), rest]));
  for (const [count, status] of [
    [50, 400],
    [45, 201],
  ] as const) {
    const headers = { 'content-type': good.type };
    const response = await feed.fetch('/push', { method: 'PUT', headers, body: withHeaders(count) });
    t.is(response.status, status, `after ${count} other headers`);
  }
});

const stream = (bytes: Buffer) => new Blob([new Uint8Array(bytes)]).stream();

test('a package over the limit is 413, with or without Content-Length, in a form or not', async (t) => {
  const longest = await makeNupkg({ id: 'Longest', payloadBytes: 99_000 });
  const server = await startTestServer(t, { limits: { nupkg: `${longest.length}B` } });
  const feed = new TestFeed(server);
  const large = await makeNupkg({ id: 'Large', payloadBytes: 300_000 });
  const { body, type } = packageForm(large);
  for (const [name, init] of [
    ['announced form', { headers: { 'content-type': type }, body: new Uint8Array(body) }],
    ['form', { headers: { 'content-type': type }, body: stream(body), duplex: 'half' }],
    ['announced body', { body: new Uint8Array(large) }],
    ['body', { body: stream(large), duplex: 'half' }],
  ] as const) {
    const response = await feed.fetch('/push', { method: 'PUT', ...init });
    t.is(response.status, 413, name);
    t.true(response.statusText.includes(`larger than the ${longest.length} bytes allowed here`), name);
  }
  t.true(await holdsNothing(server));
  t.is((await feed.push(longest)).status, 201, 'the limit itself, in a form that is longer');
});

test('a push whose connection is cut stores nothing, in a form or not', async (t) => {
  const server = await startTestServer(t);
  const nupkg = await makeNupkg({ payloadBytes: 3_000_000 });
  const form = packageForm(nupkg);
  for (const [body, headers] of [
    [form.body, { 'content-type': form.type, 'content-length': form.body.length }],
    [form.body, { 'content-type': form.type, 'transfer-encoding': 'chunked' }],
    [nupkg, { 'content-type': 'application/octet-stream', 'content-length': nupkg.length }],
  ] as const) {
    for (const cut of [0, 30, 100_000, 2_900_000]) {
      const push = httpRequest(`${server.url}/v3/push`, {
        method: 'PUT',
        headers: { ...headers, authorization: `Bearer ${server.token}` },
      });
      push.on('error', () => undefined);
      push.flushHeaders();
      if (cut > 0) push.write(body.subarray(0, cut));
      t.is(
        (
          await eventually(
            () => staged(server),
            ({ length }) => length === 1,
          )
        ).length,
        1,
        'it began',
      );
      push.destroy();
      t.true(await eventually(() => holdsNothing(server), Boolean), 'it is gone');
    }
  }
  t.true(await holdsNothing(server));
  t.is((await new TestFeed(server).push()).status, 201);
});

test('a form has one package, at most 16 fields, and fields of at most 1,024 bytes', async (t) => {
  const server = await startTestServer(t);
  const push = async (version: string, files: number, fields: number, length = 5) => {
    const form = new FormData();
    for (let each = 0; each < fields; each += 1) form.append(`field${each}`, 'x'.repeat(length));
    const bytes = new Uint8Array(await makeNupkg({ id: 'Formed', version }));
    for (let each = 0; each < files; each += 1) form.append('package', new Blob([bytes]), 'a.nupkg');
    const { status, statusText } = await server.fetch('/v3/push', { method: 'PUT', body: form });
    return `${status} ${statusText}`;
  };
  t.regex(await push('1.0.0', 1, 16, 1024), /^201 /);
  t.regex(await push('2.0.0', 2, 0), /^400 .*one package at a time/);
  t.regex(await push('2.0.0', 1, 17), /^400 .*more than 16 fields/);
  t.regex(await push('2.0.0', 1, 1, 1025), /^400 .*longer than 1024 bytes/);
  t.regex(await push('2.0.0', 0, 1), /^400 .*contains no package/);
  t.deepEqual(await new TestFeed(server).json('/package/formed/index.json'), { versions: ['1.0.0'] });
  t.deepEqual(await staged(server), []);
});

test('an upload fails after a time without data', async (t) => {
  const server = await startTestServer(t, { limits: { uploadIdle: '2s' } });
  const { body, type } = packageForm(await makeNupkg());
  for (const sent of [10, body.length - 100]) {
    const push = httpRequest(`${server.url}/v3/push`, {
      method: 'PUT',
      headers: { 'content-type': type, 'content-length': body.length, authorization: `Bearer ${server.token}` },
    });
    push.on('error', () => undefined);
    t.teardown(() => push.destroy());
    push.write(body.subarray(0, sent));
    const answered = new Promise<number | undefined>((resolve) => {
      push.once('response', (response) => resolve(response.statusCode));
      push.once('close', () => resolve(undefined));
    });
    t.is(await within(answered), 400);
    push.destroy();
  }
  t.true(await holdsNothing(server));
});

test('a push needs a token with the scope, and the refusal is in the form that clients understand', async (t) => {
  const server = await startTestServer(t, { anonymousRead: true });
  const nupkg = await makeNupkg();
  const put = (headers: Record<string, string>) =>
    server.fetch('/v3/push', { token: null, method: 'PUT', headers, body: new Uint8Array(nupkg) });
  const wrong: Record<string, string>[] = [{}, { 'x-nuget-apikey': 'ent_wrong' }, { authorization: 'Basic eHg6eHg=' }];
  for (const headers of wrong) {
    const response = await put(headers);
    t.is(response.status, 401);
    t.is(response.headers.get('www-authenticate'), 'Basic realm="Entrepot"');
    t.true(response.statusText.length > 20);
  }
  const reader = await TestFeed.ofAccount(server, 'default', ['read', 'delete']);
  const forbidden = await reader.push();
  t.is(forbidden.status, 403);
  t.is(forbidden.statusText, 'This token lacks the scope "write".');
  t.is(forbidden.headers.get('www-authenticate'), null, 'other credentials are not asked for');
  t.is(((await forbidden.json()) as { scope: string }).scope, 'write');
  const writer = await TestFeed.ofAccount(server, 'default', ['write']);
  t.is((await writer.push()).status, 201);
  t.is((await writer.fetch('/package/made.package/index.json')).status, 403);
  t.is((await writer.fetch('/push/made.package/1.0.0', { method: 'DELETE' })).status, 403);
  t.is((await reader.fetch('/push/made.package/1.0.0', { method: 'POST' })).status, 403);
  t.is((await reader.fetch('/push/made.package/1.0.0', { method: 'DELETE' })).status, 204);
});

test('equal files of two packages are stored once', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const readme = randomBytes(1000).toString('hex');
  await feed.publish({ id: 'A', readme }, { id: 'B', readme });
  const blobs = await rowsOf(server, 'SELECT digest FROM blobs');
  t.is(blobs.length, 5, 'two packages, two nuspecs, one readme');
});

test('each address of pushes names the methods that it allows, with or without a slash', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  for (const [path, allow] of [
    ['/push', 'PUT'],
    ['/push/a/1.0.0', 'DELETE, POST'],
    ['/push/a/deprecations', 'PUT'],
    ['/symbols', 'PUT'],
  ] as const) {
    for (const each of [path, `${path}/`]) {
      const response = await feed.fetch(each);
      t.deepEqual([response.status, response.headers.get('allow')], [405, allow], each);
      t.like(await response.json(), { code: 'MethodNotAllowed', detail: `This address allows only ${allow}.` });
    }
  }
});

test('a package has at most 100,000 versions', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Many', version: '1.0.0' });
  const count = (versions: number) =>
    databaseOf(server).transaction((tx) => tx.run('UPDATE packages SET version_count = ?', [versions]));
  await count(100_000);
  const refused = await feed.push({ id: 'Many', version: '2.0.0' });
  t.is(refused.status, 400);
  t.regex(refused.statusText, /^Many has 100000 versions, and more are not allowed/);
  t.deepEqual(await feed.json('/package/many/index.json'), { versions: ['1.0.0'] });
  await count(99_999);
  t.is((await feed.push({ id: 'Many', version: '2.0.0' })).status, 201);
});

test('a package without authors or description is refused, as by the public gallery', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const [elements, text] of [
    ['<authors>a</authors>', /no <description>/],
    ['<description>d</description>', /no <authors>/],
    ['<authors> </authors>', /no <authors> and <description>/],
  ] as const) {
    const nuspec = `<package><metadata><id>Bare</id><version>1.0.0</version>${elements}</metadata></package>`;
    const response = await feed.push({ id: 'Bare', nuspec });
    t.is(response.status, 400);
    t.regex(response.statusText, text);
  }
  t.true(await holdsNothing(server));
});

for (const dialect of dialects) {
  test(`${dialect}: versions of 255 characters are taken, and served everywhere`, async (t) => {
    const feed = new TestFeed(await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } }));
    const packageTypes = ['First', ...Array.from({ length: 15 }, () => 'x'.repeat(100))].map((name) => ({ name }));
    await feed.publish({ id: 'Typed', packageTypes });
    const { items: listed } = (await (await feed.server.fetch('/v1/packages')).json()) as any;
    t.is(listed[0].package_type, 'First', 'also if the types are longer together');
    const versions = [`1.0.0-${'a'.repeat(249)}`, `1.0.0-${'1.'.repeat(124)}1`, `2.0.0-rc+${'b'.repeat(246)}`];
    for (const version of versions) t.is((await feed.push({ id: 'Long', version })).status, 201, version);
    const keys = ['1.0.0-' + '1.'.repeat(124) + '1', `1.0.0-${'a'.repeat(249)}`, '2.0.0-rc'];
    t.deepEqual(await feed.json('/package/long/index.json'), { versions: keys });
    for (const key of keys) t.is((await feed.fetch(`/package/long/${key}/long.${key}.nupkg`)).status, 200);
    const { items } = await feed.json('/registration-gz-semver2/long/index.json');
    t.deepEqual(
      items[0].items.map((each: any) => each.catalogEntry.version),
      [keys[0], keys[1], versions[2]],
    );
    await flushUsage(feed.server);
    t.is((await feed.push({ id: 'Long', version: `1.0.0-${'a'.repeat(250)}` })).status, 400);
  });
}
