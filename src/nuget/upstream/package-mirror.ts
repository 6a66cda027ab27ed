import type { Config } from '../../config/schema.ts';
import type { Transaction } from '../../database/database.ts';
import type { EntryMetadata } from '../../mirror/store/entries.ts';
import type { DomainError } from '../../runtime/errors.ts';
import { fetchFrom, unusable } from '../../mirror/fetch/fetch.ts';
import { isUpstreamFailure, type MirrorEntry, type ServedOutcome } from '../../mirror/mirror.ts';
import type { MirroredName } from '../../mirror/policy/admission.ts';
import type { UpstreamPolicy } from '../../mirror/policy/upstream-policy.ts';
import type { MirrorReader } from '../../mirror/stored-only.ts';
import { ofAnyAge, resourceOf, type MirrorResource } from '../../mirror/fetch/resource.ts';
import { discard } from '../../upstream/body.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { unlessUpstreamFails, type UpstreamError } from '../../upstream/upstream-error.ts';
import { urlBelow, withoutUser } from '../../upstream/url.ts';
import { packageKey } from '../hosted/packages.ts';
import { nupkgEntry, packageSubject, sidecarEntry, type SidecarKind, type StatedVersion } from './upstream-files.ts';
import type { ReadingKind } from './reading/readers.ts';
import { withVersions } from '../format/merge.ts';
import { flatIndex, readBytes, readEntry, type DocumentReading } from './documents.ts';
import { packageName, type PackageGate } from './package-gate.ts';
import { serviceResources, type Resources } from './service-index.ts';
import { refuseRepublished } from './republished.ts';
import { WithdrawnVersions } from './withdrawn-versions.ts';

/** Most bytes of a document. Documents of public feeds reach a few MiB. */
export const documentLimit = 64 * 2 ** 20;
/** Most bytes of a document that lists few things: a service index, and an index of vulnerability data. */
const shortDocumentLimit = 2 ** 20;

/** A parsed document of an upstream, and how the mirror got it. */
export interface UpstreamDocument<T> {
  value: T;
  outcome: ServedOutcome;
}

/** An answer of an upstream about a document. */
interface Sighting<T> {
  /** Whether it may differ from the answer before. */
  isNew: boolean;
  /** The value; undefined if the upstream has none. */
  read: () => Promise<T | undefined>;
}

/** The upstream that has an id. */
export interface Owner {
  upstream: Upstream;
  /**
   * The failure of an upstream with higher priority, which could own the id by now. While it fails, only stored content
   * of this upstream is served: otherwise an attacker could take over an id by disturbing its owner.
   */
  silence?: UpstreamError;
}

export const flatContainer = ['PackageBaseAddress/3.0.0'];

/** Packages of the upstream feeds that serve an account, through the mirror. Ids and versions are keys: lower case, normalised. */
export class PackageMirror {
  readonly #mirror: MirrorReader;
  readonly #origin: UpstreamPolicy;
  readonly #gate: PackageGate;
  readonly #limits: Config['limits'];
  readonly withdrawn: WithdrawnVersions;

  constructor(mirror: MirrorReader, origin: UpstreamPolicy, gate: PackageGate, limits: Config['limits']) {
    this.#mirror = mirror;
    this.#origin = origin;
    this.#gate = gate;
    this.#limits = limits;
    this.withdrawn = new WithdrawnVersions(mirror);
  }

  get origin(): UpstreamPolicy {
    return this.#origin;
  }

