import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { finished, type Readable } from 'node:stream';
import type { Got } from 'got';
import { isDigest } from '../runtime/digest.ts';
import { checkedAgents, type AgentOptions } from './addresses.ts';
import type { SentBody, UpstreamAnswer } from './answer.ts';
import { decode } from './body.ts';
import { HostConnections } from './connections.ts';
import { BackgroundTask } from '../runtime/background-task.ts';
import { addressRefusal, NotConnected, Refused } from './failures.ts';
import { mayReleaseInput, releaseInput } from './release-input.ts';
import { cutSlowBody, minSpeed } from './slow-body.ts';

/** One request to one host. */
export interface RequestOptions {
  method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE' | undefined;
  url: URL;
  headers: Record<string, string>;
  /** The body of another method than GET and HEAD. */
  body?: string | SentBody | undefined;
  /** Requests of one group may use a quarter of the connections to a host. */
  group: string;
  /** Whether the body is a small document. */
  isDocument?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

export interface ClientOptions extends AgentOptions {
  /** Connections in use at the same time, to each host. */
  connections: number;
  meter?: (() => (bytes: number) => void) | undefined;
  /** Called when a body is cut because it comes too slowly. */
  onSlow?: (() => void) | undefined;
}

/** So many times longer than another step may be the time without progress of a body that is sent, and until its answer. */
const sentSlack = 4;

/** Sends single requests: no redirects, no credentials, no retry. Each step has a time-out of `timeout` milliseconds. */
export class UpstreamClient {
  readonly #agents: ReturnType<typeof checkedAgents>;
  #got: Promise<Got> | undefined;
  readonly #connections: HostConnections;
  readonly #meter: ClientOptions['meter'];
  readonly #onSlow: () => void;
  readonly #timeout: number;

  constructor({ connections, meter, onSlow = () => undefined, ...options }: ClientOptions) {
    const { timeout } = options;
    this.#meter = meter;
    this.#onSlow = onSlow;
    this.#timeout = timeout;
    this.#connections = new HostConnections({ max: connections, waitLimit: timeout });
    this.#agents = checkedAgents(options);
  }

  /** Loaded for the first request, because it takes a tenth of the time of a start. */
  async #load(): Promise<Got> {
    const { default: got } = await import('got');
    return got.extend({
      agent: this.#agents,
      decompress: false,
      followRedirect: false,
      throwHttpErrors: false,
      timeout: { ...connecting(this.#timeout), response: this.#timeout },
      headers: { 'user-agent': 'entrepot', 'accept-encoding': 'identity' },
    });
  }

  /** Throws `Refused` for an address that is not allowed, `Busy`, `NotConnected`, or the error of got. */
  async send({
    method = 'GET',
    url,
    headers,
    body = '',
    group,
    isDocument = false,
    signal,
  }: RequestOptions): Promise<UpstreamAnswer> {
    const got = await (this.#got ??= this.#load());
    const mayRelease = await mayReleaseInput();
    const release = await this.#connections.take(url.origin, group, signal);
    const content = await openBody(body).catch((error: unknown) => {
      release();
      throw error;
    });
    const sent = got.stream(url, {
      method,
      headers: { ...headers, ...(typeof body === 'object' && { 'content-length': String(body.size) }) },
      ...(method !== 'GET' && method !== 'HEAD' && { body: content }),
      ...(typeof content === 'object' && {
        timeout: {
          ...connecting(this.#timeout),
          socket: this.#timeout * sentSlack,
          response: this.#timeout * sentSlack,
        },
      }),
      ...(signal && { signal }),
    });
    // The reader of the body gets its error; without a reader the error must not end the process.
    sent.on('error', () => undefined);
    // Node leaves such a connection to its user, outside of all limits of time.
    let refused: Refused | undefined;
    sent.on('upgrade', (_response: IncomingMessage, socket: Socket) => {
      socket.destroy();
      refused = new Refused('switches protocols', { verdict: 'resource' });
      sent.destroy(refused);
    });
    const count = this.#meter?.();
    finished(sent, { writable: false }, () => {
      release();
      if (typeof content === 'object') content.destroy();
      count?.(sent.downloadProgress.transferred);
    });
    const response = await responseTo(sent, url).catch((error: unknown) => {
      throw refused ?? error;
    });
    if (mayRelease) releaseInput(response);
    const stream = BackgroundTask.current?.pace(sent) ?? sent;
    const { 'content-encoding': coding, 'content-length': length, ...rest } = response.headers;
    const least = minSpeed(length === undefined ? undefined : Number(length), isDocument, this.#timeout);
    cutSlowBody(sent, least, () => sent.downloadProgress.transferred, this.#onSlow);
    const contentDigest = rest['docker-content-digest'];
    const common = {
      status: response.statusCode!,
      ...(typeof contentDigest === 'string' && isDigest(contentDigest) && { digest: contentDigest }),
    };
    if (method === 'HEAD') return { ...common, headers: response.headers, body: stream, decoded: false };
    const decoded = decode(stream, coding);
    if (!decoded) return { ...common, headers: response.headers, body: stream, decoded: false };
    decoded.on('error', () => undefined);
    return { ...common, headers: rest, body: decoded, decoded: true };
  }

  /** Closes all connections. Requests that run or wait, and later ones, fail. */
  close(): void {
    this.#connections.close();
    this.#agents.http.destroy();
    this.#agents.https.destroy();
  }
}

function connecting(timeout: number) {
  return { lookup: timeout, connect: timeout, secureConnect: timeout };
}

/** The body at the rate of the task. */
async function openBody(body: string | SentBody): Promise<string | Readable> {
  if (typeof body === 'string') return body;
  const opened = await body.open();
  // The request gets the error.
  opened.on('error', () => undefined);
  return BackgroundTask.current?.pace(opened) ?? opened;
}

async function responseTo(sent: ReturnType<Got['stream']>, url: URL): Promise<IncomingMessage> {
  try {
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    return response;
  } catch (error) {
    const refusal = addressRefusal(error);
    if (refusal) throw refusal;
    // Without an upload time the request was never written: there was no connection.
    throw sent.timings?.upload === undefined ? new NotConnected(url.origin, error as Error) : error;
  }
}
