import { isHidden, type Admission, type MirroredName } from '../../mirror/policy/admission.ts';
import type { Digest } from '../../runtime/digest.ts';
import { withPauses } from '../../runtime/event-loop.ts';
import type { StoredManifests } from './stored-manifests.ts';
import type { UpstreamRepository } from './upstream-repository.ts';

/** The most digests of a tag that are searched for one that is old enough. */
const digestsSearched = 100;

/** Finds what clients get of tags that moved to a digest that is held. */
export class EarlierDigests {
  readonly #admission: Admission;
  readonly #manifests: StoredManifests;
  /** By the tags that are shown without those that have an earlier digest. */
  readonly #shown = new WeakMap<readonly string[], readonly string[]>();

  constructor(admission: Admission, manifests: StoredManifests) {
    this.#admission = admission;
    this.#manifests = manifests;
  }

  /** The latest digest that clients get of each of `tags`. A tag that has none is left out. */
  async of(place: UpstreamRepository, tags: readonly string[]): Promise<ReadonlyMap<string, Digest>> {
    const name = this.#manifests.nameOf(place);
    const found = new Map<string, Digest>();
    for (const [tag, digests] of await this.#manifests.digestsOf(place, tags, digestsSearched)) {
      const [latest] = await this.#admission.listed(name, digests, String);
      if (latest === undefined) continue;
      const [verdict = 'allow'] = (await this.#admission.decided(name, [latest])) ?? [];
      if (verdict === 'allow') found.set(tag, latest as Digest);
    }
    return found;
  }

  /** Those of `tags` that lists show: also one of which clients get an earlier digest. */
  async listed(place: UpstreamRepository, tags: readonly string[]): Promise<readonly string[]> {
    const shown = await this.#admission.listed(this.#manifests.nameOf(place), tags, String);
    if (shown.length === tags.length) return shown;
    const known = this.#shown.get(shown);
    if (known) return known;
    const open = new Set(shown);
    const hidden: string[] = [];
    for await (const tag of withPauses(tags)) if (!open.has(tag)) hidden.push(tag);
    const earlier = await this.of(place, hidden);
    const all: string[] = [];
    for await (const tag of withPauses(tags)) if (open.has(tag) || earlier.has(tag)) all.push(tag);
    this.#shown.set(shown, all);
    return all;
  }

  /** Whether a tag is refused whatever digest it has, so its upstream need not be asked for another one. Counts no refusal. */
  async isRefusedAnyway(name: MirroredName, tag: string): Promise<boolean> {
    const facts: MirroredName['facts'] = { of: () => Promise.resolve(new Map()) };
    const [verdict = 'allow'] = (await this.#admission.decided({ ...name, facts, isPast: true }, [tag])) ?? [];
    return verdict !== 'allow' && !isHidden(verdict);
  }
}
