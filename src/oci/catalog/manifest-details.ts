import type { z } from 'zod';
import { type manifestDetails } from '../../api/content/content-schemas.ts';
import { timeOf, timeOrNull } from '../../api/framework/schemas.ts';
import { placeholders, type Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { imageBytesOf, manifestTypeOf } from '../mirrored/image-entries.ts';
import { isIndex, type Descriptor } from '../format/manifest.ts';
import { manifestUnknown } from '../hosted/manifests.ts';
import type { UpstreamRepository } from '../mirrored/upstream-repository.ts';
import { platformOf, type Described, type StoredImages } from './stored-images.ts';
import { addIndexPulls, addMirroredPulls } from './tag-list.ts';
import { readDescriptors } from '../mirrored/upstream-lists.ts';

type Details = z.input<typeof manifestDetails>;
type Json = Record<string, unknown>;

/** Most bytes of a manifest or a config that are read for its description. */
const maxBytes = 4 * 2 ** 20;
/** Limits of an answer. */
const max = { layers: 500, history: 500, children: 200, referrers: 100, pairs: 100, tags: 100, indexes: 100 };
/** Most characters: of a value, such as an annotation or a command; of a word, such as a media type. */
const longest = { value: 2000, word: 255 };

interface Row {
  digest: Digest;
  mediaType: string;
  sizeBytes: number;
  updatedAt: number;
  pullCount: number;
  lastPulledAt: number | null;
  tags: string[];
  indexes: string[];
}

/**
 * A stored manifest with its layers, their history, its platforms and what refers to it. Fetches nothing: what a mirrored
 * image lacks is marked as not stored. Throws `ManifestUnknown`.
 */
export async function describeManifest(stored: StoredImages, at: Described, digest: Digest): Promise<Details> {
  const { database } = stored;
  const found = at.place
    ? await mirroredRow(stored, at, at.place, digest)
    : await hostedRow(database, at.repositoryId, digest);
  if (!found) throw manifestUnknown({ digest });
  const budget = { each: maxBytes, left: 2 * maxBytes };
  const manifest = (await stored.manifest(at, digest, budget)) ?? {};
  const children = readDescriptors(listIn(manifest['manifests'])).slice(0, max.children);
  const childDigests = children.map((each) => each.digest);
  const platforms = new Map([[digest, { platforms: [], children: childDigests }]]);
  const [row] = at.place
    ? await addMirroredPulls(database, at, [found], platforms)
    : await addIndexPulls(database, at.repositoryId, [found]);
  const [configOf] = readDescriptors([manifest['config']]);
  const config = configOf && (await stored.blob(at, configOf.digest, budget));
  const present = await storedAmong(stored, at, childDigests);
  const referrers = await referrersOf(stored, at, digest);
  return {
    name: at.name,
    origin: at.place ? 'mirrored' : 'hosted',
    upstream: at.place?.upstream.name ?? null,
    digest,
    media_type: row!.mediaType,
    size_bytes: row!.sizeBytes,
    artifact_type: word(manifest['artifactType']),
    subject: readDescriptors([manifest['subject']])[0]?.digest ?? null,
    updated_at: timeOf(row!.updatedAt),
    pull_count: row!.pullCount,
    last_pulled_at: timeOrNull(row!.lastPulledAt),
    annotations: pairsIn(manifest['annotations']),
    tags: row!.tags,
    indexes: row!.indexes,
    config: isIndex(row!.mediaType) || !configOf ? null : configDetails(configOf, config),
    layers: layersIn(manifest),
    history: historyIn(config),
    children: children.map((each) => ({
      ...describe(each),
      platform: platformOf(platformIn(manifest, each.digest)) ?? null,
      is_stored: present.has(each.digest),
    })),
    referrers: (referrers ?? []).slice(0, max.referrers).map((each) => ({
      ...describe(each),
      artifact_type: word(each.artifactType),
      annotations: pairsIn(each.annotations),
    })),
    are_referrers_known: referrers !== undefined,
  };
}

async function hostedRow(database: Database, repositoryId: number, digest: Digest): Promise<Row | undefined> {
  const key = [repositoryId, digest];
  const row = await database.get<{
    media_type: string;
    image_bytes: number;
    pushed_at: number;
    pull_count: number;
    last_pulled_at: number | null;
  }>(
    `SELECT media_type, image_bytes, pushed_at, pull_count, last_pulled_at FROM manifests
     WHERE repository_id = ? AND digest = ?`,
    key,
  );
  if (!row) return undefined;
  const tags = await database.select<{ name: string }>(
    `SELECT name FROM tags WHERE repository_id = ? AND digest = ? ORDER BY name LIMIT ${max.tags}`,
    key,
  );
  const indexes = await database.select<{ digest: string }>(
    `SELECT p.digest FROM manifest_references f CROSS JOIN manifests p ON p.id = f.manifest_id
     WHERE f.digest = ? AND p.repository_id = ? LIMIT ${max.indexes}`,
    [digest, repositoryId],
  );
  return {
    digest,
    mediaType: row.media_type,
    sizeBytes: row.image_bytes,
    updatedAt: row.pushed_at,
    pullCount: row.pull_count,
    lastPulledAt: row.last_pulled_at,
    tags: tags.map(({ name }) => name),
    indexes: indexes.map((each) => each.digest),
  };
}

async function mirroredRow(
  stored: StoredImages,
  { accountId }: Described,
  place: UpstreamRepository,
  digest: Digest,
): Promise<Row | undefined> {
  const mirror = await stored.mirrorOf(accountId);
  const entry = await mirror.stored(place, 'manifest', digest);
  if (!entry) return undefined;
  return {
    digest,
    mediaType: manifestTypeOf(entry),
    sizeBytes: imageBytesOf(entry),
    updatedAt: entry.storedAt,
    pullCount: 0,
    lastPulledAt: null,
    tags: (await mirror.tagsOf(place, digest)).slice(0, max.tags),
    indexes: [],
  };
}

/** Those of `digests` that are stored manifests or blobs of the repository. */
async function storedAmong(stored: StoredImages, at: Described, digests: readonly Digest[]): Promise<Set<string>> {
  if (digests.length === 0) return new Set();
  if (at.place) return (await stored.mirrorOf(at.accountId)).storedAmong(at.place, 'manifest', digests);
  const among = `repository_id = ? AND digest IN (${placeholders(digests)})`;
  const rows = await stored.database.select<{ digest: string }>(
    `SELECT digest FROM manifests WHERE ${among} UNION SELECT digest FROM repository_blobs WHERE ${among}`,
    [at.repositoryId, ...digests, at.repositoryId, ...digests],
  );
  return new Set(rows.map(({ digest }) => digest));
}

/** Undefined if they are not stored. */
async function referrersOf(
  stored: StoredImages,
  at: Described,
  digest: Digest,
): Promise<readonly Descriptor[] | undefined> {
  if (at.place) return stored.referrers(at.accountId, at.place, digest);
  const query = { limit: max.referrers, last: '' };
  return (await stored.images.referrers.list(at.accountId, at.name, digest, query)).descriptors;
}

function describe({ digest, mediaType, size }: Descriptor) {
  return { digest, media_type: mediaType.slice(0, longest.word), size_bytes: size };
}

function configDetails(descriptor: Descriptor, config: Json | undefined): NonNullable<Details['config']> {
  const inner = objectIn(config?.['config']);
  return {
    ...describe(descriptor),
    is_stored: config !== undefined,
    platform: platformOf(config) ?? null,
    created: word(config?.['created']),
    author: word(config?.['author']),
    labels: pairsIn(inner['Labels']),
  };
}

function layersIn(manifest: Json): Details['layers'] {
  const layers = listIn(manifest['layers']).slice(0, max.layers);
  return layers.flatMap((each) => readDescriptors([each]).map(describe));
}

function historyIn(config: Json | undefined): Details['history'] {
  return listIn(config?.['history'])
    .slice(0, max.history)
    .map((each) => {
      const { created, created_by: createdBy, comment, empty_layer: isEmpty } = objectIn(each);
      return {
        created: word(created),
        created_by: value(createdBy),
        comment: value(comment),
        is_empty: isEmpty === true,
      };
    });
}

function platformIn({ manifests }: Json, digest: Digest): unknown {
  return listIn(manifests)
    .map(objectIn)
    .find((each) => each['digest'] === digest)?.['platform'];
}

function pairsIn(map: unknown): { name: string; value: string }[] {
  return Object.entries(objectIn(map))
    .slice(0, max.pairs)
    .flatMap(([name, text]) =>
      typeof text === 'string' ? [{ name: name.slice(0, longest.word), value: value(text)! }] : [],
    );
}

function listIn(list: unknown): unknown[] {
  return Array.isArray(list) ? list : [];
}

function objectIn(each: unknown): Json {
  return typeof each === 'object' && each !== null && !Array.isArray(each) ? (each as Json) : {};
}

function word(text: unknown): string | null {
  return typeof text === 'string' ? text.slice(0, longest.word) : null;
}

function value(text: unknown): string | null {
  return typeof text === 'string' ? text.slice(0, longest.value) : null;
}
