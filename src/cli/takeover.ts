import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import { nameStates, type NameState } from '../takeover/inventory.ts';
import { finish, parityOf, type NameParity } from '../takeover/parity.ts';
import type { Takeover } from '../takeover/takeover.ts';
import { jsonLines } from './new-file.ts';
import { row } from './printed.ts';
import { stoppedBy, type Terminal, withInstallation } from './with-installation.ts';

interface ReportFlags {
  report?: string;
  read?: boolean;
  accept?: string[];
}

/** `entrepot takeover` */
export function addTakeover(program: Command, environment: Environment, terminal: Terminal): void {
  const takeover = program.command('takeover').description('servers that this one replaces (setting "predecessors")');
  takeover
    .command('status')
    .description('show how many names of each predecessor are here, and those that need a person')
    .action(() =>
      withInstallation(environment, async ({ takeover: opened }) => {
        for await (const line of statusOf(opened)) terminal.stdout.write(line);
      }),
    );
  takeover
    .command('mirror <predecessor> <names...>')
    .description('serve names from upstreams that have other content under them than the predecessor')
    .action((predecessor: string, names: string[]) =>
      withInstallation(environment, async ({ takeover: opened }) => {
        opened.named(predecessor);
        for (const name of names) {
          if (await opened.inventory.leave(predecessor, name)) continue;
          throw new DomainError(
            'NotFound',
            `${predecessor} has no name ${name} of which an upstream has other content.`,
          );
        }
      }),
    );
  compared(takeover.command('report <predecessor>'))
    .description('compare what a predecessor has with what is here; fails if something differs')
    .action((predecessor: string, flags: ReportFlags) => compare(environment, terminal, predecessor, flags, false));
  compared(takeover.command('finish <predecessor>'))
    .description('end a takeover, if all of it is here: the predecessor is never asked again')
    .option('--accept <names...>', 'names that may differ')
    .action((predecessor: string, flags: ReportFlags) => compare(environment, terminal, predecessor, flags, true));
}

function compared(command: Command): Command {
  return command
    .option('--read', 'read the content of each version there, and do not trust the hash that is told')
    .option('--report <file>', 'write what was found of each name to this new file, one JSON object a line');
}

/** What the states mean. */
const words: Record<NameState, string> = {
  new: 'to come',
  partial: 'incomplete',
  whole: 'here',
  alike: 'mirrored in part',
  mirrored: 'mirrored',
  conflict: 'conflicts',
};

async function* statusOf(takeover: Takeover): AsyncGenerator<string> {
  for (const { predecessor, row: known, names, adopted } of await takeover.status()) {
    const { name, config } = predecessor;
    yield row(name, config.kind, config.account, stateOf(known));
    for (const each of nameStates) if (names.has(each)) yield row(name, words[each], names.get(each)!);
    if (adopted > 0) yield row(name, 'adopted credentials', adopted);
    if (known && known.warning !== null) yield row(name, 'warning', known.warning);
    for (const each of ['conflict', 'partial', 'new'] as const)
      for await (const page of takeover.inventory.pages(name, [each]))
        for (const { name: there, name_key: key, note } of page)
          if (predecessor.isWanted(there) && (each !== 'new' || note !== null))
            yield row(name, words[each], key, note ?? '');
  }
}

function stateOf(known: Awaited<ReturnType<Takeover['status']>>[number]['row']): string {
  if (known && known.finished_at !== null) return `finished at ${new Date(known.finished_at).toISOString()}`;
  const readAt = known?.read_at ?? null;
  return readAt === null ? 'the list of its names was not read yet' : `read at ${new Date(readAt).toISOString()}`;
}

async function compare(
  environment: Environment,
  terminal: Terminal,
  name: string,
  { report, read = false, accept = [] }: ReportFlags,
  isEnd: boolean,
): Promise<void> {
  const controller = stoppedBy(terminal);
  await withInstallation(environment, async ({ takeover }) => {
    const predecessor = takeover.named(name);
    const lines = await jsonLines(report, () => controller.abort());
    const counts = { same: 0, mirrored: 0, different: 0, failed: 0 };
    let extra = 0;
    const watch = (found: NameParity) => {
      counts[found.result] += 1;
      extra += found.extra.length;
      lines.write(found);
      for (const line of problemsOf(found)) terminal.stderr.write(line);
    };
    const options = { reading: read, signal: controller.signal };
    try {
      if (isEnd) await finish(takeover, predecessor, accept, { ...options, watch });
      else for await (const found of parityOf(takeover, predecessor, options)) watch(found);
    } finally {
      await lines.end();
      for (const [result, count] of Object.entries(counts)) terminal.stdout.write(row(result, count));
      terminal.stdout.write(row('only here', extra));
    }
    for (const each of accept) terminal.stdout.write(row('accepted', each));
    const problems = counts.different + counts.failed;
    if (!isEnd && problems > 0) throw new DomainError('Invalid', `${problems} names differ, or could not be compared`);
  });
}

/** Lines about what differs, at most some of each name. */
function* problemsOf({ name, result, missing, deleted, different, note }: NameParity): Generator<string> {
  const most = 20;
  if (note !== undefined) yield row(result, name, note);
  for (const each of missing.slice(0, most)) yield row('missing', name, each);
  for (const each of deleted.slice(0, most)) yield row('deleted here', name, each);
  for (const [each, what] of Object.entries(different).slice(0, most))
    yield row('different', name, each, what.join(', '));
}
