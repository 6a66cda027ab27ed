import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const randomLength = 30;
const checksumLength = 6;
const shape = new RegExp(`^ent_[0-9A-Za-z]{${randomLength + checksumLength}}$`);

/** A new token: `ent_`, 30 random base-62 characters (178 bits), and their checksum in 6. */
export function newTokenValue(): string {
  let random = '';
  while (random.length < randomLength) {
    for (const byte of randomBytes(randomLength)) {
      // 248 = 4 × 62: beyond it a remainder would favour some characters.
      if (byte < 248 && random.length < randomLength) random += alphabet[byte % 62];
    }
  }
  return `ent_${random}${checksum(`ent_${random}`)}`;
}

/** Whether `value` has a token's shape but not its checksum: a typing error or a cut-off paste. */
export function isMistyped(value: string): boolean {
  return shape.test(value) && !value.endsWith(checksum(value.slice(0, -checksumLength)));
}

/** What is stored of a token. */
export function hashToken(value: string): string {
  return hash('sha256', value);
}

/** Enough of a token to recognise it by, too little to use it. */
export function prefixOf(value: string): string {
  return value.slice(0, 8);
}

function checksum(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let index = 0; index < checksumLength; index += 1) {
    digits = alphabet[rest % 62] + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}
