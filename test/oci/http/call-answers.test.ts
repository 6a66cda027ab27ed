import { request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import test, { type ExecutionContext } from 'ava';
import { AppResponse } from '../../../src/http/request-context.ts';
import { Sending } from '../../../src/http/sending.ts';
import { nextLink, pageSize, type Handler, type RegistryCall } from '../../../src/oci/http/call.ts';
import { challengeFor, challengeScope } from '../../../src/oci/http/challenge.ts';
import * as content from '../../../src/oci/http/content-routes.ts';
import * as extension from '../../../src/oci/http/extension-routes.ts';
import * as upload from '../../../src/oci/http/upload-routes.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { answerRequests } from '../../support/answers.ts';

// What each route asks of the registry, what it answers, and what usage gets to know, without a registry.

const digest = digestOf('content');
const id = '01234567-89ab-cdef-0123-456789abcdef';

interface Asked {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
}

interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
  failure: DomainError | undefined;
  /** What usage gets to know. */
  seen: { act: unknown; subject: string; version: unknown; received: number };
}

/** Answers requests with one route, as the registry opens them. */
async function routeOf(t: ExecutionContext, handler: Handler, parts: object) {
  const sending = new Sending();
  let failure: DomainError | undefined;
  let seen: Answer['seen'] | undefined;
  const answer = async (request: IncomingMessage, response: AppResponse) => {
    response.sending = sending;
    response.context.subject = 'app';
    const call = {
      request,
      response,
      principal: { kind: 'token', accountId: 7, scopes: new Set(['read', 'write']), names: undefined },
      name: 'app',
      ns: undefined,
      repository: { accountId: 7, name: 'app', place: undefined },
      item: '',
      query: new URL(request.url!, 'http://localhost').searchParams,
      until: undefined,
      limits: { manifest: 1000, uploadIdle: 60_000 },
      quota: { unfinishedOf: ({ accountId }: { accountId: number }) => `allowance of ${accountId}` },
      ...parts,
    } as unknown as RegistryCall;
    try {
      await handler(call);
    } catch (error) {
      failure = error as DomainError;
      request.resume();
      response.writeHead(599).end();
    }
    const { act, subject, version, received } = response.context;
    seen = { act, subject, version, received };
  };
  const port = await answerRequests(t, answer);
  return async (query = '', { method = 'GET', headers = {}, body = '' }: Asked = {}): Promise<Answer> => {
    [failure, seen] = [undefined, undefined];
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const sent = httpRequest({ port, host: '127.0.0.1', path: `/${query}`, method, headers }, resolve);
      sent.on('error', reject).end(body);
    });
    let text = '';
    for await (const piece of response as AsyncIterable<Buffer>) text += String(piece);
    return { status: response.statusCode!, headers: response.headers, body: text, failure, seen: seen! };
  };
}

const common = new Set([
  'date',
  'connection',
  'keep-alive',
  'x-request-id',
  'x-content-type-options',
  'content-security-policy',
]);

/** The headers of an answer that the route sets. */
function own(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !common.has(name)));
}

const sizeOf = (query: string) => pageSize(new URLSearchParams(query), 100);
const tagsIn = (count: number) => `?${Array.from({ length: count }, (_, at) => `tag=t${at}`).join('&')}`;
const nextOf = (n: number, last: string) => `</v2/_catalog?n=${n}&last=${last}>; rel="next"`;

/** A function that notes what it gets. */
function noting<T>(calls: unknown[][], result: T) {
  return (...all: unknown[]) => {
    calls.push(all);
    return result instanceof Error ? Promise.reject(result) : Promise.resolve(result);
  };
}

test('a page has the size that the client names, up to the most', (t) => {
  t.deepEqual(
    ['', 'n=', 'n=0', 'n=007', 'n=99', 'n=100', 'n=101', 'n=999999999999999'].map(sizeOf),
    [100, 100, 0, 7, 99, 100, 100, 100],
  );
  for (const bad of ['n=-1', 'n=1x', 'n=x1', 'n=1.0', 'n=%201', 'n=1000000000000000'])
    t.throws(() => sizeOf(bad), { name: 'Invalid' }, bad);
});

