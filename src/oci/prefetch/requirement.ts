import type { Platform } from '../../prefetch/platform.ts';
import type { Requirement, UnclearRequirement } from '../../prefetch/requirement.ts';
import type { ImageName } from './image-name.ts';

/** An image that an input lists. */
export interface ImageRequirement extends Requirement {
  kind: 'image';
  image: ImageName;
  /** Only if the input names them. */
  platforms?: readonly Platform[];
}

export type OciRequirement = ImageRequirement | UnclearRequirement;

export function isImage(requirement: Requirement): requirement is ImageRequirement {
  return requirement.kind === 'image';
}
