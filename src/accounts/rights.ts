import type { Grant } from './grant-rows.ts';
import { mergedPatterns, Names, type Patterns } from './names.ts';
import type { Principal, Scope } from './principal.ts';

/** What somebody may do with the names that match the patterns; with all names if they are null. */
export interface Right {
  scopes: readonly Scope[];
  patterns: Patterns | null;
  /** The grant that gives it; undefined for a rule of the settings, and for what a token was made for. */
  grant?: Grant;
}

/** The right that a grant gives. */
export function rightOf(grant: Grant): Right {
  return { scopes: grant.verbs, patterns: grant.patterns, grant };
}

/** What limits rights: those of a personal token, for its person. */
interface Limit {
  scopes: readonly Scope[];
  names: Names | undefined;
}

type Combined = Pick<Principal, 'scopes' | 'names' | 'namesByScope'>;

/** What several rights give together, within `limit`. */
export function combined(rights: readonly Right[], limit?: Limit): Combined {
  const byScope = new Map<Scope, Right[]>();
  for (const right of rights)
    for (const scope of right.scopes) if (limit?.scopes.includes(scope) ?? true) listIn(byScope, scope).push(right);
  const made = new Map<string, Names | undefined>();
  const numbers = new Map(rights.map((right, index) => [right, index]));
  const namesOf = (some: readonly Right[]): Names | undefined => {
    const isLimited = some.every(({ patterns }) => patterns !== null);
    const key = isLimited ? some.map((each) => numbers.get(each)).join() : 'all';
    if (!made.has(key))
      made.set(
        key,
        isLimited ? new Names(mergedPatterns(some.map(({ patterns }) => patterns)), limit?.names) : limit?.names,
      );
    return made.get(key);
  };
  const namesByScope = new Map([...byScope].map(([scope, some]) => [scope, namesOf(some)]));
  const scopes = new Set(namesByScope.keys());
  if (made.size < 2) return { scopes, names: [...made.values()][0] };
  return { scopes, names: scopes.has('read') ? namesByScope.get('read') : new Names({}), namesByScope };
}

function listIn<Key, Value>(lists: Map<Key, Value[]>, key: Key): Value[] {
  let list = lists.get(key);
  if (!list) lists.set(key, (list = []));
  return list;
}
