import type { Digest } from '../digest.ts';
import { DomainError, isDomainError } from '../errors.ts';
import type { Content } from '../storage/content.ts';
import { entryId, type EntryKey, type Facts } from './entries.ts';
import { Flight, type FlightParts } from './flight.ts';
import type { MirrorResource } from './resource.ts';

/** How an entry came to be served (RFC 9211). */
export type Outcome = 'hit' | 'stale' | 'miss' | 'revalidated';

/** Something of an upstream's, ready to be read. Whoever opened it closes its content. */
export interface Entry {
  outcome: Outcome;
  type: string;
  size: number | undefined;
  content: Content;
  /** Known at once for what is stored; after `complete` for what is on its way. */
  facts: Facts | undefined;
  /** Resolves when the bytes are verified and stored. */
  complete: Promise<Facts>;
}

/** The pull-through cache, written once for both protocols; it knows neither of them. */
export class Mirror {
  readonly #parts: FlightParts;
  readonly #flights = new Map<string, Flight>();

  constructor(parts: FlightParts) {
    this.#parts = parts;
  }

  /**
   * The entry for `resource`: fresh from the storage, else from the one flight for its key, else stale. Undefined when
   * the upstream says that there is none. Throws `UpstreamUnavailable` or `UpstreamTimeout` when there is nothing to
   * serve and the upstream cannot be asked.
   */
  async open(resource: MirrorResource): Promise<Entry | undefined> {
    const id = entryId(resource.key);
    const { entries } = this.#parts;
    let known = entries.peek(id) ?? (await entries.find(id));
    if (known && this.#isFresh(resource, known)) {
      const entry = await this.#stored(known, 'hit');
      if (entry) return entry;
      await entries.forget(id);
      known = undefined;
    }
    if (await entries.isAbsent(id)) return undefined;
    try {
      return await this.#join(id, resource, known);
    } catch (error) {
      if (!known || !isUpstreamFailure(error) || !this.#mayStandIn(resource, known)) throw error;
      const entry = await this.#stored(known, 'stale');
      if (!entry) throw error;
      return entry;
    }
  }

  /** What is stored under `key`, however old, without asking anybody. */
  async stored(key: EntryKey): Promise<Facts | undefined> {
    return this.#parts.entries.find(entryId(key));
  }

  /** The references stored under an upstream's `kind` and `name`, in byte order. */
  references(key: Omit<EntryKey, 'reference'>): Promise<string[]> {
    return this.#parts.entries.references(key);
  }

  async #join(id: string, resource: MirrorResource, known: Facts | undefined): Promise<Entry | undefined> {
    let flight = this.#flights.get(id);
    if (!flight) {
      const started = new Flight(resource, known, this.#parts);
      flight = started;
      this.#flights.set(id, started);
      const end = () => void this.#flights.delete(id);
      started.landed.then(end, end);
    }
    const landing = await flight.join();
    if (landing.kind === 'absent') return undefined;
    if (landing.kind === 'revalidated') {
      const entry = await this.#stored(landing.facts, 'revalidated');
      if (entry) return entry;
      await this.#parts.entries.forget(id);
      throw new DomainError('UpstreamUnavailable', 'The stored copy has just been removed. Try again.');
    }
    const { type, size, content, done } = landing;
    return { outcome: 'miss', type, size, content, facts: undefined, complete: done };
  }

  async #stored(facts: Facts, outcome: Outcome): Promise<Entry | undefined> {
    try {
      const content = await this.#parts.blobs.open(facts.digest as Digest, facts.size);
      return { outcome, type: facts.type, size: facts.size, content, facts, complete: Promise.resolve(facts) };
    } catch (error) {
      if (isDomainError(error, 'BlobUnknown')) return undefined;
      throw error;
    }
  }

  #isFresh({ lifetime }: MirrorResource, { validatedAt }: Facts): boolean {
    return lifetime === 'immutable' || this.#parts.now() < validatedAt + lifetime.freshFor;
  }

  #mayStandIn({ lifetime }: MirrorResource, { validatedAt }: Facts): boolean {
    return lifetime === 'immutable' || this.#parts.now() < validatedAt + lifetime.freshFor + lifetime.staleFor;
  }
}

/** Whether an error means that an upstream could not be asked or gave nothing usable. */
export function isUpstreamFailure(error: unknown): boolean {
  return isDomainError(error, 'UpstreamUnavailable') || isDomainError(error, 'UpstreamTimeout');
}
