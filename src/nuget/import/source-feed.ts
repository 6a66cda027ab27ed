import { readDocument } from '../../import/document.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';
import { urlBelow } from '../../upstream/url.ts';
import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { readOnce, type DocumentReading } from '../upstream/documents.ts';
import { addressIn } from '../upstream/package-mirror.ts';
import { serviceResources, type Resources } from '../upstream/service-index.ts';
import type { SearchHit } from '../format/search-hit.ts';
import { autocompleteTypes, searchTypes } from '../upstream/upstream-search.ts';

/** Most bytes of a document of a source. */
const documentLimit = 16 * 2 ** 20;
/** Ids on a page of a search, pages without a new id after which a list has ended, and most ids of a source. */
const pageSize = 200;
const emptyPages = 5;
const maxIds = 1_000_000;
/** The letters with which ids go on, and most letters of a beginning that is asked for. */
const letters = 'abcdefghijklmnopqrstuvwxyz0123456789._-'.split('');
const longestBeginning = 12;

/** An id of the source, and the downloads that it has counted of versions, by their keys. */
export interface SourceId {
  id: string;
  downloads: ReadonlyMap<string, number>;
}

type Parameters = Record<string, string>;

/** A feed that is read as a client reads it. Nothing that it sends is trusted. */
export class SourceFeed {
  readonly #remote: Upstream;
  readonly #signal: AbortSignal;
  #resources: Promise<Resources> | undefined;

  constructor(remote: Upstream, signal: AbortSignal) {
    this.#remote = remote;
    this.#signal = signal;
  }

  /** The value of a document, which is asked for `most` times; undefined if there is none. */
  async document<T>(url: URL, subject: string, reading: DocumentReading<T>, most?: number): Promise<T | undefined> {
    const found = await readDocument(this.#remote, { url, subject, signal: this.#signal }, documentLimit, most);
    if (!found) return undefined;
    return readOnce(found.bytes, reading, this.#remote.base.href).catch((error: unknown) => {
      throw new DomainError('Invalid', `The source sent a document that cannot be read: ${(error as Error).message}.`, {
        cause: error,
      });
    });
  }

