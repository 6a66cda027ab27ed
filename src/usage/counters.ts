import type { NameKind } from '../accounts/names.ts';

/** What is counted of requests. Bytes are those of bodies. */
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
 * What a request was made for. A download fetches a package or an image's manifest (layers and indexes are none: an image
 * counts once); an upload pushes a package, its symbols or a manifest; a version check asks what there is: the service
 * index, a list of versions or tags, a registration, a manifest by HEAD.
 */
export type UsageAction = 'download' | 'upload' | 'version-check';

export type SubjectKind = NameKind | 'other';

/** One request that is over, or the part of one that ended later. */
export interface Use {
  /** When it was over, in milliseconds since 1970: it belongs to the day and month of this moment, UTC. */
  at: number;
  /** Undefined for an anonymous reader. */
  token: string | undefined;
  kind: SubjectKind;
  /** The package id in lower case, or the repository; empty where there is none. */
  subject: string;
  act: UsageAction | undefined;
  status: number;
  /** Whether all of the answer has been handed to the system. */
  complete: boolean;
  /** The `Cache-Status` of the answer. */
  cache: string | undefined;
  sent: number;
  received: number;
  /** Bytes that were fetched from upstreams for it. */
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

/** Whether a request is counted at all: not when it was refused, found nothing, or failed here. */
export function isBillable(status: number): boolean {
  return status < 500 && status !== 401 && status !== 403 && status !== 404 && status !== 429;
}

/** Whether a request was a download that succeeded, whole and to its end. */
export function isDownload({ act, status, complete }: Pick<Use, 'act' | 'status' | 'complete'>): boolean {
  return act === 'download' && status === 200 && complete;
}

/** Counts one billable request. What is hosted is neither a hit nor a miss of the cache. */
export function countUse(counters: Counters, use: Omit<Use, 'at' | 'token' | 'kind' | 'subject'>): void {
  const { act, status, cache } = use;
  counters.requests += 1;
  if (isDownload(use)) counters.downloads += 1;
  else if (act === 'upload' && status === 201) counters.uploads += 1;
  else if (act === 'version-check' && (status === 200 || status === 304)) counters.version_checks += 1;
  if (cache !== undefined && !cache.endsWith('detail=hosted')) {
    if (cache.startsWith('entrepot; hit')) counters.cache_hits += 1;
    else counters.cache_misses += 1;
  }
  counters.egress_bytes += use.sent;
  counters.ingress_bytes += use.received;
  counters.upstream_bytes += use.fetched;
}
