import type { Admission, MirroredName } from '../../mirror/policy/admission.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { namingSearched, type StoredManifests } from './stored-manifests.ts';
import { listedName, type UpstreamRepository } from './upstream-repository.ts';

/** Whether a policy lets a blob be served: an image that names it is open. Throws `Denied`. */
export async function isBlobServed(
  admission: Admission,
  manifests: StoredManifests,
  place: UpstreamRepository,
  digest: Digest,
): Promise<boolean> {
  const name = manifests.nameOf(place);
  const blob: MirroredName = { ...name, kind: 'blob' };
  if ((await admission.isLimited(blob)) && !(await admission.serves(blob, digest))) return false;
  if (!(await admission.isLimited(name))) return true;
  const naming: Digest[] = [];
  for await (const [manifest, { blobs, children }] of manifests.latestContent(place, namingSearched, Infinity)) {
    if (![...blobs, ...children].some((each) => each.digest === digest)) continue;
    const [verdict = 'allow'] = (await admission.decided(name, [manifest])) ?? [];
    if (verdict === 'allow') return true;
    naming.push(manifest);
  }
  if (naming.length > 0) return admission.serves(name, naming[0]!);
  const message = `No image of ${listedName(place)} that the policy allows has the blob ${digest}. Pull the image by its tag or digest.`;
  throw new DomainError('Denied', message);
}
