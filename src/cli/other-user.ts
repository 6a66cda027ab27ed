import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import type { Environment } from '../config/load.ts';
import { packageFolder } from '../runtime/package.ts';
import { ownUser } from '../server/command-place.ts';
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
  const sudo = ['sudo', '-u', `#${owner}`, ...keep];
  // Images have no sudo. This program keeps all variables, and only root may use it.
  const setpriv = ['setpriv', `--reuid=${owner}`, `--regid=${owner}`, '--clear-groups'];
  const become = ownUser() === 0 && !has('sudo', environment) && has('setpriv', environment) ? setpriv : sudo;
  return [...become, ...program, ...words].map(shellWord).join(' ');
}

/** Whether the search path has a program of this name. */
function has(program: string, environment: Environment): boolean {
  const folders = (environment['PATH'] ?? '').split(delimiter);
  return folders.some((folder) => folder !== '' && existsSync(join(folder, program)));
}
