import { lstatSync, mkdirSync } from 'node:fs';
import * as nodeModule from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Caches compiled code between starts, which halves the start time, in a folder of the temporary files that only `user` can
 * write: what the cache has is run. Call this after V8 got its last flag. V8 refuses code that was compiled with others, and
 * each set of flags has a cache of its own.
 * @param {number | undefined} user
 */
export function cacheCompiledCode(user) {
  const folder = join(tmpdir(), `entrepot-code-${user ?? 'cache'}`);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const { uid, mode } = lstatSync(folder);
    // Windows has no user ids, and its folder of temporary files belongs to one user.
    if (user === undefined || (uid === user && (mode & 0o022) === 0)) nodeModule.enableCompileCache(folder);
  } catch {
    // Without the cache a start only takes longer.
  }
}
