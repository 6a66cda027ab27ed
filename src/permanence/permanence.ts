import type { Database } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';
import { rulesOf, type PermanenceRules } from './rules.ts';

/** Changed patterns that an event names. */
const maxNamed = 50;
/** How long deleted content is kept in a new installation; milliseconds. */
const newInstallation = 7 * 86_400_000;

/** How long deleted content is kept: as set, or else 7 days, and no time in an installation that is older than this. Milliseconds. */
export async function deletionWindow(database: Database, set: number | undefined): Promise<number> {
  if (set !== undefined) return set;
  const earlier = await database.get('SELECT account_id FROM permanence WHERE account_id = 0');
  return earlier ? 0 : newInstallation;
}

/** What accounts froze and keep. A change acts with the next push or deletion on all instances. */
export class Permanence {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  get(accountId: number): Promise<PermanenceRules> {
    return rulesOf(this.#database, accountId);
  }

  /** Replaces the rules of an account. */
  async put({ id, name }: { id: number; name: string }, rules: PermanenceRules): Promise<void> {
    await this.#database.transaction(async (tx) => {
      const now = this.#now();
      const before = linesOf(await rulesOf(tx, id));
      const after = linesOf(rules);
      const row = { account_id: id, rules: JSON.stringify(rules), changed_at: now };
      await tx.upsert('permanence', ['account_id'], [row], 'rules = new.rules, changed_at = new.changed_at');
      const added = after.filter((each) => !before.includes(each));
      const removed = before.filter((each) => !after.includes(each));
      if (added.length + removed.length === 0) return;
      const details = { added: added.slice(0, maxNamed), removed: removed.slice(0, maxNamed) };
      await recordEvent(
        tx,
        { type: 'permanence.changed', accountId: id, subject: { kind: 'account', name }, details },
        now,
      );
    });
  }
}

function linesOf({ freeze, keep }: PermanenceRules): string[] {
  return [
    ...freeze.images.map((each) => `freeze image ${each}`),
    ...keep.packages.map((each) => `keep package ${each}`),
    ...keep.images.map((each) => `keep image ${each}`),
  ];
}
