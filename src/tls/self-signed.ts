import { generateKeyPairSync, randomBytes, sign, type KeyObject } from 'node:crypto';
import { isIP } from 'node:net';
import { der, extension, flag, integer, name, oid, pem, sequence, utcTime } from './der.ts';

/** All as PEM. */
interface SelfSigned {
  /** The authority that clients must trust. Its private key is not kept, so it can never sign another certificate. */
  ca: string;
  /** The server's certificate, and the authority's after it. */
  cert: string;
  /** The server's private key. */
  key: string;
}

const day = 86_400_000;
/** An hour earlier, for clients whose clocks are behind; milliseconds. */
const backdated = 3_600_000;
const ecdsaWithSha256 = sequence(oid('2a8648ce3d040302'));
const ids = {
  subjectKey: '551d0e',
  keyUsage: '551d0f',
  alternativeNames: '551d11',
  basicConstraints: '551d13',
  authorityKey: '551d23',
  extendedKeyUsage: '551d25',
};
const serverAuthentication = oid('2b06010505070301');

/**
 * A certificate for these DNS names and IP addresses, signed by a new authority (X.509, RFC 5280). Both are valid for `days`
 * from `now`, milliseconds since 1970 UTC. The keys are ECDSA P-256.
 */
export function createSelfSigned(hosts: readonly string[], days: number, now: number): SelfSigned {
  const [authority, server] = [newKeys(), newKeys()];
  // Different in each run, so that clients that trust an older one do not confuse them.
  const issuer = name(`Entrepot trial authority ${randomBytes(4).toString('hex')}`);
  const validity = sequence(utcTime(now - backdated), utcTime(now + days * day));
  const keyId = randomBytes(20);
  const common = { issuer, validity, signer: authority.privateKey };
  const ca = certificate({
    ...common,
    subject: issuer,
    publicKey: authority.publicKey,
    extensions: [
      extension(ids.basicConstraints, sequence(flag(true)), true),
      // keyCertSign
      extension(ids.keyUsage, der(3, Buffer.from([2, 0x04])), true),
      extension(ids.subjectKey, der(4, keyId)),
    ],
  });
  const cert = certificate({
    ...common,
    // A longer common name is not allowed, and clients read only the alternative names.
    subject: name(hosts.find(({ length }) => length <= 64) ?? 'Entrepot'),
    publicKey: server.publicKey,
    extensions: [
      extension(ids.basicConstraints, sequence(), true),
      // digitalSignature
      extension(ids.keyUsage, der(3, Buffer.from([7, 0x80])), true),
      extension(ids.authorityKey, sequence(der(0x80, keyId))),
      extension(ids.extendedKeyUsage, sequence(serverAuthentication)),
      extension(ids.alternativeNames, sequence(...hosts.map(alternativeName))),
    ],
  });
  return { ca, cert: cert + ca, key: server.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
}

function newKeys(): { publicKey: KeyObject; privateKey: KeyObject } {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' });
}

interface Contents {
  subject: Buffer;
  issuer: Buffer;
  validity: Buffer;
  publicKey: KeyObject;
  signer: KeyObject;
  extensions: Buffer[];
}

/** RFC 5280, 4.1. */
function certificate({ subject, issuer, validity, publicKey, signer, extensions }: Contents): string {
  const version3 = der(0xa0, integer(Buffer.from([2])));
  // A first byte that is not 0 keeps the number positive and in its shortest form.
  const serial = integer(Buffer.concat([Buffer.from([1]), randomBytes(15)]));
  const spki = publicKey.export({ type: 'spki', format: 'der' });
  const listed = der(0xa3, sequence(...extensions));
  const body = sequence(version3, serial, ecdsaWithSha256, issuer, validity, subject, spki, listed);
  const signature = der(3, Buffer.concat([Buffer.from([0]), sign('sha256', body, signer)]));
  return pem('CERTIFICATE', sequence(body, ecdsaWithSha256, signature));
}

/** GeneralName of RFC 5280, 4.2.1.6: dNSName or iPAddress. */
function alternativeName(host: string): Buffer {
  return isIP(host) === 0 ? der(0x82, Buffer.from(host)) : der(0x87, addressBytes(host));
}

const groups = (text: string) => text.split(':').filter((group) => group !== '');

function addressBytes(address: string): Buffer {
  if (isIP(address) === 4) return Buffer.from(address.split('.').map(Number));
  // A URL has the eight groups in hexadecimal digits, with at most one `::` (RFC 5952).
  const [head = '', tail = ''] = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::');
  const [first, last] = [groups(head), groups(tail)];
  const zeros = Array.from({ length: 8 - first.length - last.length }, () => '0');
  const all = [...first, ...zeros, ...last].map((group) => Number.parseInt(group, 16));
  return Buffer.from(all.flatMap((group) => [group >> 8, group & 0xff]));
}
