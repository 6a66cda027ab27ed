import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import { InvalidArgumentError, type Command } from 'commander';
import { readSecretFile, type Environment } from '../config/load.ts';
import { runImport } from '../import/import.ts';
import type { ImportOptions, ImportOutcome, ImportSource } from '../import/item.ts';
import { type ImportLine, type ImportReport } from '../import/report.ts';
import { openRemote } from '../import/source.ts';
import { matcher } from '../mirror/policy/upstream-policy.ts';
import { openPlainSource } from '../prefetch/plain.ts';
import { DomainError } from '../runtime/errors.ts';
import { openQuota } from '../server/quota.ts';
import type { Installation } from '../server/server.ts';
import { timeOption } from './audit.ts';
import { row, shown } from './printed.ts';
import { binaryBytes, ProgressBar } from './progress.ts';
import { rate, wholeNumber } from './selection.ts';
import { accountId, withInstallation, type Terminal } from './with-installation.ts';

interface ImportFlags {
  into: string;
  dryRun?: boolean;
  since?: string;
  names?: string;
  only?: string[];
  map?: NameRule[];
  name?: string;
  moveTags?: boolean;
  hosted?: boolean;
  concurrency: number;
  rate?: number;
  report?: string;
  user?: string;
  tokenFile?: string;
  tokenEnv?: string;
  caFile?: string;
}

/** Most bytes of a file with names. */
const namesLimit = 16 * 2 ** 20;

/** `entrepot import` */
export function addImport(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('import <source>')
    .description(
      'bring the packages and images of another server, or of its files, in as hosted content: from the address of the index of a feed, of a registry, a folder of packages, the folder of a docker-registry, an OCI image layout, or an archive of "docker save"',
    )
    .option('--into <account>', 'the account that gets the content', 'default')
    .option('--dry-run', 'only show what would come, what cannot come and why, and what upstreams have, too')
    .option('--since <time>', 'only what was published since then: a date, or a duration such as 7d')
    .option('--names <file>', 'only the names in this file, one a line; the source is not asked for a list')
    .option('--only <patterns>', 'only names that match, such as Contoso.*,Fabrikam', (text) => text.split(','))
    .option(
      '--map <rule>',
      'rename images, such as old/*=team/*; the first rule that matches counts (repeatable)',
      nameRule,
    )
    .option('--name <image>', 'the name of an image in a layout or archive that has none, such as team/app:1')
    .option('--move-tags', 'move a tag here that points to another image, if the source has that image, too')
    .option('--hosted', 'everything is hosted content: ask no upstream whether it has the same')
    .option('--concurrency <n>', 'versions that are brought in at the same time', wholeNumber(1, 64), 8)
    .option('--rate <bytes>', 'most bytes per second from the source, such as 20MiB/s', rate)
    .option('--report <file>', 'write what became of each version to this file, one JSON object a line')
    .option('--user <name>', 'the user of the source; without it, the secret is a bearer token')
    .option('--token-file <file>', 'the file with the password or token of the source; "-" is standard input')
    .option('--token-env <name>', 'the environment variable with the password or token of the source')
    .option('--ca-file <file>', 'certificate authorities of the source, PEM')
    .action((source: string, flags: ImportFlags) => importFrom(environment, source, flags, terminal));
}

async function importFrom(
  environment: Environment,
  place: string,
  flags: ImportFlags,
  terminal: Terminal,
): Promise<void> {
  const controller = new AbortController();
  terminal.once('SIGINT', () => controller.abort());
  terminal.once('SIGTERM', () => controller.abort());
  const secret = await secretOf(flags, environment, terminal);
  const dryRun = flags.dryRun === true;
  await withInstallation(
    environment,
    async (installation) => {
      const { core, protocols } = installation;
      const account = await accountId(core, flags.into);
      const fixed = await fixedOptions(installation, account, flags);
      await using stack = new AsyncDisposableStack();
      const source = await sourceOf(place, flags, { secret, environment, installation }, stack);
      const lines = flags.report === undefined ? undefined : createWriteStream(flags.report);
      if (lines) await once(lines, 'open');
      const written = lines && finished(lines);
      // An import ends when its report cannot be written, on a full disk for example.
      written?.catch(() => controller.abort());
      const bar = new ProgressBar(terminal.screen);
      const report = await runImport(
        (signal, warn) => protocols.flatMap((each) => each.importFrom?.(source, { ...fixed, signal, warn }) ?? []),
        {
          concurrency: flags.concurrency,
          rate: flags.rate,
          signal: controller.signal,
          watch: (progress) => bar.show(progress),
          onLine: (line) => lines?.write(`${JSON.stringify(lineOf(line))}\n`),
        },
      ).finally(() => bar.clear());
      lines?.end();
      await written;
      if (source.type === 'folder' && report.ended === 0 && flags.since === undefined)
        throw new DomainError('Invalid', `${place} has nothing that can be imported`);
      print(report, dryRun, terminal);
    },
    { level: 'silent', creates: !dryRun },
  );
}

/** The options of the flags, without what belongs to one run. */
async function fixedOptions(
  installation: Installation,
  account: number,
  flags: ImportFlags,
): Promise<Omit<ImportOptions, 'signal' | 'warn'>> {
  const quota = openQuota(installation);
  const owner = { accountId: account, accountName: flags.into };
  return {
    accountId: account,
    dryRun: flags.dryRun === true,
    since: timeOption(flags.since, '--since'),
    names: flags.names === undefined ? undefined : await namesIn(flags.names),
    isWanted: flags.only ? matcher(flags.only.map((each) => each.trim())) : () => true,
    nameHere: (name) => mapped(name, flags.map ?? []),
    name: flags.name,
    allHosted: flags.hosted === true,
    moveTags: flags.moveTags === true,
    // An operator may push every name.
    permit: () => undefined,
    admit: (bytes) => quota.admit(owner, bytes, () => undefined),
  };
}

