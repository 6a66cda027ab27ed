import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Principal } from '../accounts/principal.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../errors.ts';
import type { Images } from './images.ts';
import type { Pushes } from './pushes.ts';
import type { ImageSource, Repository } from './image-source.ts';

/** One request that has been routed, authenticated and allowed. */
export interface Call {
  request: IncomingMessage;
  response: ServerResponse;
  principal: Principal;
  /** A checked repository name, for a change the hosted one; empty where the path has none. */
  name: string;
  /** The registry that the client of a mirror means. */
  ns: string | undefined;
  /** Where that repository is. */
  repository: Repository;
  /** The last segment of the path, where it is not fixed. */
  item: string;
  query: URLSearchParams;
  images: Images;
  /** What is read may come from upstream. */
  source: ImageSource;
  pushes: Pushes;
  limits: Config['limits'];
}

export type Handler = (call: Call) => Promise<void>;

/** Answers without a body. */
export function sendEmpty(response: ServerResponse, status: number, headers: OutgoingHttpHeaders): void {
  // 204 has no body by definition, and then no Content-Length either (RFC 9110, 8.6).
  response.writeHead(status, status === 204 ? headers : { ...headers, 'Content-Length': 0 }).end();
}

/** The page size in `n`: `most` unless it is given, and never more; `Invalid` when it is no number. */
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
