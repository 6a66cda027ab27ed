import { z } from 'zod';
import { pause, withPauses } from '../runtime/event-loop.ts';
import { algorithmOf, hexOf, isDigest, type Digest } from '../runtime/digest.ts';
import { DomainError } from '../runtime/errors.ts';

// A bundle is a folder with the segments 0001.tar, 0002.tar, … Each segment is an archive of an OCI image layout (image-spec
// "Image Layout") with these members:
//
//     oci-layout, index.json            the images of the segment, and its packages as artifacts
//     bundle.dsse.json                  a signed statement with the digest of bundle.json
//     bundle.json                       the list of all content of the bundle: the same in each segment
//     blobs/sha256/…                    content by its digest
//     parts/sha256/…                    a part of content that is larger than a segment
//
// bundle.json is JSON in which each item has its own line, so that it is read line by line.

/** Most bytes of `bundle.json`, and most items in each of its lists. */
export const maxList = 512 * 2 ** 20;
const maxItems = 200_000;
/** Most characters of a line of the list. */
export const maxListLine = 2 ** 20;
const maxSegments = 9999;
/** Most characters of the policy. */
const maxPolicy = 65_536;
/** Most bytes of a statement about a key. */
export const maxStatement = 8192;

export const listName = 'bundle.json';
export const statementName = 'bundle.dsse.json';

const count = z.int().min(0);
/** A time in milliseconds since 1970 UTC. */
export const instant = z.int().min(0).max(8.64e15);
const digest = z.string().refine(isDigest) as unknown as z.ZodType<Digest>;
const text = (length: number) => z.string().max(length);

const headerSchema = z.strictObject({
  format: z.literal('entrepot-bundle'),
  version: z.literal(1),
  /** The identity of the installation that made it. */
  source: z.uuid(),
  /** The identity of the installation that it is for; null for each. */
  audience: z.uuid().nullable(),
  created_at: instant,
  /** Grows with each bundle of a source. */
  sequence: count,
  expires_at: instant.nullable(),
  /** The digest of the receipt or of the earlier bundle on which it counts; null if it is complete. */
  against: digest.nullable(),
  segments: z.int().min(1).max(maxSegments),
  blob_count: count.max(maxItems),
  entry_count: count.max(maxItems),
  /** Bytes of all content, without what the receiver has. */
  bytes: count,
  /** A policy, which an operator applies at the receiver; null without one. */
  policy: text(maxPolicy).nullable(),
  /** A signed statement about a new key of the source, which an operator can trust at the receiver. */
  new_key: text(maxStatement).optional(),
  /** The lists of known bad content whose records it has. An operator names them in the policy of the receiver. */
  known_bad: z
    .array(z.strictObject({ name: text(100), records: count.max(maxItems) }))
    .max(20)
    .optional(),
});

export type BundleHeader = z.infer<typeof headerSchema>;

const blobSchema = z.union([
  /** The whole content is in one segment. */
  z.strictObject({ digest, size: count, segment: z.int().min(1).max(maxSegments) }),
  z.strictObject({
    digest,
    size: count,
    parts: z
      .array(z.strictObject({ digest, size: count, segment: z.int().min(1).max(maxSegments) }))
      .min(1)
      .max(maxSegments),
  }),
  /** The receiver has it, as its receipt says. */
  z.strictObject({ digest, size: count, base: z.literal(true) }),
]);

/** Content, and where its bytes are. */
export type BundleBlob = z.infer<typeof blobSchema>;

const lineSchema = z.strictObject({
  kind: z.enum(['version', 'manifest', 'tag', 'listed']),
  reference: text(255),
  digest: text(200),
  seenAt: instant,
  content: z.strictObject({ mediaType: text(255), size: count }).optional(),
});

const entrySchema = z.strictObject({
  /** The kind of the upstream. */
  protocol: text(32),
  /** The name of the upstream, or its ID if several have this name; empty for hosted content. */
  upstream: text(255),
  /** The account that hosts the content; absent for mirrored content. */
  account: text(100).optional(),
  kind: text(32),
  name: text(255),
  reference: text(255),
  digest,
  size: count,
  type: text(255),
  etag: text(255).nullable(),
  modified: text(64).nullable(),
  attributes: z.record(text(64), text(4000)),
  validated_at: instant,
  seen: z.array(lineSchema).max(2000),
  withdrawn: z.strictObject({ missingAt: instant, withdrawnAt: instant.nullable() }).optional(),
});

