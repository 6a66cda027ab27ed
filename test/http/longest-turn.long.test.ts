import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { fillLargeStore, type large } from '../support/large-store.ts';
import { inParts, longestAllowed, longestTurn, longestTurnOf } from '../support/longest-turn.ts';
import { slowTexts } from '../support/policy-texts.ts';
import { digestOf } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

// In a process of its own: it measures the process.

// No request may hold the event loop for 50 ms, whatever a client sends and however many rows there are: see SECURITY.md.
// test/nuget/feed/longest-turn.long.test.ts has the package feed.

/** One request, which is repeated, except DELETE; `path` is a function where each repetition needs another name. */
interface Sent {
  method: string;
  path: string | (() => string);
  headers?: Record<string, string>;
  body?: string | Buffer;
  /** Its status; by default of a GET 200 and of a DELETE 204. Bodies that mean nothing are refused by 4xx. */
  status?: number;
}

/** What has no such object in the store. */
const unknown = new Set([
  'GET /v1/prefetch/{id}',
  'GET /v1/imports/{id}',
  'GET /v1/imports/{id}/problems',
  'DELETE /v1/imports/{id}',
  'GET /v1/client-checks/{id}',
  'GET /v1/bundles/{id}',
  'GET /v1/bundles/imports/{id}',
  'GET /v1/bundles/{id}/segments/{number}',
  'GET /v1/packages/{id}/{version}/icon',
  'GET /v1/upstreams/{id}',
  'GET /v1/upstreams/{id}/entries',
  'GET /v1/upstreams/{id}/history',
  'GET /v1/upstreams/{id}/entries/{entry}',
  'DELETE /v1/upstreams/{id}/entries/{entry}',
  'DELETE /v1/advisories/{id}',
  'DELETE /v1/claims/package/{name}',
  'DELETE /v1/claims/container/{name}',
  'DELETE /v1/sessions/{id}',
  'DELETE /v1/prefetch/{id}',
  'DELETE /v1/bundles/{id}',
  'DELETE /v1/bundles/imports/{id}',
  'DELETE /v1/bundles/keys/{id}',
  'GET /v1/promotions/{id}',
  'DELETE /v1/grants/{id}',
  'GET /v1/grants/{id}',
  'GET /v1/people/{id}',
  'GET /v1/waivers/{id}',
  'DELETE /v1/waivers/{id}',
  'DELETE /v1/deleted/{id}',
]);

/** What only a person may do. */
const refused = new Set(['GET /v1/me/tokens', 'DELETE /v1/me/tokens/{id}']);

const mebibyte = 1024 ** 2;
const image = 'application/vnd.oci.image.manifest.v1+json';
const index = 'application/vnd.oci.image.index.v1+json';
const digest = (number: number) => `sha256:${number.toString(16).padStart(64, '0')}`;
const described = (number: number) => ({ mediaType: 'application/x', digest: digest(number), size: 1 });

/** JSON with as many of `each` as fit into `bytes`. */
function filled(bytes: number, before: string, each: (number: number) => string, after: string): string {
  const parts: string[] = [];
  let size = before.length + after.length;
  for (let number = 1; ; number += 1) {
    const part = each(number);
    size += part.length + 1;
    if (size > bytes) break;
    parts.push(part);
  }
  return before + parts.join(',') + after;
}

/** The largest manifests, by kind. Most are refused, which must be quick, too. */
function manifests(): Record<string, { type: string; body: string }> {
  const size = 4 * mebibyte;
  const config = JSON.stringify(described(0));
  const layer = (number: number) => JSON.stringify(described(number));
  const start = `{"schemaVersion":2,"mediaType":"${image}","config":${config},`;
  const startIndex = `{"schemaVersion":2,"mediaType":"${index}",`;
  return {
    layers: { type: image, body: filled(size, `${start}"layers":[`, layer, ']}') },
    entries: { type: index, body: filled(size, `${startIndex}"manifests":[`, layer, ']}') },
    '1,000 layers': { type: image, body: filled(130_000, `${start}"layers":[`, layer, ']}') },
    '1,000 entries': { type: index, body: filled(130_000, `${startIndex}"manifests":[`, layer, ']}') },
    annotations: {
      type: index,
      body: filled(size, `${startIndex}"manifests":[],"annotations":{`, (number) => `"${number}":"x"`, '}}'),
    },
    'nested arrays': {
      type: image,
      body: `${start}"layers":${'['.repeat(size / 2 - 200)}${']'.repeat(size / 2 - 200)}}`,
    },
    'unknown fields': {
      type: image,
      body: filled(size, `${start}"layers":[],"x":[`, (number) => `{"${number}":[]}`, ']}'),
    },
    'not JSON': { type: image, body: '{"a":'.repeat(size / 5) },
  };
}

