import { writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execute, requiredCommand } from '../../test/support/clients.ts';
import type { Peer } from './processes.ts';

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
  options: { method?: 'GET' | 'HEAD'; connections?: number; seconds: number },
): Promise<Rate> {
  const script = join(tmpdir(), 'entrepot-bench.lua');
  // docker-registry shows an OCI manifest only to those who say that they take one.
  const accept = { Accept: 'application/vnd.oci.image.manifest.v1+json, */*' };
  const headers = Object.entries({ ...peer.headers, ...accept }).map(
    ([name, value]) => `wrk.headers["${name}"] = "${value}"\n`,
  );
  await writeFile(script, `wrk.method = "${options.method ?? 'GET'}"\n${headers.join('')}`);
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
    while (left-- > 0) bytes += await readOne(agent, peer, path);
  };
  await Promise.all(Array.from({ length: connections }, worker));
  agent.destroy();
  return bytes / ((performance.now() - start) / 1000);
}

function readOne(agent: Agent, peer: Peer, path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = request(`${peer.url}${path}`, { agent, headers: peer.headers }, (response) => {
      let size = 0;
      if (response.statusCode !== 200) return reject(new Error(`${peer.name} answered ${response.statusCode}`));
      response.on('data', (chunk: Buffer) => (size += chunk.length));
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
