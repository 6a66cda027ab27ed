import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import { recordOutside } from '../events/record.ts';
import { countsText } from '../jobs/runs.ts';
import type { Installation } from '../server/installation.ts';
import { row } from './printed.ts';
import { withInstallation, type Terminal } from './with-installation.ts';

/** Files that `gc --files` names. */
const maxShown = 100;

type Counts = Awaited<ReturnType<Installation['jobs']['run']>>;

/** `entrepot jobs`, and the jobs that are commands too: `gc`, `retention`, `scrub`. */
export function addJobs(program: Command, environment: Environment, terminal: Terminal): void {
  const say = (line: string) => void terminal.stdout.write(`${line}\n`);
  const run = (name: string, dryRun = false) =>
    withInstallation(environment, async ({ jobs }) => {
      const counts = await jobs.run(name, { dryRun, say });
      say(`${dryRun ? 'would be done' : 'done'}: ${countsText(counts)}`);
      refuseDamage(counts);
    });
  const dryRun: [string, string] = ['--dry-run', 'only show what the job would do'];

  const jobs = program.command('jobs').description('list the scheduled jobs, and run one now');
  jobs
    .command('list')
    .description('list the jobs, with the time of the next run and the result of the last run')
    .action(() =>
      withInstallation(environment, async (installation) => {
        for (const each of await installation.jobs.list()) terminal.stdout.write(lineOf(each));
      }),
    );
  jobs
    .command('run <name>')
    .description('run a job now, even if it is off; fails if it is already running')
    .option(...dryRun)
    .action((name: string, options: { dryRun?: boolean }) => run(name, options.dryRun));
  program
    .command('gc')
    .description('run the job gc (garbage collection): delete unreferenced bytes older than the setting "gc.grace"')
    .option(...dryRun)
    .option('--files', 'instead, show the files that have no row in the database; with --yes, delete them')
    .option('--yes', 'with --files: delete them')
    .action((options: { dryRun?: boolean; files?: boolean; yes?: boolean }) => {
      if (options.yes && (!options.files || options.dryRun))
        throw new DomainError('Invalid', '--yes needs --files, without --dry-run.');
      if (!options.files) return run('gc', options.dryRun);
      return withInstallation(environment, (installation) => cleanFiles(installation, options.yes ?? false, say));
    });
  program
    .command('retention')
    .description('run the job retention: delete hosted content by the rules in the settings "retention"')
    .option(...dryRun)
    .action((options: { dryRun?: boolean }) => run('retention', options.dryRun));
  program
    .command('scrub')
    .description('run the job scrub: read and verify stored bytes; continues an interrupted pass')
    .action(() => run('scrub'));
}

/** Shows the files that have no row, and deletes them if `confirmed`. */
async function cleanFiles(
  { core, filesWithoutRow }: Installation,
  confirmed: boolean,
  say: (line: string) => void,
): Promise<void> {
  const before = core.now() - core.config.gc.grace;
  let shown = 0;
  const report = ({ digest, size, storedAt }: { digest: string; size: number; storedAt: number }) => {
    shown += 1;
    if (shown <= maxShown) say(`${digest}\t${size} bytes\t${new Date(storedAt).toISOString()}`);
  };
  const { files, bytes, recent } = await filesWithoutRow.find({ before, report });
  if (shown > maxShown) say(`… and ${shown - maxShown} more`);
  if (recent > 0) say(`kept: ${recent} files that are younger than the setting "gc.grace"`);
  if (files === 0) return say(recent > 0 ? 'nothing to delete' : 'no file without a row');
  if (!confirmed) return say(`would delete ${files} files, ${bytes} bytes. To delete them, add --yes`);
  say(`deleting ${files} files, ${bytes} bytes`);
  const removed = await filesWithoutRow.remove({ before });
  const subject = { kind: 'storage', name: core.config.storage.driver } as const;
  const details = { files: removed.files, bytes: removed.bytes };
  await recordOutside(core.database, { type: 'storage.cleaned', accountId: 0, subject, details }, core.now());
  say(`done: ${removed.files} files, ${removed.bytes} bytes`);
}

/** Fails the command if the job found damaged hosted content, so that scripts notice it: it cannot be fetched again. */
function refuseDamage(counts: Counts): void {
  const damaged = counts['damaged_hosted'] ?? 0;
  if (damaged === 0) return;
  throw new DomainError('Invalid', `${damaged} hosted ${damaged === 1 ? 'blob is' : 'blobs are'} damaged; see above`);
}

function lineOf({ job, last }: Awaited<ReturnType<Installation['jobs']['list']>>[number]): string {
  const next = job.schedule ? `next ${new Date(job.schedule.next()).toISOString()}` : 'off';
  if (!last) return row(job.name, next, 'never ran', job.summary);
  const ended = last.endedAt === null ? '' : ` in ${(last.endedAt - last.startedAt) / 1000} s`;
  const outcome = `${last.outcome} ${new Date(last.startedAt).toISOString()}${ended}`;
  return row(job.name, next, outcome, last.error ?? countsText(last.counts), job.summary);
}
