import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { requireScope, type Principal, type Scope } from '../accounts/principal.ts';
import type { Config } from '../config/schema.ts';
import { DomainError, isDomainError } from '../errors.ts';
import type { Answering } from '../http/app.ts';
import type { Authenticator } from '../http/authenticate.ts';
import { alwaysSend, exchangeOf } from '../http/exchange.ts';
import { sendJson } from '../http/send.ts';
import { splitTarget } from '../http/target.ts';
import { admit } from '../http/quota.ts';
import type { Urls } from '../http/urls.ts';
import type { Quota } from '../usage/quota.ts';
import { discardBody } from './body.ts';
import type { Handler } from './call.ts';
import { challengeFor, scopeOf } from './challenge.ts';
import * as content from './content-routes.ts';
import { toWire } from './errors.ts';
import type { Images } from './images.ts';
import type { Pushes } from './pushes.ts';
import type { ImageSource } from './source.ts';
import { parsePath, parseRepositoryName, type Target } from './reference.ts';
import * as upload from './upload-routes.ts';

export interface RegistryParts {
  images: Images;
  source: ImageSource;
  pushes: Pushes;
  quota: Quota;
  authenticator: Authenticator;
  urls: Urls;
  limits: Config['limits'];
  log: Logger;
}

interface Endpoint {
  /** As metrics and the log name it. */
  route: string;
  methods: Record<string, readonly [scope: Scope, handler: Handler]>;
}

/** The methods that bring bytes; the others of an upload only ask for it or end it. */
const sending = new Set(['POST', 'PATCH', 'PUT']);

/** A GET that answers a HEAD too. */
function reading(handler: Handler): Endpoint['methods'] {
  return { GET: ['read', handler], HEAD: ['read', handler] };
}

/** Every endpoint and its methods (distribution-spec, "Endpoints"). */
const endpoints: Record<Exclude<Target['kind'], 'unknown'>, Endpoint> = {
  base: { route: '/v2/', methods: reading(content.probe) },
  catalog: { route: '/v2/_catalog', methods: reading(content.listRepositories) },
  tags: { route: '/v2/{name}/tags/list', methods: reading(content.listTags) },
  manifest: {
    route: '/v2/{name}/manifests/{reference}',
    methods: {
      ...reading(content.getManifest),
      PUT: ['write', content.putManifest],
      DELETE: ['delete', content.deleteManifest],
    },
  },
  blob: {
    route: '/v2/{name}/blobs/{digest}',
    methods: { ...reading(content.getBlob), DELETE: ['delete', content.deleteBlob] },
  },
  uploads: { route: '/v2/{name}/blobs/uploads/', methods: { POST: ['write', upload.startUpload] } },
  upload: {
    route: '/v2/{name}/blobs/uploads/{id}',
    methods: {
      GET: ['write', upload.getUpload],
      HEAD: ['write', upload.getUpload],
      PATCH: ['write', upload.patchUpload],
      PUT: ['write', upload.finishUpload],
      DELETE: ['write', upload.cancelUpload],
    },
  },
  referrers: { route: '/v2/{name}/referrers/{digest}', methods: reading(content.listReferrers) },
};

/** The container registry: everything under `/v2`. */
export function createRegistry(parts: RegistryParts): Answering {
  return (request, response) => answer(parts, request, response);
}

async function answer(parts: RegistryParts, request: IncomingMessage, response: ServerResponse): Promise<void> {
  alwaysSend(response, 'Docker-Distribution-Api-Version', 'registry/2.0');
  const { path, query: parameters } = splitTarget(request.url!);
  const query = new URLSearchParams(parameters);
  const target = parsePath(path);
  try {
    const exchange = exchangeOf(response);
    const endpoint = target.kind === 'unknown' ? undefined : endpoints[target.kind];
    exchange.kind = 'container';
    if (endpoint) exchange.route = endpoint.route;
    const principal = await authenticate(parts.authenticator, request, target);
    exchange.principal = principal;
    if (!endpoint) throw new DomainError('NotFound', 'The registry has nothing at this address.');
    const [scope, handler] = methodOf(endpoint, request.method!, response);
    allow(principal, scope);
    const name = target.kind === 'base' || target.kind === 'catalog' ? '' : parseRepositoryName(target.name);
    const { images, source, pushes, limits } = parts;
    const ns = namespaceOf(parts.urls, request, query);
    const own = scope === 'read' ? name : source.hostedName(name, ns);
    const { item } = target;
    exchange.subject = own;
    if (scope === 'write' && sending.has(request.method!)) await admit(parts.quota, request, response, principal);
    await handler({ request, response, principal, name: own, ns, item, query, images, source, pushes, limits });
  } catch (error) {
    refuse(parts, request, response, target, error);
  }
}

/** What a client of a mirror says it means; nothing where that is this registry. */
function namespaceOf(urls: Urls, request: IncomingMessage, query: URLSearchParams): string | undefined {
  const ns = query.get('ns') || undefined;
  return ns !== undefined && ns === new URL(urls.of(request).registry).host ? undefined : ns;
}

/** Where anybody may read, the probe alone still asks for credentials: a client that has some would never send them. */
async function authenticate(
  authenticator: Authenticator,
  request: IncomingMessage,
  target: Target,
): Promise<Principal> {
  if (target.kind === 'base' && authenticator.allowsAnonymous && request.headers.authorization === undefined) {
    throw new DomainError('Unauthorized', 'Authenticate, or take an anonymous token from the token endpoint.');
  }
  return authenticator.principalOf(request);
}

function methodOf(endpoint: Endpoint, method: string, response: ServerResponse): Endpoint['methods'][string] {
  const found = Object.hasOwn(endpoint.methods, method) ? endpoint.methods[method] : undefined;
  if (found) return found;
  const allowed = Object.keys(endpoint.methods).join(', ');
  response.setHeader('Allow', allowed);
  throw new DomainError('Unsupported', `This address takes ${allowed}.`);
}

/** Somebody without credentials is asked for some; a token that lacks the scope is told so. */
function allow(principal: Principal, scope: Scope): void {
  if (principal.kind === 'anonymous' && !principal.scopes.has(scope)) {
    throw new DomainError('Unauthorized', 'Authenticate with an API token: only reading is open to everybody.');
  }
  requireScope(principal, scope);
}

function refuse(
  { authenticator, urls, log, limits }: RegistryParts,
  request: IncomingMessage,
  response: ServerResponse,
  target: Target,
  error: unknown,
): void {
  const { status, body } = toWire(error);
  if (status === 500) log.error({ err: error, request: exchangeOf(response).id }, 'a registry request failed');
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  if (status === 401) {
    const scope = scopeOf(target, request.method);
    const { registry } = urls.of(request);
    response.setHeader('WWW-Authenticate', challengeFor(registry, scope, authenticator.allowsAnonymous));
  }
  if (isDomainError(error, 'RangeNotSatisfiable')) {
    response.setHeader('Content-Range', `bytes */${String(error.detail?.['size'])}`);
  }
  const retryAfter = isDomainError(error) ? error.detail?.['retryAfter'] : undefined;
  if (typeof retryAfter === 'number') response.setHeader('Retry-After', retryAfter);
  sendJson(request, response, status, body);
  discardBody(request, limits.uploadIdle);
}
