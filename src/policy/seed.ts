import type { MirroredName } from '../mirror/policy/admission.ts';
import type { NameStory } from '../mirror/policy/upstream-policy.ts';
import { isDomainError } from '../runtime/errors.ts';
import type { Decision, Layer } from './decide.ts';
import { kindOf, type PolicyGate } from './gate.ts';
import { maxWaiverReferences } from './waiver-request.ts';
import type { Waivers } from './waivers.ts';

/** A version, tag or digest as policies see it. */
export interface ReferenceInPolicy {
  story: NameStory;
  /** The name by which a client asks. */
  askedName: string;
  name: MirroredName;
  reference: string;
}

/** What became of a reference. */
interface Seeded {
  /** `opened` by a waiver; `refused`: clients do not get it, for `reason`. */
  outcome: 'open' | 'opened' | 'refused';
  /** When the waiver ends; milliseconds since 1970 UTC. */
  until?: number;
  reason?: string;
}

interface SeedParts {
  gate: Pick<PolicyGate, 'explain'>;
  waivers: Pick<Waivers, 'resolve' | 'request' | 'decide'>;
  now: () => number;
  /** The longest life of a waiver; milliseconds. */
  longest: number;
}

type Resolved = Awaited<ReturnType<Waivers['resolve']>>;

interface Held extends Resolved {
  seeded: Seeded;
  from: ReferenceInPolicy;
  layer: Layer['scope'];
  until: number;
}

/** The layer of all accounts and that of the account can each hold a reference. */
const rounds = 2;

/** Opens what minimum ages hold today, so that builds which need it can go on. */
export class PolicySeed {
  readonly #parts: SeedParts;

  constructor(parts: SeedParts) {
    this.#parts = parts;
  }

  /**
   * Opens `references` for an account by waivers that lift the age until they are old enough, also in layers that only watch. Upstreams
   * are asked for the digests of tags, which become known here. Resolves to what became of each, in their order. `reason` becomes the
   * reason of the waivers, and `requester` theirs.
   */
  async run(
    accountId: number,
    references: readonly ReferenceInPolicy[],
    { reason, requester }: { reason: string; requester: string },
  ): Promise<Seeded[]> {
    const all = references.map((from) => ({ from, seeded: { outcome: 'open' } as Seeded }));
    for (let round = 0; round <= rounds; round += 1) {
      const groups = new Map<string, Held[]>();
      for (const { from, seeded } of all) {
        if (seeded.outcome === 'refused') continue;
        const held = await this.#heldOf(from, seeded).catch((error: unknown) => {
          if (!isDomainError(error)) throw error;
          refuse(seeded, error.message);
          return undefined;
        });
        if (!held) continue;
        if (round === rounds) refuse(seeded, 'it is still held');
        const key = `${held.from.name.kind} ${held.key} ${held.layer}`;
        groups.set(key, [...(groups.get(key) ?? []), held]);
      }
      if (groups.size === 0 || round === rounds) break;
      for (const group of groups.values()) await this.#open(accountId, group, reason, requester);
    }
    return all.map(({ seeded }) => seeded);
  }

  /** Undefined if no age holds it. */
  async #heldOf(from: ReferenceInPolicy, seeded: Seeded): Promise<Held | undefined> {
    const { gate, waivers, now, longest } = this.#parts;
    const resolved = await waivers.resolve(from.story, from.askedName, [from.reference]);
    const { audited } = await gate.explain(from.name, from.reference);
    if (audited.verdict === 'allow') return undefined;
    if (audited.rule !== 'age' || !audited.layer) {
      refuse(seeded, reasonOf(audited));
      return undefined;
    }
    const until = Math.min(audited.until ?? Infinity, now() + longest);
    return { ...resolved, seeded, from, layer: audited.layer.scope, until };
  }

  async #open(accountId: number, group: readonly Held[], reason: string, requester: string): Promise<void> {
    const { waivers } = this.#parts;
    const open = [...group];
    while (open.length > 0) {
      // A tag has its digest beside it.
      const some = open.splice(0, maxWaiverReferences / 2);
      const [{ name, key, layer, from }] = some as [Held];
      const kind = kindOf(from.name);
      const until = Math.max(...some.map((each) => each.until));
      const references = [...new Set(some.flatMap((each) => each.references))];
      const wanted = {
        accountId,
        kind,
        name,
        key,
        references,
        lifts: 'age',
        reason,
        requester,
        expiresAt: until,
      } as const;
      const { id } = await waivers.request(wanted);
      await waivers.decide(accountId, id, { state: 'approved', layer }, undefined);
      for (const { seeded } of some)
        Object.assign(seeded, { outcome: 'opened', until: Math.max(until, seeded.until ?? 0) });
    }
  }
}

function reasonOf({ reason, verdict }: Decision): string {
  return reason ?? verdict;
}

function refuse(seeded: Seeded, reason: string): void {
  Object.assign(seeded, { outcome: 'refused', reason });
}
