import { algorithmOf, isDigest, startHash, type Digest } from '../runtime/digest.ts';
import type { Paths } from '../storage/files/paths.ts';
import { StagedFile } from '../storage/files/staged-file.ts';
import { decodeManifest, backupInvalid, manifestName, maxManifest, maxProblems, parseName } from './format.ts';
import type { BackupManifest, Member, MemberName } from './format.ts';
import { writePieces } from './pieces.ts';
import { blobsOf, linesOf, type NamedBlob } from './rows.ts';

/** What is wrong with a blob. */
export interface Problem {
  digest: Digest;
  kind: 'missing' | 'damaged';
}

/** What a whole backup has. */
export interface Checked {
  manifest: BackupManifest;
  /** The file of rows of each table. */
  rows: ReadonlyMap<string, StagedFile>;
  /** Blobs that were missing or damaged when the backup was made. */
  known: Problem[];
  /** Blobs that are missing or damaged in the backup. */
  problems: Problem[];
}

/** Gets the bytes of a blob, exactly `size` if they are whole. Resolves to whether they match the digest. */
type TakeBlob = (blob: NamedBlob, bytes: AsyncIterable<Uint8Array>) => Promise<boolean>;

interface ReadOptions {
  /** Whether the rows stay in their files. Otherwise only those of blobs do, which the check itself reads. */
  keepRows: boolean;
  signal?: AbortSignal | undefined;
}

/**
 * Reads a backup and compares all of it with its manifest. Trusts no name, size or digest: `take` gets only blobs that the
 * rows name, in order, each once, with the right size. Rejects if the rows or the manifest are damaged, or with the reason of
 * `signal`. The caller discards the files, also after a failure: they are in `rows` from the start.
 */
export async function readBackup(
  members: AsyncIterable<Member>,
  paths: Paths,
  rows: Map<string, StagedFile>,
  take: TakeBlob,
  { keepRows, signal }: ReadOptions,
): Promise<Checked> {
  const reader = new BackupReader(paths, rows, take, keepRows);
  for await (const member of members) await reader.read({ ...member, bytes: unlessStopped(member.bytes, signal) });
  return reader.end();
}

async function* unlessStopped<T>(pieces: AsyncIterable<T>, signal: AbortSignal | undefined): AsyncGenerator<T> {
  for await (const each of pieces) {
    signal?.throwIfAborted();
    yield each;
  }
}

class BackupReader {
  readonly #paths: Paths;
  readonly #rows: Map<string, StagedFile>;
  readonly #take: TakeBlob;
  readonly #keepRows: boolean;
  readonly #problems = new Map<Digest, Problem['kind']>();
  readonly #states = new Set<string>();
  #named: AsyncIterator<NamedBlob> | undefined;
  #missing: StagedFile | undefined;
  #manifest: BackupManifest | undefined;
  /** Blobs that the rows name, so far. */
  #count = 0;
  #bytes = 0;

  constructor(paths: Paths, rows: Map<string, StagedFile>, take: TakeBlob, keepRows: boolean) {
    this.#paths = paths;
    this.#rows = rows;
    this.#take = take;
    this.#keepRows = keepRows;
  }

