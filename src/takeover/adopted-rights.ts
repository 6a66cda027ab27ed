import { parsePatterns, type Patterns } from '../accounts/names.ts';
import { parseScopes, type Scope } from '../accounts/principal.ts';
import { ConfigError, readSecretFile } from '../config/load.ts';
import { protocolWords } from '../config/protocols.ts';

/**
 * What a line of the file of rights gives: to a user whose password the predecessor accepts, or to who has the key. The patterns are of
 * names here; null for all names.
 */
export type AdoptedRight = { name: string; scopes: readonly Scope[]; patterns: Patterns | null } & (
  | { kind: 'user' }
  | { kind: 'key'; key: string }
);

const allowed: readonly Scope[] = ['read', 'write', 'delete'];
const maxLines = 1000;

/**
 * The lines of a file of rights of a predecessor of this kind: `user NAME SCOPES`, or `key NAME SCOPES KEY`, and name patterns behind
 * it if it is not for all names. Empty lines and those that begin with # are comments. Throws `ConfigError` that names the setting and
 * the line, and never a key.
 */
export function readRights(file: string, setting: string, kind: string): AdoptedRight[] {
  const { plural } = protocolWords.find(({ upstream }) => upstream === kind)!;
  const lines = readSecretFile(file, setting).split('\n');
  if (lines.length > maxLines) throw new ConfigError(`${setting}: ${file} has more than ${maxLines} lines`);
  return lines.flatMap((line, index): AdoptedRight[] => {
    const text = line.trim();
    if (text === '' || text.startsWith('#')) return [];
    const [type, name, list = '', ...rest] = text.split(/\s+/);
    const refuse = (expected: string) =>
      new ConfigError(`${setting}: line ${index + 1} of ${file}: expected ${expected}`);
    const scopes = scopesIn(list);
    if (!scopes) throw refuse(`scopes of ${allowed.join(', ')}, with commas and without spaces`);
    const key = type === 'key' ? rest.shift() : undefined;
    if (name === undefined || rest.length > 1 || (type !== 'user' && key === undefined))
      throw refuse(
        '"user NAME SCOPES" or "key NAME SCOPES KEY", and name patterns behind it if it is not for all names',
      );
    const patterns = patternsIn(rest[0], plural);
    if (patterns === undefined) throw refuse('name patterns such as Contoso.*,team/* with commas and without spaces');
    const right = { name, scopes, patterns };
    return [key === undefined ? { kind: 'user', ...right } : { kind: 'key', ...right, key }];
  });
}

function scopesIn(list: string): Scope[] | undefined {
  const scopes = list.split(',').filter((each) => (allowed as readonly string[]).includes(each));
  return scopes.length === list.split(',').length ? parseScopes(scopes) : undefined;
}

function patternsIn(list: string | undefined, plural: string): Patterns | null | undefined {
  try {
    return list === undefined ? null : parsePatterns({ [plural]: list.split(',') });
  } catch {
    return undefined;
  }
}
