/** The text with its variables replaced, or the reason why that is not possible. */
type Substituted = { value: string; reason?: undefined } | { reason: string; value?: undefined };

/** Most levels of nested variables. */
const deepest = 16;

/**
 * Replaces `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME-default}`, `${NAME:+other}`, `${NAME+other}` and
 * `${NAME:?text}`, as Compose and Dockerfiles do; `$$` stands for `$`. A variable without value and default gives a
 * reason, not an empty string, so that no wrong image is fetched.
 */
export function substitute(text: string, lookup: (name: string) => string | undefined, depth = 0): Substituted {
  if (!text.includes('$')) return { value: text };
  if (depth > deepest) return { reason: 'the variables are nested too deeply' };
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
      return { reason: `"$" at character ${at + 1} does not begin a variable; write $$ for a dollar sign` };
    const replaced = plain === undefined ? expand(text.slice(at + 2, end - 1), lookup, depth) : known(plain, lookup);
    if (replaced.reason !== undefined) return replaced;
    value += replaced.value;
    at = end;
  }
  return { value };
}

/** The position after the brace that closes the one at `start`. */
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
  if (!match) return { reason: `"\${${inside.slice(0, 60)}}" is not a supported variable` };
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
