import { createReadStream, createWriteStream } from 'node:fs';
import { access, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { extract, pack, type Pack } from 'tar-stream';
import type { Content } from '../storage/files/content.ts';
import type { BackupTarget } from './backup.ts';
import { blobName, encodeManifest, backupInvalid, manifestName, missingName, rowsName } from './format.ts';
import type { BackupManifest, Member } from './format.ts';
import { piecesOf } from './pieces.ts';
import type { NamedBlob } from './rows.ts';

const readSize = 512 * 1024;

/**
 * A backup in a new tar file at `path`, which gets its name when it is complete. Rejects if the file, or the part of an
 * earlier backup, exists.
 */
export async function openArchive(path: string): Promise<BackupTarget> {
  const exists = await access(path).then(
    () => true,
    () => false,
  );
  if (exists) throw backupInvalid(`${path} exists already. Name a new file`);
  const part = `${path}.part`;
  const file = await open(part, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
    throw backupInvalid(`${part} exists: another backup writes it, or has not ended. If none runs, delete it`);
  });
  return new Archive(path, part, file.createWriteStream());
}

class Archive implements BackupTarget {
  readonly #path: string;
  readonly #part: string;
  readonly #pack: Pack = pack();
  readonly #written: Promise<void>;
  #state = '';
  #isComplete = false;

  constructor(path: string, part: string, file: ReturnType<typeof createWriteStream>) {
    this.#path = path;
    this.#part = part;
    const packed = this.#pack as AsyncIterable<Buffer>;
    this.#written = pipeline(async function* () {
      yield* packed;
    }, file);
    // Each step waits for it too.
    this.#written.catch(() => undefined);
  }

  async begin(state: string): Promise<undefined> {
    this.#state = state;
  }

  async putRows(table: string, content: Content & { size: number }): Promise<void> {
    await this.#add(rowsName(this.#state, table), content.size, piecesOf(content));
  }

  async has(): Promise<boolean> {
    return false;
  }

  async isSound(): Promise<boolean> {
    return false;
  }

  async putBlob({ digest, size }: NamedBlob, pieces: AsyncIterable<Uint8Array>): Promise<void> {
    await this.#add(blobName(digest), size, pieces);
  }

  async putMissing(bytes: Buffer): Promise<void> {
    await this.#add(missingName(this.#state), bytes.length, [bytes]);
  }

  async finish(manifest: BackupManifest): Promise<void> {
    const bytes = encodeManifest(manifest);
    await this.#add(manifestName, bytes.length, [bytes]);
    this.#pack.finalize();
    await this.#written;
    await syncPath(this.#part);
    await rename(this.#part, this.#path);
    this.#isComplete = true;
    await syncPath(dirname(this.#path));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isComplete) return;
    this.#pack.destroy();
    await this.#written.catch(() => undefined);
    await rm(this.#part, { force: true });
  }

  async #add(name: string, size: number, pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    const { promise: added, resolve, reject } = Promise.withResolvers<void>();
    added.catch(() => undefined);
    const header = { name, size, type: 'file', mode: 0o600 } as const;
    const sink = this.#pack.entry(header, (error) => (error ? reject(error) : resolve()));
    for await (const each of pieces) {
      if (each.length === 0 || sink.write(each)) continue;
      // A full disk ends the file, and then nothing drains.
      await Promise.race([new Promise<void>((drained) => void sink.once('drain', () => drained())), this.#ended()]);
    }
    sink.end(undefined);
    await Promise.race([added, this.#ended()]);
  }

  /** Rejects when the file has failed. */
  async #ended(): Promise<never> {
    await this.#written;
    throw new Error(`${this.#part} has ended`);
  }
}

/** The members of the tar file at `path`, in its order. Only regular files. */
export async function* readArchive(path: string): AsyncGenerator<Member> {
  const file = createReadStream(path, { highWaterMark: readSize });
  const entries = extract();
  try {
    file.once('error', (error) => entries.destroy(error));
    file.pipe(entries);
    for await (const entry of entries) {
      const { name, type, size } = entry.header;
      if (type !== 'file' || !Number.isSafeInteger(size) || size < 0)
        throw backupInvalid(
          `${path}: ${JSON.stringify(name.slice(0, 200))} is not a regular file, as all of a backup are`,
        );
      yield { name, size, bytes: bytesOf(path, entry as AsyncIterable<Uint8Array>) };
    }
  } catch (error) {
    throw damaged(path, error);
  } finally {
    file.destroy();
    entries.destroy();
  }
}

async function* bytesOf(path: string, entry: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* entry;
  } catch (error) {
    throw damaged(path, error);
  }
}

/** A member that is read after the end of a truncated archive was found says only that its stream was destroyed. */
const tarErrors = /^(?:Unexpected end of data|Invalid (?:tar )?header|Header exceeds max size|Stream was destroyed)/;

function damaged(path: string, error: unknown): unknown {
  const { message } = error as Error;
  return tarErrors.test(message)
    ? backupInvalid(`${path}: the archive is truncated or damaged: ${message}`, error)
    : error;
}

async function syncPath(path: string): Promise<void> {
  const handle = await open(path, 'r');
  await handle.sync().finally(() => handle.close());
}
