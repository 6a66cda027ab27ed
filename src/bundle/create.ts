import { installationIdentity } from '../storage/upkeep/identity.ts';
import { digestOf, type Digest } from '../runtime/digest.ts';
import type { BlobStore } from '../storage/blobs/blob-store.ts';
import { withPauses } from '../runtime/event-loop.ts';
import type { NeededEntry } from '../prefetch/report.ts';
import { recordEvent } from '../events/record.ts';
import { bundleEvent, Bundles } from './bundles.ts';
import type { HeldDigests } from './digest-set.ts';
import { collectEntries, type BundleMirror } from './collect.ts';
import { hostedEntries, type HostedParts, type HostedSelection } from './hosted.ts';
import {
  bundleInvalid,
  countsIn,
  knownBadIn,
  maxList,
  refuseUnreadable,
  decodeList,
  type BundleBad,
  type BundleCounts,
  type BundleEntry,
  type BundleHeader,
  ownerName,
  type BundleList,
} from './format.ts';
import type { SigningKey } from '../runtime/dsse.ts';
import { planSegments } from './plan.ts';
import { encoded, prepareFolder, writeSegments, type EncodedList } from './write.ts';

/** What making a bundle needs. */
export interface CreateParts extends BundleMirror, HostedParts {
  blobs: BlobStore;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

interface CreateOptions {
  folder: string;
  /** What clients of the receiver need. */
  needed: Iterable<NeededEntry>;
  /** What accounts host. */
  hosted?: readonly HostedSelection[] | undefined;
  /** Most bytes of a segment; undefined for one segment. */
  segment?: number | undefined;
  /** What the receiver has, as its receipt or an earlier bundle says. */
  base?: { id: Digest; digests: Pick<HeldDigests, 'has'> } | undefined;
  key?: SigningKey | undefined;
  audience?: string | undefined;
  /** How long it may be imported, milliseconds; undefined: always. */
  validFor?: number | undefined;
  policy?: string | undefined;
  /** A signed statement about a new key. */
  newKey?: string | undefined;
  /** Records of lists of known bad content, in the order of the lists. */
  knownBad?: readonly BundleBad[] | undefined;
  /** Writes nothing. */
  dryRun: boolean;
  /** Called with the bytes of content before they are written. Throws `StorageFull` if there is no room for them. */
  admit?: (bytes: number) => Promise<void>;
  /** Called with the bytes of content that are written. */
  watch: (bytes: number, of: number) => void;
  signal: AbortSignal;
}

interface CreatedBundle {
  id: Digest;
  header: BundleHeader;
  counts: BundleCounts;
  /** Content that the receiver has. */
  base: { count: number; bytes: number };
}

/** Makes a bundle in a new folder, or goes on with one that was interrupted there. Throws `Invalid` and `ContentDamaged`. */
export async function createBundle(parts: CreateParts, options: CreateOptions): Promise<CreatedBundle> {
  const { folder, base, dryRun, watch, signal } = options;
  const { database, blobs: store } = parts;
  const bundles = new Bundles(database, parts.now);
  const entries = await collectEntries(parts, options.needed, hostedEntries(parts, options.hosted ?? []));
  const contents = new Map<Digest, { digest: Digest; size: number }>();
  const held = new Set<Digest>();
  for await (const { digest, size, account } of withPauses(entries)) {
    contents.set(digest, { digest, size });
    if (base?.digests.has(digest, account)) held.add(digest);
  }
  const planned = dryRun ? undefined : await prepareFolder(folder);
  const { knownBad = [] } = options;
  const lists = await knownBadIn(knownBad);
  const plan = await planSegments(store, [...contents.values()], entries, {
    knownBad,
    limit: options.segment,
    base: held,
  });
  const source = await installationIdentity(database);
  const now = parts.now();
  const header: BundleHeader = {
    format: 'entrepot-bundle',
    version: 1,
    source,
    audience: options.audience ?? null,
    created_at: now,
    sequence: Math.max(now, (await bundles.latest('made', source)) + 1),
    expires_at: options.validFor === undefined ? null : now + options.validFor,
    against: base?.id ?? null,
    segments: plan.segments,
    blob_count: plan.blobs.length,
    entry_count: entries.length,
    bytes: plan.bytes,
    policy: options.policy ?? null,
    ...(options.newKey !== undefined && { new_key: options.newKey }),
    ...(lists.length > 0 && { known_bad: lists }),
  };
  const list = { header, blobs: plan.blobs, entries, knownBad };
  await refuseUnreadable(list);
  const made = await goOn(planned, list, folder);
  if (made.size > maxList) throw bundleInvalid(`the list of the bundle would have more than ${maxList} bytes`);
  const id = made.digest;
  const known = plan.blobs.filter((each) => 'base' in each);
  const result: CreatedBundle = {
    id,
    header: made.list.header,
    counts: await countsIn(entries),
    base: { count: known.length, bytes: known.reduce((sum, { size }) => sum + size, 0) },
  };
  if (dryRun) return result;
  await options.admit?.(made.list.header.bytes);
  const { key } = options;
  await writeSegments(folder, made, { store, key, watch: (bytes) => watch(bytes, plan.bytes), signal });
  const { segments, bytes, against } = made.list.header;
  const summary = { ...result.counts, segments, bytes, against, key: key?.id ?? null, knownBad: lists };
  await database.transaction(async (tx) => {
    await bundles.write(tx, 'made', id, made.list, 'complete', summary);
    await recordEvent(
      tx,
      bundleEvent('bundle.created', id, { segments, bytes, against, key: summary.key }),
      parts.now(),
    );
  });
  return result;
}

/** The list that an interrupted attempt has begun to write if it has the same content, else the new one. Throws `Invalid`. */
async function goOn(bytes: Buffer | undefined, list: BundleList, folder: string): Promise<EncodedList> {
  if (!bytes) return encoded(list);
  const before = await decodeList(bytes.toString().trimEnd().split('\n')).catch(() => undefined);
  if (!before || contentOf(before) !== contentOf(list))
    throw bundleInvalid(
      'the folder has a part of another bundle, whose content has changed since. Delete the part, or name a new folder',
    );
  const { expires_at: end } = before.header;
  if (end !== null && end <= list.header.created_at)
    throw bundleInvalid(
      `${folder}: the bundle that was begun there was valid until ${new Date(end).toISOString()}. Delete the part, or name a new folder`,
    );
  return { list: before, size: bytes.length, pieces: [bytes], digest: digestOf(bytes) };
}

/** What decides whether two lists have the same content in the same segments. */
function contentOf({ header, blobs, entries, knownBad = [] }: BundleList): Digest {
  const { audience, created_at, expires_at, against, policy, new_key, segments } = header;
  const validFor = expires_at === null ? null : expires_at - created_at;
  const places = entries.map(({ kind, name, reference, digest, ...entry }: BundleEntry) => [
    ownerName(entry),
    kind,
    name,
    reference,
    digest,
  ]);
  return digestOf(JSON.stringify([audience, validFor, against, policy, new_key, segments, blobs, places, knownBad]));
}
