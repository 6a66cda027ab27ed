import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { buffer } from 'node:stream/consumers';
import type { ExecutionContext } from 'ava';
import { packageForm } from './feed.ts';
import type { Serving } from './processes/command.ts';
import type { Receiver } from './receiver.ts';
import { digestOf, ociManifest } from './registry.ts';
import { firstToken, type Installation } from './sizes.ts';
import { within } from './until.ts';
import type { UpstreamFeed } from './upstreams/upstream-feed.ts';
import type { UpstreamImage, UpstreamRegistry } from './upstreams/upstream-registry.ts';

interface Sent {
  token?: string;
  method?: string;
  headers?: Record<string, string>;
  body?: Buffer | string;
}

interface Surroundings {
  feed: UpstreamFeed;
  registry: UpstreamRegistry;
  image: UpstreamImage;
  receiver: Receiver;
}

/** The running instances of a combination, and what they talk to. */
export class SizeUnderTest implements Surroundings {
  readonly t: ExecutionContext;
  readonly installation: Installation;
  readonly feed: UpstreamFeed;
  readonly registry: UpstreamRegistry;
  readonly image: UpstreamImage;
  readonly receiver: Receiver;
  revoked = '';
  webhookSecret = '';

  constructor(t: ExecutionContext, installation: Installation, surroundings: Surroundings) {
    this.t = t;
    this.installation = installation;
    this.feed = surroundings.feed;
    this.registry = surroundings.registry;
    this.image = surroundings.image;
    this.receiver = surroundings.receiver;
  }

  get first(): Serving {
    return this.installation.servers[0]!;
  }

  /** Another instance than `first`, if there is one. */
  get other(): Serving {
    return this.installation.servers.at(-1)!;
  }

  /** On a new connection, which the system gives to any worker of the instance. */
  async send({ url }: Serving, path: string, { token = firstToken, headers, ...init }: Sent = {}): Promise<Response> {
    const { method = 'GET', body = '' } = init;
    const length = { 'content-length': Buffer.byteLength(body) };
    const all = { authorization: `Bearer ${token}`, ...(method !== 'GET' && length), ...headers };
    const request = httpRequest(url + path, { method, agent: false, headers: all }).end(body);
    const [answer] = (await within(once(request, 'response'), 120_000)) as [IncomingMessage];
    const status = answer.statusCode!;
    const received = await within(buffer(answer), 120_000);
    const shown = Object.entries(answer.headers).map(([name, value]): [string, string] => [name, String(value)]);
    return new Response(status === 204 ? null : new Uint8Array(received), { status, headers: shown });
  }

  json(server: Serving, method: string, path: string, body?: unknown): Promise<Response> {
    const headers = { 'content-type': 'application/json' };
    return this.send(server, path, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) });
  }

  /** The answers of each instance. Of two workers, one alone gets four requests in one of eight cases. */
  async everywhere(path: string, init: Sent = {}): Promise<Response[]> {
    const { servers, size } = this.installation;
    const requests = size.workers === 1 ? 1 : 4;
    const asked = servers.flatMap((server) => Array<Serving>(requests).fill(server));
    return Promise.all(asked.map((server) => this.send(server, path, init)));
  }

  /** Everything answers with this status. */
  async answers(status: number, path: string, init: Sent = {}): Promise<void> {
    for (const answer of await this.everywhere(path, init)) {
      const text = await answer.text();
      this.t.is(answer.status, status, `${path}: ${text}`);
    }
  }

  /** Everything sends these bytes. */
  async sends(bytes: Buffer | string, path: string, init: Sent = {}, status = 200): Promise<void> {
    for (const answer of await this.everywhere(path, init)) {
      this.t.is(answer.status, status, path);
      this.t.true(Buffer.from(bytes).equals(Buffer.from(await answer.arrayBuffer())), path);
    }
  }

  push(server: Serving, nupkg: Buffer): Promise<Response> {
    const { body, type } = packageForm(nupkg);
    return this.send(server, '/v3/push', {
      method: 'PUT',
      headers: { 'content-type': type },
      body,
    });
  }

  /** Uploads a blob by a session; each request goes to the next server. */
  async upload(name: string, bytes: Buffer, servers: readonly Serving[]): Promise<void> {
    const { t } = this;
    const at = (index: number) => servers[index % servers.length]!;
    const begun = await this.send(at(0), `/v2/${name}/blobs/uploads/`, { method: 'POST' });
    t.is(begun.status, 202);
    const place = new URL(begun.headers.get('location')!, at(0).url);
    const path = place.pathname + place.search;
    const half = bytes.length / 2;
    const part = (from: number, to: number) => ({ method: 'PATCH', body: bytes.subarray(from, to) });
    t.is((await this.send(at(1), path, part(0, half))).status, 202);
    t.is((await this.send(at(2), path, part(half, bytes.length))).status, 202);
    const query = `${path.includes('?') ? '&' : '?'}digest=${digestOf(bytes)}`;
    t.is((await this.send(at(3), path + query, { method: 'PUT' })).status, 201);
  }

  async manifest(server: Serving, tag: string, document: string): Promise<void> {
    const headers = { 'content-type': ociManifest };
    const answer = await this.send(server, `/v2/team/app/manifests/${tag}`, { method: 'PUT', headers, body: document });
    this.t.is(answer.status, 201);
  }
}
