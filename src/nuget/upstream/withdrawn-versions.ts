import { LRUCache } from 'lru-cache';
import { isDomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import type { EntryMetadata } from '../../mirror/store/entries.ts';
import type { WithdrawnSubject } from '../../mirror/withdrawals.ts';
import type { MirrorReader } from '../../mirror/stored-only.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { bytesOfMetadata, metadataOf } from '../format/metadata.ts';
import { readIdentity } from '../format/nupkg.ts';
import type { RegisteredVersion } from '../format/pages.ts';
import { fullString, normalize } from '../format/version.ts';
import type { ListedVersion } from './registration-pages.ts';
import { publishedOf } from './upstream-files.ts';

/** A version of a registration, made of its stored nupkg. */
interface KeptVersion extends ListedVersion {
  semVer2: boolean;
}

/** Items of a list between two pauses. */
const step = 1000;
/** Versions that one statement reads. */
const versionsAtATime = 500;
/** The most versions of a list that the upstream is asked for one by one. The next list continues. */
const askedAtOnce = 10;
/** Bytes of memory for what was read from nupkgs. */
const keptBytes = 8 * 2 ** 20;

/**
 * Stored versions that their upstream does not offer any more. They are noticed when its list of versions arrives, before the
 * list is served, and are put back into all documents.
 */
export class WithdrawnVersions {
  readonly #mirror: MirrorReader;
  /** By the digest of the nupkg. */
  readonly #read = new LRUCache<string, KeptVersion>({
    maxSize: keptBytes,
    sizeCalculation: ({ json }) => 500 + 2 * json.length,
  });

  constructor(mirror: MirrorReader) {
    this.#mirror = mirror;
  }

  /** The keys of the stored versions of an id that its upstream does not offer. */
  async keys(upstream: Upstream, key: string): Promise<string[]> {
    return (await this.#mirror.withdrawals.of(nupkgs(upstream, key))).map(({ reference }) => reference);
  }

  /** When each of the keys was published, as the upstream said when its nupkg was fetched: it tells no date any more. */
  async dates(upstream: Upstream, key: string): Promise<Map<string, number | undefined>> {
    const dates = new Map<string, number | undefined>();
    for (const reference of await this.keys(upstream, key)) {
      const nupkg = await this.#mirror.stored({ ...nupkgs(upstream, key), reference });
      dates.set(reference, nupkg && publishedOf(nupkg));
    }
    return dates;
  }

  /** Those of them that are certain to be withdrawn, and since when. */
  times(upstream: Upstream, key: string): Promise<ReadonlyMap<string, number>> {
    return this.#mirror.withdrawals.times(nupkgs(upstream, key));
  }

  /** The keys of all stored versions of an id. */
  async stored(upstream: Upstream, key: string): Promise<string[]> {
    const name = nupkgs(upstream, key);
    const read = (after: string) => this.#mirror.references(name, versionsAtATime, after);
    const found: string[] = [];
    for await (const some of pagesOf('', versionsAtATime, read, String)) found.push(...some);
    return found;
  }

  /**
   * Compares the versions that an upstream offers with the stored ones; undefined if it answers that it has no such id. An empty
   * list says nothing: a broken mirror sends one, too. `isGone` asks the upstream for a version itself, because a list can
   * lack versions that still exist; it resolves to undefined without an answer.
   */
  async compare(
    upstream: Upstream,
    key: string,
    offered: readonly string[] | undefined,
    isGone: (version: string) => Promise<boolean | undefined>,
  ): Promise<void> {
    if (offered?.length === 0) return;
    const stored = await this.stored(upstream, key);
    if (stored.length === 0) return;
    const { withdrawals } = this.#mirror;
    const name = nupkgs(upstream, key);
    const there = await among(offered ?? [], new Set(stored));
    if ((await withdrawals.of(name)).length > 0) {
      await withdrawals.offered(name, (version) => there.has(version), await this.#subject(upstream, key, stored[0]!));
    }
    const missing = stored.filter((version) => !there.has(version));
    const due = await withdrawals.missing(name, missing, upstream.config.negativeFor);
    const marking = due.slice(0, askedAtOnce).map(async (version) => {
      const gone = await isGone(version);
      const entry = { ...name, reference: version };
      if (gone) await withdrawals.mark(entry, await this.#subject(upstream, key, version));
      else if (gone === false) await withdrawals.postpone(entry);
    });
    await Promise.all(marking);
  }

  /** What registrations show of these stored versions. */
  async registered(
    upstream: Upstream,
    key: string,
    versions: readonly string[],
    semVer2: boolean,
  ): Promise<ListedVersion[]> {
    const found: ListedVersion[] = [];
    for (const version of versions) {
      const nupkg = await this.#mirror.stored({ ...nupkgs(upstream, key), reference: version });
      const kept = nupkg && (this.#read.get(nupkg.digest) ?? (await this.#readNupkg(upstream, key, version, nupkg)));
      if (kept && (semVer2 || !kept.semVer2)) found.push(kept);
    }
    return found;
  }

  async #readNupkg(
    upstream: Upstream,
    key: string,
    reference: string,
    stored: EntryMetadata,
  ): Promise<KeptVersion | undefined> {
    const { digest, attributes, storedAt } = stored;
    try {
      const entry = { key: { ...nupkgs(upstream, key), reference }, lifetime: 'immutable' } as const;
      const { nuspec, version } = await readIdentity(async () => (await this.#mirror.openStored(entry))!.content);
      const metadata = metadataOf(nuspec);
      const registered: RegisteredVersion = {
        version: normalize(version),
        fullVersion: fullString(version),
        listed: false,
        publishedAt: publishedOf(stored) ?? storedAt,
        ...(attributes['sha512'] !== undefined && { sha512: attributes['sha512'] }),
        hasIcon: nuspec.icon !== undefined,
        hasReadme: nuspec.readme !== undefined,
        bytes: bytesOfMetadata(metadata),
        metadata,
      };
      const json = JSON.stringify(registered);
      const { bytes, publishedAt } = registered;
      const kept = { version: registered.version, bytes, publishedAt, json, semVer2: nuspec.semVer2 };
      this.#read.set(digest, kept);
      return kept;
    } catch (error) {
      if (isDomainError(error)) return undefined;
      throw error;
    }
  }

  /** With the id as the package writes it. */
  async #subject({ id, name: upstream }: Upstream, key: string, version: string): Promise<WithdrawnSubject> {
    const nupkg = await this.#mirror.stored({ upstream: id, kind: 'nupkg', name: key, reference: version });
    return { kind: 'package', name: nupkg?.attributes['id'] ?? key, upstream };
  }
}

/** Those of `some` that are in a list, which may be long. */
async function among(list: readonly string[], some: ReadonlySet<string>): Promise<Set<string>> {
  const found = new Set<string>();
  for (const [at, each] of list.entries()) {
    if (at % step === 0) await pause();
    if (some.has(each)) found.add(each);
  }
  return found;
}

function nupkgs({ id }: Upstream, name: string) {
  return { upstream: id, kind: 'nupkg', name };
}
