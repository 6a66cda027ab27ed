import { forUpdate, type Transaction } from '../database/database.ts';
import type { DescribedEntry } from '../mirror/fetch/resource.ts';
import { mirroredAmong } from '../mirror/store/staged.ts';
import { typed } from '../runtime/command-name.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { installationIdentity } from '../storage/upkeep/identity.ts';
import { Bundles, type BundleRecord } from './bundles.ts';
import type { BundleMirror } from './collect.ts';
import { HostedImport, type HostedParts } from './hosted.ts';
import { bundleInvalid, ownerName, type BundleBlob, type BundleEntry, type BundleHeader } from './format.ts';
import type { OpenBundle } from './read.ts';
import type { TrustedKey, TrustedKeys } from './trust.ts';
import { upstreamOf } from './upstream-names.ts';

// What an import refuses before it reads content.

/** Rows of one statement. */
export const rowsAtATime = 500;
/** Names of missing content in a message. */
const maxNamed = 5;

/** What an import needs to know of this installation. */
export interface ExamineParts extends Pick<BundleMirror, 'database' | 'upstreams' | 'describe'>, HostedParts {
  trust: TrustedKeys;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

/** What an import may bring in. */
export interface ExamineOptions {
  /** Also a bundle without a signature. */
  unsigned: boolean;
  /** Also an older bundle than the last one of its source. Then only content that never changes comes in. */
  older: boolean;
  /** Also content that accounts host. */
  hosted: boolean;
}

/** An entry, and how it is checked. */
export interface PlacedEntry<Described = DescribedEntry> {
  entry: BundleEntry;
  described: Described;
}

/** A bundle that can be imported here. */
interface ExaminedBundle {
  /** The key that signed it; undefined without a signature. */
  key: TrustedKey | undefined;
  /** The record of an earlier import of it. */
  before: BundleRecord | undefined;
  /** Whether a newer bundle of its source was imported. */
  isOlder: boolean;
  placed: PlacedEntry[];
  hostedEntries: BundleEntry[];
  ours: HostedImport;
}

/**
 * Examines what a bundle says of itself and of its entries. Throws `Denied` for one that is not trusted, and `Invalid` for one that cannot be
 * imported here.
 */
export async function examineBundle(
  parts: ExamineParts,
  bundle: OpenBundle,
  options: ExamineOptions,
): Promise<ExaminedBundle> {
  const { header, entries } = bundle.list;
  const bundles = new Bundles(parts.database, parts.now);
  const key = await signerOfBundle(parts, bundle, options.unsigned);
  const before = await bundles.find('imported', bundle.id);
  const isOlder = !bundle.isPlain && header.sequence < (await bundles.latest('imported', header.source));
  if (isOlder && !options.older && before?.state !== 'complete') throw olderThanLast(header);
  const { mirrored = [], hosted = [] } = Object.groupBy(entries, (each) =>
    each.account === undefined ? 'mirrored' : 'hosted',
  );
  if (hosted.length > 0 && !options.hosted)
    throw bundleInvalid(
      `the bundle has content that accounts host. Only a command imports it, on the server: ${typed('bundle import')}`,
    );
  const placed = await placeEntries(parts, mirrored);
  const ours = await HostedImport.of(parts, hosted, header.source);
  return { key, before, isOlder, placed, hostedEntries: hosted, ours };
}

/** The key that signed the bundle; undefined for one without a signature. Throws `Denied` if it must not be imported here. */
export async function signerOfBundle(
  { trust, database, now }: Pick<ExamineParts, 'trust' | 'database' | 'now'>,
  { envelope, list: { header } }: OpenBundle,
  unsigned: boolean,
): Promise<TrustedKey | undefined> {
  const key = await trust.signerOfBundle(envelope, unsigned);
  if (header.expires_at !== null && header.expires_at <= now())
    throw bundleInvalid(`the bundle was valid until ${dateOf(header.expires_at)}. Ask its source for a new one`);
  const own = await installationIdentity(database);
  if (header.audience !== null && header.audience !== own)
    throw bundleInvalid(`the bundle is for the installation ${header.audience}, and this is ${own}`);
  return key;
}

/** Throws `Invalid` if an upstream of the bundle is not here, or an entry is none. */
async function placeEntries(
  { upstreams, describe }: ExamineParts,
  entries: readonly BundleEntry[],
): Promise<PlacedEntry[]> {
  const placed: PlacedEntry[] = [];
  for await (const entry of withPauses(entries)) {
    const upstream = upstreamOf(entry, upstreams);
    if (!upstream)
      throw bundleInvalid(
        `the bundle has content of the upstream ${entry.upstream} (${entry.protocol}), which the settings lack here. Add it to "upstreams"; with "mode: offline" it is never asked`,
      );
    const described = describe(upstream, entry, entry.attributes);
    if (!described)
      throw bundleInvalid(`the bundle has a ${entry.kind} ${entry.name} ${entry.reference}, which is unknown here`);
    placed.push({ entry, described });
  }
  return placed;
}

/**
 * Throws `Invalid` if a newer bundle of this source was imported meanwhile. Call it in the transaction that shows the bundle. Each import
 * has a record, so two of one source wait here for each other.
 */
export async function refuseOvertaken(tx: Transaction, header: BundleHeader): Promise<void> {
  const records = await tx.select<{ sequence: number; state: BundleRecord['state'] }>(
    `SELECT sequence, state FROM bundles WHERE direction = 'imported' AND source = ?${forUpdate(tx)}`,
    [header.source],
  );
  if (records.some(({ sequence, state }) => state === 'complete' && sequence > header.sequence))
    throw olderThanLast(header);
}

/** Throws as an import would before it reads content, also if the bundle counts on content that is not here. Changes nothing. */
export async function refuseImport(parts: ExamineParts, bundle: OpenBundle, unsigned: boolean): Promise<void> {
  const { ours } = await examineBundle(parts, bundle, { unsigned, older: false, hosted: true });
  const base = bundle.list.blobs.filter((each) => 'base' in each);
  const missing: BundleBlob[] = [];
  for (let start = 0; start < base.length; start += rowsAtATime) {
    const some = base.slice(start, start + rowsAtATime);
    const own = await ours.among(some.map(({ digest }) => digest));
    const here = new Set(await parts.database.transaction((tx) => mirroredAmong(tx, some, own)));
    for (const each of some) if (!here.has(each)) missing.push(each);
  }
  if (missing.length > 0) throw baseMissing(bundle, missing);
}

/** `Invalid` for a bundle that counts on content which is not here. */
export function baseMissing({ list }: OpenBundle, missing: readonly BundleBlob[]): Error {
  const names = missing.slice(0, maxNamed).map(({ digest }) => {
    const entry = list.entries.find((each) => each.digest === digest);
    return entry ? `${ownerName(entry)}/${entry.name} ${entry.kind} ${entry.reference}`.trim() : digest;
  });
  return bundleInvalid(
    `the bundle counts on content that is not here: ${missing.length} of its items, such as ${names.join('; ')}. Import the earlier bundle that it was made against; or make a new receipt here, or a complete bundle there`,
  );
}

function olderThanLast(header: BundleHeader): Error {
  return bundleInvalid(
    `this bundle of ${dateOf(header.created_at)} is older than the last one of its source that was imported. With --older, only content that never changes is imported from it`,
  );
}

function dateOf(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}
