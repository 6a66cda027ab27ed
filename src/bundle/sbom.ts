import { imageComponent, packageComponent, toolOf, type BillComponent } from '../runtime/cyclonedx.ts';
import type { Digest } from '../runtime/digest.ts';
import { ownerName, type BundleEntry, type BundleList } from './format.ts';

/** The packages and images of a bundle as a bill of materials (CycloneDX 1.6, "JSON"). */
export function sbomOf(id: Digest, { header, entries }: BundleList, program: string): object {
  return {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      timestamp: new Date(header.created_at).toISOString(),
      tools: toolOf(program),
      component: { type: 'data', name: 'bundle', version: id },
    },
    components: entries.flatMap((entry) => bundledComponent(entry) ?? []),
  };
}

/** A version of a package, or a tag of an image; undefined for other entries. */
function bundledComponent(entry: BundleEntry): BillComponent | undefined {
  const { kind, name, reference, digest, attributes } = entry;
  const upstream = ownerName(entry);
  if (kind === 'nupkg') {
    const { id = name, version = reference } = attributes;
    return packageComponent(id, version, { digest, upstream });
  }
  if (kind !== 'manifest' || reference.includes(':')) return undefined;
  return imageComponent(`${upstream}/${name}`, digest, reference);
}
