import { forUpdate, type Database, type Transaction, type Value } from '../database/database.ts';
import { afterId, type IdPlace } from '../database/tables.ts';
import { kindOfWord } from '../config/protocols.ts';
import type { EventType } from '../events/event.ts';
import { recordEvent } from '../events/record.ts';
import { currentOrigin } from '../runtime/caller.ts';
import type { NameStory } from '../mirror/policy/upstream-policy.ts';
import { DomainError } from '../runtime/errors.ts';
import type { RangeReader } from './compile.ts';
import type { Layer } from './decide.ts';
import { checkTexts, resolveReferences } from './waiver-request.ts';
import { toWaiver, type Waiver, type WaiverRow, type WaiverState } from './waiver.ts';

type NewWaiver = Pick<
  Waiver,
  'accountId' | 'kind' | 'name' | 'key' | 'references' | 'lifts' | 'reason' | 'requester' | 'expiresAt'
>;

interface WaiversParts {
  database: Database;
  readRange: RangeReader;
  now: () => number;
  /** The longest life of a waiver; milliseconds. */
  longest: number;
}

/** Requested and approved waivers of an account, and those of them that one person, rule or token has requested. */
const maxWaivers = 1000;
const maxRequested = 100;
/** A waiver that ends in less than this is announced; milliseconds. */
const warning = 7 * 86_400_000;
/** Waivers that one transaction ends or announces. */
const atATime = 100;

const approvedOfAccount = "SELECT COUNT(*) AS approved FROM waivers WHERE account_id = ? AND state = 'approved'";
const approvedOfName =
  "SELECT * FROM waivers WHERE account_id = ? AND kind = ? AND name_key = ? AND state = 'approved' ORDER BY id";

/**
 * Waivers: what people asked to be let through although a policy refuses it. A change acts with the next request on all
 * instances. A waiver of another account is "not found".
 */
export class Waivers {
  readonly #parts: WaiversParts;
  readonly #read = new WeakMap<readonly WaiverRow[], readonly Waiver[]>();

  constructor(parts: WaiversParts) {
    this.#parts = parts;
  }

  /** The approved waivers for a name, also those whose end has passed; the same array until one changes. */
  async approved(accountId: number, kind: Waiver['kind'], key: string): Promise<readonly Waiver[]> {
    const { database } = this.#parts;
    const counted = await database.getCached<{ approved: number }>(approvedOfAccount, [accountId]);
    if (counted!.approved === 0) return none;
    const rows = await database.selectCached<WaiverRow>(approvedOfName, [accountId, kind, key]);
    let read = this.#read.get(rows);
    if (!read) this.#read.set(rows, (read = rows.map(toWaiver)));
    return read;
  }

