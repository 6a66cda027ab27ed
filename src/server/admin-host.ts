import { isIP } from 'node:net';
import type { Config } from '../config/schema.ts';
import { reachOf } from '../upstream/addresses.ts';

/** The address that the admin port listens on. */
export function adminHostOf({ adminHost, host }: Config['server']): string {
  return adminHost ?? host;
}

/**
 * What to do if the admin port listens on all addresses or a public one, and the operator has not set that for this port.
 * Undefined if nothing is wrong.
 */
export function adminHostAdvice({ adminPort, adminHost, host }: Config['server']): string | undefined {
  if (adminPort === undefined || adminHost !== undefined) return undefined;
  if (isIP(host) === 0 || reachOf(host) === 'private') return undefined;
  return `the admin port listens on ${host}, where it shows the metrics of all accounts without a token; set ENTREPOT_ADMIN_HOST to a private address, or to ${host} if only a private network reaches the port`;
}
