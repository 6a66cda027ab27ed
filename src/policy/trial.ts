import type { Database } from '../database/database.ts';
import type { MirroredName } from '../mirror/policy/admission.ts';
import type { StoredNames } from '../mirror/policy/stored-names.ts';
import { usedEntries } from '../mirror/store/listing.ts';
import { BackgroundTask } from '../runtime/background-task.ts';
import { pause } from '../runtime/event-loop.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { unlessUpstreamFails } from '../upstream/upstream-error.ts';
import type { Decision, Layer } from './decide.ts';
import type { PolicyGate } from './gate.ts';

/** A version, tag or digest that a policy would have refused. Times are in milliseconds since 1970 UTC. */
interface TrialRefusal {
  name: string;
  reference: string;
  /** The first download that is known within the time of the trial, and what would have been decided of it. */
  firstAt: number;
  first: Decision;
  /** What would have been decided of the last download. */
  last: Decision;
}

/** What a trial found. */
export interface TrialResult {
  /** Versions, tags and digests that clients have downloaded. */
  tried: number;
  refused: TrialRefusal[];
  /** Those of which an upstream does not tell the date now. */
  unknown: number;
  /** Whether there was more than one trial can try. */
  isCut: boolean;
}

interface TrialParts {
  database: Database;
  gate: Pick<PolicyGate, 'decideBy'>;
  accounts: { list: () => Promise<readonly { id: number }[]> };
}

/** A name of an upstream, with the times when its references were used last. */
interface UsedName {
  source: StoredNames;
  upstream: Upstream;
  accountId: number;
  name: string;
  usedAt: Map<string, number>;
  /** The digests of the used tags. */
  tagged: Set<string>;
}

/** How long before now downloads count; milliseconds. */
const trialFor = 30 * 86_400_000;
/** Entries that one trial tries. */
const maxTried = 20_000;

/**
 * Tells what a policy would have refused of the downloads of the last 30 days, if it had been in force all the time. Upstreams
 * are asked for the dates of packages, and for nothing else. Lists of known bad content are not tried.
 */
export class PolicyTrial {
  readonly #parts: TrialParts;
  readonly #sources: readonly StoredNames[];

  constructor(parts: TrialParts, protocols: readonly { stored?: StoredNames }[]) {
    this.#parts = parts;
    this.#sources = protocols.flatMap(({ stored }) => stored ?? []);
  }

  /**
   * Tries a layer of one account, or of all without one: then each upstream's content is decided for the first account that it serves.
   * `now` is in milliseconds since 1970 UTC.
   */
  run(layer: Layer, accountId: number | undefined, now: number): Promise<TrialResult> {
    // What a trial reads does not count as used.
    return new BackgroundTask(new AbortController().signal).run(() => this.#run(layer, accountId, now));
  }

  async #run(layer: Layer, accountId: number | undefined, now: number): Promise<TrialResult> {
    const since = now - trialFor;
    const { names, isCut } = await this.#used(accountId, since);
    const result: TrialResult = { tried: 0, refused: [], unknown: 0, isCut };
    for (const { source, upstream, accountId: asker, name, usedAt, tagged } of names) {
      for (const [reference, lastAt] of usedAt) {
        // A pull by a tag uses the digest, too.
        if (tagged.has(reference)) continue;
        const stored = await source.find(asker, upstream, { name, reference });
        if (!stored) continue;
        result.tried += 1;
        const [known] = (await stored.name.facts.of([reference])).values();
        const firstAt = Math.max(since, Math.min(known?.firstSeenAt ?? lastAt, lastAt));
        const first = await this.#decide(stored.asking, reference, layer, firstAt);
        if (!first) result.unknown += 1;
        else if (first.verdict !== 'allow') {
          const last = (await this.#decide(stored.asking, reference, layer, lastAt)) ?? first;
          result.refused.push({ name: source.shownName(upstream, name), reference, firstAt, first, last });
        }
        await pause();
      }
    }
    return result;
  }

  /** Undefined if an upstream fails. */
  #decide(name: MirroredName, reference: string, layer: Layer, at: number): Promise<Decision | undefined> {
    return unlessUpstreamFails(() => this.#parts.gate.decideBy(layer, name, reference, at));
  }

  async #used(accountId: number | undefined, since: number): Promise<{ names: Iterable<UsedName>; isCut: boolean }> {
    const { database, accounts } = this.#parts;
    const askers = accountId === undefined ? (await accounts.list()).map(({ id }) => id) : [accountId];
    const names = new Map<string, UsedName>();
    let count = 0;
    for (const source of this.#sources) {
      const served = await askersOf(source, askers);
      for await (const { upstream: id, name, reference, digest, usedAt } of usedEntries(
        database,
        source.contentKind,
        since,
      )) {
        const asker = served.get(id);
        if (!asker) continue;
        if (count === maxTried) return { names: names.values(), isCut: true };
        count += 1;
        const key = `${source.kind} ${id} ${name}`;
        let used = names.get(key);
        if (!used) names.set(key, (used = { source, ...asker, name, usedAt: new Map(), tagged: new Set() }));
        used.usedAt.set(reference, usedAt);
        if (reference !== digest) used.tagged.add(digest);
      }
    }
    return { names: names.values(), isCut: false };
  }
}

/** The first account that each upstream serves, by the ID of the upstream. */
async function askersOf(source: StoredNames, accountIds: readonly number[]) {
  const askers = new Map<string, { upstream: Upstream; accountId: number }>();
  for (const accountId of accountIds)
    for (const upstream of await source.upstreams(accountId))
      if (!askers.has(upstream.id)) askers.set(upstream.id, { upstream, accountId });
  return askers;
}
