import type { MirrorEntry } from '../../mirror/mirror.ts';
import type { MirroredName, WithdrawnTimes } from '../../mirror/policy/admission.ts';
import { untilCallerLeaves } from '../../runtime/caller.ts';
import type { PackageGate } from './package-gate.ts';

/**
 * Refuses a nupkg that is being fetched if it has other content than the first that was stored of this version, and the policy of the
 * account refuses that. Only for such an account, and for a version that was stored before, it waits for the last byte. Throws `Denied`,
 * or the error of the fetch; then the content is closed.
 */
export async function refuseRepublished(
  { admission, sightings }: Pick<PackageGate, 'admission' | 'sightings'>,
  name: MirroredName,
  version: string,
  { complete, content }: MirrorEntry,
): Promise<void> {
  const key = { upstream: name.upstream.id, kind: 'nupkg', name: name.name };
  // Nothing that is decided of this is kept: it is not what is stored.
  const republishedAt = (time: number): MirroredName => {
    const times: WithdrawnTimes = async () => new Map([[version, time]]);
    return { ...name, facts: { ...name.facts, republished: async () => times }, isPast: true };
  };
  try {
    const [verdict = 'allow'] = (await admission.decided(republishedAt(0), [version])) ?? [];
    if (verdict === 'allow' || (await sightings.firstSeen(key, 'version', [version])).size === 0) return;
    const { digest } = await untilCallerLeaves(complete);
    const seenAt = await sightings.republishedAt({ ...key, reference: version }, digest);
    if (seenAt !== undefined) await admission.serves(republishedAt(seenAt), version);
  } catch (error) {
    content.close();
    throw error;
  }
}
