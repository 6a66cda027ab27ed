import type {
  ComparedName,
  ComparedReference,
  ComparingOptions,
  ImportGroup,
  ImportItem,
  ImportOptions,
  ImportSource,
} from '../../import/item.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { noHead, type UpstreamAnswer } from '../../upstream/answer.ts';
import { discard } from '../../upstream/body.ts';
import { urlBelow } from '../../upstream/url.ts';
import { parseDeprecation, type HostedDeprecation } from '../format/deprecation.ts';
import type { Deprecation, VersionMetadata } from '../format/metadata.ts';
import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { flatIndex, type DocumentReading } from '../upstream/documents.ts';
import { addressIn, flatContainer } from '../upstream/package-mirror.ts';
import {
  pagesIn,
  registeredOf,
  versionsIn,
  type ListedPage,
  type ListedVersion,
} from '../upstream/registration-pages.ts';
import { hiveTypes } from '../upstream/upstream-registration.ts';
import { dependenciesIn, type PackageImport } from './packages.ts';
import { SourceFeed, type SourceId } from './source-feed.ts';

type Remote = Extract<ImportSource, { type: 'server' }>;

/** Milliseconds in which something of a package's file must come. */
const silence = 60_000;
/** Most pages of a registration. */
const maxPages = 2000;

/** What a registration says about a version. */
type Registered = Pick<Parameters<PackageImport['version']>[0], 'sha512' | 'publishedAt' | 'listed' | 'deprecation'> & {
  groups: VersionMetadata['dependencyGroups'];
};

/** The packages of a feed. */
export async function* packagesInFeed(
  into: PackageImport,
  { remote, from }: Remote,
  options: ImportOptions,
  limit: number,
): AsyncGenerator<ImportGroup> {
  const feed = new SourceFeed(remote, options.signal);
  for await (const source of options.names ? feed.named(options.names, options.warn) : feed.ids(options.warn)) {
    const { id } = source;
    if (!isPackageId(id) || !options.isWanted(id)) continue;
    yield { name: id, items: () => versionsOf({ into, feed, remote, from, options, limit }, source) };
  }
}

interface FeedParts extends Pick<Remote, 'remote' | 'from'> {
  feed: SourceFeed;
  signal: AbortSignal;
  /** Most bytes of a file. */
  limit: number;
}

interface Parts extends Omit<FeedParts, 'signal'> {
  into: PackageImport;
  options: ImportOptions;
}

async function* versionsOf(parts: Parts, source: SourceId): AsyncGenerator<ImportItem> {
  const { into, options } = parts;
  const versions = await versionsThere({ ...parts, signal: options.signal }, source);
  if (versions.size === 0) throw noVersions();
  const place = await into.decide(packageKey(source.id), [...versions.keys()]);
  for (const [version, { offered }] of versions) {
    const { publishedAt } = offered;
    if (options.references && !options.references.includes(version)) continue;
    if (options.since !== undefined && publishedAt !== undefined && publishedAt < options.since) continue;
    yield { name: source.id, reference: version, run: () => into.version(offered, place) };
    await pause();
  }
}

/** The versions of the packages of a feed beside those here. */
export async function* packagesCompared(
  into: PackageImport,
  { remote, from }: Remote,
  options: ImportOptions,
  limit: number,
  { reading, withUpstreams }: ComparingOptions,
): AsyncGenerator<ComparedName> {
  const feed = new SourceFeed(remote, options.signal);
  for (const name of options.names ?? []) {
    const references = async function* (): AsyncGenerator<ComparedReference> {
      const id = packageKey(name);
      const source = { id, downloads: new Map<string, number>() };
      const there = await versionsThere({ feed, remote, from, signal: options.signal, limit }, source);
      if (there.size === 0) throw noVersions();
      const place = withUpstreams ? await into.decide(id, [...there.keys()]) : undefined;
      for (const [reference, { offered, registered }] of there) {
        const hash = reading || offered.sha512 === undefined ? await into.hashOf(offered) : offered.sha512;
        const theirs = { ...registered, hash, dependencies: registered && dependenciesIn(registered.groups) };
        const isMirrored = place && (await into.isMirrored(offered, place, hash));
        yield { reference, theirs, ours: isMirrored ? theirs : await into.factsHere(id, reference) };
        await pause();
      }
      for (const reference of await into.versionsHere(id))
        if (!there.has(reference)) yield { reference, theirs: undefined, ours: await into.factsHere(id, reference) };
    };
    yield { name, references };
  }
}

function noVersions(): DomainError {
  return new DomainError('NotFound', 'The source lists this package and has no version of it.');
}