test('a link to the next page has all that is defined', (t) => {
  t.deepEqual(nextLink('/v2/a/b', { n: 0, last: 'a&b', ns: undefined, empty: '' }), {
    Link: '</v2/a/b?n=0&last=a%26b&empty=>; rel="next"',
  });
});

test('a challenge is Basic, or Bearer with the scope of the request for servers with anonymous reads', (t) => {
  t.is(challengeFor('https://example.com:8443', 'x', false), 'Basic realm="Entrepot"');
  const bearer = 'Bearer realm="https://example.com:8443/token",service="example.com:8443"';
  t.is(challengeFor('https://example.com:8443', undefined, true), bearer);
  t.is(challengeFor('https://example.com:8443', 'repository:a:pull', true), `${bearer},scope="repository:a:pull"`);
  const target = { kind: 'manifest' as const, name: 'team/a_b-c.d0', item: 'x' };
  for (const [method, actions] of [
    [undefined, 'pull'],
    ['GET', 'pull'],
    ['HEAD', 'pull'],
    ['DELETE', 'delete'],
    ['PUT', 'pull,push'],
    ['POST', 'pull,push'],
    ['PATCH', 'pull,push'],
  ] as const)
    t.is(challengeScope(target, method), `repository:team/a_b-c.d0:${actions}`);
  t.is(challengeScope({ kind: 'catalog', name: '', item: '' }, 'GET'), 'registry:catalog:*');
  for (const name of ['', 'A', 'a"b', 'a,b', 'a:b', 'ä', 'a\n'])
    t.is(challengeScope({ ...target, name }, 'GET'), undefined, name);
});

test('a blob is answered from its source, under the name it has there', async (t) => {
  const calls: unknown[][] = [];
  const blob = { served: 'hit', content: contentOf(Buffer.from('content')), repository: 'upstream/app' };
  const repository = { accountId: 7, name: 'app' };
  const route = await routeOf(t, content.getBlob, {
    item: digest,
    repository,
    readable: { openBlob: noting(calls, blob) },
  });
  const headers = {
    'cache-status': 'entrepot; hit',
    'content-type': 'application/octet-stream',
    'docker-content-digest': digest,
    etag: `"${digest}"`,
    'accept-ranges': 'bytes',
  };
  const whole = await route();
  t.deepEqual([whole.status, whole.body, own(whole.headers)], [200, 'content', { ...headers, 'content-length': '7' }]);
  t.deepEqual(whole.seen, { act: undefined, subject: 'upstream/app', version: undefined, received: 0 });
  const part = await route('', { headers: { range: 'bytes=1-2' } });
  t.deepEqual([part.status, part.body, part.headers['content-range']], [206, 'on', 'bytes 1-2/7']);
  t.is((await route('', { method: 'HEAD' })).body, '');
  t.deepEqual(calls, [
    [repository, digest, false],
    [repository, digest, false],
    [repository, digest, true],
  ]);
  const bad = await routeOf(t, content.getBlob, { item: 'sha256:x' });
  t.is((await bad()).failure?.name, 'DigestInvalid');
});

