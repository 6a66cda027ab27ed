import type { IncomingMessage } from 'node:http';
import { DomainError } from '../runtime/errors.ts';
import { whenSilent } from '../runtime/incoming.ts';
import { concatInTurns } from '../runtime/long-texts.ts';

interface BodyOptions {
  /** Most bytes of the body; more is `TooLarge`. */
  limit: number;
  /** A sender that sends nothing for this many milliseconds is `Aborted`. */
  idle: number;
}

/** Reads a small body completely. After `TooLarge` or `Aborted` the connection cannot be used again. */
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
      resolve(concatInTurns(pieces));
    };
    const fail = (error: Error) => {
      settle();
      // It still flows, without a reader.
      request.on('error', () => undefined);
      reject(error);
    };
    const broken = (cause?: Error) =>
      fail(new DomainError('Aborted', 'The connection closed before the body was complete.', { cause }));
    const stopListening = whenSilent(request, idle, fail);
    request.on('data', take).once('end', end).once('error', broken).once('close', broken);
  });
}

/** Parses `bytes`, the body of `request`, as JSON; throws `Unsupported` or `Invalid`. */
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
