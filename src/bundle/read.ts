import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { digestOf, isDigest, type Digest } from '../runtime/digest.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { digestOfContent, piecesOf, readAll, type Content } from '../storage/files/content.ts';
import { openTar, type OpenTar, type TarMember } from '../storage/files/tar.ts';
import {
  bundleInvalid,
  decodeList,
  listName,
  maxListLine,
  maxList,
  memberName,
  statementName,
  type BundleBlob,
  type BundleList,
} from './format.ts';
import { readEnvelope, type Envelope } from './keys.ts';
import { maxEnvelope, partOf, statementType } from './write.ts';

/** Most segments that are open at a time. */
const maxOpen = 500;

const statementSchema = z.object({ list: z.string().refine(isDigest) as unknown as z.ZodType<Digest> });

/** Segments of one bundle. */
export interface OpenBundle extends AsyncDisposable {
  /** The digest of its list. */
  id: Digest;
  list: BundleList;
  /** What was signed. Its signatures are not checked yet. */
  envelope: Envelope;
  /**
   * The content of a blob if all of its bytes are in these segments; `partElsewhere` opens parts that are not. `place` names where it is, for
   * messages.
   */
  open(
    blob: BundleBlob,
    partElsewhere?: (part: { digest: Digest; size: number }) => (() => Promise<Content>) | undefined,
  ): Promise<{ content: Content & { readonly size: number }; place: string } | undefined>;
  /** It was made by another tool, which says nothing about its entries but what they are. */
  isPlain: boolean;
  /** The numbers of the segments that blobs still need. */
  lacking(blobs: readonly BundleBlob[]): Promise<number[]>;
}

/**
 * Opens the segments in folders, and segments that are named as files. `admit` throws if what was signed is not to be read further: the list of a stranger
 * can be large. Throws `Invalid` if there are none, if one is damaged, or if they belong to different bundles.
 */
export async function openBundle(
  paths: readonly string[],
  admit?: (envelope: Envelope) => Promise<unknown>,
): Promise<OpenBundle> {
  await using stack = new AsyncDisposableStack();
  const files = (await Promise.all(paths.map(segmentsIn))).flat();
  if (files.length === 0) throw bundleInvalid(`${paths.join(', ')}: no segment of a bundle is here, such as 0001.tar`);
  if (files.length > maxOpen)
    throw bundleInvalid(`these are ${files.length} segments; import at most ${maxOpen} in one go`);
  let first: Pick<OpenBundle, 'id' | 'list' | 'envelope'> | undefined;
  const members = new Map<string, { tar: OpenTar; member: TarMember }>();
  let names = 0;
  for (const file of files) {
    const tar = stack.use(await openTar(file, names).catch((error: unknown) => unreadable(file, error)));
    ({ names } = tar);
    const envelope = await statementOf(tar);
    if (!first) await admit?.(envelope);
    const { list: id } = parsedStatement(envelope, file);
    if (first && first.id !== id)
      throw bundleInvalid(`${file} belongs to another bundle than ${files[0]}. Give the segments of one bundle`);
    await checkDigest(tar, listMember(tar), id);
    first ??= { id, envelope, list: await decodeList(linesOf(tar, listMember(tar))) };
    for await (const [name, member] of withPauses(tar.members)) members.set(name, members.get(name) ?? { tar, member });
  }
  const find = (name: string, size: number) => {
    const found = members.get(name);
    return found?.member.size === size ? found : undefined;
  };
  const open: OpenBundle['open'] = async (blob, partElsewhere) => {
    if ('base' in blob) return undefined;
    if ('segment' in blob) {
      const found = find(memberName(blob.digest), blob.size);
      return found && { content: found.tar.content(found.member), place: found.tar.path };
    }
    const contents: (Content & { readonly size: number })[] = [];
    const places: string[] = [];
    for (const part of blob.parts) {
      const found = find(memberName(part.digest, 'parts'), part.size);
      const elsewhere = found ? undefined : partElsewhere?.(part);
      if (!found && !elsewhere) return undefined;
      contents.push(found ? found.tar.content(found.member) : openedLater(part.size, elsewhere!));
      if (found) places.push(found.tar.path);
    }
    return { content: joined(contents), place: places.join(', ') };
  };
  const closing = stack.move();
  return {
    ...first!,
    isPlain: false,
    open,
    lacking: async (blobs) => {
      const lacked = new Set<number>();
      for await (const blob of withPauses(blobs)) {
        if ('segment' in blob && !find(memberName(blob.digest), blob.size)) lacked.add(blob.segment);
        if ('parts' in blob)
          for (const { digest, size, segment } of blob.parts)
            if (!find(memberName(digest, 'parts'), size)) lacked.add(segment);
      }
      return [...lacked].toSorted((one, other) => one - other);
    },
    [Symbol.asyncDispose]: () => closing.disposeAsync(),
  };
}

