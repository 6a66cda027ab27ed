import { currentCaller, runFor, untilCallerLeaves, type Caller } from '../runtime/caller.ts';
import type { Transaction } from '../database/database.ts';
import type { Digest } from '../runtime/digest.ts';
import { isDomainError } from '../runtime/errors.ts';
import { FailureLog } from '../upstream/failure-log.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';
import type { StagedFile } from '../storage/files/staged-file.ts';
import { contentOf, readAll, type Content } from '../storage/files/content.ts';
import { MirrorCounts, type UpstreamUse } from './store/counts.ts';
import { entryId, type EntryKey, type EntryMetadata } from './store/entries.ts';
import { rememberEntry, storeEntry, type StatedContent } from './fetch/checked-entry.ts';
import { checkImported } from './imports.ts';
import { Flight, type FlightParts, type JoinResult } from './fetch/flight.ts';
import { Hangs } from './fetch/hangs.ts';
import { Withdrawals } from './withdrawals.ts';
import { Partials } from './fetch/partials.ts';
import { isFresh, isServableStale, type EntryDescription, type MirrorResource } from './fetch/resource.ts';
import { FetchPlaces } from './fetch/fetch-places.ts';

/**
 * How an entry was served (RFC 9211); `passed` is a miss that was not stored because the disk has no room. `withdrawn`: the
 * upstream has answered that it has it no more, and what is stored stays.
 */
export type ServedOutcome = 'hit' | 'stale' | 'miss' | 'passed' | 'revalidated' | 'withdrawn';

/** Content of an upstream, ready to be read. The caller closes `content`. */
export interface MirrorEntry {
  outcome: ServedOutcome;
  type: string;
  size: number | undefined;
  content: Content;
  /** Set if the entry is stored; undefined while it is being fetched: then `complete` resolves to it. */
  metadata: EntryMetadata | undefined;
  /** Resolves when the bytes are verified, and stored if the disk has room. After `content` is closed, the fetch may stop. */
  complete: Promise<EntryMetadata>;
}

export interface MirrorParts extends Omit<FlightParts, 'partials' | 'counts'> {
  withdrawals: Withdrawals;
  /** The most fetches that one account may have in progress. */
  accountFetches: number;
  /** Called before each fetch, which waits for the result if there is one. A rejection refuses the fetch. */
  admit?: (() => Promise<void> | undefined) | undefined;
  /** Milliseconds that the beginning of a body is kept after its last reader has left. */
  keepPartial: number;
}

/** How often one request may find that the stored bytes are lost, before it fails. */
const maxLosses = 3;
/** A fetch is slow after this part of the upstream's time-out: then a stale entry is served to further requests. */
const slowShare = 0.1;
/** A fetch that fails after this part of the upstream's time-out has hung. */
const hangShare = 0.5;

/** The pull-through cache. Both protocols use it; it does not know them. */
export class Mirror {
  readonly counts = new MirrorCounts();
  readonly withdrawals: Withdrawals;
  readonly #parts: FlightParts;
  readonly #slots: FetchPlaces;
  readonly #admit: MirrorParts['admit'];
  /** For fetches that wait, by upstream. */
  readonly #waits = new Map<string, FailureLog>();
  readonly #hangs: Hangs;
  /** Entries that are asked for in the background. */
  readonly #asking = new Set<string>();
  /** The fetches that a reader can join, by the id of their entry. */
  readonly #flights = new Map<string, Flight>();
  readonly #underWay = new Set<Flight>();

