import type { Database } from '../../database/database.ts';
import type { KnownAdvisory } from '../../mirror/policy/admission.ts';
import { unlessUpstreamFails } from '../../upstream/upstream-error.ts';
import { parseRange } from '../format/range.ts';
import { listAdvisories, maxOfAccount } from '../hosted/advisories.ts';
import { claimedAmong } from '../hosted/claims.ts';
import { packageKey } from '../hosted/packages.ts';
import type { FeedViews } from './feed-view.ts';
import { advisoryOf } from './known-advisories.ts';

/** The known vulnerabilities of hosted packages, as accounts write them, and of mirrored ones, by the data of upstreams. */
export class NamedAdvisories {
  readonly #database: Database;
  readonly #views: FeedViews;

  constructor(database: Database, views: FeedViews) {
    this.#database = database;
    this.#views = views;
  }

  /** Those of a package. An upstream that fails counts as one that tells none. */
  async of(accountId: number, name: string): Promise<KnownAdvisory[]> {
    const own = (await this.#own(accountId)).filter((each) => each.name === name).map(({ advisory }) => advisory);
    if (await this.#isHosted(accountId, name)) return own;
    const { advisories } = await this.#views.of(accountId);
    return [...own, ...((await unlessUpstreamFails(() => advisories.of(name))) ?? [])];
  }

  /** The packages that an advisory concerns. */
  async named(accountId: number, id: string): Promise<{ name: string; advisory: KnownAdvisory }[]> {
    const { advisories } = await this.#views.of(accountId);
    const wanted = id.toLowerCase();
    const found = (await this.#own(accountId)).filter(({ advisory }) => advisory.id.toLowerCase() === wanted);
    for (const each of await advisories.named(id)) if (!(await this.#isHosted(accountId, each.name))) found.push(each);
    return found;
  }

  /** Whether an account has a package of its own under a name, so that those of upstreams do not count. */
  async #isHosted(accountId: number, name: string): Promise<boolean> {
    const { mirror } = await this.#views.of(accountId);
    return !mirror.origin.isMerged(name) && (await claimedAmong(this.#database, accountId, [name])).size > 0;
  }

  async #own(accountId: number): Promise<{ name: string; advisory: KnownAdvisory }[]> {
    const advisories = await listAdvisories(this.#database, accountId, maxOfAccount, undefined);
    return advisories.map((each) => ({
      name: packageKey(each.packageId),
      advisory: advisoryOf({ ...each, range: parseRange(each.versions)! }),
    }));
  }
}
