import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import type { Digest } from '../runtime/digest.ts';

/** A service of an upstream that clients can do without. Its failures do not count for the upstream. */
export type OptionalService = 'search' | 'symbols';

/** A body that is sent. */
export interface SentBody {
  /** In bytes. */
  size: number;
  /** Called for each attempt. */
  open: () => Promise<Readable>;
}

/** What servers answer to HEAD that only take GET, also where an address is signed for one method. */
export const noHead: readonly number[] = [403, 405, 501];

export interface UpstreamRequest {
  /** A change is sent once, except after a challenge, and only to the address itself: no redirect is followed. */
  method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';
  /** The body of a change. */
  sent?: SentBody | undefined;
  url: URL;
  /**
   * The package or repository that the request is for, or the query of a search. Failures are counted by subject, for all
   * of its addresses.
   */
  subject: string;
  headers?: Record<string, string>;
  /** For the registry's token exchange: `repository:<name>:pull`. */
  scope?: string;
  signal?: AbortSignal;
  /** Whether the body is a small document, of which a client gets nothing before all of it has come. */
  isDocument?: boolean;
  /** The optional service that the request is for; undefined for everything else. */
  service?: OptionalService;
  /** Further statuses that are answers for the caller. */
  answers?: readonly number[];
}

export interface UpstreamAnswer {
  /**
   * 2xx, 304, 404, 410 or one of the request's `answers`; of a change also another 4xx, except 401, 403 and 429. Every other status
   * becomes an error.
   */
  status: number;
  headers: IncomingHttpHeaders;
  /** The body without content coding. A reader that stops early destroys it. A body that is cut ends with an error. */
  body: Readable;
  /** Whether the body was decoded, so that its offsets differ from those at the upstream. */
  decoded: boolean;
  /** The digest of the whole content, as the upstream states it. */
  digest?: Digest;
}

export function isChange({ method = 'GET' }: UpstreamRequest): boolean {
  return method !== 'GET' && method !== 'HEAD';
}

/** Whether an answer with this status is one for the caller. */
export function isAnswer(status: number, request: UpstreamRequest): boolean {
  if ((status >= 200 && status < 300) || status === 304 || status === 404 || status === 410) return true;
  if (request.answers?.includes(status)) return true;
  return isChange(request) && status >= 400 && status < 500 && ![401, 403, 429].includes(status);
}
