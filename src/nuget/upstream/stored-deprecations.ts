import { LRUCache } from 'lru-cache';
import { entriesUnder, entryNames, type ListedEntry } from '../../mirror/store/listing.ts';
import type { Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { readAll } from '../../storage/files/content.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { documentLimit } from './package-mirror.ts';
import { read } from './reading/readers.ts';
import type { DeprecatedVersions } from './reading/registration.ts';

/** The versions of a package that its registration at an upstream deprecates, as keys. */
interface DeprecatedPackage {
  name: string;
  /** The upstream's ID. */
  upstream: string;
  versions: ReadonlySet<string>;
}

/** The kinds of stored registrations. Of a package with both, the first counts, which has all versions. */
const kinds = ['registration-semver2', 'registration'] as const;
const namesAtATime = 200;
/** Most documents and bytes that one call of `all` reads. It knows the documents that it has read before. */
const maxDocuments = 500;
const maxBytes = 64 * 2 ** 20;
/** Bytes of memory for what is known, and of each document beside its texts. */
const keptBytes = 16 * 2 ** 20;
const bytesOfDocument = 250;

const nothing: DeprecatedVersions = { versions: [], pages: [] };

/** Which versions the stored registrations deprecate. The upstreams are not asked. */
export class StoredDeprecations {
  readonly #database: FeedContext['database'];
  readonly #blobs: FeedContext['blobs'];
  readonly #known = new LRUCache<Digest, DeprecatedVersions>({
    maxSize: keptBytes,
    sizeCalculation: ({ versions, pages }) =>
      [...versions, ...pages].reduce((sum, each) => sum + 50 + each.length, bytesOfDocument),
  });

  constructor({ database, blobs }: Pick<FeedContext, 'database' | 'blobs'>) {
    this.#database = database;
    this.#blobs = blobs;
  }

  /**
   * Calls `found` for the packages with deprecated versions; with `upstreams`, of the upstreams with these IDs only. Resolves to
   * whether all stored documents are known: a call reads some, and later calls read the others.
   */
  async all(
    upstreams: readonly string[] | undefined,
    found: (deprecated: DeprecatedPackage) => Promise<void>,
  ): Promise<boolean> {
    const left = { documents: maxDocuments, bytes: maxBytes };
    let isComplete = true;
    for (const kind of kinds) {
      for await (const registration of this.#registrations(kind, upstreams)) {
        const versions = await this.#versionsIn(registration, left);
        isComplete &&= versions !== undefined;
        const { name, upstream } = registration[0]!;
        if (versions && versions.size > 0) await found({ name, upstream, versions });
        await pause();
      }
    }
    return isComplete;
  }

  /** The stored documents of each registration of a kind. */
  async *#registrations(
    kind: (typeof kinds)[number],
    upstreams: readonly string[] | undefined,
  ): AsyncGenerator<readonly ListedEntry[]> {
    const names = (after: string) => entryNames(this.#database, { kind, upstreams }, after, namesAtATime);
    for await (const some of pagesOf('', namesAtATime, names, String)) {
      const stored = await entriesUnder(this.#database, kind, some);
      const first = kind === kinds[0] ? [] : await entriesUnder(this.#database, kinds[0], some);
      const isKnown = new Set(first.map(keyOf));
      const served = stored.filter(({ upstream }) => upstreams?.includes(upstream) ?? true);
      for (const [key, documents] of Map.groupBy(served, keyOf)) if (!isKnown.has(key)) yield documents;
    }
  }

  /** The deprecated versions of one registration; undefined if a document of it is not known, and nothing is `left` to read it. */
  async #versionsIn(documents: readonly ListedEntry[], left: Left): Promise<Set<string> | undefined> {
    const index = documents.find(({ reference }) => reference === 'index');
    const said = index ? await this.#saidBy(index, left) : nothing;
    if (!said) return undefined;
    const versions = new Set(said.versions);
    // Pages that the index no longer names stay stored for a while.
    const named = new Set(said.pages);
    for (const page of documents.filter(({ reference }) => named.has(reference))) {
      const inside = await this.#saidBy(page, left);
      if (!inside) return undefined;
      for (const version of inside.versions) versions.add(version);
    }
    return versions;
  }

  async #saidBy(document: ListedEntry, left: Left): Promise<DeprecatedVersions | undefined> {
    const { digest, size } = document;
    const known = this.#known.get(digest);
    if (known) return known;
    if (left.documents === 0 || left.bytes < size) return undefined;
    left.documents -= 1;
    left.bytes -= size;
    const said = await this.#read(document);
    this.#known.set(digest, said);
    return said;
  }

  /** Nothing for a document that is damaged or has another form. */
  async #read({ digest, size, name }: ListedEntry): Promise<DeprecatedVersions> {
    try {
      const bytes = await readAll(await this.#blobs.open(digest, size), documentLimit);
      const [text] = await read('deprecated', bytes, { key: name });
      const said = JSON.parse(text!) as DeprecatedVersions;
      return said.versions.length + said.pages.length === 0 ? nothing : said;
    } catch (error) {
      if (isDomainError(error) && !['BlobUnknown', 'ContentDamaged'].includes(error.name)) throw error;
      return nothing;
    }
  }
}

function keyOf({ upstream, name }: ListedEntry): string {
  return `${upstream} ${name}`;
}

/** What a call may still read. */
interface Left {
  documents: number;
  bytes: number;
}
