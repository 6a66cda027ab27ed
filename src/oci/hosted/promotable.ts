import { batches } from '../../database/batches.ts';
import { placeholders } from '../../database/database.ts';
import type { PromotableContents, PromotedPlaces } from '../../promotion/promotable.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import { keepLive } from '../../storage/blobs/states.ts';
import { readAll } from '../../storage/files/content.ts';
import { fallbackTag, isRepositoryName, parseReference, parseRepositoryName } from '../format/reference.ts';
import {
  carriedImages,
  manifestsInOrder,
  writeRepository,
  type CarriedParts,
  type PreparedManifest,
} from './carried.ts';
import { findRepository } from './repositories.ts';

/** Manifests of an image: those for its platforms, and all that refer to one of these. */
const maxManifests = 1000;
/** Bytes of these in memory. */
const maxBytes = 64 * 2 ** 20;
/** What follows the fallback tag of an image in the tags of its signatures, attestations and lists of contents. */
const attachedTags = ['', '.sig', '.att', '.sbom'];

interface TagRow {
  name: string;
  digest: Digest;
}

interface ManifestRow {
  digest: Digest;
  media_type: string;
  size_bytes: number;
}

/** The promotion of images: with the images of an index, and with what refers to them, such as signatures. */
export function promotableImages(parts: CarriedParts): PromotableContents {
  const { database, manifests, source, now } = parts;
  return {
    async bind(accountId, name, text) {
      const reference = parseReference(text);
      const found = isRepositoryName(name) ? await tagOrDigest(parts, accountId, name, reference) : undefined;
      if (!found) throw new DomainError('NotFound', `This account has no image ${name.slice(0, 255)} ${text}.`);
      return { name, reference: text, digest: found };
    },
    nameFor: (_name, wanted) => parseRepositoryName(wanted),
    async prepare(promotion) {
      const { from, to } = promotion;
      const repositoryId = await findRepository(database, from.accountId, from.name);
      if (repositoryId === undefined) throw imageGone(promotion);
      const byDigest = await manifestsOf(parts, repositoryId, promotion);
      const blobs = await blobsOf(parts, repositoryId, byDigest);
      const sizes = new Map([...blobs, ...[...byDigest].map(([digest, { size }]) => [digest, size] as const)]);
      const known = await carriedImages(parts).among(to.accountId, [...sizes.keys()]);
      const prepared = {
        name: to.name,
        blobs: [...blobs.keys()],
        manifests: manifestsInOrder(byDigest),
        seen: [],
        mirroredFrom: await source.mirroredFrom(to.accountId, to.name),
      };
      return {
        bytes: [...sizes].reduce((sum, [digest, size]) => sum + (known.has(digest) ? 0 : size), 0),
        write: async (tx) => {
          const sql = 'SELECT id FROM manifests WHERE repository_id = ? AND digest = ?';
          if (!(await tx.get(sql, [repositoryId, promotion.digest]))) throw imageGone(promotion);
          for (const digest of [...byDigest.keys()].toSorted()) {
            await pause();
            if (!(await keepLive(tx, digest, now()))) throw imageGone(promotion);
          }
          return (await writeRepository(tx, { manifests, now }, to.accountId, prepared, false)) > 0;
        },
      };
    },
  };
}

async function tagOrDigest(
  { database }: CarriedParts,
  accountId: number,
  name: string,
  { tag, digest }: ReturnType<typeof parseReference>,
): Promise<Digest | undefined> {
  const [table, column] = tag === undefined ? ['manifests', 'digest'] : ['tags', 'name'];
  const row = await database.get<{ digest: Digest }>(
    `SELECT c.digest FROM repositories r JOIN ${table} c ON c.repository_id = r.id AND c.${column} = ?
     WHERE r.account_id = ? AND r.name = ?`,
    [tag ?? digest, accountId, name],
  );
  return row?.digest;
}

/**
 * The manifest, those that it contains, and those that refer to one of these, with the tags that they get. Throws `NotFound` if the
 * manifest is gone, and `TooLarge`.
 */
