import { readFile, writeFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { addPublishing } from '../../../src/nuget/feed/publish-routes.ts';
import { receiveFile } from '../../../src/nuget/feed/upload.ts';
import { DomainError, isDomainError } from '../../../src/runtime/errors.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { multipartOverhead } from '../../../src/http/multipart.ts';
import { makeNupkg, makePdb, makeSnupkg, type NupkgOptions } from '../../support/builders/nupkg.ts';
import { packageForm } from '../../support/feed.ts';
import { feedRoutes, routeJson, type RouteAnswer } from '../../support/feed-routes.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';
import { until } from '../../support/until.ts';

const everyone = { kind: 'token', accountId: 1, names: undefined, scopes: new Set(['read', 'write', 'delete']) };
const maxBytes = 20_000;

interface Given {
  principal?: object;
  symbols?: { open: (...given: any[]) => unknown };
  isMerged?: boolean;
  mirroredFrom?: string;
}

/** The routes that change packages, of account 1. */
async function publishing(t: Parameters<typeof feedRoutes>[0], given: Given = {}) {
  const hosted = await HostedPackages.open(t);
  const logged: unknown[][] = [];
  const log = {
    info: (...line: unknown[]) => logged.push(['info', ...line]),
    warn: (...line: unknown[]) => logged.push(['warn', ...line]),
  };
  const mirror = {
    mirroredFrom: () => Promise.resolve(given.mirroredFrom),
    origin: { isMerged: () => given.isMerged ?? false },
  };
  const feed = { ...hosted.context, limits: { nupkg: maxBytes, uploadIdle: 10_000 } };
  const symbols = given.symbols ?? { open: () => undefined };
  const parts = { feed, views: { of: () => Promise.resolve({ mirror }) }, log, symbols };
  const routes = await feedRoutes(t, (router, answering) => addPublishing(router, answering, parts as never), {
    principal: given.principal ?? everyone,
  } as never);
  const push = async (options: NupkgOptions | Buffer, path = '/push') => {
    const { body, type } = packageForm(Buffer.isBuffer(options) ? options : await makeNupkg(options));
    return routes.ask(path, { method: 'PUT', headers: { 'content-type': type }, body: new Uint8Array(body) });
  };
  return { ...routes, hosted, logged, push, feed };
}

const listed = (hosted: HostedPackages) =>
  hosted.rows<object>('SELECT version, listed FROM package_versions ORDER BY sort_key');
const failed = (answer: RouteAnswer) => [answer.status, routeJson(answer).name, routeJson(answer).message];

test('a push is received, published, logged and answered with the address of the package', async (t) => {
  const { push, logged, hosted } = await publishing(t);
  const bytes = await makeNupkg({ id: 'Lib', version: '1.0-RC' });
  const answer = await push(bytes);
  t.deepEqual(answer.needs, ['write', 'upload']);
  t.is(answer.status, 201);
  t.deepEqual(routeJson(answer), { id: 'Lib', version: '1.0.0-RC' });
  t.is(answer.headers.get('location'), 'https://here.test/v3/package/lib/1.0.0-rc/lib.1.0.0-rc.nupkg');
  t.is(answer.headers.get('x-nuget-warning'), null);
  const { subject, version, received, id } = answer.context;
  t.deepEqual([subject, version], ['lib', '1.0.0-rc']);
  t.is(received, packageForm(bytes).body.length);
  t.deepEqual(logged, [['info', { request: id, id: 'Lib', version: '1.0.0-RC' }, 'package published']]);
  const again = await push({ id: 'LIB', version: '2.0.0' }, '/push/');
  t.is(again.headers.get('x-nuget-warning'), 'The id of this package was shown as Lib; it is now shown as LIB.');
  t.deepEqual(await hosted.store.blobs.stagedIds(), []);
});

for (const [isMerged, consequence] of [
  [true, 'from now on a version pushed here takes precedence over the same version there'],
  [false, 'from now on only versions pushed here are served'],
] as const)
  test(`a push of a mirrored id warns of what follows (${isMerged ? 'merged' : 'hosted only'})`, async (t) => {
    const { push, logged } = await publishing(t, { mirroredFrom: 'up.test', isMerged });
    const answer = await push({ id: 'Lib' });
    t.is(answer.headers.get('x-nuget-warning'), `Lib was mirrored from up.test until now; ${consequence}.`);
    t.deepEqual(logged[1], [
      'warn',
      { account: 1, id: 'Lib', upstream: 'up.test' },
      'the pushed package now takes precedence over the mirrored one',
    ]);
  });

test('a push of a name that the sender may not push is refused after it has arrived', async (t) => {
  const names = { of: () => new NameSet(['other']) };
  const { push, hosted, logged } = await publishing(t, { principal: { ...everyone, names } });
  t.deepEqual(failed(await push({ id: 'Lib' })).slice(0, 2), [599, 'NameDenied']);
  t.deepEqual(failed(await push(await makeSnupkg({ id: 'Lib' }), '/symbols')).slice(0, 2), [599, 'NameDenied']);
  t.is((await push({ id: 'OTHER' })).status, 201);
  t.deepEqual(await hosted.store.blobs.stagedIds(), []);
  t.is(logged.length, 1);
});

test('versions are unlisted and listed again by their addresses, which take no other methods', async (t) => {
  const { ask, push, hosted } = await publishing(t);
  await push({ id: 'Lib', version: '1.0.0' });
  const deleted = await ask('/push/LIB/1.0', { method: 'DELETE' });
  t.deepEqual(deleted.needs, ['delete']);
  t.deepEqual([deleted.status, deleted.body.length], [204, 0]);
  t.deepEqual(await listed(hosted), [{ version: '1.0.0', listed: 0 }]);
  const relisted = await ask('/push/lib/1.0.0', { method: 'POST' });
  t.deepEqual(relisted.needs, ['write']);
  t.deepEqual([relisted.status, routeJson(relisted)], [200, {}]);
  t.deepEqual(await listed(hosted), [{ version: '1.0.0', listed: 1 }]);
  await hosted.store.database.transaction((tx) =>
    tx.insert('permanence', {
      account_id: 1,
      rules: '{"freeze":{"images":[]},"keep":{"packages":["*"],"images":[]}}',
      changed_at: 0,
    }),
  );
  t.is(failed(await ask('/push/lib/1.0.0', { method: 'DELETE' }))[1], 'Kept');
  t.deepEqual(failed(await ask('/push/lib/2.0.0', { method: 'POST' })), [
    599,
    'NotFound',
    'lib 2.0.0 does not exist in this feed.',
  ]);
  for (const [path, method, allow] of [
    ['/push', 'GET', 'PUT'],
    ['/push', 'POST', 'PUT'],
    ['/push/lib/1.0.0', 'GET', 'DELETE, POST'],
    ['/push/lib/1.0.0', 'PUT', 'DELETE, POST'],
    ['/symbols', 'GET', 'PUT'],
    ['/push/lib/deprecations', 'GET', 'PUT'],
  ] as const) {
    const answer = await ask(path, { method });
    t.deepEqual([answer.status, answer.headers.get('allow'), answer.needs], [405, allow, undefined], path);
    t.deepEqual(routeJson(answer), {
      type: 'about:blank',
      title: 'Method Not Allowed',
      status: 405,
      code: 'MethodNotAllowed',
      detail: `This address allows only ${allow}.`,
    });
  }
});

const guid = Buffer.from(Array.from({ length: 16 }, (_, index) => index));
const key = '030201000504070608090a0b0c0d0e0fffffffff';
const immutable = 'private, max-age=31536000, immutable';

test('symbols are pushed, and their files found by name and signature', async (t) => {
  const asked: unknown[][] = [];
  const symbols = {
    open: (...given: unknown[]) => {
      asked.push(given);
      return Promise.resolve(undefined);
    },
  };
  const { ask, push, hosted } = await publishing(t, { symbols });
  await push({ id: 'Lib' });
  const pdb = makePdb(guid, 1000);
  const snupkg = await makeSnupkg({ id: 'LIB', version: '1.0', files: { 'lib/Lib.pdb': pdb } });
  const pushed = await push(snupkg, '/symbols');
  t.deepEqual(pushed.needs, ['write', 'upload']);
  t.deepEqual([pushed.status, routeJson(pushed)], [201, { id: 'LIB', version: '1.0.0' }]);
  t.deepEqual([pushed.context.subject, pushed.context.received], ['lib', packageForm(snupkg).body.length]);
  for (const path of [`/symbols/Lib.pdb/${key}/Lib.pdb`, `/symbols/lib.pdb/${key.toUpperCase()}/LIB.PDB`])
    for (const method of ['GET', 'HEAD']) {
      const answer = await ask(path, { method });
      t.deepEqual(answer.needs, ['read', undefined, undefined, { anyUser: true }]);
      t.is(answer.status, 200);
      t.deepEqual(
        ['content-type', 'cache-control', 'cache-status', 'content-length', 'accept-ranges'].map((name) =>
          answer.headers.get(name),
        ),
        ['application/octet-stream', immutable, 'entrepot; hit; detail=hosted', String(pdb.length), null],
      );
      t.deepEqual(answer.body, method === 'GET' ? pdb : Buffer.alloc(0));
      t.is(answer.context.sent, method === 'GET' ? pdb.length : 0);
    }
  t.deepEqual(asked, []);
  const missing = [599, 'NotFound', 'There are no symbols of this file in this feed or its upstreams.'];
  t.deepEqual(failed(await ask(`/symbols/lib.pdb/${key}/other.pdb`)), missing);
  t.deepEqual(asked, []);
  t.deepEqual(failed(await ask('/symbols/Lib.pdb/00/lib.pdb', { headers: { symbolchecksum: 'sha256:a' } })), missing);
  t.deepEqual(failed(await ask('/symbols/lib.PDB/00/Lib.pdb')), missing);
  t.deepEqual(asked, [
    [1, 'Lib.pdb', '00', 'sha256:a'],
    [1, 'lib.PDB', '00', undefined],
  ]);
  t.deepEqual(await hosted.store.blobs.stagedIds(), []);
});

test('symbols of upstreams are sent with ranges, and asked for by names that the reader may read', async (t) => {
  const asked: string[] = [];
  const symbols = {
    open: (_account: number, file: string) => {
      asked.push(file);
      return Promise.resolve({ outcome: 'miss', content: contentOf(Buffer.from('0123456789')) });
    },
  };
  const names = { of: () => new NameSet(['lib', 'app.pdb.x']) };
  const { ask, push } = await publishing(t, { symbols, principal: { ...everyone, names } });
  const answer = await ask('/symbols/LIB.PDB/00/Lib.pdb', { headers: { range: 'bytes=2-4' } });
  t.deepEqual([answer.status, answer.body.toString()], [206, '234']);
  t.deepEqual(
    ['content-type', 'cache-control', 'cache-status'].map((name) => answer.headers.get(name)),
    ['application/octet-stream', immutable, 'entrepot; fwd=miss; stored'],
  );
  t.is((await ask('/symbols/app.pdb.x/00/app.pdb.x')).status, 200);
  for (const file of ['other.pdb', 'libx', 'lib.pdbx', 'xlib.pdb'])
    t.is((await ask(`/symbols/${file}/00/${file}`)).status, 599);
  t.deepEqual(asked, ['LIB.PDB', 'app.pdb.x']);
  await push({ id: 'Lib' });
  await push(await makeSnupkg({ id: 'Lib', files: { 'Lib.pdb': makePdb(guid) } }), '/symbols');
  const hosted = 'entrepot; hit; detail=hosted';
  t.is((await ask(`/symbols/lib.pdb/${key}/lib.pdb`)).headers.get('cache-status'), hosted);
});

test('a reader of mirrored content gets no hosted symbols', async (t) => {
  const { ask, hosted } = await publishing(t, { principal: { kind: 'anonymous', reads: 'mirrored', accountId: 1 } });
  await hosted.push({ id: 'Lib' });
  await hosted.pushSymbols({ id: 'Lib', files: { 'Lib.pdb': makePdb(guid) } });
  t.is((await ask(`/symbols/lib.pdb/${key}/lib.pdb`)).status, 599);
});

test('symbols that are damaged in the storage are an error while they are sent', async (t) => {
  const { hosted, ask, ended, failure } = await publishing(t);
  await hosted.push({ id: 'Lib' });
  const text = Array.from({ length: 8000 }, (_, index) => digestOf(String(index))).join('');
  const pdb = Buffer.concat([makePdb(guid), Buffer.from(text)]);
  const snupkg = await hosted.pushSymbols({ id: 'Lib', files: { 'Lib.pdb': pdb } });
  const path = hosted.store.driver.pathOf(digestOf(snupkg));
  const stored = await readFile(path);
  await writeFile(path, stored.fill(0xff, 150_000, 170_000));
  await t.throwsAsync(async () => void (await ask(`/symbols/lib.pdb/${key}/lib.pdb`)));
  await until(() => Promise.resolve(ended() === 1));
  t.true(isDomainError(failure(), 'PackageInvalid'));
});

const form = { 'content-type': 'multipart/form-data; boundary=x' };

/** An upload of these bytes, and the lengths of its pieces. */
async function upload(hosted: HostedPackages, body: Buffer, headers: Record<string, string>, size = 10) {
  const request = Object.assign(Readable.from([body.subarray(0, 3), body.subarray(3)]), { headers, complete: true });
  const pieces: number[] = [];
  const staged = await receiveFile(request as never, hosted.store.blobs, { size, idle: 10_000 }, (length) =>
    pieces.push(length),
  );
  const result = [staged.size, await staged.digest('sha256'), await staged.digest('sha512'), pieces];
  await staged.discard();
  return result;
}

test('the body or the file of a form is received, hashed and counted', async (t) => {
  const hosted = await HostedPackages.open(t);
  const bytes = Buffer.from('0123456789');
  const hashes = [10, digestOf(bytes), digestOf(bytes, 'sha512')];
  t.deepEqual(await upload(hosted, bytes, { 'content-length': '10' }), [...hashes, [3, 7]]);
  t.deepEqual(await upload(hosted, bytes, {}), [...hashes, [3, 7]]);
  const { body, type } = packageForm(bytes);
  for (const contentType of [type, type.replace('multipart', 'MULTIPART')])
    t.deepEqual(await upload(hosted, body, { 'content-type': contentType, 'content-length': String(body.length) }), [
      ...hashes,
      [3, body.length - 3],
    ]);
});

test('an upload that is announced as too large, has too much, has nothing, or is no form is refused, and leaves no file', async (t) => {
  const hosted = await HostedPackages.open(t);
  const bytes = Buffer.from('0123456789');
  const refuse = async (body: Buffer, headers: Record<string, string>, error: object) => {
    await t.throwsAsync(upload(hosted, body, headers), error);
    t.deepEqual(await hosted.store.blobs.stagedIds(), []);
  };
  const tooLarge = { name: 'TooLarge', message: 'The package is larger than the 10 bytes allowed here.' };
  await refuse(bytes, { 'content-length': '11' }, tooLarge);
  await refuse(bytes, { ...form, 'content-length': String(11 + multipartOverhead) }, tooLarge);
  await refuse(bytes, { 'content-type': 'x/multipart/y', 'content-length': '11' }, tooLarge);
  await refuse(
    bytes,
    { ...form, 'content-length': String(10 + multipartOverhead) },
    {
      name: 'Invalid',
      message: 'The multipart form is malformed. Send one with a single file.',
    },
  );
  await refuse(Buffer.from('0123456789a'), {}, { name: 'TooLarge' });
  const large = packageForm(Buffer.from('0123456789a'));
  await refuse(large.body, { 'content-type': large.type }, { name: 'TooLarge' });
  const nothing = {
    name: 'Invalid',
    message: 'The request contains no package. Send it as the file of a multipart form.',
  };
  await refuse(Buffer.alloc(0), {}, nothing);
  const empty = packageForm(Buffer.alloc(0));
  await refuse(empty.body, { 'content-type': empty.type }, nothing);
  const one = packageForm(bytes);
  const two = Buffer.concat([one.body.subarray(0, -'--made-boundary--\r\n'.length), one.body]);
  await refuse(two, { 'content-type': one.type }, { name: 'Invalid', message: 'Push one package at a time.' });
});

test('a full disk is told before an upload is read', async (t) => {
  const { feed } = await publishing(t);
  const announced: unknown[][] = [];
  const full = new DomainError('StorageFull', 'full');
  const blobs = {
    stageHosted: (...given: unknown[]) => {
      announced.push(given);
      return Promise.reject(full);
    },
  };
  const request = { headers: { 'content-length': '7' }, on: () => t.fail() };
  await t.throwsAsync(
    receiveFile(request as never, blobs as never, { size: feed.limits.nupkg, idle: 1 }, () => t.fail()),
    { is: full },
  );
  t.deepEqual(announced, [[7, ['sha256', 'sha512']]]);
});

const deprecate = (ask: Awaited<ReturnType<typeof publishing>>['ask'], body: object | string, headers = {}) =>
  ask('/push/LIB/deprecations', {
    method: 'PUT',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });

test('the request of the public gallery deprecates, lists and unlists versions', async (t) => {
  const { ask, hosted } = await publishing(t);
  for (const version of ['1.0.0', '2.0.0']) await hosted.push({ id: 'Lib', version });
  const state = async () =>
    (
      await hosted.rows<{ listed: number; deprecation: string | null }>(
        'SELECT listed, deprecation FROM package_versions ORDER BY sort_key',
      )
    ).map((row) => [row.listed, row.deprecation === null ? null : JSON.parse(row.deprecation)]);
  for (const [body, expected] of [
    [
      { versions: ['1.0'], isLegacy: true },
      [
        [1, { reasons: ['Legacy'] }],
        [1, null],
      ],
    ],
    [
      { versions: ['1.0', '2.0'], hasCriticalBugs: true, isLegacy: false, listedVerb: 'Unchanged' },
      [
        [1, { reasons: ['CriticalBugs'] }],
        [1, { reasons: ['CriticalBugs'] }],
      ],
    ],
    [
      {
        versions: ['2.0'],
        isLegacy: true,
        hasCriticalBugs: true,
        isOther: true,
        message: ' why ',
        alternatePackageId: 'New',
        alternatePackageVersion: '1.02-RC',
        listedVerb: 'Unlist',
        unknown: 1,
      },
      [
        [1, { reasons: ['CriticalBugs'] }],
        [
          0,
          {
            reasons: ['Legacy', 'CriticalBugs', 'Other'],
            message: 'why',
            alternatePackage: { id: 'New', range: '[1.2.0-RC, )' },
          },
        ],
      ],
    ],
    [
      { versions: ['2.0'], isLegacy: true, alternatePackageId: 'New', listedVerb: 'Relist' },
      [
        [1, { reasons: ['CriticalBugs'] }],
        [1, { reasons: ['Legacy'], alternatePackage: { id: 'New', range: '*' } }],
      ],
    ],
    [
      { versions: ['1.0.0', '2.0.0'], isOther: null, message: 'not used', listedVerb: null },
      [
        [1, null],
        [1, null],
      ],
    ],
  ] as const) {
    const answer = await deprecate(ask, body);
    t.deepEqual(answer.needs, ['write']);
    t.deepEqual([answer.status, routeJson(answer)], [200, {}]);
    t.is(answer.context.received, JSON.stringify(body).length);
    t.deepEqual(await state(), expected as never);
  }
});

test('a wrong request for a deprecation is refused with its field, and only who may delete unlists', async (t) => {
  const { ask, hosted } = await publishing(t, {
    principal: { ...everyone, scopes: new Set(['read', 'write']) },
  });
  await hosted.push({ id: 'Lib' });
  const versions = ['1.0.0'];
  const wrong = async (body: object) => {
    const { name, detail } = routeJson(await deprecate(ask, body));
    t.is(name, 'Invalid');
    return detail.errors;
  };
  t.deepEqual(await wrong({ versions, isLegacy: true, alternatePackageVersion: '1.0' }), [
    { field: 'alternatePackageId', message: 'A version of the alternative package needs its ID.' },
  ]);
  t.deepEqual(await wrong({ versions, isLegacy: true, alternatePackageId: 'New', alternatePackageVersion: 'x' }), [
    { field: 'alternatePackageVersion', message: 'The version of the alternative package is not valid.' },
  ]);
  t.deepEqual(await wrong({ versions, isOther: true }), [
    { field: 'message', message: 'The reason Other needs a message.' },
  ]);
  t.deepEqual(
    (await wrong({ versions: Array.from({ length: 1001 }, () => '1.0.0'), isLegacy: true })).map(
      (each: any) => each.field,
    ),
    ['versions'],
  );
  t.deepEqual(
    (await wrong({})).map((each: any) => each.field),
    ['versions'],
  );
  t.deepEqual(
    (await wrong({ versions, listedVerb: 'Hide' })).map((each: any) => each.field),
    ['listedVerb'],
  );
  t.deepEqual(
    (await wrong({ versions, isLegacy: 1 })).map((each: any) => each.field),
    ['isLegacy'],
  );
  const unlisting = await deprecate(ask, { versions, isLegacy: true, listedVerb: 'Unlist' });
  t.is(routeJson(unlisting).name, 'ScopeMissing');
  t.is(routeJson(await deprecate(ask, '{', {})).name, 'Invalid');
  t.is(routeJson(await deprecate(ask, '{}', { 'content-type': 'text/plain' })).name, 'Unsupported');
  t.is(routeJson(await deprecate(ask, { versions, isLegacy: true, message: 'x'.repeat(64 * 1024) })).name, 'TooLarge');
  t.deepEqual(await hosted.rows('SELECT deprecation, listed FROM package_versions'), [
    { deprecation: null, listed: 1 },
  ]);
  t.is((await deprecate(ask, { versions, isLegacy: true, listedVerb: 'Relist' })).status, 200);
});
