import type { Database } from '../../database/database.ts';
import { withPauses } from '../../runtime/event-loop.ts';
import type { MirrorReader } from '../../mirror/stored-only.ts';
import { claimedAmong } from '../hosted/claims.ts';
import { nearestGroups } from '../format/frameworks.ts';
import { maxNuspecBytes } from '../format/nuspec.ts';
import { readPart } from '../format/nupkg.ts';
import { readNuspec } from '../format/nuspec-reading.ts';
import { packageKey } from '../hosted/packages.ts';
import { formatRange, lowestApplicable, parseRange, type VersionRange } from '../format/range.ts';
import type { PackageSource } from '../source/package-source.ts';
import type { FeedView, FeedViews } from '../upstream/feed-view.ts';
import { packageEntries } from '../upstream/entries.ts';
import { flatIndex, readEntry } from '../upstream/documents.ts';
import { documentLimit, type PackageMirror } from '../upstream/package-mirror.ts';
import { packageSubject } from '../upstream/upstream-files.ts';
import { isPrerelease, parseVersion, versionKey } from '../format/version.ts';
import { readAll, readThrough } from '../../storage/files/content.ts';
import { noHead } from '../../upstream/answer.ts';
import { discard } from '../../upstream/body.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { unlessUpstreamFails } from '../../upstream/upstream-error.ts';
import type { EntryKey } from '../../mirror/store/entries.ts';
import { inUseLocation, storedLocation, type PrefetchOptions } from '../../prefetch/prefetch.ts';
import { allNames } from '../../mirror/store/listing.ts';
import { isPackage } from './package-item.ts';
import { notStored, type PrefetchRun } from '../../prefetch/run.ts';
import type { ItemLocation } from '../../prefetch/item.ts';

interface PackageParts {
  database: Database;
  mirror: MirrorReader;
  views: FeedViews;
  packageSource: PackageSource;
}

/** The parts, and the upstreams as the account sees them. */
type OpenParts = PackageParts & Pick<FeedView, 'registrations' | 'vulnerabilities'> & { packageMirror: PackageMirror };

/** Most stored versions of a package that are added. */
const maxVersions = 10_000;

/** Adds the packages of the options to a prefetch. */
export async function prefetchPackages(
  parts: PackageParts,
  run: PrefetchRun,
  { accountId, items, frameworks, inUse, stored }: PrefetchOptions,
): Promise<void> {
  const { mirror: packageMirror, vulnerabilities, registrations } = await parts.views.of(accountId);
  const packages = new WantedPackages({ ...parts, packageMirror, vulnerabilities, registrations }, run, accountId);
  const wanted = items.filter(isPackage);
  const inProjects = new Set(wanted.flatMap((each) => ('frameworks' in each ? each.frameworks : [])));
  const usual = frameworks.length > 0 ? frameworks : [...inProjects];
  const central = new Set(wanted.flatMap((each) => (each.kind === 'dependency' ? [each.id.toLowerCase()] : [])));
  for (const each of wanted.toReversed()) {
    if (each.kind === 'package') packages.version(each.id, each.version, each.location);
    if (each.kind === 'dependency') {
      const own = each.frameworks.length === 0 ? usual : each.frameworks;
      packages.dependency(each.id, each.range, own, each.location);
    }
    if (each.kind === 'central' && !central.has(each.id.toLowerCase())) {
      run.missing(
        each.id,
        'it has no version in this file; add Directory.Packages.props to the command',
        each.location,
      );
    }
  }
  const isWanted = inUse || stored || run.collects || wanted.some(({ kind }) => kind !== 'central');
  if (isWanted) packages.advisories({ file: 'advisories', line: 0 });
  // Names from other upstreams must not be sent to those that serve the account.
  const selection = { kind: 'nupkg', upstreams: packageMirror.origin.all.map(({ id }) => id) };
  if (stored) for await (const id of allNames(parts.database, selection)) packages.stored(id, storedLocation);
  if (!inUse) return;
  for await (const id of allNames(parts.database, selection)) packages.newest(id, inUse.newest, inUseLocation);
}

