import { open, truncate, unlink, stat } from 'node:fs/promises';
import type { Digest } from '../../src/runtime/digest.ts';
import { FilesystemDriver } from '../../src/storage/drivers/filesystem.ts';
import { Paths } from '../../src/storage/files/paths.ts';
import type { TestServer } from './server.ts';

/** Damages to the file of a stored blob. */
export const damages = {
  truncated: async (path: string) => truncate(path, Math.floor((await stat(path)).size / 2)),
  longer: async (path: string) => truncate(path, (await stat(path)).size + 1),
  missing: (path: string) => unlink(path),
  flipped: flipBit,
} as const;

/** The file of a blob, and the file in the quarantine to which it is moved when it is damaged. */
export function filesOf({ data }: Pick<TestServer, 'data'>, digest: string): { stored: string; quarantined: string } {
  const driver = new FilesystemDriver(new Paths(data));
  return { stored: driver.pathOf(digest as Digest), quarantined: driver.quarantinePathOf(digest as Digest) };
}

/** Flips one bit of a file, as a faulty disk does. */
export async function flipBit(path: string, position = 0): Promise<void> {
  const file = await open(path, 'r+');
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, position);
  byte[0]! ^= 0x10;
  await file.write(byte, 0, 1, position);
  await file.close();
}
