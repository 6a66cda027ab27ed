import { readFile, stat } from 'node:fs/promises';
import { z } from 'zod';
import type { Database } from '../database/database.ts';
import { countOn, storedDigests } from '../mirror/store/counted-on.ts';
import { isDigest, type Digest } from '../runtime/digest.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { installationIdentity } from '../storage/upkeep/identity.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { recordEvent } from '../events/record.ts';
import { bundleEvent } from './bundles.ts';
import { DigestSet, HeldDigests } from './digest-set.ts';
import { hostedEntries, type HostedParts, type HostedSelection } from './hosted.ts';
import { bundleInvalid } from './format.ts';
import type { SigningKey } from '../runtime/dsse.ts';
import { readEnvelope, seal } from './keys.ts';
import { Pieces } from './pieces.ts';
import type { TrustedKey, TrustedKeys } from './trust.ts';
import { replacingWriter, type WriteBytes } from './replacing.ts';
import { digestOfPieces } from './write.ts';

// A receipt says what an installation has, so that the next bundle for it has only what is new. Its lines: an envelope with a
// signed statement, a header, and a digest for each content.

const receiptType = 'application/vnd.entrepot.receipt.v1+json';
/** Most bytes of a receipt. */
const maxBytes = 64 * 2 ** 20;
/** Bytes of a line that are read, and bytes that are hashed in one step. */
const maxLine = 64 * 1024;
const pieceBytes = 2 ** 20;

const statementSchema = z.object({ receipt: z.string().refine(isDigest) });
const headerSchema = z.object({
  format: z.literal('entrepot-receipt'),
  version: z.literal(1),
  installation: z.uuid(),
  created_at: z.int().min(0),
  digests: z.int().min(0),
  /** How many of the last lines are of which account. Absent without any, and in receipts of older versions. */
  hosted: z.array(z.object({ account: z.string().max(100), digests: z.int().min(0) })).optional(),
});

/** What a receipt says. */
export interface Receipt {
  /** The digest of its content. */
  id: Digest;
  /** The installation that wrote it. */
  installation: string;
  /** Milliseconds since 1970 UTC. */
  createdAt: number;
  digests: HeldDigests;
  /** The key that signed it; undefined without a signature. */
  key: TrustedKey | undefined;
}

