import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { finished } from 'node:stream/promises';
import { digestOf } from '../../src/runtime/digest.ts';
import { upload } from './content.ts';
import type { Peer } from './processes.ts';

/** The buffer for all reads whose bytes are discarded. */
const bin = Buffer.alloc(256 * 1024);

/** Reads and discards `count` bodies, `connections` at a time. Resolves to bytes per second. */
export async function drain(peer: Peer, path: string, connections: number, count: number): Promise<number> {
  let left = count;
  const start = performance.now();
  const read = await Promise.all(Array.from({ length: connections }, () => discard(peer, path, () => left-- > 0)));
  return read.reduce((sum, each) => sum + each) / ((performance.now() - start) / 1000);
}

/** Requests the same body on one connection while `more` returns true; resolves to the bytes of the bodies. */
async function discard(peer: Peer, path: string, more: () => boolean): Promise<number> {
  const connection = new Discarding(peer.url);
  let bytes = 0;
  while (more()) bytes += await connection.read(path, peer.headers);
  connection.close();
  return bytes;
}

/**
 * A connection that requests one body after the other, and discards them. Node's HTTP client is not used: it copies each body,
 * is less than half as fast, and would dominate the measurement.
 */
export class Discarding {
  readonly #socket: Socket;
  readonly #host: string;
  #length = 0;
  #left: number | undefined;
  #asked: { resolve: (bytes: number) => void; reject: (error: Error) => void } | undefined;

  constructor(url: string) {
    const { hostname, port, host } = new URL(url);
    this.#host = host;
    const onread = { buffer: bin, callback: (length: number) => this.#take(length) };
    this.#socket = connect({ host: hostname, port: Number(port), onread });
    this.#socket.setNoDelay();
    this.#socket.on('error', (error) => this.#asked?.reject(error));
    this.#socket.once('close', () => this.#asked?.reject(new Error('the connection was closed')));
  }

  get isClosed(): boolean {
    return this.#socket.destroyed;
  }

  /** Resolves to the length of the body. Fails, and closes the connection, if the status is not 200. */
  async read(path: string, headers: Record<string, string>): Promise<number> {
    const lines = Object.entries({ Host: this.#host, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
    try {
      return await new Promise<number>((resolve, reject) => {
        this.#left = undefined;
        this.#asked = { resolve, reject };
        this.#socket.write(`GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`);
      });
    } finally {
      this.#asked = undefined;
    }
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(length: number): boolean {
    let body = length;
    if (this.#left === undefined) {
      const end = bin.subarray(0, length).indexOf('\r\n\r\n');
      const head = bin.toString('latin1', 0, end);
      this.#length = Number(/^content-length: (\d+)/im.exec(head)?.[1]);
      this.#left = this.#length;
      if (!/^HTTP\/1.1 200 /.test(head) || Number.isNaN(this.#length))
        this.#socket.destroy(new Error(head.slice('HTTP/1.1 '.length).split(/[ \r]/, 1)[0]));
      body -= end + 4;
    }
    this.#left -= body;
    if (this.#left === 0) this.#asked?.resolve(this.#length);
    return true;
  }
}

/** The bytes of a response as they were sent, maybe compressed. */
export async function bodyOf(peer: Peer, path: string): Promise<Buffer> {
  return buffer(await responseOf(peer, path));
}

/** Milliseconds until the first byte of a body; reads the whole body. */
export async function firstByte(peer: Peer, path: string): Promise<number> {
  const start = performance.now();
  const response = await responseOf(peer, path);
  await once(response, 'data');
  const first = performance.now() - start;
  await finished(response.resume());
  return first;
}

async function responseOf(peer: Peer, path: string): Promise<IncomingMessage> {
  const [response] = (await once(get(`${peer.url}${path}`, { headers: peer.headers }), 'response')) as [
    IncomingMessage,
  ];
  if (response.statusCode !== 200) throw new Error(`${peer.name} answered ${response.statusCode}`);
  return response;
}

/** Different blobs whose digests are known already. Each call pushes one as container clients do; false when there is none left. */
export function preparedPushes(peer: Peer, repository: string, bytes: number, count: number): () => Promise<boolean> {
  const body = randomBytes(bytes);
  const bodies = Array.from({ length: count }, (_, index) => {
    const head = Buffer.from(`${process.hrtime.bigint()}-${index}`.padEnd(64));
    const digest = digestOf(Buffer.concat([head, body]));
    return { head, digest };
  });
  return async () => {
    const each = bodies.pop();
    if (each) await upload(peer, repository, each.digest, [each.head, body]);
    return each !== undefined;
  };
}

/** Pushes `count` different blobs, `connections` at a time. Resolves to bytes per second. */
export async function push(
  peer: Peer,
  repository: string,
  bytes: number,
  connections: number,
  count: number,
): Promise<number> {
  const next = preparedPushes(peer, repository, bytes, count);
  const start = performance.now();
  const worker = async () => {
    while (await next());
  };
  await Promise.all(Array.from({ length: connections }, worker));
  return (count * (bytes + 64)) / ((performance.now() - start) / 1000);
}
