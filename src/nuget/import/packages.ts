import type { ImportOptions, ImportResult, SideFacts } from '../../import/item.ts';
import { hexOf, type Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { Semaphore } from '../../runtime/semaphore.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { VersionMetadata } from '../format/metadata.ts';
import { claimedAmong } from '../hosted/claims.ts';
import { comparisonsOf, noteComparison, type Comparison } from '../hosted/comparisons.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { followSource, hasChangedAtSource } from '../hosted/imported.ts';
import { publish, type EarlierVersion } from '../hosted/publish.ts';
import { keyOfVersion } from '../hosted/packages.ts';
import { listPage, listVersionKeys } from '../hosted/versions.ts';
import { publishSymbols } from '../hosted/symbol-packages.ts';
import type { FeedView, FeedViews } from '../upstream/feed-view.ts';
import { statedOf } from '../upstream/package-dates.ts';
import { haveSameContent } from './same-content.ts';

/** A version that a source has. What is undefined the source does not say. */
interface OfferedVersion extends EarlierVersion {
  /** Whether the source tells if the version is listed and deprecated. */
  tellsState: boolean;
  /** Of its file, in Base64. */
  sha512?: string | undefined;
  size?: number | undefined;
  /** The SHA-256 of its file, if that can be had without bringing it here. */
  digest?(): Promise<Digest>;
  /** The size of its file, asked for. */
  measure?(): Promise<number | undefined>;
  /** Writes its file. */
  fill(staged: StagedFile): Promise<void>;
}

/** Where a package of the source belongs. */
interface PackagePlace {
  /** The upstream that has the id, too. */
  upstream: Upstream | undefined;
  /** Whether the version is mirrored if the upstream has the same content. */
  isMirrored: (version: string) => boolean;
  /** What was found to be the same before, by version. */
  compared: ReadonlyMap<string, Comparison>;
}

const onlyHosted: PackagePlace = { upstream: undefined, isMirrored: () => false, compared: new Map() };

interface HostedFile {
  sha512: string;
  size: number;
  digest: Digest;
  symbols: Digest | null;
  imported: string | null;
}

/**
 * Packages of an account that imports publish at the same time. With SQLite that is work of this process alone: more of them are not faster, and the
 * requests of others would wait longer. With MySQL they wait for its answers.
 */
const publications = { sqlite: new Semaphore({ max: 1 }), mysql: new Semaphore({ max: 4 }) };

/** Brings versions of packages in as hosted content. */
export class PackageImport {
  readonly #feed: FeedContext;
  readonly #views: FeedViews;
  readonly #options: ImportOptions;

  constructor(feed: FeedContext, views: FeedViews, options: ImportOptions) {
    this.#feed = feed;
    this.#views = views;
    this.#options = options;
  }

  /**
   * Whether a package of the source with these versions becomes hosted, or may be mirrored. It is decided for the whole id: an id
   * with a hosted version is served from here only, so that its mirrored versions would be gone. Throws if it is not known.
   */
  async decide(id: string, versions: readonly string[]): Promise<PackagePlace> {
    const { accountId, allHosted } = this.#options;
    if (allHosted) return onlyHosted;
    const { mirror } = await this.#views.of(accountId);
    const isMerged = mirror.origin.isMerged(id);
    if (!isMerged && (await claimedAmong(this.#feed.database, accountId, [id])).size > 0) return onlyHosted;
    const compared = await comparisonsOf(this.#feed.database, accountId, id, this.#feed.now());
    const [known] = compared.values();
    const upstream = mirror.origin.candidates(id).find((each) => each.id === known?.upstream);
    // Nothing new is at the source, so the upstream need not be asked.
    if (upstream && versions.every((each) => compared.get(each)?.upstream === upstream.id))
      return { upstream, isMirrored: () => true, compared };
    const found = await versionsAt(mirror, id);
    if (!found) return onlyHosted;
    const there = new Set(found.versions);
    const isWhole = versions.every((each) => there.has(each));
    return { upstream: found.upstream, isMirrored: (version) => (isMerged ? there.has(version) : isWhole), compared };
  }

  /** Brings one version in, or says what would become of it. */
  async version(offered: OfferedVersion, place: PackagePlace): Promise<ImportResult> {
    const { id, version } = offered;
    const here = await this.#hosted(id, version);
    if (here) return this.#repeated(here, offered);
    const alsoAt = place.upstream?.name;
    const mayBeMirrored = place.isMirrored(version);
    const before = mayBeMirrored ? place.compared.get(version) : undefined;
    if (before?.upstream === place.upstream?.id && before && (await compared(before, offered)).outcome === 'present')
      return { outcome: 'mirrored', bytes: 0, note: `${alsoAt} had the same content before`, alsoAt };
    const size = offered.size ?? (this.#options.dryRun ? await offered.measure?.() : undefined) ?? 0;
    if (this.#options.dryRun) {
      const note = mayBeMirrored ? `${alsoAt} has this version, too; an import compares the content` : undefined;
      return { outcome: 'imported', bytes: size, note, alsoAt };
    }
    this.#options.permit(id);
    await this.#options.admit(size);
    const view = await this.#views.of(this.#options.accountId);
    const staged = await this.#stage(offered, size);
    if (mayBeMirrored) {
      const isSame = await this.#isMirrored(view, offered, staged, place.upstream!).finally(() => staged.discard());
      if (isSame) return { outcome: 'mirrored', bytes: 0, note: `${alsoAt} has the same content`, alsoAt };
      const note = `${alsoAt} has other content under this name; to serve that of the source, import it with --hosted`;
      return { outcome: 'conflict', bytes: 0, note, alsoAt };
    }
    const digest = await staged.digest('sha256');
    const bytes = staged.size;
    try {
      const { replaces } = await publications[this.#feed.database.dialect].run(
        () =>
          publish(this.#feed, this.#options.accountId, staged, {
            permit: this.#options.permit,
            mirroredFrom: (each) => view.mirror.mirroredFrom(each),
            earlier: offered,
          }),
        String(this.#options.accountId),
      );
      const note = replaces === undefined ? undefined : `${id} was mirrored from ${replaces} until now`;
      return { outcome: 'imported', bytes, note, alsoAt };
    } catch (error) {
      // Another push has stored this version meanwhile, or another spelling of its name.
      const first = isDomainError(error, 'AlreadyExists') ? await this.#hosted(id, version) : undefined;
      if (!first) throw error;
      return compared(first, { digest: () => Promise.resolve(digest) });
    }
  }

  /** A version that is here: other content, or what has changed at its source meanwhile. */
  async #repeated(here: HostedFile, offered: OfferedVersion): Promise<ImportResult> {
    const result = await compared(here, offered);
    if (result.outcome !== 'present' || !offered.tellsState || !hasChangedAtSource(here.imported, offered))
      return result;
    if (this.#options.dryRun) return { ...result, outcome: 'updated', note: 'its state at the source has changed' };
    this.#options.permit(offered.id);
    const changes = await followSource(this.#feed, this.#options.accountId, offered);
    return changes.length > 0 ? { ...result, outcome: 'updated', note: `now ${changes.join(' and ')}` } : result;
  }

  /** Whether the upstream of its place has the content of a version, whose file has the hash `sha512` at the source. */
  async isMirrored(
    offered: OfferedVersion,
    { upstream, isMirrored, compared: known }: PackagePlace,
    sha512: string,
  ): Promise<boolean> {
    const { version } = offered;
    if (!upstream || !isMirrored(version)) return false;
    const before = known.get(version);
    if (before?.upstream === upstream.id && before.sha512 === sha512) return true;
    const view = await this.#views.of(this.#options.accountId);
    const staged = await this.#stage(offered, 0);
    return this.#isMirrored(view, offered, staged, upstream).finally(() => staged.discard());
  }

  /** Whether an upstream has the same content, which is remembered. */
  async #isMirrored(view: FeedView, { id, version }: OfferedVersion, staged: StagedFile, { id: upstream }: Upstream) {
    if (!(await isMirroredAs(view, id, version, staged))) return false;
    const { database, now } = this.#feed;
    const [sha512, digest] = [base64Of(await staged.digest('sha512')), await staged.digest('sha256')];
    const place = { accountId: this.#options.accountId, id, version };
    await noteComparison(database, place, { upstream, sha512, digest, size: staged.size }, now());
    return true;
  }

  /** Brings the symbols package of a hosted version in. */
  async symbols(
    id: string,
    version: string,
    offered: Pick<OfferedVersion, 'digest' | 'fill' | 'size'>,
  ): Promise<ImportResult> {
    const { accountId, dryRun, permit, admit } = this.#options;
    const here = await this.#hosted(id, version);
    if (here?.symbols) return compared({ ...here, digest: here.symbols }, { digest: offered.digest });
    const { size = 0 } = offered;
    if (dryRun) return { outcome: 'imported', bytes: size };
    if (!here) throw new DomainError('NotFound', 'The package of these symbols is not hosted here.');
    await admit(size);
    const staged = await this.#stage(offered, size);
    const bytes = staged.size;
    await publishSymbols(this.#feed, accountId, staged, permit);
    return { outcome: 'imported', bytes };
  }

  /** The hash of a version's file at the source, read whole; in Base64. */
  async hashOf({ fill }: Pick<OfferedVersion, 'fill'>): Promise<string> {
    const staged = await this.#stage({ fill }, 0);
    try {
      return Buffer.from(hexOf(await staged.digest('sha512')), 'hex').toString('base64');
    } finally {
      await staged.discard();
    }
  }

  /** The keys of the versions that are hosted here. */
  versionsHere(id: string): Promise<string[]> {
    return listVersionKeys(this.#feed.database, this.#options.accountId, id);
  }

  /** What is known of a version that is hosted here. */
  async factsHere(id: string, version: string): Promise<SideFacts | undefined> {
    const { accountId } = this.#options;
    const found = await listPage(this.#feed.database, accountId, id, true, version, version);
    // Two different versions can be equal in order.
    const same = found.find((each) => keyOfVersion(each.version) === version);
    if (!same) return undefined;
    const { sha512: hash, listed, publishedAt, metadata } = same;
    return { hash, listed, publishedAt, dependencies: dependenciesIn(metadata.dependencyGroups) };
  }

  /** The file of the source, whole and with the hash that the source tells. */
  async #stage({ fill, sha512 }: Pick<OfferedVersion, 'fill' | 'sha512'>, size: number): Promise<StagedFile> {
    const { blobs, limits } = this.#feed;
    if (size > limits.nupkg)
      throw new DomainError('TooLarge', `The package is larger than the ${limits.nupkg} bytes allowed here.`);
    const staged = await blobs.stageHosted(size, ['sha256', 'sha512']);
    try {
      await fill(staged);
      const received = base64Of(await staged.digest('sha512'));
      if (sha512 !== undefined && received !== sha512)
        throw new DomainError('DigestMismatch', 'The source sent content with another hash than it tells.');
      return staged;
    } catch (error) {
      await staged.discard();
      throw error;
    }
  }

  #hosted(id: string, version: string): Promise<HostedFile | undefined> {
    return this.#feed.database.get<HostedFile & { [column: string]: never }>(
      `SELECT v.sha512, v.size_bytes AS size, v.nupkg_digest AS digest, v.snupkg_digest AS symbols, v.imported
       FROM packages p JOIN package_versions v ON v.package_row = p.id AND v.version_key = ?
       WHERE p.account_id = ? AND p.package_key = ?`,
      [version, this.#options.accountId, id],
    );
  }
}

/** Servers write frameworks in different ways, so these are left out. */
export function dependenciesIn(groups: VersionMetadata['dependencyGroups']): string {
  const all = groups?.flatMap(({ dependencies }) => dependencies.map(({ id, range }) => `${id} ${range}`)) ?? [];
  return [...new Set(all.map((each) => each.toLowerCase().trim()))].toSorted().join(', ');
}

/** Whether the source has what is here, by the best that it tells: a hash, else the size. */
async function compared(
  here: Pick<HostedFile, 'sha512' | 'size' | 'digest'>,
  offered: Pick<OfferedVersion, 'sha512' | 'size' | 'digest' | 'measure'>,
): Promise<ImportResult> {
  const present: ImportResult = { outcome: 'present', bytes: 0 };
  const conflict: ImportResult = { outcome: 'conflict', bytes: 0, note: 'other content is here under this name' };
  if (offered.sha512 !== undefined) return offered.sha512 === here.sha512 ? present : conflict;
  if (offered.digest) return (await offered.digest()) === here.digest ? present : conflict;
  const size = offered.size ?? (await offered.measure?.());
  if (size === undefined) return { ...present, note: 'the source tells neither a hash nor a size' };
  return size === here.size ? { ...present, note: 'compared by the size: the source tells no hash' } : conflict;
}

function base64Of(digest: Digest): string {
  return Buffer.from(hexOf(digest), 'hex').toString('base64');
}

/** The first upstream that has the id, and its versions. Throws if one cannot be asked now. */
async function versionsAt(
  mirror: FeedView['mirror'],
  id: string,
): Promise<{ upstream: Upstream; versions: readonly string[] } | undefined> {
  for (const upstream of mirror.origin.candidates(id)) {
    const found = await mirror.allVersions({ upstream }, id).catch((error: unknown) => {
      if (!isUpstreamFailure(error)) throw error;
      throw new DomainError(
        'Invalid',
        `It is not known whether ${upstream.name} has this package, too: ${(error as Error).message} Import it again later, or with --hosted.`,
        { cause: error },
      );
    });
    if (found && found.value.length > 0) return { upstream, versions: found.value };
  }
  return undefined;
}

/** Whether the mirror has, or gets, the same content under this name. */
async function isMirroredAs(
  { mirror, registrations }: FeedView,
  id: string,
  version: string,
  staged: StagedFile,
): Promise<boolean> {
  const entry = await mirror.openNupkg(id, version, (owner) => statedOf(mirror, registrations, owner, id, version));
  if (!entry) return false;
  let size: number;
  try {
    ({ size } = entry.metadata ?? (await entry.complete));
  } finally {
    // Only now: a fetch whose readers have all left may stop.
    entry.content.close();
  }
  const open = async () => {
    const again = await mirror.openNupkg(id, version, (owner) => statedOf(mirror, registrations, owner, id, version));
    if (!again) throw new DomainError('Aborted', 'An upstream has withdrawn the version meanwhile.');
    return { ...again.content, size };
  };
  return haveSameContent(() => staged.open(), open);
}
