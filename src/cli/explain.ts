import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { parseTime } from '../config/units.ts';
import { DomainError } from '../runtime/errors.ts';
import type { NameStory } from '../mirror/policy/upstream-policy.ts';
import { evidenceText, type Decision } from '../policy/decide.ts';
import { explainFiles, isFileToRead } from './explain-files.ts';
import { assignment } from './selection.ts';
import { addKindOption, protocolOf, type KindOptions } from './named-kind.ts';
import { inputs } from '../server/installation.ts';
import { forAccount, type Terminal } from './with-installation.ts';

/** `entrepot explain` */
export function addExplain(program: Command, environment: Environment, terminal: Terminal): void {
  const command = program
    .command('explain <name> [reference...]')
    .usage('[options] <name> [reference] | <files...>')
    .description(
      `say from where clients get a name, and what the policy decides of a version of a package, or of a tag or digest of an image; or what it decides of all that files name: ${inputs.names}, or folders with them`,
    )
    .option('--arg <name=value>', 'with files: a value for a variable or build argument (repeatable)', assignment)
    .option('--at <time>', 'the time for which the age is decided; now, if it is left out');
  forAccount<KindOptions & { at?: string; arg?: Map<string, string> }>(
    addKindOption(command),
    environment,
    async (account, { core, protocols }, options, name, further) => {
      const [reference, ...rest] = further as unknown as string[];
      const at = timeIn(options.at);
      if (await isFileToRead(name!)) {
        const files = [name!, ...(further as unknown as string[])];
        await explainFiles({ core, protocols }, files, { account, values: options.arg ?? new Map(), at }, terminal);
        return;
      }
      if (rest.length > 0) throw new DomainError('Invalid', `${name}: expected one version, tag or digest, or files.`);
      const { protocol } = protocolOf(protocols, name!, options);
      const story = await protocol.explain(account, name!);
      if (reference === undefined) {
        terminal.stdout.write(originLines(story));
        return;
      }
      const found = await story.referenceTo?.(reference);
      if (!found) {
        const why = story.isHosted
          ? 'It is hosted here, and a policy concerns mirrored content only.'
          : 'No upstream serves it.';
        throw new DomainError('NotFound', `${name} ${reference}: there is nothing to decide. ${why}`);
      }
      const { enforced, audited } = await core.gate.explain(found.name, found.reference, at);
      terminal.stdout.write(linesOf(enforced));
      if (audited.verdict !== enforced.verdict) terminal.stdout.write(`in audit mode: ${linesOf(audited)}`);
    },
  );
}

function timeIn(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const time = parseTime(text);
  if (time === undefined) throw new DomainError('Invalid', '--at: expected a time such as 2027-01-31T12:00:00Z.');
  return time;
}

function originLines({ isHosted, reservedBy, missing, upstreams }: NameStory): string {
  const lines = [
    isHosted && 'hosted here',
    reservedBy !== undefined && `reserved by ${reservedBy}: no upstream is asked`,
    missing !== undefined && `its name begins with ${missing}, which is no upstream`,
    ...upstreams.map(({ upstream, rule, pattern }) => {
      if (rule === 'asked' && upstream.isOffline)
        return `${upstream.id}: offline, so not asked; what is stored is served`;
      return `${upstream.id}: ${rule}${pattern === undefined ? '' : ` by ${pattern}`}`;
    }),
  ];
  return lines
    .filter(Boolean)
    .map((line) => `${line as string}\n`)
    .join('');
}

function linesOf({ verdict, layer, rule, list, reason, until, evidence }: Decision): string {
  const lines = [
    reason ? `${verdict}: ${reason}` : verdict,
    list !== undefined && `entry: ${rule} of the list "${list}"`,
    layer &&
      rule &&
      list === undefined &&
      `rule: ${rule}, in the policy of ${layer.scope === 'all' ? 'all accounts' : 'the account'}`,
    until !== undefined && `until: ${new Date(until).toISOString()}`,
    evidence.length > 0 && `evidence: ${evidence.map(evidenceText).join('; ')}`,
  ];
  return lines
    .filter(Boolean)
    .map((line) => `${line as string}\n`)
    .join('');
}
