import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { agentsWith, type CheckAddress, type Resolve } from '../upstream/addresses.ts';

/** Bytes of an answer's body that are read. The connection is closed after them. */
const maxRead = 4096;

interface PosterOptions {
  check: CheckAddress;
  /** Milliseconds for all of a request: name lookup, connection, answer and the start of its body. */
  timeout: number;
  resolve?: Resolve | undefined;
}

interface PostAnswer {
  status: number;
  /** The header `Retry-After`. */
  retryAfter: string | undefined;
  /** Up to 4 KiB of the body. */
  start: Buffer;
}

/**
 * Posts bodies to addresses that users have chosen. Each request has a connection of its own, follows no redirect, and
 * uses no proxy, because a proxy would resolve names that nothing has checked.
 */
export class Poster {
  readonly #agents: ReturnType<typeof agentsWith>;
  readonly #timeout: number;

  constructor({ check, timeout, resolve }: PosterOptions) {
    this.#timeout = timeout;
    // The header `Connection: close` alone does not end a connection that the receiver keeps open.
    this.#agents = agentsWith(check, { proxy: {}, timeout, resolve, keepAlive: false });
  }

  /** Rejects with `AddressRefused`, an error of the network with a `code`, or the reason of a signal (`TimeoutError`). */
  async post(url: URL, headers: Record<string, string>, body: Buffer, stop: AbortSignal): Promise<PostAnswer> {
    const signal = AbortSignal.any([stop, AbortSignal.timeout(this.#timeout)]);
    const [send, agent] =
      url.protocol === 'https:' ? [httpsRequest, this.#agents.https] : [httpRequest, this.#agents.http];
    const request = send(url, {
      method: 'POST',
      agent,
      headers: { ...headers, connection: 'close', 'content-length': body.length },
      signal,
    });
    try {
      const answered = once(request, 'response') as Promise<[IncomingMessage]>;
      // The waiting above gets the first error. Later ones must not end the process.
      request.on('error', () => undefined);
      // Without this, Node tells of such an answer in no way, also when the request is destroyed, and leaves the connection open.
      request.on('upgrade', (_response, socket) => {
        socket.destroy();
        request.emit('error', new Error('the receiver switches protocols'));
      });
      request.end(body);
      const [response] = await answered;
      return {
        status: response.statusCode!,
        retryAfter: response.headers['retry-after'],
        start: await startOf(response),
      };
    } catch (error) {
      throw signal.aborted ? signal.reason : error;
    } finally {
      request.destroy();
    }
  }

  /** Closes all connections. */
  close(): void {
    this.#agents.http.destroy();
    this.#agents.https.destroy();
  }
}

/** The status is the answer, so a body that breaks off or takes too long is not a failure. */
async function startOf(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk.subarray(0, maxRead - size));
      size += chunks.at(-1)!.length;
      if (size === maxRead) break;
    }
  } catch {
    // What was received before is enough.
  }
  return Buffer.concat(chunks);
}
