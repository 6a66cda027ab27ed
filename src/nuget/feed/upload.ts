import type { IncomingMessage } from 'node:http';
import { DomainError } from '../../runtime/errors.ts';
import { multipartOverhead, readMultipart } from '../../http/multipart.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';

interface UploadLimits {
  /** Most bytes of the file; more is `TooLarge`. */
  size: number;
  /** Milliseconds without data after which the upload fails with `Aborted`. */
  idle: number;
}

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
    if (isForm) {
      await readMultipart(request, {
        idle: limits.idle,
        files: 1,
        tooMany: 'Push one package at a time.',
        expected: 'The multipart form is malformed. Send one with a single file.',
        onFile: (_name, _filename, content) => staged.append(content, { limit: limits.size }),
      });
    } else await staged.append(request, { limit: limits.size, idle: limits.idle, consume: true });
    if (staged.size === 0) {
      throw new DomainError('Invalid', 'The request contains no package. Send it as the file of a multipart form.');
    }
    return staged;
  } catch (error) {
    await staged.discard();
    throw error;
  }
}