test('a manifest of an image is a download, an index or a HEAD is none', async (t) => {
  for (const [mediaType, method, act, version] of [
    [mediaTypes.image, 'GET', 'download', digest],
    [mediaTypes.index, 'GET', undefined, digest],
    [mediaTypes.dockerList, 'GET', undefined, digest],
    [mediaTypes.image, 'HEAD', 'version-check', undefined],
    [mediaTypes.index, 'HEAD', 'version-check', undefined],
  ] as const) {
    const calls: unknown[][] = [];
    const repository = { accountId: 7, name: 'app' };
    const manifest = { served: 'hosted', digest, mediaType, content: contentOf(Buffer.from('{}')), repository: 'own' };
    const parts = { item: 'v1', repository, readable: { openManifest: noting(calls, manifest) } };
    const answer = await (await routeOf(t, content.getManifest, parts))('', { method });
    t.deepEqual(own(answer.headers), {
      'cache-status': 'entrepot; hit; detail=hosted',
      'content-type': mediaType,
      'docker-content-digest': digest,
      etag: `"${digest}"`,
      'content-length': '2',
    });
    t.deepEqual(answer.seen, { act, subject: 'own', version, received: 0 });
    t.deepEqual(calls, [[repository, { tag: 'v1' }, method === 'HEAD']]);
  }
  const dated = { served: 'hit', digest, mediaType: 'x', content: contentOf(Buffer.from('')), firstSeenAt: 0 };
  const parts = { item: digest, readable: { openManifest: () => Promise.resolve(dated) } };
  const answer = await (await routeOf(t, content.getManifest, parts))();
  t.is(answer.headers['last-modified'], 'Thu, 01 Jan 1970 00:00:00 GMT');
  for (const [item, name, detail] of [
    ['-x', 'ManifestUnknown', { tag: '-x' }],
    ['y'.repeat(200), 'ManifestUnknown', { tag: 'y'.repeat(160) }],
    ['sha256:y', 'DigestInvalid', { digest: 'sha256:y' }],
    ['-x:y', 'DigestInvalid', { digest: '-x:y' }],
  ] as const)
    for (const handler of [content.getManifest, content.answerDelete]) {
      const { failure } = await (await routeOf(t, handler, { item, images: { manifests: {} }, readable: {} }))();
      t.deepEqual([failure?.name, failure?.detail], [name, detail]);
    }
});

test('a push of a manifest has its tags once, and says where it is', async (t) => {
  const calls: unknown[][] = [];
  const push = (result: object) => ({ push: noting(calls, { digest, ...result }) });
  const [subject, warning] = [digestOf('subject'), 'it is old'];
  const tagged = await routeOf(t, content.putManifest, { item: 'v1', pushes: push({ subject, warning }) });
  const sent = { method: 'PUT', headers: { 'content-type': 'application/x' }, body: 'body' };
  const answer = await tagged('?tag=v2&tag=v1&tag=v2', sent);
  const place = { location: `/v2/app/manifests/${digest}`, 'docker-content-digest': digest, 'content-length': '0' };
  t.deepEqual(
    [answer.status, own(answer.headers)],
    [201, { ...place, 'oci-subject': subject, warning: '299 - "it is old"', 'oci-tag': 'v1, v2' }],
  );
  t.deepEqual(answer.seen, { act: 'upload', subject: 'app', version: digest, received: 4 });
  const plain = await routeOf(t, content.putManifest, { item: digest, pushes: push({}) });
  t.deepEqual(own((await plain('', { method: 'PUT', body: '12' })).headers), place);
  t.deepEqual(calls, [
    [7, 'app', { tags: ['v1', 'v2'], digest: undefined, bytes: Buffer.from('body'), contentType: 'application/x' }],
    [7, 'app', { tags: [], digest, bytes: Buffer.from('12'), contentType: undefined }],
  ]);
  t.is((await plain(tagsIn(50), sent)).status, 201);
  t.is((await tagged(tagsIn(49), sent)).status, 201);
  for (const [route, count] of [
    [plain, 51],
    [tagged, 50],
  ] as const) {
    const { failure } = await route(tagsIn(count), sent);
    t.deepEqual([failure?.name, failure?.detail], ['TagInvalid', { tags: 51, most: 50 }]);
  }
  t.is((await plain('?tag=-x', sent)).failure?.name, 'TagInvalid');
  t.is((await plain('', { ...sent, body: 'x'.repeat(1001) })).failure?.name, 'TooLarge');
  t.is(calls.length, 4);
});

