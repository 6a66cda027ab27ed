import type { Fix, MirroredName } from '../mirror/policy/admission.ts';
import { withPauses } from '../runtime/event-loop.ts';
import type { LayerDecision } from './decide.ts';
import type { Release, Releases } from './releases.ts';

type Decisions = Map<string, LayerDecision[]>;

interface Held {
  name: MirroredName;
  /** The decisions of each reference, one for each layer. */
  decisions: Decisions;
  /** All versions of the name, with their dates. */
  published: ReadonlyMap<string, number | undefined>;
  /** What the ages of the layers alone decide of versions. */
  byAge: (versions: readonly string[]) => Promise<Decisions>;
}

/** How far apart versions of one release are published; milliseconds. */
const oneRelease = 86_400_000;

/** Opens versions that only the age holds, if they fix a known vulnerability of a version that is old enough. */
export class FixesPass {
  readonly #releases: Releases;

  constructor(releases: Releases) {
    this.#releases = releases;
  }

  /**
   * Replaces the decisions of such versions in `decisions`, in each layer that allows it. With `isServed`, a version that is released
   * for the first time is recorded, with what it needs of the same release. If vulnerabilities cannot be read, nothing is released.
   */
  async release({ name, decisions, published, byAge }: Held, isServed: boolean): Promise<void> {
    const held = new Set<string>();
    for (const [version, each] of decisions) if (each.some(isHeldByAge)) held.add(version);
    if (held.size === 0 || !name.facts.fixes) return;
    const known = await this.#releases.of({ upstream: name.upstream.id, name: name.name }, name.accountId);
    const fixes = (await name.facts.fixes(held, published.keys())) ?? [];
    const ages = await byAge([...new Set(fixes.flatMap(({ affected }) => affected))]);
    const byVersion = Map.groupBy(fixes, (each) => each.version);
    for await (const version of withPauses(held)) {
      const released: LayerDecision[] = [];
      for (const [at, one] of decisions.get(version)!.entries()) {
        const isMature = (each: string) => ages.get(each)?.[at]?.verdict === 'allow';
        const used = isHeldByAge(one)
          ? (byVersion.get(version) ?? []).filter(({ affected }) => affected.some(isMature))
          : [];
        const layer = one.layer.scope === 'all' ? 0 : name.accountId;
        const here = known.filter((each) => each.layer === layer && each.version === version);
        if (used.length > 0) {
          released.push(
            opened(
              one,
              used.map(({ advisory }) => `fixes ${advisory}`),
            ),
          );
          const isKnown = here.some(({ fix }) => fix.name === name.name);
          if (isServed && one.layer.isEnforced && !isKnown)
            await this.#record(name, { layer, version, publishedAt: published.get(version) ?? null }, used, isMature);
        } else {
          const needed = isHeldByAge(one) ? here.filter((each) => isSibling(each, name, published.get(version))) : [];
          const evidence = needed.map(
            ({ fix, advisories }) => `${fix.name} ${fix.version} needs it, which fixes ${advisories.join(', ')}`,
          );
          released.push(needed.length > 0 ? opened(one, evidence) : one);
        }
      }
      decisions.set(version, released);
    }
  }

  /** What a fix needs is recorded with it, so that it is found when clients ask for that. If the upstream fails, there is another attempt later. */
  async #record(
    { upstream, name, facts }: MirroredName,
    release: Omit<Release, 'fix' | 'advisories'>,
    fixes: readonly Fix[],
    isMature: (version: string) => boolean,
  ): Promise<void> {
    const predecessor = fixes.flatMap(({ affected }) => affected).findLast(isMature)!;
    const siblings = facts.siblings ? await facts.siblings(release.version, predecessor) : [];
    if (!siblings) return;
    const advisories = [...new Set(fixes.map(({ advisory }) => advisory))];
    await this.#releases.record({ upstream: upstream.id, name }, { ...release, advisories }, siblings);
  }
}

function isHeldByAge({ verdict, rule, layer }: LayerDecision): boolean {
  return verdict === 'hold' && rule === 'age' && layer.fixesPass;
}

/** Whether a version of `name` was recorded as what a fix needs, and was published with it. */
function isSibling(
  { fix, publishedAt: fixedAt }: Release,
  { name }: MirroredName,
  publishedAt: number | undefined,
): boolean {
  if (fix.name === name || fixedAt === null || publishedAt === undefined) return false;
  return Math.abs(publishedAt - fixedAt) <= oneRelease;
}

function opened({ layer, evidence }: LayerDecision, why: readonly string[]): LayerDecision {
  return { verdict: 'allow', layer, rule: 'fixesPass', evidence: [...evidence, ...new Set(why)] };
}
