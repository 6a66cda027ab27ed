import type { Config } from '../../config/schema.ts';
import { resourceOf, type DescribedEntry } from '../../mirror/fetch/resource.ts';
import type { EntryKey } from '../../mirror/store/entries.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { isPackageId } from '../format/nuspec.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { documentLimit } from './package-mirror.ts';
import { nupkgEntry, sidecarEntry, type SidecarKind } from './upstream-files.ts';
import type { ListedKinds } from '../../mirror/store/entry-kinds.ts';

/** What the mirror stores of a package feed. */
export const packageEntries: ListedKinds = {
  kinds: {
    nupkg: 'immutable',
    nuspec: 'immutable',
    readme: 'immutable',
    icon: 'immutable',
    symbols: 'immutable',
    flat: 'document',
    registration: 'document',
    'registration-semver2': 'document',
    'service-index': 'document',
    'vulnerability-index': 'document',
    'vulnerability-page': 'document',
  },
  dropEvent: ({ kind, name }) => (kind === 'nupkg' ? { type: 'package.deleted', kind: 'package', name } : undefined),
};

/**
 * An entry of a feed that another installation has fetched. `attributes` are those that it stored. Undefined if there is no such
 * entry.
 */
export function describePackageEntry(
  upstream: Upstream,
  { kind, name, reference }: Omit<EntryKey, 'upstream'>,
  attributes: Readonly<Record<string, string>>,
  limits: Config['limits'],
): DescribedEntry | undefined {
  const validity = packageEntries.kinds[kind];
  // The pages of vulnerability data have names that the upstream has chosen.
  const isFree = name === '' || kind === 'vulnerability-page';
  if (validity === undefined || !(isFree || (isPackageId(name) && packageKey(name) === name))) return undefined;
  if (validity === 'document') return { ...resourceOf(upstream, kind, name, reference), limit: documentLimit };
  if (name === '' || keyOfVersion(reference) !== reference) return undefined;
  if (kind === 'nupkg') {
    const { sha512, publishedAt, publishedBy } = attributes;
    const stated = { sha512, publishedAt: numberOf(publishedAt), publishedBy: numberOf(publishedBy) };
    return nupkgEntry(upstream, name, reference, limits.nupkg, () => Promise.resolve(stated));
  }
  return kind === 'symbols' ? undefined : sidecarEntry(upstream, name, reference, kind as SidecarKind);
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}
