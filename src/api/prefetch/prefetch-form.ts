import type { Readable } from 'node:stream';
import { DomainError } from '../../runtime/errors.ts';
import { readMultipart } from '../../http/multipart.ts';
import { contextOf } from '../../http/request-context.ts';
import type { PrefetchFile } from '../../jobs/prefetch-run.ts';
import { decodeInput } from '../../prefetch/inputs.ts';
import type { Receiving } from '../framework/operation.ts';

/** Most files, and most bytes of all of them together. */
export const maxFiles = 10;
export const maxBytes = 5 * 2 ** 20;
const maxNameLength = 200;

/** A file of a form that is no list. Reads all of it; undefined for a list. */
type TakeOther = (field: string, filename: string, content: Readable) => Promise<unknown> | undefined;

/**
 * Reads the files and the fields of a form. `fields` has those that came before an error. `takeOther` takes files that are no
 * lists. Throws `Invalid`, `TooLarge` or `Aborted`.
 */
export async function readPrefetchForm(
  { request, response }: Receiving,
  idle: number,
  fields: Map<string, string>,
  takeOther: TakeOther = () => undefined,
): Promise<PrefetchFile[]> {
  const context = contextOf(response);
  request.on('data', (piece: Buffer) => (context.received += piece.length));
  const files: PrefetchFile[] = [];
  let received = 0;
  const take = (bytes: number) => {
    received += bytes;
    if (received > maxBytes) {
      throw new DomainError('TooLarge', `The files are larger than ${maxBytes / 2 ** 20} MiB together.`);
    }
  };
  await readMultipart(request, {
    idle,
    files: maxFiles,
    tooMany: `Send at most ${maxFiles} files at a time.`,
    expected: 'The form is malformed. Send the files as multipart/form-data.',
    onField: (name, value) => fields.set(name, value),
    onFile: async (field, filename, content) => {
      const taken = takeOther(field, filename, content);
      if (taken) return taken;
      const bytes = await collect(content, take);
      const file = nameOf(filename);
      // A browser sends an empty file for an empty field.
      if (bytes.length > 0 || file !== '') files.push({ file: file || 'file', text: decodeInput(file, bytes) });
      return undefined;
    },
  });
  return files;
}

async function collect(content: Readable, take: (bytes: number) => void): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of content as AsyncIterable<Buffer>) {
    take(piece.length);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** The name of a file without folders and control characters. */
function nameOf(filename: string): string {
  return filename.split(/[\\/]/).at(-1)!.replace(/\p{C}/gu, '').trim().slice(0, maxNameLength);
}

/** `Invalid`, for one field of the form. */
export function wrongField(field: string, message: string): DomainError {
  return new DomainError('Invalid', `${field}: ${message}`, { detail: { errors: [{ field, message }] } });
}

/** The value of a field that is true or false. Throws `Invalid`. */
export function flagIn(fields: ReadonlyMap<string, string>, name: string, otherwise: boolean): boolean {
  const text = fields.get(name);
  if (text === undefined) return otherwise;
  if (text !== 'true' && text !== 'false') throw wrongField(name, 'Send true or false.');
  return text === 'true';
}