/** Bodies of 64 KiB, for every operation of `/v1`. */
const bodies = {
  'nested arrays': '['.repeat(32_000) + ']'.repeat(32_000),
  'nested objects': '{"a":'.repeat(10_000) + '1' + '}'.repeat(10_000),
  'many keys': filled(64_000, '{', (number) => `"${number}":1`, '}'),
  'many values': filled(64_000, '{"scopes":[', () => '"read"', '],"name":"x","events":["*"]}'),
};

interface Described {
  paths: Record<string, Record<string, { parameters?: { name: string; in: string }[] }>>;
}

/** Every operation of `/v1`, with the names of large content. */
async function operations(server: TestServer, names: typeof large): Promise<Record<string, Sent>> {
  const { paths } = (await (await server.fetch('/v1/openapi.json')).json()) as Described;
  const found: Record<string, Sent> = {};
  for (const [path, methods] of Object.entries(paths)) {
    for (const method of Object.keys(methods)) {
      const filledPath = `/v1${path}`
        .replace('{version}', '1.0.0')
        .replace('{tag}', '2.1')
        .replace(/\{reference\}|\{digest\}/, names.digest)
        .replace('{delivery}', names.delivery)
        .replace('{number}', '1')
        .replace('{entry}', digest(1).slice(7))
        .replace(/(?<=\/claims\/\w+\/)\{name\}/, 'no-claim')
        .replace(/(?<=\/jobs\/)\{name\}/, 'scrub')
        .replace('/v1/clients/{kind}', '/v1/clients/dotnet')
        .replace('{name}', encodeURIComponent(names.image))
        .replace(/(?<=\/packages\/)\{id\}/, names.package)
        .replace(/(?<=\/tokens\/)\{id\}/, names.token)
        .replace(/(?<=\/publishers\/)\{id\}/, names.publisher)
        .replace(/(?<=\/webhooks\/)\{id\}/, names.webhook)
        .replace('{id}', 'unknown');
      const name = `${method.toUpperCase()} /v1${path}`;
      if (method === 'get') {
        const parameters = methods[method]!.parameters ?? [];
        const has = (wanted: string) => parameters.some((each) => each.in === 'query' && each.name === wanted);
        found[name] = {
          method: 'GET',
          path: `${filledPath}?${has('limit') ? 'limit=200' : ''}${has('q') ? '&q=a' : ''}${['/explain', '/uses'].includes(path) ? '&kind=package&name=a' : ''}${path === '/grants/explain' ? '&who=group&id=g&verb=read&kind=package&name=a' : ''}${path === '/grants/entitled' ? '&verb=write&kind=package&name=a' : ''}${path === '/exposed' ? '&what=Lib@*' : ''}${path === '/account/usage' ? '&group_by=package' : ''}`,
        };
      } else if (method === 'delete') {
        const query = path.endsWith('/deprecations') ? '?versions=all' : path === '/deleted/{id}' ? '?reason=x' : '';
        found[name] = { method: 'DELETE', path: filledPath + query };
      } else {
        for (const [kind, body] of Object.entries(bodies))
          found[`${name}, ${kind}`] = {
            method: method.toUpperCase(),
            path: filledPath,
            headers: { 'content-type': 'application/json' },
            body,
          };
      }
    }
  }
  return found;
}

const tags = (count: number) => Array.from({ length: count }, (_, number) => `tag=t${number}`).join('&');

/** Requests to the registry, and to `/v1` with values that take long. */
function others(names: typeof large): Record<string, Sent> {
  const empty = JSON.stringify({ schemaVersion: 2, mediaType: index, manifests: [] });
  const json = { 'content-type': 'application/json' };
  let number = 0;
  const tagged = [...names.tagged];
  const patterns = Array.from({ length: 50 }, (_, each) => `${'a'.repeat(240)}${each}*`);
  const put = (query: string): Sent => ({
    method: 'PUT',
    path: `/v2/new/app/manifests/${digestOf(empty)}?${query}`,
    headers: { 'content-type': index },
    body: empty,
  });
  return {
    'PUT manifest, 50 tags': { ...put(tags(50)), status: 201 },
    'PUT manifest, 1,500 tags': { ...put(tags(1500)), status: 400 },
    ...Object.fromEntries(
      Object.entries(manifests()).map(([kind, { type, body }]) => [
        `PUT manifest, ${kind}`,
        { method: 'PUT', path: `/v2/new/app/manifests/large`, headers: { 'content-type': type }, body },
      ]),
    ),
    'POST blob, 32 MiB': {
      method: 'POST',
      path: () => `/v2/new/app/blobs/uploads/?digest=${digest((number += 1))}`,
      body: randomBytes(32 * mebibyte),
    },
    'GET tags, n=20000': { method: 'GET', path: `/v2/${names.image}/tags/list?n=20000` },
    'GET tags': { method: 'GET', path: `/v2/${names.image}/tags/list` },
    'GET catalog': { method: 'GET', path: '/v2/_catalog?n=10000' },
    'GET referrers': { method: 'GET', path: `/v2/${names.image}/referrers/${names.digest}` },
    'GET /v1/containers, tags=1000': { method: 'GET', path: '/v1/containers?limit=200&tags=1000' },
    'GET /v1/audit, a rare type': { method: 'GET', path: '/v1/audit?type=claim.released&limit=200' },
    'POST /v1/webhooks/{id}/redeliver, all': {
      method: 'POST',
      path: `/v1/webhooks/${names.webhook}/redeliver`,
      headers: json,
      body: JSON.stringify({ since: '2000-01-01T00:00:00Z' }),
      status: 200,
    },
    ...Object.fromEntries(
      Object.entries(slowTexts).map(([kind, text]) => [
        `POST /v1/policy/check, ${kind}`,
        { method: 'POST', path: '/v1/policy/check', headers: json, body: JSON.stringify({ text }), status: 400 },
      ]),
    ),
    'POST /v1/tokens, 100 patterns': {
      method: 'POST',
      path: '/v1/tokens',
      headers: json,
      body: JSON.stringify({ name: 'large', scopes: ['read'], patterns: { packages: patterns, containers: patterns } }),
      status: 201,
    },
    'DELETE manifest with 1,900 tags': {
      method: 'DELETE',
      path: () => {
        const { name, digest: own } = tagged.pop()!;
        return `/v2/${name}/manifests/${own}`;
      },
      status: 202,
    },
  };
}

