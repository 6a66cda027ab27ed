import type { Database, Queryable, Transaction } from '../../database/database.ts';
import { digestOf, isDigest, parseDigest } from '../../runtime/digest.ts';
import { pause } from '../../runtime/event-loop.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import { readAll } from '../../storage/files/content.ts';
import { mediaTypes } from '../format/manifest.ts';
import { attachedTags } from '../format/reference.ts';
import { linkBlob } from './image-blobs.ts';
import type { Manifests } from './manifests.ts';

/** A document about an image. Its media type is also the artifact type of its manifest. */
interface ImageDocument {
  mediaType: string;
  bytes: Buffer;
  annotations: Readonly<Record<string, string>>;
}

interface AttachParts {
  database: Database;
  blobs: BlobStore;
  manifests: Manifests;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

interface ImagePlace {
  accountId: number;
  name: string;
  reference: string;
}

/** The artifact types of images; an index has none. */
const imageTypes = [mediaTypes.imageConfig, mediaTypes.dockerConfig] as readonly string[];
const empty = Buffer.from('{}');
/** Documents of one type that an image gets. */
const mostDocuments = 50;
/** Layers of the manifests in which BuildKit attests a build: they look like images. */
const statementType = 'application/vnd.in-toto+json';

/**
 * Adds a document to an image of an account as a referrer: an artifact without a tag (image-spec, "Guidelines for Artifact Usage").
 * `take` has to agree in the transaction that adds it. Resolves to false if it does not, if the account has no such image, of which an
 * artifact is none, or if the image has 50 documents of this type. Throws as `Manifests.push` does.
 */
export type AttachToImage = (
  place: ImagePlace,
  document: ImageDocument,
  take: (tx: Transaction) => Promise<boolean>,
) => Promise<boolean>;

/** Adds documents to the images of a registry. */
export function attacher({ database, blobs, manifests, now }: AttachParts): AttachToImage {
  return async (place, { mediaType, bytes, annotations }, take) => {
    const { accountId, name, reference } = place;
    const image = await imageAt(database, place, mediaType);
    if (!image || (await isAttestation(manifests, place, image.size_bytes))) return false;
    const [emptyDigest, documentDigest] = [digestOf(empty), digestOf(bytes)];
    await pause();
    const manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: mediaTypes.image,
        artifactType: mediaType,
        config: { mediaType: mediaTypes.empty, digest: emptyDigest, size: empty.length },
        layers: [{ mediaType, digest: documentDigest, size: bytes.length }],
        subject: { mediaType: image.media_type, digest: reference, size: image.size_bytes },
        annotations,
      }),
    );
    const digest = digestOf(manifest);
    const sent = { manifest: await manifests.read(name, digest, manifest, undefined), digest, size: manifest.length };
    const arrivals = [];
    for (const each of [empty, bytes, manifest]) arrivals.push(await blobs.stageBytes(each));
    const write = async (tx: Transaction) => {
      if (!(await imageAt(tx, place, mediaType)) || !(await take(tx))) return false;
      for (const each of [emptyDigest, documentDigest]) await linkBlob(tx, accountId, name, each, now());
      await manifests.write(tx, accountId, name, { ...sent, tags: [] }, {});
      return true;
    };
    return blobs.commit(arrivals, write, accountId);
  };
}

async function imageAt(from: Queryable, { accountId, name, reference }: ImagePlace, type: string) {
  if (!isDigest(reference)) return undefined;
  const isAttached = attachedTags.map((each) => `t.name LIKE '${each}%'`).join(' OR ');
  return from.get<{ media_type: string; size_bytes: number }>(
    `SELECT m.media_type, m.size_bytes FROM repositories r JOIN manifests m ON m.repository_id = r.id AND m.digest = ?
     WHERE r.account_id = ? AND r.name = ? AND m.subject IS NULL
       AND (m.artifact_type IS NULL OR m.artifact_type IN (${imageTypes.map(() => '?').join(', ')}))
       AND NOT EXISTS (SELECT 1 FROM tags t WHERE t.repository_id = r.id AND t.digest = m.digest AND (${isAttached}))
       AND (SELECT COUNT(*) FROM manifests d WHERE d.repository_id = r.id AND d.subject = m.digest AND d.artifact_type = ?) < ?`,
    [reference, accountId, name, ...imageTypes, type, mostDocuments],
  );
}

async function isAttestation(
  manifests: Manifests,
  { accountId, name, reference }: ImagePlace,
  size: number,
): Promise<boolean> {
  const { content } = await manifests.open(accountId, name, { digest: parseDigest(reference) });
  return (await readAll(content, size)).includes(statementType);
}
