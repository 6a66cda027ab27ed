import { open } from 'node:fs/promises';

/** Makes the bytes of a file durable, or the names in a folder. */
export async function syncPath(path: string): Promise<void> {
  const handle = await open(path, 'r');
  await handle.sync().finally(() => handle.close());
}
