import { currentCaller, untilCallerLeaves } from '../caller.ts';
import { isDomainError } from '../errors.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';
import { contentOf, readAll, type Content } from '../storage/content.ts';
import { entryId, type EntryKey, type EntryMetadata } from './entries.ts';
import { Flight, type FlightParts, type JoinResult } from './flight.ts';
import { Partials } from './partials.ts';
import { isFresh, isServableStale, type MirrorResource } from './resource.ts';
import { Slots } from './slots.ts';

/** How an entry came to be served (RFC 9211); `passed` is a miss that is not stored, for lack of room. */
export type Outcome = 'hit' | 'stale' | 'miss' | 'passed' | 'revalidated';

/** Something of an upstream's, ready to be read. Whoever opened it closes its content. */
export interface Entry {
  outcome: Outcome;
  type: string;
  size: number | undefined;
  content: Content;
  /** Known at once for what is stored; after `complete` for what is on its way. */
  metadata: EntryMetadata | undefined;
  /** Resolves when the bytes are verified, and stored where there is room. Once `content` is closed, the fetch may stop. */
  complete: Promise<EntryMetadata>;
}

export interface MirrorParts extends Omit<FlightParts, 'partials'> {
  /** Fetches that one account may have under way. */
  accountFetches: number;
  /** Milliseconds that the beginning of a body is isStored when no reader is left. */
  keepPartial: number;
}

/** The pull-through cache, written once for both protocols; it knows neither of them. */
export class Mirror {
  readonly #parts: FlightParts;
  readonly #slots: Slots;
  /** Those that can be joined, by the entry they fetch. */
  readonly #flights = new Map<string, Flight>();
  readonly #underWay = new Set<Flight>();

  constructor({ accountFetches, keepPartial, ...parts }: MirrorParts) {
    this.#parts = { ...parts, partials: new Partials(keepPartial) };
    this.#slots = new Slots(accountFetches);
  }

  /**
   * The entry for `resource`: fresh from the storage, else from the one flight for its key, else stale. Undefined when
   * the upstream says that there is none. Throws `UpstreamUnavailable` or `UpstreamTimeout` when there is nothing to
   * serve and the upstream cannot be asked.
   */
  async open(resource: MirrorResource): Promise<Entry | undefined> {
    const id = entryId(resource.key);
    const { entries, now } = this.#parts;
    for (;;) {
      try {
        const known = await entries.getCached(id);
        if (known && isFresh(resource.lifetime, known, now())) return await this.#stored(id, known, 'hit');
        if (await entries.isAbsent(id)) return undefined;
        return await this.#join(id, resource);
      } catch (error) {
        if (!(error instanceof BlobMissing)) throw error;
        await entries.forget(id, error.metadata);
      }
    }
  }

  /** What is stored under `key`, however old, without asking anybody. */
  async stored(key: EntryKey): Promise<EntryMetadata | undefined> {
    return this.#parts.entries.find(entryId(key));
  }

  /** What is stored for `resource`, where it may still stand in; nobody is asked. */
  async openStored({ key, lifetime }: Pick<MirrorResource, 'key' | 'lifetime'>): Promise<Entry | undefined> {
    const id = entryId(key);
    const known = await this.#parts.entries.find(id);
    if (!known || !isServableStale(lifetime, known, this.#parts.now())) return undefined;
    return this.#stored(id, known, lifetime === 'immutable' ? 'hit' : 'stale').catch((error: unknown) => {
      if (error instanceof BlobMissing) return undefined;
      throw error;
    });
  }

  /** The references stored under an upstream's `kind` and `name`, in byte order, `limit` at most. */
  references(key: Omit<EntryKey, 'reference'>, limit?: number): Promise<string[]> {
    return this.#parts.entries.references(key, limit);
  }

  /** The references stored under an upstream's `kind` and `name` that were used last, the latest first. */
  latest(key: Omit<EntryKey, 'reference'>, limit: number): Promise<string[]> {
    return this.#parts.entries.latest(key, limit);
  }

  /** Drops what is stored under `key`; resolves to whether there was something. */
  async remove(key: EntryKey): Promise<boolean> {
    const id = entryId(key);
    const metadata = await this.#parts.entries.read(id);
    if (metadata) await this.#parts.entries.forget(id, metadata);
    return metadata !== undefined;
  }

