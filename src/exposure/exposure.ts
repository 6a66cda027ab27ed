import { NameSet } from '../accounts/names.ts';
import { kindOfWord } from '../config/protocols.ts';
import type { AffectedTest } from '../known-bad/entry.ts';
import type { KnownBad } from '../known-bad/known-bad.ts';
import type { RangeReader } from '../policy/compile.ts';
import { DomainError } from '../runtime/errors.ts';
import { pause } from '../runtime/event-loop.ts';
import type { ContentUse, PullList, UsedContent } from '../usage/pull-list.ts';
import type { PullUser } from '../usage/pulls.ts';
import { readAsked, type Asked } from './asked.ts';
import type { Exposable } from './exposable.ts';

/** Whose pulls are looked for, and for whom names and advisories are read. */
interface Audience {
  /** Undefined: those of all accounts. */
  accountId: number | undefined;
  /** The account whose upstreams and own advisories are asked. */
  viewId: number;
}

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
}

/** Names that a question is about, and which of their references. */
interface Target {
  kind: string;
  names?: readonly string[];
  digests?: readonly string[];
  matches?: (reference: string) => boolean;
  /** Only for the own content of this account. */
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
   * The contents that `what` means and that were pulled. Throws `Invalid` for a text that means nothing, and `NotFound` for an ID that
   * neither an advisory nor an entry of a list has.
   */
  async find(what: string, audience: Audience): Promise<ExposedContents> {
    await this.#parts.flush().catch(() => undefined);
    const found = new Map<string, UsedContent>();
    for (const target of await this.#targetsOf(readAsked(what), audience)) {
      for await (const page of this.#contentsOf(target, audience.accountId)) {
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
    { kind, names = [], digests, accountId: owner }: Target,
    accountId: number | undefined,
  ): AsyncGenerator<readonly UsedContent[]> {
    const { pulls } = this.#parts;
    if (owner !== undefined && accountId !== undefined && owner !== accountId) return;
    const only = owner ?? accountId;
    if (digests) yield await pulls.withReferences(only, digests, names, maxContents + 1);
    else for (const name of names) yield* pulls.under({ accountId: only, kind, name });
  }

  async #targetsOf(asked: Asked, audience: Audience): Promise<Target[]> {
    if (asked.by === 'id') return this.#targetsOfId(asked.id, audience);
    const { viewId } = audience;
    const protocol = this.#protocol(asked.by !== 'range');
    if (!protocol) return [];
    const { kind } = protocol;
    const names = asked.name === undefined ? [] : [await usedName(protocol, viewId, asked.name)];
    if (asked.by === 'digest') return [{ kind, names, digests: [asked.digest] }];
    if (asked.by === 'range') return [{ kind, names, matches: this.#rangeOf(asked.range) }];
    return [{ kind, names, digests: await protocol.digestsOfTag!(viewId, asked.name, asked.tag) }];
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

  async #targetsOfId(id: string, audience: Audience): Promise<Target[]> {
    const { viewId } = audience;
    const { protocols, knownBad, isAffected } = this.#parts;
    const targets: Target[] = [];
    let isKnown = false;
    for (const { kind, advisories } of protocols) {
      for (const { name, advisory, isOwn } of (await advisories?.named(viewId, id)) ?? []) {
        isKnown = true;
        targets.push({ kind, names: [name], matches: advisory.affects, accountId: isOwn ? viewId : undefined });
      }
    }
    const [packages, images] = [this.#protocol(false), this.#protocol(true)];
    for (const { kind, key, entry } of await knownBad.named(id)) {
      isKnown = true;
      const named = kindOfWord(kind);
      if (named !== undefined && named === packages?.kind)
        targets.push({ kind: named, names: [key], matches: (version) => isAffected(entry, version) });
      else if (images && kind === 'digest') targets.push({ kind: images.kind, digests: [key] });
      else if (images) targets.push({ kind: images.kind, names: await this.#namesLike(images, audience, key) });
    }
    if (isKnown) return targets;
    throw new DomainError(
      'NotFound',
      `${id}: no advisory that this server knows and no entry of a list has this ID. Ask for the package or image, such as Name@1.2.3 or name:tag.`,
    );
  }

  /** The pulled names that an entry for images means: of very many, enough for more contents than an answer has. */
  async #namesLike(images: Exposable, { accountId, viewId }: Audience, pattern: string): Promise<string[]> {
    if (!pattern.includes('*')) return [await usedName(images, viewId, pattern)];
    const set = new NameSet([pattern]);
    const found: string[] = [];
    for await (const page of this.#parts.pulls.names(accountId, images.kind)) {
      for (const { name } of page) if (set.includes(name)) found.push(name);
      if (found.length > maxContents) break;
      await pause();
    }
    return found;
  }
}

async function usedName(protocol: Exposable, viewId: number, name: string): Promise<string> {
  return (await protocol.usedName?.(viewId, name)) ?? name;
}
