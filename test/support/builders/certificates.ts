import { generateKeyPairSync, randomBytes, sign, type KeyObject } from 'node:crypto';
import { isIP } from 'node:net';

// Certificates for tests with TLS: a private certificate authority, and servers that it signs (X.509 in DER, RFC 5280).

export interface TestAuthority {
  /** The authority's certificate, PEM. */
  ca: string;
  /** A server's key and certificate for names and IPv4 addresses. */
  issue(...names: string[]): { key: string; cert: string };
}

export function createAuthority(): TestAuthority {
  const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const issuer = nameOf('Entrepot test authority');
  const ca = certificate(issuer, issuer, keys.publicKey, keys.privateKey, [
    extension('551d13', sequence(Buffer.from([1, 1, 0xff])), true),
  ]);
  return {
    ca,
    issue: (...names) => {
      const own = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const alternatives = names.map((name) =>
        isIP(name) === 4 ? der(0x87, Buffer.from(name.split('.').map(Number))) : der(0x82, Buffer.from(name)),
      );
      const subject = nameOf(names[0]!);
      const cert = certificate(subject, issuer, own.publicKey, keys.privateKey, [
        extension('551d11', sequence(...alternatives)),
      ]);
      return { key: own.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), cert };
    },
  };
}

const ecdsaWithSha256 = sequence(oid('2a8648ce3d040302'));

function certificate(
  subject: Buffer,
  issuer: Buffer,
  publicKey: KeyObject,
  signer: KeyObject,
  extensions: Buffer[],
): string {
  const day = 86_400_000;
  const body = sequence(
    der(0xa0, der(2, Buffer.from([2]))),
    der(2, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    issuer,
    sequence(time(Date.now() - day), time(Date.now() + day)),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(...extensions)),
  );
  const signature = der(3, Buffer.concat([Buffer.from([0]), sign('sha256', body, signer)]));
  const lines = sequence(body, ecdsaWithSha256, signature)
    .toString('base64')
    .match(/.{1,64}/g)!;
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}

function nameOf(commonName: string): Buffer {
  return sequence(der(0x31, sequence(oid('550403'), der(0x0c, Buffer.from(commonName)))));
}

function extension(id: string, value: Buffer, critical = false): Buffer {
  const flag = critical ? [der(1, Buffer.from([0xff]))] : [];
  return sequence(oid(id), ...flag, der(4, value));
}

function time(at: number): Buffer {
  const digits = new Date(at).toISOString().replace(/[-:T]|\.\d+/g, '');
  return der(0x17, Buffer.from(digits.slice(2)));
}

function oid(hex: string): Buffer {
  return der(6, Buffer.from(hex, 'hex'));
}

function sequence(...parts: Buffer[]): Buffer {
  return der(0x30, Buffer.concat(parts));
}

function der(tag: number, value: Buffer): Buffer {
  const { length } = value;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...size]), value]);
}
