import { clients, hasPort, type ClientForm, type ClientKind } from '../clients/client.ts';
import { protocolWords } from '../config/protocols.ts';
import type { NameStory } from '../mirror/policy/upstream-policy.ts';
import { DomainError } from '../runtime/errors.ts';
import {
  checkState,
  type CheckState,
  type ClientCheck,
  type ClientChecks,
  type NotedRequest,
} from '../usage/client-checks.ts';
import type { PolicyGate } from './gate.ts';

/** What checks need of the server. */
export interface ClientCheckParts {
  checks: ClientChecks;
  gate: Pick<PolicyGate, 'explain'>;
  protocols: readonly { kind: string; explain(accountId: number, name: string): Promise<NameStory> }[];
}

/** What is checked, and for whom. */
interface WantedCheck {
  accountId: number;
  client: ClientKind;
  form: ClientForm;
  /** The host of this server, for names that begin with it. */
  host: string;
  /** The registries that the account gets through this server, and that of them through which an image is asked for. */
  registries: readonly string[];
  registry: string | undefined;
  /** A name that a policy refuses: the check then waits for a request for it. */
  denied: { name: string; reference: string } | undefined;
}

/** The characters of a name, a tag or a version that a line for a shell can have. */
export const plainName = /^[a-z0-9][\w./:@+-]*$/i;

/**
 * Starts a check. Throws `Invalid` for a registry that is not mirrored; with `denied`, if no policy refuses that to the account now: the check would show nothing.
 */
export async function startClientCheck(parts: ClientCheckParts, wanted: WantedCheck): Promise<ClientCheck> {
  const { accountId, client, form, host, registries, denied } = wanted;
  const { isFeed } = clients[client];
  const { kind } = protocolWords.find(({ hasIndex }) => hasIndex === isFeed)!;
  const prefix = form === 'prefix' && !isFeed ? `${host}/` : '';
  if (!denied) {
    const registry = wanted.registry ?? registries[0];
    if (!isFeed && (registry === undefined || !registries.includes(registry))) {
      const message = `This server mirrors no registry ${registry ?? ''} for this account. It mirrors: ${registries.join(', ') || 'none'}.`;
      throw new DomainError('Invalid', message);
    }
    if (prefix !== '' && registry !== undefined && hasPort(registry))
      throw new DomainError('Invalid', `No image is named ${prefix}${registry}/…: name a registry without a port.`);
    const own = isFeed ? 'entrepot-check.' : `${registry}/entrepot-check/`;
    const reference = isFeed ? '1.0.0' : 'latest';
    return parts.checks.start({ accountId, client, kind, reference, denied: null }, (id) => prefix + own + id);
  }
  const { name, reference } = denied;
  const story = await parts.protocols.find((each) => each.kind === kind)!.explain(accountId, name);
  const found = await story.referenceTo?.(reference);
  const verdict = found && (await parts.gate.explain(found.name, found.reference)).enforced.verdict;
  if (verdict !== 'deny' && verdict !== 'hold') {
    throw new DomainError(
      'Invalid',
      `No policy refuses ${name} ${reference} to this account. Name something that is refused.`,
    );
  }
  const names = [...new Set([...story.spellings, story.nameThere])];
  return parts.checks.start({ accountId, client, kind, reference, denied: names }, () => prefix + name);
}

/** The line to run on the machine of the client. */
export function checkLine({ client, name, reference, denied }: ClientCheck): string {
  const line = clients[client as ClientKind].check(name, reference);
  return denied
    ? `if ${line}; then echo "NOT REFUSED: it came another way"; else echo "not had, as it must be"; fi`
    : line;
}

/** What a check has shown until `now`, as a state and in words. */
export function checkResult(
  check: ClientCheck,
  requests: readonly NotedRequest[],
  now: number,
): { state: CheckState; conclusion: string } {
  const state = checkState(check, requests, now);
  return { state, conclusion: conclusions(check, requests)[state] };
}

function conclusions(check: ClientCheck, requests: readonly NotedRequest[]): Record<CheckState, string> {
  const refusal = requests.findLast(({ status, hasCredential }) => status === 401 && hasCredential);
  const isOther = ({ accountId }: NotedRequest) => accountId !== null && accountId !== check.accountId;
  const others = requests.some(isOther);
  const why = refusal
    ? 'Its credential is wrong'
    : others
      ? 'It has the credential of another account, or none where readers without one count as another account'
      : requests.every(({ status }) => status === 401)
        ? 'It sends no credential'
        : 'Its token may not read this name';
  return {
    waiting: 'No request has come yet. Run the line on the client.',
    used: check.denied
      ? 'The client asks this server, which refused. The line must have said "not had, as it must be": otherwise the client has another way, such as a fallback or a second source.'
      : 'The client uses this server. The line itself fails: there is no such content.',
    refused: `The client asks this server, and was refused. ${why}: ${refusal?.reason ?? requests.findLast((each) => !isOther(each))?.reason ?? ''}`,
    served: 'This server sent it: no policy refuses it any more.',
    unused:
      'No request for the name has come: the client asks another server, does not read this configuration, cannot reach this server, or, as podman does, stops before the name because it has no credential.',
  };
}