interface SourceParts {
  secret: string | undefined;
  environment: Environment;
  installation: Installation;
}

async function sourceOf(
  place: string,
  { user, caFile }: ImportFlags,
  { secret, environment, installation }: SourceParts,
  stack: AsyncDisposableStack,
): Promise<ImportSource> {
  const { core } = installation;
  if (!/^https?:\/\//i.test(place)) return { type: 'folder', files: await openPlainSource(place, stack), from: place };
  const ca = caFile === undefined ? undefined : readSecretFile(caFile, '--ca-file');
  const remote = openRemote(place, { secret, user, ca }, { ...core, proxy: environment, offline: core.config.offline });
  stack.defer(() => remote.close());
  return { type: 'server', remote, from: remote.name };
}

/** The secret of the source, which is on no command line: other users of the machine could read it there. */
async function secretOf(
  { tokenFile, tokenEnv }: ImportFlags,
  environment: Environment,
  terminal: Terminal,
): Promise<string | undefined> {
  if (tokenEnv !== undefined) {
    const secret = environment[tokenEnv];
    if (!secret) throw new DomainError('Invalid', `--token-env: the environment has no ${tokenEnv}`);
    return secret;
  }
  if (tokenFile !== '-') return tokenFile === undefined ? undefined : readSecretFile(tokenFile, '--token-file');
  let text = '';
  for await (const piece of terminal.stdin ?? []) {
    text += typeof piece === 'string' ? piece : Buffer.from(piece).toString('utf8');
    if (text.includes('\n') || text.length > 65_536) break;
  }
  const [secret = ''] = text.trim().split('\n', 1);
  if (secret === '') throw new DomainError('Invalid', '--token-file: standard input has no token');
  return secret.trim();
}

async function namesIn(file: string): Promise<string[]> {
  if ((await stat(file)).size > namesLimit) throw new DomainError('Invalid', `--names: ${file} is too large`);
  const lines = (await readFile(file, 'utf8')).split('\n').map((line) => line.trim());
  return lines.filter((line) => line !== '' && !line.startsWith('#'));
}

/** Names with a beginning and an end, and those that they get. */
interface NameRule {
  from: [string, string?];
  to: [string, string?];
}

function nameRule(text: string, before: readonly NameRule[] = []): NameRule[] {
  const [from = [], to = [], ...more] = text.split('=').map((each) => each.split('*'));
  const isWhole = more.length === 0 && from.length === to.length && (from.length === 1 || from.length === 2);
  if (!isWhole || from.join('') === '' || (to.length === 1 && to[0] === ''))
    throw new InvalidArgumentError('Use a rule such as old/*=team/* or old/app=team/app.');
  return [...before, { from: from as NameRule['from'], to: to as NameRule['to'] }];
}

function mapped(name: string, rules: readonly NameRule[]): string {
  for (const {
    from: [start, end],
    to,
  } of rules) {
    if (
      end === undefined
        ? name === start
        : name.length >= start.length + end.length && name.startsWith(start) && name.endsWith(end)
    )
      return end === undefined ? to[0] : `${to[0]}${name.slice(start.length, name.length - end.length)}${to[1]}`;
  }
  return name;
}

/** A line of the report in a file. */
function lineOf({ name, reference, outcome, bytes, note, alsoAt }: ImportLine): object {
  return {
    name,
    reference,
    outcome,
    bytes,
    ...(note !== undefined && { note }),
    ...(alsoAt !== undefined && { upstream: alsoAt }),
  };
}

const words: Record<ImportOutcome, [done: string, planned: string]> = {
  imported: ['imported', 'to import'],
  present: ['here already', 'here already'],
  mirrored: ['mirrored', 'mirrored'],
  conflict: ['conflicts', 'conflicts'],
  failed: ['failed', 'cannot come'],
};

/** Prints the summary to stdout and what needs a person to stderr. Throws if something does, or if the source was not read whole. */
function print(report: ImportReport, dryRun: boolean, terminal: Terminal): void {
  const { counts, warnings, alsoAt, problems, problemCount, stopped } = report;
  for (const [outcome, [done, planned]] of Object.entries(words)) {
    const { count: number, bytes } = counts[outcome as ImportOutcome];
    const size = bytes > 0 ? ` (${binaryBytes(bytes)})` : '';
    terminal.stdout.write(`${dryRun ? planned : done}: ${number}${size}\n`);
  }
  for (const [name, upstream] of alsoAt) terminal.stdout.write(row('upstreams have it, too', name, upstream));
  for (const each of warnings) terminal.stderr.write(`warning: ${shown(each)}\n`);
  for (const { name, reference, outcome, note = '' } of problems)
    terminal.stderr.write(`${outcome}: ${shown(`${name} ${reference}`.trim())}: ${shown(note.replace(/\.$/, ''))}\n`);
  if (problemCount > problems.length)
    terminal.stderr.write(`and ${problemCount - problems.length} more; --report writes all of them\n`);
  if (stopped !== undefined)
    throw new DomainError(
      'Aborted',
      `stopped before the end: ${stopped.replace(/\.$/, '')}; run the same command again to continue`,
    );
  if (problemCount > 0) throw new DomainError('Invalid', `${problemCount} did not come`);
}
