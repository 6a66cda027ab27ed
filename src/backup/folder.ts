import { createReadStream } from 'node:fs';
import { lstat, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { lockFile } from '../database/sqlite.ts';
import { ifMissing, isDomainError } from '../runtime/errors.ts';
import { piecesOf, type Content } from '../storage/files/content.ts';
import type { Driver } from '../storage/drivers/driver.ts';
import { openFileContent } from '../storage/files/file-content.ts';
import type { Paths } from '../storage/files/paths.ts';
import { syncPath } from '../storage/files/durable.ts';
import { makeFolder } from '../storage/files/permissions.ts';
import { StagedFile } from '../storage/files/staged-file.ts';
import type { Digest } from '../runtime/digest.ts';
import type { Throttle } from '../runtime/incoming.ts';
import type { BackupTarget } from './backup.ts';
import { hashBlob } from './check.ts';
import {
  blobName,
  decodeManifest,
  encodeManifest,
  backupInvalid,
  manifestName,
  missingName,
  maxManifest,
} from './format.ts';
import { rowsName, type BackupManifest, type Member } from './format.ts';
import { writePieces } from './pieces.ts';
import { blobsOf, rowsOf, type NamedBlob } from './rows.ts';

/** A folder with a backup. Its blobs have the layout of a data folder. */
export interface Folder {
  path: string;
  paths: Paths;
  driver: Driver;
}

/** Two characters of a digest. */
const prefixes = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/**
 * A backup in a folder. With `incremental`, the folder may hold an earlier backup, which stays whole until the new one is
 * complete. Rejects if the folder has anything else, and for an earlier backup without `incremental`.
 */
export async function openFolder({ path, paths, driver }: Folder, incremental: boolean): Promise<BackupTarget> {
  await makeFolder(path);
  const names = new Set(await readdir(path));
  const isBackup = names.has(manifestName) || (names.has('blobs') && names.has('rows'));
  if (names.size > 0 && !isBackup) throw backupInvalid(`${path} is not empty, and has no backup. Name another folder`);
  if (isBackup && !incremental)
    throw backupInvalid(`${path} has a backup already. To renew it, add --incremental; or name another folder`);
  for (const each of [paths.blobs, paths.staging, join(path, 'rows')])
    await mkdir(each, { recursive: true, mode: 0o700 });
  const lockPath = join(path, 'lock');
  await writeFile(lockPath, '', { flag: 'a', mode: 0o600 });
  // A second backup would remove what the first one needs.
  const lock = lockFile(lockPath);
  if (!lock) throw backupInvalid(`another backup writes to ${path} now. Start this one when it has ended`);
  // What a killed backup left.
  for (const each of await readdir(paths.staging)) await rm(join(paths.staging, each));
  await driver.prepare();
  return new FolderTarget(path, paths, driver, lock);
}

class FolderTarget implements BackupTarget {
  readonly #path: string;
  readonly #paths: Paths;
  readonly #driver: Driver;
  readonly #lock: Disposable;
  /** Blobs of the earlier backup that do not match their digests, and were not replaced. */
  readonly #damaged = new Set<Digest>();
  #state = '';
  /** The earlier backup, if it does not name its installation. */
  #unnamed: BackupManifest | undefined;

  constructor(path: string, paths: Paths, driver: Driver, lock: Disposable) {
    this.#lock = lock;
    this.#path = path;
    this.#paths = paths;
    this.#driver = driver;
  }

  async begin(state: string, installation: string): Promise<BackupManifest | undefined> {
    const earlier = (await hasManifest(this.#path)) ? decodeManifest(await readManifest(this.#path)) : undefined;
    if (earlier?.installation === undefined) this.#unnamed = earlier;
    else if (earlier.installation !== installation) throw otherInstallation(this.#path);
    // What backups left that failed.
    await this.#removeRows(earlier?.state);
    this.#state = state;
    await mkdir(join(this.#path, 'rows', state), { mode: 0o700 });
    return earlier;
  }

  async putRows(table: string, content: Content): Promise<void> {
    const name = rowsName(this.#state, table);
    await this.#place(name, piecesOf(content));
    if (table !== 'accounts' || !this.#unnamed) return;
    // The first account is made with the installation, and stays.
    const before = await firstCreation(join(this.#path, rowsName(this.#unnamed.state, table)));
    if (before !== (await firstCreation(join(this.#path, name)))) throw otherInstallation(this.#path);
  }

  async has({ digest, size }: NamedBlob): Promise<boolean> {
    return (await this.#driver.stat(digest))?.size === size;
  }

  async isSound(blob: NamedBlob, throttle: Throttle): Promise<boolean> {
    const content = await openBlob(this.#driver, blob);
    const throttled = async function* () {
      for await (const each of content ? readable(content) : []) {
        await throttle.spend(each.length);
        yield each;
      }
    };
    const isSound = await hashBlob(blob, throttled());
    if (!isSound) this.#damaged.add(blob.digest);
    return isSound;
  }

  async putBlob({ digest }: NamedBlob, pieces: AsyncIterable<Uint8Array>, isSound: () => boolean): Promise<void> {
    const staged = await StagedFile.create(this.#paths, []);
    try {
      await writePieces(staged, pieces);
      if (!isSound()) return;
      // A put keeps stored bytes of the same size.
      if (this.#damaged.delete(digest)) await this.#driver.delete(digest);
      await this.#driver.put(digest, staged);
    } finally {
      await staged.discard();
    }
  }

  async putMissing(bytes: Buffer): Promise<void> {
    await this.#place(missingName(this.#state), [bytes]);
  }

  async finish(manifest: BackupManifest, blobs: () => AsyncIterable<NamedBlob>): Promise<void> {
    // The next backup would count damaged bytes that nothing has replaced as those of the blob.
    for (const digest of this.#damaged) await this.#driver.delete(digest);
    await syncPath(join(this.#path, 'rows', this.#state));
    await syncPath(join(this.#path, 'rows'));
    // The new backup replaces the earlier one in this step.
    await this.#place(manifestName, [encodeManifest(manifest)]);
    await syncPath(this.#path);
    await this.#removeRows(this.#state);
    await this.#removeOthers(blobs());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#lock[Symbol.dispose]();
    await this.#driver.close();
  }

  /** Removes the rows of all states but one. */
  async #removeRows(kept: string | undefined): Promise<void> {
    for (const each of await readdir(join(this.#path, 'rows')))
      if (each !== kept) await rm(join(this.#path, 'rows', each), { recursive: true });
  }

  /** Removes the blobs that the backup does not name. Its blobs come in the order of their digests. */
  async #removeOthers(blobs: AsyncIterable<NamedBlob>): Promise<void> {
    const named = blobs[Symbol.asyncIterator]();
    let next = await named.next();
    for (const algorithm of ['sha256', 'sha512']) {
      for (const prefix of prefixes.map((each) => `${algorithm}:${each}`)) {
        const kept = new Set<string>();
        for (; !next.done && next.value.digest.startsWith(prefix); next = await named.next())
          kept.add(next.value.digest);
        for await (const page of this.#driver.list(prefix))
          for (const { digest } of page) if (!kept.has(digest)) await this.#driver.delete(digest);
      }
    }
  }

  /** Writes a file under its name, durable and complete. */
  async #place(name: string, pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    const staged = await StagedFile.create(this.#paths, []);
    try {
      for await (const each of pieces) await staged.write(each);
      await staged.sync();
      await rename(staged.path, join(this.#path, name));
    } finally {
      await staged.discard();
    }
  }
}

function otherInstallation(path: string): Error {
  return backupInvalid(
    `${path} has a backup of another installation, or of this one before it was restored or adopted. Name another folder, and delete this one when it is not needed any more. If this is unexpected, check ENTREPOT_DATA, ENTREPOT_DATABASE_URL and what is mounted`,
  );
}

/** When the account in the first row of a file of rows was created. */
async function firstCreation(file: string): Promise<unknown> {
  const { size } = await stat(file);
  for await (const { header, values } of rowsOf(await openFileContent(file, size)))
    return values[header.columns.findIndex(({ name }) => name === 'created_at')];
  return undefined;
}

/** The members of the backup in a folder, in the order of an archive. Files that are missing are left out. Throws `Invalid` if a backup renews it meanwhile. */
export async function* readFolder({ path, driver }: Folder): AsyncGenerator<Member> {
  const bytes = await readManifest(path);
  const { state, tables } = decodeManifest(bytes);
  for (const { name } of tables) yield* fileMember(path, rowsName(state, name));
  const rows = join(path, rowsName(state, 'blobs'));
  const found = await lstat(rows).catch(() => undefined);
  if (found?.isFile()) {
    for await (const { digest, size } of blobsOf(await openFileContent(rows, found.size))) {
      if ((await driver.stat(digest))?.size !== size) continue;
      const content = await openBlob(driver, { digest, size });
      if (content) yield { name: blobName(digest), size, bytes: readable(content) };
    }
  }
  yield* fileMember(path, missingName(state));
  // Then a backup has removed what only the earlier state needs.
  if (decodeManifest(await readManifest(path)).state !== state)
    throw backupInvalid(`${path} was renewed by a backup while it was read. Read it again`);
  yield { name: manifestName, size: bytes.length, bytes: fromBuffer(bytes) };
}

/** Undefined if the bytes are missing, or have another size. */
async function openBlob(driver: Driver, { digest, size }: NamedBlob): Promise<Content | undefined> {
  return driver.open(digest, size).catch((error: unknown) => {
    if (isDomainError(error, 'BlobUnknown') || isDomainError(error, 'ContentDamaged')) return undefined;
    throw error;
  });
}

/** The bytes up to the first that the disk cannot read. */
async function* readable(content: Content): AsyncGenerator<Buffer> {
  try {
    yield* piecesOf(content);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EIO') throw error;
  }
}

async function* fileMember(path: string, name: string): AsyncGenerator<Member> {
  const file = join(path, name);
  const found = await lstat(file).catch(() => undefined);
  if (found?.isFile()) yield { name, size: found.size, bytes: createReadStream(file) };
}

async function hasManifest(path: string): Promise<boolean> {
  return (await lstat(join(path, manifestName)).catch(ifMissing)) !== undefined;
}

async function readManifest(path: string): Promise<Buffer> {
  const file = join(path, manifestName);
  const found = await lstat(file).catch(ifMissing);
  if (!found?.isFile())
    throw backupInvalid(`${path}: there is no backup, or the first one is not complete: no file ${manifestName}`);
  if (found.size > maxManifest) throw backupInvalid(`${file} is larger than a manifest can be`);
  return readFile(file);
}

async function* fromBuffer(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes;
}
