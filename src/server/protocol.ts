import type { NameKind } from '../accounts/names.ts';
import type { AccountNames } from '../accounts/shared-names.ts';
import type { HostedContents } from '../bundle/hosted-contents.ts';
import type { Operation } from '../api/framework/operation.ts';
import type { SearchSource } from '../api/content/search.ts';
import type { Config } from '../config/schema.ts';
import type { Core } from './core.ts';
import type { Mount } from '../http/app.ts';
import type { Authenticator } from '../http/authenticate.ts';
import type { Urls } from '../http/urls.ts';
import type { Relay } from '../instances/relay.ts';
import type { RelayHandler } from '../instances/relay-listener.ts';
import type { RepeatedWork } from '../jobs/repeated-work.ts';
import type { JobParts } from '../jobs/table.ts';
import type { MirrorReader } from '../mirror/stored-only.ts';
import type { DescribedEntry } from '../mirror/fetch/resource.ts';
import type { EntryKey } from '../mirror/store/entries.ts';
import type { ListedKinds } from '../mirror/store/entry-kinds.ts';
import type { StoredNames } from '../mirror/policy/stored-names.ts';
import type { NameStory } from '../mirror/policy/upstream-policy.ts';
import type { EmptyClaims } from '../mirror/policy/claims.ts';
import type { AffectedTest } from '../known-bad/entry.ts';
import type { RangeReader } from '../policy/compile.ts';
import type { Exposable } from '../exposure/exposable.ts';
import type { Importable } from '../import/item.ts';
import type { Exportable } from '../import/target.ts';
import type { PlainEntry, PlainOptions, PlainSource } from '../prefetch/plain.ts';
import type { DeletedContents } from '../permanence/deleted.ts';
import type { Prefetchable } from '../prefetch/prefetch.ts';
import type { ItemMeaning, PrefetchItem } from '../prefetch/item.ts';
import type { ProtocolInputs } from '../prefetch/inputs.ts';
import type { PromotableContents } from '../promotion/promotable.ts';
import type { Takeover } from '../takeover/takeover.ts';
import type { BlobReferences } from '../storage/blobs/references.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { Quota } from '../usage/quota.ts';
import type { AddDownloads } from '../usage/record.ts';
import type { MeasureRows, SizedName } from '../usage/stored.ts';

/**
 * A protocol: one value in the list in `server/server.ts`. Other folders use a protocol only through this interface.
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
  /** Reads a range of versions in a policy, if its names have versions. */
  readonly readRange?: RangeReader;
  /** Whether an entry of a list of known bad content means a version, if its names have versions. */
  readonly isAffected?: AffectedTest;
  /** Opens the protocol on the core; `stack` closes what it opens. */
  open(core: Core, stack: AsyncDisposableStack): OpenProtocol;
}

/** The parts that all HTTP interfaces share. */
export interface Web {
  authenticator: Authenticator;
  quota: Quota;
  urls: Urls;
  /** Calls other instances; undefined if they cannot be called. */
  relay: Relay | undefined;
  /** Brings what a request asks for from a server that is replaced. */
  takeover: Pick<Takeover, 'bring' | 'isClosed'>;
}

/** A protocol on an open core. */
export interface OpenProtocol extends Prefetchable, JobParts, Exposable {
  readonly kind: NameKind;
  /** Its routers and their paths. */
  mount(web: Web): Mount[];
  /** What other instances may call. */
  relayed?(quota: Quota): RelayHandler[];
  /** Its operations in `/v1`. */
  readonly operations: readonly Operation[];
  /** What a search in `/v1` reads. */
  readonly searches: readonly SearchSource[];
  readonly claims: EmptyClaims;
  /** How its deleted hosted content comes back, if that can be undone. */
  readonly deleted?: DeletedContents;
  readonly names: AccountNames;
  /** Warnings about its hosted packages, if it has them. */
  readonly notices?: HostedNotices;
  /** Bytes of an account's unfinished uploads. */
  unfinishedBytes?(accountId: number): Promise<number>;
  /** Short work that each instance repeats. */
  readonly chores?: readonly RepeatedWork[];
  readonly privateNames: PrivateNames;
  /** Up to `limit` names that an account hosts, the largest first. */
  largest(accountId: number, limit: number): Promise<SizedName[]>;
  /** What decides from where an account gets a name. Throws `Invalid` for a text that is no name. */
  explain(accountId: number, name: string): Promise<NameStory>;
  /** Its stored names, for lists of what policies refuse. Absent if no upstream speaks it. */
  readonly stored?: StoredNames;
  /** What an item of a file means for an account; undefined for an item of another protocol. */
  meaningOf?(accountId: number, item: PrefetchItem): Promise<ItemMeaning | undefined>;
  /**
   * The line of a list for what clients of an account asked for in vain; `reference` can be empty. Undefined if it is stored now, or
   * if no upstream serves the name.
   */
  wantedLine?(accountId: number, name: string, reference: string): Promise<string | undefined>;
  /** The mirrored content in a folder or an archive that other tools have made. Throws `Invalid`. */
  plainEntries?(source: PlainSource, options: PlainOptions): AsyncIterable<PlainEntry>;
  /** Its part of a prefetch that finds all mirrored content in `mirror`, without policies: to prove that it is there. */
  prefetchOver?(mirror: MirrorReader): Prefetchable;
  /** The content that accounts host, for bundles. */
  readonly carried?: HostedContents;
  /** The content that accounts host, for promotions. */
  readonly promotable?: PromotableContents;
  /** The content of another server or of its files, to be brought in as hosted content. */
  importFrom?: Importable['importFrom'];
  /** What an account hosts, pushed to another server. */
  exportTo?: Exportable['exportTo'];
  /** What another server and an account have, beside each other. */
  compare?: Importable['compare'];
  /** Whether an account hosts something under a name. */
  holds?: Importable['holds'];
  readonly upstreams: UpstreamSupport;
}