/** An entry of the mirror, with the times at which the source has seen it; or a part of what an account hosts. */
export type BundleEntry = z.infer<typeof entrySchema>;

const badSchema = z.strictObject({ list: text(100), record: z.looseObject({ id: text(100) }) });

/** A record of a list of known bad content. */
export type BundleBad = z.infer<typeof badSchema>;

/** What a bundle has. */
export interface BundleList {
  header: BundleHeader;
  blobs: BundleBlob[];
  entries: BundleEntry[];
  /** In the order of their lists. */
  knownBad?: readonly BundleBad[];
}

/** The number of entries of a kind that people count, and their bytes. */
export interface BundleCounts {
  packages: { count: number; bytes: number };
  /** Tags and digests of images. */
  manifests: { count: number; bytes: number };
  layers: { count: number; bytes: number };
  /** Lists of versions, vulnerability data and other documents. */
  documents: { count: number; bytes: number };
}

/** Counts entries. Content of several entries counts for each. */
export async function countsIn(entries: readonly BundleEntry[]): Promise<BundleCounts> {
  const counts: BundleCounts = {
    packages: { count: 0, bytes: 0 },
    manifests: { count: 0, bytes: 0 },
    layers: { count: 0, bytes: 0 },
    documents: { count: 0, bytes: 0 },
  };
  const { packages: nupkg, manifests: manifest, layers: blob, documents } = counts;
  const tallies: Record<string, { count: number; bytes: number } | undefined> = { nupkg, manifest, blob };
  for await (const { kind, size } of withPauses(entries)) {
    const tally = tallies[kind] ?? documents;
    tally.count += 1;
    tally.bytes += size;
  }
  return counts;
}

/** The upstream or the account of an entry. */
export function ownerName({ account, upstream }: Pick<BundleEntry, 'account' | 'upstream'>): string {
  return account ?? upstream;
}

/** The lists of known bad content that a bundle has, and how many records of each. */
export async function knownBadIn(lines: readonly BundleBad[]): Promise<{ name: string; records: number }[]> {
  const lists: { name: string; records: number }[] = [];
  for await (const { list } of withPauses(lines)) {
    const last = lists.at(-1);
    if (last?.name === list) last.records += 1;
    else lists.push({ name: list, records: 1 });
  }
  return lists;
}

/** `Invalid` about a bundle. */
export function bundleInvalid(message: string, cause?: unknown): DomainError {
  return new DomainError('Invalid', message, { cause });
}

/** The name of a segment. */
export function segmentName(segment: number): string {
  return `${String(segment).padStart(4, '0')}.tar`;
}

/** The name of content, or with `parts` of a part, in a segment. */
export function memberName(content: Digest, folder: 'blobs' | 'parts' = 'blobs'): string {
  return `${folder}/${algorithmOf(content)}/${hexOf(content)}`;
}

/** A policy as a bundle has it: easy to read if there is room for that. */
export function policyIn(policy: unknown): string | undefined {
  if (policy === undefined) return undefined;
  const shown = JSON.stringify(policy, null, 2);
  return shown.length <= maxPolicy ? shown : JSON.stringify(policy);
}

/** Throws `Invalid` if no receiver could read this list. */
export async function refuseUnreadable({ header, blobs, entries, knownBad = [] }: BundleList): Promise<void> {
  const items = Math.max(blobs.length, entries.length, knownBad.length);
  if (items > maxItems)
    throw bundleInvalid(`the bundle would have ${items} items, and can have ${maxItems}. Divide what it is made of`);
  if (header.segments > maxSegments)
    throw bundleInvalid(
      `the bundle would have ${header.segments} segments, and can have ${maxSegments}. Make them larger`,
    );
  refuseLine(headerSchema, header, header.policy === null ? 'the header of the list' : 'the policy');
  for await (const each of withPauses(blobs)) refuseLine(blobSchema, each, each.digest);
  for await (const each of withPauses(entries))
    refuseLine(entrySchema, each, `what is known of the ${each.kind} ${each.name} ${each.reference}`);
  for await (const each of withPauses(knownBad))
    refuseLine(badSchema, each, `the record ${each.record.id} of the list ${each.list}`);
}

