import { randomBytes, randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { digestOf } from '../support/registry.ts';
import type { Fault, FaultResult } from './fault.ts';
import { authorization, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

/** Sessions whose last requests run when the server is killed. */
const sessions = 24;
/** Kills of a try: few of them hit a session between the put of its blob and the commit. */
const killsOfTry = 5;

/** A layer, and how much of it its session has before the last request. */
interface Begun {
  location: string;
  bytes: Buffer;
  sent: number;
}

export const fault: Fault = {
  name: 'kill -9 of a server in the last request of upload sessions',
  run: ({ tries }) => killSessions(tries),
};

/**
 * Kills a server in the last requests of upload sessions. Then each client asks for the status of its session and continues
 * there, as the specification says. A session that is still there must end with its blob.
 */
async function killSessions(tries: number): Promise<FaultResult> {
  await using t = new Teardown();
  const line = await CommandLine.create(t, settings, inMemory);
  let server = await line.serve();
  const result: FaultResult = { tries, acknowledged: 0, lost: 0, halfVisible: 0, recoveryMs: 0 };
  const defects: string[] = [];
  let continued = 0;
  for (let kill = 0; kill < tries * killsOfTry; kill += 1) {
    const { url: before } = server;
    const begun = await Promise.all(Array.from({ length: sessions }, () => begin(before)));
    const ending = begun.map((each) => end(before, each).catch(() => 0));
    await sleep(randomInt(5, 150));
    const killedAt = performance.now();
    await server.stop('SIGKILL');
    const statuses = await Promise.all(ending);
    server = await line.serve();
    result.recoveryMs = Math.max(result.recoveryMs, performance.now() - killedAt);
    const { url } = server;
    const outcomes = begun.map(async (each, index) => {
      const isAcknowledged = statuses[index] === 201;
      if (isAcknowledged) result.acknowledged += 1;
      const outcome = isAcknowledged ? await read(url, each) : await finish(url, each);
      if (outcome === 'continued') continued += 1;
      else if (outcome !== '') defects.push(outcome);
    });
    await Promise.all(outcomes);
  }
  result.lost = defects.length;
  return { ...result, notes: [`${continued} sessions continued`, ...defects.slice(0, 3)].join('; ') };
}

/** A session with all bytes, or with some of them. */
async function begin(url: string): Promise<Begun> {
  const bytes = randomBytes(randomInt(2000, 1_500_000));
  const begun = await ask(`${url}/v2/made/sessions/blobs/uploads/`, 'POST');
  const location = begun.headers.get('location')!;
  const sent = randomInt(2) === 0 ? bytes.length : randomInt(2, bytes.length);
  const chunk = await ask(url + location, 'PATCH', bytes.subarray(0, sent));
  if (chunk.status !== 202) throw new Error(`a chunk was answered with ${chunk.status}`);
  return { location, bytes, sent };
}

async function end(url: string, { location, bytes, sent }: Begun): Promise<number> {
  return (await ask(`${url}${location}?digest=${digestOf(bytes)}`, 'PUT', bytes.subarray(sent))).status;
}

/** `continued`, empty if the blob is there, else what went wrong: the session had all of its chunk. */
async function finish(url: string, begun: Begun): Promise<string> {
  const { location, bytes, sent } = begun;
  const status = await ask(url + location, 'GET');
  // The commit may have ended before the kill, without an answer.
  if (status.status === 404) return read(url, begun);
  const from = Number((status.headers.get('range') ?? '').split('-')[1]) + 1;
  const last = await end(url, { ...begun, sent: from });
  if (last !== 201) return `${sent} of ${bytes.length} bytes were sent, ${from} told, then ${last}`;
  return (await read(url, begun)) || 'continued';
}

/** Empty if the blob can be read. */
async function read(url: string, { location, bytes, sent }: Begun): Promise<string> {
  const blob = await ask(`${url}/v2/made/sessions/blobs/${digestOf(bytes)}`, 'GET');
  if (blob.status === 200 && Buffer.from(await blob.arrayBuffer()).equals(bytes)) return '';
  return `${location}: ${sent} of ${bytes.length} bytes were sent, then ${blob.status} for the blob`;
}

function ask(url: string, method: string, body?: Buffer): Promise<Response> {
  return fetch(url, {
    method,
    headers: { authorization },
    ...(body && { body: new Uint8Array(body) }),
    signal: AbortSignal.timeout(60_000),
  });
}
