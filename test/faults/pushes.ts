import { randomBytes, randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { packageForm } from '../support/feed.ts';
import { digestOf, ociManifest } from '../support/registry.ts';

// Clients that push packages and images while a fault happens, and that read everything afterwards.

/** A chosen first token; all servers of a fault get it as ENTREPOT_BOOTSTRAP_TOKEN. */
export const token = 'the-token-of-the-clients-of-the-faults';

/** Settings of every server of a fault. */
export const settings = { ENTREPOT_BOOTSTRAP_TOKEN: token, ENTREPOT_UPSTREAMS: '[]' };

export const authorization = `Bearer ${token}`;

/** The answer to one push, and its time in milliseconds. */
export interface Attempt {
  status: number;
  took: number;
}

interface Checked {
  lost: number;
  halfVisible: number;
  /** The first few defects, for the notes. */
  defects: string[];
}

/** A request without an answer for this long is over, in milliseconds: longer than the time limits of the server. */
const longestRequest = 60_000;

/** What clients have pushed to servers that share their data. */
export class Pushes {
  /** Addresses of what was acknowledged, and its bytes. */
  readonly #acknowledged = new Map<string, Buffer>();
  /** The bytes of each package that a client has tried to push: a listed one must have them. */
  readonly #tried = new Map<string, Buffer>();
  readonly #isCollected: boolean;

  /** Requests of pushes that were answered. */
  requests = 0;

  /** With `isCollected`, the server may remove at once what no manifest names: blobs count when the manifest is acknowledged. */
  constructor(isCollected = false) {
    this.#isCollected = isCollected;
  }

  get acknowledged(): number {
    return this.#acknowledged.size;
  }

  /** The same without what is pushed from now on. */
  before(): Pushes {
    const pushes = new Pushes();
    for (const [address, bytes] of this.#acknowledged) pushes.#acknowledged.set(address, bytes);
    for (const [address, bytes] of this.#tried) pushes.#tried.set(address, bytes);
    return pushes;
  }

  /** The addresses of what was acknowledged. */
  addresses(): string[] {
    return [...this.#acknowledged.keys()];
  }

  /** Pushes `count` packages and as many images; rejects if one is not acknowledged. */
  async push(url: string, count: number): Promise<void> {
    for (let each = 0; each < count; each += 1) {
      await this.#pushPackage(url);
      await this.#pushImage([url]);
    }
  }

  /** Pushes one package. Resolves also if it is refused; rejects if there is no answer. */
  async attempt(url: string): Promise<Attempt> {
    const startedAt = performance.now();
    const status = await this.#pushPackage(url).then(
      () => 201,
      (error: unknown) => {
        if (error instanceof Refused) return error.status;
        throw error;
      },
    );
    return { status, took: performance.now() - startedAt };
  }

  /**
   * Pushes packages and images to `urls` with `clients` clients at once, until `signal` is aborted. The requests of an image go
   * to all of them in turn, also those of one upload.
   */
  async run(urls: readonly string[], clients: number, signal: AbortSignal): Promise<void> {
    const client = async (index: number): Promise<void> => {
      for (let turn = index; !signal.aborted; turn += 1) {
        const inTurn = urls.map((_, step) => urls[(turn + step) % urls.length]!);
        try {
          await (randomInt(2) === 0 ? this.#pushPackage(inTurn[0]!) : this.#pushImage(inTurn));
        } catch {
          // The server was killed.
          await sleep(200);
        }
      }
    };
    await Promise.all(Array.from({ length: clients }, (_, index) => client(index)));
  }

  /** Reads everything that was acknowledged, and everything that `url` lists. */
  async check(url: string): Promise<Checked> {
    const checked: Checked = { lost: 0, halfVisible: 0, defects: [] };
    const note = (defect: string) => void (checked.defects.length < 5 && checked.defects.push(defect));
    for (const [address, bytes] of this.#acknowledged) {
      if ((await read(url + address))?.equals(bytes)) continue;
      checked.lost += 1;
      note(`lost: ${address}`);
    }
    for (const address of await this.#listed(url)) {
      const bytes = await read(url + address);
      const expected = this.#tried.get(address);
      const digest = /\/blobs\/(.*)$/.exec(address)?.[1];
      const isWhole =
        bytes && (expected?.equals(bytes) ?? true) && (digest === undefined || digestOf(bytes) === digest);
      if (isWhole) continue;
      checked.halfVisible += 1;
      note(`half-visible: ${address}`);
    }
    return checked;
  }

  async #send(...request: Parameters<typeof send>): Promise<Headers> {
    try {
      const headers = await send(...request);
      this.requests += 1;
      return headers;
    } catch (error) {
      if (error instanceof Refused) this.requests += 1;
      throw error;
    }
  }

  async #pushPackage(url: string): Promise<void> {
    const id = `made.${randomBytes(6).toString('hex')}`;
    const bytes = await makeNupkg({ id, version: '1.0.0', payloadBytes: randomInt(1000, 200_000) });
    const address = `/v3/package/${id}/1.0.0/${id}.1.0.0.nupkg`;
    this.#tried.set(address, bytes);
    const { body, type } = packageForm(bytes);
    const headers = { 'content-type': type, 'x-nuget-apikey': token };
    try {
      await this.#send(`${url}/v3/push`, 'PUT', 201, headers, body);
    } catch (error) {
      if (isRefused(error)) this.#tried.delete(address);
      throw error;
    }
    this.#acknowledged.set(address, bytes);
  }

  /** An image of two layers: one pushed in one request, one in a session with two chunks. Each request goes to the next of `urls`. */
  async #pushImage(urls: readonly string[]): Promise<void> {
    let requests = 0;
    const at = (address: string): string => urls[(requests += 1) % urls.length]! + address;
    const name = `made/${randomBytes(6).toString('hex')}`;
    const uploads = `/v2/${name}/blobs/uploads/`;
    const [config, small, large] = [Buffer.from('{}'), randomBytes(1000), randomBytes(randomInt(2, 300_000))];
    const keep = (bytes: Buffer) => this.#acknowledged.set(`/v2/${name}/blobs/${digestOf(bytes)}`, bytes);
    for (const bytes of [config, small]) {
      await this.#send(at(`${uploads}?digest=${digestOf(bytes)}`), 'POST', 201, {}, bytes);
      if (!this.#isCollected) keep(bytes);
    }
    const half = Math.floor(large.length / 2);
    let session = sessionOf(await this.#send(at(uploads), 'POST', 202));
    for (const part of [large.subarray(0, half), large.subarray(half)])
      session = sessionOf(await this.#send(at(session), 'PATCH', 202, {}, part));
    await this.#send(at(`${session}${session.includes('?') ? '&' : '?'}digest=${digestOf(large)}`), 'PUT', 201);
    if (!this.#isCollected) keep(large);
    const manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: ociManifest,
        config: descriptor(config),
        layers: [small, large].map((bytes) => descriptor(bytes)),
      }),
    );
    const address = `/v2/${name}/manifests/v1`;
    await this.#send(at(address), 'PUT', 201, { 'content-type': ociManifest }, manifest);
    this.#acknowledged.set(address, manifest);
    for (const bytes of [config, small, large]) keep(bytes);
  }

  /** The addresses of all content that the lists of the server name. */
  async #listed(url: string): Promise<string[]> {
    const addresses: string[] = [];
    for (const address of this.#tried.keys()) {
      const [, , , id = ''] = address.split('/');
      const index = await read(`${url}/v3/package/${id}/index.json`);
      if (!index) continue;
      const { versions } = JSON.parse(index.toString()) as { versions: string[] };
      for (const version of versions)
        for (const file of [`${id}.${version}.nupkg`, `${id}.nuspec`])
          addresses.push(`/v3/package/${id}/${version}/${file}`);
    }
    let last = '';
    for (;;) {
      const page = (await json(`${url}/v2/_catalog?n=500&last=${last}`)) as { repositories: string[] };
      for (const name of page.repositories) addresses.push(...(await contentOf(url, name)));
      if (page.repositories.length < 500) return addresses;
      last = page.repositories.at(-1)!;
    }
  }
}

/** The path and query of an upload session. */
function sessionOf(headers: Headers): string {
  const { pathname, search } = new URL(headers.get('location')!, 'http://any');
  return pathname + search;
}

function descriptor(bytes: Buffer): object {
  return { mediaType: 'application/octet-stream', digest: digestOf(bytes), size: bytes.length };
}

/** Whether no server listened, so that nothing was sent. */
function isRefused(error: unknown): boolean {
  return (error as { cause?: { code?: string } }).cause?.code === 'ECONNREFUSED';
}

/** The addresses of a repository's manifests, and of the blobs that they name. */
async function contentOf(url: string, name: string): Promise<string[]> {
  const addresses: string[] = [];
  const tags = await read(`${url}/v2/${name}/tags/list`);
  for (const tag of tags ? ((JSON.parse(tags.toString()) as { tags: string[] | null }).tags ?? []) : []) {
    const address = `/v2/${name}/manifests/${tag}`;
    addresses.push(address);
    const manifest = await read(url + address);
    if (!manifest) continue;
    const { config, layers } = JSON.parse(manifest.toString()) as Record<'config', { digest: string }> & {
      layers: { digest: string }[];
    };
    for (const { digest } of [config, ...layers]) addresses.push(`/v2/${name}/blobs/${digest}`);
  }
  return addresses;
}

/** A request that was answered with another status than success. */
class Refused extends Error {
  readonly status: number;

  constructor(request: string, status: number, text: string) {
    super(`${request}: ${status} ${text}`);
    this.status = status;
  }
}

async function send(
  url: string,
  method: string,
  status: number,
  headers: Record<string, string> = {},
  body?: Buffer,
): Promise<Headers> {
  const response = await fetch(url, {
    method,
    headers: { authorization, ...headers },
    ...(body && { body: new Uint8Array(body) }),
    signal: AbortSignal.timeout(longestRequest),
  });
  const text = await response.text();
  if (response.status !== status) throw new Refused(`${method} ${url}`, response.status, text);
  return response.headers;
}

/** The bytes at an address; undefined if it is not there, or not all of it. */
async function read(url: string): Promise<Buffer | undefined> {
  try {
    const response = await fetch(url, { headers: { authorization }, signal: AbortSignal.timeout(longestRequest) });
    const bytes = Buffer.from(await response.arrayBuffer());
    return response.status === 200 ? bytes : undefined;
  } catch {
    return undefined;
  }
}

async function json(url: string): Promise<unknown> {
  const bytes = await read(url);
  if (!bytes) throw new Error(`${url} cannot be read`);
  return JSON.parse(bytes.toString());
}
