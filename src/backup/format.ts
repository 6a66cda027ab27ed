import { z } from 'zod';
import { algorithmOf, digestOf, hexOf, isDigest, type Digest } from '../runtime/digest.ts';
import { DomainError } from '../runtime/errors.ts';
import type { ColumnKind } from '../database/tables.ts';

// A backup is a tar archive or a folder with these members, in this order:
//
//     rows/<state>/<table>.jsonl        a line with the columns, then a line for each row
//     blobs/sha256/ab/ab12…             content by its digest, in the order of the digests
//     rows/<state>/missing-blobs.txt    digests of blobs whose bytes were missing or damaged when the backup was made
//     manifest                          what the members above must be, and a digest of that
//
// The manifest has the digest of each file of rows; the rows of the table `blobs` have the digest and the size of each blob.

/** Most bytes of one line of rows: a row with two long texts, each character escaped. */
export const maxLine = 128 * 2 ** 20;
/** Most bytes of a manifest. */
export const maxManifest = 2 ** 20;
/** Most blobs of one backup whose bytes may be missing or damaged. */
export const maxProblems = 100_000;

export const manifestName = 'manifest';

const name = z.string().regex(/^[a-z][a-z0-9_]{0,63}$/);
const count = z.int().min(0);
const digest = z.string().refine(isDigest);
const manifestSchema = z.strictObject({
  format: z.literal('entrepot-backup'),
  version: z.literal(1),
  created_at: z.string().max(40),
  /** The version of the program. */
  program: z.string().max(100),
  /** The identity of the database and its storage; a backup of an older version has none. */
  installation: z.uuid().optional(),
  /** Differs between all backups. */
  state: z.uuid(),
  mirrored: z.boolean(),
  migrations: z.array(z.string().max(100)).max(2000),
  tables: z.array(z.strictObject({ name, rows: count, bytes: count, digest })).max(500),
  blobs: z.strictObject({ count, bytes: count }),
  missing: z.strictObject({ count, bytes: count, digest }),
  /** Blobs up to this digest were compared with their digests by the last runs; empty: the next run begins anew. */
  checked_to: z.string().max(200).optional(),
});

export type BackupManifest = z.infer<typeof manifestSchema>;

/** What a file of rows begins with. */
export interface Header {
  columns: { name: string; kind: ColumnKind }[];
}

const headerSchema = z.strictObject({
  columns: z.array(z.strictObject({ name, kind: z.enum(['number', 'text', 'bytes']) })).max(500),
});

/** One member of a backup. */
export interface Member {
  name: string;
  size: number;
  bytes: AsyncIterable<Uint8Array>;
}

export type MemberName =
  | { kind: 'rows'; state: string; table: string }
  | { kind: 'missing'; state: string }
  | { kind: 'blob'; digest: Digest }
  | { kind: 'manifest' };

export function backupInvalid(message: string, cause?: unknown): DomainError {
  return new DomainError('Invalid', message, { cause });
}

export function rowsName(state: string, table: string): string {
  return `rows/${state}/${table}.jsonl`;
}

export function missingName(state: string): string {
  return `rows/${state}/missing-blobs.txt`;
}

export function blobName(digest: Digest): string {
  const hex = hexOf(digest);
  return `blobs/${algorithmOf(digest)}/${hex.slice(0, 2)}/${hex}`;
}

/** What a name in a backup stands for. Throws `Invalid` for any other name, so that no name becomes a path. */
export function parseName(text: string): MemberName {
  if (text === manifestName) return { kind: 'manifest' };
  const rows = /^rows\/([0-9a-f-]{36})\/([a-z][a-z0-9_]{0,63})\.jsonl$/.exec(text);
  if (rows) return { kind: 'rows', state: rows[1]!, table: rows[2]! };
  const missing = /^rows\/([0-9a-f-]{36})\/missing-blobs\.txt$/.exec(text);
  if (missing) return { kind: 'missing', state: missing[1]! };
  const blob = /^blobs\/(sha256|sha512)\/[0-9a-f]{2}\/([0-9a-f]{64,128})$/.exec(text);
  const digest = `${blob?.[1]}:${blob?.[2]}`;
  if (isDigest(digest) && blobName(digest) === text) return { kind: 'blob', digest };
  throw backupInvalid(
    `the backup has a member with the name ${JSON.stringify(text.slice(0, 200))}, which no backup has`,
  );
}

/** The bytes of a manifest: one line, and a line with its digest. */
export function encodeManifest(manifest: BackupManifest): Buffer {
  const line = JSON.stringify(manifest);
  return Buffer.from(`${line}\n${digestOf(line)}\n`);
}

export function decodeManifest(bytes: Buffer): BackupManifest {
  const [line = '', expected, ...rest] = bytes.toString().split('\n');
  if (digestOf(line) !== expected || rest.join('') !== '') throw backupInvalid('the manifest of the backup is damaged');
  const { data, error } = manifestSchema.safeParse(JSON.parse(line));
  if (!data) throw backupInvalid('the manifest of the backup is not one that this version can read', error);
  return data;
}

export function decodeHeader(line: string): Header {
  const { data, error } = headerSchema.safeParse(parseLine(line));
  if (!data) throw backupInvalid('a file of rows in the backup is damaged', error);
  return data;
}

/** A value of a row in JSON. Throws if the value does not fit the kind of its column. */
export function encodeValue(value: unknown, kind: ColumnKind): string | number | null {
  if (value === null) return null;
  if (kind === 'bytes' && value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  if (kind === 'text' && typeof value === 'string') return value;
  if (kind === 'number' && isNumber(value)) return value;
  throw new Error(`a column for ${kind} has a ${typeof value}`);
}

/** The values of a row, from its line. */
export function decodeRow(line: string, { columns }: Header): (string | number | null | Buffer)[] {
  const values = parseLine(line);
  if (!Array.isArray(values) || values.length !== columns.length) throw backupInvalid('a row in the backup is damaged');
  return values.map((value: unknown, index) => {
    const { kind } = columns[index]!;
    if (value === null) return null;
    if (kind === 'bytes' && typeof value === 'string') return Buffer.from(value, 'base64');
    if (kind === 'text' && typeof value === 'string') return value;
    if (kind === 'number' && isNumber(value)) return value;
    throw backupInvalid('a row in the backup is damaged');
  });
}

/** An integer beyond 2^53 is text. */
function isNumber(value: unknown): value is number | string {
  return typeof value === 'number' || (typeof value === 'string' && /^-?\d{1,20}$/.test(value));
}

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw backupInvalid('a line in the backup is damaged', error);
  }
}
