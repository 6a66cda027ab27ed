import { pagesOf } from '../../runtime/pages.ts';
import { allow } from '../../accounts/allow.ts';
import type { NameSet } from '../../accounts/names.ts';
import { ownerOf } from '../../accounts/owner.ts';
import type { Principal } from '../../accounts/principal.ts';
import type { MirroredOwner, NameOwner } from '../../history/history.ts';
import type { Rank } from '../../runtime/ranked.ts';
import { isDigestBeginning } from '../../runtime/digest.ts';
import { contentsWithDigest, entryNames, totalsOfNames } from '../../mirror/store/listing.ts';
import { CountedNames, type CountedName } from '../../mirror/store/counted-names.ts';
import { nameQuery, placeOf, storedNames, takeFrom } from '../../mirror/store/words.ts';
import { mirroredDownloads } from '../../usage/mirrored.ts';
import { claimsAmong } from '../hosted/repositories.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import { listedName, type UpstreamRepository } from '../mirrored/upstream-repository.ts';
import {
  imageOrders,
  tagsShown,
  type FoundRepository,
  type ImageList,
  type RepositoryFilter,
  type RepositoryOrder,
  type RepositorySummary,
} from './repository.ts';
import { countedKinds, MirroredRepository, type MirroredParts } from './mirrored-repository.ts';

/** Names read in one query; some of them may be hidden because the account hosts them. */
const namesAtATime = 200;

/** The stored images of the mirror. An account sees those of the upstreams that serve it. */
export class MirroredImages implements ImageList {
  readonly origin = 'mirrored';
  readonly #parts: MirroredParts;
  readonly #counted: CountedNames;

  constructor(parts: MirroredParts) {
    this.#parts = parts;
    this.#counted = new CountedNames((accountId) => this.#countNames(accountId), parts.now);
  }

  async list(accountId: number, limit: number, after: string, only?: NameSet, tags = tagsShown) {
    const found: RepositorySummary[] = [];
    const { database, mirrors } = this.#parts;
    const mirror = await mirrors.of(accountId);
    // No upstream's name contains a slash, so sorted by prefix the names of two upstreams never mix.
    const prefixes = mirror.upstreams.map((upstream) => ({ upstream, prefix: `${upstream.name}/` }));
    for (const { upstream, prefix } of prefixes.sort((a, b) => (a.prefix < b.prefix ? -1 : 1))) {
      if (after > prefix && !after.startsWith(prefix)) continue;
      const first = after.startsWith(prefix) ? after.slice(prefix.length) : '';
      const selection = { kind: 'manifest', upstreams: [upstream.id] };
      const read = (name: string) => entryNames(database, selection, name, namesAtATime);
      for await (const names of pagesOf(first, namesAtATime, read, String)) {
        for (const name of await this.#visible(mirror, accountId, prefix, names, only)) {
          if (found.length === limit) return found;
          found.push(await this.repository(accountId, mirror, { upstream, name }).withTags(tags));
        }
      }
    }
    return found;
  }

