import type { IncomingHttpHeaders } from 'node:http';
import { pipeline, Transform, type Readable } from 'node:stream';
import { algorithmOf, digestSoFar, startHash, type Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { discard, readUpstreamBody } from '../../upstream/body.ts';
import { Semaphore } from '../../runtime/semaphore.ts';
import { Refused } from '../../upstream/failures.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';
import type { Upstream, UpstreamAnswer, UpstreamRequest } from '../../upstream/upstream.ts';
import type { EntryMetadata } from '../store/entries.ts';
import { OtherBody, type Fetched, type Received } from './resource.ts';

export interface FetchOptions extends UpstreamRequest {
  /** The stored entry, for a conditional request. */
  known?: EntryMetadata | undefined;
  /** Whether it is a document that may be compressed. */
  document?: boolean;
  /**
   * Whether a body with a content coding is refused: its digest is that of the bytes at the upstream, and some upstreams name a
   * coding that belongs to the content itself. The decoded bytes would turn out to be wrong at the end of the body.
   */
  plain?: boolean;
}

/** What upstreams answer to a range that they do not send. The whole body may still be had. */
const refusedRange = [400, 416];

/** Fetches one URL of an upstream for the mirror: conditional, resumable by Range; "absent" only for 404 and 410. */
export async function fetchFrom(upstream: Upstream, options: FetchOptions): Promise<Fetched> {
  const { known, document, plain, ...asked } = options;
  const request = { ...asked, ...(document && { isDocument: true }) };
  const headers: Record<string, string> = { ...request.headers };
  if (document) headers['accept-encoding'] = 'gzip';
  else if (plain) headers['accept-encoding'] = 'identity';
  if (known?.etag) headers['if-none-match'] = known.etag;
  else if (known?.lastModified) headers['if-modified-since'] = known.lastModified;
  const answer = await upstream.send({ ...request, headers });
  if (answer.status !== 200) {
    discard(answer.body);
    if (answer.status === 304 && known) return { kind: 'not-modified' };
    if (answer.status === 404 || answer.status === 410) return { kind: 'absent' };
    throw unusable(upstream, `answered ${answer.status}`);
  }
  if (plain && answer.decoded) {
    answer.body.destroy();
    throw unusable(upstream, 'sends this content with a content coding, such as gzip, which was not requested');
  }
  return {
    kind: 'fetched',
    body: answer.body,
    size: lengthOf(answer),
    type: answer.headers['content-type'] ?? 'application/octet-stream',
    etag: answer.headers.etag ?? null,
    lastModified: answer.headers['last-modified'] ?? null,
    ...(answer.digest !== undefined && { digest: answer.digest }),
    ...(!answer.decoded && {
      resume: (received: Received, signal: AbortSignal) => resume(upstream, { ...request, signal }, received, answer),
    }),
    failed: (error) => void upstream.bodyFailed(error, request),
  };
}

function lengthOf(answer: UpstreamAnswer): number | undefined {
  const length = answer.headers['content-length'];
  return answer.decoded || length === undefined || !/^\d+$/.test(length) ? undefined : Number(length);
}

/**
 * The rest of a body after a cut. By Range if a validator (RFC 9110, 13.1.5) or the known digest of the whole prevents a
 * mix of two versions. Else the whole body again, whose beginning must be equal to the received bytes. Undefined if the
 * upstream sends neither.
 */
async function resume(
  upstream: Upstream,
  request: UpstreamRequest,
  { bytes, digest }: Received,
  begun: UpstreamAnswer,
) {
  const validator = validatorOf(begun);
  const headers: Record<string, string> = { ...request.headers };
  if (validator !== undefined || digest === undefined) headers['range'] = `bytes=${bytes}-`;
  if (validator !== undefined) headers['if-range'] = validator;
  const answer = await upstream.send({ ...request, headers, answers: refusedRange });
  const starts = answer.headers['content-range']?.startsWith(`bytes ${bytes}-`) ?? false;
  if (answer.status === 206 && starts && !answer.decoded && (validatorOf(answer) ?? validator) === validator)
    return answer.body;
  if (answer.status === 200 && !answer.decoded) {
    if (bytes === 0) return answer.body;
    if (validator === undefined && digest !== undefined) return after(answer.body, bytes, digest);
  }
  answer.body.destroy();
  return undefined;
}

/** The body after its first `bytes` bytes; fails unless those have `digest`. */
function after(body: Readable, bytes: number, digest: Digest): Readable {
  const hash = startHash(algorithmOf(digest));
  let missing = bytes;
  const rest = new Transform({
    transform(piece: Buffer, _encoding, done) {
      const known = piece.subarray(0, missing);
      missing -= known.length;
      if (known.length > 0) hash.update(known);
      const isOther = known.length > 0 && missing === 0 && digestSoFar(hash, algorithmOf(digest)) !== digest;
      if (isOther) done(new OtherBody('the upstream sends a different body than before'));
      else done(null, piece.length > known.length ? piece.subarray(known.length) : undefined);
    },
  });
  // The reader gets the error; without a reader it must not end the process.
  pipeline(body, rest, () => undefined);
  return rest.on('error', () => undefined);
}

function validatorOf({ headers: { etag, 'last-modified': lastModified } }: UpstreamAnswer): string | undefined {
  return etag === undefined || etag.startsWith('W/') ? lastModified : etag;
}

/** Waits, if needed, until so many bytes of answers may be in memory. */
export type Grown = (bytes: number) => Promise<void> | undefined;

/** Any number of answers of at most so many bytes may be in memory at the same time. */
const fewBytes = 2 ** 20;
const largeTurns = new Semaphore({ max: 1 });

/**
 * Runs `work`, which reads answers of `upstream` into memory and tells `grown` how many bytes it has. Of all `work` for one `purpose`,
 * one at a time has many bytes. It must not wait for other work of the same purpose. Throws `TooManyRequests`
 * if others take too long.
 */
export async function largeInTurn<T>(
  upstream: Upstream,
  purpose: string,
  work: (grown: Grown) => Promise<T>,
): Promise<T> {
  let release: (() => void) | undefined;
  const takeTurn = async () => {
    release = await largeTurns.take(`${upstream.id} ${purpose}`, { patience: upstream.config.timeout });
    if (release) return;
    const message = `This server reads other large answers of the upstream ${upstream.name}. Try again.`;
    throw new DomainError('TooManyRequests', message, { retryAfter: 1 });
  };
  try {
    return await work((bytes) => (bytes <= fewBytes || release ? undefined : takeTurn()));
  } finally {
    release?.();
  }
}

/** The whole body of an answer of at most `limit` bytes, with its headers; undefined for an answer that is "not found". */
export async function fetchBytes(
  upstream: Upstream,
  request: UpstreamRequest,
  limit: number,
  grown: Grown,
): Promise<{ bytes: Buffer; headers: IncomingHttpHeaders } | undefined> {
  const { status, body, headers } = await upstream.send(request);
  if (status !== 200) {
    discard(body);
    if (status < 400) throw unusable(upstream, `answered ${status}`);
    return undefined;
  }
  const bytes = await readUpstreamBody(body, limit, upstream.config.timeout, grown).catch((error: unknown) => {
    if (isDomainError(error)) throw error;
    throw error instanceof Refused ? unusable(upstream, error.message, error) : upstream.bodyFailed(error, request);
  });
  return { bytes, headers };
}

/** What an upstream has done that sends no JSON; see `unusable`. */
export const notJson = 'sent a document that is not a JSON object or array';

/** `UpstreamUnavailable`, for an answer that cannot be used; `what` follows the upstream's name in the message. */
export function unusable(upstream: Upstream, what: string, cause?: unknown): UpstreamError {
  const message = `The upstream ${upstream.name} ${what}.`;
  return new UpstreamError('UpstreamUnavailable', message, { upstream: upstream.name, id: upstream.id, cause });
}
