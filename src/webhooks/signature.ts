import { createHmac, randomBytes } from 'node:crypto';

const prefix = 'whsec_';

/** A new secret of Standard Webhooks: 256 random bits in Base64. */
export function newSecret(): string {
  return prefix + randomBytes(32).toString('base64');
}

/** The header `webhook-signature` of Standard Webhooks 1.0: one signature for each secret, separated by spaces. */
export function signatureOf(secrets: readonly string[], id: string, seconds: number, body: Buffer): string {
  return secrets
    .map((secret) => {
      const hmac = createHmac('sha256', Buffer.from(secret.slice(prefix.length), 'base64'));
      return `v1,${hmac.update(`${id}.${seconds}.`).update(body).digest('base64')}`;
    })
    .join(' ');
}

/** The headers of a delivery without its signature. `time` is in milliseconds since 1970. */
export function headersOf(id: string, time: number): Record<string, string> {
  return {
    'content-type': 'application/cloudevents+json',
    'user-agent': 'entrepot',
    'webhook-id': id,
    'webhook-timestamp': String(secondsOf(time)),
  };
}

export function secondsOf(time: number): number {
  return Math.floor(time / 1000);
}
