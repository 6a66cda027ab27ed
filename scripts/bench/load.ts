import { writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execute, requiredCommand } from '../../test/support/clients.ts';
import type { Peer } from './processes.ts';

/** docker-registry shows an OCI manifest only to those who say that they take one. */
const accept = { Accept: 'application/vnd.oci.image.manifest.v1+json, */*' };

export interface Rate {
  perSecond: number;
  /** Milliseconds. */
  p50: number;
  p99: number;
  errors: number;
}

/** wrk against one address, for `seconds`. */
export async function rate(
  peer: Peer,
  path: string,
  options: { connections?: number; seconds: number },
): Promise<Rate> {
  const script = join(tmpdir(), 'entrepot-bench.lua');
  const headers = Object.entries({ ...peer.headers, ...accept }).map(
    ([name, value]) => `wrk.headers["${name}"] = "${value}"\n`,
  );
  await writeFile(script, headers.join(''));
  const { connections = 32, seconds } = options;
  const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '--latency', '-s', script, `${peer.url}${path}`];
  const { stdout, code, stderr } = await execute(requiredCommand('wrk'), args);
  if (code !== 0) throw new Error(`wrk: ${stderr}`);
  const bad = Number(/Non-2xx or 3xx responses: (\d+)/.exec(stdout)?.[1] ?? 0);
  return {
    perSecond: Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)![1]),
    p50: latency(stdout, '50%'),
    p99: latency(stdout, '99%'),
    errors: bad,
  };
}

/** HEAD, whose answers wrk waits for a body of: one request after the other on each connection, for `seconds`. */
export async function rateOfHeads(peer: Peer, path: string, seconds: number, connections = 32): Promise<Rate> {
  const { hostname, port, host } = new URL(peer.url);
  const headers = Object.entries({ Host: host, ...peer.headers, ...accept });
  const sent = `HEAD ${path} HTTP/1.1\r\n${headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
  const times: number[] = [];
  let errors = 0;
  const start = performance.now();
  const end = start + seconds * 1000;
  const ask = () =>
    new Promise<void>((resolve, reject) => {
      const socket = connect(Number(port), hostname, () => socket.write(sent));
      let asked = performance.now();
      let heard = '';
      socket.setNoDelay().on('error', reject);
      socket.on('data', (bytes) => {
        heard += bytes.toString('latin1');
        if (!heard.endsWith('\r\n\r\n')) return;
        if (!heard.startsWith('HTTP/1.1 200')) errors += 1;
        heard = '';
        const now = performance.now();
        times.push(now - asked);
        asked = now;
        if (now < end) socket.write(sent);
        else resolve(void socket.destroy());
      });
    });
  await Promise.all(Array.from({ length: connections }, ask));
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.floor(times.length * share)]!;
  return { perSecond: times.length / ((performance.now() - start) / 1000), p50: at(0.5), p99: at(0.99), errors };
}

function latency(text: string, percentile: string): number {
  const [, value, unit] = new RegExp(`${percentile}\\s+([\\d.]+)(us|ms|s)`).exec(text)!;
  return Number(value) * { us: 0.001, ms: 1, s: 1000 }[unit as 'us' | 'ms' | 's'];
}

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
  const { createHash, randomBytes } = await import('node:crypto');
  const body = randomBytes(bytes);
  const bodies = Array.from({ length: count }, (_, index) => {
    const head = Buffer.from(`${process.hrtime.bigint()}-${index}`.padEnd(64));
    const digest = `sha256:${createHash('sha256').update(head).update(body).digest('hex')}`;
    return { head, digest };
  });
  const start = performance.now();
  const worker = async () => {
    for (let each = bodies.pop(); each; each = bodies.pop()) {
      const opened = await fetch(`${peer.url}/v2/${repository}/blobs/uploads/`, {
        method: 'POST',
        headers: peer.headers,
      });
      const location = new URL(opened.headers.get('location')!, peer.url);
      location.searchParams.set('digest', each.digest);
      await opened.arrayBuffer();
      const done = await fetch(location, {
        method: 'PUT',
        headers: { ...peer.headers, 'content-type': 'application/octet-stream' },
        body: Buffer.concat([each.head, body]),
      });
      if (done.status !== 201)
        throw new Error(`${peer.name} answered a push with ${done.status}: ${await done.text()}`);
      await done.arrayBuffer();
    }
  };
  await Promise.all(Array.from({ length: connections }, worker));
  return (count * (bytes + 64)) / ((performance.now() - start) / 1000);
}
