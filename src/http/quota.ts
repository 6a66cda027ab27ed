import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Principal } from '../accounts/principal.ts';
import type { Quota } from '../usage/quota.ts';

/** Admits a push, with a warning in `X-Entrepot-Limit-Warning` when a limit is near; throws `Denied` and `QuotaExceeded`. */
export async function admit(
  quota: Quota,
  request: IncomingMessage,
  response: ServerResponse,
  principal: Principal,
): Promise<void> {
  const announced = Number(request.headers['content-length'] ?? 0);
  await quota.admit(principal, announced, (text) => response.appendHeader('X-Entrepot-Limit-Warning', text));
}
