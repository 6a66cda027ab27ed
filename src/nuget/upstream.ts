import type { Config } from '../config/schema.ts';
import { hexOf, type Digest } from '../digest.ts';
import type { DomainError } from '../errors.ts';
import { parseDocument, readDocument } from '../mirror/document.ts';
import { fetchFrom, unusable } from '../mirror/fetch.ts';
import type { Entry, Mirror, Outcome } from '../mirror/mirror.ts';
import type { Origin } from '../mirror/origin.ts';
import { resourceOf } from '../mirror/resource.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { readNupkg } from './nupkg.ts';
import { packageKey } from './packages.ts';
import { parseVersion, sortKey, versionKey } from './version.ts';

/** Documents of public feeds reach a few MiB. */
export const documentLimit = 64 * 2 ** 20;

/** A parsed document of an upstream's, and how it came. */
export interface UpstreamDocument<T> {
  upstream: Upstream;
  value: T;
  outcome: Outcome;
}

/** The resources of a service index (service-index, "Resources"): address by type, the first of each. */
export type Resources = ReadonlyMap<string, string>;

const known = new WeakMap<object, Resources>();

/** Packages of the configured upstream feeds, through the mirror. Ids and versions are keys: lower case, normalised. */
export class PackageMirror {
  readonly #mirror: Mirror;
  readonly #origin: Origin;
  readonly #limits: Config['limits'];

  constructor(mirror: Mirror, origin: Origin, limits: Config['limits']) {
    this.#mirror = mirror;
    this.#origin = origin;
    this.#limits = limits;
  }

  get origin(): Origin {
    return this.#origin;
  }

  /** What `upstream` has under `kind`, `name` and `reference`: a JSON document, undefined when it says there is none. */
  async document<T extends object>(
    upstream: Upstream,
    kind: string,
    name: string,
    reference: string,
    locate: () => Promise<URL> | URL,
    check: (document: object) => boolean,
  ): Promise<UpstreamDocument<T> | undefined> {
    const entry = await this.#mirror.open({
      ...resourceOf(upstream, kind, name, reference),
      limit: documentLimit,
      verify: async (staged) => {
        const document = parseDocument(await staged.bytes());
        if (!document || !check(document)) throw new Error('it is not the JSON document that belongs there');
        return {};
      },
      fetch: async (stored) => fetchFrom(upstream, { url: await locate(), known: stored, document: true }),
    });
    if (!entry) return undefined;
    return { upstream, value: (await readDocument(entry, documentLimit)) as T, outcome: entry.outcome };
  }

  /** The resources that `upstream` announces. */
  async resources(upstream: Upstream): Promise<Resources> {
    const index = await this.document<{ resources: unknown[] }>(
      upstream,
      'service-index',
      '',
      '',
      () => upstream.base,
      (document) => Array.isArray((document as { resources?: unknown }).resources),
    );
    if (!index) throw lacks(upstream, 'service index');
    let resources = known.get(index.value);
    if (!resources) {
      resources = readResources(index.value.resources);
      known.set(index.value, resources);
    }
    return resources;
  }

  /** The address of the first of `types` that `upstream` has; `UpstreamUnavailable`, naming the first, for none. */
  async resource(upstream: Upstream, types: readonly string[]): Promise<string> {
    const resources = await this.resources(upstream);
    const type = types.find((each) => resources.has(each));
    if (type === undefined) throw lacks(upstream, types[0]!);
    return resources.get(type)!;
  }

  /**
   * The versions of an id, in order, from the first upstream that has it: that one owns it. Undefined when every
   * upstream that may be asked says that it has none; throws when one before the owner cannot be asked.
   */
  async versions(id: string): Promise<UpstreamDocument<string[]> | undefined> {
    for (const upstream of this.#origin.candidates(id)) {
      const found = await this.#flatIndex(upstream, packageKey(id));
      if (found) return { ...found, value: keysOf(found.value.versions) };
    }
    return undefined;
  }

  /** The upstream that owns an id. With a single one to ask there is nothing to find out. */
  async owner(id: string): Promise<Upstream | undefined> {
    const candidates = this.#origin.candidates(id);
    return candidates.length > 1 ? (await this.versions(id))?.upstream : candidates[0];
  }

  /** Whether an upstream's versions of an id are known here, and from which. */
  async mirroredFrom(id: string): Promise<string | undefined> {
    const name = packageKey(id);
    for (const upstream of this.#origin.candidates(id)) {
      const keys = ['flat', 'registration-semver2', 'registration'].map((kind) => ({
        upstream: upstream.name,
        kind,
        name,
      }));
      for (const key of keys) {
        const stored = await this.#mirror.stored({ ...key, reference: key.kind === 'flat' ? '' : 'index' });
        if (stored) return upstream.name;
      }
    }
    return undefined;
  }

  /** The nupkg of a version, unchanged; verified before its last byte reaches anybody. */
  async openNupkg(id: string, version: string): Promise<Entry | undefined> {
    const key = packageKey(id);
    const upstream = (await this.#holder(key, version)) ?? (await this.owner(id));
    if (!upstream) return undefined;
    return this.#mirror.open({
      ...resourceOf(upstream, 'nupkg', key, version),
      lifetime: 'immutable',
      limit: this.#limits.nupkg,
      algorithms: ['sha512'],
      verify: (staged) => verifyNupkg(staged, key, version),
      fetch: async () =>
        typed(
          'application/octet-stream',
          fetchFrom(upstream, {
            url: new URL(
              `${encodeURIComponent(key)}/${version}/${encodeURIComponent(key)}.${version}.nupkg`,
              await this.#flat(upstream),
            ),
          }),
        ),
    });
  }

  /** The path of a mirrored nupkg in the storage, if it is stored. */
  async storedNupkg(id: string, version: string): Promise<Digest | undefined> {
    const key = packageKey(id);
    const upstream = await this.#holder(key, version);
    return (
      upstream &&
      (await this.#mirror.stored({ upstream: upstream.name, kind: 'nupkg', name: key, reference: version }))?.digest
    );
  }

  /** A file that the flat container has beside the nupkg: `<id>.nuspec`, `readme`, `icon`. */
  async openBeside(id: string, version: string, file: 'nuspec' | 'readme' | 'icon'): Promise<Entry | undefined> {
    const key = packageKey(id);
    const upstream = await this.owner(id);
    if (!upstream) return undefined;
    const leaf = file === 'nuspec' ? `${encodeURIComponent(key)}.nuspec` : file;
    return this.#mirror.open({
      ...resourceOf(upstream, file, key, version),
      lifetime: 'immutable',
      limit: 2 ** 20,
      fetch: async () =>
        fetchFrom(upstream, {
          url: new URL(`${encodeURIComponent(key)}/${version}/${leaf}`, await this.#flat(upstream)),
        }),
    });
  }

  /** The upstream, among those that may be asked for the id, whose copy of a version is stored already. */
  async #holder(key: string, version: string): Promise<Upstream | undefined> {
    for (const upstream of this.#origin.candidates(key)) {
      if (await this.#mirror.stored({ upstream: upstream.name, kind: 'nupkg', name: key, reference: version }))
        return upstream;
    }
    return undefined;
  }

  async #flat(upstream: Upstream): Promise<string> {
    return folder(await this.resource(upstream, ['PackageBaseAddress/3.0.0']));
  }

  #flatIndex(upstream: Upstream, key: string): Promise<UpstreamDocument<{ versions: unknown[] }> | undefined> {
    return this.document(
      upstream,
      'flat',
      key,
      '',
      async () => new URL(`${encodeURIComponent(key)}/index.json`, await this.#flat(upstream)),
      (document) => Array.isArray((document as { versions?: unknown }).versions),
    );
  }
}

