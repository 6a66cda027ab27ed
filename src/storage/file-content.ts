import { close, open as openFile, read as readFile } from 'node:fs';
import { promisify } from 'node:util';
import type { Content } from './content.ts';

const openDescriptor = promisify(openFile);

/**
 * The bytes of a file. They stay readable when the file is moved or removed. `size` is undefined for a file that still
 * grows.
 */
export async function openFileContent<S extends number | undefined>(
  path: string,
  size: S,
): Promise<Content & { readonly size: S }> {
  const descriptor = await openDescriptor(path, 'r');
  const end = size ?? Number.MAX_SAFE_INTEGER;
  let reading = 0;
  let closing = false;
  const closeWhenIdle = () => {
    if (closing && reading === 0) close(descriptor, () => undefined);
  };
  return {
    size,
    source: path,
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
