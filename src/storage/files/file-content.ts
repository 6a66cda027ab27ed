import { close, fstat, open as openFile, read as readFile } from 'node:fs';
import { promisify } from 'node:util';
import type { Content } from './content.ts';

const openDescriptor = promisify(openFile);
const statDescriptor = promisify(fstat);

/**
 * The bytes of a file. They stay readable when the file is moved or removed. `size` is undefined for a file that still
 * grows.
 */
export async function openFileContent<S extends number | undefined>(
  path: string,
  size: S,
): Promise<Content & { readonly size: S }> {
  return contentOfDescriptor(await openDescriptor(path, 'r'), size, path);
}

/** As `openFileContent`, for a file that does not change; undefined if it has another size. */
export async function openWholeFile(path: string, size: number): Promise<Content | undefined> {
  const descriptor = await openDescriptor(path, 'r');
  try {
    const found = await statDescriptor(descriptor);
    // The number of the file is in the source, because a new file at this path may have other bytes.
    if (found.size === size) return contentOfDescriptor(descriptor, size, `${path} ${found.ino}`);
  } catch (error) {
    close(descriptor, () => undefined);
    throw error;
  }
  close(descriptor, () => undefined);
  return undefined;
}

function contentOfDescriptor<S extends number | undefined>(
  descriptor: number,
  size: S,
  source: string,
): Content & { readonly size: S } {
  const end = size ?? Number.MAX_SAFE_INTEGER;
  let reading = 0;
  let closing = false;
  const closeWhenIdle = () => {
    if (closing && reading === 0) close(descriptor, () => undefined);
  };
  return {
    size,
    source,
    read: (target, position) =>
      new Promise((resolve, reject) => {
        reading += 1;
        readFile(descriptor, target, 0, Math.min(target.length, end - position), position, (error, bytesRead) => {
          reading -= 1;
          closeWhenIdle();
          if (error) reject(error);
          else resolve(bytesRead);
        });
      }),
    close: () => {
      if (closing) return;
      closing = true;
      closeWhenIdle();
    },
  };
}
