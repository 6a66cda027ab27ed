import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { DomainError } from '../../errors.ts';
import { readCompose } from './compose.ts';
import { readDockerfile } from './dockerfile.ts';
import { looksLikeCompose, readKubernetes } from './kubernetes.ts';
import { readList } from './lists.ts';
import { readMsbuild } from './msbuild.ts';
import { readAssetsFile, readLockFile } from './restore-files.ts';
import { malformed, type Input, type Requirement } from '../requirement.ts';

/** Larger files are something else. */
const largest = 64 * 2 ** 20;

const readers = {
  lock: readLockFile,
  assets: readAssetsFile,
  project: readMsbuild,
  compose: readCompose,
  kubernetes: readKubernetes,
  dockerfile: readDockerfile,
  list: (input: Input) => readList(input),
  images: (input: Input) => readList(input, 'images'),
  packages: (input: Input) => readList(input, 'packages'),
};

/** What an input can be. */
export type InputKind = keyof typeof readers;
export const inputKinds = Object.keys(readers) as InputKind[];

const names: [RegExp, InputKind][] = [
  [/^packages(?:\.[^/]+)?\.lock\.json$/i, 'lock'],
  [/^project\.assets\.json$/i, 'assets'],
  [/\.(?:[a-z]+proj|props|targets)$/i, 'project'],
  [/^(?:docker-|podman-)?compose(?:[.-].*)?\.ya?ml$/i, 'compose'],
  [/^(?:dockerfile|containerfile)(?:\..*)?$|\.(?:dockerfile|containerfile)$/i, 'dockerfile'],
  [/\.(?:txt|list|lst)$/i, 'list'],
];

/** The kind of a file by its name, and for YAML by what is in it; undefined when that tells nothing. */
export function kindOf(input: Input): InputKind | undefined {
  const name = basename(input.file);
  if (input.file === '-') return 'list';
  const known = names.find(([pattern]) => pattern.test(name));
  if (known) return known[1];
  if (!/\.ya?ml$/i.test(name)) return undefined;
  return looksLikeCompose(input) ? 'compose' : 'kubernetes';
}

/** What an input asks for. Throws `Invalid`, naming file, line and reason. */
export function readInput(input: Input, kind = kindOf(input)): Requirement[] {
  if (kind) return readers[kind](input);
  throw malformed(input.file, 0, `its name does not tell what it is; say --kind ${inputKinds.join('|')}`);
}

/** Reads the file that the user named; `-` is `stdin`. Throws `Invalid`. */
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
  if (bytes.length > largest) throw malformed(file, 0, `is larger than ${largest / 2 ** 20} MiB`);
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf-16le' : 'utf-8';
  try {
    return { file, text: new TextDecoder(encoding, { fatal: true }).decode(bytes), values };
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
