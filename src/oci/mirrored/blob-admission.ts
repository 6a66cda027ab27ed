import type { Admission, MirroredName } from '../../mirror/policy/admission.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { namingSearched, type StoredManifests } from './stored-manifests.ts';
import { listedName, type UpstreamRepository } from './upstream-repository.ts';

/**
 * Those of `digests` whose blobs a policy lets be served: of each, an image that names it is open. Searches the stored manifests that
 * were used last. Throws `Denied`.
 */
export async function servedBlobs(
  admission: Admission,
  manifests: StoredManifests,
  place: UpstreamRepository,
  digests: Iterable<Digest>,
): Promise<Set<Digest>> {
  const name = manifests.nameOf(place);
  const blob: MirroredName = { ...name, kind: 'blob' };
  const [isBlobLimited, isNameLimited] = await Promise.all([admission.isLimited(blob), admission.isLimited(name)]);
  const served = new Set<Digest>();
  for (const digest of digests) if (!isBlobLimited || (await admission.serves(blob, digest))) served.add(digest);
  if (served.size === 0 || !isNameLimited) return served;
  const rest = new Set<string>(served);
  const refused = new Map<string, Digest>();
  const search = async () => {
    for await (const [manifest, { blobs, children }] of manifests.latestContent(place, namingSearched, Infinity)) {
      const named = [...blobs, ...children].filter((each) => rest.has(each.digest));
      if (named.length === 0) continue;
      const [verdict = 'allow'] = (await admission.decided(name, [manifest])) ?? [];
      for (const { digest } of named) {
        if (verdict === 'allow') rest.delete(digest);
        else if (!refused.has(digest)) refused.set(digest, manifest);
      }
      if (rest.size === 0) return;
    }
  };
  await search();
  if (rest.size > 0 && (await manifests.noteUses(place))) await search();
  for (const digest of served) {
    if (!rest.has(digest)) continue;
    const manifest = refused.get(digest);
    if (manifest === undefined) throw unnamed(place, digest);
    if (!(await admission.serves(name, manifest))) served.delete(digest);
  }
  return served;
}

function unnamed(place: UpstreamRepository, digest: Digest): DomainError {
  const message = `No image of ${listedName(place)} that the policy allows has the blob ${digest}. Pull the image by its tag or digest.`;
  return new DomainError('Denied', message);
}
