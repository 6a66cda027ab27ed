import type { Database } from '../../database/database.ts';
import { readDocument } from '../../mirror/document.ts';
import type { Mirror } from '../../mirror/mirror.ts';
import { claimedAmong } from '../hosted/claims.ts';
import { nearestGroups } from '../format/frameworks.ts';
import { maxNuspecBytes, parseNuspec } from '../format/nuspec.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { formatRange, lowestApplicable, parseRange, type VersionRange } from '../format/range.ts';
import type { PackageSource } from '../package-source.ts';
import type { FeedViews } from '../upstream/feed-view.ts';
import { documentLimit, packageSubject, type PackageMirror } from '../upstream/package-mirror.ts';
import { isPrerelease, parseVersion, versionKey } from '../format/version.ts';
import { readAll, type Content } from '../../storage/content.ts';
import { discard } from '../../upstream/body.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { UpstreamVulnerabilities } from '../upstream/upstream-vulnerabilities.ts';
import { inUseSpot, type PrefetchOptions } from '../../prefetch/prefetch.ts';
import { allNames } from '../../mirror/listing.ts';
import { isPackage } from './requirement.ts';
import type { PrefetchRun } from '../../prefetch/run.ts';
import type { Spot } from '../../prefetch/requirement.ts';

export interface PackageParts {
  database: Database;
  mirror: Mirror;
  views: FeedViews;
  packageSource: PackageSource;
}

/** The parts, and the upstreams as the account sees them. */
type OpenParts = PackageParts & { packageMirror: PackageMirror; vulnerabilities: UpstreamVulnerabilities };

/** Adds to a prefetch the packages that the options ask for. */
export async function prefetchPackages(
  parts: PackageParts,
  run: PrefetchRun,
  { accountId, requirements, frameworks, inUse }: PrefetchOptions,
): Promise<void> {
  const { mirror: packageMirror, vulnerabilities } = await parts.views.of(accountId);
  const packages = new WantedPackages({ ...parts, packageMirror, vulnerabilities }, run, accountId);
  const wanted = requirements.filter(isPackage);
  const inProjects = new Set(wanted.flatMap((each) => ('frameworks' in each ? each.frameworks : [])));
  const usual = frameworks.length > 0 ? frameworks : [...inProjects];
  const central = new Set(wanted.flatMap((each) => (each.kind === 'dependency' ? [each.id.toLowerCase()] : [])));
  for (const each of wanted.toReversed()) {
    if (each.kind === 'package') packages.version(each.id, each.version, each.spot);
    if (each.kind === 'dependency') {
      const own = each.frameworks.length === 0 ? usual : each.frameworks;
      packages.dependency(each.id, each.range, own, each.spot);
    }
    if (each.kind === 'central' && !central.has(each.id.toLowerCase())) {
      run.missing(each.id, 'it has no version here; give Directory.Packages.props too', each.spot);
    }
  }
  if (inUse || wanted.some(({ kind }) => kind !== 'central')) packages.advisories({ file: 'advisories', line: 0 });
  if (!inUse) return;
  // Names from other upstreams must not be sent to those that serve the account.
  const selection = { kind: 'nupkg', upstreams: packageMirror.origin.all.map(({ id }) => id) };
  for await (const id of allNames(parts.database, selection)) packages.newest(id, inUse.newest, inUseSpot);
}

/** What is asked of packages: all of them as one account sees them. */
class WantedPackages {
  readonly #parts: OpenParts;
  readonly #run: PrefetchRun;
  readonly #accountId: number;
  readonly #brought = new Map<string, Promise<boolean>>();

  constructor(parts: OpenParts, run: PrefetchRun, accountId: number) {
    this.#parts = parts;
    this.#run = run;
    this.#accountId = accountId;
  }

  /** One version, with the document in which clients look for it first. */
  version(id: string, version: string, spot: Spot): void {
    const name = `${id} ${version}`;
    this.#run.once(`package ${packageKey(id)} ${version}`, name, spot, async () => {
      if (!(await this.#bring(id, version))) this.#run.missing(name, 'its upstream has no such version', spot);
    });
  }

