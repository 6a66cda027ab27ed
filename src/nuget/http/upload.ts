import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import { DomainError } from '../../errors.ts';
import { whenSilent } from '../../incoming.ts';
import type { BlobStore } from '../../storage/blob-store.ts';
import type { StagedFile } from '../../storage/staged-file.ts';

export interface UploadLimits {
  /** Most bytes of the file; more is `TooLarge`. */
  size: number;
  /** Milliseconds without data after which the upload fails with `Aborted`. */
  idle: number;
}

/** Most bytes of a multipart body apart from the file: boundaries, headers, a few fields. */
const multipartOverhead = 64 * 1024;

/**
 * Stages the file of a push, and hashes it with sha256 and sha512 while it arrives. The file is the first file of a
 * multipart form, as NuGet's clients send it, or the body itself. `onBytes` gets the length of each piece of the body.
 * Throws `Invalid`, `TooLarge`, `Aborted` or `StorageFull`; then nothing stays staged.
 * https://learn.microsoft.com/nuget/api/package-publish-resource#push-a-package
 */
export async function receiveFile(
  request: IncomingMessage,
  blobs: BlobStore,
  limits: UploadLimits,
  onBytes: (bytes: number) => void,
): Promise<StagedFile> {
  const isForm = /^multipart\//i.test(request.headers['content-type'] ?? '');
  const announced = Number(request.headers['content-length'] ?? 0);
  if (announced > limits.size + (isForm ? multipartOverhead : 0)) {
    throw new DomainError('TooLarge', `The package is larger than the ${limits.size} bytes allowed here.`);
  }
  const staged = await blobs.stageHosted(announced, ['sha256', 'sha512']);
  try {
    request.on('data', (piece: Buffer) => onBytes(piece.length));
    if (isForm) await receiveForm(request, staged, limits);
    else await staged.append(request, { limit: limits.size, idle: limits.idle, consume: true });
    if (staged.size === 0) {
      throw new DomainError('Invalid', 'The request contains no package. Send it as the file of a multipart form.');
    }
    return staged;
  } catch (error) {
    await staged.discard();
    throw error;
  }
}

async function receiveForm(request: IncomingMessage, staged: StagedFile, limits: UploadLimits): Promise<void> {
  if (request.destroyed) throw aborted();
  let form: BusboyInstance;
  try {
    form = new Busboy({
      headers: request.headers as { 'content-type': string },
      limits: { fields: 10, fieldSize: 1024, files: 1, parts: 20, headerPairs: 50 },
    });
  } catch (error) {
    throw malformed(error);
  }
  let file: Readable | undefined;
  let filling: Promise<unknown> | undefined;
  let stopListening: (() => void) | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      stopListening = whenSilent(request, limits.idle, reject);
      request.once('close', () => {
        if (!request.complete) reject(aborted());
      });
      form.on('file', (_name, part) => {
        file = part.on('error', () => undefined);
        filling = staged.append(part, { limit: limits.size });
        filling.catch(reject);
      });
      form.on('filesLimit', () => reject(new DomainError('Invalid', 'Push one package at a time.')));
      form.on('error', (error: unknown) => reject(malformed(error)));
      form.on('finish', resolve);
      request.pipe(form);
    });
    await filling;
  } catch (error) {
    request.unpipe(form);
    form.destroy();
    // The last write must end before the staged file is discarded.
    file?.destroy();
    await filling?.catch(() => undefined);
    throw error;
  } finally {
    // A request that failed here is not always closed later.
    stopListening?.();
  }
}

function aborted(): DomainError {
  return new DomainError('Aborted', 'The connection closed before the body was complete.');
}

function malformed(cause: unknown): DomainError {
  return new DomainError('Invalid', 'The multipart form is malformed. Send one with a single file.', { cause });
}
