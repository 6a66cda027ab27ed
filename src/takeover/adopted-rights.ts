import { parseScopes, type Scope } from '../accounts/principal.ts';
import { ConfigError, readSecretFile } from '../config/load.ts';

/** What a line of the file of rights gives: to a user whose password the predecessor accepts, or to who has the key. */
export type AdoptedRight = { name: string; scopes: readonly Scope[] } & (
  | { kind: 'user' }
  | { kind: 'key'; key: string }
);

const allowed: readonly Scope[] = ['read', 'write', 'delete'];
const maxLines = 1000;

/**
 * The lines of a file of rights: `user NAME SCOPES`, or `key NAME SCOPES KEY`. Empty lines and those that begin with # are comments.
 * Throws `ConfigError` that names the setting and the line, and never a key.
 */
export function readRights(file: string, setting: string): AdoptedRight[] {
  const lines = readSecretFile(file, setting).split('\n');
  if (lines.length > maxLines) throw new ConfigError(`${setting}: ${file} has more than ${maxLines} lines`);
  return lines.flatMap((line, index): AdoptedRight[] => {
    const text = line.trim();
    if (text === '' || text.startsWith('#')) return [];
    const [kind, name, list = '', key, ...more] = text.split(/\s+/);
    const refuse = (expected: string) =>
      new ConfigError(`${setting}: line ${index + 1} of ${file}: expected ${expected}`);
    const scopes = scopesIn(list);
    if (!scopes) throw refuse(`scopes of ${allowed.join(', ')}, with commas and without spaces`);
    if (kind === 'user' && name !== undefined && key === undefined) return [{ kind, name, scopes }];
    if (kind === 'key' && name !== undefined && key !== undefined && more.length === 0)
      return [{ kind, name, scopes, key }];
    throw refuse('"user NAME SCOPES" or "key NAME SCOPES KEY"');
  });
}

function scopesIn(list: string): Scope[] | undefined {
  const scopes = list.split(',').filter((each) => (allowed as readonly string[]).includes(each));
  return scopes.length === 0 || scopes.length !== list.split(',').length ? undefined : parseScopes(scopes);
}
