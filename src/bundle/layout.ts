import { digestOf, type Digest } from '../runtime/digest.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { sortedInTurns } from '../runtime/sorted.ts';
import { Pieces } from './pieces.ts';
import { memberName, ownerName, type BundleEntry } from './format.ts';

// The OCI image layout of a segment (image-spec "Image Layout"), so that other tools read the images and packages of a bundle.

const manifestType = 'application/vnd.oci.image.manifest.v1+json';
const packageType = 'application/vnd.entrepot.nuget.v1';
const emptyConfig = '{}';

/** The most references that `index.json` has. */
const maxListed = 100_000;

/** The members of a segment that make it a layout; those of `entries` are listed whose content is in the segment. */
export async function* layoutOf(
  entries: readonly BundleEntry[],
  isHere: (digest: Digest) => boolean,
): AsyncGenerator<{ name: string; size: number; pieces: readonly Buffer[] }> {
  yield memberOf('oci-layout', Buffer.from('{"imageLayoutVersion":"1.0.0"}\n'));
  const index = new Pieces();
  index.add('{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[');
  let listed = 0;
  const list = (manifest: object) => index.add(`${(listed += 1) === 1 ? '' : ','}${JSON.stringify(manifest)}`);
  const made = new Map<string, Buffer>();
  const put = (text: string): { digest: Digest; size: number } => {
    const bytes = Buffer.from(text);
    const digest = digestOf(bytes);
    made.set(memberName(digest), bytes);
    return { digest, size: bytes.length };
  };
  for await (const entry of withPauses(entries)) {
    if (listed === maxListed || !isHere(entry.digest)) continue;
    const { kind, name, reference, digest, size } = entry;
    if (kind === 'manifest' && !reference.includes(':')) {
      const mediaType = entry.attributes['mediaType'] ?? entry.type;
      list({ mediaType, digest, size, annotations: titled(`${ownerName(entry)}/${name}:${reference}`) });
    }
    if (kind !== 'nupkg') continue;
    const manifest = {
      schemaVersion: 2,
      mediaType: manifestType,
      artifactType: packageType,
      config: { mediaType: 'application/vnd.oci.empty.v1+json', ...put(emptyConfig) },
      layers: [{ mediaType: 'application/zip', digest, size }],
      annotations: packageAnnotations(entry),
    };
    const annotations = titled(`${ownerName(entry)}/${name}:${reference.replaceAll('+', '_')}`);
    list({
      mediaType: manifestType,
      artifactType: packageType,
      ...put(JSON.stringify(manifest)),
      annotations,
    });
  }
  index.add(']}\n');
  const { size, pieces } = index.end();
  yield { name: 'index.json', size, pieces };
  const sorted = await sortedInTurns([...made], ([one], [other]) => (one < other ? -1 : 1));
  for await (const [name, bytes] of withPauses(sorted)) yield memberOf(name, bytes);
}

function memberOf(name: string, bytes: Buffer) {
  return { name, size: bytes.length, pieces: [bytes] };
}

function titled(name: string): Record<string, string> {
  return { 'org.opencontainers.image.ref.name': name };
}

function packageAnnotations({ name, reference, attributes, ...entry }: BundleEntry): Record<string, string> {
  const { id = name, version = reference, publishedAt } = attributes;
  return {
    'com.entrepot.nuget.id': id,
    'com.entrepot.nuget.version': version,
    'com.entrepot.nuget.upstream': ownerName(entry),
    ...(publishedAt !== undefined && { 'com.entrepot.nuget.published': new Date(Number(publishedAt)).toISOString() }),
  };
}