  /** The address of the first of `types` that the source has; undefined if it has none. */
  async resource(types: readonly string[]): Promise<URL | undefined> {
    this.#resources ??= this.document(this.#remote.base, 'the service index', serviceResources).then((found) => {
      if (found) return found;
      throw new DomainError('Invalid', 'The source has no service index at this address.');
    });
    const resources = await this.#resources;
    const type = types.find((each) => resources.has(each));
    return type === undefined ? undefined : addressIn(this.#remote, resources.get(type));
  }

  /** As `resource`, below which addresses are made. Throws `Invalid` if the source has none. */
  async place(types: readonly string[]): Promise<URL> {
    const found = await this.resource(types);
    if (found) return urlBelow(found);
    throw new DomainError('Invalid', `The source has no ${types[0]}, so it is not a complete feed.`);
  }

  /**
   * All ids, each once: by searches with and without prereleases, then by autocompletion. Where the source ends a list early, the
   * ids are asked for by their first letters. `warn` is called if some may be missing.
   */
  async *ids(warn: (text: string) => void): AsyncGenerator<SourceId> {
    const seen = new Set<string>();
    const search = await this.resource(searchTypes);
    const autocomplete = await this.resource(autocompleteTypes);
    if (!search && !autocomplete)
      throw new DomainError(
        'Invalid',
        'The source has no search. List the packages in a file, and name it with --names.',
      );
    const hits = (parameters: Parameters) => this.#hits(search!, parameters);
    const completed = async (parameters: Parameters) => {
      const found = await this.document(withQuery(autocomplete!, parameters), 'autocompletion', idsIn);
      return (
        found && { total: found.totalHits, ids: found.data.map((id) => ({ id, downloads: new Map<string, number>() })) }
      );
    };
    let total = 0;
    for (const prerelease of ['true', 'false'])
      for (const page of [...(search ? [hits] : []), ...(autocomplete ? [completed] : [])])
        total = Math.max(total, (yield* this.#pages(page, { q: '', prerelease }, seen)).total);
    if (seen.size >= total) return;
    yield* this.#beginnings(autocomplete ? completed : hits, '', seen);
    if (seen.size >= total) return;
    warn(
      `The source tells of ${total} packages and lists ${seen.size}: some may be missing. List them in a file, and name it with --names.`,
    );
  }

  /** These ids, with the downloads that a search finds. If it fails, it is asked no more, and `warn` is called: all else comes without it. */
  async *named(ids: readonly string[], warn: (text: string) => void): AsyncGenerator<SourceId> {
    let search = await this.resource(searchTypes);
    for (const id of ids) {
      const asked = { q: id, prerelease: 'true', semVerLevel: '2.0.0', take: '20' };
      const found = search && isPackageId(id) ? await this.#hits(search, asked, 1).catch(unlessUnusable) : undefined;
      if (found === null) {
        warn('The search of the source fails, so packages come without the downloads that it has counted.');
        search = undefined;
      }
      const same = found?.ids.find((each) => packageKey(each.id) === packageKey(id));
      yield same ?? { id, downloads: new Map() };
    }
  }

  async #hits(
    search: URL,
    parameters: Parameters,
    most?: number,
  ): Promise<{ total: number; ids: SourceId[] } | undefined> {
    const reading = hitsIn(this.#remote.base, await this.place(['PackageBaseAddress/3.0.0']));
    const found = await this.document(withQuery(search, parameters), 'search', reading, most);
    return found && { total: found.totalHits, ids: found.data.map(idOfHit) };
  }

  /** The ids with each longer beginning, as long as a list of them ends early. */
  async *#beginnings(page: Page, beginning: string, seen: Set<string>): AsyncGenerator<SourceId> {
    for (const letter of letters) {
      const longer = beginning + letter;
      const { total, shown, matched } = yield* this.#pages(page, { q: longer, prerelease: 'true' }, seen);
      // A source that does not look for beginnings shows the same for all of them.
      if (shown < total && matched > 0 && longer.length < longestBeginning) yield* this.#beginnings(page, longer, seen);
    }
  }

  /** The new ids of one list; resolves to how many it has and shows, and how many of these begin with the query. */
  async *#pages(
    page: Page,
    parameters: Parameters & { q: string },
    seen: Set<string>,
  ): AsyncGenerator<SourceId, { total: number; shown: number; matched: number }> {
    let [total, shown, matched, withoutNew] = [0, 0, 0, 0];
    for (let skip = 0; withoutNew < emptyPages;) {
      const asked = { ...parameters, skip: String(skip), take: String(pageSize), semVerLevel: '2.0.0' };
      const found = await page(asked).catch((error: unknown) => {
        // Some servers refuse to show what is far behind.
        if (skip === 0 || !(error instanceof UpstreamError)) throw error;
        return undefined;
      });
      if (!found || found.ids.length === 0) break;
      total = found.total;
      skip += found.ids.length;
      let isNew = false;
      for (const each of found.ids) {
        const key = packageKey(each.id);
        if (key.startsWith(parameters.q)) matched += 1;
        shown += 1;
        if (!isPackageId(each.id) || seen.has(key)) continue;
        if (seen.size >= maxIds) throw new DomainError('TooLarge', `The source lists more than ${maxIds} packages.`);
        seen.add(key);
        isNew = true;
        yield each;
      }
      withoutNew = isNew ? 0 : withoutNew + 1;
      if (skip >= total) break;
    }
    return { total, shown, matched };
  }
}

/** Null for an answer that cannot be had or read. */
function unlessUnusable(error: unknown): null {
  if (isUpstreamFailure(error) || isDomainError(error, 'Invalid')) return null;
  throw error;
}

type Page = (parameters: Parameters) => Promise<{ total: number; ids: SourceId[] } | undefined>;

const idsIn: DocumentReading<{ totalHits: number; data: string[] }> = {
  kind: 'ids',
  options: () => ({}),
  make: ([text]) => {
    const value = JSON.parse(text!) as { totalHits: number; data: string[] };
    return { value, items: value.data.length };
  },
};

function hitsIn(base: URL, flat: URL): DocumentReading<{ totalHits: number; data: SearchHit[] }> {
  return {
    kind: 'hits',
    options: () => ({ base: base.href, flat: flat.href }),
    make: ([text]) => {
      const value = JSON.parse(text!) as { totalHits: number; data: SearchHit[] };
      return { value, items: value.data.length };
    },
  };
}

function idOfHit({ metadata: { id }, versions }: SearchHit): SourceId {
  const counted = versions.map(({ version, downloads }) => [keyOfVersion(version) ?? '', downloads] as const);
  return { id, downloads: new Map(counted) };
}

function withQuery(address: URL, parameters: Parameters): URL {
  const url = new URL(address);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  return url;
}
