import { Readable } from 'node:stream';
import { algorithmOf, hexOf, type Digest } from '../runtime/digest.ts';
import { isDomainError } from '../runtime/errors.ts';
import { pause, withPauses } from '../runtime/event-loop.ts';
import { checkImported, showImported } from '../mirror/imports.ts';
import type { DescribedEntry } from '../mirror/fetch/resource.ts';
import type { Entries } from '../mirror/store/entries.ts';
import type { ImportedEntry } from '../mirror/store/imported.ts';
import type { Arrival, BlobStore } from '../storage/blobs/blob-store.ts';
import { holdMirrored, releaseStaged, stageContent, type StagedContent } from '../mirror/store/staged.ts';
import { piecesOf } from '../storage/files/content.ts';
import { recordEvent } from '../events/record.ts';
import { bundleEvent, Bundles, type BundleSummary } from './bundles.ts';
import { baseMissing, examineBundle, refuseOvertaken, rowsAtATime } from './examine.ts';
import type { ExamineOptions, ExamineParts, PlacedEntry } from './examine.ts';
import type { HostedImport } from './hosted.ts';
import { bundleInvalid, countsIn, type BundleBlob, type BundleHeader } from './format.ts';
import { noting, unreadable, type OpenBundle } from './read.ts';
import type { AnnouncedKey } from './trust.ts';

/** What an import needs. */
export interface ImportParts extends ExamineParts {
  blobs: BlobStore;
  entries: Entries;
}

interface ImportOptions extends ExamineOptions {
  watch: (bytes: number, of: number) => void;
  signal: AbortSignal;
}

/** What an import did. */
interface ImportResult {
  id: Digest;
  header: BundleHeader;
  summary: BundleSummary;
  /** The numbers of the segments that are still needed; the content of the bundle is shown when there are none. */
  lacking: number[];
  /** Bytes that this run has read and stored. */
  stored: number;
  /** Whether an earlier run has shown all of it already. */
  isRepeated: boolean;
  /** A new key that it announces, and that is not trusted here yet. */
  newKey: AnnouncedKey | undefined;
}

/** Content is checked as the entries of the mirror that it belongs to. Hosted content is checked when it is prepared. */
type Use = PlacedEntry<DescribedEntry | undefined>;

/** Running servers show an import of another process within this time; milliseconds. */
export const shownWithin = 1500;
/** Content that is stored together, so that its durable writes happen at the same time. */
const batchBytes = 32 * 2 ** 20;
const batchItems = 64;
/** How long an import may wait for its missing segments, in milliseconds; then its content is removed. */
const unfinishedFor = 30 * 86_400_000;

/**
 * Imports the segments that `bundle` has. Nothing is shown before all content of the bundle is here and checked; then all is shown
 * in one transaction. What is stored stays for the next run if this one ends early, unless the bundle was imported before. Throws `Denied` for a bundle that is not
 * trusted, and `Invalid` for one that cannot be imported here.
 */
export async function importBundle(
  parts: ImportParts,
  bundle: OpenBundle,
  options: ImportOptions,
): Promise<ImportResult> {
  const { database, now } = parts;
  const { id, list } = bundle;
  const bundles = new Bundles(database, now);
  const { key, before, isOlder, placed, hostedEntries, ours } = await examineBundle(parts, bundle, options);
  const { segments, bytes, against, known_bad: knownBad = [] } = list.header;
  const counts = await countsIn(list.entries);
  const summary: BundleSummary = { ...counts, segments, bytes, against, key: key?.id ?? null, knownBad };
  const announced = list.header.new_key;
  const newKey = announced === undefined ? undefined : await parts.trust.announced(announced);
  const result = { id, header: list.header, summary, isRepeated: before?.state === 'complete', newKey };
  const uses = new Map<Digest, Use[]>();
  for await (const each of withPauses([
    ...placed,
    ...hostedEntries.map((entry) => ({ entry, described: undefined })),
  ])) {
    const others = uses.get(each.entry.digest);
    if (others) others.push(each);
    else uses.set(each.entry.digest, [each]);
  }
  const staging = new Staging(parts, bundle, uses, ours, options);
  await database.transaction(async (tx) => {
    for (const each of await bundles.dropUnfinished(tx, now() - unfinishedFor)) await releaseStaged(tx, each);
    if (before?.state !== 'complete') await bundles.write(tx, 'imported', id, list, 'incomplete', summary);
  });
  try {
    await staging.refuseMissingBase();
    const lacking = await staging.run();
    if (lacking.length > 0) return { ...result, lacking, stored: staging.stored };
    options.signal.throwIfAborted();
    const shown: ImportedEntry[] = [];
    const askedAt = await timesOfNames(placed);
    const tells = !isOlder && !bundle.isPlain;
    for await (const each of withPauses(placed)) {
      const asOf = tells ? Math.min(askedAt.get(nameIn(each)) ?? 0, now()) : undefined;
      if (!isOlder || each.described.lifetime === 'immutable') shown.push(importedEntry(each, now(), asOf));
    }
    const showHosted = await staging.prepareHosted();
    // The import may have taken hours, in which the key was removed or revoked.
    await parts.trust.signerOfBundle(bundle.envelope, options.unsigned);
    let written = 0;
    await showImported(parts, shown, async (tx, news) => {
      if (!isOlder && !bundle.isPlain) await refuseOvertaken(tx, list.header);
      written = news.length + (await showHosted(tx, isOlder));
      await releaseStaged(tx, hexOf(id));
      // Running servers drop what they have in memory when the record changes.
      if (written === 0 && before?.state === 'complete') return;
      const sum = (before?.summary.written ?? 0) + written;
      await bundles.write(tx, 'imported', id, list, 'complete', { ...summary, written: sum });
      const details = { source: list.header.source, entries: written, bytes, key: summary.key };
      await recordEvent(tx, bundleEvent('bundle.imported', id, details), now());
    });
    return { ...result, summary: { ...summary, written }, lacking, stored: staging.stored };
  } catch (error) {
    // Without a record that says that this import is unfinished, nothing else would let go of its content.
    if ((await bundles.find('imported', id))?.state !== 'incomplete')
      await database.transaction((tx) => releaseStaged(tx, hexOf(id)));
    throw error;
  }
}

