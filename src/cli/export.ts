import type { Command } from 'commander';
import { readSecretFile, type Environment } from '../config/load.ts';
import { renamed, type NameRule } from '../import/name-rules.ts';
import { openServer } from '../import/source.ts';
import { protocolWords } from '../config/protocols.ts';
import { matcher } from '../mirror/policy/upstream-policy.ts';
import { DomainError } from '../runtime/errors.ts';
import { timeOption } from './audit.ts';
import { nameRule } from './import.ts';
import { row } from './printed.ts';
import { binaryBytes } from './progress.ts';
import { printReport, reportedRun, type ReportWords } from './reported-run.ts';
import { readSecret } from './secret.ts';
import { rate, wholeNumber } from './selection.ts';
import { accountId, stoppedBy, type Terminal, withInstallation } from './with-installation.ts';

interface ExportFlags {
  account: string;
  dryRun?: boolean;
  since?: string;
  all?: boolean;
  only?: string[];
  rename?: NameRule[];
  moveTags?: boolean;
  concurrency: number;
  rate?: number;
  report?: string;
  user?: string;
  tokenFile?: string;
  tokenEnv?: string;
  apiKeyFile?: string;
  caFile?: string;
}

const kinds: readonly string[] = protocolWords.map(({ server }) => server);

const words: ReportWords = {
  imported: ['exported', 'to export'],
  present: ['there already', 'there already'],
  updated: ['unlisted there', 'to unlist there'],
  conflict: ['conflicts', 'conflicts'],
  failed: ['failed', 'cannot go'],
  problems: 'did not go',
};

/** `entrepot export` */
export function addExport(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('export')
    .description('push what an account hosts to another server, as its clients push: what was pushed here goes back')
    .argument('<kind>', `what the other server is: ${kinds.join(', ')}`)
    .argument('<address>', 'the address of its index, or of the registry')
    .option('--from, --account <account>', 'the account that hosts the content', 'default')
    .option('--dry-run', 'only list what would be exported, and what the other server has already')
    .option('--since <time>', 'only what was pushed since then: a date, or a duration such as 7d')
    .option('--all', 'also versions of packages that an import or a bundle brought')
    .option('--only <patterns>', 'only names that match, such as Contoso.*,Fabrikam', (text) => text.split(','))
    .option(
      '--map, --rename <rule>',
      'rename images, such as team/*=old/*; the first rule that matches counts (repeatable)',
      nameRule,
    )
    .option('--move-tags', 'move a tag there that points to another image')
    .option('--concurrency <n>', 'versions that are sent at the same time', wholeNumber(1, 64), 4)
    .option('--rate <bytes>', 'most bytes per second, such as 20MiB/s', rate)
    .option('--report <file>', 'write what became of each version to this new file, one JSON object a line')
    .option('--user <name>', 'the user of the other server; without it, the secret is a bearer token')
    .option(
      '--token-file <file>',
      'the file with the password or token of the other server, which is its API key, too; "-" is standard input',
    )
    .option('--token-env <name>', 'the environment variable with the password or token of the other server')
    .option('--api-key-file <file>', 'the file with the API key of the feed, if it is another one')
    .option('--ca-file <file>', 'certificate authorities of the other server, PEM')
    .action((kind: string, address: string, flags: ExportFlags) =>
      exportTo(environment, kind, address, flags, terminal),
    );
}

async function exportTo(
  environment: Environment,
  kind: string,
  address: string,
  flags: ExportFlags,
  terminal: Terminal,
): Promise<void> {
  if (!kinds.includes(kind))
    throw new DomainError('Invalid', `"${kind}" is no kind of server to export to; use one of ${kinds.join(', ')}`);
  const controller = stoppedBy(terminal);
  const secret = await readSecret(flags, environment, terminal);
  const apiKey = flags.apiKeyFile === undefined ? secret : readSecretFile(flags.apiKeyFile, '--api-key-file');
  const ca = flags.caFile === undefined ? undefined : readSecretFile(flags.caFile, '--ca-file');
  const dryRun = flags.dryRun === true;
  const options = {
    dryRun,
    since: timeOption(flags.since, '--since'),
    all: flags.all === true,
    isWanted: flags.only ? matcher(flags.only.map((each) => each.trim())) : () => true,
    nameThere: (name: string) => renamed(name, flags.rename ?? []),
    moveTags: flags.moveTags === true,
  };
  await withInstallation(
    environment,
    async ({ core, protocols }) => {
      const account = await accountId(core, flags.account);
      await using stack = new AsyncDisposableStack();
      const parts = { ...core, proxy: environment, offline: core.config.offline, signal: controller.signal };
      const [server] = await openServer(kind, address, { secret, user: flags.user, ca }, parts, stack);
      if (server?.type !== 'server') return;
      const report = await reportedRun(
        (signal, warn) =>
          protocols.flatMap(
            (each) =>
              each.exportTo?.({ remote: server.remote, apiKey }, { ...options, accountId: account, signal, warn }) ??
              [],
          ),
        flags,
        {
          controller,
          terminal,
          other: 'target',
          onLine: ({ name, reference, outcome, bytes }) => {
            if (dryRun && outcome === 'imported')
              terminal.stdout.write(row('to export', name, reference, binaryBytes(bytes)));
          },
        },
      );
      printReport(report, words, dryRun, terminal);
    },
    { level: 'silent' },
  );
}
