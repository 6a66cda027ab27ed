import type { IncomingMessage } from 'node:http';
import { DomainError } from '../errors.ts';
import { whenSilent } from '../incoming.ts';

export interface BodyOptions {
  /** Bytes the body may have; more is `TooLarge`. */
  limit: number;
  /** A sender that is silent for so many milliseconds is given up; `Aborted`. */
  idle: number;
}

/** A small body, whole. After `TooLarge` or `Aborted` the connection is of no further use. */
export function readBody(request: IncomingMessage, { limit, idle }: BodyOptions): Promise<Buffer> {
  const tooLarge = () => new DomainError('TooLarge', `The body is larger than the ${limit} bytes allowed here.`);
  if (Number(request.headers['content-length'] ?? 0) > limit) return Promise.reject(tooLarge());
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    let length = 0;
    const take = (piece: Buffer) => {
      length += piece.length;
      if (length > limit) fail(tooLarge());
      else pieces.push(piece);
    };
    const settle = () => {
      stopListening();
      request.off('data', take).off('end', end).off('error', broken).off('close', broken);
    };
    const end = () => {
      settle();
      resolve(Buffer.concat(pieces));
    };
    const fail = (error: Error) => {
      settle();
      request.on('error', () => undefined);
      request.resume();
      reject(error);
    };
    const broken = (cause?: Error) =>
      fail(new DomainError('Aborted', 'The connection closed before the body was complete.', { cause }));
    const stopListening = whenSilent(request, idle, fail);
    request.on('data', take).once('end', end).once('error', broken).once('close', broken);
  });
}

/** The JSON document that `bytes`, the body of `request`, are; `Unsupported` or `Invalid` when they are none. */
export function parseJson(request: IncomingMessage, bytes: Buffer): unknown {
  if (!/^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i.test(request.headers['content-type'] ?? '')) {
    throw new DomainError('Unsupported', 'Send the body as JSON, with Content-Type: application/json.');
  }
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw new DomainError('Invalid', 'The body is not valid JSON in UTF-8.', { cause: error });
  }
}