function refuseLine(schema: z.ZodType, item: object, what: string): void {
  if (JSON.stringify(item).length >= maxListLine || !schema.safeParse(item).success)
    throw bundleInvalid(`${what} is too large for a bundle`);
}

/** The text of `bundle.json`, in pieces. */
export function* encodeList({ header, blobs, entries, knownBad = [] }: BundleList): Generator<string> {
  yield JSON.stringify(header).slice(0, -1);
  yield* linesOf('blobs', blobs);
  yield* linesOf('entries', entries);
  if (knownBad.length > 0) yield* linesOf('known_bad', knownBad);
  yield '\n}\n';
}

function* linesOf(name: string, items: readonly object[]): Generator<string> {
  yield `,\n"${name}":[`;
  for (const [at, each] of items.entries()) yield `${at === 0 ? '' : ','}\n${JSON.stringify(each)}`;
  yield '\n]';
}

/** The list in the lines of `bundle.json`. Throws `Invalid`. */
export async function decodeList(lines: AsyncIterable<string> | Iterable<string>): Promise<BundleList> {
  let header: BundleHeader | undefined;
  const blobs: BundleBlob[] = [];
  const entries: BundleEntry[] = [];
  const knownBad: BundleBad[] = [];
  let items: 'blobs' | 'entries' | 'known_bad' | undefined;
  let number = 0;
  for await (const line of lines) {
    number += 1;
    if (line.length > maxListLine) throw bundleInvalid(`line ${number} of ${listName} is too long`);
    await pause();
    if (!header) {
      header = parsed(headerSchema, `${line.replace(/,$/, '')}}`, number);
      continue;
    }
    const begins = /^"(blobs|entries|known_bad)":\[$/.exec(line)?.[1];
    if (begins) items = begins as typeof items;
    else if (line === ']' || line === '],' || line === '}') items = undefined;
    else if (items === 'blobs') blobs.push(parsed(blobSchema, line.replace(/,$/, ''), number));
    else if (items === 'entries') entries.push(parsed(entrySchema, line.replace(/,$/, ''), number));
    else if (items === 'known_bad') knownBad.push(parsed(badSchema, line.replace(/,$/, ''), number));
    else throw bundleInvalid(`line ${number} of ${listName} is not one that this version can read`);
    if (Math.max(blobs.length, entries.length, knownBad.length) > maxItems)
      throw bundleInvalid(`${listName} has more than ${maxItems} items`);
  }
  if (!header) throw bundleInvalid(`${listName} is empty`);
  const list: BundleList = { header, blobs, entries, ...(knownBad.length > 0 && { knownBad }) };
  await checkList(list);
  return list;
}

function parsed<T>(schema: z.ZodType<T>, line: string, number: number): T {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw bundleInvalid(`line ${number} of ${listName} is not JSON`, error);
  }
  const { data, error } = schema.safeParse(value);
  if (data === undefined)
    throw bundleInvalid(`line ${number} of ${listName} is not one that this version can read`, error);
  return data;
}

/** Throws `Invalid` if the parts of a list do not fit together. */
async function checkList({ header, blobs, entries, knownBad = [] }: BundleList): Promise<void> {
  const named = JSON.stringify(header.known_bad ?? []);
  if (
    blobs.length !== header.blob_count ||
    entries.length !== header.entry_count ||
    JSON.stringify(await knownBadIn(knownBad)) !== named
  )
    throw bundleInvalid(`${listName} does not have as many items as it says`);
  const sizes = new Map<Digest, number>();
  for await (const { digest: each, size } of withPauses(blobs)) sizes.set(each, size);
  if (sizes.size !== blobs.length) throw bundleInvalid(`${listName} names content twice`);
  for await (const each of withPauses(entries))
    if (sizes.get(each.digest) !== each.size)
      throw bundleInvalid(`${listName} lacks the content of ${each.name} ${each.reference}`);
  for await (const each of withPauses(blobs)) {
    const places = 'parts' in each ? each.parts : 'segment' in each ? [each] : [];
    if (places.some(({ segment }) => segment > header.segments))
      throw bundleInvalid(`${listName} names a segment that the bundle does not have`);
    if ('parts' in each && each.parts.reduce((sum, part) => sum + part.size, 0) !== each.size)
      throw bundleInvalid(`the parts of ${each.digest} do not have its size`);
  }
}
