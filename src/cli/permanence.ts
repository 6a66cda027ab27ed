import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { parseRules } from '../permanence/rule-schema.ts';
import { forAccount, type Terminal } from './with-installation.ts';

interface SetOptions {
  freezeImages?: string;
  keepPackages?: string;
  keepImages?: string;
}

/** `entrepot permanence` */
export function addPermanence(program: Command, environment: Environment, terminal: Terminal): void {
  const permanence = program
    .command('permanence')
    .description('rules of an account: which tags cannot move, and what cannot be deleted');
  const print = (rules: object) => void terminal.stdout.write(`${JSON.stringify(rules)}\n`);
  forAccount(
    permanence.command('show').description('print the rules, as JSON'),
    environment,
    async (account, { core }) => print(await core.permanence.get(account)),
  );
  forAccount<SetOptions>(
    permanence
      .command('set')
      .description('replace lists of patterns, separated by commas, and print all rules; an empty list ends its rules')
      .option('--freeze-images <list>', 'tags that cannot move, such as team/*:v*')
      .option('--keep-packages <list>', 'versions that cannot be deleted, such as Contoso.*,Fabrikam@2.*')
      .option('--keep-images <list>', 'images that cannot be deleted, such as team/base,team/*:v*'),
    environment,
    async (account, { core }, { account: name, freezeImages, keepPackages, keepImages }) => {
      const { freeze, keep } = await core.permanence.get(account);
      const rules = parseRules({
        freeze: { images: listIn(freezeImages) ?? freeze.images },
        keep: { packages: listIn(keepPackages) ?? keep.packages, images: listIn(keepImages) ?? keep.images },
      });
      await core.permanence.put({ id: account, name }, rules);
      print(rules);
    },
  );
}

function listIn(text: string | undefined): string[] | undefined {
  return text?.split(/[\s,]+/).filter((each) => each !== '');
}
