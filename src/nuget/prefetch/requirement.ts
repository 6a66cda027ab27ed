import type { Requirement, UnclearRequirement } from '../../prefetch/requirement.ts';
import type { VersionRange } from '../format/range.ts';

/** One version of a package. */
export interface VersionRequirement extends Requirement {
  kind: 'package';
  id: string;
  version: string;
}

/** A package and its dependencies. `frameworks` select its dependencies; all if empty. */
export interface DependencyRequirement extends Requirement {
  kind: 'dependency';
  id: string;
  range: VersionRange;
  frameworks: readonly string[];
}

/** A reference whose version is in another file. */
export interface CentralRequirement extends Requirement {
  kind: 'central';
  id: string;
  frameworks: readonly string[];
}

export type PackageRequirement = VersionRequirement | DependencyRequirement | CentralRequirement;
export type NugetRequirement = PackageRequirement | UnclearRequirement;

const kinds: readonly string[] = ['package', 'dependency', 'central'] satisfies PackageRequirement['kind'][];

export function isPackage(requirement: Requirement): requirement is PackageRequirement {
  return kinds.includes(requirement.kind);
}
