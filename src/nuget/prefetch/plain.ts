import { DomainError } from '../../runtime/errors.ts';
import type { PlainEntry, PlainOptions, PlainSource } from '../../prefetch/plain.ts';
import type { MirrorReader } from '../../mirror/stored-only.ts';
import { contentOf } from '../../storage/files/content.ts';
import { readIdentity } from '../format/nupkg.ts';
import { compareVersions, parseVersion, versionKey } from '../format/version.ts';
import { packageKey } from '../hosted/packages.ts';
import { flatIndex, readEntry } from '../upstream/documents.ts';
import type { FeedView } from '../upstream/feed-view.ts';
import { documentLimit } from '../upstream/package-mirror.ts';

/** Most stored versions of a package that are listed. */
const maxVersions = 10_000;

/** The packages in a folder, and the list of the versions of each with those that are stored. Throws `Invalid`. */
export async function* plainPackages(
  mirror: MirrorReader,
  view: FeedView,
  { path, files }: PlainSource,
  options: PlainOptions,
): AsyncGenerator<PlainEntry> {
  const packages = [...files].filter(([name]) => /(?<!\.symbols)\.nupkg$/i.test(name));
  if (packages.length === 0) return;
  const { all } = view.mirror.origin;
  const upstream = options.upstream === undefined ? all[0] : all.find(({ name }) => name === options.upstream);
  if (!upstream || (options.upstream === undefined && all.length > 1))
    throw new DomainError(
      'Invalid',
      `${path}: name the upstream to which the packages belong with --upstream: ${all.map(({ name }) => name).join(', ') || 'the settings have none'}`,
    );
  const versions = new Map<string, Set<string>>();
  for (const [file, content] of packages) {
    const { nuspec, version } = await readIdentity(() => content.open()).catch((error: Error) => {
      throw new DomainError('Invalid', `${path}: ${file} is no package: ${error.message}`, { cause: error });
    });
    const [name, reference] = [packageKey(nuspec.id), versionKey(version)];
    const some = versions.get(name);
    if (some) some.add(reference);
    else versions.set(name, new Set([reference]));
    const key = { upstream: upstream.id, kind: 'nupkg', name, reference };
    yield { key, type: 'application/octet-stream', digest: undefined, file: content };
  }
  for (const [name, found] of versions) {
    const place = { upstream: upstream.id, kind: 'nupkg', name };
    for (const each of await mirror.references(place, maxVersions)) found.add(each);
    const key = { upstream: upstream.id, kind: 'flat', name, reference: '' };
    const known = await mirror.openStored({ key, lifetime: 'immutable' });
    if (known) for (const each of await readEntry(known, documentLimit, flatIndex, upstream.id)) found.add(each);
    const list = [...found].toSorted((one, other) => compareVersions(parseVersion(one)!, parseVersion(other)!));
    const bytes = Buffer.from(JSON.stringify({ versions: list }));
    const file = { size: bytes.length, open: () => Promise.resolve({ ...contentOf(bytes), size: bytes.length }) };
    yield { key, type: 'application/json', digest: undefined, file };
  }
}