  constructor({ accountFetches, admit, keepPartial, withdrawals, ...parts }: MirrorParts) {
    this.withdrawals = withdrawals;
    this.#parts = { ...parts, partials: new Partials(keepPartial), counts: this.counts };
    this.#slots = new FetchPlaces({
      max: accountFetches,
      report: (upstream, account) => this.#reportWait(upstream, account),
    });
    this.#admit = admit;
    this.#hangs = new Hangs(parts.now);
  }

  /**
   * The entry for `resource`: a fresh one from the storage, else from the one fetch for its key, else a stale one. While
   * an upstream sends no answers, one request waits for it in each freshness period; others get a stale entry at once.
   * Undefined if the upstream answers "not found". Throws `UpstreamUnavailable` or `UpstreamTimeout` if the upstream fails
   * and no stored entry may be served.
   */
  async open(resource: MirrorResource): Promise<MirrorEntry | undefined> {
    const use = this.counts.of(resource.upstreamKind, resource.key.upstream);
    try {
      const entry = await this.#open(resource);
      count(use, entry);
      // The use of a tag is one of its digest, too: eviction keeps both, or none.
      const aliases = entry?.metadata && resource.aliases?.(entry.metadata);
      for (const key of aliases ?? []) this.#parts.entries.used(entryId(key));
      return entry;
    } catch (error) {
      if (isUpstreamFailure(error)) use.requests.failed += 1;
      throw error;
    }
  }

  async #open(resource: MirrorResource): Promise<MirrorEntry | undefined> {
    const id = entryId(resource.key);
    const { entries, now } = this.#parts;
    for (let losses = 0; ; losses += 1) {
      try {
        const known = await entries.getCached(id);
        if (known && isFresh(resource.lifetime, known, now())) return await this.#stored(id, known, 'hit');
        const absence = await entries.absence(id);
        if (absence) {
          const kept = absence === 'kept' ? await entries.find(id) : undefined;
          return kept && (await this.#stored(id, kept, 'withdrawn'));
        }
        return (await this.#staleAtOnce(id, resource)) ?? (await this.#join(id, resource));
      } catch (error) {
        if (!(error instanceof BlobMissing)) throw error;
        await entries.forget(id, error.metadata);
        // A storage that damages everything must not send endless requests to the upstream.
        if (losses === maxLosses) throw error.cause;
      }
    }
  }

  /** The stored entry under `key`, whatever its age. Sends no request. */
  async stored(key: EntryKey): Promise<EntryMetadata | undefined> {
    return this.#parts.entries.find(entryId(key));
  }

  /** Whether an upstream answered a short time ago that it does not have an entry. */
  async isAbsent(key: EntryKey): Promise<boolean> {
    return (await this.#parts.entries.absence(entryId(key))) !== undefined;
  }

  /**
   * The stored entry for a resource, if it may be served while the upstream fails. Sends no request. Counts as a request
   * only with `upstreamKind`, and not as a use with `isSearched`.
   */
  async openStored(
    resource: Pick<MirrorResource, 'key' | 'lifetime'> & Partial<Pick<MirrorResource, 'upstreamKind'>>,
    { isSearched = false } = {},
  ): Promise<MirrorEntry | undefined> {
    const entry = await this.#openStored(resource, !isSearched);
    if (entry && resource.upstreamKind) count(this.counts.of(resource.upstreamKind, resource.key.upstream), entry);
    return entry;
  }

  async #openStored(
    { key, lifetime }: Pick<MirrorResource, 'key' | 'lifetime'>,
    isUse = true,
  ): Promise<MirrorEntry | undefined> {
    const id = entryId(key);
    const known = await this.#parts.entries.find(id);
    if (!known || !isServableStale(lifetime, known, this.#parts.now())) return undefined;
    return this.#stored(id, known, lifetime === 'immutable' ? 'hit' : 'stale', isUse).catch((error: unknown) => {
      if (error instanceof BlobMissing) return undefined;
      throw error;
    });
  }

  /**
   * Stores complete bytes that came from elsewhere than the upstream as the entry that `entry` describes. They are checked as
   * fetched ones are. Throws `TooLarge`, `DigestMismatch`, or `Invalid` if they are not this content. The caller discards
   * `staged`.
   */
  async import(
    entry: EntryDescription,
    staged: StagedFile,
    stated: Omit<StatedContent, 'size'>,
  ): Promise<EntryMetadata> {
    const { entries } = this.#parts;
    const checked = await checkImported(entry, staged, stated, this.#parts.now());
    await rememberEntry(entries, checked, await storeEntry(this.#parts, checked));
    for (const key of checked.keys) await entries.forgetAbsent(entryId(key));
    return checked.metadata;
  }

  /** The number of fetches in progress. */
  get flights(): number {
    return this.#underWay.size;
  }

  /** The number of fetches from the upstream with this ID that wait for a place of their account. */
  waiting(upstream: string): number {
    return this.#slots.waiting(upstream);
  }

  /** See `Entries.referencesOf`. */
  referencesOf(key: Omit<EntryKey, 'reference'>, digest: Digest): Promise<string[]> {
    return this.#parts.entries.referencesOf(key, digest);
  }

  /** The references stored under an upstream's `kind` and `name`, in byte order, `limit` at most. */
  references(key: Omit<EntryKey, 'reference'>, limit: number, after?: string): Promise<string[]> {
    return this.#parts.entries.references(key, limit, after);
  }

  /** Those of `references` that are stored under an upstream's `kind` and `name`. */
  among(key: Omit<EntryKey, 'reference'>, references: readonly string[]): Promise<Set<string>> {
    return this.#parts.entries.among(key, references);
  }

  /** The references stored under an upstream's `kind` and `name` that were used last, the latest first. */
  latest(key: Omit<EntryKey, 'reference'>, limit: number): Promise<string[]> {
    return this.#parts.entries.latest(key, limit);
  }

  /** Writes the uses of entries that are only in memory, so that `latest` knows them. */
  writeUses(): Promise<void> {
    return this.#parts.entries.flushUses();
  }

  /** Drops the entry under `key` for a person, and runs `also` in the same transaction; resolves to whether there was one. */
  async remove(key: EntryKey, also?: (tx: Transaction) => Promise<void>): Promise<boolean> {
    const id = entryId(key);
    const metadata = await this.#parts.entries.read(id);
    if (metadata) await this.#parts.entries.forgetEverywhere(id, metadata, also);
    return metadata !== undefined;
  }

  /** Resolves when all fetches have ended. Close the upstreams first, so that no fetch waits for an answer. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#underWay].map((flight) => flight.result));
    await this.#parts.partials.close();
  }

  /** A stale entry without waiting for the upstream, if that seems to hang. Asks it in the background. */
  async #staleAtOnce(id: string, resource: MirrorResource): Promise<MirrorEntry | undefined> {
    const { key, lifetime, idle } = resource;
    if (lifetime === 'immutable') return undefined;
    const flight = this.#joinable(id);
    const isSlow = flight !== undefined && flight.age > idle * slowShare;
    if (!isSlow && !this.#hangs.isRecent(id, key.upstream, lifetime.freshFor)) return undefined;
    const { entries, now } = this.#parts;
    const known = await entries.find(id);
    if (!known || !isServableStale(lifetime, known, now())) return undefined;
    if (isFresh(lifetime, known, now())) return this.#stored(id, known, 'hit');
    const entry = await this.#stored(id, known, 'stale');
    if (!this.#joinable(id) && !this.#asking.has(id)) void this.#askInBackground(id, resource);
    return entry;
  }

  /** Fetches for no client, so that a client that leaves does not stop it. */
  async #askInBackground(id: string, resource: MirrorResource): Promise<void> {
    this.#asking.add(id);
    const caller: Caller = { account: currentCaller()?.account, gone: false, whenGone: () => () => undefined };
    try {
      const joined = await runFor(caller, () => this.#joinOrStart(id, resource));
      if (joined.kind === 'tail') await joined.done.finally(() => joined.content.close());
    } catch {
      // The upstream has logged its failure. The next request gets the stale entry, too.
    } finally {
      this.#asking.delete(id);
    }
  }

  async #join(id: string, resource: MirrorResource): Promise<MirrorEntry | undefined> {
    let joined: JoinResult;
    try {
      joined = await this.#joinOrStart(id, resource);
      if (joined.kind === 'tail' && resource.whole) return await this.#whole(id, resource, joined);
    } catch (error) {
      const { entries, now } = this.#parts;
      if (!isUpstreamFailure(error) && !isDomainError(error, 'TooManyRequests')) throw error;
      const known = await entries.find(id);
      // For an upstream that is set to offline, a stored entry of any age is served.
      const isOffline = isUpstreamFailure(error) && error.offline;
      if (!known || !(isOffline || isServableStale(resource.lifetime, known, now()))) throw error;
      return await this.#stored(id, known, 'stale').catch((missing) => {
        throw missing instanceof BlobMissing ? error : missing;
      });
    }
    if (joined.kind === 'absent') return undefined;
    if (joined.kind === 'stored') return this.#stored(id, joined.metadata, joined.outcome);
    const { type, size, content, isStored, done } = joined;
    const complete = done.then(({ metadata }) => metadata);
    complete.catch(() => undefined);
    return { outcome: isStored ? 'miss' : 'passed', type, size, content, metadata: undefined, complete };
  }

  /** A small document when it is complete: from the storage, or from memory if it could not be stored. */
  async #whole(
    id: string,
    resource: MirrorResource,
    { type, content, done }: Extract<JoinResult, { kind: 'tail' }>,
  ): Promise<MirrorEntry> {
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

  /** Joins the fetch for an entry, or starts one when the caller is admitted and its account has a free slot. */
  async #joinOrStart(id: string, resource: MirrorResource): Promise<JoinResult> {
    const { entries, now } = this.#parts;
    // What is only in the database must not wait for a place, and does not count as a fetch.
    const stored = this.#joinable(id) ? undefined : await entries.read(id);
    if (stored && isFresh(resource.lifetime, stored, now()))
      return { kind: 'stored', metadata: stored, outcome: 'hit' };
    const known = this.#joinable(id);
    if (known) return this.#joinKnown(known);
    const admitted = this.#admit?.();
    if (admitted) await admitted;
    return this.#startInTurn(id, resource);
  }

  #startInTurn(id: string, resource: MirrorResource): Promise<JoinResult> {
    const taken = this.#slots.take(currentCaller(), resource.key.upstream);
    if (!(taken instanceof Promise)) return this.#start(id, resource, taken);
    return taken.then((release) => this.#start(id, resource, release));
  }

  /** Once in a while for each upstream. */
  #reportWait(upstream: string, account: string): void {
    let log = this.#waits.get(upstream);
    if (!log) this.#waits.set(upstream, (log = new FailureLog(this.#parts.log, upstream, this.#parts.now)));
    log.warn('fetches wait for a place', account, 'the fetches in progress use all places that the upstream may have');
  }

  #joinKnown(flight: Flight): Promise<JoinResult> {
    this.counts.joined += 1;
    return flight.join();
  }

  #start(id: string, resource: MirrorResource, release: () => void): Promise<JoinResult> {
    const known = this.#joinable(id);
    if (known) {
      release();
      return this.#joinKnown(known);
    }
    const flight = new Flight(resource, this.#parts);
    this.#flights.set(id, flight);
    this.#underWay.add(flight);
    const end = () => {
      release();
      this.#underWay.delete(flight);
      if (this.#flights.get(id) === flight) this.#flights.delete(id);
    };
    flight.result.then(
      () => this.#hangs.answered(id, resource.key.upstream),
      (error: unknown) => this.#noteHang(id, resource, flight, error),
    );
    flight.result.then(end, end);
    return flight.join();
  }

  /** Remembers an upstream that sent no answer. A large body that was cut says nothing about the upstream. */
  #noteHang(id: string, { key, lifetime, idle }: MirrorResource, flight: Flight, error: unknown): void {
    // `Aborted`: all clients left before the time was over.
    const isFailure = isUpstreamFailure(error) || isDomainError(error, 'Aborted');
    const isHang = flight.age >= idle * hangShare && !(flight.hasBody && lifetime === 'immutable');
    if (isFailure && isHang) this.#hangs.hung(id, key.upstream);
  }

  #joinable(id: string): Flight | undefined {
    const flight = this.#flights.get(id);
    return flight?.joinable ? flight : undefined;
  }

  async #stored(id: string, metadata: EntryMetadata, outcome: ServedOutcome, isUse = true): Promise<MirrorEntry> {
    const { blobs, entries } = this.#parts;
    try {
      const content = await blobs.open(metadata.digest, metadata.size);
      if (isUse) entries.used(id);
      const { type, size } = metadata;
      return { outcome, type, size, content, metadata, complete: Promise.resolve(metadata) };
    } catch (error) {
      const isLost = isDomainError(error, 'BlobUnknown') || isDomainError(error, 'ContentDamaged');
      throw isLost ? new BlobMissing(metadata, error) : error;
    }
  }
}

/** Counts a request. Of an entry from the storage, the caller later adds the bytes that it sent. */
function count(use: UpstreamUse, entry: MirrorEntry | undefined): void {
  use.requests[entry?.outcome ?? 'absent'] += 1;
  if (entry?.metadata && entry.outcome !== 'miss') currentCaller()?.readsFrom?.(use);
}

/** The blob of an entry is missing or damaged: the entry is dropped and fetched again. */
class BlobMissing extends Error {
  readonly metadata: EntryMetadata;

  constructor(metadata: EntryMetadata, cause: unknown) {
    super('the blob of an entry is missing or damaged', { cause });
    this.metadata = metadata;
  }
}

/** Whether an error is an upstream's: no request was possible, or the answer cannot be used. */
export function isUpstreamFailure(error: unknown): error is UpstreamError {
  return error instanceof UpstreamError;
}
