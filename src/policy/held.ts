import type { NameKind } from '../accounts/names.ts';
import type { Database } from '../database/database.ts';
import type { StoredNames } from '../mirror/policy/stored-names.ts';
import { newestEntries } from '../mirror/store/listing.ts';
import { BackgroundTask } from '../runtime/background-task.ts';
import { pause, withPauses } from '../runtime/event-loop.ts';
import { compareRanks, type Rank } from '../runtime/ranked.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { unlessUpstreamFails } from '../upstream/upstream-error.ts';
import type { Decision } from './decide.ts';
import type { PolicyGate } from './gate.ts';

/** The name of the error of requests that a policy refuses. */
export const refusalCode = 'Denied';

/** A version or tag that a policy refuses. */
export interface HeldReference {
  kind: NameKind;
  name: string;
  reference: string;
  /** The name of the upstream. */
  upstream: string;
  decision: Decision;
  /** Whether clients get a higher version of the package; null for an image. */
  isBelowVisible: boolean | null;
}

/** Where a page ends. */
export interface HeldPlace {
  /** The last entry of which all was told; undefined before the first one. */
  done: Rank | undefined;
  /** The entry after it, and the last reference of it that was told; both empty if none was. */
  entry: string;
  reference: string;
}

interface HeldQuery {
  limit: number;
  after?: HeldPlace | undefined;
  kind?: NameKind | undefined;
  /** Whether a name, in lower case, is wanted. */
  isWanted: (kind: NameKind, name: string) => boolean;
}

interface HeldPage {
  items: HeldReference[];
  /** Undefined after the last page. A page before it can have few items, or none. */
  next: HeldPlace | undefined;
}

interface Place {
  source: StoredNames;
  upstream: Upstream;
}

interface Candidate extends Place {
  rank: Rank;
  entry: { name: string; reference: string };
}

/** Entries that one statement reads, and the most that one page reads. */
const entriesAtATime = 200;
const maxEntries = 1000;
/** The most names, which a policy can refuse, that are decided for one page. */
const maxDecided = 200;

/**
 * What policies refuse an account of the versions and tags that stored documents name. Sends no request: a package whose dates are
 * not stored is left out, because no client has asked for it under this policy.
 */
export class HeldReferences {
  readonly #database: Database;
  readonly #gate: Pick<PolicyGate, 'decideAll'>;
  readonly #sources: readonly StoredNames[];

  constructor(
    { database, gate }: { database: Database; gate: Pick<PolicyGate, 'decideAll'> },
    protocols: readonly { stored?: StoredNames }[],
  ) {
    this.#database = database;
    this.#gate = gate;
    this.#sources = protocols.flatMap(({ stored }) => stored ?? []);
  }

  /**
   * A page of what is refused. The names whose list of versions, or whose tag, changed last come first, and of a package the highest
   * version.
   */
  list(accountId: number, query: HeldQuery): Promise<HeldPage> {
    // What is read to make a list does not count as used.
    return new BackgroundTask(new AbortController().signal).run(() => this.#list(accountId, query));
  }

  async #list(accountId: number, { limit, after, kind, isWanted }: HeldQuery): Promise<HeldPage> {
    const places: Place[] = [];
    for (const source of this.#sources.filter((each) => kind === undefined || each.kind === kind))
      for (const upstream of await source.upstreams(accountId)) places.push({ source, upstream });
    const items: HeldReference[] = [];
    let [read, decided] = [0, 0];
    let done = after?.done;
    for (;;) {
      const candidates = await this.#candidates(places, done);
      for (const candidate of candidates) {
        const { source, upstream, entry, rank } = candidate;
        const name = source.shownName(upstream, entry.name);
        if (isWanted(source.kind, name.toLowerCase())) {
          const isBegun = after?.entry === rank[1];
          let told = isBegun ? after.reference : '';
          const decisions = await this.#decisionsOf(accountId, candidate);
          if (decisions.size > 0) decided += 1;
          for (const item of await refusedAmong(decisions, candidate, name, told)) {
            if (items.length === limit) return { items, next: { done, entry: rank[1], reference: told } };
            items.push(item);
            told = item.reference;
          }
        }
        done = rank;
        read += 1;
        if (read === maxEntries || decided === maxDecided) return { items, next: { done, entry: '', reference: '' } };
      }
      if (candidates.length < entriesAtATime) return { items, next: undefined };
      await pause();
    }
  }

  async #candidates(places: readonly Place[], done: Rank | undefined): Promise<Candidate[]> {
    const found: Candidate[] = [];
    for (const place of places) {
      const { source, upstream } = place;
      const among = { upstream: upstream.id, kind: source.entryKind };
      const entries = await newestEntries(this.#database, among, entriesAtATime, done);
      found.push(...entries.map(({ rank, item: entry }) => ({ ...place, rank, entry })));
    }
    return found.sort((one, other) => compareRanks(one.rank, other.rank)).slice(0, entriesAtATime);
  }

  /** What is decided of the references of an entry; none if no policy can refuse one, or if too little is stored. */
  async #decisionsOf(
    accountId: number,
    { source, upstream, entry }: Candidate,
  ): Promise<ReadonlyMap<string, Decision>> {
    const stored = await source.find(accountId, upstream, entry);
    if (!stored) return new Map();
    const decide = () => this.#gate.decideAll(stored.name, async () => (await stored.references()) ?? []);
    return (await unlessUpstreamFails(decide)) ?? new Map<string, Decision>();
  }
}

/** What is refused of an entry, the highest version first, after the reference `told`. */
async function refusedAmong(
  decisions: ReadonlyMap<string, Decision>,
  { source: { kind, hasVersions }, upstream }: Candidate,
  name: string,
  told: string,
): Promise<HeldReference[]> {
  const refused: HeldReference[] = [];
  let hasHigher = false;
  for await (const [reference, decision] of withPauses([...decisions].toReversed())) {
    if (reference === told) refused.length = 0;
    else if (decision.verdict !== 'allow') {
      const isBelowVisible = hasVersions ? hasHigher : null;
      refused.push({ kind, name, reference, upstream: upstream.name, decision, isBelowVisible });
    }
    hasHigher ||= decision.verdict === 'allow';
  }
  return refused;
}
