import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
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

/**
 * Requests the same body on one connection while `more` returns true; resolves to the bytes of the bodies. Node's HTTP
 * client is not used: it copies each body, is less than half as fast, and would dominate the measurement.
 */
function discard(peer: Peer, path: string, more: () => boolean): Promise<number> {
  const { hostname, port, host } = new URL(peer.url);
  const headers = Object.entries({ Host: host, ...peer.headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  const asked = `GET ${path} HTTP/1.1\r\n${headers.join('')}\r\n`;
  return new Promise((resolve, reject) => {
    let bytes = 0;
    let left: number | undefined;
    const ask = () => {
      left = undefined;
      if (more()) socket.write(asked);
      else socket.end(() => resolve(bytes));
    };
    const take = (length: number) => {
      let body = length;
      if (left === undefined) {
        const end = bin.subarray(0, length).indexOf('\r\n\r\n');
        const head = bin.toString('latin1', 0, end);
        left = Number(/^content-length: (\d+)/im.exec(head)?.[1]);
        if (!/^HTTP\/1.1 200 /.test(head) || Number.isNaN(left)) socket.destroy(new Error(`${peer.name}: ${head}`));
        body -= end + 4;
      }
      bytes += body;
      left -= body;
      if (left === 0) ask();
      return true;
    };
    const socket = connect({ host: hostname, port: Number(port), onread: { buffer: bin, callback: take } }, ask);
    socket.once('error', reject);
    socket.once('close', () => reject(new Error(`${peer.name} closed the connection`)));
  });
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
