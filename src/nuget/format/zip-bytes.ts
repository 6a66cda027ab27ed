import { DomainError } from '../../errors.ts';
import type { Content } from '../../storage/content.ts';

/** Opens a zip's bytes, of known size; each content that it opens is closed by itself. */
export type OpenBytes = () => Promise<Content>;

/** A zip's bytes, read at any position. */
export class ZipBytes {
  readonly size: number;
  readonly #content: Content;

  /** Closes `content` when it is closed. */
  constructor(content: Content) {
    this.#content = content;
    this.size = content.size!;
  }

  close(): void {
    this.#content.close();
  }

  /** Exactly `length` bytes. Positions come from the zip: one behind its end is a `PackageInvalid` like other errors. */
  async read(position: number, length: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafe(length);
    await this.readInto(bytes, position);
    return bytes;
  }

  /** As `read`, into all of `target`. */
  async readInto(target: Buffer, position: number): Promise<void> {
    if (position + target.length > this.size) throw unsound('it refers to bytes behind its end');
    for (let filled = 0; filled < target.length;) {
      const read = await this.#content.read(target.subarray(filled), position + filled);
      if (read === 0) throw unsound('it became shorter while it was read');
      filled += read;
    }
  }
}

export function invalid(message: string, cause?: unknown): DomainError {
  return new DomainError('PackageInvalid', message, { cause });
}

/** The file breaks a rule that every zip must follow. */
export function unsound(reason: string, cause?: unknown): DomainError {
  return invalid(`The package is not a sound zip file, or only part of one: ${reason}. Send it again.`, cause);
}

/** An error of the zip reader or zlib as a `PackageInvalid`; an error of the disk is the server's and stays. */
export function asInvalid(error: unknown): unknown {
  if (error instanceof DomainError || (error instanceof Error && 'syscall' in error)) return error;
  return unsound(error instanceof Error ? error.message : String(error), error);
}

export function quote(name: string): string {
  return `'${name.slice(0, 200)}'`;
}
