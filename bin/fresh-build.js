import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Where a clone keeps what `scripts/build.ts` has made. */
export const buildFolder = '.cache/build';

/**
 * The folder that has the program built from exactly the sources and packages of the clone at `root`; undefined if there is none. A file
 * whose size and time of change are as noted has not changed since. Any other is read, because a copy of a clone has new times.
 * @param {string} root
 * @returns {string | undefined}
 */
export function freshBuild(root) {
  try {
    const { folder, sources } = JSON.parse(readFileSync(join(root, buildFolder, 'build.json'), 'utf8'));
    const isSame = ([path, { size, changed, digest }]) => {
      const file = join(root, path);
      const found = statSync(file);
      return found.size === size && (found.ctimeMs === changed || digestOf(readFileSync(file)) === digest);
    };
    const built = join(root, buildFolder, folder);
    return statSync(built).isDirectory() && Object.entries(sources).every(isSame) ? built : undefined;
  } catch {
    return undefined;
  }
}

/**
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function digestOf(bytes) {
  // Loaded only for this: it takes some milliseconds.
  return process.getBuiltinModule('node:crypto').hash('sha256', bytes);
}