/** Adds work for packages to a prefetch, as one account sees them. */
class WantedPackages {
  readonly #parts: OpenParts;
  readonly #run: PrefetchRun;
  readonly #accountId: number;
  readonly #fetches = new Map<string, Promise<boolean>>();

  constructor(parts: OpenParts, run: PrefetchRun, accountId: number) {
    this.#parts = parts;
    this.#run = run;
    this.#accountId = accountId;
  }

  /** Adds one version, with the version list that clients read first. */
  version(id: string, version: string, location: ItemLocation): void {
    const name = `${id} ${version}`;
    this.#run.once(`package ${packageKey(id)} ${version}`, name, location, async () => {
      if (!(await this.#fetchOnce(id, version)))
        this.#run.missing(name, 'the upstream does not have this version', location);
      else if (this.#run.collects) await this.#collect(id, version);
    });
  }

  /** Adds all stored versions of an ID. */
  stored(id: string, location: ItemLocation): void {
    this.#run.once(`stored ${id}`, id, location, async () => {
      for (const { id: upstream } of this.#parts.packageMirror.origin.candidates(id))
        for (const version of await this.#parts.mirror.references({ upstream, kind: 'nupkg', name: id }, maxVersions))
          this.version(id, version, location);
    });
  }

  /** Collects the entries of a stored version that clients get, with its registration, which is fetched if the upstream has one. */
  async #collect(id: string, version: string): Promise<void> {
    const { packageMirror, registrations } = this.#parts;
    const found = await packageMirror.servedFromStore(id, version);
    if (!found) return;
    const { upstream, nupkg } = found;
    const name = packageKey(id);
    this.#run.needed({ upstream: upstream.id, kind: 'nupkg', name, reference: version }, nupkg);
    const parsed = parseVersion(version);
    if (await unlessUpstreamFails(() => registrations.areOffered(upstream)))
      for (const semVer2 of [true, false])
        await unlessUpstreamFails(() => registrations.versions({ upstream }, name, semVer2, parsed, parsed));
    for (const kind of ['nuspec', 'readme', 'icon'])
      await this.#need({ upstream: upstream.id, kind, name, reference: version });
    await this.#needDocuments(upstream, name);
  }

  /** Collects the stored documents of a package; with an empty name, those that belong to none. */
  async #needDocuments({ id: upstream }: Upstream, name: string): Promise<void> {
    if (!this.#run.collects) return;
    for (const [kind, validity] of Object.entries(packageEntries.kinds)) {
      if (validity !== 'document') continue;
      for (const reference of await this.#parts.mirror.references({ upstream, kind, name }, maxVersions))
        await this.#need({ upstream, kind, name, reference });
    }
  }

  async #need(key: EntryKey): Promise<void> {
    const metadata = await this.#parts.mirror.stored(key);
    if (metadata) this.#run.needed(key, metadata);
  }

