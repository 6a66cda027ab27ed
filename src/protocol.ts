import type { NameKind } from './accounts/names.ts';
import type { Operation } from './api/operation.ts';
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
 * A protocol: one value in the list of `server.ts`. Everything outside of the protocol's folder goes through this, so
 * that no other part names a protocol.
 */
export interface Protocol {
  /** The kind of names that it hosts, as usage, tokens and commands call it. */
  readonly kind: NameKind;
  /** How its tables refer to blobs. */
  readonly references: BlobReferences;
  /** What its rows take in the database beside their blobs. */
  readonly rowBytes: MeasureRows;
  /** Counts downloads in its own tables. */
  readonly addDownloads: AddDownloads;
  /** The files from which it learns what to prefetch. */
  readonly inputs: ProtocolInputs;
  /** Opens it on the core; `stack` closes what it opened. */
  open(core: Core, stack: AsyncDisposableStack): OpenProtocol;
}

/** What every interface is served with. */
export interface Web {
  authenticator: Authenticator;
  quota: Quota;
  urls: Urls;
}

/** A protocol on an open core. */
export interface OpenProtocol extends Prefetchable, JobParts {
  readonly kind: NameKind;
  /** What it serves, and where. */
  mount(web: Web): Mount[];
  /** Its operations of `/v1`. */
  readonly operations: readonly Operation[];
  readonly claims: EmptyClaims;
  /** Bytes of an account's unfinished uploads. */
  unfinishedBytes?(accountId: number): Promise<number>;
  /** Short work that each instance repeats. */
  readonly chores?: readonly Chore[];
  readonly privateNames: PrivateNames;
  readonly upstreams: UpstreamKind;
}

/** How `doctor` finds hosted names that an upstream could be asked for. */
export interface PrivateNames {
  /** The list of the setting `reserved` that keeps them private. */
  readonly setting: keyof Config['reserved'];
  /** Between the segments of a name. */
  readonly separator: '.' | '/';
  /** Whether any upstream is asked for names. */
  readonly isAsked: boolean;
  /** Hosted names for which an upstream would be asked. */
  hosted(): AsyncIterable<string>;
  /** Whether a mirrored name begins with `prefix`. */
  isMirrored(prefix: string): Promise<boolean>;
}

/** The upstreams that speak a protocol. */
export interface UpstreamKind {
  readonly kind: Config['upstreams'][number]['kind'];
  /** An address that a working upstream answers with 200. */
  probe(upstream: Upstream): URL;
  /** Makes the upstream tell its rate limit, where that needs a request of its own. */
  askRateLimit?(upstream: Upstream): Promise<void>;
}
