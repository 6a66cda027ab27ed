import { algorithmOf, hexOf, type Digest } from '../runtime/digest.ts';
import { ownerName, type BundleEntry, type BundleList } from './format.ts';

/** The packages and images of a bundle as a bill of materials (CycloneDX 1.6, "JSON"). */
export function sbomOf(id: Digest, { header, entries }: BundleList, program: string): object {
  return {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      timestamp: new Date(header.created_at).toISOString(),
      tools: { components: [{ type: 'application', name: 'entrepot', version: program }] },
      component: { type: 'data', name: 'bundle', version: id },
    },
    components: entries.flatMap((entry) => componentOf(entry) ?? []),
  };
}

/** A version of a package, or a tag of an image; undefined for other entries. */
function componentOf(entry: BundleEntry): object | undefined {
  const { kind, name, reference, digest, attributes } = entry;
  const upstream = ownerName(entry);
  if (kind === 'nupkg') {
    const { id = name, version = reference } = attributes;
    const purl = `pkg:nuget/${encodeURIComponent(id)}@${encodeURIComponent(version)}`;
    return {
      'bom-ref': `${purl}?upstream=${encodeURIComponent(upstream)}`,
      type: 'library',
      name: id,
      version,
      purl,
      hashes: hashes(digest),
    };
  }
  if (kind !== 'manifest' || reference.includes(':')) return undefined;
  const last = name.slice(name.lastIndexOf('/') + 1);
  const place = encodeURIComponent(`${upstream}/${name}`);
  const purl = `pkg:oci/${encodeURIComponent(last)}@${encodeURIComponent(digest)}?repository_url=${place}&tag=${encodeURIComponent(reference)}`;
  return {
    'bom-ref': purl,
    type: 'container',
    name: `${upstream}/${name}`,
    version: reference,
    purl,
    hashes: hashes(digest),
  };
}

function hashes(digest: Digest): { alg: string; content: string }[] {
  return [{ alg: algorithmOf(digest) === 'sha512' ? 'SHA-512' : 'SHA-256', content: hexOf(digest) }];
}
