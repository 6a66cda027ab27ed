import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { allow, credentialMissing, type Action } from '../../accounts/allow.ts';
import { ownerOf } from '../../accounts/owner.ts';
import { readsHosted, type Principal } from '../../accounts/principal.ts';
import type { Config } from '../../config/schema.ts';
import { isDigest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { endOfDay } from '../../runtime/past-day.ts';
import type { HttpHandler } from '../../http/app.ts';
import { authorizationOf, type Authenticator } from '../../http/authenticate.ts';
import { createEdge, type Allowed, type WireOperation, type WireProtocol } from '../../http/edge.ts';
import { alwaysSend, contextOf } from '../../http/request-context.ts';
import { splitTarget } from '../../http/target.ts';
import type { Urls } from '../../http/urls.ts';
import type { Takeover } from '../../takeover/takeover.ts';
import type { Quota } from '../../usage/quota.ts';
import type { RegistryCall, Handler } from './call.ts';
import { challengeFor, challengeScope } from './challenge.ts';
import * as content from './content-routes.ts';
import * as extension from './extension-routes.ts';
import { sendRegistryRefusal, registryStatusOf } from './errors.ts';
import type { ImageHistory } from '../catalog/image-history.ts';
import type { Images } from '../catalog/images.ts';
import type { Pushes } from '../catalog/pushes.ts';
import { isTag, parsePath, parseRepositoryName, type RegistryTarget } from '../format/reference.ts';
import type { ImageSource, LocatedRepository, ReadableImages } from '../catalog/image-source.ts';
import type { ContinuedUploads } from './upload-relay.ts';
import * as upload from './upload-routes.ts';

interface RegistryParts {
  images: Images;
  source: ImageSource;
  history: ImageHistory;
  /** The images as they were at a time. */
  pastImages: (until: number) => ReadableImages;
  now: () => number;
  uploads: ContinuedUploads;
  pushes: Pushes;
  takeover: Pick<Takeover, 'bring' | 'isClosed'>;
  quota: Quota;
  authenticator: Authenticator;
  urls: Urls;
  limits: Config['limits'];
  log: Logger;
}

/** The target of a request, not yet checked. */
interface Address {
  target: RegistryTarget;
  /** Still percent-encoded. */
  query: string;
}

/** The operations of an address, by HTTP method. */
type Methods = Record<string, WireOperation<RegistryCall>>;

function reading(run: Handler): Methods {
  const operation = changing('read', run);
  return { GET: operation, HEAD: operation };
}

function changing(action: Action, run: Handler): WireOperation<RegistryCall> {
  return { action, stores: false, run };
}

/** A change that stores bytes. The other requests of an upload only read its state or cancel it. */
function storing(run: Handler): WireOperation<RegistryCall> {
  return { action: 'write', stores: true, run };
}

/** The first request of a push. The further ones of an upload are not limited, so that what has begun can end. */
function pushing(run: Handler): WireOperation<RegistryCall> {
  return { ...storing(run), cost: 'pushes' };
}

/** Clients check their credentials with it before any push or pull, so a token with any scope will do. */
const signIn = changing('sign-in', content.probe);

/** Every endpoint and its methods (distribution-spec, "Endpoints"). */
const endpoints: Record<Exclude<RegistryTarget['kind'], 'unknown'>, Methods> = {
  base: { GET: signIn, HEAD: signIn },
  catalog: reading(content.listRepositories),
  tags: reading(content.answerTags),
  manifest: {
    ...reading(content.getManifest),
    PUT: pushing(content.putManifest),
    DELETE: changing('delete', content.answerDelete),
  },
  blob: { ...reading(content.getBlob), DELETE: changing('delete', content.deleteBlob) },
  uploads: { POST: pushing(upload.startUpload) },
  upload: {
    GET: changing('write', upload.getUpload),
    HEAD: changing('write', upload.getUpload),
    PATCH: storing(upload.patchUpload),
    PUT: storing(upload.finishUpload),
    DELETE: changing('write', upload.cancelUpload),
  },
  referrers: reading(content.listReferrers),
  'tag-history': reading(extension.listTagHistory),
  discover: reading(extension.discover),
};

/** The container registry: everything under `/v2`. */
export function createRegistry(parts: RegistryParts): HttpHandler {
  const { authenticator, urls, quota, log } = parts;
  const protocol: WireProtocol<Address, RegistryCall> = {
    kind: 'container',
    log,
    quota,
    authenticate: (request, { target }) => authenticate(authenticator, request, target),
    find: ({ target }, request, response) => operationOf(target, request.method!, response),
    open: (allowed) => open(parts, allowed),
    statusOf: registryStatusOf,
    challenge: ({ name }, request, { target }) => {
      if (name !== 'Unauthorized') return undefined;
      const { registry } = urls.of(request);
      return challengeFor(registry, challengeScope(target, request.method), authenticator.anonymous !== undefined);
    },
    refuse: sendRegistryRefusal,
  };
  const answer = createEdge(protocol);
  return (request, response) => {
    alwaysSend(response, 'Docker-Distribution-Api-Version', 'registry/2.0');
    const { path, query } = splitTarget(request.url!);
    return answer({ target: parsePath(path), query }, request, response);
  };
}

/** What is requested by a tag or digest. */
const named: ReadonlySet<string> = new Set(['manifest', 'blob', 'referrers', 'tag-history']);

async function open(parts: RegistryParts, allowed: Allowed<Address, RegistryCall>): Promise<RegistryCall> {
  const { request, response, target: address } = allowed;
  const { images, source, history, uploads, pushes, quota, limits } = parts;
  const query = new URLSearchParams(address.query);
  const ns = namespaceOf(parts.urls, request, query);
  const { kind, name: asked, item, date } = address.target;
  const until = date === undefined ? undefined : endOfDay(date, parts.now());
  if (asked !== '') contextOf(response).asked = { name: asked, reference: named.has(kind) ? item : '' };
  const repository = await repositoryOf(parts, allowed, ns);
  const { principal } = allowed;
  contextOf(response).subject = repository.name;
  // A tag, and what a policy refuses, can change.
  if (until !== undefined) response.setHeader('Cache-Control', 'private, no-cache');
  return {
    request,
    response,
    principal,
    name: until === undefined ? repository.name : `as-of/${date!}/${repository.name}`,
    ns,
    repository,
    item,
    query,
    images,
    source,
    readable: until === undefined ? source : parts.pastImages(until),
    until,
    history,
    uploads,
    pushes,
    quota,
    limits,
  };
}

/** What has no repository, or may have none. */
const nameless: ReadonlySet<string> = new Set(['base', 'catalog', 'discover']);

/** The repository that is read or, under its hosted name, changed; `NameDenied` if the principal may not use the name. */
async function repositoryOf(
  { source, takeover }: RegistryParts,
  { request, principal, operation, target: { target } }: Allowed<Address, RegistryCall>,
  ns: string | undefined,
): Promise<LocatedRepository> {
  const asked = { accountId: principal.accountId, name: '', ns, mayPush: principal.scopes.has('write') };
  if (target.name === '' && nameless.has(target.kind)) return { ...asked, hosted: undefined, place: undefined };
  asked.name = parseRepositoryName(target.name);
  const { action } = operation;
  // Before a push, clients ask which blobs they need not send.
  const isPush = request.method === 'HEAD' && target.kind === 'blob' && asked.mayPush;
  if (ns === undefined && !isPush) asked.accountId = await ownerOf(principal, 'container', asked.name, action);
  const found = action === 'read' ? await source.locate(asked) : await source.hosted(asked);
  const allowed = async (repository: LocatedRepository) => {
    const names = source.namesOf(repository);
    for (const each of names instanceof Promise ? await names : names) allow(principal, action, 'container', each);
    return repository;
  };
  if (!readsHosted(principal)) return allowed(mirroredOnly(found));
  const wanted = { kind: 'container', accountId: asked.accountId, name: asked.name };
  if (action !== 'read' || ns !== undefined || !(await takeover.isClosed(wanted))) return allowed(found);
  const closed = (place: LocatedRepository) => ({ ...place, hosted: place.hosted ?? asked.name, place: undefined });
  await allowed(closed(found));
  // A client asks for the blobs of a manifest, which came with it. The past has nothing that comes now.
  const isReference = target.kind === 'manifest' && (isTag(target.item) || isDigest(target.item));
  const brings = target.date === undefined && (isReference || target.kind === 'tags');
  if (!brings) return closed(found);
  const reference = target.kind === 'tags' ? undefined : target.item;
  const isClosed = await takeover.bring({ ...wanted, reference });
  const again = await source.locate(asked);
  return allowed(isClosed ? closed(again) : again);
}

/**
 * The repository without its hosted content; `Unauthorized` if it is not served from an upstream. The message does not depend
 * on what is hosted.
 */
function mirroredOnly(repository: LocatedRepository): LocatedRepository {
  const { place, missing } = repository;
  if (!place) throw credentialMissing(missing && `No upstream is named ${missing}.`);
  return { ...repository, hosted: undefined };
}

function operationOf(
  { kind, date }: RegistryTarget,
  method: string,
  response: ServerResponse,
): WireOperation<RegistryCall> {
  if (kind === 'unknown')
    throw new DomainError(
      'NotFound',
      'The registry has no endpoint with this path: its endpoints are /v2/, and below /v2/ and the name of a repository.',
    );
  const methods = endpoints[kind];
  const found = Object.hasOwn(methods, method) ? methods[method] : undefined;
  if (date !== undefined && found?.action !== 'read') {
    response.setHeader('Allow', 'GET, HEAD');
    throw new DomainError(
      'Unsupported',
      'Names below as-of/ show the past, which cannot be changed: push and delete under the name without as-of/ and the date.',
    );
  }
  if (found) return found;
  const allowed = Object.keys(methods).join(', ');
  response.setHeader('Allow', allowed);
  throw new DomainError('Unsupported', `This endpoint supports only the methods ${allowed}.`);
}

/** The registry that the client names with `?ns=`; undefined if that is this server. */
function namespaceOf(urls: Urls, request: IncomingMessage, query: URLSearchParams): string | undefined {
  const ns = query.get('ns') || undefined;
  return ns !== undefined && ns === new URL(urls.of(request).registry).host ? undefined : ns;
}

/** With anonymous reads, `/v2/` alone still requires credentials: clients that have some would never send them otherwise. */
async function authenticate(
  authenticator: Authenticator,
  request: IncomingMessage,
  target: RegistryTarget,
): Promise<Principal> {
  if (target.kind === 'base' && authenticator.anonymous && authorizationOf(request) === undefined) {
    throw new DomainError('Unauthorized', 'Authenticate, or get an anonymous token from the token endpoint.');
  }
  return authenticator.principalOf(request);
}