/** A bundle without a signature, of entries whose content `open` reads. `closing` closes what was opened for it. */
export function bundleOf(
  { source, now, blobs, entries }: { source: string; now: number } & Pick<BundleList, 'blobs' | 'entries'>,
  open: (digest: Digest) => ReturnType<OpenBundle['open']>,
  closing: AsyncDisposableStack,
): OpenBundle {
  const bytes = blobs.reduce((sum, { size }) => sum + size, 0);
  const header = {
    format: 'entrepot-bundle' as const,
    version: 1 as const,
    source,
    audience: null,
    created_at: now,
    sequence: 0,
    expires_at: null,
    against: null,
    segments: 1,
    blob_count: blobs.length,
    entry_count: entries.length,
    bytes,
    policy: null,
  };
  return {
    id: digestOf(JSON.stringify([now, entries.map(({ name, reference, digest }) => [name, reference, digest])])),
    list: { header, blobs, entries },
    envelope: { payload: Buffer.alloc(0), signatures: [] },
    isPlain: true,
    open: ({ digest }) => open(digest),
    lacking: () => Promise.resolve([]),
    [Symbol.asyncDispose]: () => closing.disposeAsync(),
  };
}

async function segmentsIn(path: string): Promise<string[]> {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    throw bundleInvalid(`${path} cannot be read: ${error.message}`, error);
  });
  if (!found.isDirectory()) return [path];
  const names = await readdir(path);
  return names
    .filter((name) => /^\d{4}\.tar$/.test(name))
    .toSorted()
    .map((name) => join(path, name));
}

async function statementOf(tar: OpenTar): Promise<Envelope> {
  const member = tar.members.get(statementName);
  if (!member || member.size > maxEnvelope) throw noSegment(tar.path);
  const bytes = await readAll(tar.content(member), maxEnvelope).catch((error: unknown) => unreadable(tar.path, error));
  return readEnvelope(statementType, bytes.toString(), tar.path);
}

function parsedStatement({ payload }: Envelope, path: string): { list: Digest } {
  try {
    return statementSchema.parse(JSON.parse(payload.toString()));
  } catch (error) {
    throw bundleInvalid(`${path}: the statement that is signed cannot be read`, error);
  }
}

function listMember(tar: OpenTar): TarMember {
  const member = tar.members.get(listName);
  if (!member || member.size > maxList) throw noSegment(tar.path);
  return member;
}

function noSegment(path: string): Error {
  return bundleInvalid(`${path} is no segment of a bundle of Entrepot`);
}

async function checkDigest(tar: OpenTar, member: TarMember, expected: Digest): Promise<void> {
  const digest = await digestOfContent(tar.content(member)).catch((error: unknown) => unreadable(tar.path, error));
  if (digest !== expected)
    throw bundleInvalid(`${tar.path}: ${listName} was altered after it was signed, or is damaged`);
}

async function* linesOf(tar: OpenTar, member: TarMember): AsyncGenerator<string> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const piece of piecesOf(tar.content(member))) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split('\n');
    rest = lines.pop()!;
    // The reader refuses it.
    if (rest.length > 2 * maxListLine) break;
    yield* lines;
  }
  if (rest !== '') yield rest;
}

/** Content that is opened when it is read first. */
function openedLater(size: number, open: () => Promise<Content>): Content & { readonly size: number } {
  let content: Promise<Content> | undefined;
  return {
    size,
    read: async (target, position) => (await (content ??= open())).read(target, position),
    close: () =>
      void content?.then(
        (each) => each.close(),
        () => undefined,
      ),
  };
}

/** Contents one after another. */
function joined(contents: readonly (Content & { readonly size: number })[]): Content & { readonly size: number } {
  return {
    size: contents.reduce((sum, { size }) => sum + size, 0),
    read: async (target, position) => {
      let start = 0;
      for (const each of contents) {
        if (position < start + each.size)
          return partOf(each, position - start, each.size - (position - start)).read(target, 0);
        start += each.size;
      }
      return 0;
    },
    close: () => {
      for (const each of contents) each.close();
    },
  };
}

/** The same pieces; tells a failure to read them, which is none of the disk that they are written to. */
export async function* noting(pieces: AsyncIterable<Buffer>, failed: (error: unknown) => void): AsyncGenerator<Buffer> {
  try {
    yield* pieces;
  } catch (error) {
    failed(error);
    throw error;
  }
}

/** For `catch`: names the file of a medium that cannot be read. */
export function unreadable(path: string, error: unknown): never {
  if (!(error instanceof Error && 'syscall' in error)) throw error;
  throw bundleInvalid(
    `${path} cannot be read: ${error.message}. What was read before stays; run the same command again with a good copy`,
    error,
  );
}
