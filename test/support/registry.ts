import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import type { TestServer } from './server.ts';

// Requests of the registry's protocol, without a real client.

export const ociManifest = 'application/vnd.oci.image.manifest.v1+json';
export const ociIndex = 'application/vnd.oci.image.index.v1+json';
export const dockerManifest = 'application/vnd.docker.distribution.manifest.v2+json';
export const dockerList = 'application/vnd.docker.distribution.manifest.list.v2+json';

export interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
  urls?: string[];
  artifactType?: string;
  annotations?: Record<string, string>;
}

export interface Manifest extends Record<string, unknown> {
  schemaVersion: number;
  mediaType?: string;
}

export function digestOf(bytes: Buffer | string, algorithm = 'sha256'): string {
  return `${algorithm}:${createHash(algorithm).update(bytes).digest('hex')}`;
}

/** A repository of a test server, as the bearer of `token` sees it. */
export class TestRepository {
  readonly server: TestServer;
  readonly name: string;
  readonly token: string | undefined;

  constructor(server: TestServer, name: string, token?: string) {
    this.server = server;
    this.name = name;
    this.token = token;
  }

  /** `path` within the repository, or an absolute path such as a Location. */
  fetch(path: string, init: RequestInit & { duplex?: 'half' } = {}): Promise<Response> {
    const whole = path.startsWith('/') ? path : `/v2/${this.name}/${path}`;
    return this.server.fetch(whole, { ...init, ...(this.token !== undefined && { token: this.token }) });
  }

  /** Pushes a blob in one request. */
  async blob(bytes: Buffer | string, mediaType = 'application/octet-stream'): Promise<Descriptor> {
    const digest = digestOf(bytes);
    const response = await this.fetch(`blobs/uploads/?digest=${digest}`, {
      method: 'POST',
      body: bytes as RequestInit['body'],
    });
    if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
    return { mediaType, digest, size: Buffer.byteLength(bytes) };
  }

  /** Starts an upload session; resolves to its Location. */
  async start(query = ''): Promise<string> {
    const response = await this.fetch(`blobs/uploads/${query}`, { method: 'POST' });
    if (response.status !== 202) throw new Error(`${response.status} ${await response.text()}`);
    return response.headers.get('location')!;
  }

  put(reference: string, manifest: Manifest | string | Buffer, type?: string): Promise<Response> {
    const raw = typeof manifest === 'string' || Buffer.isBuffer(manifest);
    const contentType = type ?? (raw ? ociManifest : (manifest.mediaType ?? ociManifest));
    const body = (raw ? manifest : JSON.stringify(manifest)) as RequestInit['body'];
    return this.fetch(`manifests/${reference}`, { method: 'PUT', headers: { 'content-type': contentType }, body });
  }

  /** Pushes a small image with its blobs; `more` is added to its manifest. */
  async image(reference: string, more: Record<string, unknown> = {}): Promise<Descriptor & { bytes: string }> {
    const manifest = await this.manifest(more);
    const bytes = JSON.stringify(manifest);
    const response = await this.put(reference, bytes, manifest.mediaType);
    if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
    return { mediaType: manifest.mediaType!, digest: digestOf(bytes), size: Buffer.byteLength(bytes), bytes };
  }

  /** Pushes a small manifest that refers to another one, as a signature does. */
  async attach({ mediaType, digest, size }: Descriptor): Promise<Descriptor> {
    const manifest = await this.manifest({ artifactType: 'application/test', subject: { mediaType, digest, size } });
    const bytes = JSON.stringify(manifest);
    const attached = { mediaType: manifest.mediaType!, digest: digestOf(bytes), size: Buffer.byteLength(bytes) };
    const response = await this.put(attached.digest, bytes, attached.mediaType);
    if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
    return attached;
  }

  /** The manifest of a small image whose blobs have been pushed. */
  async manifest(more: Record<string, unknown> = {}): Promise<Manifest> {
    const config = await this.blob('{}', 'application/vnd.oci.empty.v1+json');
    const layer = await this.blob(randomBytes(100), 'application/vnd.oci.image.layer.v1.tar');
    return { schemaVersion: 2, mediaType: ociManifest, config, layers: [layer], ...more };
  }
}

/** Pushes an image for two platforms with a document that refers to it. */
export async function signedIndex(repository: TestRepository, tag: string): Promise<{ index: string; sbom: string }> {
  const children = [await repository.image('amd64'), await repository.image('arm64')];
  const manifests = children.map(({ mediaType, digest, size }) => ({ mediaType, digest, size }));
  const index = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests });
  const subject = { mediaType: ociIndex, digest: digestOf(index), size: index.length };
  const sbom = JSON.stringify(await repository.manifest({ artifactType: 'application/spdx+json', subject }));
  for (const [reference, bytes, type] of [
    [tag, index, ociIndex],
    [digestOf(sbom), sbom, ociManifest],
  ] as const) {
    const response = await repository.put(reference, bytes, type);
    if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
  }
  return { index, sbom };
}

/** Pushes an index of one image, which has no tag itself; resolves to that image. */
export async function platformImage(repository: TestRepository, tag: string): Promise<Descriptor> {
  const { mediaType, digest, size } = await repository.image('platform');
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [{ mediaType, digest, size }] };
  const pushed = await repository.put(tag, index);
  const untagged = await repository.fetch('manifests/platform', { method: 'DELETE' });
  if (pushed.status !== 201 || untagged.status !== 202) throw new Error(`${pushed.status} ${untagged.status}`);
  return { mediaType, digest, size };
}

/** The status and the codes of an error answer. */
export async function errorOf(response: Response): Promise<[number, ...string[]]> {
  const { errors } = (await response.json()) as { errors: { code: string; message: string }[] };
  if (!errors.every(({ message }) => message.length > 10)) throw new Error('an error without a message');
  return [response.status, ...errors.map(({ code }) => code)];
}

/** A request whose body the test writes, and may cut. */
export function openRequest(
  server: TestServer,
  method: string,
  path: string,
  headers: Record<string, string | number> = {},
): ClientRequest {
  const authorization = `Bearer ${server.token}`;
  const request = httpRequest(server.url + path, { method, agent: false, headers: { authorization, ...headers } });
  request.on('error', () => undefined);
  return request;
}

/** The answer to an `openRequest`, its body read. */
export async function answerOf(request: ClientRequest): Promise<{ status: number; response: IncomingMessage }> {
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.resume();
  await once(response, 'end');
  return { status: response.statusCode!, response };
}
