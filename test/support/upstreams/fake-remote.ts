import { Readable } from 'node:stream';
import { isDigest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { isAnswer, type UpstreamAnswer, type UpstreamRequest } from '../../../src/upstream/answer.ts';
import { AccessRefused, messageOf, Refused } from '../../../src/upstream/failures.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';

/** What a fake server answers: an error of the request, or a status (200 by default) with a body and headers. */
export type FakeAnswer =
  | Error
  | { status?: number; body?: Readable | Buffer | string; headers?: Record<string, string> };

/** A request, with the text of its address. */
export type FakeRequest = Omit<UpstreamRequest, 'url'> & { url: string };

/**
 * A server without a network, which answers by `on`, and remembers what it was asked and the bodies that it gave. Requests to it
 * do what those of a real `Upstream` do, as far as `test/upstream/remote-suite.ts` goes. It asks nothing twice and makes no pauses.
 */
export interface FakeRemote {
  remote: Upstream;
  requests: FakeRequest[];
  bodies: Readable[];
  /** `METHOD path?query` of each request. */
  asked: () => string[];
}

const names = { id: 'import/source', upstream: 'old.test' };

function pathOf({ url }: Pick<UpstreamRequest, 'url'>): string {
  return `${url.pathname}${url.search}`;
}

function failure(cause: unknown, more: { denied?: boolean; retryAfter?: number } = {}): UpstreamError {
  return new UpstreamError('UpstreamUnavailable', `The upstream old.test ${messageOf(cause)}.`, {
    ...names,
    ...more,
    cause,
  });
}

function cancelled(): DomainError {
  return new DomainError('Aborted', 'The upstream old.test had not answered when the request was cancelled.');
}

/** An attempt after the failure of a body need not wait. */
function bodyFailed(error: unknown, { signal }: Pick<UpstreamRequest, 'signal'>): DomainError {
  return signal?.aborted ? cancelled() : failure(error, { retryAfter: 0 });
}

/** The failure that a status is. */
function refusalOf(status: number): UpstreamError {
  if (status === 401) return failure(new AccessRefused());
  if (status === 429) return failure(new Refused('asks for a pause (429)'));
  if (status !== 403) return failure(new Refused(`answered ${status}`));
  const message = 'denied access: the resource does not exist, or needs other credentials';
  return failure(new Refused(message, { denied: true }), { denied: true });
}

/** Ends with an error if the headers tell another length. */
async function* bytesOf(body: Buffer, length: string | undefined): AsyncGenerator<Buffer> {
  if (body.length > 0) yield body;
  if (length !== undefined && Number(length) !== body.length)
    throw Object.assign(new Error('aborted'), { code: 'ECONNRESET' });
}

function answerTo(
  { method }: UpstreamRequest,
  { status = 200, body = '', headers: given = {} }: Exclude<FakeAnswer, Error>,
): UpstreamAnswer {
  const headers = Object.fromEntries(Object.entries(given).map(([name, value]) => [name.toLowerCase(), value]));
  const { 'content-length': length, 'docker-content-digest': digest } = headers;
  if ('content-encoding' in headers || (status > 300 && status < 309 && 'location' in headers))
    throw new Error('the stand-in decodes no body and follows no redirect');
  if (length !== undefined && !/^\d+$/.test(length)) throw failure(new Error('Parse Error: Invalid Content-Length'));
  let readable =
    body instanceof Readable ? body : Readable.from(bytesOf(Buffer.from(body), length), { objectMode: false });
  if (method === 'HEAD') readable = Readable.from([]);
  const told = digest !== undefined && isDigest(digest) && { digest };
  return { status, headers, body: readable, decoded: false, ...told };
}

export function fakeRemote(
  on: (path: string, request: UpstreamRequest) => FakeAnswer | undefined | Promise<FakeAnswer | undefined>,
  { kind = 'registry', base = 'http://old.test/' } = {},
): FakeRemote {
  const requests: FakeRequest[] = [];
  const bodies: Readable[] = [];
  const send = async (request: UpstreamRequest) => {
    if (request.signal?.aborted) throw cancelled();
    requests.push({ ...request, url: request.url.href });
    const found = (await on(pathOf(request), request)) ?? { status: 404 };
    if (found instanceof Error) throw found;
    const answer = answerTo(request, found);
    if (!isAnswer(answer.status, request)) throw refusalOf(answer.status);
    bodies.push(answer.body);
    return answer;
  };
  const fake = { id: names.id, name: names.upstream, base: new URL(base), config: { kind }, send, bodyFailed };
  return {
    remote: fake as unknown as Upstream,
    requests,
    bodies,
    asked: () => requests.map(({ method = 'GET', url }) => `${method} ${pathOf({ url: new URL(url) })}`),
  };
}

/** A body that does not end before `finish` is called. */
export function heldBody(): { body: Readable; finish: (text: string) => void } {
  const body = new Readable({ read: () => undefined });
  return {
    body,
    finish: (text) => {
      body.push(Buffer.from(text));
      body.push(null);
    },
  };
}
