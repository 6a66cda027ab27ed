import { Command, CommanderError } from 'commander';
import type { Environment } from '../config/load.ts';
import { version } from '../package.ts';
import { addAccount } from './account.ts';
import { addAdopt } from './adopt.ts';
import { addBackup } from './backup.ts';
import { addCert } from './cert.ts';
import { addAudit } from './audit.ts';
import { addClaim } from './claim.ts';
import { addAdvisory, addDeprecate } from './deprecate.ts';
import { addDoctor } from './doctor.ts';
import type { Terminal } from './with-installation.ts';
import { addInstances } from './instances.ts';
import { addJobs } from './jobs.ts';
import { addPrefetch } from './prefetch.ts';
import { addPublisher } from './publisher.ts';
import { addServe } from './serve.ts';
import { addToken } from './token.ts';
import { addUsage } from './usage.ts';
import { addWebhook } from './webhook.ts';

/** Runs one command; resolves to the exit code. Results go to stdout, errors to stderr as one line. */
export async function run(words: readonly string[], environment: Environment, terminal: Terminal): Promise<number> {
  const program = new Command('entrepot')
    .description('A NuGet feed, container registry and pull-through mirror in one server')
    .version(version)
    .exitOverride()
    // An error is one line.
    .showSuggestionAfterError(false)
    .configureOutput({
      writeOut: (text) => void terminal.stdout.write(text),
      writeErr: (text) => void terminal.stderr.write(text),
    });
  addServe(program, environment, terminal);
  addAccount(program, environment, terminal);
  addToken(program, environment, terminal);
  addPublisher(program, environment, terminal);
  addClaim(program, environment, terminal);
  addDeprecate(program, environment, terminal);
  addAdvisory(program, environment, terminal);
  addUsage(program, environment, terminal);
  addAudit(program, environment, terminal);
  addWebhook(program, environment, terminal);
  addAdopt(program, environment, terminal);
  addBackup(program, environment, terminal);
  addDoctor(program, environment, terminal);
  addCert(program, environment, terminal);
  addPrefetch(program, environment, terminal);
  addJobs(program, environment, terminal);
  addInstances(program, environment, terminal);
  // `deprecate` has its own --version. Subcommands would inherit this if it were set before them.
  program.enablePositionalOptions();
  try {
    await program.parseAsync([...words], { from: 'user' });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode;
    terminal.stderr.write(`entrepot: ${explain(error)}\n`);
    return 1;
  }
}

/** One line for the user of the command. */
function explain(error: unknown): string {
  const { name, message } = error as { name?: string; message?: string };
  const line = (message || String(error)).split('\n', 1)[0]!;
  if (name?.startsWith('Sequelize')) return `ENTREPOT_DATABASE_URL: the database failed: ${line}`;
  return line;
}
