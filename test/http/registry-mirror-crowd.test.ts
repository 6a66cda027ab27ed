import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { get } from 'node:http';
import test from 'ava';
import { CommandLine } from '../support/command.ts';
import { serve, startFaultyUpstream } from '../support/faulty-upstream.ts';
import { digestOf } from '../support/registry.ts';

const clients = 30;
const size = 64 * 2 ** 20;
const mostMemory = 300 * 2 ** 20;

/** Takes a body as it comes; its digest. */
function download(url: string, token: string): Promise<string> {
  return new Promise((resolve, reject) => {
    get(url, { agent: false, headers: { authorization: `Bearer ${token}` } }, (response) => {
      const hash = createHash('sha256');
      response.on('data', (chunk: Buffer) => hash.update(chunk));
      response.once('error', reject);
      response.once('end', () => resolve(`${response.statusCode} sha256:${hash.digest('hex')}`));
    }).once('error', reject);
  });
}

/** The most memory that a process has ever had in use, in bytes. */
async function peakOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmHWM:\s*(\d+) kB$/m.exec(status)![1]) * 1024;
}

test('many clients that ask for one missing blob cause one request upstream, and little memory', async (t) => {
  const bytes = randomBytes(size);
  const digest = digestOf(bytes);
  const path = `/v2/team/app/blobs/${digest}`;
  const upstream = await startFaultyUpstream(t);
  upstream.on(path, serve(bytes));
  const token = 'token-of-the-crowd';
  const source = { name: 'up.test', kind: 'registry', url: upstream.url.href, allowPrivateNetwork: true };
  const command = await CommandLine.create(t, {
    ENTREPOT_BOOTSTRAP_TOKEN: token,
    ENTREPOT_LOG_LEVEL: 'info',
    ENTREPOT_UPSTREAMS: JSON.stringify([source]),
  });
  const server = await command.serve();
  const url = `${server.url}/v2/up.test/team/app/blobs/${digest}`;
  const received = await Promise.all(Array.from({ length: clients }, () => download(url, token)));
  t.deepEqual([...new Set(received)], [`200 ${digest}`]);
  t.is(upstream.count(path), 1);
  const peak = await peakOf(server.child.pid!);
  t.log(`${clients} clients, ${size / 2 ** 20} MiB: ${Math.round(peak / 2 ** 20)} MiB of memory at most`);
  t.true(peak <= mostMemory, `${peak}`);
  t.is(await download(url, token), `200 ${digest}`);
  t.is(upstream.count(path), 1);
});
