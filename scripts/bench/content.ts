import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { finished } from 'node:stream/promises';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { mediaTypes } from '../../src/oci/format/manifest.ts';
import { makeNupkg, type NupkgOptions } from '../../test/support/builders/nupkg.ts';
import type { Peer } from './processes.ts';

/** A descriptor of a blob, as in a manifest. */
interface Described {
  mediaType: string;
  digest: Digest;
  size: number;
}

/** A pushed image. */
export interface PushedImage {
  /** The exact bytes of the manifest. */
  bytes: Buffer;
  type: string;
  layer: Buffer;
  manifest: Described;
  parts: Described[];
}

/** Pushes bytes as a blob; resolves to its digest. */
export async function putBlob(peer: Peer, repository: string, blob: Buffer): Promise<Digest> {
  const digest = digestOf(blob);
  await upload(peer, repository, digest, [blob]);
  return digest;
}

/** Pushes bytes with a known digest, as container clients do. `fetch` is not used, because it copies the bytes. */
export async function upload(peer: Peer, repository: string, digest: Digest, pieces: readonly Buffer[]): Promise<void> {
  const opened = await send(peer, 'POST', new URL(`/v2/${repository}/blobs/uploads/`, peer.url));
  if (opened.statusCode !== 202) throw new Error(`${peer.name} answered the start of a push with ${opened.statusCode}`);
  const location = new URL(opened.headers.location!, peer.url);
  location.searchParams.set('digest', digest);
  const done = await send(peer, 'PUT', location, pieces);
  if (done.statusCode !== 201) throw new Error(`${peer.name} answered a push with ${done.statusCode}`);
}

async function send(peer: Peer, method: string, url: URL, pieces: readonly Buffer[] = []): Promise<IncomingMessage> {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const headers = { ...peer.headers, 'Content-Type': 'application/octet-stream', 'Content-Length': length };
  const asked = request(url, { method, headers });
  for (const piece of pieces) asked.write(piece);
  const [response] = (await once(asked.end(), 'response')) as [IncomingMessage];
  await finished(response.resume());
  return response;
}

/** Pushes an image with one layer as the tag `v1`; `digest` saves the time to compute that of the layer. */
export async function pushImage(
  peer: Peer,
  repository: string,
  layer: Buffer = randomBytes(1024),
  digest = digestOf(layer),
): Promise<PushedImage> {
  const config = Buffer.from('{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}');
  const type = mediaTypes.image;
  const parts = [
    describe('application/vnd.oci.image.config.v1+json', config),
    { mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', digest, size: layer.length },
  ];
  await putBlob(peer, repository, config);
  await upload(peer, repository, digest, [layer]);
  const bytes = Buffer.from(
    JSON.stringify({ schemaVersion: 2, mediaType: type, config: parts[0], layers: parts.slice(1) }),
  );
  const put = await fetch(`${peer.url}/v2/${repository}/manifests/v1`, {
    method: 'PUT',
    headers: { ...peer.headers, 'content-type': type },
    body: new Uint8Array(bytes),
  });
  if (put.status !== 201) throw new Error(`${peer.name} answered a manifest with ${put.status}`);
  return { bytes, type, layer, manifest: describe(type, bytes), parts };
}

/** Pushes a package that is built from `options`; resolves to its bytes. */
export async function pushPackage(peer: Peer, options: NupkgOptions): Promise<Buffer> {
  const nupkg = await makeNupkg(options);
  const form = new FormData();
  form.append('package', new Blob([new Uint8Array(nupkg)]), 'package.nupkg');
  const pushed = await fetch(`${peer.url}/v3/push`, { method: 'PUT', headers: peer.headers, body: form });
  if (pushed.status !== 201) throw new Error(`a push was answered with ${pushed.status}: ${await pushed.text()}`);
  return nupkg;
}

function describe(mediaType: string, blob: Buffer): Described {
  return { mediaType, digest: digestOf(blob), size: blob.length };
}
