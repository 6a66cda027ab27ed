import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const randomLength = 30;
const checksumLength = 6;
const valueFormat = new RegExp(`^ent_[0-9A-Za-z]{${randomLength + checksumLength}}$`);

/** Characters of a token that are stored. */
export const prefixLength = 8;

/** A new token: `ent_`, 30 random base-62 characters (178 bits), and a checksum of 6 characters. */
export function newTokenValue(): string {
  let random = '';
  while (random.length < randomLength) {
    for (const byte of randomBytes(randomLength)) {
      // 248 = 4 × 62. With larger bytes, the remainder would favour some characters.
      if (byte < 248 && random.length < randomLength) random += alphabet[byte % 62];
    }
  }
  return `ent_${random}${checksum(`ent_${random}`)}`;
}

/** Whether `value` has the format of a token but a wrong checksum: a typing error, or an incomplete copy. */
export function isMistyped(value: string): boolean {
  return valueFormat.test(value) && !value.endsWith(checksum(value.slice(0, -checksumLength)));
}

/** The SHA-256 that is stored instead of the token. */
export function hashToken(value: string): string {
  return hash('sha256', value);
}

/** The start of a token: enough to recognise it, not enough to use it. Empty for a chosen value, which may be short. */
export function prefixOf(value: string): string {
  return valueFormat.test(value) ? value.slice(0, prefixLength) : '';
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
