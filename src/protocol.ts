import type { NameKind } from './accounts/names.ts';
import type { Operation } from './api/operation.ts';
import type { SearchSource } from './api/search.ts';
import type { Config } from './config/schema.ts';
import type { Core } from './core.ts';
import type { Mount } from './http/app.ts';
import type { Authenticator } from './http/authenticate.ts';
import type { Urls } from './http/urls.ts';
import type { Chore } from './jobs/chores.ts';
import type { JobParts } from './jobs/table.ts';
import type { EmptyClaims } from './mirror/claims.ts';
import type { Prefetchable } from './prefetch/prefetch.ts';
import type { ProtocolInputs } from './prefetch/inputs.ts';
import type { BlobReferences } from './storage/references.ts';
import type { Upstream } from './upstream/upstream.ts';
import type { Quota } from './usage/quota.ts';
import type { AddDownloads } from './usage/record.ts';
import type { MeasureRows } from './usage/stored.ts';

/**
 * A protocol: one value in the list in `server.ts`. Other folders use a protocol only through this interface.
 */
export interface Protocol {
  /** The kind of names that it hosts, as in usage, tokens and commands. */
  readonly kind: NameKind;
  /** How its tables refer to blobs. */
  readonly references: BlobReferences;
  /** Measures the bytes of its rows in the database, without their blobs. */
  readonly rowBytes: MeasureRows;
  /** Counts downloads in its own tables. */
  readonly addDownloads: AddDownloads;
  /** The files that can list what to prefetch. */
  readonly inputs: ProtocolInputs;
  /** Opens the protocol on the core; `stack` closes what it opens. */
  open(core: Core, stack: AsyncDisposableStack): OpenProtocol;
}

/** The parts that all HTTP interfaces share. */
export interface Web {
  authenticator: Authenticator;
  quota: Quota;
  urls: Urls;
}

/** A protocol on an open core. */
export interface OpenProtocol extends Prefetchable, JobParts {
  readonly kind: NameKind;
  /** Its routers and their paths. */
  mount(web: Web): Mount[];
  /** Its operations in `/v1`. */
  readonly operations: readonly Operation[];
  /** What a search in `/v1` reads. */
  readonly searches: readonly SearchSource[];
  readonly claims: EmptyClaims;
  /** Bytes of an account's unfinished uploads. */
  unfinishedBytes?(accountId: number): Promise<number>;
  /** Short work that each instance repeats. */
  readonly chores?: readonly Chore[];
  readonly privateNames: PrivateNames;
  readonly upstreams: UpstreamKind;
}

/** How `doctor` finds hosted names that could be sent to an upstream. */
export interface PrivateNames {
  /** The list in the setting `reserved` that keeps them private. */
  readonly setting: keyof Config['reserved'];
  /** Separates the segments of a name. */
  readonly separator: '.' | '/';
  /** Whether requests for names go to any upstream. */
  readonly isAsked: boolean;
  /** Hosted names that would be sent to an upstream. */
  hosted(): AsyncIterable<string>;
  /** Whether a mirrored name begins with `prefix`. */
  isMirrored(prefix: string): Promise<boolean>;
}

/** The upstreams that speak a protocol. */
export interface UpstreamKind {
  readonly kind: Config['upstreams'][number]['kind'];
  /** An address that a working upstream answers with 200. */
  probe(upstream: Upstream): URL;
  /** Requests the rate limit of the upstream, if that needs a separate request. */
  askRateLimit?(upstream: Upstream): Promise<void>;
}
