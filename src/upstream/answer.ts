import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import type { Digest } from '../digest.ts';

export type OptionalService = 'search' | 'symbols';

export interface UpstreamRequest {
  method?: 'GET' | 'HEAD';
  url: URL;
  /**
   * The package or repository that the request is for, whatever its address: failures are counted by it. For a search it
   * is the query.
   */
  subject: string;
  headers?: Record<string, string>;
  /** For the registry token exchange: `repository:<name>:pull`. */
  scope?: string;
  signal?: AbortSignal;
  /** A service that clients can do without, such as search: that it fails is no reason not to ask for anything else. */
  service?: OptionalService;
}

export interface UpstreamAnswer {
  /** 2xx, 304, 404 or 410: everything else is an error. */
  status: number;
  headers: IncomingHttpHeaders;
  /** The body without content coding; its reader destroys it when it leaves early. Ends with an error when it is cut. */
  body: Readable;
  /** Whether the body was decoded, so that offsets in it are not the upstream's. */
  decoded: boolean;
  /** What the upstream says that the whole of the content hashes to. */
  digest?: Digest;
}
