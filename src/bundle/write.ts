import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { algorithmOf, digestSoFar, startHash, type Digest } from '../runtime/digest.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { contentDamaged, piecesOf, readAll, type Content } from '../storage/files/content.ts';
import type { BlobStore } from '../storage/blobs/blob-store.ts';
import { syncPath } from '../storage/files/durable.ts';
import { openTar, TarWriter } from '../storage/files/tar.ts';
import {
  bundleInvalid,
  encodeList,
  listName,
  memberName,
  segmentName,
  statementName,
  type BundleList,
} from './format.ts';
import type { SigningKey } from '../runtime/dsse.ts';
import { seal } from './keys.ts';
import { layoutOf } from './layout.ts';
import { Pieces } from './pieces.ts';

/** The type of the payload that is signed: the digest of the list. */
export const statementType = 'application/vnd.entrepot.bundle.v1+json';
/** Most bytes of a statement with its signatures. */
export const maxEnvelope = 65_536;
/** The list of a bundle that is not complete, so that another attempt goes on. */
const planName = 'bundle.json.part';

/** A list, the bytes in which it is written, and their digest. */
export interface EncodedList {
  list: BundleList;
  size: number;
  pieces: readonly Buffer[];
  digest: Digest;
}

/** The bytes of a list. */
export async function encoded(list: BundleList): Promise<EncodedList> {
  const text = new Pieces();
  for await (const piece of withPauses(encodeList(list))) text.add(piece);
  const { size, pieces } = text.end();
  return { list, size, pieces, digest: await digestOfPieces(pieces) };
}

/** The digest of bytes in pieces. */
export async function digestOfPieces(pieces: Iterable<Buffer>): Promise<Digest> {
  const hash = startHash('sha256');
  for await (const piece of withPauses(pieces)) hash.update(piece);
  return digestSoFar(hash, 'sha256');
}

/**
 * The folder of a new bundle. Throws `Invalid` if it has other files. Resolves to the bytes of the list that an interrupted attempt
 * has begun to write there.
 */
export async function prepareFolder(folder: string): Promise<Buffer | undefined> {
  await mkdir(folder, { recursive: true });
  const names = await readdir(folder);
  const planned = names.includes(planName) ? await readFile(join(folder, planName)) : undefined;
  const own = new Set([planName, newName(planName)]);
  const others = names.filter((name) => !own.has(name) && !(planned && /^\d{4}\.tar(?:\.part)?$/.test(name)));
  if (others.length > 0)
    throw bundleInvalid(`${folder} is not empty: it has ${others[0]}. Name a new folder for the bundle`);
  return planned;
}

/**
 * Writes the segments of a bundle into a folder that `prepareFolder` has accepted. Each has its name when it is complete and
 * durable; those that an interrupted attempt has completed stay, unless it had another key. Throws `ContentDamaged` if stored bytes are not those of their digest.
 */
export async function writeSegments(
  folder: string,
  { list, size: listSize, pieces: listPieces, digest: listDigest }: EncodedList,
  {
    store,
    key,
    watch,
    signal,
  }: { store: BlobStore; key: SigningKey | undefined; watch: (bytes: number) => void; signal: AbortSignal },
): Promise<void> {
  await writeDurably(join(folder, planName), listPieces);
  const statement = seal(statementType, Buffer.from(JSON.stringify({ list: listDigest })), key);
  const done = new Set(await readdir(folder));
  const progress = { bytes: 0 };
  for (let segment = 1; segment <= list.header.segments; segment += 1) {
    const name = segmentName(segment);
    if (done.has(name) && (await statementIn(join(folder, name))) === statement) continue;
    await using tar = await TarWriter.create(join(folder, name), { mode: 0o644, time: new Date(0), replaced: true });
    const parts: Part[] = [];
    const here = new Set<Digest>();
    const names = new Set<string>();
    for await (const part of partsIn(list, segment)) {
      parts.push(part);
      if (part.from) continue;
      here.add(part.digest);
      names.add(memberName(part.digest));
    }
    await tar.add(statementName, Buffer.byteLength(statement), [Buffer.from(statement)]);
    await tar.add(listName, listSize, listPieces);
    for await (const each of layoutOf(list.entries, (digest) => here.has(digest))) {
      if (names.has(each.name)) continue;
      names.add(each.name);
      await tar.add(each.name, each.size, each.pieces);
    }
    for (const { digest, size, from } of parts) {
      signal.throwIfAborted();
      const whole = from ?? { digest, size, position: 0 };
      const content = await store.open(whole.digest, whole.size, true);
      const pieces = checked(from ? partOf(content, from.position, size) : content, digest, progress, watch);
      await tar.add(memberName(digest, from ? 'parts' : 'blobs'), size, pieces);
    }
    await tar.finish();
  }
  await rm(join(folder, planName), { force: true });
}

/** The signed statement of a segment; undefined if it cannot be read. */
async function statementIn(path: string): Promise<string | undefined> {
  try {
    await using tar = await openTar(path);
    const member = tar.members.get(statementName);
    return member && (await readAll(tar.content(member), maxEnvelope)).toString();
  } catch {
    return undefined;
  }
}

interface Part {
  digest: Digest;
  size: number;
  /** The content that it is a part of, and where it begins there. */
  from?: { digest: Digest; size: number; position: number };
}

/** The content and the parts in a segment, in the order of the digests of all content. */
async function* partsIn({ blobs }: BundleList, segment: number): AsyncGenerator<Part> {
  for await (const blob of withPauses(blobs)) {
    if ('segment' in blob) {
      if (blob.segment === segment) yield { digest: blob.digest, size: blob.size };
    } else if ('parts' in blob) {
      let position = 0;
      for (const { digest, size, segment: place } of blob.parts) {
        if (place === segment) yield { digest, size, from: { digest: blob.digest, size: blob.size, position } };
        position += size;
      }
    }
  }
}

/** A part of content. Closing it closes the content. */
export function partOf(content: Content, start: number, size: number): Content & { readonly size: number } {
  return {
    size,
    read: (target, position) =>
      content.read(target.subarray(0, Math.max(0, Math.min(target.length, size - position))), start + position),
    close: () => content.close(),
  };
}

async function* checked(content: Content, digest: Digest, progress: { bytes: number }, watch: (bytes: number) => void) {
  const algorithm = algorithmOf(digest);
  const hash = startHash(algorithm);
  for await (const piece of piecesOf(content)) {
    hash.update(piece);
    watch((progress.bytes += piece.length));
    yield piece;
  }
  if (digestSoFar(hash, algorithm) !== digest) throw contentDamaged(digest);
}

/** The name of a file until it is complete. A process that was killed leaves it, and the next one writes it anew. */
function newName(path: string): string {
  return `${path}.new`;
}

/** Writes a file so that it is complete and durable under its name. What could not be written leaves nothing. */
export async function writeDurably(path: string, bytes: readonly Buffer[]): Promise<void> {
  const part = newName(path);
  try {
    await writeFile(part, bytes, { mode: 0o644 });
    await syncPath(part);
    await rename(part, path);
  } catch (error) {
    await rm(part, { force: true }).catch(() => undefined);
    throw error;
  }
  await syncPath(dirname(path));
}
