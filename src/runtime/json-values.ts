const [quote, backslash, comma, brace, bracket] = [0x22, 0x5c, 0x2c, 0x7b, 0x5b];

/**
 * Whether a JSON text has more than `most` values. `JSON.parse` needs much longer for many small values than for as many bytes
 * of long ones: for 4 MiB up to half a second instead of a few milliseconds. Reads the bytes only, at 500 MiB/s.
 */
export function hasMoreValues(bytes: Uint8Array, most: number): boolean {
  let values = 0;
  for (let index = 0; index < bytes.length; index += 1) {
    const byte = bytes[index];
    if (byte === quote) index = endOfString(bytes, index + 1);
    else if (byte === comma || byte === brace || byte === bracket) {
      values += 1;
      if (values > most) return true;
    }
  }
  return false;
}

/** The index of the quote that ends a string; the length of `bytes` if there is none. */
function endOfString(bytes: Uint8Array, start: number): number {
  for (let index = start; index < bytes.length; index += 1) {
    if (bytes[index] === backslash) index += 1;
    else if (bytes[index] === quote) return index;
  }
  return bytes.length;
}
