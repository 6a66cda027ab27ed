import type { Platform } from '../../prefetch/platform.ts';
import type { PrefetchItem, UnclearItem } from '../../prefetch/item.ts';
import type { ImageName } from './image-name.ts';

/** An image that an input lists. */
export interface ImageItem extends PrefetchItem {
  kind: 'image';
  image: ImageName;
  /** Only if the input names them. */
  platforms?: readonly Platform[];
}

export type OciItem = ImageItem | UnclearItem;

export function isImage(item: PrefetchItem): item is ImageItem {
  return item.kind === 'image';
}
