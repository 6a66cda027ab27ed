import type { PlainFile, PlainSource } from '../../src/prefetch/plain.ts';
import { contentOf } from '../../src/storage/files/content.ts';

/** A file in memory, and when it was written last. */
export function plainFile(bytes: Buffer | string, changedAt?: number): PlainFile {
  const whole = Buffer.from(bytes);
  const open = () => Promise.resolve({ ...contentOf(whole), size: whole.length });
  return { size: whole.length, ...(changedAt !== undefined && { changedAt }), open };
}

/** A folder in memory, in this order. */
export function plainFolder(files: Record<string, Buffer | string | PlainFile>): PlainSource {
  const entries = Object.entries(files).map(([name, file]): [string, PlainFile] => [
    name,
    typeof file === 'string' || Buffer.isBuffer(file) ? plainFile(file) : file,
  ]);
  return { path: 'images', files: new Map(entries) };
}
