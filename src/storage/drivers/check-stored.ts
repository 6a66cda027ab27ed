import { algorithmOf, startHash, type Digest } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import type { Throttle } from '../../runtime/incoming.ts';
import type { Content } from '../files/content.ts';
import type { Driver } from './driver.ts';

/** `damaged`: other bytes, or too few; `unreadable`: the disk cannot read some. */
type State = 'sound' | 'missing' | 'damaged' | 'unreadable';

export interface CheckedBlob {
  digest: Digest;
  size: number;
}

interface CheckContentOptions {
  throttle?: Throttle | undefined;
  /** Gets all bytes in order, before it is known whether they are right. */
  use?: ((bytes: Buffer) => Promise<void>) | undefined;
}

const piece = 256 * 1024;

/** Reads all bytes in the storage itself, and compares their digest. */
export async function checkStored(driver: Driver, blob: CheckedBlob, options?: CheckContentOptions): Promise<State> {
  let content: Content;
  try {
    content = await driver.open(blob.digest, blob.size, true);
  } catch (error) {
    if (isDomainError(error, 'BlobUnknown')) return 'missing';
    if (isDomainError(error, 'ContentDamaged')) return 'damaged';
    throw error;
  }
  try {
    return await checkContent(content, blob, options);
  } finally {
    content.close();
  }
}

/** As `checkStored`, for content that is open and stays open. */
export async function checkContent(
  content: Content,
  { digest, size }: CheckedBlob,
  { throttle, use }: CheckContentOptions = {},
): Promise<State> {
  const algorithm = algorithmOf(digest);
  const hash = startHash(algorithm);
  const buffer = Buffer.allocUnsafe(Math.min(piece, Math.max(1, size)));
  for (let position = 0; position < size;) {
    const read = await content.read(buffer, position).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === 'EIO') return undefined;
      // An object is shorter than its list says.
      if (isDomainError(error, 'ContentDamaged')) return 0;
      throw error;
    });
    if (!read) return read === 0 ? 'damaged' : 'unreadable';
    const bytes = buffer.subarray(0, read);
    hash.update(bytes);
    await use?.(bytes);
    position += read;
    await throttle?.spend(read);
  }
  return `${algorithm}:${hash.digest('hex')}` === digest ? 'sound' : 'damaged';
}

/**
 * Resolves if a check failed with `error` only because its blob cannot be opened, for example a file without permission to read it.
 * Rejects with another error, or with that of `Driver.check` if the storage as a whole cannot be used.
 */
export async function refuseOtherFailures(driver: Driver, error: unknown): Promise<void> {
  const mayBeOfOneBlob = isDomainError(error)
    ? error.name === 'StorageUnavailable'
    : typeof (error as NodeJS.ErrnoException | null)?.code === 'string';
  if (!mayBeOfOneBlob) throw error;
  await driver.check();
}
