import { NameSet, type NameKind } from '../accounts/names.ts';
import { kindOfWord } from '../config/protocols.ts';
import { batches } from '../database/batches.ts';
import type { AffectedTest } from '../known-bad/entry.ts';
import type { KnownBad } from '../known-bad/known-bad.ts';
import type { RangeReader } from '../policy/compile.ts';
import { DomainError } from '../runtime/errors.ts';
import { pause } from '../runtime/event-loop.ts';
import type { ContentUse, PullList, UsedContent } from '../usage/pull-list.ts';
import type { PullUser } from '../usage/pulls.ts';
import { readAsked, type Asked } from './asked.ts';
import type { Exposable } from './exposable.ts';

/** The pulled contents that a question is about. */
interface ExposedContents {
  /** In the order of their IDs. */
  contents: readonly UsedContent[];
  /** False if there are more than are told. */
  isComplete: boolean;
}

/** Content that the same user sent after a pull. Times are in milliseconds since 1970 UTC. */
interface LaterPush {
  kind: string;
  name: string;
  reference: string;
  at: number;
}

/** Somebody who pulled content. */
export interface ExposedUser extends ContentUse {
  content: UsedContent;
  /** Undefined if nothing is known of the user any more. */
  user: PullUser | undefined;
  /** The latest ones. */
  pushes: LaterPush[];
}

interface ExposureParts {
  pulls: PullList;
  /** Writes what this process has counted. */
  flush: () => Promise<void>;
  knownBad: KnownBad;
  isAffected: AffectedTest;
  readRange: RangeReader;
  protocols: readonly Exposable[];
  /** The IDs of all accounts. */
  accountIds: () => Promise<readonly number[]>;
  /** The account from which the readers of an account get a name. */
  ownerOf: (accountId: number, kind: NameKind, name: string) => Promise<number>;
}

/** Names that a question is about, and which of their references. */
interface Target {
  kind: NameKind;
  names?: readonly string[];
  digests?: readonly string[];
  matches?: (reference: string) => boolean;
  /** Only the pulls of this account. */
  accountId?: number | undefined;
}

const day = 86_400_000;
/** Most contents that an answer is about. */
const maxContents = 2000;
/** Pushes that are told of each user. */
const maxPushes = 10;

/** Tells who pulled what somebody asks about. */
export class Exposure {
  readonly #parts: ExposureParts;

  constructor(parts: ExposureParts) {
    this.#parts = parts;
  }

  /**
   * The contents that `what` means and that were pulled: by an account, or else by all, for each of which a name, a tag or an advisory
   * can mean something else. Throws `Invalid` for a text that means nothing, and `NotFound` for an ID that neither an advisory nor an
   * entry of a list has.
   */
  async find(what: string, accountId: number | undefined): Promise<ExposedContents> {
    await this.#parts.flush().catch(() => undefined);
    const found = new Map<string, UsedContent>();
    for (const target of await this.#targetsOf(readAsked(what), accountId)) {
      for await (const page of this.#contentsOf(target, accountId)) {
        for (const content of page) {
          if (target.matches?.(content.reference) ?? true) found.set(content.id, content);
        }
        if (found.size > maxContents) break;
        await pause();
      }
      if (found.size > maxContents) break;
    }
    const contents = [...found.values()].slice(0, maxContents).toSorted((one, other) => (one.id < other.id ? -1 : 1));
    return { contents, isComplete: found.size <= maxContents };
  }

  /** Up to `limit` pairs of a content and somebody who pulled it since `since`, after `after`. */
  async users(
    { contents }: ExposedContents,
    since: number,
    limit: number,
    after?: readonly [contentId: string, userId: string],
  ): Promise<ExposedUser[]> {
    const { pulls } = this.#parts;
    const recent = contents.filter(({ lastDay }) => lastDay > since - day);
    const byId = new Map(recent.map((each) => [each.id, each]));
    const uses = await pulls.pulls([...byId.keys()], since, limit, after);
    const users = await pulls.users([...new Set(uses.map(({ userId }) => userId))]);
    const pushed = new Map<string, (ContentUse & UsedContent)[]>();
    for (const [userId, some] of Map.groupBy(uses, (each) => each.userId)) {
      const first = Math.min(...some.map(({ firstAt }) => firstAt));
      const range = { since: first, until: Number.MAX_SAFE_INTEGER };
      pushed.set(userId, await pulls.usesOf(userId, 'push', range, maxPushes));
    }
    return uses.map((use) => {
      const later = pushed.get(use.userId)!.filter(({ lastAt }) => lastAt >= use.firstAt);
      return {
        ...use,
        content: byId.get(use.contentId)!,
        user: users.get(use.userId),
        pushes: later.map(({ kind, name, reference, lastAt: at }) => ({ kind, name, reference, at })),
      };
    });
  }

