import { randomBytes } from 'node:crypto';
import { Agent, request } from 'node:http';
import { digestOf } from '../../src/digest.ts';
import { upload } from './content.ts';
import type { Peer } from './processes.ts';

/** Reads bodies and throws them away: `count` of them, `connections` at a time. Resolves to bytes per second. */
export async function drain(peer: Peer, path: string, connections: number, count: number): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  let bytes = 0;
  let left = count;
  const start = performance.now();
  const worker = async () => {
    while (left-- > 0) {
      const read = await readOne(agent, peer, path);
      bytes += read;
    }
  };
  await Promise.all(Array.from({ length: connections }, worker));
  agent.destroy();
  return bytes / ((performance.now() - start) / 1000);
}

/** The bytes of an answer as they came, compressed or not. */
export async function bodyOf(peer: Peer, path: string): Promise<Buffer> {
  const pieces: Buffer[] = [];
  await readOne(undefined, peer, path, (chunk) => pieces.push(chunk));
  return Buffer.concat(pieces);
}

/** Milliseconds until the first byte of a body; all of it is read. */
export async function firstByte(peer: Peer, path: string): Promise<number> {
  const start = performance.now();
  let first: number | undefined;
  await readOne(undefined, peer, path, () => (first ??= performance.now() - start));
  return first!;
}

function readOne(agent: Agent | undefined, peer: Peer, path: string, take?: (chunk: Buffer) => void): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = request(`${peer.url}${path}`, { agent, headers: peer.headers }, (response) => {
      let size = 0;
      if (response.statusCode !== 200) return reject(new Error(`${peer.name} answered ${response.statusCode}`));
      response.on('data', (chunk: Buffer) => {
        size += chunk.length;
        take?.(chunk);
      });
      response.on('end', () => resolve(size));
      response.on('error', reject);
      return undefined;
    });
    sent.on('error', reject);
    sent.end();
  });
}

/** Pushes `count` blobs that differ, `connections` at a time, as container clients do. Resolves to bytes per second. */
export async function push(
  peer: Peer,
  repository: string,
  bytes: number,
  connections: number,
  count: number,
): Promise<number> {
  const body = randomBytes(bytes);
  const bodies = Array.from({ length: count }, (_, index) => {
    const head = Buffer.from(`${process.hrtime.bigint()}-${index}`.padEnd(64));
    const digest = digestOf(Buffer.concat([head, body]));
    return { head, digest };
  });
  const start = performance.now();
  const worker = async () => {
    for (let each = bodies.pop(); each; each = bodies.pop()) {
      await upload(peer, repository, each.digest, Buffer.concat([each.head, body]));
    }
  };
  await Promise.all(Array.from({ length: connections }, worker));
  return (count * (bytes + 64)) / ((performance.now() - start) / 1000);
}
