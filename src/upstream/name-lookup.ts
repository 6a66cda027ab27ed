import { lookup, Resolver, type LookupAddress } from 'node:dns';
import type { Resolve } from './addresses.ts';

/** Milliseconds that a name server has to answer, and how often it is asked. */
const timeout = 3000;
const tries = 2;

/**
 * A `Resolve` for names that users have chosen. It asks the name servers directly: `dns.lookup` occupies threads that all
 * lookups of the process share, so slow answers for one name would delay those of upstreams. The names for which
 * `isLocal` is true are looked up as the operating system does, which also reads its hosts file.
 */
export function userNameLookup(isLocal: (hostname: string) => boolean): Resolve {
  const resolver = new Resolver({ timeout, tries });
  return (hostname, options, done) => {
    if (isLocal(hostname)) {
      lookup(hostname, options, done);
      return;
    }
    const found: LookupAddress[] = [];
    let waiting = 2;
    const add = (family: 4 | 6) => (error: NodeJS.ErrnoException | null, addresses: string[] | undefined) => {
      for (const address of addresses ?? []) found.push({ address, family });
      waiting -= 1;
      if (waiting > 0) return;
      if (found.length > 0) done(null, found);
      else done(error ?? Object.assign(new Error(`${hostname} has no address`), { code: 'ENOTFOUND' }), []);
    };
    resolver.resolve4(hostname, add(4));
    resolver.resolve6(hostname, add(6));
  };
}