  async ranked(accountId: number, { sort, text, only }: RepositoryOrder, limit: number, after: Rank | undefined) {
    const mirror = await this.#parts.mirrors.of(accountId);
    const upstreams = new Map(mirror.upstreams.map((each) => [each.id, each]));
    const order = { by: sort && imageOrders[sort].counted, text, isShown: among(mirror, only) };
    return this.#counted.page(accountId, order, limit, after, async (counted) => {
      const shown = new Map<CountedName, RepositorySummary>();
      for (const [id, some] of Map.groupBy(counted, (each) => each.upstream)) {
        const upstream = upstreams.get(id)!;
        const names = some.map(({ name }) => name);
        const visible = new Set(await this.#visible(mirror, accountId, `${upstream.name}/`, names, undefined));
        for (const each of some.filter(({ name }) => visible.has(name))) {
          const summary = await this.repository(accountId, mirror, { upstream, name: each.name }).summary();
          if (summary) shown.set(each, summary);
        }
      }
      return shown;
    });
  }

  async total(accountId: number, { text, only }: RepositoryFilter) {
    const mirror = await this.#parts.mirrors.of(accountId);
    return this.#counted.total(accountId, { text, isShown: among(mirror, only) });
  }

  async *#countNames(accountId: number): AsyncGenerator<CountedName[]> {
    const { database, mirrors } = this.#parts;
    const mirror = await mirrors.of(accountId);
    for (const upstream of mirror.upstreams) {
      const selection = { kind: 'manifest', upstreams: [upstream.id] };
      const read = (after: string) => entryNames(database, selection, after, namesAtATime);
      for await (const names of pagesOf('', namesAtATime, read, String)) {
        const visible = await this.#visible(mirror, accountId, `${upstream.name}/`, names, undefined);
        const totals = await totalsOfNames(database, countedKinds, visible);
        const own = totals.filter((each) => each.upstream === upstream.id);
        const listed = new Map(own.map(({ name }) => [name, listedName({ upstream, name })]));
        const downloadsOf = await mirroredDownloads(database, accountId, 'container', [...listed.values()]);
        yield own.map((each) => {
          const name = listed.get(each.name)!;
          return { ...each, listed: name, downloads: downloadsOf(name).total };
        });
      }
    }
  }

  /** A text that begins with an upstream's name and a slash finds only what is mirrored from it. */
  async find(
    accountId: number,
    text: string,
    limit: number,
    after: string,
    only?: NameSet,
  ): Promise<FoundRepository[]> {
    const { database, mirrors } = this.#parts;
    const mirror = await mirrors.of(accountId);
    if (isDigestBeginning(text.trim())) return this.#withDigest(accountId, mirror, text.trim(), after, only);
    const named = mirror.upstreams.find(({ name }) => text.trim().toLowerCase().startsWith(`${name}/`));
    const query = nameQuery(named ? text.trim().slice(named.name.length + 1) : text);
    if (!query) return [];
    const upstreams = new Map((named ? [named] : mirror.upstreams).map((each) => [each.id, each]));
    const options = { upstreams: [...upstreams.keys()], place: placeOf(after) };
    const found = await takeFrom(storedNames(database, 'manifest', query, options), limit, async (rows) => {
      const visible = new Set<string>();
      for (const [id, some] of Map.groupBy(rows, (each) => each.upstream)) {
        const prefix = `${upstreams.get(id)!.name}/`;
        const own = some.map(({ name }) => name);
        for (const name of await this.#visible(mirror, accountId, prefix, own, only)) visible.add(prefix + name);
      }
      return rows
        .map(({ suffix, upstream: id, name }) => ({
          position: JSON.stringify([suffix, id, name]),
          name: listedName({ upstream: upstreams.get(id)!, name }),
          upstream: upstreams.get(id)!.name,
        }))
        .filter(({ name }) => visible.has(name));
    });
    const names = found.map(({ name }) => name);
    const downloadsOf = await mirroredDownloads(database, accountId, 'container', names);
    return found.map((each) => ({ ...each, pulls: downloadsOf(each.name).total }));
  }

  /**
   * The names under which the history of an image is recorded, as the account hosts it and as its upstream has it; only as it is
   * hosted where another account shares it. A principal with limits gets those that it may read, because one spelling can mean
   * names that are recorded apart. Throws `NameDenied` if it may read none of them.
   */
  async historyOwners(principal: Principal, name: string): Promise<(NameOwner | MirroredOwner)[]> {
    const accountId = await ownerOf(principal, 'container', name);
    const only = principal.names?.of('container');
    const mirror = await this.#parts.mirrors.of(accountId);
    const { hosted, place } = mirror.names.locate(name, undefined);
    const mirrored = place ? mirror.names.namesOf(place) : [];
    allow(principal, 'read', 'container', [...hosted, ...mirrored]);
    const isShared = accountId !== principal.accountId;
    const owners: (NameOwner | MirroredOwner)[] = [];
    for (const each of hosted)
      if ((!only || only.includes(each)) && (await ownerOf(principal, 'container', each)) === accountId)
        owners.push({ accountId, upstream: '', name: each });
    if (isShared || !place || (only && !mirrored.some((each) => only.includes(each)))) return owners;
    const { upstream } = place;
    const listed: MirroredOwner['listed'] = (entries) => mirror.listedEntries(place, entries);
    return [...owners, { accountId: 0, upstream: upstream.id, name: place.name, upstreamName: upstream.name, listed }];
  }

  repository(accountId: number, mirror: ImageMirror, place: UpstreamRepository): MirroredRepository {
    return new MirroredRepository(this.#parts, accountId, mirror, place);
  }

  /** The stored manifests whose digest begins so, on one page: they are few. */
  async #withDigest(accountId: number, mirror: ImageMirror, beginning: string, after: string, only?: NameSet) {
    if (after !== '') return [];
    const found: FoundRepository[] = [];
    for (const upstream of mirror.upstreams) {
      const selection = { upstream: upstream.id, kind: 'manifest' };
      const contents = await contentsWithDigest(this.#parts.database, selection, beginning);
      const names = [...new Set(contents.map(({ name }) => name))];
      const visible = new Set(await this.#visible(mirror, accountId, `${upstream.name}/`, names, only));
      for (const { name, digest } of contents.filter((each) => visible.has(each.name))) {
        if ((await mirror.listed({ upstream, name }, [digest], String)).length === 0) continue;
        const listed = listedName({ upstream, name });
        found.push({ position: listed, name: listed, upstream: upstream.name, pulls: 0, digest });
      }
    }
    return found;
  }

  /** Names that the account can pull: not hosted by it under any spelling, and allowed at the upstream by the settings. */
  async #visible(
    mirror: ImageMirror,
    accountId: number,
    prefix: string,
    names: readonly string[],
    only: NameSet | undefined,
  ): Promise<string[]> {
    const places = names.map((name) => ({ name, ...mirror.names.locate(prefix + name, undefined) }));
    const claimed = await claimsAmong(
      this.#parts.database,
      accountId,
      places.flatMap(({ hosted }) => hosted),
    );
    return places
      .filter(({ place, hosted }) => place && !hosted.some((spelling) => claimed.get(spelling)))
      .filter(({ place }) => !only || mirror.names.namesOf(place!).some((each) => only.includes(each)))
      .map(({ name }) => name);
  }
}

/** Which counted names of a mirror a reader may see. An upstream that the settings no longer have has none. */
function among({ upstreams, names }: ImageMirror, only: NameSet | undefined): (name: CountedName) => boolean {
  const byId = new Map(upstreams.map((each) => [each.id, each]));
  return ({ upstream: id, name }) => {
    const upstream = byId.get(id);
    if (!upstream) return false;
    return !only || names.namesOf({ upstream, name }).some((each) => only.includes(each));
  };
}
