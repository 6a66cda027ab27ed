import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Principal } from '../../accounts/principal.ts';
import type { Config } from '../../config/schema.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { Quota } from '../../usage/quota.ts';
import type { Images } from '../catalog/images.ts';
import type { Pushes } from '../catalog/pushes.ts';
import type { ImageHistory } from '../catalog/image-history.ts';
import type { ImageSource, LocatedRepository, ReadableImages } from '../catalog/image-source.ts';
import type { ContinuedUploads } from './upload-relay.ts';

/** One request after routing, authentication and authorization. */
export interface RegistryCall {
  request: IncomingMessage;
  response: ServerResponse;
  principal: Principal;
  /** The valid repository name, for a change its hosted name, for the past behind `as-of/<date>/`; empty if the path has none. */
  name: string;
  /** The registry that the client names with `?ns=`; undefined if it names none. */
  ns: string | undefined;
  /** The repository, hosted or at an upstream. */
  repository: LocatedRepository;
  /** The last segment of the path, if it is variable. */
  item: string;
  query: URLSearchParams;
  images: Images;
  /** For reads, which may go to an upstream. */
  source: ImageSource;
  /** What the client sees of them: those of now, or those of the past. */
  readable: ReadableImages;
  /** The time that is shown; undefined for now. */
  until: number | undefined;
  history: ImageHistory;
  /** For sessions that exist already, also at other instances. */
  uploads: ContinuedUploads;
  pushes: Pushes;
  quota: Quota;
  limits: Config['limits'];
}

export type Handler = (call: RegistryCall) => Promise<void>;

/** Answers without a body. */
export function sendEmpty(response: ServerResponse, status: number, headers: OutgoingHttpHeaders): void {
  // 204 has no body by definition, and then no Content-Length either (RFC 9110, 8.6).
  response.writeHead(status, status === 204 ? headers : { ...headers, 'Content-Length': 0 }).end();
}

/** The page size in `n`, at most `most`, which is also the default; `Invalid` if it is not a number. */
export function pageSize(query: URLSearchParams, most: number): number {
  const text = query.get('n');
  if (text === null || text === '') return most;
  if (!/^\d{1,15}$/.test(text)) throw new DomainError('Invalid', '"n" has to be a number of entries, 0 or more.');
  return Math.min(Number(text), most);
}

/** The `Link` to the page after this one (RFC 8288), relative so that it survives proxies. */
export function nextLink(path: string, query: Record<string, string | number | undefined>): OutgoingHttpHeaders {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined) search.set(key, String(value));
  return { Link: `<${path}?${search.toString()}>; rel="next"` };
}
