import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { crc32 } from 'node:zlib';
import { S3Refusal } from './refusal.ts';
import type { SignedBody } from './signature.ts';

/** Header → bytes of the checksum, and the checksum itself. */
const checksums: Record<string, [length: number, of: (body: Buffer) => Buffer]> = {
  'x-amz-checksum-sha256': [32, (body) => createHash('sha256').update(body).digest()],
  'x-amz-checksum-sha1': [20, (body) => createHash('sha1').update(body).digest()],
  'x-amz-checksum-crc32': [4, crc32Of],
};

/** Throws the refusal of a real server if the body has another digest than its headers say. */
export function checkBody(headers: IncomingHttpHeaders, signed: SignedBody, body: Buffer): void {
  if (signed.sha256 !== undefined && createHash('sha256').update(body).digest('hex') !== signed.sha256)
    throw new S3Refusal(400, 'XAmzContentSHA256Mismatch');
  const md5 = headers['content-md5'];
  if (md5 !== undefined) compare(String(md5), 16, createHash('md5').update(body).digest(), 'InvalidDigest');
  const sent = Object.keys(headers).filter((name) => name.startsWith('x-amz-checksum-') && name in checksums);
  if (sent.length > 1) throw new S3Refusal(400, 'InvalidRequest');
  for (const name of sent) {
    const [length, of] = checksums[name]!;
    compare(String(headers[name]), length, of(body), 'InvalidRequest');
  }
}

/** The checksum of `stored` in the form of the request, for the answer to it. */
export function checksumHeaders(headers: IncomingHttpHeaders, stored: Buffer): Record<string, string> {
  const name = Object.keys(headers).find((each) => each in checksums);
  return name === undefined ? {} : { [name]: checksums[name]![1](stored).toString('base64') };
}

/** Whether the fake knows this header about checksums. It has no trailers, and none of the other algorithms. */
export function isKnownChecksum(name: string): boolean {
  return name in checksums;
}

function compare(sent: string, length: number, actual: Buffer, malformed: string): void {
  const bytes = Buffer.from(sent, 'base64');
  if (bytes.length !== length || bytes.toString('base64') !== sent) throw new S3Refusal(400, malformed);
  if (!bytes.equals(actual)) throw new S3Refusal(400, 'BadDigest');
}

function crc32Of(body: Buffer): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(crc32(body));
  return bytes;
}
