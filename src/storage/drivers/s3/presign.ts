import { createHash, createHmac } from 'node:crypto';

/** What a signed URL names. */
interface Presigned {
  /** URL of the S3 server as clients reach it; the signature is only valid for this host. */
  endpoint: string;
  forcePathStyle: boolean;
  region: string;
  bucket: string;
  key: string;
  credentials: { accessKeyId: string; secretAccessKey: string; sessionToken?: string | undefined };
  /** Seconds. */
  expires: number;
  /** Milliseconds since 1970 UTC. */
  now: number;
}

/**
 * A URL with which everyone can GET one object until it expires; a HEAD, or another host, needs another signature (AWS Signature
 * Version 4, "Authenticating Requests: Using Query Parameters").
 */
export function presign(options: Presigned): string {
  const { region, bucket, key, credentials, expires, now } = options;
  const { origin, host, path } = addressOf(options);
  const time = `${new Date(now).toISOString().slice(0, 19).replaceAll(/[-:]/g, '')}Z`;
  const scope = `${time.slice(0, 8)}/${region}/s3/aws4_request`;
  const parameters: [string, string][] = [
    ['X-Amz-Algorithm', 'AWS4-HMAC-SHA256'],
    ['X-Amz-Credential', `${credentials.accessKeyId}/${scope}`],
    ['X-Amz-Date', time],
    ['X-Amz-Expires', String(expires)],
    ...(credentials.sessionToken === undefined
      ? []
      : [['X-Amz-Security-Token', credentials.sessionToken] satisfies [string, string]]),
    ['X-Amz-SignedHeaders', 'host'],
  ];
  const query = parameters.map(([name, value]) => `${name}=${encoded(value)}`).join('&');
  const whole = `${path}/${options.forcePathStyle ? `${encoded(bucket)}/` : ''}${key.split('/').map(encoded).join('/')}`;
  const request = ['GET', whole, query, `host:${host}`, '', 'host', 'UNSIGNED-PAYLOAD'].join('\n');
  const toSign = ['AWS4-HMAC-SHA256', time, scope, createHash('sha256').update(request).digest('hex')].join('\n');
  let signing: Buffer | string = `AWS4${credentials.secretAccessKey}`;
  for (const part of scope.split('/')) signing = hmac(signing, part);
  return `${origin}${whole}?${query}&X-Amz-Signature=${hmac(signing, toSign).toString('hex')}`;
}

/** The host that serves the bucket, and the path before it. */
function addressOf({ endpoint, forcePathStyle, bucket }: Presigned): { origin: string; host: string; path: string } {
  const url = new URL(endpoint);
  const host = forcePathStyle ? url.host : `${bucket}.${url.host}`;
  return { origin: `${url.protocol}//${host}`, host, path: url.pathname.replace(/\/+$/, '') };
}

/** RFC 3986, 2.3: all but unreserved characters. */
function encoded(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`);
}

function hmac(key: Buffer | string, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
