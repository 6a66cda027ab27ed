import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** The folder of this package: the nearest one above this file that has a package.json. Emitted files are one folder deeper. */
export const packageFolder = nearest(import.meta.dirname);

/** The version of this program, as in package.json. */
export const { version } = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8')) as { version: string };

function nearest(folder: string): string {
  return existsSync(join(folder, 'package.json')) ? folder : nearest(dirname(folder));
}