  /**
   * The name of a waiver and its references in the form that policies see. A tag gets the digest that it has now as a second
   * reference, so that the waiver does not follow the tag. Asks the upstream for it. Throws `Invalid`.
   */
  resolve(story: NameStory, name: string, references: readonly string[]): ReturnType<typeof resolveReferences> {
    return resolveReferences(story, name, references, this.#parts.readRange);
  }

  /** Requests a waiver. Throws `Invalid` for its end or its texts, and `QuotaExceeded`. */
  async request(wanted: NewWaiver): Promise<Waiver> {
    const { database, now, longest } = this.#parts;
    const time = now();
    const { accountId, expiresAt, requester } = wanted;
    checkTexts(wanted);
    const latest = time + longest;
    if (expiresAt <= time) throw invalidEnd('expected a time in the future');
    if (expiresAt > latest)
      throw invalidEnd(`a waiver can last until ${new Date(latest).toISOString()} (setting waivers.longest)`);
    return database.transaction(async (tx) => {
      const open = await tx.select<{ requester: string; state: string }>(
        "SELECT requester, state FROM waivers WHERE account_id = ? AND state IN ('requested', 'approved') LIMIT ?",
        [accountId, maxWaivers],
      );
      const own = open.filter((each) => each.requester === requester && each.state === 'requested');
      if (open.length >= maxWaivers)
        throw new DomainError(
          'QuotaExceeded',
          `An account has at most ${maxWaivers} requested and approved waivers. End one that is not needed.`,
        );
      if (own.length >= maxRequested)
        throw new DomainError(
          'QuotaExceeded',
          `You have ${maxRequested} requests that nobody has decided. End one that is not needed.`,
        );
      const id = await tx.insert('waivers', {
        account_id: accountId,
        state: 'requested',
        layer: null,
        kind: wanted.kind,
        name: wanted.name,
        name_key: wanted.key,
        reference_list: JSON.stringify(wanted.references),
        lifts: wanted.lifts,
        reason: wanted.reason,
        requester,
        requested_by: JSON.stringify(currentOrigin().actor),
        requested_at: time,
        decided_by: null,
        decided_at: null,
        expires_at: expiresAt,
        warned: 0,
        ended_at: null,
      });
      const made = await this.#get(tx, accountId, id);
      await this.#record(tx, 'waiver.requested', made, time);
      return made;
    });
  }

  /** Up to `limit` waivers of an account, or of all accounts without one, after a place. */
  async list(
    accountId: number | undefined,
    state: WaiverState | undefined,
    limit: number,
    place: IdPlace = {},
  ): Promise<Waiver[]> {
    const { sql: isAfter, value: id, order } = afterId(place);
    const conditions = [isAfter];
    const values: Value[] = [id];
    if (accountId !== undefined) {
      conditions.push('account_id = ?');
      values.push(accountId);
    }
    // The job has not yet ended each waiver whose time has passed: see `stateAt`.
    if (state === 'ended') {
      conditions.push("(state = 'ended' OR (state <> 'rejected' AND expires_at <= ?))");
      values.push(this.#parts.now());
    } else if (state !== undefined) {
      conditions.push("state = ? AND (state = 'rejected' OR expires_at > ?)");
      values.push(state, this.#parts.now());
    }
    const sql = `SELECT * FROM waivers WHERE ${conditions.join(' AND ')} ORDER BY ${order} LIMIT ?`;
    return (await this.#parts.database.select<WaiverRow>(sql, [...values, limit])).map(toWaiver);
  }

  /** Throws `NotFound` if the account does not have it; without an account, any may have it. */
  get(accountId: number | undefined, id: number): Promise<Waiver> {
    return this.#get(this.#parts.database, accountId, id);
  }

  /**
   * Approves or rejects a request. `decider` is the person, rule or token that decides; undefined for the operator of the
   * machine, who may decide everything. Throws `NotFound`, `Denied` for the own request, and `Invalid` if it is decided.
   */
  decide(
    accountId: number | undefined,
    id: number,
    decision: { state: 'approved'; layer: Layer['scope'] } | { state: 'rejected' },
    decider: string | undefined,
  ): Promise<Waiver> {
    const { state } = decision;
    return this.#change(accountId, id, async (tx, { requester, expiresAt, state: before }, time) => {
      if (requester === decider)
        throw new DomainError('Denied', `You requested the waiver ${id} yourself. Another person decides it.`);
      if (before !== 'requested' || expiresAt <= time)
        throw new DomainError('Invalid', `The waiver ${id} is ${endedText(before)}, so it cannot be ${state}.`);
      await tx.run(
        'UPDATE waivers SET state = ?, layer = ?, decided_by = ?, decided_at = ?, ended_at = ?, warned = ? WHERE id = ?',
        [
          state,
          decision.state === 'approved' ? decision.layer : null,
          JSON.stringify(currentOrigin().actor),
          time,
          state === 'rejected' ? time : null,
          expiresAt - warning <= time ? 1 : 0,
          id,
        ],
      );
      return `waiver.${state}`;
    });
  }

  /** Ends a requested or approved waiver now. Throws `NotFound`, and `Invalid` if it has ended. */
  end(accountId: number | undefined, id: number): Promise<Waiver> {
    return this.#change(accountId, id, async (tx, { state }, time) => {
      if (state !== 'requested' && state !== 'approved')
        throw new DomainError('Invalid', `The waiver ${id} is ${endedText(state)} already.`);
      await endRow(tx, id, time);
      return 'waiver.ended';
    });
  }

