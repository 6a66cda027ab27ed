import { DomainError } from '../../runtime/errors.ts';
import { contentOf, readAll, wholeBytes, type Content } from './content.ts';

/** Opens a zip's bytes, whose size is known. The caller closes each content that it opens. */
export type OpenBytes = () => Promise<Content>;

/** A zip's bytes, read at any position. */
export class ZipBytes {
  readonly size: number;
  readonly #content: Content;

  private constructor(content: Content) {
    this.#content = content;
    this.size = content.size!;
  }

  /** `close` also closes `content`, which is closed if this rejects. */
  static async of(content: Content): Promise<ZipBytes> {
    if (content.bytes || content.size! > wholeBytes) return new ZipBytes(content);
    return new ZipBytes(contentOf(await readAll(content, wholeBytes)));
  }

  close(): void {
    this.#content.close();
  }

  /**
   * Exactly `length` bytes, which must not be changed. Throws `PackageInvalid` for a position beyond the end: positions come from the
   * zip.
   */
  async read(position: number, length: number): Promise<Buffer> {
    const known = this.inMemory(position, length);
    if (known) return known;
    const bytes = Buffer.allocUnsafe(length);
    await this.readInto(bytes, position);
    return bytes;
  }

  /** As `read`, without a copy, if the zip is in memory. */
  inMemory(position: number, length: number): Buffer | undefined {
    const { bytes } = this.#content;
    if (!bytes) return undefined;
    this.#refuseBeyond(position + length);
    return bytes.subarray(position, position + length);
  }

  /** As `read`, but fills `target`. */
  async readInto(target: Buffer, position: number): Promise<void> {
    this.#refuseBeyond(position + target.length);
    for (let filled = 0; filled < target.length;) {
      const read = await this.#content.read(target.subarray(filled), position + filled);
      if (read === 0) throw unsound('it became shorter during the read');
      filled += read;
    }
  }

  #refuseBeyond(end: number): void {
    if (end > this.size) throw unsound('it refers to bytes beyond its end');
  }
}

export function zipInvalid(message: string, cause?: unknown): DomainError {
  return new DomainError('PackageInvalid', message, { cause });
}

/** The file breaks a rule of the zip format. */
export function unsound(reason: string, cause?: unknown): DomainError {
  return zipInvalid(`The zip file is not valid, or not complete: ${reason.replace(/\.+$/, '')}. Send it again.`, cause);
}

/** Turns an error of the zip reader or of zlib into `PackageInvalid`. Disk errors are returned unchanged. */
export function asInvalid(error: unknown): unknown {
  if (error instanceof DomainError || (error instanceof Error && 'syscall' in error)) return error;
  return unsound(error instanceof Error ? error.message : String(error), error);
}

export function quote(name: string): string {
  return `'${name.slice(0, 200)}'`;
}
