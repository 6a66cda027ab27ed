import { pipeline, type Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { concatInTurns } from '../runtime/long-texts.ts';
import { Refused, timedOut } from './failures.ts';

const nearEnd = 64 * 1024;
const decoders = new Map([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['deflate', createInflate],
  ['br', createBrotliDecompress],
]);

/**
 * Decodes a content coding, whether it was requested or not (RFC 9110, 8.4.1). Undefined for a body without one. Throws
 * `Refused` for an unknown coding.
 */
export function decode(body: Readable, coding: string | undefined): Readable | undefined {
  const name = coding?.trim().toLowerCase() ?? '';
  if (name === '' || name === 'identity') return undefined;
  const decoder = decoders.get(name)?.();
  if (!decoder) {
    body.destroy();
    throw new Refused(`uses the content coding ${name.slice(0, 40)}, which was not requested`);
  }
  pipeline(body, decoder, () => undefined);
  return decoder;
}

/** Drops a body that has no reader. A short rest is read to its end, so that the connection can be used again. */
export function discard(body: Readable): void {
  let size = 0;
  const timer = setTimeout(() => body.destroy(), 1000);
  body.on('error', () => undefined);
  body.once('close', () => clearTimeout(timer));
  body.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size > nearEnd) body.destroy();
  });
}

/**
 * The whole of a small body. Rejects if it is cut, larger than `limit` bytes, or not complete in `timeout` milliseconds. More of it is
 * read only when what `grown` returns for the bytes so far resolves; then it has `timeout` again.
 */
export async function readUpstreamBody(
  body: Readable,
  limit: number,
  timeout: number,
  grown?: (bytes: number) => Promise<void> | undefined,
): Promise<Buffer> {
  const start = () => setTimeout(() => body.destroy(timedOut('the body did not come in time')), timeout);
  let timer = start();
  try {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of body as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > limit) throw new Refused(`sends more than the limit of ${limit} bytes`);
      chunks.push(chunk);
      const wait = grown?.(size);
      if (!wait) continue;
      clearTimeout(timer);
      await wait;
      timer = start();
    }
    return await concatInTurns(chunks);
  } finally {
    clearTimeout(timer);
  }
}