interface ReceiptParts extends HostedParts {
  database: Database;
  upstreams: readonly Upstream[];
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

/** A receipt that was written. */
interface WrittenReceipt {
  /** The digest of its content. */
  id: Digest;
  /** How many digests it has. */
  digests: number;
  /** Bytes of its file. */
  size: number;
}

/** As `replacingWriter`, which may replace an earlier receipt. */
export function receiptWriter(file: string): Promise<WriteBytes> {
  const isReceipt = (line: string) => {
    try {
      readEnvelope(receiptType, line, file);
      return true;
    } catch {
      return false;
    }
  };
  return replacingWriter(file, 'receipt', isReceipt);
}

/**
 * Writes a receipt with `write`, with the hosted content that is selected. The mirrored content that it names is kept from eviction until
 * the next receipt.
 */
export async function writeReceipt(
  parts: ReceiptParts,
  write: WriteBytes,
  { key, hosted = [] }: { key: SigningKey | undefined; hosted?: readonly HostedSelection[] | undefined },
): Promise<WrittenReceipt> {
  const { database, upstreams, now } = parts;
  const ids = upstreams.map(({ id }) => id);
  const found: string[] = [];
  const kept = new DigestSet();
  for await (const digest of storedDigests(database, ids)) {
    found.push(digest);
    kept.add(digest);
  }
  await countOn(database, found);
  const digests: string[] = [];
  const mirrored = new DigestSet();
  // An eviction may have dropped some of it before it was kept.
  for await (const digest of storedDigests(database, ids)) {
    if (!kept.has(digest)) continue;
    digests.push(digest);
    mirrored.add(digest);
  }
  const own = new Map<string, Set<string>>();
  for await (const { digest, account } of hostedEntries(parts, hosted)) {
    const some = own.get(account!) ?? new Set();
    own.set(account!, some);
    if (!mirrored.has(digest)) some.add(digest);
  }
  for (const some of own.values()) for await (const digest of withPauses(some)) digests.push(digest);
  const accounts = [...own].map(([account, { size }]) => ({ account, digests: size }));
  const header = {
    format: 'entrepot-receipt',
    version: 1,
    installation: await installationIdentity(database),
    created_at: now(),
    digests: digests.length,
    ...(accounts.length > 0 && { hosted: accounts }),
  };
  const body = new Pieces();
  body.add(`${JSON.stringify(header)}\n`);
  for await (const digest of withPauses(digests)) body.add(`${digest}\n`);
  const { size, pieces } = body.end();
  if (size > maxBytes) throw bundleInvalid(`the receipt would be larger than ${maxBytes / 2 ** 20} MiB`);
  const id = await digestOfPieces(pieces);
  const envelope = Buffer.from(seal(receiptType, Buffer.from(JSON.stringify({ receipt: id })), key));
  await write([envelope, ...pieces]);
  const event = bundleEvent('bundle.receipt', id, { digests: digests.length, key: key?.id ?? null });
  await database.transaction((tx) => recordEvent(tx, event, now()));
  return { id, digests: digests.length, size: envelope.length + size };
}

/** Reads a receipt. Throws `Invalid` if it is none or was altered, and `Denied` if its key is not trusted. */
export async function readReceipt(trust: TrustedKeys, file: string): Promise<Receipt> {
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    throw bundleInvalid(`${file} cannot be read: ${error.message}`, error);
  });
  if (!found.isFile() || found.size > maxBytes) throw bundleInvalid(`${file} is no receipt`);
  const bytes = await readFile(file);
  const end = bytes.indexOf(10) + 1;
  const envelope = readEnvelope(receiptType, bytes.toString('utf8', 0, Math.min(end, maxLine)), file);
  const body = bytes.subarray(end);
  const id = await digestOfPieces(piecesIn(body));
  const stated = statementSchema.safeParse(jsonOf(envelope.payload.toString())).data;
  if (stated?.receipt !== id) throw bundleInvalid(`${file} was altered after it was written, or is damaged`);
  const key = await trust.signerOf(receiptType, envelope, 'receipts', `The receipt ${file}`);
  const unreadable = () => bundleInvalid(`${file} is no receipt that this version can read`);
  let header: z.output<typeof headerSchema> | undefined;
  let lines = 0;
  let owners: { account: string | undefined; end: number }[] = [];
  const digests = new HeldDigests();
  for await (const line of withPauses(linesIn(body))) {
    if (header === undefined) {
      header = headerSchema.safeParse(jsonOf(line)).data;
      if (!header) throw unreadable();
      owners = ownersOf(header);
      continue;
    }
    if (!isDigest(line)) throw bundleInvalid(`${file} has a line that is no digest`);
    lines += 1;
    while (owners.length > 1 && lines > owners[0]!.end) owners.shift();
    digests.add(line, owners[0]!.account);
  }
  if (!header || header.digests !== lines) throw unreadable();
  return { id, installation: header.installation, createdAt: header.created_at, digests, key };
}

/** Who has the digests, and with which line those of each end. */
function ownersOf({ digests, hosted = [] }: z.output<typeof headerSchema>) {
  const mirrored = hosted.reduce((rest, each) => rest - each.digests, digests);
  let end = mirrored;
  const accounts = hosted.map(({ account, digests: count }) => ({ account, end: (end += count) }));
  return [{ account: undefined, end: mirrored }, ...accounts];
}

function* piecesIn(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes);
}

function* linesIn(bytes: Buffer): Generator<string> {
  for (let at = 0; at < bytes.length;) {
    const found = bytes.indexOf(10, at);
    const end = found === -1 ? bytes.length : found;
    yield bytes.toString('utf8', at, Math.min(end, at + maxLine));
    at = end + 1;
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
