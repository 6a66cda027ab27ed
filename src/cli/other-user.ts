import { join } from 'node:path';
import type { Environment } from '../config/load.ts';
import { packageFolder } from '../runtime/package.ts';
import { shellWord } from './printed.ts';
import type { Terminal } from './with-installation.ts';

/** Variables that a command reads. */
const settings = /^(?:ENTREPOT_|AWS_|NODE_EXTRA_CA_CERTS$|(?:HTTPS?|NO)_PROXY$)/i;

/**
 * The line for a shell that runs the command `words` as the user with the number `owner`, with the same program and settings. It
 * has the names of the settings alone, because the values may be secrets.
 */
export function lineOfOwner(
  owner: number,
  words: readonly string[],
  environment: Environment,
  { execPath, execArgv = [] }: Terminal,
): string {
  const kept = Object.keys(environment).filter((name) => settings.test(name));
  // The search path of that user may lack this program, and npx starts it by a link in the home folder of this user.
  const file = join(packageFolder, 'bin', 'entrepot.js');
  const program = execPath === undefined ? ['entrepot'] : [execPath, ...execArgv, file];
  const keep = kept.length === 0 ? [] : [`--preserve-env=${kept.sort().join(',')}`];
  return ['sudo', '-u', `#${owner}`, ...keep, ...program, ...words].map(shellWord).join(' ');
}
