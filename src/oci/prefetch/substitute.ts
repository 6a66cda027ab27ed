/** The text with its variables replaced, or why that cannot be done. */
export type Substituted = { value: string; reason?: undefined } | { reason: string; value?: undefined };

/** Deeper ones are not written by people. */
const deepest = 16;

/**
 * Replaces `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME-default}`, `${NAME:+other}`, `${NAME+other}` and the
 * complaining `${NAME:?text}`, as Compose and Dockerfiles have them; `$$` stands for `$`. A variable that has no value
 * and no default is a reason, not an empty string: what is fetched must be what will be asked for.
 */
export function substitute(text: string, lookup: (name: string) => string | undefined, depth = 0): Substituted {
  if (!text.includes('$')) return { value: text };
  if (depth > deepest) return { reason: 'its variables are nested too deeply' };
  let value = '';
  for (let at = 0; at < text.length;) {
    if (text[at] !== '$') {
      const next = text.indexOf('$', at);
      value += text.slice(at, next < 0 ? text.length : next);
      at = next < 0 ? text.length : next;
      continue;
    }
    if (text[at + 1] === '$') {
      value += '$';
      at += 2;
      continue;
    }
    const plain = /^[A-Za-z_]\w*/.exec(text.slice(at + 1, at + 257))?.[0];
    const end = plain === undefined ? closingBrace(text, at + 1) : at + 1 + plain.length;
    if (end === undefined)
      return { reason: `its "$" at character ${at + 1} begins no variable; write $$ for a plain one` };
    const replaced = plain === undefined ? expand(text.slice(at + 2, end - 1), lookup, depth) : known(plain, lookup);
    if (replaced.reason !== undefined) return replaced;
    value += replaced.value;
    at = end;
  }
  return { value };
}

/** Past the brace that closes the one at `start`. */
function closingBrace(text: string, start: number): number | undefined {
  if (text[start] !== '{') return undefined;
  let open = 0;
  for (let at = start; at < text.length; at += 1) {
    if (text[at] === '{' && (at === start || text[at - 1] === '$')) open += 1;
    if (text[at] === '}') open -= 1;
    if (open === 0) return at + 1;
  }
  return undefined;
}

function expand(inside: string, lookup: (name: string) => string | undefined, depth: number): Substituted {
  const match = /^([A-Za-z_]\w*)(?:(:?)([-+?])([^]*))?$/.exec(inside);
  if (!match) return { reason: `"\${${inside.slice(0, 60)}}" is no variable that can be read here` };
  const [, name = '', colon, operator, word = ''] = match;
  const value = lookup(name);
  const isSet = value !== undefined && !(colon === ':' && value === '');
  if (operator === '+') return isSet ? substitute(word, lookup, depth + 1) : { value: '' };
  if (isSet) return { value };
  return operator === '-' ? substitute(word, lookup, depth + 1) : known(name, lookup);
}

function known(name: string, lookup: (name: string) => string | undefined): Substituted {
  const value = lookup(name);
  return value === undefined ? { reason: `${name} has no value; give it with --arg ${name}=…` } : { value };
}