/** The versions of a package that the source has, and what it says about them. */
export async function versionsThere(
  parts: FeedParts,
  { id: name, downloads }: SourceId,
): Promise<Map<string, { offered: Parameters<PackageImport['version']>[0]; registered: Registered | undefined }>> {
  const id = packageKey(name);
  const { feed, remote } = parts;
  const flat = await feed.place(flatContainer);
  const [registrations, inFlat] = await Promise.all([
    registrationOf(feed, remote, id),
    feed.document(urlBelow(flat, id, 'index.json'), id, flatIndex),
  ]);
  const keys = new Set(inFlat);
  for (const key of registrations.keys()) keys.add(key);
  const versions: Awaited<ReturnType<typeof versionsThere>> = new Map();
  for (const version of keys) {
    const registered = registrations.get(version);
    const offered = offeredIn(parts, flat, { id, version }, registered, downloads.get(version));
    versions.set(version, { offered, registered });
    await pause();
  }
  return versions;
}

/** A version of a package as the source has it. */
export function offeredIn(
  parts: FeedParts,
  flat: URL,
  { id, version }: { id: string; version: string },
  registered?: Registered,
  downloads = 0,
): Parameters<PackageImport['version']>[0] {
  const { remote, from, limit } = parts;
  const { publishedAt, listed = true, deprecation, sha512 } = registered ?? {};
  const url = urlBelow(flat, id, version, `${id}.${version}.nupkg`);
  const ask = async (method: 'GET' | 'HEAD', refusals: readonly number[] = []) => {
    const answer = await remote.send({ method, url, subject: id, signal: parts.signal, answers: refusals });
    if (answer.status === 200 || refusals.includes(answer.status)) return answer;
    discard(answer.body);
    throw new DomainError('NotFound', 'The source lists this version and does not have its file.');
  };
  return {
    from,
    id,
    version,
    tellsState: registered !== undefined,
    sha512,
    publishedAt,
    listed,
    downloads,
    deprecation,
    measure: async () => {
      const answer = await ask('HEAD', noHead);
      discard(answer.body);
      if (answer.status === 200) return lengthOf(answer);
      const whole = await ask('GET');
      whole.body.destroy();
      return lengthOf(whole);
    },
    fill: async (staged) => {
      const { body, headers, decoded } = await ask('GET');
      const size = Number(headers['content-length'] ?? 0);
      if (size > limit) {
        body.destroy();
        throw new DomainError('TooLarge', `The package is larger than the ${limit} bytes allowed here.`);
      }
      await staged.append(body, { limit, idle: silence }).catch((error: unknown) => {
        // Otherwise the source would go on sending.
        body.destroy();
        throw error;
      });
      // A body without a length that ends early looks whole.
      if (!decoded && size > 0 && staged.size !== size) throw new DomainError('Aborted', 'The file came incomplete.');
    },
  };
}

function lengthOf({ headers }: Pick<UpstreamAnswer, 'headers'>): number | undefined {
  const size = Number(headers['content-length'] ?? Number.NaN);
  return Number.isSafeInteger(size) ? size : undefined;
}

/** What the registration says about each version, by its key; nothing if the source has none of this package. */
async function registrationOf(
  feed: SourceFeed,
  remote: Remote['remote'],
  id: string,
): Promise<Map<string, Registered>> {
  const found = new Map<string, Registered>();
  const base = await feed.resource(hiveTypes);
  if (!base) return found;
  const flat = await feed.place(flatContainer);
  const reading = <T>(index: boolean, make: DocumentReading<T>['make']): DocumentReading<T> => ({
    kind: 'registration',
    options: () => ({ index, key: id, semVer2: true, base: remote.base.href, flat: flat.href }),
    make,
  });
  const pages = await feed.document(
    urlBelow(base, id, 'index.json'),
    id,
    reading<readonly ListedPage[]>(true, pagesIn),
  );
  if (pages && pages.length > maxPages)
    throw new DomainError('TooLarge', 'The source has too many pages of this package.');
  for (const page of pages ?? []) {
    const versions =
      page.versions ??
      (await feed.document(addressIn(remote, page.address), id, reading<readonly ListedVersion[]>(false, versionsIn)));
    if (!versions) throw new DomainError('NotFound', 'The source lacks a page that its registration names.');
    for (const each of versions) {
      const { sha512, listed, metadata } = registeredOf(each);
      const key = keyOfVersion(each.version);
      const deprecation = deprecationFrom(id, metadata.deprecation);
      if (key !== undefined)
        found.set(key, {
          sha512,
          listed,
          publishedAt: each.publishedAt,
          deprecation,
          groups: metadata.dependencyGroups,
        });
      await pause();
    }
  }
  return found;
}

/** A deprecation that another server has; undefined if it would not be accepted here. */
function deprecationFrom(id: string, deprecation: Deprecation | undefined): HostedDeprecation | undefined {
  if (!deprecation) return undefined;
  const { reasons, message, alternatePackage } = deprecation;
  try {
    return parseDeprecation(id, { reasons, message, alternative: alternatePackage });
  } catch {
    return undefined;
  }
}
