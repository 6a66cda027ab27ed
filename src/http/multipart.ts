import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import { DomainError } from '../runtime/errors.ts';
import { whenSilent } from '../runtime/incoming.ts';

/** Most bytes of a multipart body apart from its files: boundaries, headers, a few fields. */
export const multipartOverhead = 64 * 1024;

/** Most fields, and most bytes of a field. */
const maxFields = 16;
const maxFieldLength = 1024;

interface FormReader {
  /** A sender that sends nothing for this many milliseconds is `Aborted`. */
  idle: number;
  /** Most files. */
  files: number;
  /** The message for more files. */
  tooMany: string;
  /** The message for a body that is not a form. */
  expected: string;
  /** Takes a file; reads all of `content`, and rejects to refuse the form. `filename` is the sender's text. */
  onFile(name: string, filename: string, content: Readable): Promise<unknown>;
  onField?(name: string, value: string): void;
}

/**
 * Reads a multipart form (RFC 7578) while it arrives. No more of a file is in memory than its reader keeps. Throws
 * `Invalid`, `Aborted`, or the error of `onFile`, after the readers of files have ended.
 */
export async function readMultipart(request: IncomingMessage, reader: FormReader): Promise<void> {
  if (request.destroyed) throw aborted();
  let form: BusboyInstance;
  try {
    form = new Busboy({
      headers: request.headers as { 'content-type': string },
      limits: {
        fields: maxFields,
        fieldSize: maxFieldLength,
        files: reader.files,
        parts: reader.files + maxFields + 9,
        headerPairs: 50,
      },
    });
  } catch (error) {
    throw malformed(reader, error);
  }
  const files: Readable[] = [];
  const reading: Promise<unknown>[] = [];
  let stopListening: (() => void) | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      stopListening = whenSilent(request, reader.idle, reject);
      request.once('close', () => {
        if (!request.complete) reject(aborted());
      });
      form.on('file', (name, content, filename: string | undefined) => {
        files.push(content.on('error', () => undefined));
        const taken = reader.onFile(name, filename ?? '', content);
        reading.push(taken);
        taken.catch(reject);
      });
      form.on('field', (name, value, nameTruncated, valueTruncated) => {
        if (nameTruncated || valueTruncated) {
          reject(new DomainError('Invalid', `A field of the form is longer than ${maxFieldLength} bytes.`));
        } else reader.onField?.(name, value);
      });
      form.on('filesLimit', () => reject(new DomainError('Invalid', reader.tooMany)));
      for (const limit of ['fieldsLimit', 'partsLimit'] as const) {
        form.on(limit, () => reject(new DomainError('Invalid', `The form has more than ${maxFields} fields.`)));
      }
      form.on('error', (error: unknown) => reject(malformed(reader, error)));
      form.on('finish', resolve);
      request.pipe(form);
    });
    await Promise.all(reading);
  } catch (error) {
    request.unpipe(form);
    form.destroy();
    for (const each of files) each.destroy();
    // The last writes must end before what was received is discarded.
    await Promise.allSettled(reading);
    throw error;
  } finally {
    // A request that failed here is not always closed later.
    stopListening?.();
  }
}

function aborted(): DomainError {
  return new DomainError('Aborted', 'The connection closed before the body was complete.');
}

function malformed({ expected }: FormReader, cause: unknown): DomainError {
  return new DomainError('Invalid', expected, { cause });
}
