import { jsonItem } from '../../runtime/json-item.ts';
import type { z } from 'zod';
import { type manifestDetails } from '../../api/content/content-schemas.ts';
import { originFields } from '../../api/framework/schemas.ts';
import type { Digest } from '../../runtime/digest.ts';
import { isIndex, type Descriptor } from '../format/manifest.ts';
import { manifestUnknown } from '../hosted/manifests.ts';
import type { StoredRepository } from './repository.ts';
import { isAttestation, platformOf, type StoredImages } from './stored-images.ts';
import { readDescriptors } from '../mirrored/upstream-lists.ts';

type Details = z.input<typeof manifestDetails>;
type Json = Record<string, unknown>;

/** Most bytes of a manifest or a config that are read for its description. */
const maxBytes = 4 * 2 ** 20;
/** Limits of an answer. */
const max = { layers: 500, history: 500, children: 200, referrers: 100, pairs: 100 };
/** Most characters: of a value, such as an annotation or a command; of a word, such as a media type. */
const longest = { value: 2000, word: 255 };

/**
 * A stored manifest with its layers, their history, its platforms and what refers to it. Fetches nothing: what a mirrored
 * image lacks is marked as not stored. Throws `ManifestUnknown`.
 */
export async function describeManifest(stored: StoredImages, at: StoredRepository, digest: Digest): Promise<Details> {
  const found = await at.manifest(digest);
  if (!found) throw manifestUnknown({ digest });
  const budget = { each: maxBytes, left: 2 * maxBytes };
  const manifest = (await stored.json(at, 'manifest', digest, budget)) ?? {};
  const children = readDescriptors(listIn(manifest['manifests'])).slice(0, max.children);
  const childDigests = children.map((each) => each.digest);
  // An index of an upstream may list many more.
  const entries = entriesOf(manifest, new Set(childDigests));
  const { withdrawnTags, ...manifestRow } = found;
  const [row] = await at.withPulls([manifestRow], () => childDigests);
  const [configOf] = readDescriptors([manifest['config']]);
  const config = configOf && (await stored.json(at, 'blob', configOf.digest, budget));
  const present = await at.storedAmong(childDigests);
  const referrers = await at.referrers(digest, max.referrers);
  const sizes = new Map(
    await Promise.all(
      [...present].map(async (each) => [each, (await at.manifest(each as Digest))?.sizeBytes] as const),
    ),
  );
  return {
    name: at.name,
    ...originFields(at.upstream),
    ...jsonItem(row!),
    withdrawn_tags: withdrawnTags.map(jsonItem),
    artifact_type: word(manifest['artifactType']),
    subject: readDescriptors([manifest['subject']])[0]?.digest ?? null,
    annotations: pairsIn(manifest['annotations']),
    config: isIndex(row!.mediaType) || !configOf ? null : configDetails(configOf, config),
    layers: layersIn(manifest),
    history: historyIn(config),
    children: children.map((each) => ({
      ...describe(each),
      platform: platformOf(entries.get(each.digest)?.['platform']) ?? null,
      is_stored: present.has(each.digest),
      content_bytes: sizes.get(each.digest) ?? null,
      attests: attestedBy(entries.get(each.digest)),
    })),
    referrers: (referrers ?? []).slice(0, max.referrers).map((each) => ({
      ...describe(each),
      artifact_type: word(each.artifactType),
      annotations: pairsIn(each.annotations),
    })),
    are_referrers_known: referrers !== undefined,
  };
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
    entrypoint: wordsIn(inner['Entrypoint']),
    command: wordsIn(inner['Cmd']),
    environment: wordsIn(inner['Env']),
    user: word(inner['User']) || null,
    working_directory: word(inner['WorkingDir']) || null,
    ports: wordsIn(Object.keys(objectIn(inner['ExposedPorts']))),
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

/** The first entry of an index for each of some digests. */
function entriesOf({ manifests }: Json, digests: ReadonlySet<unknown>): ReadonlyMap<unknown, Json> {
  const found = new Map<unknown, Json>();
  for (const each of listIn(manifests)) {
    const { digest } = objectIn(each);
    if (digests.has(digest) && !found.has(digest)) found.set(digest, objectIn(each));
  }
  return found;
}

/** The child whose build another one attests, as BuildKit writes it. */
function attestedBy(child: Json | undefined): string | null {
  return isAttestation(child) ? word(objectIn(child?.['annotations'])['vnd.docker.reference.digest']) : null;
}

function wordsIn(list: unknown): string[] {
  return listIn(list)
    .slice(0, max.pairs)
    .flatMap((each) => value(each) ?? []);
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
