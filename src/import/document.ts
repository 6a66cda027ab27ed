import type { IncomingHttpHeaders } from 'node:http';
import { DomainError } from '../runtime/errors.ts';
import { Semaphore } from '../runtime/semaphore.ts';
import { itemsIn } from '../runtime/json-items.ts';
import type { UpstreamRequest } from '../upstream/answer.ts';
import { discard, readUpstreamBody } from '../upstream/body.ts';
import { nextPage } from '../upstream/next-page.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { retrying } from './import.ts';

/** Most bytes of a page of a list, and milliseconds in which a document must be there. */
const pageLimit = 16 * 2 ** 20;
const documentTime = 60_000;
/** Most documents that are read from one server at the same time, because each may be large. */
const documentsAtOnce = 8;
/** Most pages of a list, and most items of it. */
const maxPages = 10_000;
const maxItems = 1_000_000;

type ListRequest = Pick<UpstreamRequest, 'subject' | 'scope' | 'answers'> & { signal: AbortSignal };

/** The source has no such list. */
export class ListMissing extends DomainError {}

/** The bytes of a small document of a source; undefined if there is none. Throws as `Upstream.send`, after `most` attempts. */
export function readDocument(
  remote: Upstream,
  request: UpstreamRequest & { signal: AbortSignal },
  limit: number,
  most?: number,
): Promise<{ bytes: Buffer; headers: IncomingHttpHeaders } | undefined> {
  return retrying(
    async () => {
      const release = await placesOf(remote).take('');
      try {
        const answer = await remote.send({ ...request, isDocument: true });
        if (answer.status !== 200) {
          discard(answer.body);
          return undefined;
        }
        const bytes = await readUpstreamBody(answer.body, limit, documentTime).catch((error: unknown) => {
          throw remote.bodyFailed(error, request);
        });
        return { bytes, headers: answer.headers };
      } finally {
        release?.();
      }
    },
    request.signal,
    most,
  );
}

const places = new WeakMap<Upstream, Semaphore>();

function placesOf(remote: Upstream): Semaphore {
  const found = places.get(remote) ?? new Semaphore({ max: documentsAtOnce });
  places.set(remote, found);
  return found;
}

/**
 * The items in `field` of a JSON object, or of a JSON array without `field`; a list may have pages (`Link`, RFC 8288), on the host of the
 * first one. "Not found" and the `answers` of the request mean that there is no list. Throws `ListMissing` then, `Invalid` if it
 * cannot be read or lacks a page that it names, and `TooLarge` if it has no end.
 */
export async function* itemsOfList(
  remote: Upstream,
  first: URL,
  { field, ...of }: ListRequest & { field?: string },
): AsyncGenerator {
  const what = field ?? of.subject;
  const seen = new Set<string>();
  let items = 0;
  for (let url: URL | undefined = first; url;) {
    if (seen.size >= maxPages || seen.has(url.href))
      throw new DomainError('TooLarge', 'The source sends a list without an end.');
    seen.add(url.href);
    const page = await readDocument(remote, { ...of, url, headers: { accept: 'application/json' } }, pageLimit);
    if (!page && seen.size > 1)
      throw new DomainError('Invalid', `The source has no page that its list of ${what} names.`);
    if (!page) throw new ListMissing('NotFound', `The source has no list of ${what}.`);
    try {
      for await (const some of itemsIn(page.bytes, field)) {
        items += some.length;
        if (items > maxItems) throw new DomainError('TooLarge', `The source lists more than ${maxItems} ${what}.`);
        yield* some;
      }
    } catch (error) {
      throw error instanceof SyntaxError
        ? new DomainError('Invalid', 'The source sent a list that cannot be read.')
        : error;
    }
    url = nextPage(page.headers.link, url);
  }
}
