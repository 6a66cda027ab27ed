import { protocolWords } from '../config/protocols.ts';
import { batches } from '../database/batches.ts';
import { placeholders, type Database, type Transaction } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';
import type { ListedNames } from '../policy/listed-names.ts';
import type { MirroredName } from '../mirror/policy/admission.ts';
import { severities } from '../mirror/policy/severities.ts';
import { pause } from '../runtime/event-loop.ts';
import { pagesOf } from '../runtime/pages.ts';
import type { ComparedContent, PullList } from '../usage/pull-list.ts';
import type { Exposable } from './exposable.ts';

interface NewlyKnownParts {
  database: Database;
  pulls: PullList;
  listed: ListedNames;
  protocols: readonly Exposable[];
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

/** What an advisory or an entry of a list says of contents of one name. */
interface Warning {
  id: string;
  /** The name of the list; null for an advisory. */
  list: string | null;
  severity: string | null;
  contents: ComparedContent[];
}

type PlaceToCompare = Parameters<PullList['toCompare']>[0];

const pageSize = 500;
/** References that an event has. */
const maxReferences = 20;
/** Most characters of the ID of an advisory. */
const maxId = 100;

/** Tells, once, that an advisory or a list warns of content that was pulled before. */
export class NewlyKnown {
  readonly #parts: NewlyKnownParts;

  constructor(parts: NewlyKnownParts) {
    this.#parts = parts;
  }

  /**
   * Compares all pulled content with what is known now. What was known when content was compared for the first time is only noted.
   * Resolves to counts.
   */
  async compare(signal: AbortSignal): Promise<Record<string, number>> {
    const { pulls } = this.#parts;
    const counts = { contents: 0, exposures: 0 };
    let rest: ComparedContent[] = [];
    const finish = async (contents: readonly ComparedContent[]) => {
      counts.contents += contents.length;
      counts.exposures += await this.#compareName(contents);
    };
    const first: PlaceToCompare = ['', '', 0, ''];
    const read = (after: PlaceToCompare) => pulls.toCompare(after, pageSize);
    for await (const page of pagesOf(first, pageSize, read, keyOf)) {
      signal.throwIfAborted();
      // Contents of one name follow one another, also from one page to the next.
      const groups = [
        ...Map.groupBy([...rest, ...page], (row) => JSON.stringify([row.kind, row.name, row.accountId])).values(),
      ];
      rest = groups.pop()!;
      for (const each of groups) await finish(each);
    }
    if (rest.length > 0) await finish(rest);
    return counts;
  }

  async #compareName(contents: readonly ComparedContent[]): Promise<number> {
    await pause();
    const warnings = await this.#warningsOf(contents);
    const compared = contents.filter(({ isCompared }) => isCompared === 0).map(({ id }) => id);
    if (warnings.length === 0 && compared.length === 0) return 0;
    const { database, pulls, now } = this.#parts;
    const known = await this.#known(warnings.length === 0 ? [] : contents.map(({ id }) => id));
    const news = warnings.flatMap((warning) => {
      const some = warning.contents.filter(({ id }) => !known.has(JSON.stringify([id, warning.id])));
      return some.length === 0 ? [] : [{ ...warning, contents: some }];
    });
    const told = news
      .map((each) => ({ ...each, contents: each.contents.filter(({ isCompared }) => isCompared !== 0) }))
      .filter((each) => each.contents.length > 0);
    const users = new Map<Warning, number>();
    for (const each of told) users.set(each, await pulls.countUsers(each.contents.map(({ id }) => id)));
    await database.transaction(async (tx) => {
      const at = now();
      const rows = news.flatMap(({ id, contents: some }) =>
        some.map((content) => ({ content_id: content.id, advisory: id, found_at: at })),
      );
      for (const some of batches(rows)) await tx.insertNew('exposures', some);
      await pulls.setCompared(tx, compared);
      for (const each of told) {
        const { accountId, kind, name } = each.contents[0]!;
        const details = {
          id: each.id,
          list: each.list,
          severity: each.severity,
          references: each.contents.slice(0, maxReferences).map(({ reference }) => reference),
          users: users.get(each),
          last_used_on: new Date(Math.max(...each.contents.map(({ lastDay }) => lastDay))).toISOString().slice(0, 10),
        };
        await recordEvent(tx, { type: 'exposure.found', accountId, subject: { kind, name }, details }, at);
      }
    });
    return told.length;
  }

  /** What is known now of contents of one name of an account. */
  async #warningsOf(contents: readonly ComparedContent[]): Promise<Warning[]> {
    const { protocols } = this.#parts;
    const { accountId, kind, name } = contents[0]!;
    const advisories = (await protocols.find((each) => each.kind === kind)?.advisories?.of(accountId, name)) ?? [];
    const found = new Map<string, Warning>();
    const add = (warning: Omit<Warning, 'contents'>, content: ComparedContent) => {
      const known = found.get(warning.id) ?? { ...warning, contents: [] };
      found.set(warning.id, known);
      if (!known.contents.includes(content)) known.contents.push(content);
    };
    for (const content of contents) {
      for (const { id, severity, affects } of advisories)
        if (affects(content.reference))
          add({ id: id.slice(0, maxId), list: null, severity: severities[severity] ?? null }, content);
    }
    const entries = await this.#entriesOf(kind, name, contents);
    for (const content of contents)
      for (const { id, list } of entries(content.reference)) add({ id, list, severity: null }, content);
    return [...found.values()];
  }

  async #entriesOf(kind: string, name: string, contents: readonly ComparedContent[]) {
    const { word } = protocolWords.find((each) => each.kind === kind)!;
    const shown = this.#parts.protocols.find((each) => each.kind === kind)?.spellings?.(name) ?? [name];
    const list = await this.#parts.listed.of({ kind: word as MirroredName['kind'], name, shown });
    const entriesOf = await list?.entriesOf(contents.map(({ reference }) => reference));
    return entriesOf ?? (() => []);
  }

  async #known(ids: readonly string[]): Promise<Set<string>> {
    const known = new Set<string>();
    for (let start = 0; start < ids.length; start += pageSize) {
      const some = ids.slice(start, start + pageSize);
      const sql = `SELECT content_id AS id, advisory FROM exposures WHERE content_id IN (${placeholders(some)})`;
      for (const { id, advisory } of await this.#parts.database.select<{ id: string; advisory: string }>(sql, some))
        known.add(JSON.stringify([id, advisory]));
    }
    return known;
  }
}

function keyOf(row: ComparedContent): PlaceToCompare {
  return [row.kind, row.name, row.accountId, row.id];
}

/** Deletes what was told of contents. */
export async function forget(tx: Transaction, contentIds: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM exposures WHERE content_id IN (${placeholders(contentIds)})`, [...contentIds]);
}