  async read(member: Member): Promise<void> {
    const name = parseName(member.name);
    if (this.#manifest) throw backupInvalid(`the backup has ${member.name} after its manifest`);
    if ('state' in name) this.#states.add(name.state);
    await this.#readAs(name, member);
  }

  async #readAs(name: MemberName, { size, bytes, name: text }: Member): Promise<void> {
    switch (name.kind) {
      case 'rows': {
        if (this.#named || this.#rows.has(name.table))
          throw backupInvalid(`${text} is in the backup twice, or too late`);
        const isRead = this.#keepRows || name.table === 'blobs';
        const file = isRead ? await StagedFile.create(this.#paths) : await StagedFile.createInMemory(['sha256']);
        this.#rows.set(name.table, file);
        return writePieces(file, bytes);
      }
      case 'blob':
        return this.#readBlob(name.digest, size, bytes);
      case 'missing': {
        if (this.#missing) throw backupInvalid(`${text} is in the backup twice`);
        const file = await StagedFile.create(this.#paths);
        this.#missing = file;
        this.#rows.set(text, file);
        return writePieces(file, bytes);
      }
      case 'manifest':
        if (size > maxManifest)
          throw backupInvalid(`the ${manifestName} of the backup is larger than ${maxManifest} bytes`);
        this.#manifest = decodeManifest(await bytesOf(bytes));
    }
  }

  async #readBlob(digest: Digest, size: number, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    for (;;) {
      const next = await this.#next();
      if (!next || next.digest > digest)
        throw backupInvalid(`the backup has the blob ${digest} twice, in the wrong place, or without a row`);
      if (next.digest === digest) {
        if (next.size !== size)
          throw backupInvalid(`the blob ${digest} has ${size} bytes in the backup, and not ${next.size}`);
        break;
      }
      this.#note(next.digest, 'missing');
    }
    if (!(await this.#take({ digest, size }, bytes))) this.#note(digest, 'damaged');
  }

  /** The next blob that the rows name. */
  async #next(): Promise<NamedBlob | undefined> {
    const file = this.#rows.get('blobs');
    if (!file) throw backupInvalid('the backup has no rows of blobs before its blobs');
    this.#named ??= blobsOf(await file.open());
    const { done, value } = await this.#named.next();
    if (done) return undefined;
    this.#count += 1;
    this.#bytes += value.size;
    return value;
  }

  #note(digest: Digest, kind: Problem['kind']): void {
    this.#problems.set(digest, kind);
    if (this.#problems.size > maxProblems)
      throw backupInvalid(`more than ${maxProblems} blobs of the backup are missing or damaged`);
  }

  async end(): Promise<Checked> {
    const manifest = this.#manifest;
    if (!manifest) throw backupInvalid('the backup has no manifest: it is truncated, or was not finished');
    for (const state of this.#states)
      if (state !== manifest.state) throw backupInvalid('the backup has files of another backup');
    const missing = this.#missing;
    if (!missing || (await missing.digest()) !== manifest.missing.digest)
      throw backupInvalid('the list of missing blobs in the backup is damaged');
    for (const { name, bytes, digest } of manifest.tables) {
      const file = this.#rows.get(name);
      if (!file) throw backupInvalid(`the backup has no rows of the table ${name}`);
      if (file.size !== bytes || (await file.digest()) !== digest)
        throw backupInvalid(`the rows of the table ${name} are damaged`);
    }
    // The list of missing blobs is among the files.
    if (this.#rows.size !== manifest.tables.length + 1)
      throw backupInvalid('the backup has rows that its manifest does not name');
    for (let next = await this.#next(); next; next = await this.#next()) this.#note(next.digest, 'missing');
    if (this.#count !== manifest.blobs.count || this.#bytes !== manifest.blobs.bytes)
      throw backupInvalid('the blobs of the backup are not those of its manifest');
    const known: Problem[] = [];
    for await (const line of linesOf(await missing.open())) {
      if (!isDigest(line)) throw backupInvalid('the list of missing blobs in the backup is damaged');
      const kind = this.#problems.get(line);
      if (kind) known.push({ digest: line, kind });
      this.#problems.delete(line);
    }
    return {
      manifest,
      rows: this.#rows,
      known,
      problems: [...this.#problems].map(([digest, kind]) => ({ digest, kind })),
    };
  }
}

async function bytesOf(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const each of pieces) all.push(each);
  return Buffer.concat(all);
}

/** For a check without a restore: reads the bytes. */
export async function hashBlob({ digest }: NamedBlob, bytes: AsyncIterable<Uint8Array>): Promise<boolean> {
  const algorithm = algorithmOf(digest);
  const hash = startHash(algorithm);
  for await (const each of bytes) hash.update(each);
  return `${algorithm}:${hash.digest('hex')}` === digest;
}
