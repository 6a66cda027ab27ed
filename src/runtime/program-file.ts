/** Whether this runs from what `scripts/build.ts` has made, in one folder. */
const isBuilt = !import.meta.filename.endsWith('.ts');
const folder = new URL(isBuilt ? './' : '../', import.meta.url);

/** The address of a file that the program reads or runs: `path` is that of the source below `src`. */
export function programFile(path: string): URL {
  return new URL(isBuilt ? path.replace(/\.ts$/, '.mjs') : path, folder);
}
