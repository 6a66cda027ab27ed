interface Part {
  start: number;
  end: number;
  text: string;
}

/** A word, a text, a parameter, a parenthesis, or an expression of the template, which is opaque. */
const token = /'(?:[^']|'')*'|`[^`]*`|[A-Za-z_][\w.]*|\S/g;
/** What a condition does not contain, outside of parentheses. */
const after =
  /^(?:AND|OR|WHERE|ORDER|GROUP|HAVING|LIMIT|OFFSET|JOIN|LEFT|INNER|CROSS|UNION|RETURNING|SET|ON|FOR|THEN|WHEN|ELSE|END|SELECT|FROM)$/;

/**
 * The conditions of an SQL text (the inside of a literal of the source) that can be lost: those after WHERE and AND. What
 * stands instead is true for every row, and takes the parameters of the condition.
 */
export function lostConditions(text: string): Part[] {
  const tokens = tokensOf(text);
  const found: Part[] = [];
  let isRange = false;
  for (const [index, { word, end: start }] of tokens.entries()) {
    if (word === 'BETWEEN') isRange = true;
    if (word !== 'WHERE' && word !== 'AND') continue;
    if (word === 'AND' && isRange) {
      isRange = false;
      continue;
    }
    const end = endOfCondition(tokens, index + 1);
    if (end === undefined) continue;
    const condition = text.slice(start, end).trim();
    // What the template adds may have parameters, too.
    if (condition === '' || condition.includes('${')) continue;
    const from = start + text.slice(start).search(/\S/);
    found.push({ start: from, end: from + condition.length, text: alwaysTrue(condition) });
  }
  return found;
}

interface Token {
  word: string;
  start: number;
  end: number;
}

function tokensOf(text: string): Token[] {
  const tokens: Token[] = [];
  // Expressions of a template are one token each.
  const opaque = text.replace(/\$\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}/g, (found) => '$'.repeat(found.length));
  for (const { 0: word, index } of opaque.matchAll(token))
    tokens.push({ word, start: index, end: index + word.length });
  return tokens;
}

/** Where the condition ends that starts with the token `first`; undefined if there is none. */
function endOfCondition(tokens: readonly Token[], first: number): number | undefined {
  let depth = 0;
  let isRange = false;
  let end: number | undefined;
  for (const { word, end: endOfWord } of tokens.slice(first)) {
    if (word === 'BETWEEN') isRange = true;
    if (word === '(') depth += 1;
    else if (word === ')') depth -= 1;
    else if (depth === 0 && after.test(word) && !(word === 'AND' && isRange)) break;
    if (word === 'AND') isRange = false;
    if (depth < 0) break;
    end = endOfWord;
  }
  return end;
}

function alwaysTrue(condition: string): string {
  const parameters = condition.match(/\?/g)?.length ?? 0;
  if (parameters === 0) return '1 = 1';
  return Array.from({ length: parameters }, () => 'COALESCE(?, 1) IS NOT NULL').join(' AND ');
}
