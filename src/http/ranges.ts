import { DomainError } from '../runtime/errors.ts';

/** Inclusive byte positions. */
interface ByteRange {
  start: number;
  end: number;
}

/**
 * The single range that `header` requests from `size` bytes (RFC 9110, 14.2). Undefined means the whole content: no
 * header, another unit, malformed, or several ranges. Throws `RangeNotSatisfiable` for a range that is outside or
 * backwards.
 */
export function parseByteRange(header: string | undefined, size: number): ByteRange | undefined {
  const match = header === undefined ? null : /^bytes=\s*(\d*)-(\d*)\s*$/i.exec(header);
  if (!match || (match[1] === '' && match[2] === '')) return undefined;
  const [first, last] = match.slice(1) as [string, string];
  let start = Number(first);
  let end = last === '' ? size - 1 : Math.min(Number(last), size - 1);
  if (first === '') {
    start = Math.max(0, size - Number(last));
    end = size - 1;
  }
  // The end is inside the content, so this includes a start after the content.
  if (start > end) {
    throw new DomainError('RangeNotSatisfiable', `The range is outside the content, which has ${size} bytes.`, {
      detail: { size },
    });
  }
  return { start, end };
}
