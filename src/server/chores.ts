import { ImportWatch } from '../bundle/import-watch.ts';
import type { ObservedBills } from '../exposure/observed-bills.ts';
import type { RepeatedWork } from '../jobs/repeated-work.ts';
import type { ServerCertificate } from '../tls/certificate.ts';
import type { Jobs } from '../jobs/jobs.ts';
import { isDomainError } from '../runtime/errors.ts';
import type { Takeover } from '../takeover/takeover.ts';
import type { Quota } from '../usage/quota.ts';
import type { OpenWebhooks } from '../webhooks/open.ts';
import type { Core } from './core.ts';
import type { OpenProtocol } from './protocol.ts';

interface ChoreParts {
  core: Core;
  protocols: readonly OpenProtocol[];
  webhooks: OpenWebhooks;
  takeover: Takeover;
  jobs: Jobs;
  bills: ObservedBills;
}

/** The short work that each server repeats. */
export function choresOf(
  { core, protocols: opened, webhooks, takeover, jobs, bills }: ChoreParts,
  quota: Quota,
  certificate: ServerCertificate | undefined,
): RepeatedWork[] {
  const { tokens, sessions, identity, usage, failures, uses, checks, entries, repeatedEvents } = core;
  const soon = 5000;
  const imports = new ImportWatch(core.database, core.cache);
  return [
    { interval: soon, run: () => repeatedEvents.flush(), failure: 'repeated events were not written' },
    { interval: soon, run: () => tokens.flush(), failure: 'the times of the last use of tokens were not written' },
    { interval: soon, run: () => usage.flush(), failure: 'usage was not written; the next attempt includes it' },
    { interval: soon, run: () => entries.flushUses(), failure: 'the last uses of mirrored content were not written' },
    { interval: soon, run: () => failures.flush(), failure: 'failed requests were not written, and are lost' },
    { interval: soon, run: () => uses.flush(), failure: 'the uses of tokens were not written, and are lost' },
    { interval: 1000, run: () => checks.flush(), failure: 'requests that checks of clients wait for were not noted' },
    {
      interval: soon,
      run: () => readInventories(takeover, jobs),
      failure: 'the inventories of predecessors were not read; the next attempt is in a minute',
    },
    { interval: 500, run: () => imports.run(), failure: 'what other processes imported is shown later' },
    {
      interval: 15_000,
      run: () => bills.run(),
      failure: 'bills of materials of pushed images were not made; the next attempt is in 15 seconds',
    },
    { interval: 600_000, run: () => uses.deleteOld(), failure: 'old uses of tokens were not deleted' },
    { interval: 600_000, run: () => checks.deleteOld(), failure: 'old checks of clients were not deleted' },
    { interval: 600_000, run: () => failures.deleteOld(), failure: 'old failed requests were not deleted' },
    ...(certificate
      ? [{ interval: 2000, run: () => certificate.refresh(), failure: 'the certificate files were not read' }]
      : []),
    { interval: 600_000, run: () => quota.review(), failure: 'the limits of accounts were not checked' },
    { interval: 60_000, run: () => identity.exchange.deleteExpired(), failure: 'expired tokens were not deleted' },
    { interval: 600_000, run: () => sessions.deleteEnded(), failure: 'ended sessions were not deleted' },
    ...opened.flatMap((each) => each.chores ?? []),
    ...webhooks.chores,
  ];
}

/** Until an inventory is read, the names of its account are refused. So it does not wait for the schedule, unless that is off. */
async function readInventories(takeover: Takeover, jobs: Jobs): Promise<void> {
  if (!jobs.scheduled.includes('takeover') || !(await takeover.isDue())) return;
  await jobs.launch('takeover').catch((error: unknown) => {
    // It runs already.
    if (!isDomainError(error, 'Invalid')) throw error;
  });
}
