import type { Core, Surroundings } from './core.ts';
import { Health, type Check } from '../http/health.ts';
import { Probes } from '../http/probes.ts';
import type { ServerCertificate } from '../tls/certificate.ts';
import type { Quota } from '../usage/quota.ts';
import type { OpenWebhooks } from '../webhooks/open.ts';

/** What readiness and `entrepot doctor` check. */
export function checksOf({ database, driver, blobs, cache, room }: Core): { reads: Check[]; writes: Check[] } {
  return {
    reads: [
      { part: 'database', failure: 'The database cannot be read.', run: () => database.checkReads() },
      {
        part: 'storage',
        failure: 'The storage cannot be read.',
        run: () => blobs.checkReads(),
        every: driver.checkEvery,
      },
      { part: 'storage', failure: 'The storage cannot be written.', run: () => blobs.checkStaging() },
    ],
    writes: [
      { part: 'database', failure: 'The database cannot be written.', run: () => database.checkWrites() },
      { part: 'storage', failure: 'The storage cannot be written.', run: () => blobs.checkWrites() },
      {
        part: 'storage',
        failure: 'The disk has less free space than storage.reserve: uploads are refused.',
        run: () => room.check(),
      },
      { part: 'redis', failure: 'Redis does not answer.', run: () => cache.check() },
    ],
  };
}

/** For the key of webhooks. */
function keyCheck(webhooks: Pick<OpenWebhooks, 'keyProblem'>): Check {
  const failure = 'The secrets of webhooks cannot be decrypted: their key is missing or another one.';
  const run = async () => {
    const problem = await webhooks.keyProblem();
    if (problem !== undefined) throw new Error(problem);
  };
  return { part: 'webhooks', failure, run };
}

/** For the certificate of the server, if it has one. */
function certificateCheck(certificate: ServerCertificate): Check {
  const failure = 'The TLS certificate has expired or is not valid yet, or its changed files cannot be used.';
  return { part: 'certificate', failure, run: () => certificate.check() };
}

/** The answers about health and the metrics of this process. */
export function openOperations(
  { core, webhooks }: { core: Core; webhooks: OpenWebhooks },
  quota: Quota,
  certificate: ServerCertificate | undefined,
  { healthTimes: times, droppedLines, exchange }: Surroundings,
): Probes {
  const { cache, log } = core;
  const { reads, writes } = checksOf(core);
  writes.push(keyCheck(webhooks));
  if (certificate) writes.push(certificateCheck(certificate));
  const health = new Health({ reads, writes, redisFailedAt: () => cache.failedAt, log, times });
  const operations = new Probes(health, exchange);
  operations.accountGauge(
    'entrepot_account_limit_ratio',
    'Used share of a limit of an account; 1 at the limit',
    ['account', 'limit'],
    () => [...quota.used].map(({ account, limit, ratio }) => [{ account, limit }, ratio]),
  );
  operations.counter(
    'entrepot_limited_requests_total',
    'Requests and connections above a limit',
    ['limit', 'outcome'],
    () => core.limits.counts,
  );
  operations.counter('entrepot_log_lines_dropped_total', 'Lines that the log could not write', [], () => [
    [{}, droppedLines?.() ?? 0],
  ]);
  return operations;
}
