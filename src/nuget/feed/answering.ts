import type { Logger } from 'pino';
import { allow } from '../../accounts/allow.ts';
import type { CredentialRules } from '../../http/authenticate.ts';
import { createEdge, type Allowed, type WireOperation, type WireProtocol } from '../../http/edge.ts';
import { sendProblem } from '../../http/problem.ts';
import { oneLine } from '../../http/reason.ts';
import { contextOf, currentResponse } from '../../http/request-context.ts';
import type { UsageAction } from '../../usage/counters.ts';
import { noAccount } from '../../accounts/principal.ts';
import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { isShared, readerOf } from '../source/reader.ts';
import { Addresses } from './addresses.ts';
import { noPackage, type Answering, type FeedCall, type FeedParts } from './call.ts';
import { feedStatusOf } from './errors.ts';

/** A route's operation, and the parameters of the path that matched. */
interface Matched {
  operation: WireOperation<FeedCall> & { act: UsageAction | undefined };
  path: Record<string, string>;
  rules: CredentialRules;
}

/** Where the feed is to which the parameters of a path belong, below its public URL, and its packages. Throws `Invalid`. */
export type PlaceOf = (
  path: Record<string, string | undefined>,
) => { prefix: string } & Pick<FeedCall, 'source' | 'isPast'>;

/** Makes the handlers of a feed's routes. */
export function answeringWith(parts: FeedParts, placeOf: PlaceOf): Answering {
  const { authenticator, quota, log } = parts;
  const keys = { apiKey: true, onInvalidKey: () => warnOfKey(log) };
  const protocol: WireProtocol<Matched, FeedCall> = {
    kind: 'package',
    log,
    quota,
    authenticate: (request, { rules }) => authenticator.principalOf(request, rules),
    find: ({ operation }) => operation,
    open: (allowed) => open(parts, placeOf, allowed),
    statusOf: feedStatusOf,
    challenge: ({ name }) => (name === 'Unauthorized' ? 'Basic realm="Entrepot"' : undefined),
    refuse: sendProblem,
  };
  const edge = createEdge(protocol);
  return (action, run, act, cost, more) => {
    // Only a push counts as an upload.
    const stores = act === 'upload';
    const operation = { action, run, act, stores, cost: stores ? ('pushes' as const) : cost };
    const rules = { ...keys, ...more };
    return (request, response) =>
      edge({ operation, path: request.params as Record<string, string>, rules }, request, response);
  };
}

/** A client with valid credentials may not know that its API key is wrong: requests succeed without it. */
function warnOfKey(log: Logger): void {
  const response = currentResponse();
  log.warn({ request: response?.context.id }, 'the API key of a request is not valid; its other credentials were used');
  const warning =
    'The API key is not valid; the credentials of the package source were used. Correct or remove the key.';
  response?.appendHeader('X-NuGet-Warning', oneLine(warning));
}

async function open(
  { urls, takeover }: FeedParts,
  placeOf: PlaceOf,
  { request, response, principal, target }: Allowed<Matched, FeedCall>,
): Promise<FeedCall> {
  const { path, operation } = target;
  const { prefix, source, isPast } = placeOf(path);
  const id = path['id'] === undefined ? undefined : packageKey(path['id']);
  const { version = '', file = '.nupkg' } = path;
  // Clients show what is there of the other files.
  if (id !== undefined && file.endsWith('.nupkg')) contextOf(response).asked = { name: id, reference: version };
  // The id of a pushed package is known only after the package has arrived.
  if (id !== undefined || operation.stores) allow(principal, operation.action, 'package', id);
  const context = contextOf(response);
  context.subject = id ?? '';
  context.act = operation.act;
  const addresses = new Addresses(urls.of(request).feed + prefix);
  const reader = id === undefined ? principal.accountId : readerOf(source, principal, id, operation.action);
  const accountId = typeof reader === 'number' ? reader : await reader;
  if (id !== undefined && isPackageId(id) && operation.action === 'read' && accountId !== noAccount) {
    const asked = { kind: 'package', accountId, name: id };
    const reference = path['version'] === undefined ? undefined : keyOfVersion(path['version']);
    const isWrong = path['version'] !== undefined && reference === undefined;
    const isClosed = await (isPast || isWrong ? takeover.isClosed(asked) : takeover.bring({ ...asked, reference }));
    if (isClosed && (await source.revisionOf(accountId, id)) === undefined) throw noPackage({ id });
  }
  const ofReader = isShared(principal, accountId) ? source.hostedOnly : source;
  return { request, response, principal, accountId, addresses, source: ofReader, isPast, path };
}