  /** The version that a restore would take for `range`, and what that depends on. */
  dependency(id: string, range: VersionRange, frameworks: readonly string[], spot: Spot): void {
    this.#run.report.approximate = true;
    const bounds = formatRange(range);
    const name = `${id} ${bounds}`;
    this.#run.once(`range ${packageKey(id)} ${bounds} ${frameworks.join()}`, name, spot, async () => {
      const versions = await this.#versions(id);
      if (!versions) {
        if (!(await this.#isOurs(id))) this.#run.missing(name, 'no upstream has a package of this name', spot);
        return;
      }
      const chosen = lowestApplicable(
        range,
        versions.map((each) => parseVersion(each)!),
      );
      if (!chosen) {
        this.#run.missing(name, 'there is no version in this range', spot);
        return;
      }
      const version = versionKey(chosen);
      this.version(id, version, spot);
      this.#run.once(
        `depends ${packageKey(id)} ${version} ${frameworks.join()}`,
        `what ${id} ${version} depends on`,
        spot,
        () => this.#follow(id, version, frameworks, spot),
      );
    });
  }

  /** The newest versions of an id: releases, or prereleases of what has no release. */
  newest(id: string, count: number, spot: Spot): void {
    this.#run.once(`newest ${id}`, id, spot, async () => {
      if (await this.#isOurs(id)) return;
      const versions = ((await this.#versions(id)) ?? []).toReversed();
      const releases = versions.filter((each) => !isPrerelease(parseVersion(each)!));
      for (const version of (releases.length > 0 ? releases : versions).slice(0, count))
        this.version(id, version, spot);
    });
  }

  /** What is known of vulnerable packages: a restore asks for it. */
  advisories(spot: Spot): void {
    const { packageMirror, vulnerabilities } = this.#parts;
    if (packageMirror.origin.all.length === 0 || this.#run.dryRun) return;
    this.#run.once('advisories', 'what is known of vulnerable packages', spot, async () => {
      await this.#run.gate.open();
      for (const { upstream, name } of await vulnerabilities.pages()) await vulnerabilities.page(upstream, name);
    });
  }

  /** Whether no upstream is asked for an id; that is said in the end. */
  async #isOurs(id: string): Promise<boolean> {
    const { database, packageMirror } = this.#parts;
    const { origin } = packageMirror;
    const { skipped } = this.#run.report;
    if (origin.isReserved(id)) skipped.set(id, 'reserved');
    else if (!origin.isMerged(id) && (await claimedAmong(database, this.#accountId, [id])).size > 0)
      skipped.set(id, 'hosted here');
    return skipped.has(id);
  }

  /** All versions; undefined when there is no such package. */
  async #versions(id: string): Promise<string[] | undefined> {
    if (!(await this.#isOurs(id))) await this.#pass(id);
    return (await this.#parts.packageSource.versionKeys(this.#accountId, id))?.value;
  }

  /** As `fetch`, once for each version; of what is ours there is nothing to bring. */
  #bring(id: string, version: string): Promise<boolean> {
    const key = `${packageKey(id)} ${version}`;
    const known = this.#brought.get(key);
    if (known) return known;
    const bringing = this.#isOurs(id).then((isOurs) => isOurs || this.#fetch(id, version));
    this.#brought.set(key, bringing);
    // What failed is tried again.
    bringing.catch(() => this.#brought.delete(key));
    return bringing;
  }

  /** Whether the version is here now; in a dry run, whether it is to be had. */
  async #fetch(id: string, version: string): Promise<boolean> {
    const { packageSource } = this.#parts;
    const here = await this.#stored(id, version);
    if (here !== undefined) {
      this.#run.found('package', 'present', here);
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
    this.#run.found('package', file.served === 'miss' ? 'fetched' : 'present', bytes);
    return true;
  }

  /** The bytes of what is stored, in such a way that a restore finds it with nobody asked. */
  async #stored(id: string, version: string): Promise<number | undefined> {
    const { mirror, packageMirror } = this.#parts;
    const name = packageKey(id);
    for (const { id: upstream } of packageMirror.origin.candidates(id)) {
      const open = (kind: string, reference: string) =>
        mirror.openStored({ key: { upstream, kind, name, reference }, lifetime: 'immutable' });
      const nupkg = await open('nupkg', version);
      nupkg?.content.close();
      const index = nupkg && (await open('flat', ''));
      if (!nupkg || !index) continue;
      const { versions } = (await readDocument(index, documentLimit)) as { versions?: unknown };
      const lists =
        Array.isArray(versions) && versions.some((each) => typeof each === 'string' && keyOfVersion(each) === version);
      if (lists) return nupkg.size;
    }
    return undefined;
  }

  /** Asks how large a nupkg is. */
  async #measure(id: string, version: string): Promise<void> {
    const { packageMirror } = this.#parts;
    await this.#pass(id);
    const owner = await packageMirror.owner(id);
    if (!owner) return;
    const url = await packageMirror.nupkgUrl(owner.upstream, packageKey(id), version);
    const subject = packageSubject(packageKey(id));
    const { status, headers, body } = await owner.upstream.send({ method: 'HEAD', url, subject });
    discard(body);
    const length = Number(headers['content-length'] ?? Number.NaN);
    if (status !== 200 || !Number.isSafeInteger(length)) this.#run.report.unmeasured += 1;
    this.#run.found('package', 'fetched', Number.isSafeInteger(length) ? length : 0);
  }

  async #follow(id: string, version: string, frameworks: readonly string[], spot: Spot): Promise<void> {
    if (!(await this.#bring(id, version))) return;
    if (!(await this.#isOurs(id)) && (await this.#stored(id, version)) === undefined) await this.#pass(id);
    const file = await this.#parts.packageSource.openFile(this.#accountId, id, version, 'nuspec');
    // That it is missing is said of the version itself.
    if (!file) return;
    const { dependencyGroups } = parseNuspec(await readAll(file.content, maxNuspecBytes));
    for (const { dependencies } of nearestGroups(dependencyGroups, frameworks)) {
      for (const each of dependencies) this.dependency(each.id, parseRange(each.range)!, frameworks, spot);
    }
  }

  /** Waits until the first upstream that may have an id may be asked. */
  async #pass(id: string): Promise<void> {
    const [first] = this.#parts.packageMirror.origin.candidates(id) as (Upstream | undefined)[];
    if (first) await this.#run.gate.pass(first);
  }
}

/** Reads to the end, which is there when all is verified and stored; resolves to the number of bytes. Closes it. */
async function readThrough(content: Content): Promise<number> {
  const buffer = Buffer.allocUnsafe(256 * 1024);
  let position = 0;
  try {
    for (;;) {
      const read = await content.read(buffer, position);
      if (read === 0) return position;
      position += read;
    }
  } finally {
    content.close();
  }
}