/** When the source of a bundle last asked for the documents of each name, the oldest of them. */
async function timesOfNames(placed: readonly PlacedEntry[]): Promise<Map<string, number>> {
  const times = new Map<string, number>();
  for await (const each of withPauses(placed)) {
    if (each.described.lifetime === 'immutable') continue;
    const name = nameIn(each);
    times.set(name, Math.min(times.get(name) ?? Infinity, each.entry.validated_at));
  }
  return times;
}

function nameIn({ described: { key } }: PlacedEntry): string {
  return JSON.stringify([key.upstream, key.name]);
}

function importedEntry({ entry, described }: PlacedEntry, now: number, asOf: number | undefined): ImportedEntry {
  const { digest, size, type, etag, modified, attributes, validated_at: validatedAt, seen, withdrawn } = entry;
  return {
    key: described.key,
    metadata: {
      digest,
      size,
      type,
      etag,
      lastModified: modified,
      attributes,
      storedAt: now,
      validatedAt: Math.min(validatedAt, now),
    },
    isImmutable: described.lifetime === 'immutable',
    seen: seen.map((line) => ({ ...line, seenAt: Math.min(line.seenAt, now) })),
    withdrawn,
    asOf,
  };
}

/** Stores the content of a bundle, which `mirror_staged` holds until it is shown. */
class Staging {
  stored = 0;
  readonly #parts: ImportParts;
  readonly #bundle: OpenBundle;
  readonly #options: ImportOptions;
  readonly #uses: ReadonlyMap<Digest, readonly Use[]>;
  readonly #hosted: HostedImport;
  readonly #held = new Set<string>();
  #batch: { arrival: Arrival; size: number }[] = [];

  constructor(
    parts: ImportParts,
    bundle: OpenBundle,
    uses: ReadonlyMap<Digest, readonly Use[]>,
    hosted: HostedImport,
    options: ImportOptions,
  ) {
    this.#parts = parts;
    this.#bundle = bundle;
    this.#options = options;
    this.#uses = uses;
    this.#hosted = hosted;
  }

  get #id(): string {
    return hexOf(this.#bundle.id);
  }