  /** Adds the version that a restore would choose for `range`, and its dependencies. */
  dependency(id: string, range: VersionRange, frameworks: readonly string[], location: ItemLocation): void {
    this.#run.report.approximate = true;
    const bounds = formatRange(range);
    const name = `${id} ${bounds}`;
    this.#run.once(`range ${packageKey(id)} ${bounds} ${frameworks.join()}`, name, location, async () => {
      const versions = await this.#versions(id);
      if (!versions) {
        if (!(await this.#isNotFetched(id))) this.#run.missing(name, 'no upstream has this package', location);
        return;
      }
      const chosen = await lowestApplicable(range, versions);
      if (!chosen) {
        this.#run.missing(name, 'no version is in this range', location);
        return;
      }
      const version = versionKey(chosen);
      this.version(id, version, location);
      this.#run.once(
        `depends ${packageKey(id)} ${version} ${frameworks.join()}`,
        `dependencies of ${id} ${version}`,
        location,
        () => this.#follow(id, version, frameworks, location),
      );
    });
  }

  /** Adds the newest releases of an ID, or its newest prereleases if it has no release. */
  newest(id: string, count: number, location: ItemLocation): void {
    this.#run.once(`newest ${id}`, id, location, async () => {
      if (await this.#isNotFetched(id)) return;
      const versions = ((await this.#versions(id)) ?? []).toReversed();
      const releases: string[] = [];
      for await (const version of withPauses(versions)) {
        if (releases.length === count) break;
        if (!isPrerelease(parseVersion(version)!)) releases.push(version);
      }
      for (const version of releases.length > 0 ? releases : versions.slice(0, count))
        this.version(id, version, location);
    });
  }

  /** Adds the vulnerability data of upstreams, which a restore reads. */
  advisories(location: ItemLocation): void {
    const { packageMirror, vulnerabilities } = this.#parts;
    if (packageMirror.origin.all.length === 0 || this.#run.dryRun) return;
    this.#run.once('advisories', 'vulnerability data', location, async () => {
      await this.#run.gate.open();
      for (const { upstream: from, name, updated } of await vulnerabilities.pages()) {
        await vulnerabilities.page(from, name);
        const { id: upstream } = packageMirror.origin.all.find((each) => each.name === from)!;
        if (this.#run.collects) await this.#need({ upstream, kind: 'vulnerability-page', name, reference: updated });
      }
      for (const upstream of packageMirror.origin.all) await this.#needDocuments(upstream, '');
    });
  }

  /** Whether an ID is reserved or hosted, so that it is not fetched; the report then has it as skipped. */
  async #isNotFetched(id: string): Promise<boolean> {
    const { database, packageMirror } = this.#parts;
    const { origin } = packageMirror;
    const { skipped } = this.#run.report;
    if (origin.isReserved(id)) skipped.set(id, 'reserved');
    else if (!origin.isMerged(id) && (await claimedAmong(database, this.#accountId, [id])).size > 0)
      skipped.set(id, 'hosted here');
    return skipped.has(id);
  }

  /** All versions; undefined if the package does not exist. */
  async #versions(id: string): Promise<readonly string[] | undefined> {
    if (!(await this.#isNotFetched(id))) await this.#pass(id);
    return (await this.#parts.packageSource.versionKeys(this.#accountId, id))?.value;
  }

  /** As `#fetch`, but once for each version. Does not fetch reserved or hosted IDs. */
  #fetchOnce(id: string, version: string): Promise<boolean> {
    const key = `${packageKey(id)} ${version}`;
    const known = this.#fetches.get(key);
    if (known) return known;
    const fetching = this.#isNotFetched(id).then((isNotFetched) => isNotFetched || this.#fetch(id, version));
    this.#fetches.set(key, fetching);
    // Forget a failure, so that the next attempt fetches again.
    fetching.catch(() => this.#fetches.delete(key));
    return fetching;
  }

  /** Fetches a version; resolves to whether it is stored now or, in a dry run, whether it can be fetched. */
  async #fetch(id: string, version: string): Promise<boolean> {
    const { packageSource, packageMirror } = this.#parts;
    const stored = await this.#stored(id, version);
    if (stored !== undefined && (await packageMirror.servedFromStore(id, version))) {
      this.#run.found('package', 'present', stored);
      return true;
    }
    if (!(await this.#versions(id))?.includes(version)) return false;
    if (this.#run.dryRun) {
      await this.#measure(id, version);
      return true;
    }
    await this.#pass(id);
    const file = await packageSource.openFile(this.#accountId, id, version, 'nupkg');
    if (!file) return false;
    const bytes = await readThrough(file.content);
    const isNew = file.served === 'miss' || file.served === 'passed';
    if (isNew && !(await this.#isStored(id, version))) throw notStored();
    this.#run.found('package', isNew ? 'fetched' : 'present', bytes);
    return true;
  }

  async #isStored(id: string, version: string): Promise<boolean> {
    const { mirror, packageMirror } = this.#parts;
    const keys = packageMirror.origin
      .candidates(id)
      .map(({ id: upstream }) => ({ upstream, kind: 'nupkg', name: packageKey(id), reference: version }));
    return (await Promise.all(keys.map((key) => mirror.stored(key)))).some((each) => each !== undefined);
  }

  /** The size of a stored version if its version list is stored too, so that a restore needs no upstream; else undefined. */
  async #stored(id: string, version: string): Promise<number | undefined> {
    const { mirror, packageMirror } = this.#parts;
    const name = packageKey(id);
    for (const candidate of packageMirror.origin.candidates(id)) {
      if ((await packageMirror.listed(candidate, name, [version], String)).length === 0) continue;
      const upstream = candidate.id;
      const open = (kind: string, reference: string) =>
        mirror.openStored({ key: { upstream, kind, name, reference }, lifetime: 'immutable' });
      const nupkg = await open('nupkg', version);
      nupkg?.content.close();
      const index = nupkg && (await open('flat', ''));
      if (!nupkg || !index) continue;
      const listed = await readEntry(index, documentLimit, flatIndex, upstream);
      const kept = await packageMirror.withdrawn.keys(candidate, name);
      if (listed.includes(version) || kept.includes(version)) return nupkg.size;
    }
    return undefined;
  }

  /** Requests the size of a nupkg from its upstream. */
  async #measure(id: string, version: string): Promise<void> {
    const { packageMirror } = this.#parts;
    await this.#pass(id);
    const owner = await packageMirror.owner(id);
    if (!owner) return;
    const url = await packageMirror.nupkgUrl(owner.upstream, packageKey(id), version);
    const subject = packageSubject(packageKey(id));
    const { status, headers, body } = await owner.upstream.send({ method: 'HEAD', url, subject, answers: noHead });
    discard(body);
    const length = Number(headers['content-length'] ?? Number.NaN);
    if (status !== 200 || !Number.isSafeInteger(length)) this.#run.report.unmeasured += 1;
    this.#run.found('package', 'fetched', Number.isSafeInteger(length) ? length : 0);
  }

  async #follow(id: string, version: string, frameworks: readonly string[], location: ItemLocation): Promise<void> {
    if (!(await this.#fetchOnce(id, version))) return;
    if (!(await this.#isNotFetched(id)) && (await this.#stored(id, version)) === undefined) await this.#pass(id);
    const nuspec = (await this.#nuspecInside(id, version)) ?? (await this.#nuspecBeside(id, version));
    // The work of the version itself reports that it is missing.
    if (!nuspec) return;
    const { dependencyGroups } = await readNuspec(nuspec, { isPublished: true });
    for (const { dependencies } of nearestGroups(dependencyGroups, frameworks)) {
      for (const each of dependencies) this.dependency(each.id, parseRange(each.range)!, frameworks, location);
    }
  }

  /** The nuspec in a stored nupkg. */
  async #nuspecInside(id: string, version: string): Promise<Buffer | undefined> {
    const { mirror, packageMirror } = this.#parts;
    for (const { id: upstream } of packageMirror.origin.candidates(id)) {
      const key = { upstream, kind: 'nupkg', name: packageKey(id), reference: version };
      const entry = await mirror.openStored({ key, lifetime: 'immutable' });
      if (entry?.size === undefined) continue;
      const content = { ...entry.content, size: entry.size };
      return (await readPart(() => Promise.resolve(content), 'nuspec'))?.bytes;
    }
    return undefined;
  }

  /** The nuspec of a hosted version, or of one that is not stored yet. */
  async #nuspecBeside(id: string, version: string): Promise<Buffer | undefined> {
    const file = await this.#parts.packageSource.openFile(this.#accountId, id, version, 'nuspec');
    return file && readAll(file.content, maxNuspecBytes);
  }

  /** Waits until a request may be sent to the first upstream that may have an ID. */
  async #pass(id: string): Promise<void> {
    const [first] = this.#parts.packageMirror.origin.candidates(id) as (Upstream | undefined)[];
    if (first) await this.#run.gate.pass(first);
  }
}
