import { algorithmOf, digestOf, isDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { hasMoreValues } from '../../runtime/json-values.ts';
import { ambiguousKey } from './manifest-keys.ts';

/** The media types of manifests and of configs. */
export const mediaTypes = {
  image: 'application/vnd.oci.image.manifest.v1+json',
  index: 'application/vnd.oci.image.index.v1+json',
  dockerImage: 'application/vnd.docker.distribution.manifest.v2+json',
  dockerList: 'application/vnd.docker.distribution.manifest.list.v2+json',
  imageConfig: 'application/vnd.oci.image.config.v1+json',
  dockerConfig: 'application/vnd.docker.container.image.v1+json',
  empty: 'application/vnd.oci.empty.v1+json',
} as const;

const kinds = new Map<string, 'image' | 'index'>([
  [mediaTypes.image, 'image'],
  [mediaTypes.index, 'index'],
  [mediaTypes.dockerImage, 'image'],
  [mediaTypes.dockerList, 'index'],
]);

/** The accepted media types of manifests, which are never converted into another. */
export const manifestTypes: readonly string[] = [...kinds.keys()];

const foreignLayer = /^application\/vnd\.(?:oci\.image\.layer\.nondistributable\.|docker\.image\.rootfs\.foreign\.)/;

const maxMediaTypeLength = 255;
/**
 * The most layers of a pushed image, or entries of a pushed index. Images have at most some 130 layers, because file systems
 * stack no more; build caches and artifacts of many files have some hundred.
 */
const maxDescriptors = 2000;
/** The most values in a manifest: 2,000 entries with a platform and two annotations have about 20,000. */
export const maxValues = 30_000;

/** The fields of OCI image-spec "Content Descriptors" that a registry reads. */
export interface Descriptor {
  mediaType: string;
  digest: Digest;
  size: number;
  urls?: string[];
  artifactType?: string;
  annotations?: Record<string, string>;
}

/** The fields of a valid manifest or index that a registry needs. */
export interface Manifest {
  kind: 'image' | 'index';
  mediaType: string;
  /** Config and layers, or the children of an index; each once. */
  references: Descriptor[];
  /** The blobs of an image that must be in the repository before it. An index may lack some of its images. */
  required: Digest[];
  subject: Digest | undefined;
  /** The value for the referrers list: for an image without one, the media type of its config. */
  artifactType: string | undefined;
  annotations: Record<string, string> | undefined;
}

/** Throws `Denied` for digests of content that no repository may have. */
export type ContentCheck = (name: string, digests: readonly Digest[]) => Promise<void>;

/** Bytes of memory for a descriptor and for each of its annotations, beside their texts, as measured. */
const bytesOfDescriptor = 300;
const bytesOfAnnotation = 100;

/** Bytes of memory that a descriptor takes, without its texts. */
export function overheadOf({ annotations }: Pick<Descriptor, 'annotations'>): number {
  return bytesOfDescriptor + (annotations ? bytesOfAnnotation * Object.keys(annotations).length : 0);
}

/** Whether `mediaType` is the type of an index or manifest list. */
export function isIndex(mediaType: string): boolean {
  return kinds.get(mediaType) === 'index';
}

/** Whether a registry need not store such a layer: image-spec "Non-distributable layers", Docker's foreign layers. */
export function isForeignLayer(mediaType: string): boolean {
  return foreignLayer.test(mediaType);
}

/**
 * The media type of an upstream's manifest: its `mediaType` if that is a known one, else found from its fields (image-spec,
 * "manifest" and "image-index": `mediaType` is optional). Undefined for any other document.
 */
export function manifestTypeIn(document: object): string | undefined {
  const { schemaVersion, mediaType, manifests, config, layers } = document as Record<string, unknown>;
  if (schemaVersion !== 2) return undefined;
  if (typeof mediaType === 'string' && kinds.has(mediaType)) return mediaType;
  if (Array.isArray(manifests)) return mediaTypes.index;
  if (typeof config !== 'object' || config === null || !Array.isArray(layers)) return undefined;
  const { mediaType: configType } = config as { mediaType?: unknown };
  return configType === mediaTypes.dockerConfig ? mediaTypes.dockerImage : mediaTypes.image;
}

/** Throws `DigestMismatch` unless `bytes` have the digest in the request. */
export function verifyDigest(bytes: Buffer, digest: Digest): void {
  const found = digestOf(bytes, algorithmOf(digest));
  if (found === digest) return;
  throw new DomainError('DigestMismatch', 'The body does not have the digest in the URL. Send it again.', {
    detail: { expected: digest, found },
  });
}

/**
 * Checks a manifest (image-spec "manifest" and "image-index", Docker "Image Manifest V 2, Schema 2"). `contentType` is the
 * header of the request; without it the document's `mediaType` is used. Throws `ManifestInvalid`.
 */
export function parseManifest(bytes: Buffer, contentType: string | undefined): Manifest {
  return manifestOf(parseObject(textOf(bytes)), contentType, Infinity);
}

function manifestOf(document: Record<string, unknown>, contentType: string | undefined, most: number): Manifest {
  const declared = document['mediaType'] ?? undefined;
  if (declared !== undefined && typeof declared !== 'string') throw invalid('"mediaType" has to be a string');
  const announced = contentType?.split(';', 1)[0]!.trim().toLowerCase();
  const mediaType = announced || declared || '';
  const kind = kinds.get(mediaType);
  if (!kind) {
    throw invalid(`its media type ${quoted(mediaType)} is none of ${manifestTypes.join(', ')}`);
  }
  if (declared !== undefined && declared !== mediaType) {
    throw invalid(`its "mediaType" is ${quoted(declared)}, its Content-Type "${mediaType}"`);
  }
  if (document['schemaVersion'] !== 2) throw invalid('"schemaVersion" has to be 2');
  const annotations = parseAnnotations(document['annotations'], '"annotations"');
  const artifactType = parseMediaType(document['artifactType'], '"artifactType"');
  const subject = isAbsent(document['subject']) ? undefined : parseDescriptor(document['subject'], '"subject"');
  const common = { kind, mediaType, subject: subject?.digest, annotations };
  if (kind === 'index') {
    if (!isAbsent(document['layers']) || !isAbsent(document['config'])) {
      throw invalid('an index has neither "layers" nor "config"');
    }
    const children = parseDescriptors(document['manifests'], 'manifests', most);
    return { ...common, references: distinct(children), required: [], artifactType };
  }
  if (!isAbsent(document['manifests'])) throw invalid('an image manifest has no "manifests"');
  const config = parseDescriptor(document['config'], '"config"');
  const layers = parseDescriptors(document['layers'], 'layers', most);
  const here = layers.filter((layer) => !isForeignLayer(layer.mediaType) && !layer.urls?.length);
  return {
    ...common,
    references: distinct([config, ...layers]),
    required: distinct([config, ...here]).map(({ digest }) => digest),
    artifactType: artifactType ?? config.mediaType,
  };
}

/**
 * As `parseManifest`, for a push: also throws `ManifestInvalid` if clients could read the document in different ways, or if it
 * has more than 2,000 layers or entries, or too many values. Other requests run between the steps.
 */
export async function parsePushedManifest(bytes: Buffer, contentType: string | undefined): Promise<Manifest> {
  await pause();
  if (hasMoreValues(bytes, maxValues)) throw invalid(`it has more than ${maxValues} values`);
  await pause();
  const text = textOf(bytes);
  await pause();
  const document = parseObject(text);
  await pause();
  const manifest = manifestOf(document, contentType, maxDescriptors);
  await pause();
  const key = ambiguousKey(text);
  if (key === undefined) return manifest;
  throw invalid(
    `its key ${quoted(key)} is there twice or in the wrong letter case. Clients read such a manifest in different ways`,
  );
}

function textOf(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw noJson();
  }
}

