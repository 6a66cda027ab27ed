import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { extract } from 'tar-stream';
import { piecesOf, type Content } from '../storage/files/content.ts';
import { TarWriter } from '../storage/files/tar.ts';
import type { BackupTarget } from './backup.ts';
import { blobName, encodeManifest, backupInvalid, manifestName, missingName, rowsName } from './format.ts';
import type { BackupManifest, Member } from './format.ts';
import type { NamedBlob } from './rows.ts';

const readSize = 512 * 1024;

/**
 * A backup in a new tar file at `path`, which gets its name when it is complete. Rejects if the file, or the part of an
 * earlier backup, exists.
 */
export async function openArchive(path: string): Promise<BackupTarget> {
  if (await stat(path).catch(() => undefined)) throw backupInvalid(`${path} exists already. Name a new file`);
  const tar = await TarWriter.create(path, { mode: 0o600 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
    throw backupInvalid(`${path}.part exists: another backup writes it, or has not ended. If none runs, delete it`);
  });
  return new Archive(tar);
}

class Archive implements BackupTarget {
  readonly #tar: TarWriter;
  #state = '';

  constructor(tar: TarWriter) {
    this.#tar = tar;
  }

  async begin(state: string): Promise<undefined> {
    this.#state = state;
  }

  async putRows(table: string, content: Content & { size: number }): Promise<void> {
    await this.#tar.add(rowsName(this.#state, table), content.size, piecesOf(content));
  }

  async has(): Promise<boolean> {
    return false;
  }

  async isSound(): Promise<boolean> {
    return false;
  }

  async putBlob({ digest, size }: NamedBlob, pieces: AsyncIterable<Uint8Array>): Promise<void> {
    await this.#tar.add(blobName(digest), size, pieces);
  }

  async putMissing(bytes: Buffer): Promise<void> {
    await this.#tar.add(missingName(this.#state), bytes.length, [bytes]);
  }

  async finish(manifest: BackupManifest): Promise<void> {
    const bytes = encodeManifest(manifest);
    await this.#tar.add(manifestName, bytes.length, [bytes]);
    await this.#tar.finish();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tar[Symbol.asyncDispose]();
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
