import type { Database } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';
import type { Sibling } from '../mirror/policy/admission.ts';

/** A version of a mirrored package that a layer released before its age. */
export interface Release {
  /** The account whose policy it is; 0 for the policy of all accounts. */
  layer: number;
  version: string;
  /** The IDs of the vulnerabilities that `fix` fixes. */
  advisories: readonly string[];
  /** The version that fixes them: itself, or the one that needs it. */
  fix: Sibling;
  /** When the fix was published; milliseconds since 1970 UTC. Null if nothing says it. */
  publishedAt: number | null;
}

/** A package at an upstream. */
interface PackageName {
  upstream: string;
  name: string;
}

interface ReleaseRow {
  layer: number;
  version: string;
  fixed_name: string;
  fixed_version: string;
  advisories: string;
  published_at: number | null;
}

/** How long a release is kept; milliseconds. Content is older than any age by then. */
const keptFor = 400 * 86_400_000;
/** Rows that one release deletes at most. */
const maxDeleted = 500;
/** IDs of vulnerabilities that are kept of a release. */
const maxAdvisories = 10;
const sql = `SELECT layer, version, fixed_name, fixed_version, advisories, published_at FROM policy_releases
  WHERE upstream = ? AND name = ? AND layer IN (0, ?)`;

/** Versions that were released before their age, because they fix a vulnerability or such a fix needs them. */
export class Releases {
  readonly #database: Database;
  readonly #now: () => number;
  /** Versions that this process released, since its start, by the policy. */
  readonly counts = { all: 0, account: 0 };

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** The releases of a package, by the policies that hold for an account. */
  async of({ upstream, name }: PackageName, accountId: number): Promise<Release[]> {
    const rows = await this.#database.selectCached<ReleaseRow>(sql, [upstream, name, accountId]);
    return rows.map(({ layer, version, advisories, published_at: publishedAt, ...row }) => ({
      layer,
      version,
      advisories: JSON.parse(advisories) as string[],
      fix: { name: row.fixed_name, version: row.fixed_version },
      publishedAt,
    }));
  }

  /** Records the release of a version that fixes vulnerabilities, and of `siblings` at the same upstream. Once, with an event. */
  async record(
    { upstream, name }: PackageName,
    release: Omit<Release, 'fix'>,
    siblings: readonly Sibling[],
  ): Promise<void> {
    const { layer, version, publishedAt } = release;
    const at = this.#now();
    const advisories = release.advisories.slice(0, maxAdvisories);
    const rowOf = (each: Sibling) => ({
      layer,
      upstream,
      name: each.name,
      version: each.version,
      fixed_name: name,
      fixed_version: version,
      advisories: JSON.stringify(advisories),
      published_at: publishedAt,
      released_at: at,
    });
    const whose = layer === 0 ? 'all' : 'account';
    const released = await this.#database.transaction(async (tx) => {
      if ((await tx.insertNew('policy_releases', [rowOf({ name, version })])) === 0) return 0;
      const further = await tx.insertNew('policy_releases', siblings.map(rowOf));
      const old = await tx.select<{ released_at: number }>(
        `SELECT released_at FROM policy_releases WHERE released_at < ? ORDER BY released_at LIMIT ${maxDeleted}`,
        [at - keptFor],
      );
      const last = old.at(-1)?.released_at;
      if (last !== undefined) await tx.run('DELETE FROM policy_releases WHERE released_at <= ?', [last]);
      const subject = { kind: 'package', name, reference: version };
      const details = { layer: whose, upstream, advisories, with: siblings };
      await recordEvent(tx, { type: 'policy.released', accountId: layer, subject, details }, at);
      return 1 + further;
    });
    this.counts[whose] += released;
  }
}
