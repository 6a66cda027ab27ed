import { lookup, Resolver, type LookupAddress } from 'node:dns';
import { Semaphore } from '../runtime/semaphore.ts';
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

/**
 * A `Resolve` of an upstream whose own host is `own`. Names that it leads to, by redirects for example, are looked up one after the
 * other: many with slow answers would occupy all threads of `dns.lookup`. Connections to the same name share its lookup.
 */
export function othersInTurn(own: string, resolve: Resolve = lookup): Resolve {
  const turns = new Semaphore({ max: 1 });
  /** Who waits for each lookup, by its name and options. */
  const waiting = new Map<string, Parameters<Resolve>[2][]>();
  return (hostname, options, done) => {
    if (hostname === own) {
      resolve(hostname, options, done);
      return;
    }
    const key = `${hostname} ${JSON.stringify(options)}`;
    const others = waiting.get(key);
    if (others) {
      others.push(done);
      return;
    }
    const all = [done];
    waiting.set(key, all);
    const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
    void turns.run(() => {
      resolve(hostname, options, (...found) => {
        waiting.delete(key);
        answer();
        for (const each of all) each(...found);
      });
      return answered;
    });
  };
}
