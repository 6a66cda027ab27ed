import { DomainError } from '../runtime/errors.ts';

/** Names with a beginning and an end, and those that they get. */
export interface NameRule {
  from: [string, string?];
  to: [string, string?];
}

/** Reads a rule such as `old/*=team/*` or `old/app=team/app`. Throws `Invalid`. */
export function parseNameRule(text: string): NameRule {
  const [from = [], to = [], ...more] = text.split('=').map((each) => each.split('*'));
  const isWhole = more.length === 0 && from.length === to.length && (from.length === 1 || from.length === 2);
  if (!isWhole || from.join('') + to.join('') === '' || (to.length === 1 && to[0] === ''))
    throw new DomainError('Invalid', 'Use a rule such as old/*=team/* or old/app=team/app.');
  return { from: from as NameRule['from'], to: to as NameRule['to'] };
}

/** The name that the first rule which matches gives; the same name if none does. */
export function renamed(name: string, rules: readonly NameRule[]): string {
  for (const {
    from: [start, end],
    to,
  } of rules) {
    if (
      end === undefined
        ? name === start
        : name.length >= start.length + end.length && name.startsWith(start) && name.endsWith(end)
    )
      return end === undefined ? to[0] : `${to[0]}${name.slice(start.length, name.length - end.length)}${to[1]}`;
  }
  return name;
}