/** An address that paths can be added to. */
export function folder(address: string): string {
  return address.replace(/\/*$/, '/');
}

async function typed(type: string, fetched: ReturnType<typeof fetchFrom>): ReturnType<typeof fetchFrom> {
  const answer = await fetched;
  return answer.kind === 'fetched' ? { ...answer, type } : answer;
}

function readResources(list: readonly unknown[]): Resources {
  const resources = new Map<string, string>();
  for (const each of list) {
    const { '@id': id, '@type': type } = (each ?? {}) as Record<string, unknown>;
    if (typeof id !== 'string' || !/^https?:\/\//.test(id)) continue;
    for (const name of Array.isArray(type) ? type : [type]) {
      if (typeof name === 'string' && !resources.has(name)) resources.set(name, id);
    }
  }
  return resources;
}

/** The version keys in a flat index, in order, without what is no version. */
function keysOf(versions: readonly unknown[]): string[] {
  const keys = new Map<string, string>();
  for (const text of versions) {
    const version = typeof text === 'string' ? parseVersion(text) : undefined;
    if (version) keys.set(versionKey(version), sortKey(version));
  }
  return [...keys].sort(([, a], [, b]) => (a < b ? -1 : 1)).map(([key]) => key);
}

async function verifyNupkg(staged: StagedFile, key: string, version: string): Promise<Record<string, string>> {
  const nupkg = await readNupkg(staged.path, { verifyAll: false });
  if (packageKey(nupkg.nuspec.id) !== key || versionKey(nupkg.version) !== version) {
    throw new Error(`it is ${nupkg.nuspec.id} ${nupkg.nuspec.version}`);
  }
  const sha512 = Buffer.from(hexOf(await staged.digest('sha512')), 'hex').toString('base64');
  return { id: nupkg.nuspec.id, sha512 };
}

function lacks(upstream: Upstream, what: string): DomainError {
  return unusable(upstream, `has no ${what}; it cannot be mirrored so`);
}