test('a deletion is of a tag, a manifest or a blob of the account', async (t) => {
  const calls: unknown[][] = [];
  const images = { manifests: { delete: noting(calls, undefined) }, blobs: { delete: noting(calls, undefined) } };
  for (const [handler, item] of [
    [content.answerDelete, 'v1'],
    [content.answerDelete, digest],
    [content.deleteBlob, digest],
  ] as const) {
    const { status, headers } = await (await routeOf(t, handler, { images, item }))('', { method: 'DELETE' });
    t.deepEqual([status, own(headers)], [202, { 'content-length': '0' }]);
  }
  t.deepEqual(calls, [
    [7, 'app', { tag: 'v1' }],
    [7, 'app', { digest }],
    [7, 'app', digest],
  ]);
});

test('a list of tags links to its next page, if it has one and is not empty', async (t) => {
  const calls: unknown[][] = [];
  let page: object = { served: 'stale', items: ['a', 'b'], more: true };
  const readable = { listTags: (...all: unknown[]) => (calls.push(all), Promise.resolve(page)) };
  const repository = { accountId: 7, name: 'app' };
  const route = await routeOf(t, content.answerTags, { readable, repository, ns: 'example.com' });
  const first = await route('?n=2&last=A');
  t.deepEqual(JSON.parse(first.body), { name: 'app', tags: ['a', 'b'] });
  t.deepEqual(first.seen, { act: 'version-check', subject: 'app', version: undefined, received: 0 });
  t.is(first.headers.link, '</v2/app/tags/list?n=2&last=b&ns=example.com>; rel="next"');
  t.is(first.headers['cache-status'], 'entrepot; hit; detail=stale');
  t.is((await route('?n=0')).headers.link, undefined);
  page = { served: 'hit', items: ['a', 'b'], more: false };
  t.is((await route('?n=10001')).headers.link, undefined);
  t.deepEqual(calls, [
    [repository, 2, 'A'],
    [repository, 0, ''],
    [repository, 10_000, ''],
  ]);
  t.is((await route('?last=-a')).failure?.name, 'Invalid');
});

test('a list of repositories has those of all accounts that the client may read, each once', async (t) => {
  const calls: unknown[][] = [];
  const pages: Record<number, { items: string[]; more: boolean }> = {
    7: { items: ['b', 'd', 'e'], more: false },
    8: { items: ['a', 'b', 'c'], more: false },
  };
  const catalog = (...all: [number, ...unknown[]]) => (calls.push(all), Promise.resolve(pages[all[0]]!));
  const shared = { lists: () => [{ accountId: 8, only: 'some names' }] };
  const principal = { kind: 'token', accountId: 7, names: undefined, shared };
  const parts = { images: { repositories: { catalog } }, principal };
  const route = await routeOf(t, content.listRepositories, parts);
  const linked = async (query: string) => {
    const { body, headers } = await route(query);
    return [(JSON.parse(body) as { repositories: string[] }).repositories, headers.link] as const;
  };
  t.deepEqual(await linked('?n=4&last=aa'), [['a', 'b', 'c', 'd'], nextOf(4, 'd')]);
  t.deepEqual(await linked('?n=5'), [['a', 'b', 'c', 'd', 'e'], undefined]);
  pages[8]!.more = true;
  t.deepEqual(await linked('?n=5'), [['a', 'b', 'c', 'd', 'e'], nextOf(5, 'e')]);
  t.deepEqual(await linked('?n=0'), [[], undefined]);
  t.deepEqual(calls.slice(0, 2), [
    [7, 4, 'aa', undefined],
    [8, 4, 'aa', 'some names'],
  ]);
  t.deepEqual(calls.at(-1), [8, 0, '', 'some names']);
  t.is((await route('?last=A')).failure?.name, 'NameInvalid');
  const asked = calls.length;
  const mirrored = { kind: 'anonymous', reads: 'mirrored', accountId: 7 };
  const other = await (await routeOf(t, content.listRepositories, { ...parts, principal: mirrored }))();
  t.deepEqual([JSON.parse(other.body), calls.length], [{ repositories: [] }, asked]);
  t.is(other.headers['cache-status'], 'entrepot; hit; detail=hosted');
});

