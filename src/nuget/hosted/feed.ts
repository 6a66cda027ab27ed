import type { NameSet } from '../../accounts/names.ts';
import type { Config } from '../../config/schema.ts';
import type { Database } from '../../database/database.ts';
import type { BlobStore } from '../../storage/blob-store.ts';
import type { StagedFile } from '../../storage/staged-file.ts';
import { openFile, type FileKind, type PackageFile } from './files.ts';
import type { RegisteredPage, RegisteredVersion, SizedVersion } from '../format/pages.ts';
import { deleteVersion, publish, setListed, type Published } from './publish.ts';
import type { SearchQuery } from '../search/search-query.ts';
import { Search, type SearchHit, type SearchOptions, type SearchResults } from '../search/search.ts';
import { openSymbols, publishSymbols } from './symbol-packages.ts';
import { getPackage, listPackages, type PackageDetails, type PackageSummary } from './summary.ts';
import { listListed, listPage, listPages, listSizes, listVersionKeys, revisionOf } from './versions.ts';

/** What the feed's modules work with. */
export interface FeedContext {
  readonly database: Database;
  readonly blobs: BlobStore;
  readonly limits: Config['limits'];
  /** Milliseconds since 1970 UTC. */
  readonly now: () => number;
}

/**
 * The hosted packages of all accounts. Ids and versions are taken in any spelling; another account's packages are not
 * there. Its answers are values, so that packages from elsewhere can be answered with in the same shapes.
 */
export class Feed {
  readonly #shelf: FeedContext;
  readonly #search: Search;

  constructor(database: Database, blobs: BlobStore, limits: Config['limits'], now: () => number) {
    this.#shelf = { database, blobs, limits, now };
    this.#search = new Search(database);
  }

  /** See `publish`. */
  publish(accountId: number, staged: StagedFile, permit: (id: string) => void): Promise<Published> {
    return publish(this.#shelf, accountId, staged, permit);
  }

  /** See `publishSymbols`. */
  publishSymbols(
    accountId: number,
    staged: StagedFile,
    permit: (id: string) => void,
  ): Promise<{ id: string; version: string }> {
    return publishSymbols(this.#shelf, accountId, staged, permit);
  }

  /** See `openSymbols`. */
  openSymbols(accountId: number, fileName: string, key: string, only?: NameSet): ReturnType<typeof openSymbols> {
    return openSymbols(this.#shelf, accountId, fileName, key, only);
  }

  /** See `setListed`. */
  setListed(accountId: number, id: string, version: string, listed: boolean): Promise<void> {
    return setListed(this.#shelf, accountId, id, version, listed);
  }

  /** See `deleteVersion`. */
  deleteVersion(accountId: number, id: string, version: string): Promise<void> {
    return deleteVersion(this.#shelf, accountId, id, version);
  }

  /** See `listPackages`. */
  listPackages(accountId: number, limit: number, after?: string, only?: NameSet): Promise<PackageSummary[]> {
    return listPackages(this.#shelf.database, accountId, limit, after, only);
  }

  /** See `getPackage`. */
  getPackage(accountId: number, id: string): Promise<PackageDetails> {
    return getPackage(this.#shelf.database, accountId, id);
  }

  /** See `revisionOf`. */
  revisionOf(accountId: number, id: string): Promise<string | undefined> {
    return revisionOf(this.#shelf.database, accountId, id);
  }

  /** See `listVersionKeys`. */
  listVersionKeys(accountId: number, id: string): Promise<string[]> {
    return listVersionKeys(this.#shelf.database, accountId, id);
  }

  /** See `listListed`. */
  listListed(accountId: number, id: string, prerelease: boolean, semVer2: boolean): Promise<string[]> {
    return listListed(this.#shelf.database, accountId, id, prerelease, semVer2);
  }

  /** See `listPages`. */
  listPages(accountId: number, id: string, semVer2: boolean): Promise<RegisteredPage[] | undefined> {
    return listPages(this.#shelf.database, accountId, id, semVer2);
  }

  /** See `listSizes`. */
  listSizes(accountId: number, id: string, semVer2: boolean): Promise<SizedVersion[]> {
    return listSizes(this.#shelf.database, accountId, id, semVer2);
  }

  /** See `listPage`. */
  listPage(
    accountId: number,
    id: string,
    semVer2: boolean,
    lower: string,
    upper: string,
  ): Promise<RegisteredVersion[]> {
    return listPage(this.#shelf.database, accountId, id, semVer2, lower, upper);
  }

  /** See `Search.find`. */
  search(accountId: number, query: SearchQuery, options: SearchOptions): Promise<SearchResults<SearchHit>> {
    return this.#search.find(accountId, query, options);
  }

  /** See `Search.findIds`. */
  findIds(accountId: number, query: SearchQuery, options: SearchOptions): Promise<SearchResults<string>> {
    return this.#search.findIds(accountId, query, options);
  }

  /** One file of a version; undefined when the account has none such. */
  openFile(accountId: number, id: string, version: string, kind: FileKind): Promise<PackageFile | undefined> {
    return openFile(this.#shelf, accountId, id, version, kind);
  }
}
