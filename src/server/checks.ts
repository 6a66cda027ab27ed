import type { Core } from './core.ts';
import type { Check } from '../http/health.ts';
import type { ServerCertificate } from '../tls/certificate.ts';
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
export function keyCheck(webhooks: Pick<OpenWebhooks, 'keyProblem'>): Check {
  const failure = 'The secrets of webhooks cannot be decrypted: their key is missing or another one.';
  const run = async () => {
    const problem = await webhooks.keyProblem();
    if (problem !== undefined) throw new Error(problem);
  };
  return { part: 'webhooks', failure, run };
}

/** For the certificate of the server, if it has one. */
export function certificateCheck(certificate: ServerCertificate): Check {
  const failure = 'The TLS certificate has expired, or its changed files cannot be used.';
  return { part: 'certificate', failure, run: () => certificate.check() };
}
