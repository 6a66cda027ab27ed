import type { Receiver } from '../support/receiver.ts';
import type { Pushes } from './pushes.ts';

/** The IDs of packages whose push was acknowledged and whose event the receiver does not have. */
export function missingIn({ received }: Receiver, pushes: Pushes): string[] {
  const seen = new Set(received.map(({ event }) => event.subject));
  const ids = pushes.addresses().flatMap((address) => /^\/v3\/package\/([^/]+)\//.exec(address)?.[1] ?? []);
  return ids.filter((id) => !seen.has(id));
}
