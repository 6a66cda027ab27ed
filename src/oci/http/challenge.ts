import type { RegistryCall } from './call.ts';
import type { RegistryTarget } from '../format/reference.ts';

const realm = 'Entrepot';

/**
 * The `WWW-Authenticate` of a 401. Basic, but Bearer if anonymous reads are allowed: clients then need a token endpoint to
 * be either anonymous or authenticated (distribution's "Token Authentication Specification"). Never both, because Docker
 * answers every challenge that it can, and without credentials it fails at Basic.
 */
export function challengeFor(registryUrl: string, scope: string | undefined, allowsAnonymous: boolean): string {
  if (!allowsAnonymous) return `Basic realm="${realm}"`;
  const service = new URL(registryUrl).host;
  return `Bearer realm="${registryUrl}/token",service="${service}"${scope ? `,scope="${scope}"` : ''}`;
}

const actions: Record<string, string> = { GET: 'pull', HEAD: 'pull', DELETE: 'delete' };

/** The scope in a challenge, `repository:<name>:<actions>`; undefined for a name that cannot be part of it. */
export function challengeScope(
  target: RegistryTarget,
  method: RegistryCall['request']['method'] = 'GET',
): string | undefined {
  if (target.kind === 'catalog') return 'registry:catalog:*';
  if (!/^[a-z0-9._/-]+$/.test(target.name)) return undefined;
  return `repository:${target.name}:${actions[method] ?? 'pull,push'}`;
}