test('a list of referrers is an index, and counts for a repository only if it has some', async (t) => {
  const calls: unknown[][] = [];
  const descriptors = [{ mediaType: 'application/x', digest, size: 1 }];
  let page: object = { served: 'hit', descriptors, next: digest };
  const readable = { listReferrers: (...all: unknown[]) => (calls.push(all), Promise.resolve(page)) };
  const repository = { accountId: 7, name: 'app' };
  const route = await routeOf(t, content.listReferrers, { item: digest, readable, repository, ns: 'example.com' });
  const first = await route(`?n=5&artifactType=a/b&last=${digest}`);
  t.deepEqual(JSON.parse(first.body), { schemaVersion: 2, mediaType: mediaTypes.index, manifests: descriptors });
  const { 'content-length': length, ...rest } = own(first.headers);
  t.is(length, String(first.body.length));
  const last = encodeURIComponent(digest);
  t.deepEqual(rest, {
    'cache-status': 'entrepot; hit',
    'content-type': mediaTypes.index,
    'oci-filters-applied': 'artifactType',
    link: `</v2/app/referrers/${digest}?artifactType=a%2Fb&n=5&last=${last}&ns=example.com>; rel="next"`,
  });
  t.is(first.seen.subject, 'app');
  const all = await route('?artifactType=');
  t.is(all.headers.link, `</v2/app/referrers/${digest}?last=${last}&ns=example.com>; rel="next"`);
  t.is(all.headers['oci-filters-applied'], undefined);
  page = { served: 'hosted', descriptors: [], next: undefined };
  const empty = await route('?n=0');
  t.deepEqual([empty.seen.subject, empty.headers.link], ['', undefined]);
  t.deepEqual(calls, [
    [repository, digest, { artifactType: 'a/b', limit: 5, last: digest }],
    [repository, digest, { artifactType: undefined, limit: 1000, last: '' }],
    [repository, digest, { artifactType: undefined, limit: 1, last: '' }],
  ]);
  t.is((await route('?last=x')).failure?.name, 'DigestInvalid');
  t.is((await (await routeOf(t, content.listReferrers, { item: 'x' }))()).failure?.name, 'DigestInvalid');
});

test('the history of a tag is an index of the lines that the client wants', async (t) => {
  const calls: unknown[][] = [];
  const descriptors = [{ mediaType: 'application/x', digest, size: 1 }];
  let page: object = { descriptors, next: 0 };
  const history = { page: (...all: unknown[]) => (calls.push(all), Promise.resolve(page)) };
  const repository = { accountId: 7, name: 'app', place: undefined as unknown };
  const parts = { item: 'v1', history, repository, ns: 'example.com' };
  const route = await routeOf(t, extension.listTagHistory, parts);
  const [since, before] = ['2020-01-01T00:00:00Z', '2020-01-02t00:00:00z'];
  const query = `?n=3&last=012&since=${since}&before=${before}&digest=${digest}`;
  const first = await route(query);
  t.deepEqual(JSON.parse(first.body), { schemaVersion: 2, mediaType: mediaTypes.index, manifests: descriptors });
  const link = new URLSearchParams({ n: '3', last: '0', since, before, digest, ns: 'example.com' });
  t.is(first.headers.link, `</v2/app/_oci/tag-history/v1?${String(link)}>; rel="next"`);
  t.deepEqual(
    [first.headers['cache-status'], first.headers['content-type']],
    ['entrepot; hit; detail=hosted', mediaTypes.index],
  );
  t.deepEqual(first.seen, { act: 'version-check', subject: 'app', version: undefined, received: 0 });
  page = { descriptors: [], next: undefined };
  repository.place = {};
  const empty = await route('?n=&last=&since=&before=&digest=');
  t.deepEqual([empty.seen.subject, empty.headers.link], ['', undefined]);
  t.is(empty.headers['cache-status'], 'entrepot; hit');
  const day = 86_400_000;
  const wanted = { after: undefined, since: undefined, before: Infinity, digest: undefined };
  const [from, to] = [Date.parse(since), Date.parse(since) + day];
  const past = await routeOf(t, extension.listTagHistory, { ...parts, until: to + 5 });
  await past();
  await past(`?before=${before}`);
  await past(`?before=2020-01-03T00:00:00Z`);
  t.deepEqual(calls, [
    [repository, 'v1', { after: 12, since: from, before: to, digest }, 3],
    [repository, 'v1', wanted, 1000],
    [repository, 'v1', { ...wanted, before: to + 6 }, 1000],
    [repository, 'v1', { ...wanted, before: to }, 1000],
    [repository, 'v1', { ...wanted, before: to + 6 }, 1000],
  ]);
  for (const bad of [
    'last=x',
    'last=1x',
    'last=x1',
    'last=1234567890123456',
    'since=2020-01-01',
    'since=x2020-01-01T00:00:00Z',
    'before=2020-13-01T00:00:00Z',
  ])
    t.is((await route(`?${bad}`)).failure?.name, 'Invalid', bad);
  t.is((await route('?digest=x')).failure?.name, 'DigestInvalid');
  t.is((await (await routeOf(t, extension.listTagHistory, { item: '-x' }))()).failure?.name, 'TagInvalid');
});

