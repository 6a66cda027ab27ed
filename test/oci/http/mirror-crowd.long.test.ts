import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { get } from 'node:http';
import test, { type ExecutionContext } from 'ava';
import { CommandLine } from '../../support/processes/command.ts';
import { serve, startFaultyUpstream, type Behaviour } from '../../support/upstreams/faulty-upstream.ts';
import { digestOf } from '../../support/registry.ts';

const clients = 30;
const size = 64 * 2 ** 20;
const mostMemory = 300 * 2 ** 20;
const token = 'token-of-the-crowd-of-many-clients';

/** Reads a body at full speed; resolves to its digest. */
function download(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false, headers: { authorization: `Bearer ${token}` } }, (response) => {
      const hash = createHash('sha256');
      response.on('data', (chunk: Buffer) => hash.update(chunk));
      response.once('error', reject);
      response.once('end', () => resolve(`${response.statusCode} sha256:${hash.digest('hex')}`));
    }).once('error', reject);
  });
}

/** Sends a body at a rate in bytes a second. */
function paced(bytes: Buffer, perSecond: number): Behaviour {
  return (_request, response) => {
    response.writeHead(200, { 'Content-Length': bytes.length });
    const startedAt = performance.now();
    let sent = 0;
    const timer = setInterval(() => {
      const due = Math.min(bytes.length, Math.ceil(((performance.now() - startedAt) / 1000) * perSecond));
      if (due > sent) response.write(bytes.subarray(sent, due));
      sent = due;
      if (sent < bytes.length) return;
      clearInterval(timer);
      response.end();
    }, 5);
  };
}

/** How long `work` takes, in milliseconds. */
async function timeOf(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

/** The largest memory use of a process so far, in bytes. */
async function peakOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmHWM:\s*(\d+) kB$/m.exec(status)![1]) * 1024;
}

/** A server in a process of its own, and its upstream. */
async function startBoth(t: ExecutionContext) {
  const upstream = await startFaultyUpstream(t);
  const source = { name: 'up.test', kind: 'registry', url: upstream.url.href, allowPrivateNetwork: true };
  const command = await CommandLine.create(t, {
    ENTREPOT_BOOTSTRAP_TOKEN: token,
    ENTREPOT_LOG_LEVEL: 'info',
    ENTREPOT_UPSTREAMS: JSON.stringify([source]),
  });
  return { upstream, server: await command.serve() };
}

test.serial('many clients of one missing blob cause one upstream request and use little memory', async (t) => {
  const bytes = randomBytes(size);
  const digest = digestOf(bytes);
  const path = `/v2/team/app/blobs/${digest}`;
  const { upstream, server } = await startBoth(t);
  upstream.on(path, serve(bytes));
  const url = `${server.url}/v2/up.test/team/app/blobs/${digest}`;
  const received = await Promise.all(Array.from({ length: clients }, () => download(url)));
  t.deepEqual([...new Set(received)], [`200 ${digest}`]);
  t.is(upstream.count(path), 1);
  const peak = await peakOf(server.child.pid!);
  t.log(`${clients} clients, ${size / 2 ** 20} MiB: ${Math.round(peak / 2 ** 20)} MiB of memory at most`);
  t.true(peak <= mostMemory, `${peak}`);
  t.is(await download(url), `200 ${digest}`);
  t.is(upstream.count(path), 1);
});

test.serial('a cold pull from an upstream at network speed takes at most 1.25 times the direct download', async (t) => {
  const { upstream, server } = await startBoth(t);
  const ratios: number[] = [];
  // Other work of the machine may slow one of the two, but not each time.
  while (ratios.length < 5 && !(Math.min(...ratios) <= 1.25)) {
    const bytes = randomBytes(size);
    const digest = digestOf(bytes);
    const path = `/v2/team/app/blobs/${digest}`;
    upstream.on(path, paced(bytes, 100e6));
    const direct = await timeOf(() => download(new URL(path, upstream.url).href));
    const pulled = await timeOf(async () => {
      t.is(await download(`${server.url}/v2/up.test/team/app/blobs/${digest}`), `200 ${digest}`);
    });
    ratios.push(pulled / direct);
  }
  t.log(ratios.map((ratio) => ratio.toFixed(2)).join(', '));
  t.true(Math.min(...ratios) <= 1.25, ratios.join(' '));
});
