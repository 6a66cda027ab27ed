import { pause } from './event-loop.ts';
import { hasMoreValues } from './json-values.ts';

/** Bytes that are parsed at once, and that are read between two pauses. */
const step = 64 * 1024;
/** The most bytes of one item, and of everything outside of the list. */
const maxBytes = 256 * 1024;
/** The most values outside of the list. */
const maxOther = 1000;

const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a];
const [openBrace, closeBrace, openBracket, closeBracket] = [0x7b, 0x7d, 0x5b, 0x5d];

/**
 * The items of the array in the field `field` of a JSON object, or of a JSON array if `field` is undefined, some at a time, and
 * with pauses: `JSON.parse` of a long list would hold all other requests. No items if the field is not there or no array. Throws
 * `SyntaxError` if `bytes` are no JSON object or array, or if an item or the rest is too large.
 */
export async function* itemsIn(bytes: Buffer, field: string | undefined): AsyncGenerator<unknown[]> {
  const wanted = field === undefined ? undefined : Buffer.from(JSON.stringify(field));
  /** The depth inside of the list. */
  const inside = field === undefined ? 1 : 2;
  /** What is outside of the list, and where the part that is not in it yet begins. */
  const outside: Buffer[] = [];
  let from = 0;
  let isList = false;
  let depth = 0;
  let isString = false;
  /** Where the last string outside of the list begins and ends. */
  let [start, end] = [0, 0];
  let isKey = false;
  for (let index = 0; index < bytes.length; index += 1) {
    if (index % step === 0) await pause();
    const byte = bytes[index]!;
    if (isString) {
      if (byte === backslash) index += 1;
      else if (byte === quote) [isString, end] = [false, index + 1];
    } else if (byte === quote) {
      isString = true;
      if (!isList) start = index;
    } else if (byte === colon && depth === 1 && !isList) {
      isKey = wanted !== undefined && bytes.subarray(start, end).equals(wanted);
    } else if (byte === openBrace || byte === openBracket) {
      depth += 1;
      if (byte === openBracket && depth === inside && !isList && (isKey || inside === 1)) {
        isList = true;
        outside.push(bytes.subarray(from, index + 1));
        from = index + 1;
      }
    } else if (byte === closeBrace || byte === closeBracket) {
      if (isList && depth === inside) {
        yield parse(bytes, from, index);
        isList = false;
        from = index;
      }
      depth -= 1;
    } else if (byte === comma) {
      if (isList && depth === inside && index - from >= step) {
        yield parse(bytes, from, index);
        from = index + 1;
      }
      if (depth === 1) isKey = false;
    }
    if (index - from > maxBytes) throw new SyntaxError('an item or the rest of the document is too large');
  }
  outside.push(bytes.subarray(from));
  const rest = Buffer.concat(outside);
  if (isList || rest.length > maxBytes || hasMoreValues(rest, maxOther))
    throw new SyntaxError('too much beside the list');
  const value: unknown = JSON.parse(rest.toString().replace(/^\uFEFF/, ''));
  if (typeof value !== 'object' || value === null) throw new SyntaxError('neither an object nor an array');
}

function parse(bytes: Buffer, from: number, to: number): unknown[] {
  return JSON.parse(`[${bytes.toString('utf8', from, to)}]`) as unknown[];
}
