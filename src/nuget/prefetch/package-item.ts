import type { PrefetchItem, UnclearItem } from '../../prefetch/item.ts';
import type { VersionRange } from '../format/range.ts';

/** One version of a package. */
export interface VersionItem extends PrefetchItem {
  kind: 'package';
  id: string;
  version: string;
}

/** A package and its dependencies. `frameworks` select its dependencies; all if empty. */
interface DependencyItem extends PrefetchItem {
  kind: 'dependency';
  id: string;
  range: VersionRange;
  frameworks: readonly string[];
}

/** A reference whose version is in another file. */
interface CentralItem extends PrefetchItem {
  kind: 'central';
  id: string;
  frameworks: readonly string[];
}

type PackageItem = VersionItem | DependencyItem | CentralItem;
export type NugetItem = PackageItem | UnclearItem;

const kinds: readonly string[] = ['package', 'dependency', 'central'] satisfies PackageItem['kind'][];

export function isPackage(item: PrefetchItem): item is PackageItem {
  return kinds.includes(item.kind);
}
