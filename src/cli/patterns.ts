/** Patterns of names, as options of a command: `--packages` and `--containers`. */
export interface PatternOptions {
  packages?: string;
  containers?: string;
}

/**
 * The patterns of options, which are separated by commas; undefined without an option. With one of the options alone, no names
 * of the other kind are allowed.
 */
export function patternsIn({
  packages,
  containers,
}: PatternOptions): { packages: string[]; containers: string[] } | undefined {
  if (packages === undefined && containers === undefined) return undefined;
  return { packages: listIn(packages), containers: listIn(containers) };
}

function listIn(text = ''): string[] {
  return text
    .split(',')
    .map((each) => each.trim())
    .filter(Boolean);
}
