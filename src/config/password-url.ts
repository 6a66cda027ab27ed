import { z } from 'zod';

// URLs that contain a password are checked here before anything parses them: parsers print an invalid URL with its password.

const parts = /^([a-z+]+):\/\/(.*)$/s;
const hostAndPort = /^(?:\[[0-9a-f:.]+\]|[^\s:[\]@]*)(?::(\d{1,5}))?$/i;

/** A URL of the form `shape`, with any user name and password. Messages contain no part of it but single characters. */
export function passwordUrl(shape: RegExp, expected: string) {
  return z.string().superRefine((value, context) => {
    const problem = urlProblem(value) ?? (shape.test(value) ? undefined : expected);
    if (problem !== undefined) context.addIssue(problem);
  });
}

/** What is wrong with the user name, password, hosts or ports of `url`, and what to write instead; undefined if nothing is. */
export function urlProblem(url: string): string | undefined {
  const [, scheme, rest = ''] = parts.exec(url) ?? [];
  // A path may have any of these characters.
  if (scheme === 'sqlite') return undefined;
  const isSentinel = scheme === 'redis+sentinel';
  const end = rest.lastIndexOf('@');
  const user = rest.slice(0, Math.max(end, 0));
  const wrong = new Set(user.match(isSentinel ? /\//g : /[/?#\\]/g));
  if (!isDecodable(user)) wrong.add('%');
  if (wrong.size > 0) {
    const advice = [...wrong].map((each) => `${each} as ${encodeURIComponent(each)}`).join(', ');
    return `the user name or password has a character that must be percent-encoded: write ${advice}`;
  }
  const [places = ''] = rest.slice(end + 1).split(/[/?#\\]/, 1);
  if ((isSentinel ? places.split(',') : [places]).every(isPlace)) return undefined;
  return 'expected user:password@host:port after ://; in a user name or password write # as %23, / as %2F, ? as %3F, @ as %40 and % as %25';
}

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

function isPlace(text: string): boolean {
  const found = hostAndPort.exec(text);
  return found !== null && Number(found[1] ?? 0) <= 65_535;
}
