import type { HeldReference } from '../policy/held.ts';
import { allAccounts } from '../policy/policies.ts';
import { typed } from '../runtime/command-name.ts';
import type { Installation } from '../server/installation.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { CheckResult } from './doctor.ts';

/** Policies that are examined. */
const maxPolicies = 1000;
/** What a policy refuses that is examined, and versions that are named. */
const [maxHeld, maxNamed] = [200, 5];

/** Finds policies that refuse more than they seem to, or nothing. */
export async function examinePolicies(installation: Installation): Promise<CheckResult[]> {
  const { core, held } = installation;
  const stored = await core.policies.all(maxPolicies);
  const holdsPackages = stored.some(({ document }) => document.minimumAge.packages > 0);
  const undated = holdsPackages ? await upstreamsWithoutDates(installation) : [];
  return Promise.all(
    stored.map(async ({ accountId, document, written, suspendedUntil }) => {
      const { mode, knownBad, minimumAge } = document;
      const { unknownDate, packages } = minimumAge;
      const problems: string[] = [];
      const doubts: string[] = [];
      if (core.policies.check(written).refusesAll)
        problems.push('it refuses names that no rule mentions, however old they are');
      if (knownBad.lists.length > 0 && core.config.jobs.knownBad === 'off')
        problems.push('nothing reads its lists again, because jobs.knownBad is off');
      for (const id of packages > 0 ? undated : []) {
        if (unknownDate === 'hold')
          problems.push(
            `the upstream ${id} says no dates, so its packages are held for ever: name it under minimumAge.except`,
          );
        else doubts.push(`the upstream ${id} says no dates, so its packages count from their first sighting here`);
      }
      if (packages > 0 && minimumAge.held === 'hide' && mode === 'enforce') {
        const { items } = await held.list(accountId, { limit: maxHeld, isWanted: () => true });
        const below = items.filter((each) => each.decision.verdict === 'hold' && each.isBelowVisible === true);
        if (below.length > 0) doubts.push(belowText(below));
      }
      if (suspendedUntil > core.now())
        doubts.push(
          `it is suspended until ${new Date(suspendedUntil).toISOString()}, so it refuses nothing until then`,
        );
      if (mode === 'audit') doubts.push('it is in audit mode, so it refuses nothing');
      const name = accountId === allAccounts ? undefined : await core.accounts.nameOf(accountId);
      const subject = name === undefined ? 'policy of all accounts' : `policy of the account ${name}`;
      const text = [...problems, ...doubts].join('; ');
      if (problems.length > 0) return { subject, ok: false, text };
      return doubts.length > 0 ? { subject, ok: true, isNote: true, text } : { subject, ok: true, text: 'it can work' };
    }),
  );
}

/** Held versions for which clients get a higher one. */
function belowText(below: readonly Pick<HeldReference, 'name' | 'reference'>[]): string {
  const some = below.slice(0, maxNamed).map(({ name, reference }) => `${name} ${reference}`);
  const more = below.length > some.length ? ', …' : '';
  return `it holds versions below one that clients get, which dotnet takes instead (NU1603): ${some.join(', ')}${more}. "${typed('policy held')}" lists all`;
}

/** The IDs of upstreams that answer, and that say of no package when it was published. */
async function upstreamsWithoutDates({ core, protocols }: Installation): Promise<string[]> {
  // An upstream that fails is told by its own check.
  const saysDates = (upstream: Upstream) => {
    const { upstreams } = protocols.find((each) => each.upstreams.kind === upstream.config.kind)!;
    return upstreams.saysDates?.(upstream).catch(() => undefined);
  };
  const undated: string[] = [];
  for (const upstream of core.upstreams) if ((await saysDates(upstream)) === false) undated.push(upstream.id);
  return undated;
}