async function manifestsOf(
  { database, blobs, manifests }: CarriedParts,
  repositoryId: number,
  promotion: PromotedPlaces,
): Promise<Map<Digest, PreparedManifest>> {
  const { digest: wanted, reference, from } = promotion;
  const found = new Map<Digest, PreparedManifest>();
  const attached = new Map<string, Digest>();
  let memory = 0;
  for (let next: Digest[] = [wanted]; next.length > 0;) {
    const rows: ManifestRow[] = [];
    for (const some of batches([...new Set(next)].filter((digest) => !found.has(digest)))) {
      const sql = `SELECT digest, media_type, size_bytes FROM manifests WHERE repository_id = ? AND digest IN (${placeholders(some)})`;
      rows.push(...(await database.select<ManifestRow>(sql, [repositoryId, ...some])));
    }
    next = [];
    for (const { digest, media_type: type, size_bytes: size } of rows) {
      await pause();
      memory += size;
      if (found.size >= maxManifests || memory > maxBytes)
        throw new DomainError(
          'TooLarge',
          `${from.name} ${reference} has more than ${maxManifests} manifests or ${maxBytes} bytes of them, with all that refer to it. Promote its parts by their digests.`,
        );
      const bytes = await readAll(await blobs.open(digest, size), size);
      const manifest = await manifests.read(from.name, digest, bytes, type);
      found.set(digest, { manifest, digest, size, tags: digest === wanted && reference !== wanted ? [reference] : [] });
      next.push(...manifest.references.map((each) => each.digest));
    }
    for (const some of batches(rows)) {
      const sql = `SELECT digest FROM manifests WHERE repository_id = ? AND subject IN (${placeholders(some)}) LIMIT ${maxManifests + 1}`;
      const digests = some.map(({ digest }) => digest);
      const referring = await database.select<{ digest: Digest }>(sql, [repositoryId, ...digests]);
      next.push(...referring.map(({ digest }) => digest));
    }
    for (const some of batches(rows.flatMap(({ digest }) => attachedTags.map((end) => fallbackTag(digest) + end)))) {
      const sql = `SELECT name, digest FROM tags WHERE repository_id = ? AND name IN (${placeholders(some)})`;
      for (const { name, digest } of await database.select<TagRow>(sql, [repositoryId, ...some])) {
        attached.set(name, digest);
        next.push(digest);
      }
    }
  }
  if (!found.has(wanted)) throw imageGone(promotion);
  for (const [name, digest] of attached) if (name !== reference) found.get(digest)?.tags.push(name);
  return found;
}

/** The layers and configs of images, with their sizes. Throws `Invalid` for an image that lacks one. */
async function blobsOf(
  { database }: CarriedParts,
  repositoryId: number,
  byDigest: ReadonlyMap<Digest, PreparedManifest>,
): Promise<Map<Digest, number>> {
  const named = new Set<Digest>();
  for (const { manifest } of byDigest.values())
    for (const { digest } of manifest.references) if (!byDigest.has(digest)) named.add(digest);
  const found = new Map<Digest, number>();
  for (const some of batches([...named])) {
    const rows = await database.select<{ digest: Digest; size: number | null }>(
      `SELECT rb.digest, ${sizeOf('rb.digest')} AS size FROM repository_blobs rb
       WHERE rb.repository_id = ? AND rb.digest IN (${placeholders(some)})`,
      [repositoryId, ...some],
    );
    for (const { digest, size } of rows) if (size !== null) found.set(digest, size);
    await pause();
  }
  for (const { manifest, digest } of byDigest.values()) {
    const lacking = manifest.required.find((each) => !found.has(each));
    if (lacking !== undefined)
      throw new DomainError('Invalid', `The image ${digest} lacks its blob ${lacking}. Push the image again first.`);
  }
  return found;
}

function imageGone({ from, reference, digest }: PromotedPlaces): DomainError {
  const what = reference === digest ? digest : `${reference} (${digest})`;
  return new DomainError('NotFound', `The image ${from.name} ${what} was deleted since, so it cannot be promoted.`);
}
