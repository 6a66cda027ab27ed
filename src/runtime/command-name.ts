import { basename, dirname } from 'node:path';

// Messages tell users which command to run. How they type it depends on how this program was installed.

let program = 'entrepot';

/**
 * Notes the file with which this process was started. A program on the search path has the name of the command. Any other one is
 * in a folder of npm. Elsewhere than in that folder, npx without an option installs and runs a package of this name from the
 * public registry.
 */
export function noteProgram(file: string | undefined): void {
  const isOnPath = file === undefined || (basename(file) === 'entrepot' && basename(dirname(file)) !== '.bin');
  program = isOnPath ? 'entrepot' : 'npx --no-install entrepot';
}

/** The line that runs the command `words`, such as `gc --dry-run`, in the folder where the server was started. */
export function typed(words: string): string {
  return `${program} ${words}`;
}
