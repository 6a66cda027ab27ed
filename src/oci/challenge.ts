import type { Call } from './call.ts';
import type { Target } from './reference.ts';

const realm = 'Entrepot';

/**
 * The `WWW-Authenticate` of a 401: Basic; but Bearer where somebody without credentials may read, because clients then
 * need a token endpoint to be either (distribution's "Token Authentication Specification"). Never both: a Docker engine
 * answers every challenge it can, and without credentials gives up at Basic.
 */
export function challengeFor(registryUrl: string, scope: string | undefined, allowsAnonymous: boolean): string {
  if (!allowsAnonymous) return `Basic realm="${realm}"`;
  const service = new URL(registryUrl).host;
  return `Bearer realm="${registryUrl}/token",service="${service}"${scope ? `,scope="${scope}"` : ''}`;
}

const actions: Record<string, string> = { GET: 'pull', HEAD: 'pull', DELETE: 'delete' };

/** What a token endpoint is asked for: `repository:<name>:<actions>`. */
export function scopeOf(target: Target, method: Call['request']['method'] = 'GET'): string | undefined {
  if (target.kind === 'catalog') return 'registry:catalog:*';
  if (!/^[a-z0-9._/-]+$/.test(target.name)) return undefined;
  return `repository:${target.name}:${actions[method] ?? 'pull,push'}`;
}