/** How `doctor` finds hosted names that could be sent to an upstream. */
export interface PrivateNames {
  /** The list in the setting `reserved` that keeps them private. */
  readonly setting: string;
  /** Separates the segments of a name. */
  readonly separator: '.' | '/';
  /** Whether requests for names go to any upstream. */
  readonly isAsked: boolean;
  /** Hosted names that would be sent to an upstream. */
  hosted(): AsyncIterable<string>;
  /** Whether a mirrored name begins with `prefix`. */
  isMirrored(prefix: string): Promise<boolean>;
}

/** Warnings of accounts about their hosted packages, for commands. All methods throw `NotFound` and `Invalid`. */
export interface HostedNotices {
  /** Deprecates versions; null ends the deprecation. Resolves to the number of versions that changed. */
  deprecate(
    accountId: number,
    id: string,
    versions: 'all' | readonly string[],
    deprecation: {
      reasons: readonly string[];
      message?: string | undefined;
      alternative?: { id: string; range?: string | undefined } | undefined;
    } | null,
  ): Promise<number>;
  /** `severity` is from 0 (low) to 3 (critical). */
  createAdvisory(accountId: number, advisory: Omit<HostedAdvisory, 'id'>): Promise<HostedAdvisory>;
  listAdvisories(accountId: number): Promise<HostedAdvisory[]>;
  deleteAdvisory(accountId: number, id: string): Promise<void>;
}

interface HostedAdvisory {
  id: string;
  packageId: string;
  /** The affected range. */
  versions: string;
  severity: number;
  url: string;
}

/** The upstreams that speak a protocol. */
interface UpstreamSupport {
  readonly kind: Config['upstreams'][number]['kind'];
  /** What the mirror stores of such an upstream. */
  readonly entries: ListedKinds;
  /** An address that a working upstream answers with 200. */
  probe(upstream: Upstream): URL;
  /**
   * An entry of such an upstream that another installation has fetched; `attributes` are those that it stored. Undefined if there
   * is no entry under this key.
   */
  describe?(
    upstream: Upstream,
    key: Omit<EntryKey, 'upstream'>,
    attributes: Readonly<Record<string, string>>,
  ): DescribedEntry | undefined;
  /** What else follows while an upstream fails, for `doctor`; follows a sentence that says so. */
  consequence?(upstream: Upstream): Promise<string | undefined>;
  /** Whether an upstream says when its content was published. Rejects if it fails. Absent where none can. */
  saysDates?(upstream: Upstream): Promise<boolean>;
  /** Requests the rate limit of the upstream, if that needs a separate request. */
  askRateLimit?(upstream: Upstream): Promise<void>;
}

/** Reads ranges and entries as the first protocol whose names have versions does. */
export function versionReaders(protocols: readonly Protocol[]): { readRange: RangeReader; isAffected: AffectedTest } {
  const { readRange = () => undefined, isAffected = () => true } = protocols.find((each) => each.readRange) ?? {};
  return { readRange, isAffected };
}

/** Describes the entries of all upstreams, each by its protocol. */
export function describeWith(
  protocols: readonly Pick<OpenProtocol, 'upstreams'>[],
): NonNullable<UpstreamSupport['describe']> {
  return (upstream, ...rest) =>
    protocols.find(({ upstreams }) => upstreams.kind === upstream.config.kind)?.upstreams.describe?.(upstream, ...rest);
}
