import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { Agent, request } from 'node:http';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { makeNuspec } from '../support/builders/nupkg.ts';
import { writeZip } from '../support/builders/zip.ts';
import { packageForm } from '../support/feed.ts';
import { folderUntilEnd, inMemory } from '../support/folder.ts';
import { endWithThisProcess } from '../support/processes/ending.ts';
import { answers, freePort } from '../support/processes/services.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { authorization, settings, token } from './pushes.ts';
import { Teardown } from './teardown.ts';

// A server that is killed as soon as it uses more memory than docs/scaling.md names, as a container would be.

const main = join(import.meta.dirname, '../../bin/entrepot.js');
/** The options of `npm start`. */
const nodeOptions = ['--max-semi-space-size=8', '--initial-old-space-size=64'];
const clients = 8;
/** Resident memory in MiB, of which 65 are files of the program. */
const bound = 448;

export const fault: Fault = { name: `memory of at most ${bound} MiB, 8 clients push and read`, run };

async function run({ short }: FaultOptions): Promise<FaultResult> {
  await using t = new Teardown();
  const port = await freePort();
  const env = {
    PATH: process.env.PATH,
    ENTREPOT_DATA: join(await folderUntilEnd(t, inMemory), 'data'),
    ENTREPOT_PORT: `${port}`,
    ENTREPOT_LOG_LEVEL: 'warn',
    ENTREPOT_LIMITS_PUSHES_PER_MINUTE: '1000000',
    ...settings,
  };
  const child = spawn(process.execPath, [...nodeOptions, main, 'serve'], { env, stdio: 'ignore' });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  endWithThisProcess(child);
  t.teardown(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const url = `http://127.0.0.1:${port}`;
  await until(() => answers(`${url}/readyz`), 60_000);
  const stop = new AbortController();
  const acknowledged: string[] = [];
  const working = Promise.all(
    Array.from({ length: clients }, (_, client) => pushAndRead(url, client, acknowledged, stop.signal)),
  );
  const endsAt = performance.now() + (short ? 20_000 : 120_000);
  let most = 0;
  try {
    while (performance.now() < endsAt) {
      most = Math.max(most, residentMemory(child.pid!));
      assert.ok(most <= bound, `${most} MiB after ${acknowledged.length} pushes`);
      await Promise.race([sleep(250), working]);
    }
  } finally {
    stop.abort();
    await working.catch(() => undefined);
  }
  await working;
  let lost = 0;
  for (const path of acknowledged) if ((await send(url, 'GET', path)) !== 200) lost += 1;
  const notes = `at most ${most} MiB`;
  return { tries: 1, acknowledged: acknowledged.length, lost, halfVisible: 0, recoveryMs: 0, notes };
}

/** Pushes small packages, and reads all documents of each after its push. */
async function pushAndRead(url: string, client: number, acknowledged: string[], signal: AbortSignal): Promise<void> {
  for (let turn = 0; !signal.aborted; turn += 1) {
    // One of four is a new version of the same package.
    const id = turn % 4 === 0 ? `Same.${client}` : `New.${client}.${turn}`;
    const version = `1.0.${turn}`;
    const nuspec = makeNuspec({ id, version, description: 'Some text. '.repeat(20) });
    const { body, type } = packageForm(
      writeZip([
        { name: `${id}.nuspec`, data: nuspec },
        { name: 'lib/a.dll', data: Buffer.alloc(2000, turn) },
      ]),
    );
    assert.equal(await send(url, 'PUT', '/v3/push', { 'content-type': type, 'x-nuget-apikey': token }, body), 201);
    const key = id.toLowerCase();
    const nupkg = `/v3/package/${key}/${version}/${key}.${version}.nupkg`;
    acknowledged.push(nupkg);
    for (const form of ['package', 'registration', 'registration-gz', 'registration-gz-semver2'])
      assert.equal(await send(url, 'GET', `/v3/${form}/${key}/index.json`), 200);
    for (const path of [nupkg, `/v3/package/${key}/${version}/${key}.nuspec`])
      assert.equal(await send(url, 'GET', path), 200);
  }
}

const agent = new Agent({ keepAlive: true });

/** Resolves to the status, after the whole body has arrived. */
function send(
  url: string,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body?: Buffer,
): Promise<number> {
  return new Promise((resolve, reject) => {
    const length = body ? { 'content-length': `${body.length}` } : {};
    const options = { method, agent, headers: { authorization, ...length, ...headers } };
    const asked = request(url + path, options, (response) => {
      response.resume();
      response.once('end', () => resolve(response.statusCode!)).once('error', reject);
    });
    asked.once('error', reject).end(body);
  });
}

/** MiB; 0 where the system does not tell. */
function residentMemory(pid: number): number {
  if (process.platform !== 'linux') return 0;
  const kibibytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Math.round(Number(kibibytes?.[1] ?? 0) / 1024);
}
