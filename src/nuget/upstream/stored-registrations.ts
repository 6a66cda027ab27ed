import { LRUCache } from 'lru-cache';
import { entriesUnder, entryNames, type ListedEntry } from '../../mirror/store/listing.ts';
import type { Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { Semaphore } from '../../runtime/semaphore.ts';
import { readAll } from '../../storage/files/content.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { documentLimit } from './package-mirror.ts';
import { read } from './reading/readers.ts';
import type { VersionStates } from './reading/registration.ts';

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
/** Most documents and bytes that one call reads. It knows the documents that it has read before. */
const maxDocuments = 500;
const maxBytes = 64 * 2 ** 20;
/** Bytes of memory for what is known, and of each document beside its texts. */
const keptBytes = 16 * 2 ** 20;
const bytesOfDocument = 250;

const nothing: VersionStates = { deprecated: [], unlisted: [], pages: [] };

/** Which versions the stored registrations deprecate, and which they do not list. The upstreams are not asked. */
export class StoredRegistrations {
  readonly #database: FeedContext['database'];
  readonly #blobs: FeedContext['blobs'];
  /** One document of each upstream is in memory at a time, however many requests need one. The next that need it then know what it says. */
  readonly #turns = new Semaphore({ max: 1 });
  readonly #known = new LRUCache<Digest, VersionStates>({
    maxSize: keptBytes,
    sizeCalculation: ({ deprecated, unlisted, pages }) =>
      [...deprecated, ...unlisted, ...pages].reduce((sum, each) => sum + 50 + each.length, bytesOfDocument),
  });

  constructor({ database, blobs }: Pick<FeedContext, 'database' | 'blobs'>) {
    this.#database = database;
    this.#blobs = blobs;
  }

  /**
   * Calls `found` for the packages with deprecated versions; with `upstreams`, of the upstreams with these IDs only. Resolves to
   * whether all stored documents are known: a call reads some, and later calls read the others.
   */
  async deprecated(
    upstreams: readonly string[] | undefined,
    found: (deprecated: DeprecatedPackage) => Promise<void>,
  ): Promise<boolean> {
    const left = { documents: maxDocuments, bytes: maxBytes };
    let isComplete = true;
    for (const kind of kinds) {
      for await (const registration of this.#registrations(kind, upstreams)) {
        const versions = await this.#versionsIn(registration, 'deprecated', left);
        isComplete &&= versions !== undefined;
        const { name, upstream } = registration[0]!;
        if (versions && versions.size > 0) await found({ name, upstream, versions });
        await pause();
      }
    }
    return isComplete;
  }

  /**
   * The versions of a package, as keys, that the upstream with this ID does not list; none if its registration is not stored, or
   * takes too much time or memory to read.
   */
  async unlisted(upstream: string, key: string): Promise<ReadonlySet<string>> {
    for (const kind of kinds) {
      const documents = await entriesUnder(this.#database, kind, [key]);
      const registration = documents.filter((each) => each.upstream === upstream);
      if (registration.length === 0) continue;
      const left = { documents: maxDocuments, bytes: maxBytes };
      return (await this.#versionsIn(registration, 'unlisted', left).catch(unlessTooMuch)) ?? new Set();
    }
    return new Set();
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

  /** The versions of one registration in that state; undefined if a document of it is not known, and nothing is `left` to read it. */
  async #versionsIn(
    documents: readonly ListedEntry[],
    state: 'deprecated' | 'unlisted',
    left: Left,
  ): Promise<Set<string> | undefined> {
    const index = documents.find(({ reference }) => reference === 'index');
    const said = index ? await this.#saidBy(index, left) : nothing;
    if (!said) return undefined;
    const versions = new Set(said[state]);
    // Pages that the index no longer names stay stored for a while.
    const named = new Set(said.pages);
    for (const page of documents.filter(({ reference }) => named.has(reference))) {
      const inside = await this.#saidBy(page, left);
      if (!inside) return undefined;
      for (const version of inside[state]) versions.add(version);
      await pause();
    }
    return versions;
  }

  async #saidBy(document: ListedEntry, left: Left): Promise<VersionStates | undefined> {
    const { digest, size, upstream } = document;
    const known = this.#known.get(digest);
    if (known) return known;
    if (left.documents === 0 || left.bytes < size) return undefined;
    left.documents -= 1;
    left.bytes -= size;
    return this.#turns.run(async () => {
      const said = this.#known.get(digest) ?? (await this.#read(document));
      this.#known.set(digest, said);
      return said;
    }, upstream);
  }

  /** Nothing for a document that is damaged or has another form. */
  async #read({ digest, size, name, upstream: id }: ListedEntry): Promise<VersionStates> {
    try {
      const bytes = await readAll(await this.#blobs.open(digest, size), documentLimit);
      const [text] = await read('states', bytes, { key: name }, { of: 'upstream', id });
      const said = JSON.parse(text!) as VersionStates;
      return said.deprecated.length + said.unlisted.length + said.pages.length === 0 ? nothing : said;
    } catch (error) {
      if (isDomainError(error) && !['BlobUnknown', 'ContentDamaged'].includes(error.name)) throw error;
      return nothing;
    }
  }
}

/** For an error of a reading that took too much: what other upstreams and this server know is still shown. */
function unlessTooMuch(error: unknown): undefined {
  if (!isDomainError(error, 'TooManyRequests')) throw error;
}

function keyOf({ upstream, name }: ListedEntry): string {
  return `${upstream} ${name}`;
}

/** What a call may still read. */
interface Left {
  documents: number;
  bytes: number;
}
