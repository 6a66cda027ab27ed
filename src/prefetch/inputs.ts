import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { DomainError } from '../runtime/errors.ts';
import { readItemList, type ListReader } from './lists.ts';
import { malformed, type Input, type PrefetchItem } from './item.ts';

/** Largest file that is read, in bytes. */
const max = 64 * 2 ** 20;

/** Reads one kind of file that lists packages or images. */
export interface InputReader {
  /** The value of `--kind`. */
  readonly kind: string;
  /** Usual names of such files, for messages. */
  readonly names?: string;
  /** Whether a file is of this kind, by its name (without folders) or its content. */
  recognizes(name: string, input: Input): boolean;
  /** Throws `Invalid` with file, line and reason. */
  read(input: Input): PrefetchItem[];
}

/** Paths relative to the folder of the file that names them, with `/`. */
export interface NamedFiles {
  named: readonly string[];
  /** Paths at which files may be that belong to the named ones. */
  near: readonly string[];
}

/** Reads a file that names other files, instead of packages or images. */
interface SolutionReader {
  readonly names: string;
  /** By its name, without folders. */
  recognizes(name: string): boolean;
  /** Throws `Invalid`. */
  read(input: Input): NamedFiles;
}

/** The files that one protocol reads. */
export interface ProtocolInputs {
  /** The URL of the module whose default export this is, for another thread. */
  readonly module: string;
  readonly readers: readonly InputReader[];
  readonly solution?: SolutionReader;
  /** Whether a search of a folder finds a file with this name (without folders). */
  finds(name: string): boolean;
  /** Usual names of the files that a search finds, for messages. */
  readonly foundNames: string;
  /** Leaves out the paths whose content other ones of them have more exactly. */
  reduce?(paths: readonly string[]): string[];
  /** Reads the lines of a plain list. */
  readonly list: ListReader;
}

/** The files that all protocols read. */
export class Inputs {
  /** The URLs of the modules of the protocols. */
  readonly modules: readonly string[];
  readonly #readers: readonly InputReader[];
  readonly #protocols: readonly ProtocolInputs[];

  constructor(protocols: readonly ProtocolInputs[]) {
    this.#protocols = protocols;
    this.modules = protocols.map(({ module }) => module);
    const lists = protocols.map(({ list }) => list);
    this.#readers = [
      ...protocols.flatMap(({ readers }) => readers),
      {
        kind: 'list',
        names: 'lists of images and of id@version (*.txt)',
        recognizes: (name, { file }) => file === '-' || /\.(?:txt|list|lst)$/i.test(name),
        read: (input) => readItemList(input, lists),
      },
      ...lists.map((list): InputReader => ({
        kind: list.kind,
        recognizes: () => false,
        read: (input) => readItemList(input, [list]),
      })),
    ];
  }

  get kinds(): readonly string[] {
    return this.#readers.map(({ kind }) => kind);
  }

  /** The usual names of all files, for messages. */
  get names(): string {
    return [this.contentNames, ...this.#protocols.flatMap(({ solution }) => solution?.names ?? [])].join(', ');
  }

  /** The usual names of the files that list packages or images themselves, for messages. */
  get contentNames(): string {
    return this.#readers.flatMap(({ names }) => names ?? []).join(', ');
  }

  /** The usual names of the files that a search of a folder finds, for messages. */
  get foundNames(): string {
    return this.#protocols.map(({ foundNames }) => foundNames).join(', ');
  }

  /** The reader of a file that names other files; undefined if it is none. */
  solutionOf(file: string): SolutionReader | undefined {
    const name = basename(file);
    return this.#protocols.find(({ solution }) => solution?.recognizes(name))?.solution;
  }

  /** Whether a search of a folder finds a file with this name (without folders). */
  finds(name: string): boolean {
    return this.#protocols.some((each) => each.finds(name));
  }

  /** Leaves out the paths whose content other ones of them have more exactly. */
  reduce(paths: readonly string[]): string[] {
    let left = [...paths];
    for (const each of this.#protocols) left = each.reduce?.(left) ?? left;
    return left;
  }

  /** The kind of a file, from its name and, for YAML, from its content; undefined if it is unknown. */
  kindOf(input: Input): string | undefined {
    const name = basename(input.file);
    return this.#readers.find((reader) => reader.recognizes(name, input))?.kind;
  }

  /** The items in a file. Throws `Invalid` with file, line and reason. */
  read(input: Input, kind = this.kindOf(input)): PrefetchItem[] {
    const reader = this.#readers.find((each) => each.kind === kind);
    if (reader) return reader.read(input);
    const reason = `the kind of this file is unknown; known are ${this.names}; or set --kind ${this.kinds.join('|')}`;
    throw malformed(input.file, 0, reason);
  }
}

/** Reads a file; `-` is `stdin`. Throws `Invalid`. */
export async function openInput(
  file: string,
  values: ReadonlyMap<string, string>,
  stdin: AsyncIterable<Uint8Array | string> | undefined,
): Promise<Input> {
  let bytes: Buffer;
  try {
    bytes = file === '-' ? await readAll(stdin) : await readFile(file);
  } catch (error) {
    throw new DomainError('Invalid', `${file}: cannot be read: ${(error as Error).message}`, { cause: error });
  }
  if (bytes.length > max) throw malformed(file, 0, `is larger than ${max / 2 ** 20} MiB`);
  return { file, text: decodeInput(file, bytes), values };
}

/** The text of a file in UTF-8, or in UTF-16 with a byte order mark. Throws `Invalid`. */
export function decodeInput(file: string, bytes: Buffer): string {
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf-16le' : 'utf-8';
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    throw malformed(file, 0, 'is not text in UTF-8');
  }
}

async function readAll(stdin: AsyncIterable<Uint8Array | string> | undefined): Promise<Buffer> {
  if (!stdin) throw new Error('there is no standard input');
  const pieces: Buffer[] = [];
  for await (const piece of stdin) pieces.push(Buffer.from(piece as Uint8Array));
  return Buffer.concat(pieces);
}
