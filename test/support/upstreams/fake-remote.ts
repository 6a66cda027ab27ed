import { Readable } from 'node:stream';
import { digestOf } from '../../../src/runtime/digest.ts';
import type { UpstreamRequest } from '../../../src/upstream/answer.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';

/** What a fake server answers: an error, or a status (200 by default) with a body and headers. */
export type FakeAnswer = Error | { status?: number; body?: Readable | Buffer | string; headers?: object };

/** A request, with the text of its address. */
export type FakeRequest = Omit<UpstreamRequest, 'url'> & { url: string };

/** A server without a network, which answers by `on`, and remembers what it was asked and the bodies that it gave. */
export interface FakeRemote {
  remote: Upstream;
  requests: FakeRequest[];
  bodies: Readable[];
  /** `METHOD path?query` of each request. */
  asked: () => string[];
}

function pathOf({ url }: Pick<UpstreamRequest, 'url'>): string {
  return `${url.pathname}${url.search}`;
}

function bodyFailed(error: unknown, { subject }: UpstreamRequest): UpstreamError {
  const reason = `The upstream old.test: ${(error as Error).message} (${subject})`;
  return new UpstreamError('UpstreamUnavailable', reason, { retryAfter: 0, cause: error });
}

export function fakeRemote(
  on: (path: string, request: UpstreamRequest) => FakeAnswer | undefined | Promise<FakeAnswer | undefined>,
  { kind = 'registry', base = 'http://old.test/' } = {},
): FakeRemote {
  const requests: FakeRequest[] = [];
  const bodies: Readable[] = [];
  const send = async (request: UpstreamRequest) => {
    requests.push({ ...request, url: request.url.href });
    const found = (await on(pathOf(request), request)) ?? { status: 404 };
    if (found instanceof Error) throw found;
    const { status = 200, body = '', headers = {} } = found;
    const isSent = request.method !== 'HEAD';
    const readable = body instanceof Readable ? body : Readable.from(isSent ? [Buffer.from(body)] : []);
    bodies.push(readable);
    const digest = status === 200 && !(body instanceof Readable) ? digestOf(Buffer.from(body)) : undefined;
    return { status, headers, body: readable, decoded: false, digest };
  };
  const fake = { id: 'import/source', name: 'old.test', base: new URL(base), config: { kind }, send, bodyFailed };
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
