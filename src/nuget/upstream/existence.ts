import { isUpstreamFailure } from '../../mirror/mirror.ts';
import type { Judge, MirroredName, NameFacts } from '../../mirror/policy/admission.ts';
import { currentCaller } from '../../runtime/caller.ts';

/** Since when a version is known to exist, in milliseconds since 1970 UTC; Infinity if nobody tells it. */
type Existence = (version: string) => number;

type Published = Awaited<ReturnType<NonNullable<NameFacts['published']>>>;

/**
 * Since when `versions` of a package exist: by the date of the upstream, or first seen here, which is earlier if the upstream has
 * changed its date. A version without a date, or with one after `now`, exists since the upstream was first seen to offer it. If the
 * upstream fails, throws for versions that were not stored by `settledBefore`; for what that is, see `datesOf`.
 */
export async function existenceOf(
  { facts }: MirroredName,
  versions: readonly string[],
  now: number,
  published: () => Promise<Published>,
  settledBefore = -Infinity,
): Promise<Existence> {
  const seen = await facts.of(versions);
  const seenAt = (version: string) => seen.get(version)?.firstSeenAt ?? Infinity;
  try {
    const dates = await published();
    const dateOf = (version: string) => dates?.get(version) ?? Infinity;
    // No date begins for a version that the upstream does not offer: a client can invent it, or it may be published later.
    const isUndated = (each: string) => dates?.has(each) && dateOf(each) > now && seenAt(each) > settledBefore;
    const undated = versions.filter(isUndated);
    const listed = undated.length > 0 ? await facts.listed?.(undated) : undefined;
    return (version) => Math.min(dateOf(version), seenAt(version), listed?.get(version) ?? Infinity);
  } catch (error) {
    if (!isUpstreamFailure(error)) throw error;
    return (version) => {
      if (seenAt(version) > settledBefore) throw error;
      return seenAt(version);
    };
  }
}

/** Holds the versions of packages that are not known to have existed at `until`. */
export function existedAt(until: number, now: () => number): Judge {
  // One answer can ask for many pages of one package.
  const ofRequest = new WeakMap<object, Map<string, Promise<Published>>>();
  const publishedOf = ({ upstream, name, facts }: MirroredName): Promise<Published> => {
    const caller = currentCaller();
    const known = (caller && ofRequest.get(caller)) ?? new Map<string, Promise<Published>>();
    if (caller) ofRequest.set(caller, known);
    const id = `${upstream.id} ${name}`;
    const found = known.get(id) ?? facts.published?.(until) ?? Promise.resolve(undefined);
    known.set(id, found);
    return found;
  };
  return async (name, versions) => {
    if (name.kind !== 'package') return undefined;
    const since = await existenceOf(name, versions, now(), () => publishedOf(name), until);
    return (version) => (since(version) <= until ? 'allow' : 'hold');
  };
}