  /** Ends waivers whose time has passed, and announces those that end soon; resolves to how many. Rejects when `signal` aborts. */
  async review(signal: AbortSignal): Promise<{ ended: number; announced: number }> {
    const { now } = this.#parts;
    const time = now();
    const open = "state IN ('requested', 'approved') AND expires_at <= ?";
    const ended = await this.#each(signal, [open, time], async (tx, waiver) => {
      await endRow(tx, waiver.id, time);
      await this.#record(tx, 'waiver.ended', { ...waiver, state: 'ended' }, time);
    });
    const near = "state = 'approved' AND warned = 0 AND expires_at <= ?";
    const announced = await this.#each(signal, [near, time + warning], async (tx, waiver) => {
      await tx.run('UPDATE waivers SET warned = 1 WHERE id = ?', [waiver.id]);
      await this.#record(tx, 'waiver.expiring', waiver, time);
    });
    return { ended, announced };
  }

  /** Deletes waivers that ended before `before`; milliseconds since 1970 UTC. Resolves to how many. */
  async deleteEnded(before: number, signal: AbortSignal): Promise<number> {
    return this.#each(signal, ['ended_at < ?', before], async (tx, { id }) => {
      await tx.run('DELETE FROM waivers WHERE id = ?', [id]);
    });
  }

  /** Runs `work` for each waiver that matches, some of them in one transaction; it must not match after that. */
  async #each(
    signal: AbortSignal,
    [condition, value]: readonly [string, number],
    work: (tx: Transaction, waiver: Waiver) => Promise<void>,
  ): Promise<number> {
    const { database } = this.#parts;
    for (let done = 0; ;) {
      signal.throwIfAborted();
      // A transaction for nothing would renew all cached rows.
      if (!(await database.get(`SELECT id FROM waivers WHERE ${condition} LIMIT 1`, [value]))) return done;
      done += await database.transaction(async (tx) => {
        const sql = `SELECT * FROM waivers WHERE ${condition} ORDER BY id LIMIT ?${forUpdate(tx)}`;
        const rows = await tx.select<WaiverRow>(sql, [value, atATime]);
        for (const row of rows) await work(tx, toWaiver(row));
        return rows.length;
      });
    }
  }

  #change(
    accountId: number | undefined,
    id: number,
    work: (tx: Transaction, waiver: Waiver, time: number) => Promise<EventType>,
  ): Promise<Waiver> {
    const { database, now } = this.#parts;
    const time = now();
    return database.transaction(async (tx) => {
      const type = await work(tx, await this.#get(tx, accountId, id, forUpdate(tx)), time);
      const changed = await this.#get(tx, accountId, id);
      await this.#record(tx, type, changed, time);
      return changed;
    });
  }

  async #get(from: Pick<Database, 'get'>, accountId: number | undefined, id: number, lock = ''): Promise<Waiver> {
    const row = await from.get<WaiverRow>(`SELECT * FROM waivers WHERE id = ?${lock}`, [id]);
    if (row && (accountId === undefined || row.account_id === accountId)) return toWaiver(row);
    throw new DomainError('NotFound', `There is no waiver ${id}${accountId === undefined ? '' : ' in this account'}.`);
  }

  async #record(tx: Transaction, type: EventType, waiver: Waiver, time: number): Promise<void> {
    const { accountId, kind, name, references, layer, lifts, reason } = waiver;
    const subject = {
      kind: kindOfWord(kind)!,
      name,
      reference: references.length === 1 ? references[0] : null,
    };
    const expires_at = new Date(waiver.expiresAt).toISOString();
    const details = { waiver: waiver.id, references, lifts, reason, layer, expires_at };
    await recordEvent(tx, { type, accountId, subject, details }, time);
  }
}

const none: readonly Waiver[] = [];

async function endRow(tx: Transaction, id: number, time: number): Promise<void> {
  await tx.run("UPDATE waivers SET state = 'ended', ended_at = ? WHERE id = ?", [time, id]);
}

function endedText(state: WaiverState): string {
  return state === 'requested' ? 'ended' : state;
}

function invalidEnd(message: string): DomainError {
  return new DomainError('Invalid', message, { detail: { errors: [{ field: 'expires_at', message }] } });
}