const pages = [
  '/console/',
  '/console/packages',
  '/console/images',
  '/console/tokens',
  '/console/access',
  '/console/people',
  '/console/webhooks',
  '/console/audit',
  '/console/usage',
  '/console/storage?days=365',
  '/console/mirror',
  '/console/jobs',
  '/console/publishers',
  '/console/deleted',
  '/console/permanence',
  '/console/claims',
  '/console/policy',
  '/console/waivers',
  '/console/promotions',
  '/console/prefetch',
  '/console/bundles',
  '/console/bundles?show=keys',
  '/console/connect',
  '/console/failures',
  '/console/risks',
  '/console/access/explain?who=group&id=g&verb=read&kind=package&name=a',
  '/console/access/explain?verb=write&kind=package&name=a',
  '/console/exposed?what=a@*',
  '/console/explain?kind=package&name=a',
  '/console/search?q=app',
];

type Sending = [name: string, sent: Sent, send: (sent: Sent) => Promise<Response>];

const bySend =
  (send: Sending[2]) =>
  ([name, sent]: [string, Sent]): Sending => [name, sent, send];

const isDeletion = ([, { method }]: [string, Sent]) => method === 'DELETE';

async function measure(t: ExecutionContext, requests: readonly Sending[]): Promise<void> {
  const figures: [name: string, longest: number, status: number][] = [];
  for (const [name, sent, send] of requests) {
    const usual: Record<string, number> = { GET: 200, DELETE: 204 };
    const other = refused.has(name) ? 403 : unknown.has(name) ? 404 : undefined;
    const { method, status = other ?? usual[method] } = sent;
    let answered = 0;
    const work = async () => {
      const response = await send(sent);
      const text = Buffer.from(await response.arrayBuffer()).toString('latin1', 0, 300);
      answered = response.status;
      if (status === undefined) t.true(answered < 500, `${name} answered ${answered}`);
      else t.is(answered, status, `${name}: ${text}`);
    };
    // What is deleted cannot be deleted again.
    const longest =
      method === 'DELETE' && typeof sent.path === 'string' ? await longestTurnOf(work) : await longestTurn(work);
    figures.push([name, longest, answered]);
  }
  figures.sort(([, one], [, other]) => other - one);
  for (const [name, longest, status] of figures.slice(0, 30)) t.log(`${longest.toFixed(1)} ms  ${status}  ${name}`);
  for (const [name, longest] of figures) t.true(longest < longestAllowed, `${name}: ${longest} ms`);
}

for (const dialect of dialects) {
  test.serial(`${dialect}: no request holds the event loop for 50 ms`, async (t) => {
    t.timeout(240_000);
    const url = await temporaryDatabase(t, dialect);
    const issuer = { name: 'ci', issuer: 'https://issuer.invalid', audience: 'entrepot' };
    const server = await startTestServer(t, { database: { url }, trustedIssuers: [issuer] });
    const names = await fillLargeStore(server, url);
    const visitor = await Visitor.signedIn(server);
    const byToken = bySend(({ method, path, headers = {}, body }) =>
      server.fetch(typeof path === 'string' ? path : path(), {
        method,
        headers,
        ...(body instanceof Buffer ? { body: inParts(body), duplex: 'half' } : { body }),
      }),
    );
    const byCookie = bySend(({ path }) => visitor.fetch(path as string));
    const all = Object.entries({ ...others(names), ...(await operations(server, names)) });
    // What stands below another object first.
    const deletions = all.filter(isDeletion).toSorted(([, one], [, other]) => other.path.length - one.path.length);
    await measure(t, [
      ...all.filter((each) => !isDeletion(each)).map(byToken),
      ...pages.map((path) => byCookie([`GET ${path}`, { method: 'GET', path }])),
      ...deletions.map(byToken),
    ]);
  });
}
