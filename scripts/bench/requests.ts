import { writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execute, requiredCommand } from '../../test/support/clients/clients.ts';
import type { Peer } from './processes.ts';
import { compare, note } from './report.ts';

/** docker-registry serves an OCI manifest only to a request that accepts it. */
const accept = { Accept: 'application/vnd.oci.image.manifest.v1+json, */*' };

/** A load: requests for some seconds on several connections, sequential on each. */
export interface Load {
  seconds: number;
  connections?: number;
}

/** The result of a load; times are in milliseconds. */
export interface Rate {
  perSecond: number;
  p50: number;
  p95: number;
  p99: number;
  errors: number;
}

/** Runs wrk, which requests `paths` in turn. */
export async function rate(peer: Peer, paths: readonly string[], { seconds, connections = 32 }: Load): Promise<Rate> {
  const script = join(tmpdir(), 'entrepot-bench.lua');
  const headers = Object.entries({ ...peer.headers, ...accept }).map(
    ([name, value]) => `wrk.headers["${name}"] = "${value}"\n`,
  );
  await writeFile(script, [...headers, paths.length > 1 ? inTurn(paths) : '', done].join(''));
  const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '-s', script, `${peer.url}${paths[0]}`];
  const { stdout, code, stderr } = await execute(requiredCommand('wrk'), args);
  if (code !== 0) throw new Error(`wrk: ${stderr}`);
  return JSON.parse(stdout.slice(stdout.lastIndexOf('{'))) as Rate;
}

/** Sends each request once. */
function inTurn(paths: readonly string[]): string {
  return `local requests, last = {}, 0
init = function()
  for index, path in ipairs({ ${paths.map((path) => JSON.stringify(path)).join(', ')} }) do
    requests[index] = wrk.format("GET", path)
  end
end
request = function()
  last = last % #requests + 1
  return requests[last]
end
`;
}

/** Prints a `Rate` at the end. */
const done = `done = function(summary, latency)
  local wrong = summary.errors
  local function at(percentile) return latency:percentile(percentile) / 1000 end
  print(string.format('{"perSecond":%f,"p50":%f,"p95":%f,"p99":%f,"errors":%d}',
    summary.requests * 1e6 / summary.duration, at(50), at(95), at(99),
    wrong.status + wrong.connect + wrong.read + wrong.write + wrong.timeout))
end
`;

/** Sends HEAD requests for `seconds`, sequential on each connection. wrk cannot: it waits for a body. */
export async function rateOfHeads(peer: Peer, path: string, { seconds, connections = 32 }: Load): Promise<Rate> {
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
      let response = '';
      socket.setNoDelay().on('error', reject);
      socket.on('data', (bytes) => {
        response += bytes.toString('latin1');
        if (!response.endsWith('\r\n\r\n')) return;
        if (!response.startsWith('HTTP/1.1 200')) errors += 1;
        response = '';
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
  const perSecond = times.length / ((performance.now() - start) / 1000);
  return { perSecond, p50: at(0.5), p95: at(0.95), p99: at(0.99), errors };
}

/**
 * Loads each peer in turn. Reports a row of requests per second, and a row for each of `percentiles`, which may have a
 * target in milliseconds.
 */
export async function rates(
  title: string,
  rounds: number,
  peers: readonly Peer[],
  load: (peer: Peer) => Promise<Rate>,
  percentiles: { [name in 'p50' | 'p95' | 'p99']?: { bar?: string } } = { p99: {} },
  bar?: string,
): Promise<void> {
  const found = new Map<string, Rate[]>();
  const measure = (peer: Peer) => async () => {
    const each = await load(peer);
    if (each.errors > 0) throw new Error(`${peer.name} refused ${each.errors} requests of ${title}`);
    found.set(peer.name, [...(found.get(peer.name) ?? []), each]);
    return each.perSecond;
  };
  const subjects = Object.fromEntries(peers.map((peer) => [peer.name, measure(peer)]));
  await compare({ title, unit: 'requests/s', bar }, rounds, subjects);
  for (const [name, { bar }] of Object.entries(percentiles)) {
    const samples = [...found].map(([subject, all]) => ({ subject, values: all.map((each) => each[name as 'p50']) }));
    note({ title: `${title}: ${name}`, unit: 'ms', bar, samples });
  }
}
