import assert from 'node:assert/strict';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { createPair } from '../support/tls.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { readiness, resultOf } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const clients = 4;
const most = 3;

export const fault: Fault = { name: 'certificate replaced by a broken one, under pushes', run: breakCertificate };

/** The recovery is the time until the repaired certificate is used. */
async function breakCertificate({ tries: wanted }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const pair = await createPair(t);
  const trusted = getCACertificates();
  setDefaultCACertificates([...trusted, pair.authority.ca]);
  t.teardown(() => setDefaultCACertificates(trusted));
  const line = await CommandLine.create(t, settings, inMemory);
  const server = await line.serve({
    ENTREPOT_TLS_CERT_FILE: pair.tls.certFile,
    ENTREPOT_TLS_KEY_FILE: pair.tls.keyFile,
  });
  const pushes = new Pushes();
  let recoveryMs = 0;
  for (let each = 0; each < tries; each += 1) {
    const stop = new AbortController();
    const pushing = pushes.run([server.url], clients, stop.signal);
    const pushed = async () => {
      const before = pushes.acknowledged;
      await until(() => pushes.acknowledged >= before + clients, 60_000);
    };
    await pushed();
    const good = { cert: pair.cert, key: pair.key };
    const broken = [{ cert: 'no certificate' }, { cert: good.cert.slice(0, 400) }, { key: otherKey() }][each]!;
    await pair.replace(broken);
    await until(async () => (await readiness(server.url)).state === 'degraded', 20_000);
    // New connections still get the previous certificate.
    assert.equal((await pushes.attempt(server.url)).status, 201);
    await pushed();
    const repairedAt = performance.now();
    await pair.replace(pair.authority.issue('127.0.0.1', 'localhost'));
    await until(async () => (await readiness(server.url)).state === 'ready', 60_000);
    recoveryMs = Math.max(recoveryMs, performance.now() - repairedAt);
    stop.abort();
    await pushing;
  }
  return await resultOf(server.url, pushes, { tries, recoveryMs, notes: 'degraded meanwhile; no connection refused' });
}

/** A file that looks like a key and is none. */
function otherKey(): string {
  return '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n';
}
