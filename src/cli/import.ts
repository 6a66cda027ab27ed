import { readFile, stat } from 'node:fs/promises';
import { InvalidArgumentError, type Command } from 'commander';
import { readSecretFile, type Environment } from '../config/load.ts';
import type { ImportOptions, ImportSource } from '../import/item.ts';
import { parseNameRule, renamed, type NameRule } from '../import/name-rules.ts';
import { openServer, serverKinds } from '../import/source.ts';
import { matcher } from '../mirror/policy/upstream-policy.ts';
import { openPlainSource } from '../prefetch/plain.ts';
import { DomainError } from '../runtime/errors.ts';
import { openQuota } from '../server/quota.ts';
import type { Installation } from '../server/installation.ts';
import { timeOption } from './audit.ts';
import { printReport, reportedRun, type ReportWords } from './reported-run.ts';
import { readSecret } from './secret.ts';
import { rate, wholeNumber } from './selection.ts';
import { accountId, stoppedBy, type Terminal, withInstallation } from './with-installation.ts';

interface ImportFlags {
  account: string;
  dryRun?: boolean;
  since?: string;
  names?: string;
  only?: string[];
  rename?: NameRule[];
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

/** What a source can be. */
const kinds = [...serverKinds, 'folder', 'bagetter', 'docker-registry', 'oci', 'docker-archive'];
/** Most bytes of a file with names. */
const namesLimit = 16 * 2 ** 20;

/** `entrepot import` */
export function addImport(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('import')
    .usage('[options] [kind] <source>')
    .description(
      'bring the packages and images of another server, or of its files, in as hosted content: from the address of a server, a folder, or an archive',
    )
    .argument('<kind>', `what the source is: ${kinds.join(', ')}; may be left out, except of a Harbor and a Nexus`)
    .argument('[source]', 'its address, folder or archive')
    .option('--into, --account <account>', 'the account that gets the content', 'default')
    .option('--dry-run', 'only show what would come, what cannot come and why, and what upstreams have, too')
    .option('--since <time>', 'only what was published since then: a date, or a duration such as 7d')
    .option('--names <file>', 'only the names in this file, one a line; the source is not asked for a list')
    .option('--only <patterns>', 'only names that match, such as Contoso.*,Fabrikam', (text) => text.split(','))
    .option(
      '--map, --rename <rule>',
      'rename images, such as old/*=team/*; the first rule that matches counts (repeatable)',
      nameRule,
    )
    .option('--name <image>', 'the name of an image in a layout or archive that has none, such as team/app:1')
    .option('--move-tags', 'move a tag here that points to another image, if the source has that image, too')
    .option('--hosted', 'everything is hosted content: ask no upstream whether it has the same')
    .option('--concurrency <n>', 'versions that are brought in at the same time', wholeNumber(1, 64), 8)
    .option('--rate <bytes>', 'most bytes per second from the source, such as 20MiB/s', rate)
    .option('--report <file>', 'write what became of each version to this new file, one JSON object a line')
    .option('--user <name>', 'the user of the source; without it, the secret is a bearer token')
    .option('--token-file <file>', 'the file with the password or token of the source; "-" is standard input')
    .option('--token-env <name>', 'the environment variable with the password or token of the source')
    .option('--ca-file <file>', 'certificate authorities of the source, PEM')
    .action((kind: string, source: string | undefined, flags: ImportFlags) =>
      importFrom(environment, placeOf(kind, source), flags, terminal),
    );
}

/** The place of the content, and the kind of the source if the command names it. */
interface Place {
  kind: string | undefined;
  place: string;
}

/** The words of a command, of which the first may be left out. */
function placeOf(first: string, second: string | undefined): Place {
  const kind = kinds.find((each) => each === first);
  if (second === undefined && kind === undefined) return { kind, place: first };
  if (second === undefined) throw new DomainError('Invalid', `name the address, folder or archive after "${first}"`);
  if (kind === undefined)
    throw new DomainError('Invalid', `"${first}" is no kind of source; use one of ${kinds.join(', ')}`);
  const isServer = serverKinds.includes(kind);
  if (isServer !== isAddress(second))
    throw new DomainError(
      'Invalid',
      `${kind} needs ${isServer ? 'an address with http or https' : 'a folder or a file'}`,
    );
  return { kind, place: second };
}

function isAddress(place: string): boolean {
  return /^https?:\/\//i.test(place);
}

async function importFrom(
  environment: Environment,
  { kind, place }: Place,
  flags: ImportFlags,
  terminal: Terminal,
): Promise<void> {
  const controller = stoppedBy(terminal);
  const secret = await readSecret(flags, environment, terminal);
  const dryRun = flags.dryRun === true;
  await withInstallation(
    environment,
    async (installation) => {
      const { core, protocols } = installation;
      const account = await accountId(core, flags.account);
      const fixed = await fixedOptions(installation, account, flags);
      await using stack = new AsyncDisposableStack();
      const parts = { secret, environment, installation, signal: controller.signal };
      const sources = await sourcesAt({ kind, place }, flags, parts, stack);
      if (sources.length > 1 && flags.names !== undefined)
        throw new DomainError(
          'Invalid',
          '--names: name the address of one repository, because this source has several',
        );
      const report = await reportedRun(
        (signal, warn) =>
          sources.flatMap((source) =>
            protocols.flatMap((each) => each.importFrom?.(source, { ...fixed, signal, warn }) ?? []),
          ),
        flags,
        { controller, terminal },
      );
      if (sources[0]?.type === 'folder' && report.ended === 0 && flags.since === undefined)
        throw new DomainError('Invalid', `${place} has nothing that can be imported`);
      printReport(report, words, dryRun, terminal);
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
  const owner = { accountId: account, accountName: flags.account };
  return {
    accountId: account,
    dryRun: flags.dryRun === true,
    since: timeOption(flags.since, '--since'),
    names: flags.names === undefined ? undefined : await namesIn(flags.names),
    isWanted: flags.only ? matcher(flags.only.map((each) => each.trim())) : () => true,
    nameHere: (name) => renamed(name, flags.rename ?? []),
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
  signal: AbortSignal;
}

async function sourcesAt(
  { kind, place }: Place,
  { user, caFile }: ImportFlags,
  { secret, environment, installation, signal }: SourceParts,
  stack: AsyncDisposableStack,
): Promise<ImportSource[]> {
  const { core } = installation;
  if (!isAddress(place)) return [{ type: 'folder', files: await openPlainSource(place, stack), from: place }];
  const ca = caFile === undefined ? undefined : readSecretFile(caFile, '--ca-file');
  const parts = { ...core, proxy: environment, offline: core.config.offline, signal };
  return openServer(
    serverKinds.find((each) => each === kind),
    place,
    { secret, user, ca },
    parts,
    stack,
  );
}

async function namesIn(file: string): Promise<string[]> {
  if ((await stat(file)).size > namesLimit) throw new DomainError('Invalid', `--names: ${file} is too large`);
  const lines = (await readFile(file, 'utf8')).split('\n').map((line) => line.trim());
  return lines.filter((line) => line !== '' && !line.startsWith('#'));
}

/** Adds a rule of names that an option gives. */
export function nameRule(text: string, before: readonly NameRule[] = []): NameRule[] {
  try {
    return [...before, parseNameRule(text)];
  } catch (error) {
    throw new InvalidArgumentError((error as DomainError).message);
  }
}

const words: ReportWords = {
  imported: ['imported', 'to import'],
  present: ['here already', 'here already'],
  updated: ['updated', 'to update'],
  mirrored: ['mirrored', 'mirrored'],
  conflict: ['conflicts', 'conflicts'],
  failed: ['failed', 'cannot come'],
  problems: 'did not come',
};
