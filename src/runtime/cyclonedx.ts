import { algorithmOf, hexOf, type Digest } from './digest.ts';

// Parts of a bill of materials: CycloneDX 1.6, "JSON", with package URLs (purl-spec, "Known types").

/** What a bill of materials lists. */
export interface BillComponent {
  /** The same for the same content. */
  'bom-ref': string;
  type: string;
  name: string;
  version: string;
  purl: string;
  hashes?: { alg: string; content: string }[];
}

/** The tool that made a bill of materials. */
export function toolOf(version: string): object {
  return { components: [{ type: 'application', name: 'entrepot', version }] };
}

/** A version of a package of a NuGet feed. */
export function packageComponent(
  name: string,
  version: string,
  { digest, upstream }: { digest?: Digest; upstream?: string } = {},
): BillComponent {
  const purl = `pkg:nuget/${encodeURIComponent(name)}@${encodeURIComponent(version)}`;
  const ref = upstream === undefined ? purl : `${purl}?upstream=${encodeURIComponent(upstream)}`;
  return { 'bom-ref': ref, type: 'library', name, version, purl, ...(digest && { hashes: hashes(digest) }) };
}

/** An image of a registry. */
export function imageComponent(name: string, digest: Digest, tag?: string): BillComponent {
  const last = encodeURIComponent(name.slice(name.lastIndexOf('/') + 1));
  const end = tag === undefined ? '' : `&tag=${encodeURIComponent(tag)}`;
  const purl = `pkg:oci/${last}@${encodeURIComponent(digest)}?repository_url=${encodeURIComponent(name)}${end}`;
  return { 'bom-ref': purl, type: 'container', name, version: tag ?? digest, purl, hashes: hashes(digest) };
}

function hashes(digest: Digest): { alg: string; content: string }[] {
  return [{ alg: algorithmOf(digest) === 'sha512' ? 'SHA-512' : 'SHA-256', content: hexOf(digest) }];
}
