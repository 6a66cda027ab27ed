import { readlink } from 'node:fs/promises';
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import type { ExecutionContext } from 'ava';

// Stops a test at the instant at which a file or folder is synced. Linux only shows paths of descriptors.

export interface SyncBarrier {
  /** Resolves to the synced path when the process is about to sync it. */
  reached: Promise<string>;
  /** Lets the sync happen. */
  release(): void;
}

/** Called before a sync, with the path of the file or folder; the sync waits for it. */
export type BeforeSync = (path: string) => void | Promise<void>;

type Handle = fs.FileHandle;

/** Calls `before` for each sync of a file or folder in this process, until the test ends. Only for serial tests. */
export async function watchSyncs(t: Pick<ExecutionContext, 'teardown'>, before: BeforeSync): Promise<void> {
  const some = await fs.open(import.meta.filename, 'r');
  const prototype = Object.getPrototypeOf(some) as Pick<Handle, 'sync' | 'datasync'>;
  await some.close();
  const { sync, datasync } = prototype;
  const watched = (real: () => Promise<void>) =>
    async function watchedSync(this: Handle): Promise<void> {
      await before(await readlink(`/proc/self/fd/${this.fd}`));
      await real.call(this);
    };
  Object.assign(prototype, { sync: watched(sync), datasync: watched(datasync) });
  t.teardown(() => void Object.assign(prototype, { sync, datasync }));
}

/** Blocks the first sync of a path that `matches`, until it is released. */
export async function holdSync(
  t: Pick<ExecutionContext, 'teardown'>,
  matches: (path: string) => boolean,
): Promise<SyncBarrier> {
  const [reached, released] = [Promise.withResolvers<string>(), Promise.withResolvers<void>()];
  let isHeld = false;
  await watchSyncs(t, async (path) => {
    if (isHeld || !matches(path)) return;
    isHeld = true;
    reached.resolve(path);
    await released.promise;
  });
  t.teardown(() => released.resolve());
  return { reached: reached.promise, release: () => released.resolve() };
}

/** Fails each read of a file in this process that `fails` names, by its path and position, with EIO, as a bad disc does. Only for serial tests. */
export async function failReads(
  t: Pick<ExecutionContext, 'teardown'>,
  fails: (path: string, position: number) => boolean,
): Promise<{ repair: () => void }> {
  const some = await fs.open(import.meta.filename, 'r');
  const prototype = Object.getPrototypeOf(some) as { read: (...values: unknown[]) => Promise<unknown> };
  await some.close();
  const { read } = prototype;
  prototype.read = async function failingRead(this: Handle, ...values: unknown[]) {
    if (fails(await readlink(`/proc/self/fd/${this.fd}`), Number(values[3])))
      throw Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO', errno: -5, syscall: 'read' });
    return read.apply(this, values);
  };
  const repair = () => void (prototype.read = read);
  t.teardown(repair);
  return { repair };
}

/** Lets each write to a file of this process take half of its bytes, as a disk may. Only for serial tests. */
export async function halveWrites(t: Pick<ExecutionContext, 'teardown'>): Promise<void> {
  type Write = (bytes: Buffer, offset: number, length: number, position: number) => Promise<unknown>;
  const some = await fs.open(import.meta.filename, 'r');
  const prototype = Object.getPrototypeOf(some) as { write: Write };
  await some.close();
  const { write } = prototype;
  prototype.write = async function halfWrite(this: Handle, bytes, offset, length, position) {
    return write.call(this, bytes, offset, Math.ceil(length / 2), position);
  };
  t.teardown(() => void (prototype.write = write));
}

/** Removes each file that this process removes a moment before, as another process may. Only for serial tests. */
export function removeFirst(t: Pick<ExecutionContext, 'teardown'>): void {
  const { rm } = fs;
  const replace = (by: typeof rm): void => {
    fs.rm = by;
    syncBuiltinESMExports();
  };
  replace(async (path, options) => {
    await rm(path, { force: true });
    await rm(path, options);
  });
  t.teardown(() => replace(rm));
}