test('the answers without a repository are hosted', async (t) => {
  const probe = await (await routeOf(t, content.probe, {}))();
  t.deepEqual([probe.status, probe.body, probe.headers['cache-status']], [200, '{}', 'entrepot; hit; detail=hosted']);
  const discovery = await (await routeOf(t, extension.discover, {}))();
  const { extensions } = JSON.parse(discovery.body) as { extensions: { name: string; endpoints: string[] }[] };
  t.deepEqual(
    extensions.map(({ name, endpoints }) => [name, endpoints]),
    [['_oci', ['/v2/_oci/ext/discover', '/v2/<name>/_oci/ext/discover', '/v2/<name>/_oci/tag-history/<tag>']]],
  );
  t.is(discovery.headers['cache-status'], 'entrepot; hit; detail=hosted');
});

/** The parts of a registry for uploads, and what they were asked. */
function uploadParts(mounted = false) {
  const calls: unknown[][] = [];
  const named =
    (name: string, result?: unknown) =>
    (...all: unknown[]) => {
      calls.push([name, ...all]);
      return Promise.resolve(result);
    };
  const images = {
    examine: named('examine'),
    blobs: { mount: named('mount', mounted) },
    uploads: { start: named('start', id), whole: named('whole') },
  };
  const uploads = {
    append: named('append', 12),
    finish: named('finish'),
    received: named('received', 0),
    cancel: named('cancel'),
  };
  const source = { hosted: named('hosted', { name: 'hosted/source' }) };
  return { calls, parts: { images, uploads, source, item: id } };
}

/** What a chunk says of itself. */
function saidIn(chunk: unknown) {
  const { start, length, size, allowance } = chunk as Record<string, unknown>;
  return { start, length, size, allowance };
}

const session = (range: string) => ({
  location: `/v2/app/blobs/uploads/${id}`,
  range,
  'docker-upload-uuid': id,
});
const key = { accountId: 7, repository: 'app', id };
const created = { location: `/v2/app/blobs/${digest}`, 'docker-content-digest': digest, 'content-length': '0' };
const allowance = 'allowance of 7';