  /** The contents under the names of a target, or with its digests, some at a time. What else it asks for is not compared. */
  async *#contentsOf(
    { kind, names = [], digests, accountId: only }: Target,
    accountId = only,
  ): AsyncGenerator<readonly UsedContent[]> {
    const { pulls } = this.#parts;
    if (digests)
      for (const some of batches(digests)) yield await pulls.withReferences(accountId, some, names, maxContents + 1);
    else for (const name of names) yield* pulls.under({ accountId, kind, name });
  }

  async #targetsOf(asked: Asked, accountId: number | undefined): Promise<Target[]> {
    if (asked.by === 'id') return this.#targetsOfId(asked.id, accountId);
    const protocol = this.#protocol(asked.by !== 'range');
    if (!protocol) return [];
    const { kind } = protocol;
    if (asked.by === 'digest' && asked.name === undefined) return [{ kind, digests: [asked.digest] }];
    const name = asked.name!;
    const [names, digests] = [new Set<string>(), new Set<string>()];
    for (const viewId of await this.#viewsOf(accountId)) {
      await pause();
      const owner = await this.#parts.ownerOf(viewId, kind, name);
      names.add((await protocol.usedName?.(owner, name)) ?? name);
      if (asked.by !== 'tag') continue;
      for (const each of await protocol.digestsOfTag!(owner, name, asked.tag)) digests.add(each);
    }
    const target = { kind, names: [...names] };
    if (asked.by === 'range') return [{ ...target, matches: this.#rangeOf(asked.range) }];
    return [{ ...target, digests: asked.by === 'digest' ? [asked.digest] : [...digests] }];
  }

  /** The accounts for which names, tags and advisories are read. */
  async #viewsOf(accountId: number | undefined): Promise<readonly number[]> {
    return accountId === undefined ? this.#parts.accountIds() : [accountId];
  }

  /** The protocol whose names have tags, or the one whose names have versions. */
  #protocol(hasTags: boolean): Exposable | undefined {
    return this.#parts.protocols.find((each) => (each.digestsOfTag !== undefined) === hasTags);
  }

  #rangeOf(text: string): (version: string) => boolean {
    if (text === '*') return () => true;
    const matches = this.#parts.readRange(/^[[(]/.test(text) ? text : `[${text}]`);
    if (matches) return matches;
    const message = `${text.slice(0, 100)}: expected a version such as 1.2.3, a range such as [1.0,2.0), or *.`;
    throw new DomainError('Invalid', message, { detail: { parameter: 'what' } });
  }

  async #targetsOfId(id: string, accountId: number | undefined): Promise<Target[]> {
    const { protocols, knownBad, isAffected } = this.#parts;
    const targets: Target[] = [];
    let isKnown = false;
    for (const { kind, advisories } of protocols) {
      for (const viewId of advisories ? await this.#viewsOf(accountId) : []) {
        await pause();
        for (const { name, advisory } of await advisories!.named(viewId, id)) {
          isKnown = true;
          targets.push({ kind, names: [name], matches: advisory.affects, accountId: viewId });
        }
      }
    }
    const [packages, images] = [this.#protocol(false), this.#protocol(true)];
    for (const { kind, key, entry } of await knownBad.named(id)) {
      isKnown = true;
      const named = kindOfWord(kind);
      if (named !== undefined && named === packages?.kind)
        targets.push({ kind: named, names: [key], matches: (version) => isAffected(entry, version) });
      else if (images && kind === 'digest') targets.push({ kind: images.kind, digests: [key] });
      else if (images) targets.push({ kind: images.kind, names: await this.#namesLike(images, accountId, key) });
    }
    if (isKnown) return targets;
    throw new DomainError(
      'NotFound',
      `${id}: no advisory that this server knows and no entry of a list has this ID. Ask for the package or image, such as Name@1.2.3 or name:tag.`,
    );
  }

  /** The pulled names that an entry for images means: of very many, enough for more contents than an answer has. */
  async #namesLike(images: Exposable, accountId: number | undefined, pattern: string): Promise<string[]> {
    const spellingsOf = (name: string) => images.spellings?.(name) ?? [name];
    if (!pattern.includes('*')) return [...spellingsOf(pattern)];
    const set = new NameSet([pattern]);
    const found: string[] = [];
    for await (const page of this.#parts.pulls.names(accountId, images.kind)) {
      for (const { name } of page) if (spellingsOf(name).some((each) => set.includes(each))) found.push(name);
      if (found.length > maxContents) break;
      await pause();
    }
    return found;
  }
}
