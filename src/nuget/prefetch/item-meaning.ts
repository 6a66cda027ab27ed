import type { ItemMeaning, PrefetchItem } from '../../prefetch/item.ts';
import { formatRange, lowestApplicable } from '../format/range.ts';
import { versionKey } from '../format/version.ts';
import { packageKey } from '../hosted/packages.ts';
import type { PackageMirror } from '../upstream/package-mirror.ts';
import { isPackage } from './package-item.ts';

/** What a package of a file means: of a range, the lowest version in it that its upstream offers. */
export function packageMeaning(mirror: PackageMirror, item: PrefetchItem): ItemMeaning | undefined {
  if (!isPackage(item)) return undefined;
  const names = [item.id];
  if (item.kind === 'package')
    return { text: `${item.id} ${item.version}`, names, reference: () => Promise.resolve(item.version) };
  if (item.kind === 'central') return { text: item.id, names, reference: () => Promise.resolve(undefined) };
  return {
    text: `${item.id} ${formatRange(item.range)}`,
    names,
    reference: async () => {
      const owner = await mirror.owner(item.id);
      const versions = owner && (await mirror.allVersions(owner, packageKey(item.id)));
      const lowest = versions && (await lowestApplicable(item.range, versions.value));
      return lowest && versionKey(lowest);
    },
  };
}
