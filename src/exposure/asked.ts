import { isDigest } from '../runtime/digest.ts';
import { DomainError } from '../runtime/errors.ts';

/** What somebody asks about. */
export type Asked =
  | { by: 'id'; id: string }
  | { by: 'digest'; digest: string; name?: string }
  | { by: 'range'; name: string; range: string }
  | { by: 'tag'; name: string; tag: string };

/** Most characters of a question. */
export const maxAsked = 700;

/**
 * Reads a question: an ID such as `GHSA-…`, `CVE-…` or `MAL-…`; `Name@` and a version, a range such as `[1.0, 2.0)` or `*`;
 * `name:tag`; a digest; or `name@` and a digest. Throws `Invalid`.
 */
export function readAsked(text: string): Asked {
  const what = text.trim();
  if (isDigest(what)) return { by: 'digest', digest: what };
  const at = what.indexOf('@');
  const [name, rest] = [what.slice(0, at), what.slice(at + 1).trim()];
  if (at > 0 && rest !== '')
    return isDigest(rest) ? { by: 'digest', digest: rest, name } : { by: 'range', name, range: rest };
  const colon = what.lastIndexOf(':');
  if (at < 0 && colon > 0 && colon < what.length - 1)
    return { by: 'tag', name: what.slice(0, colon), tag: what.slice(colon + 1) };
  if (at < 0 && colon < 0 && /^[\x21-\x7e]{1,100}$/.test(what)) return { by: 'id', id: what };
  const message = `${what.slice(0, 100)}: expected the ID of an advisory or of an entry of a list, Name@version, Name@[1.0,2.0), Name@*, name:tag, or a digest.`;
  throw new DomainError('Invalid', message, { detail: { parameter: 'what' } });
}