function parseObject(text: string): Record<string, unknown> {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    throw noJson();
  }
  return asObject(document, 'it');
}

function parseDescriptors(value: unknown, field: string, most: number): Descriptor[] {
  // Go encodes a nil slice as null.
  if (value === null) return [];
  if (!Array.isArray(value)) throw invalid(`"${field}" has to be a list`);
  if (value.length > most) throw invalid(`"${field}" has ${value.length} entries, and at most ${most} can be stored`);
  return value.map((each, index) => parseDescriptor(each, `"${field}[${index}]"`));
}

function parseDescriptor(value: unknown, what: string): Descriptor {
  const descriptor = asObject(value, what);
  const { digest, size, urls } = descriptor;
  const mediaType = parseMediaType(descriptor['mediaType'], `the "mediaType" of ${what}`);
  if (mediaType === undefined) throw invalid(`${what} needs a "mediaType"`);
  if (typeof digest !== 'string' || !isDigest(digest)) {
    throw invalid(`the "digest" of ${what} has to be sha256:<64 hex> or sha512:<128 hex>`);
  }
  if (!Number.isSafeInteger(size) || (size as number) < 0) {
    throw invalid(`the "size" of ${what} has to be a number of bytes`);
  }
  if (urls !== undefined && urls !== null && !(Array.isArray(urls) && urls.every((url) => typeof url === 'string'))) {
    throw invalid(`the "urls" of ${what} have to be a list of strings`);
  }
  const artifactType = parseMediaType(descriptor['artifactType'], `the "artifactType" of ${what}`);
  const annotations = parseAnnotations(descriptor['annotations'], `the "annotations" of ${what}`);
  return {
    mediaType,
    digest,
    size: size as number,
    ...(urls && { urls }),
    ...(artifactType !== undefined && { artifactType }),
    ...(annotations && { annotations }),
  };
}

function parseMediaType(value: unknown, what: string): string | undefined {
  if (isAbsent(value) || value === '') return undefined;
  if (typeof value === 'string' && value.length <= maxMediaTypeLength) return value;
  throw invalid(`${what} has to be a string of at most ${maxMediaTypeLength} characters`);
}

function parseAnnotations(value: unknown, what: string): Record<string, string> | undefined {
  if (isAbsent(value)) return undefined;
  const annotations = asObject(value, what);
  if (Object.values(annotations).every((each) => typeof each === 'string')) {
    return annotations as Record<string, string>;
  }
  throw invalid(`${what} have to be strings`);
}

/** Go encodes an absent value as null too. */
function isAbsent(value: unknown): value is undefined | null {
  return value === undefined || value === null;
}

function asObject(value: unknown, what: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw invalid(`${what} has to be an object`);
}

/** The beginning of a text for a message, without control characters. */
function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 100));
}

function distinct(descriptors: readonly Descriptor[]): Descriptor[] {
  return [...new Map(descriptors.map((each) => [each.digest, each])).values()];
}

function noJson(): DomainError {
  return invalid('it is not JSON in UTF-8');
}

function invalid(what: string): DomainError {
  return new DomainError('ManifestInvalid', `This manifest cannot be stored: ${what}.`);
}
