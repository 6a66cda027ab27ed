import type { Command } from 'commander';
import { replacingWriter } from '../bundle/replacing.ts';
import type { Environment } from '../config/load.ts';
import { parseDuration } from '../config/units.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Installation } from '../server/installation.ts';
import { shown } from './printed.ts';
import { withInstallation, type Terminal } from './with-installation.ts';

/** What a list begins with. */
const title = '# What clients asked for in vain, ';

/** `entrepot wanted` */
export function addWanted(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('wanted')
    .description(
      'write what clients asked for in vain, because an upstream is set to offline, as a list for "bundle create"',
    )
    .requiredOption('--to <file>', 'the file of the list, a new one or an earlier list')
    .option('--since <duration>', 'only what was asked for within this time', '60d')
    .action(async ({ to, since }: { to: string; since: string }) => {
      const time = parseDuration(since);
      if (!time) throw new DomainError('Invalid', '--since: expected a duration such as 7d.');
      const write = await replacingWriter(to, 'list of what clients wanted', (line) => line.startsWith(title));
      await withInstallation(environment, async (installation) => {
        const lines = await wantedLines(installation, installation.core.now() - time);
        const head = `${title}until ${new Date(installation.core.now()).toISOString()}`;
        await write([Buffer.from(`${[head, ...lines].join('\n')}\n`)]);
        terminal.stdout.write(`${shown(to)}: ${lines.length} wanted\n`);
      });
    });
}

/** A line for each version, tag or digest that is not stored, and for each name of which nothing else is known. */
async function wantedLines({ core, protocols }: Installation, since: number): Promise<string[]> {
  const wanted = await core.failures.wanted(since);
  const withReference = new Set(wanted.filter(({ reference }) => reference !== '').map(keyOf));
  const lines = new Set<string>();
  for (const each of wanted) {
    if (each.reference === '' && withReference.has(keyOf(each))) continue;
    const protocol = protocols.find(({ kind }) => kind === each.kind);
    const line = await protocol?.wantedLine?.(each.accountId, each.name, each.reference);
    if (line !== undefined) lines.add(line);
  }
  return [...lines];
}

function keyOf({ kind, name }: { kind: string; name: string }): string {
  return `${kind} ${name}`;
}