  /** Ends when no flight is under way any more; what the flights wait for has to be cut by their upstreams. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#underWay].map((flight) => flight.result));
    await this.#parts.partials.close();
  }

  async #join(id: string, resource: MirrorResource): Promise<Entry | undefined> {
    let joined: JoinResult;
    try {
      joined = await this.#joinOrStart(id, resource);
      if (joined.kind === 'tail' && resource.whole) return await this.#whole(id, resource, joined);
    } catch (error) {
      const { entries, now } = this.#parts;
      if (!isUpstreamFailure(error)) throw error;
      const known = await entries.find(id);
      // An upstream that is offline by its settings is served from what is stored, however old.
      if (!known || !(error.offline || isServableStale(resource.lifetime, known, now()))) throw error;
      return await this.#stored(id, known, 'stale').catch((missing) => {
        throw missing instanceof BlobMissing ? error : missing;
      });
    }
    if (joined.kind === 'absent') return undefined;
    if (joined.kind === 'stored') return this.#stored(id, joined.metadata, joined.renewed ? 'revalidated' : 'hit');
    const { type, size, content, isStored, done } = joined;
    const complete = done.then(({ metadata }) => metadata);
    complete.catch(() => undefined);
    return { outcome: isStored ? 'miss' : 'passed', type, size, content, metadata: undefined, complete };
  }

  /** A small document once all of it is there: from the storage, or from memory where there was no room to store it. */
  async #whole(
    id: string,
    resource: MirrorResource,
    { type, content, done }: Extract<JoinResult, { kind: 'tail' }>,
  ): Promise<Entry> {
    try {
      const { metadata, isStored } = await untilCallerLeaves(done);
      if (isStored) return await this.#stored(id, metadata, 'miss');
      const bytes = await readAll(content, resource.limit);
      const complete = Promise.resolve(metadata);
      return { outcome: 'passed', type, size: bytes.length, content: contentOf(bytes), metadata, complete };
    } finally {
      content.close();
    }
  }

  /** Joins the flight for an entry. A new one takes a slot of the account for which it is begun, once that has one free. */
  #joinOrStart(id: string, resource: MirrorResource): Promise<JoinResult> {
    const known = this.#joinable(id);
    if (known) return known.join();
    const taken = this.#slots.take(currentCaller());
    if (!(taken instanceof Promise)) return this.#start(id, resource, taken);
    return taken.then((release) => this.#start(id, resource, release));
  }

  #start(id: string, resource: MirrorResource, release: () => void): Promise<JoinResult> {
    const known = this.#joinable(id);
    if (known) {
      release();
      return known.join();
    }
    const flight = new Flight(resource, this.#parts);
    this.#flights.set(id, flight);
    this.#underWay.add(flight);
    const end = () => {
      release();
      this.#underWay.delete(flight);
      if (this.#flights.get(id) === flight) this.#flights.delete(id);
    };
    flight.result.then(end, end);
    return flight.join();
  }

  #joinable(id: string): Flight | undefined {
    const flight = this.#flights.get(id);
    return flight?.joinable ? flight : undefined;
  }

  async #stored(id: string, metadata: EntryMetadata, outcome: Outcome): Promise<Entry> {
    const { blobs, entries } = this.#parts;
    try {
      const content = await blobs.open(metadata.digest, metadata.size);
      entries.used(id);
      return {
        outcome,
        type: metadata.type,
        size: metadata.size,
        content,
        metadata,
        complete: Promise.resolve(metadata),
      };
    } catch (error) {
      throw isDomainError(error, 'BlobUnknown') ? new BlobMissing(metadata) : error;
    }
  }
}

/** An entry whose blob is not there: the entry is forgotten and fetched anew. */
class BlobMissing extends Error {
  readonly metadata: EntryMetadata;

  constructor(metadata: EntryMetadata) {
    super('the bytes of an entry are gone');
    this.metadata = metadata;
  }
}

/** Whether an error means that an upstream could not be asked or gave nothing usable. */
export function isUpstreamFailure(error: unknown): error is UpstreamError {
  return error instanceof UpstreamError;
}
