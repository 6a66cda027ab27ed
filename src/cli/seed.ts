import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { PolicySeed } from '../policy/seed.ts';
import { runForSystem } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { inputs } from '../server/installation.ts';
import { itemsOfFiles, meaningIn } from './file-items.ts';
import { assignment } from './selection.ts';
import { row } from './printed.ts';
import { forAccount, type Terminal } from './with-installation.ts';

interface Options {
  by: string;
  arg?: Map<string, string>;
}

/** `entrepot policy seed` */
export function addSeed(policy: Command, environment: Environment, terminal: Terminal): void {
  forAccount<Options>(
    policy
      .command('seed <files...>')
      .description(
        `accept the versions and images that files name today: waivers lift the minimum age until they are old enough. Files: ${inputs.names}, or folders with them`,
      )
      .requiredOption('--by <name>', 'the person who accepts them')
      .option('--arg <name=value>', 'a value for a variable or build argument (repeatable)', assignment),
    environment,
    async (account, { core, protocols }, { by, arg = new Map() }, ...given) => {
      const files = given[0] as unknown as string[];
      if (!/^[^\p{Cc}]{1,100}$/u.test(by.trim())) throw new DomainError('Invalid', '--by: expected a name.');
      const { gate, waivers, now, config } = core;
      const seed = new PolicySeed({ gate, waivers, now, longest: config.waivers.longest });
      const items = await itemsOfFiles(files, arg, terminal);
      const meant = [];
      for (const item of items) meant.push(await meaningIn(protocols, account, item));
      const found = meant.flatMap((each) => (each.found ? [each.found] : []));
      const said = { reason: `accepted by ${by.trim()} with policy seed`, requester: 'system:command' };
      const results = await runForSystem(`command, for ${by.trim()}`, () => seed.run(account, found, said));
      let refused = 0;
      for (const { text, place, ...each } of meant) {
        const seeded = each.found && results.shift();
        const outcome = seeded?.outcome ?? (each.found ? 'open' : each.verdict);
        if (outcome === 'refused' || outcome === '-') refused += 1;
        const until = seeded?.until === undefined ? '-' : new Date(seeded.until).toISOString();
        const reason = seeded?.reason ?? (each.found ? '' : each.reason);
        terminal.stdout.write(row(outcome, text, until, place, reason));
      }
      if (refused > 0)
        throw new DomainError('Denied', `Of ${meant.length}, ${refused} could not be accepted: see the lines above.`);
    },
  );
}
