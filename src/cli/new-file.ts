import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import { DomainError } from '../runtime/errors.ts';

/**
 * The flag with which a command opens the file that it writes. Throws `AlreadyExists` for a file that exists; a device or a pipe is
 * written.
 */
export async function flagOfNew(file: string): Promise<'w' | 'wx'> {
  const found = await stat(file).catch(() => undefined);
  if (!found) return 'wx';
  if (!found.isFile() && !found.isDirectory()) return 'w';
  throw new DomainError('AlreadyExists', `${file} exists already. Name a new file`);
}

interface JsonLines {
  write(line: object): void;
  /** Rejects if a line could not be written. */
  end(): Promise<void>;
}

/**
 * Opens a new file for one JSON object a line; without a name nothing is written. `failed` is called when it cannot be written, on a
 * full disk for example. Throws as `flagOfNew`.
 */
export async function jsonLines(file: string | undefined, failed: () => void): Promise<JsonLines> {
  if (file === undefined) return { write: () => undefined, end: () => Promise.resolve() };
  const stream = createWriteStream(file, { flags: await flagOfNew(file) });
  await once(stream, 'open');
  const written = finished(stream);
  written.catch(failed);
  return {
    write: (line) => void stream.write(`${JSON.stringify(line)}\n`),
    end: () => {
      stream.end();
      return written;
    },
  };
}