  /**
   * The value of the owner's JSON document of this `kind`, `name` and `reference`; undefined if the owner answers that there is
   * none. `locate` returns its address. `sight` is called with each answer of the upstream before it is served.
   */
  async document<T, Kind extends ReadingKind>(
    owner: Owner,
    kind: string,
    name: string,
    reference: string,
    locate: () => Promise<URL> | URL,
    reading: DocumentReading<T, Kind>,
    sight?: (answer: Sighting<T>) => Promise<void>,
  ): Promise<UpstreamDocument<T> | undefined> {
    const { upstream } = owner;
    const limit = reading.kind === 'short' ? shortDocumentLimit : documentLimit;
    const resource = resourceOf(upstream, kind, name, reference);
    const readKnown = async () => {
      const known = await this.#mirror.openStored({ ...resource, lifetime: 'immutable' });
      return known && readEntry(known, limit, reading, upstream.id);
    };
    const entry = await this.#open(owner, {
      ...resource,
      limit,
      whole: true,
      verify: async (staged) => {
        const value = await readBytes(await staged.digest(), staged, reading, upstream.id);
        await sight?.({ isNew: true, read: async () => value });
        return {};
      },
      fetch: async (stored, signal) => {
        const subject = subjectOf(kind, name);
        const request = { url: await locate(), subject, known: stored, document: true, signal };
        const fetched = await fetchFrom(upstream, request);
        if (fetched.kind === 'absent') await sight?.({ isNew: true, read: async () => undefined });
        if (fetched.kind === 'not-modified') await sight?.({ isNew: false, read: readKnown });
        return fetched;
      },
    });
    if (!entry) return undefined;
    return { value: await readEntry(entry, limit, reading, upstream.id), outcome: entry.outcome };
  }

  /** Whether a document of this kind, which belongs to no package, is stored. It can be of any age. */
  async hasDocument({ id: upstream }: Upstream, kind: string): Promise<boolean> {
    return (await this.#mirror.references({ upstream, kind, name: '' }, 1)).length > 0;
  }

  /** The resources that `upstream` announces. */
  async resources(upstream: Upstream): Promise<Resources> {
    const index = await this.document({ upstream }, 'service-index', '', '', () => upstream.base, serviceResources);
    if (!index) throw lacks(upstream, 'service index');
    return index.value;
  }

  /** The address of the first of `types` that `upstream` has. Throws `UpstreamUnavailable` if it has none. */
  async resource(upstream: Upstream, types: readonly string[]): Promise<string> {
    const resources = await this.resources(upstream);
    const type = types.find((each) => resources.has(each));
    if (type === undefined) throw lacks(upstream, types[0]!);
    return resources.get(type)!;
  }

  /** The address of an upstream's flat container, with a slash at its end. */
  async flat(upstream: Upstream): Promise<string> {
    return (await this.resource(upstream, flatContainer)).replace(/\/?$/, '/');
  }

  /** Those of `items` that lists of the package with this key show. */
  listed<T>(upstream: Upstream, key: string, items: readonly T[], versionOf: (item: T) => string) {
    return this.#gate.admission.listed(this.nameOf(upstream, key), items, versionOf);
  }

  /** Whether some versions of the package may be hidden. */
  isLimited(upstream: Upstream, key: string): Promise<boolean> {
    return this.#gate.admission.isLimited(this.nameOf(upstream, key));
  }

  /** All versions of an id at an upstream, in order, also those that lists do not show. Undefined if it has none. */
  allVersions(owner: Owner, key: string): Promise<UpstreamDocument<readonly string[]> | undefined> {
    const { upstream } = owner;
    const locate = async () => urlBelow(await this.flat(upstream), key, 'index.json');
    return this.document(owner, 'flat', key, '', locate, flatIndex, async ({ isNew, read }) => {
      if (!isNew && (await this.withdrawn.keys(upstream, key)).length === 0) return;
      await this.withdrawn.compare(upstream, key, await read(), (version) => this.#isGone(upstream, key, version));
    });
  }

  /** The versions of an id that lists show, in order, from the upstream that owns it. Undefined and throws as `#owned`. */
  async versions(id: string): Promise<UpstreamDocument<readonly string[]> | undefined> {
    const found = await this.#owned(id);
    return found && { ...found, value: await this.listed(found.owner.upstream, packageKey(id), found.value, String) };
  }

  /**
   * The versions of an id, in order, from the first upstream that has it: that upstream owns the id. Undefined if every
   * upstream that may be asked has none. Throws if an upstream failed and no later one has stored versions.
   */
  async #owned(id: string): Promise<(UpstreamDocument<readonly string[]> & { owner: Owner }) | undefined> {
    let silence: UpstreamError | undefined;
    for (const upstream of this.#origin.candidates(id)) {
      const owner: Owner = { upstream, ...(silence && { silence }) };
      try {
        const found = await this.#ownedVersions(owner, packageKey(id));
        if (found.value.length > 0) return { ...found, owner };
      } catch (error) {
        if (!isUpstreamFailure(error)) throw error;
        silence ??= error;
      }
    }
    if (silence) throw silence;
    return undefined;
  }

  /** The versions that an upstream offers, and the stored ones that it does not offer any more: those keep it the owner. */
  async #ownedVersions(owner: Owner, key: string): Promise<UpstreamDocument<readonly string[]>> {
    const found = await this.allVersions(owner, key);
    const kept = await this.#kept(owner, key, found?.value);
    if (!found || found.value.length === 0)
      return { value: await withVersions([], kept, String), outcome: 'withdrawn' };
    return kept.length === 0 ? found : { ...found, value: await withVersions(found.value, kept, String) };
  }

  #kept({ upstream }: Owner, key: string, offered: readonly string[] | undefined): Promise<string[]> {
    return offered?.length === 0 ? this.withdrawn.stored(upstream, key) : this.withdrawn.keys(upstream, key);
  }

  /** The stored versions of an id that its upstream does not offer any more. Asks it for its versions if some are stored. */
  async keptVersions(owner: Owner, key: string): Promise<string[]> {
    const stored = await this.#mirror.references({ upstream: owner.upstream.id, kind: 'nupkg', name: key }, 1);
    if (stored.length === 0) return [];
    const found = await this.allVersions(owner, key).catch((error: unknown) => {
      if (!isUpstreamFailure(error)) throw error;
      return undefined;
    });
    return this.#kept(owner, key, found?.value);
  }

  /** The upstream that owns an id. If only one upstream may be asked, it is the owner without a request. */
  async owner(id: string): Promise<Owner | undefined> {
    const [first, ...others] = this.#origin.candidates(id);
    if (!first || others.length === 0) return first && { upstream: first };
    return (await this.#owned(id))?.owner;
  }

  /** The name of an upstream from which a document or nupkg of an id is stored. */
  async mirroredFrom(id: string): Promise<string | undefined> {
    const name = packageKey(id);
    for (const upstream of this.#origin.candidates(id)) {
      for (const kind of ['flat', 'nupkg', 'registration-semver2', 'registration']) {
        const found = await this.#mirror.references({ upstream: upstream.id, kind, name }, 1);
        if (found.length > 0) return upstream.name;
      }
    }
    return undefined;
  }

  /**
   * The nupkg of a version, unchanged. It is verified before a client gets its last byte. `statedOf` resolves to what is known
   * of it.
   */
  async openNupkg(
    id: string,
    version: string,
    statedOf: (owner: Owner) => Promise<StatedVersion>,
  ): Promise<MirrorEntry | undefined> {
    const key = packageKey(id);
    const owner = await this.#ownerOrHolder(id, version);
    if (!owner) return undefined;
    const { upstream } = owner;
    if (!(await this.#gate.admission.serves(this.nameOf(upstream, key), version))) return undefined;
    // Beside the entry, so that both share one question to Redis.
    const withdrawn = this.withdrawn.keys(upstream, key);
    withdrawn.catch(() => undefined);
    const entry = await this.#open(owner, {
      ...nupkgEntry(upstream, key, version, this.#limits.nupkg, () => statedOf(owner)),
      fetch: async (_stored, signal) => {
        const url = await this.nupkgUrl(upstream, key, version);
        const fetched = await fetchFrom(upstream, { url, subject: packageSubject(key), signal });
        return fetched.kind === 'fetched' ? { ...fetched, type: 'application/octet-stream' } : fetched;
      },
    });
    if (entry && !entry.metadata) await refuseRepublished(this.#gate, this.nameOf(upstream, key), version, entry);
    if (entry?.outcome !== 'hit') return entry;
    return (await withdrawn).includes(version) ? { ...entry, outcome: 'withdrawn' } : entry;
  }

  /** The address of a version's nupkg at `upstream` (package-base-address-resource, "Download package content"). */
  async nupkgUrl(upstream: Upstream, key: string, version: string): Promise<URL> {
    return urlBelow(await this.flat(upstream), key, version, `${key}.${version}.nupkg`);
  }

  /** The entry of a version's nupkg and how it is served, if it is stored and may be served. Throws `Denied`. */
  async storedNupkg(
    id: string,
    version: string,
  ): Promise<{ nupkg: EntryMetadata; outcome: ServedOutcome } | undefined> {
    const owner = await this.#ownerOrHolder(id, version);
    const key = packageKey(id);
    if (!owner || !(await this.#gate.admission.serves(this.nameOf(owner.upstream, key), version))) return undefined;
    const nupkg = await this.#stored(owner.upstream, key, version);
    if (!nupkg) return undefined;
    const isWithdrawn = (await this.withdrawn.keys(owner.upstream, key)).includes(version);
    return { nupkg, outcome: isWithdrawn ? 'withdrawn' : 'hit' };
  }

  /** A sidecar file, which the flat container has next to the nupkg: `<id>.nuspec`, `readme` or `icon`. */
  async openSidecar(id: string, version: string, kind: SidecarKind): Promise<MirrorEntry | undefined> {
    const key = packageKey(id);
    const owner = await this.owner(id);
    if (!owner) return undefined;
    const { upstream } = owner;
    if (!(await this.#gate.admission.serves(this.nameOf(upstream, key), version))) return undefined;
    const leaf = kind === 'nuspec' ? `${key}.nuspec` : kind;
    return this.#open(owner, {
      ...sidecarEntry(upstream, key, version, kind),
      fetch: async (_stored, signal) => {
        const url = urlBelow(await this.flat(upstream), key, version, leaf);
        return fetchFrom(upstream, { url, subject: packageSubject(key), isDocument: true, signal });
      },
    });
  }

  /** The first upstream with the stored nupkg of a version, and its entry. Sends no request. */
  async storedAt(id: string, version: string): Promise<{ upstream: Upstream; nupkg: EntryMetadata } | undefined> {
    for (const upstream of this.#origin.candidates(id)) {
      const nupkg = await this.#stored(upstream, packageKey(id), version);
      if (nupkg) return { upstream, nupkg };
    }
    return undefined;
  }

  /** As `storedAt`, for a client. Throws `Denied` if a policy refuses it. Sends no request for it. */
  async servedFromStore(id: string, version: string): ReturnType<PackageMirror['storedAt']> {
    const found = await this.storedAt(id, version);
    const name = found && this.nameOf(found.upstream, packageKey(id));
    return name && (await this.#gate.admission.serves(name, version)) ? found : undefined;
  }

  /** Removes the stored files of a version, of all upstreams; runs `also` with each nupkg. Resolves to whether there was one. */
  async forget(
    id: string,
    version: string,
    also: (tx: Transaction, upstream: string) => Promise<void>,
  ): Promise<boolean> {
    let found = false;
    for (const { id: upstream, name } of this.#origin.candidates(id)) {
      for (const kind of ['nupkg', 'nuspec', 'readme', 'icon']) {
        const removed = await this.#mirror.remove(
          { upstream, kind, name: packageKey(id), reference: version },
          kind === 'nupkg' ? (tx) => also(tx, name) : undefined,
        );
        found ||= removed && kind === 'nupkg';
      }
    }
    return found;
  }

  /** Opens only stored content if the owner must not be asked. */
  async #open({ silence }: Owner, resource: MirrorResource): Promise<MirrorEntry | undefined> {
    if (!silence) return this.#mirror.open(resource);
    const stored = await this.#mirror.openStored(silence.offline ? ofAnyAge(resource) : resource);
    if (!stored) throw silence;
    return stored;
  }

  /** The owner; if there is none or it cannot be determined, an upstream from which the nupkg is stored. */
  async #ownerOrHolder(id: string, version: string): Promise<Owner | undefined> {
    const candidates = this.#origin.candidates(id);
    if (candidates.length < 2) return this.owner(id);
    const holder = async () => {
      for (const upstream of candidates) {
        if (await this.#stored(upstream, packageKey(id), version)) return { upstream };
      }
      return undefined;
    };
    try {
      return (await this.owner(id)) ?? (await holder());
    } catch (error) {
      const held = isUpstreamFailure(error) ? await holder() : undefined;
      if (!held) throw error;
      return held;
    }
  }

  /** The entry of a stored nupkg that lists show. */
  async #stored(upstream: Upstream, name: string, version: string): Promise<EntryMetadata | undefined> {
    const stored = await this.#mirror.stored({ upstream: upstream.id, kind: 'nupkg', name, reference: version });
    return stored && (await this.listed(upstream, name, [stored], () => version))[0];
  }

  /** Whether an upstream answers "not found" for a version itself; undefined if it does not answer. */
  #isGone(upstream: Upstream, key: string, version: string): Promise<boolean | undefined> {
    return unlessUpstreamFails(async () => {
      const url = await this.nupkgUrl(upstream, key, version);
      const { status, body } = await upstream.send({ method: 'HEAD', url, subject: packageSubject(key) });
      discard(body);
      return status === 404 || status === 410;
    });
  }

  /** A package as policies see it. */
  nameOf(upstream: Upstream, key: string): MirroredName {
    return packageName(this.#gate, this.withdrawn, upstream, key);
  }
}

/** The subject of a document: its package, or its kind if it belongs to no package. */
function subjectOf(kind: string, name: string): string {
  return kind === 'service-index' || kind.startsWith('vulnerability-') ? kind : packageSubject(name);
}

/** An address from a document of `upstream`. Throws `UpstreamUnavailable` if it is not a valid address. */
export function addressIn(upstream: Upstream, address: unknown): URL {
  const url = typeof address === 'string' ? URL.parse(address, upstream.base.href) : null;
  if (!url || !/^https?:$/.test(url.protocol)) throw unusable(upstream, 'sent a document with an invalid address');
  // The address may be logged.
  return withoutUser(url);
}

function lacks(upstream: Upstream, resource: string): DomainError {
  return unusable(upstream, `has no ${resource}, so it cannot be mirrored`);
}
