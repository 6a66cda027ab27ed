import { randomBytes } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import type { ExecutionContext } from 'ava';
import { answer, serve, startFaultyUpstream, type FaultyOptions, type FaultyUpstream } from './faulty-upstream.ts';
import { digestOf, ociManifest, type Descriptor } from '../registry.ts';

// An upstream registry whose answers can be replaced by bad ones, and which records its requests.

export interface UpstreamRegistry extends FaultyUpstream {
  /** Settings that make it the upstream `name` of a server. */
  settings(name: string, more?: Record<string, unknown>): Record<string, unknown>;
  blob(name: string, bytes: Buffer | string, mediaType?: string): Descriptor;
  /** Under its digest, and under `tag` if one is given. */
  manifest(name: string, document: string | object, tag?: string, headers?: OutgoingHttpHeaders): Descriptor;
  image(name: string, tag?: string): UpstreamImage;
  /** All requests except those for tokens, as `GET /v2/…`. */
  requests(): string[];
}

export interface UpstreamImage {
  manifest: Descriptor & { bytes: string };
  config: Descriptor;
  layer: Descriptor & { bytes: Buffer };
}

export async function startUpstreamRegistry(
  t: Pick<ExecutionContext, 'teardown'>,
  options?: FaultyOptions,
): Promise<UpstreamRegistry> {
  const upstream = await startFaultyUpstream(t, options);
  upstream.on('/v2/', answer(200));
  const blob: UpstreamRegistry['blob'] = (name, bytes, mediaType = 'application/octet-stream') => {
    const content = Buffer.from(bytes);
    const digest = digestOf(content);
    upstream.on(`/v2/${name}/blobs/${digest}`, serve(content, { headers: { 'docker-content-digest': digest } }));
    return { mediaType, digest, size: content.length };
  };
  const manifest: UpstreamRegistry['manifest'] = (name, document, tag, headers = {}) => {
    const bytes = Buffer.from(typeof document === 'string' ? document : JSON.stringify(document));
    const { mediaType = ociManifest } = JSON.parse(bytes.toString()) as { mediaType?: string };
    const digest = digestOf(bytes);
    const all = { 'content-type': mediaType, 'docker-content-digest': digest, ...headers };
    for (const reference of [digest, ...(tag === undefined ? [] : [tag])]) {
      upstream.on(`/v2/${name}/manifests/${reference}`, answer(200, all, bytes));
    }
    return { mediaType, digest, size: bytes.length };
  };
  return {
    ...upstream,
    settings: (name, more = {}) => ({
      name,
      kind: 'registry',
      url: upstream.url.href,
      allowPrivateNetwork: true,
      timeout: '60s',
      ...more,
    }),
    blob,
    manifest,
    image: (name, tag) => {
      const bytes = randomBytes(200_000);
      const config = blob(name, JSON.stringify({ architecture: 'amd64', id: randomBytes(8).toString('hex') }));
      const layer = blob(name, bytes, 'application/vnd.oci.image.layer.v1.tar');
      // Bytes that a JSON serializer would not write.
      const text = JSON.stringify({ schemaVersion: 2, mediaType: ociManifest, config, layers: [layer] }, undefined, 3);
      return { manifest: { ...manifest(name, text, tag), bytes: text }, config, layer: { ...layer, bytes } };
    },
    requests: () =>
      upstream.asked.filter(({ path }) => path.startsWith('/v2/')).map(({ method, path }) => `${method} ${path}`),
  };
}
