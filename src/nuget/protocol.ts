import type { Core } from '../core.ts';
import type { Work } from '../jobs/jobs.ts';
import type { Counts } from '../jobs/runs.ts';
import { matcher, UpstreamPolicy } from '../mirror/upstream-policy.ts';
import type { OpenProtocol, PrivateNames, Protocol, Web } from '../protocol.ts';
import { baseOf } from '../upstream/configured.ts';
import { packageClaims } from './hosted/claims.ts';
import { addDownloads } from './hosted/downloads.ts';
import type { FeedContext } from './hosted/feed-context.ts';
import { packageReferences, packageRowBytes } from './hosted/references.ts';
import { retainPackages } from './hosted/retention.ts';
import { listPackages } from './hosted/summary.ts';
import { packageOperations } from './http/management.ts';
import { createFeed } from './http/routes.ts';
import { PackageSource } from './package-source.ts';
import { packageInputs } from './prefetch/inputs.ts';
import { prefetchPackages } from './prefetch/packages.ts';
import { MergedSearch } from './search/merged-search.ts';
import { MirroredPackages } from './upstream/mirrored-packages.ts';
import { PackageMirror } from './upstream/package-mirror.ts';
import { UpstreamRegistrations } from './upstream/upstream-registration.ts';
import { UpstreamSearch } from './upstream/upstream-search.ts';
import { UpstreamSymbols } from './upstream/upstream-symbols.ts';
import { UpstreamVulnerabilities } from './upstream/upstream-vulnerabilities.ts';

/** NuGet V3: the package feed under `/v3`. */
export const nuget: Protocol = {
  kind: 'package',
  references: packageReferences,
  rowBytes: packageRowBytes,
  addDownloads,
  inputs: packageInputs,
  open: (core) => new PackageFeed(core),
};

/** The package feed on an open core. */
export class PackageFeed implements OpenProtocol {
  readonly kind = 'package';
  readonly jobs = [];
  readonly source: PackageSource;
  readonly vulnerabilities: UpstreamVulnerabilities;
  readonly #core: Core;
  readonly #context: FeedContext;
  readonly #mirror: PackageMirror;
  readonly #mirrored: MirroredPackages;

  constructor(core: Core) {
    const { config, database, blobs, mirror, upstreams, now } = core;
    const { limits, reserved, merge } = config;
    const ours = upstreams.filter((each) => each.config.kind === this.upstreams.kind);
    this.#core = core;
    this.#context = { database, blobs, limits, now };
    this.#mirror = new PackageMirror(mirror, new UpstreamPolicy(ours, reserved.packages, merge.packages), limits);
    this.#mirrored = new MirroredPackages(database, this.#mirror);
    this.source = new PackageSource({
      feed: this.#context,
      mirror: this.#mirror,
      registrations: new UpstreamRegistrations(this.#mirror),
    });
    this.vulnerabilities = new UpstreamVulnerabilities(this.#mirror);
  }

  mount(web: Web) {
    const { config, database, cache, mirror, log } = this.#core;
    const router = createFeed({
      ...web,
      feed: this.#context,
      mirror: this.#mirror,
      source: this.source,
      search: new MergedSearch(database, this.source, new UpstreamSearch(this.#mirror, cache, log)),
      vulnerabilities: this.vulnerabilities,
      symbols: new UpstreamSymbols(mirror, this.source, config.limits),
      log,
    });
    return [{ path: '/v3', router }];
  }

  get operations() {
    return packageOperations(this.#context, this.#mirrored);
  }

  get claims() {
    return packageClaims(this.#core.database);
  }

  async retain(work: Work): Promise<Counts> {
    const { config, database, now } = this.#core;
    const { packages, protect } = config.retention;
    if (packages.keepVersions === undefined) return {};
    const isProtected = matcher(protect);
    return retainPackages(database, {
      ...work,
      now: now(),
      keepVersions: packages.keepVersions,
      isProtected: (id, version) => isProtected(id) || isProtected(`${id}:${version}`),
    });
  }

  prefetch(...asked: Parameters<OpenProtocol['prefetch']>): Promise<void> {
    const { database, mirror } = this.#core;
    const parts = {
      database,
      mirror,
      packageMirror: this.#mirror,
      packageSource: this.source,
      vulnerabilities: this.vulnerabilities,
    };
    return prefetchPackages(parts, ...asked);
  }

  readonly upstreams = {
    kind: 'nuget',
    probe: ({ config }) => baseOf(config),
  } satisfies OpenProtocol['upstreams'];

  get privateNames(): PrivateNames {
    return {
      setting: 'packages',
      separator: '.',
      isAsked: this.#mirror.origin.all.length > 0,
      hosted: () => this.#hostedNames(),
      isMirrored: async (prefix) => {
        const [next] = await this.#mirrored.list(this.#core.defaultAccount.id, 1, prefix.toLowerCase());
        return next?.key.startsWith(prefix.toLowerCase()) ?? false;
      },
    };
  }

  async *#hostedNames(): AsyncGenerator<string> {
    const { accounts, database } = this.#core;
    for (const { id: accountId } of await accounts.list()) {
      for (let after = ''; ;) {
        const page = await listPackages(database, accountId, namesAtATime, after);
        for (const { id } of page) if (this.#mirror.origin.candidates(id).length > 0) yield id;
        if (page.length < namesAtATime) break;
        after = page.at(-1)!.key;
      }
    }
  }
}

const namesAtATime = 200;