test('a POST is a mount, a whole blob or a session', async (t) => {
  const post = { method: 'POST' };
  const begun = { ...session('0-0'), 'content-length': '0' };
  for (const [query, isMounted, status, headers, subject, asked] of [
    ['', false, 202, begun, '', [['start', 7, 'app', 'sha256']]],
    ['?digest-algorithm=sha512', false, 202, begun, '', [['start', 7, 'app', 'sha512']]],
    [
      `?mount=${digest}`,
      true,
      201,
      created,
      'app',
      [
        ['examine', 'app', [digest]],
        ['mount', 7, 'app', digest, undefined, undefined],
      ],
    ],
    [
      `?mount=${digest}&from=source`,
      false,
      202,
      begun,
      '',
      [
        ['examine', 'app', [digest]],
        ['hosted', { accountId: 7, name: 'source', place: undefined, ns: undefined }],
        ['mount', 7, 'app', digest, 'hosted/source', undefined],
        ['start', 7, 'app', 'sha256'],
      ],
    ],
    [
      `?mount=${digest}&from=No`,
      true,
      202,
      begun,
      '',
      [
        ['examine', 'app', [digest]],
        ['start', 7, 'app', 'sha256'],
      ],
    ],
    [`?mount=x&digest=${digest}`, true, 202, begun, '', [['start', 7, 'app', 'sha256']]],
  ] as const) {
    const { calls, parts } = uploadParts(isMounted);
    const answer = await (await routeOf(t, upload.startUpload, parts))(query, post);
    t.deepEqual([answer.status, own(answer.headers)], [status, headers], query);
    t.is(answer.seen.subject, subject, query);
    t.deepEqual(calls, asked as never, query);
  }
  const { calls, parts } = uploadParts(true);
  const writer = { kind: 'token', accountId: 7, scopes: new Set(['write']) };
  await (
    await routeOf(t, upload.startUpload, { ...parts, principal: writer })
  )(`?mount=${digest}`, post);
  t.deepEqual(
    calls.map(([name]) => name),
    ['examine', 'start'],
    'a mount needs the right to read',
  );
  const limited = { ...writer, scopes: new Set(['read', 'write']), names: { of: (kind: string) => `names: ${kind}` } };
  await (
    await routeOf(t, upload.startUpload, { ...parts, principal: limited })
  )(`?mount=${digest}`, post);
  t.deepEqual(calls.at(-1), ['mount', 7, 'app', digest, undefined, 'names: container']);
  const whole = uploadParts();
  const route = await routeOf(t, upload.startUpload, whole.parts);
  const answer = await route(`?digest=${digest}`, { ...post, body: '1234', headers: { 'content-length': '4' } });
  t.deepEqual([answer.status, own(answer.headers), answer.seen.subject], [201, created, 'app']);
  const [examine, [, , , , chunk]] = whole.calls as [unknown[], unknown[]];
  t.deepEqual(examine, ['examine', 'app', [digest]]);
  t.deepEqual(whole.calls[1]!.slice(0, 4), ['whole', 7, 'app', digest]);
  t.deepEqual(saidIn(chunk), { start: undefined, length: undefined, size: 4, allowance });
  for (const bad of ['?digest=x', '?digest-algorithm=md5'])
    t.is((await route(bad, post)).failure?.name, 'DigestInvalid', bad);
});

