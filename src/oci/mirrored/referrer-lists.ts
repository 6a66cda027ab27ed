import type { Admission } from '../../mirror/policy/admission.ts';
import type { MirrorReader } from '../../mirror/stored-only.ts';
import type { Digest } from '../../runtime/digest.ts';
import { withPauses } from '../../runtime/event-loop.ts';
import type { Descriptor } from '../format/manifest.ts';
import { fallbackTag } from '../format/reference.ts';
import { openList, referrerLists, type Listed } from './parsed-lists.ts';
import type { StoredManifests } from './stored-manifests.ts';
import { collect, readDescriptors, withoutReferrers } from './upstream-lists.ts';
import { resource, urlOf, type UpstreamRepository } from './upstream-repository.ts';

/** Lists of what refers to the manifests of upstreams: signatures, bills of materials and the like. */
export class ReferrerLists {
  readonly #mirror: MirrorReader;
  readonly #admission: Admission;
  readonly #manifests: StoredManifests;

  constructor(mirror: MirrorReader, admission: Admission, manifests: StoredManifests) {
    this.#mirror = mirror;
    this.#admission = admission;
    this.#manifests = manifests;
  }

  /**
   * The descriptors of the manifests that refer to `digest`, each once, by digest. From the referrers API, or from the
   * fallback tag if the upstream has no such API. With those that it does not list any more and that are stored. Empty if there
   * are none. An empty list is stored only for a manifest that is stored: clients can ask for any number of invented digests.
   *
   * If a policy holds a referrer, its age counts from the first list that has it, because clients learn its digest only here. It
   * does not get the age of the manifest that it refers to, because new content can refer to an old manifest.
   */
  async of(place: UpstreamRepository, digest: Digest): Promise<Listed<Descriptor>> {
    let isAsked = false;
    const list = await openList(this.#mirror, place, referrerLists, digest, async (signal, known) => {
      isAsked = true;
      const seen = new Set<string>();
      const read = (items: readonly unknown[]) => {
        const descriptors = readDescriptors(items);
        for (const each of descriptors) seen.add(each.digest);
        return descriptors;
      };
      const further = () => this.#manifests.withdrawn.referrers(place, digest, seen);
      const api = { url: urlOf(place, 'referrers', digest), answers: withoutReferrers };
      let fetched = await collect(place, api, 'manifests', read, signal, further);
      if (fetched.kind === 'absent') {
        const fallback = { url: urlOf(place, 'manifests', fallbackTag(digest)) };
        fetched = await collect(place, fallback, 'manifests', read, signal, further);
      }
      const isKept = known !== undefined || seen.size > 0 || (await this.#isStored(place, digest));
      return isKept ? fetched : { kind: 'absent' };
    });
    if (!list) return { served: isAsked ? 'passed' : 'hit', items: [] };
    const name = this.#manifests.nameOf(place);
    const shown = await this.#admission.listed(name, list.items, (each) => each.digest);
    if (shown.length < list.items.length) await this.#sightHeld(place, list.items, shown);
    return { ...list, items: shown };
  }

  async #isStored(place: UpstreamRepository, digest: Digest): Promise<boolean> {
    return (await this.#mirror.among(resource(place, 'manifest', '').key, [digest])).size > 0;
  }

  async #sightHeld(place: UpstreamRepository, items: readonly Descriptor[], shown: readonly Descriptor[]) {
    const open = new Set(shown);
    const held: string[] = [];
    for await (const each of withPauses(items)) if (!open.has(each)) held.push(each.digest);
    await this.#manifests.sightReferrers(place, held);
  }
}