  /** Holds what the bundle counts on. Throws `Invalid` if some of it is not here. */
  async refuseMissingBase(): Promise<void> {
    const base = this.#bundle.list.blobs.filter((each) => 'base' in each);
    await this.#hold(base);
    const missing = base.filter(({ digest }) => !this.#held.has(digest));
    if (missing.length > 0) throw baseMissing(this.#bundle, missing);
  }

  /** Stores the content that is not stored yet; resolves to the numbers of the segments that are still needed. */
  async run(): Promise<number[]> {
    const { watch, signal } = this.#options;
    const { blobs } = this.#bundle.list;
    const wanted = blobs.filter((each) => !('base' in each));
    // What is said about plain content comes from its checks.
    if (!this.#bundle.isPlain) await this.#hold(wanted);
    const partsOf = (blob: BundleBlob) =>
      'parts' in blob && !this.#held.has(blob.digest)
        ? [...new Map(blob.parts.map((each) => [each.digest, each])).values()]
        : [];
    await this.#hold(wanted.flatMap(partsOf));
    const total = wanted.reduce((sum, { size }) => sum + size, 0);
    let done = 0;
    try {
      for (const blob of wanted) {
        signal.throwIfAborted();
        await pause();
        if (!this.#held.has(blob.digest) && !(await this.#stage(blob)))
          // The others come with other segments.
          for (const part of partsOf(blob))
            if (!this.#held.has(part.digest))
              await this.#stage({ digest: part.digest, size: part.size, parts: [part] });
        watch((done += blob.size), total);
      }
      await this.#commit();
    } finally {
      await Promise.all(this.#batch.map(({ arrival }) => arrival.staged.discard()));
    }
    const lacked = wanted.filter(({ digest }) => !this.#held.has(digest));
    return this.#bundle.lacking(
      lacked.map((each) =>
        'parts' in each ? { ...each, parts: each.parts.filter(({ digest }) => !this.#held.has(digest)) } : each,
      ),
    );
  }

  /** Stores content if all of its bytes are here; resolves to whether they are. */
  async #stage(blob: BundleBlob): Promise<boolean> {
    const found = await this.#bundle.open(blob, ({ digest, size }) =>
      this.#held.has(digest) ? () => this.#parts.blobs.open(digest, size) : undefined,
    );
    if (!found) return false;
    const uses = this.#uses.get(blob.digest) ?? [];
    const algorithms = new Set([
      algorithmOf(blob.digest),
      ...uses.flatMap(({ described }) => described?.algorithms ?? []),
    ]);
    const staging = this.#parts.blobs.stageHosted(blob.size, [...algorithms]);
    const staged = await staging.catch((error: unknown) => {
      found.content.close();
      throw error;
    });
    try {
      let failure: unknown;
      const pieces = noting(piecesOf(found.content), (error) => (failure = error));
      // It hashes while it writes.
      const source = Readable.from(pieces, { objectMode: false });
      await staged.append(source, { limit: blob.size, consume: true }).catch((error: unknown) => {
        if (failure !== undefined) unreadable(found.place, failure);
        throw error;
      });
      if (staged.size !== blob.size || (await staged.digest(algorithmOf(blob.digest))) !== blob.digest)
        throw bundleInvalid(
          `${found.place}: the bytes of ${blob.digest} are damaged. Run the same command again with a good copy`,
        );
      for (const each of uses) await this.#check(each, staged);
    } catch (error) {
      await staged.discard();
      throw error;
    }
    await this.#add({ staged, digest: blob.digest }, blob.size);
    this.stored += blob.size;
    return true;
  }

  /** Reads the hosted content, which is stored now. Resolves to what shows it. */
  async prepareHosted() {
    try {
      const show = await this.#hosted.prepare(async (bytes) => {
        const arrival = await this.#parts.blobs.stageBytes(bytes);
        await this.#add(arrival, bytes.length);
        return arrival.digest;
      });
      await this.#commit();
      return show;
    } finally {
      await Promise.all(this.#batch.map(({ arrival }) => arrival.staged.discard()));
    }
  }

  async #add(arrival: Arrival, size: number): Promise<void> {
    this.#batch.push({ arrival, size });
    const bytes = this.#batch.reduce((sum, { size }) => sum + size, 0);
    if (bytes >= batchBytes || this.#batch.length >= batchItems) await this.#commit();
  }

  /** Checks content as if it had been fetched, and what the bundle says about it. */
  async #check({ entry, described }: Use, staged: Arrival['staged']): Promise<void> {
    if (!described) return;
    const { type, etag, modified: lastModified, name, reference } = entry;
    const stated = { type, etag, lastModified, digest: entry.digest };
    const { metadata, seen } = await checkImported(described, staged, stated, this.#parts.now()).catch(
      (error: unknown) => {
        throw isDomainError(error) ? bundleInvalid(`the bundle has wrong content: ${error.message}`, error) : error;
      },
    );
    if (this.#bundle.isPlain) {
      entry.attributes = metadata.attributes;
      entry.seen = seen.map((each) => ({ ...each, digest: each.digest, seenAt: this.#parts.now() }));
      return;
    }
    const differs = Object.entries(metadata.attributes).find(
      ([attribute, value]) => entry.attributes[attribute] !== value,
    );
    if (differs) throw bundleInvalid(`the bundle says something wrong about ${name} ${reference}: its ${differs[0]}`);
  }

  async #commit(): Promise<void> {
    const batch = this.#batch;
    if (batch.length === 0) return;
    this.#batch = [];
    await this.#parts.blobs.commit(
      batch.map(({ arrival }) => arrival),
      (tx) =>
        stageContent(
          tx,
          this.#id,
          batch.map(({ arrival, size }) => ({ digest: arrival.digest, size })),
        ),
    );
    for (const { arrival } of batch) this.#held.add(arrival.digest);
  }

  /** Holds those of `blobs` that the mirror has, or the account that they are for, so that the collector leaves them until the import ends. */
  async #hold(blobs: readonly StagedContent[]): Promise<void> {
    for (let start = 0; start < blobs.length; start += rowsAtATime) {
      const some = blobs.slice(start, start + rowsAtATime);
      const own = await this.#hosted.among(some.map(({ digest }) => digest));
      const here = await this.#parts.database.transaction((tx) => holdMirrored(tx, this.#id, some, own));
      for (const { digest } of here) this.#held.add(digest);
    }
  }
}
