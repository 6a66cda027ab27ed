import type { NameKind } from '../accounts/names.ts';

/** The counters of requests. Bytes are bytes of bodies. */
export const counterNames = [
  'requests',
  'downloads',
  'uploads',
  'version_checks',
  'cache_hits',
  'cache_misses',
  'egress_bytes',
  'ingress_bytes',
  'upstream_bytes',
] as const;
export type Counters = Record<(typeof counterNames)[number], number>;

/**
 * The purpose of a request. A download fetches a package or the manifest of an image. Layers and indexes do not count, so
 * that an image counts once. An upload pushes a package, its symbols or a manifest. A version check reads the service
 * index, a list of versions or tags, a registration, or a manifest by HEAD.
 */
export type UsageAction = 'download' | 'upload' | 'version-check';

/** The kind of the name that a request concerns, or `other`. */
export type SubjectKind = NameKind;

/** A finished request, or a part of one that ended later. */
export interface Use {
  /** When it ended, in milliseconds since 1970: it counts for the day and month of this time, UTC. */
  at: number;
  /** Undefined for an anonymous reader. */
  token: string | undefined;
  kind: SubjectKind;
  /** The package ID in lower case, or the repository; empty for a request without either. */
  subject: string;
  act: UsageAction | undefined;
  status: number;
  /** Whether the whole response was handed to the operating system. */
  complete: boolean;
  /** The `Cache-Status` of the response. */
  cache: string | undefined;
  sent: number;
  received: number;
  /** Bytes fetched from upstreams for this request. */
  fetched: number;
}

export function noCounts(): Counters {
  return {
    requests: 0,
    downloads: 0,
    uploads: 0,
    version_checks: 0,
    cache_hits: 0,
    cache_misses: 0,
    egress_bytes: 0,
    ingress_bytes: 0,
    upstream_bytes: 0,
  };
}

/** Adds `more` to `counters`. */
export function addCounts(counters: Counters, more: Counters): void {
  for (const name of counterNames) counters[name] += more[name];
}

/** Whether a request is counted. Refused requests, requests that found nothing, and errors of this server are not. */
export function isBillable(status: number): boolean {
  return status < 500 && status !== 401 && status !== 403 && status !== 404 && status !== 429;
}

/** Whether a request was a download of a whole file that succeeded completely, or was redirected to the storage. */
export function isDownload({ act, status, complete }: Pick<Use, 'act' | 'status' | 'complete'>): boolean {
  return act === 'download' && (status === 200 || status === 307) && complete;
}

/** Counts one billable request. Hosted content is neither a hit nor a miss of the cache. */
export function countUse(counters: Counters, use: Omit<Use, 'at' | 'token' | 'kind' | 'subject'>): void {
  const { act, status, cache } = use;
  counters.requests += 1;
  if (isDownload(use)) counters.downloads += 1;
  // The console answers a form with 303.
  else if (act === 'upload' && (status === 201 || status === 303)) counters.uploads += 1;
  else if (act === 'version-check' && (status === 200 || status === 304)) counters.version_checks += 1;
  if (cache !== undefined && !cache.endsWith('detail=hosted')) {
    if (cache.startsWith('entrepot; hit')) counters.cache_hits += 1;
    else counters.cache_misses += 1;
  }
  counters.egress_bytes += use.sent;
  counters.ingress_bytes += use.received;
  counters.upstream_bytes += use.fetched;
}
