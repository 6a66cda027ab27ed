import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Decision } from '../policy/decide.ts';
import { addKindOption, protocolOf, type KindOptions } from './named-kind.ts';
import { forAccount, type Terminal } from './with-installation.ts';

/** `entrepot explain` */
export function addExplain(program: Command, environment: Environment, terminal: Terminal): void {
  const command = program
    .command('explain <name> <reference>')
    .description('say what the policy decides of a version of a package, or of a tag or digest of an image, and why');
  forAccount<KindOptions>(
    addKindOption(command),
    environment,
    async (account, { core, protocols }, options, name, reference) => {
      const { protocol } = protocolOf(protocols, name!, options);
      const story = await protocol.explain(account, name!);
      const found = await story.referenceTo?.(reference!);
      if (!found) {
        const why = story.isHosted
          ? 'It is hosted here, and a policy concerns mirrored content only.'
          : 'No upstream serves it.';
        throw new DomainError('NotFound', `${name} ${reference}: there is nothing to decide. ${why}`);
      }
      const { enforced, audited } = await core.gate.explain(found.name, found.reference);
      terminal.stdout.write(linesOf(enforced));
      if (audited.verdict !== enforced.verdict) terminal.stdout.write(`in audit mode: ${linesOf(audited)}`);
    },
  );
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
    evidence.length > 0 && `evidence: ${evidence.join('; ')}`,
  ];
  return lines
    .filter(Boolean)
    .map((line) => `${line as string}\n`)
    .join('');
}