test('a chunk says where it belongs, and a wrong one is refused', async (t) => {
  const { calls, parts } = uploadParts();
  const route = await routeOf(t, upload.patchUpload, parts);
  const patch = (headers: Record<string, string>, body = '') => route('', { method: 'PATCH', headers, body });
  for (const [range, start, length] of [
    [undefined, undefined, undefined],
    ['0-3', 0, 4],
    ['10-13', 10, 4],
    ['bytes 0-3/*', 0, 4],
    ['bytes=4-7', 4, 4],
    ['bytes 4-7/100', 4, 4],
  ] as const) {
    const answer = await patch(
      { 'content-length': '4', ...(range !== undefined && { 'content-range': range }) },
      '1234',
    );
    t.deepEqual([answer.status, own(answer.headers)], [202, { ...session('0-11'), 'content-length': '0' }], range);
    const [name, given, chunk] = calls.at(-1)!;
    t.deepEqual([name, given, saidIn(chunk)], ['append', key, { start, length, size: 4, allowance }], range);
  }
  t.is((await patch({ 'transfer-encoding': 'chunked', 'content-range': '5-4' })).status, 202, 'no bytes');
  t.deepEqual(saidIn(calls.at(-1)![2]), { start: 5, length: 0, size: 0, allowance });
  const asked = calls.length;
  for (const [range, size, name] of [
    ['5-3', '0', 'UploadInvalid'],
    ['x0-3', '4', 'UploadInvalid'],
    ['0-3x', '4', 'UploadInvalid'],
    ['0-', '4', 'UploadInvalid'],
    ['-3', '4', 'UploadInvalid'],
    ['0-3/', '4', 'UploadInvalid'],
    ['0-4', '4', 'LengthInvalid'],
    ['0-2', '4', 'LengthInvalid'],
    ['0-1234567890123456', '4', 'UploadInvalid'],
  ] as const) {
    const { failure } = await patch({ 'content-length': size, 'content-range': range }, size === '4' ? '1234' : '');
    t.is(failure?.name, name, range);
  }
  const unknown = await (await routeOf(t, upload.patchUpload, { ...parts, item: 'x'.repeat(40) }))();
  t.deepEqual([unknown.failure?.name, unknown.failure?.detail], ['UploadUnknown', { upload: 'x'.repeat(36) }]);
  t.is(calls.length, asked);
  const counting = {
    ...parts.uploads,
    append: (_key: unknown, { onData }: { onData: (bytes: number) => void }) => {
      onData(3);
      onData(4);
      return Promise.resolve(1);
    },
  };
  const counted = await (await routeOf(t, upload.patchUpload, { ...parts, uploads: counting }))();
  t.deepEqual([counted.headers['range'], counted.seen.received, counted.seen.subject], ['0-0', 7, 'app']);
});

test('an upload is finished with its digest, asked for its state, or cancelled', async (t) => {
  const { calls, parts } = uploadParts();
  const finish = await routeOf(t, upload.finishUpload, parts);
  const finished = await finish(`?digest=${digest}`, { method: 'PUT', headers: { 'content-range': '3-2' } });
  t.deepEqual([finished.status, own(finished.headers)], [201, created]);
  t.deepEqual(calls[0], ['examine', 'app', [digest]]);
  t.deepEqual(calls[1]!.slice(0, 3), ['finish', key, digest]);
  t.deepEqual(saidIn(calls[1]![3]), { start: 3, length: 0, size: 0, allowance });
  for (const bad of ['', '?digest=', '?digest=x']) t.is((await finish(bad)).failure?.name, 'DigestInvalid', bad);
  calls.length = 0;
  const state = await (await routeOf(t, upload.getUpload, parts))();
  t.deepEqual(
    [state.status, own(state.headers), state.seen.subject],
    [204, { ...session('0-0'), 'cache-status': 'entrepot; hit; detail=hosted' }, ''],
  );
  const cancelled = await (await routeOf(t, upload.cancelUpload, parts))('', { method: 'DELETE' });
  t.deepEqual([cancelled.status, own(cancelled.headers), cancelled.seen.subject], [204, {}, '']);
  t.deepEqual(calls, [
    ['received', key],
    ['cancel', key],
  ]);
});

test('a chunk out of order is answered with the place to continue, and no other error', async (t) => {
  for (const [error, headers] of [
    [new DomainError('UploadOutOfOrder', 'not here', { detail: { received: 9 } }), session('0-8')],
    [new DomainError('UploadBusy', 'not now', { detail: { received: 9 } }), {}],
  ] as const) {
    const failing = () => Promise.reject(error);
    const parts = { ...uploadParts().parts, uploads: { append: failing, finish: failing } };
    for (const [handler, query] of [
      [upload.patchUpload, ''],
      [upload.finishUpload, `?digest=${digest}`],
    ] as const) {
      const answer = await (await routeOf(t, handler, parts))(query);
      t.is(answer.failure, error);
      const { 'transfer-encoding': _, 'content-length': __, ...rest } = own(answer.headers);
      t.deepEqual(rest, headers);
    }
  }
});
