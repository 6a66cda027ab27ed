import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { S3Refusal } from './refusal.ts';

// AWS Signature Version 4, as a server checks it: in the header `Authorization`, and in the query of a signed URL.

export interface Keys {
  region: string;
  /** Access key → secret. */
  secrets: Map<string, string>;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

/** The digest of the body that the signature names; undefined if the body is not signed. */
export type SignedBody = { sha256: string | undefined };

interface Claim {
  accessKeyId: string;
  /** `20261123/us-east-1/s3/aws4_request` */
  scope: string;
  /** `20261123T120000Z` */
  time: string;
  signedHeaders: string[];
  signature: string;
  /** As it is in the canonical request. */
  payload: string;
}

/** The greatest difference of the clocks of client and server, and the longest validity of a URL; ms. */
const mostSkew = 15 * 60_000;
const longestUrl = 7 * 86_400_000;

/** Throws the refusal of a real server unless the request is signed with a known key. */
export function checkSignature(request: IncomingMessage, url: URL, keys: Keys): SignedBody {
  const inQuery = url.searchParams.has('X-Amz-Signature');
  const inHeader = request.headers.authorization !== undefined;
  if (inQuery && inHeader) throw new S3Refusal(400, 'InvalidArgument');
  if (!inQuery && !inHeader) throw new S3Refusal(403, 'AccessDenied');
  const claim = inQuery ? queryClaim(url.searchParams) : headerClaim(request);
  const [day, region, service, end] = claim.scope.split('/');
  const malformed = inQuery ? 'AuthorizationQueryParametersError' : 'AuthorizationHeaderMalformed';
  if (region !== keys.region || service !== 's3' || end !== 'aws4_request' || day !== claim.time.slice(0, 8))
    throw new S3Refusal(400, malformed);
  const secret = keys.secrets.get(claim.accessKeyId);
  if (secret === undefined) throw new S3Refusal(403, 'InvalidAccessKeyId');
  checkTime(claim, inQuery ? url.searchParams : undefined, keys.now());
  checkSignedHeaders(request, claim);
  const expected = Buffer.from(signatureOf(request, url, claim, secret));
  const given = Buffer.from(claim.signature);
  if (expected.length !== given.length || !timingSafeEqual(expected, given))
    throw new S3Refusal(403, 'SignatureDoesNotMatch');
  return { sha256: claim.payload === 'UNSIGNED-PAYLOAD' ? undefined : claim.payload };
}

function headerClaim(request: IncomingMessage): Claim {
  const fields =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$/.exec(
      request.headers.authorization!,
    );
  if (!fields) throw new S3Refusal(400, 'AuthorizationHeaderMalformed');
  const [, accessKeyId, scope, signedHeaders, signature] = fields;
  const payload = request.headers['x-amz-content-sha256'];
  if (payload === undefined) throw new S3Refusal(400, 'InvalidRequest');
  // The product sends no body in signed pieces.
  if (String(payload).startsWith('STREAMING-')) throw new S3Refusal(501, 'NotImplemented');
  if (payload !== 'UNSIGNED-PAYLOAD' && !/^[0-9a-f]{64}$/.test(String(payload)))
    throw new S3Refusal(400, 'InvalidArgument');
  const time = String(request.headers['x-amz-date'] ?? '');
  return {
    accessKeyId: accessKeyId!,
    scope: scope!,
    time,
    signedHeaders: signedHeaders!.split(';'),
    signature: signature!,
    payload: String(payload),
  };
}

function queryClaim(query: URLSearchParams): Claim {
  const [accessKeyId = '', ...scope] = (query.get('X-Amz-Credential') ?? '').split('/');
  const expires = query.get('X-Amz-Expires') ?? '';
  const isWhole = /^[1-9]\d*$/.test(expires) && Number(expires) * 1000 <= longestUrl;
  if (query.get('X-Amz-Algorithm') !== 'AWS4-HMAC-SHA256' || !isWhole)
    throw new S3Refusal(400, 'AuthorizationQueryParametersError');
  return {
    accessKeyId,
    scope: scope.join('/'),
    time: query.get('X-Amz-Date') ?? '',
    signedHeaders: (query.get('X-Amz-SignedHeaders') ?? '').split(';'),
    signature: query.get('X-Amz-Signature')!,
    payload: 'UNSIGNED-PAYLOAD',
  };
}

function checkTime({ time }: Claim, query: URLSearchParams | undefined, now: number): void {
  const [, ...parts] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(time) ?? [];
  const [year, month, day, hour, minute, second] = parts;
  const signedAt = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  if (Number.isNaN(signedAt)) throw new S3Refusal(403, 'AccessDenied');
  if (!query) {
    if (Math.abs(now - signedAt) > mostSkew) throw new S3Refusal(403, 'RequestTimeTooSkewed');
  } else if (signedAt - now > mostSkew || now >= signedAt + Number(query.get('X-Amz-Expires')) * 1000)
    throw new S3Refusal(403, 'AccessDenied');
}

/** All headers with a meaning for S3 must be signed. */
function checkSignedHeaders({ headers }: IncomingMessage, { signedHeaders }: Claim): void {
  const needed = ['host', ...Object.keys(headers).filter((name) => name.startsWith('x-amz-'))];
  if (needed.some((name) => !signedHeaders.includes(name))) throw new S3Refusal(403, 'AccessDenied');
}

function signatureOf(request: IncomingMessage, url: URL, claim: Claim, secret: string): string {
  const [path] = request.url!.split('?', 1);
  const query = [...url.searchParams]
    .filter(([name]) => name !== 'X-Amz-Signature')
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .sort()
    .join('&');
  const headers = claim.signedHeaders.map((name) => `${name}:${String(request.headers[name] ?? '').trim()}\n`).join('');
  const canonicalPath = path!
    .split('/')
    .map((segment) => encoded(decodeURIComponent(segment)))
    .join('/');
  const parts = [request.method, canonicalPath, query, headers, claim.signedHeaders.join(';'), claim.payload];
  const digest = createHash('sha256').update(parts.join('\n')).digest('hex');
  let key: Buffer | string = `AWS4${secret}`;
  for (const part of claim.scope.split('/')) key = hmac(key, part);
  return hmac(key, `AWS4-HMAC-SHA256\n${claim.time}\n${claim.scope}\n${digest}`).toString('hex');
}

function hmac(key: Buffer | string, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

/** RFC 3986, 2.3: all but unreserved characters. */
function encoded(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}
