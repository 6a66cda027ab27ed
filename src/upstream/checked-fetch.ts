import type { ProxyEnvironment } from './addresses.ts';
import { readUpstreamBody } from './body.ts';
import { UpstreamClient } from './client.ts';

/** Largest body, in bytes, and longest time of each step and of the body, in milliseconds. */
const sizeLimit = 256 * 1024;
const timeLimit = 5000;
/** Connections to one host by default. */
const defaultConnections = 16;

interface CheckedFetchOptions {
  /** Whether private and loopback addresses are allowed. */
  allowPrivate: boolean;
  proxy: ProxyEnvironment;
  /** Certificate authorities to trust besides the default ones, PEM. */
  ca?: string | undefined;
  /** Connections to one host; requests for one path may use a quarter of them. */
  connections?: number | undefined;
}

interface CheckedRequest {
  method?: 'GET' | 'POST';
  headers?: Record<string, string>;
  body?: string;
  signal?: AbortSignal | undefined;
}

/** The function `fetch` for small documents, with the address checks of upstreams. It follows no redirect. */
export class CheckedFetch {
  readonly #client: UpstreamClient;

  constructor({ connections = defaultConnections, ...options }: CheckedFetchOptions) {
    this.#client = new UpstreamClient({ ...options, timeout: timeLimit, connections });
  }

  /**
   * The answer with its whole body. Rejects for a refused address, for a body above 256 KiB, and for a step or a body that
   * takes more than 5 seconds.
   */
  async fetch(url: URL, { method = 'GET', headers = {}, body, signal }: CheckedRequest = {}): Promise<Response> {
    const group = url.pathname;
    const answer = await this.#client.send({ method, url, headers, body, group, signal });
    const bytes = await readUpstreamBody(answer.body, sizeLimit, timeLimit);
    const fields = Object.entries(answer.headers).flatMap(([name, value]) =>
      [value ?? []].flat().map((each): [string, string] => [name, each]),
    );
    const hasBody = ![204, 205, 304].includes(answer.status);
    return new Response(hasBody ? new Uint8Array(bytes) : null, { status: answer.status, headers: fields });
  }

  close(): void {
    this.#client.close();
  }
}
