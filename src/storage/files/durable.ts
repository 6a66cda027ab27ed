import { randomUUID } from 'node:crypto';
import { link, open, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Makes the bytes of a file durable, or the names in a folder. */
export async function syncPath(path: string): Promise<void> {
  const handle = await open(path, 'r');
  await handle.sync().finally(() => handle.close());
}

/** Makes `file` with `text` for this user only, unless it exists. It is complete as soon as it is visible, and then durable. */
export async function makeFile(file: string, text: string): Promise<void> {
  const made = `${file}.${randomUUID()}`;
  try {
    await using handle = await open(made, 'wx', 0o600);
    await handle.writeFile(text);
    await handle.sync();
    await link(made, file);
    await syncPath(dirname(file));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await rm(made, { force: true });
  }
}
