import { pagesOf } from '../../runtime/pages.ts';
import type { Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { Throttle } from '../../runtime/incoming.ts';
import { checkStored, refuseOtherFailures } from '../drivers/check-stored.ts';
import type { Driver } from '../drivers/driver.ts';
import type { References } from '../blobs/references.ts';
import { findBlobs, liveBlobs, type BlobRow } from '../blobs/states.ts';

interface VerifyParts {
  database: Database;
  driver: Driver;
  references: References;
}

/** What is wrong in a running place, as a line to show. */
export type ReportLine = (line: string) => void;

interface Verified {
  blobs: number;
  bytes: number;
  problems: number;
}

const page = 200;
/** Bytes that the rate limit counts for each blob besides its content. */
const blobCost = 64 * 1024;
const holdersShown = 5;

/**
 * Checks that every row that needs content has it, and that all stored bytes match their digests, while the installation
 * serves. Changes nothing. `rate` is in bytes per second.
 */
export async function verifyPlace(parts: VerifyParts, rate: number, report: ReportLine): Promise<Verified> {
  const done: Verified = { blobs: 0, bytes: 0, problems: 0 };
  const { database, references } = parts;
  const note = (line: string) => {
    done.problems += 1;
    report(line);
  };
  for (const table of references.needing)
    for await (const digest of withoutBlob(database, table))
      note(`missing ${digest}: ${table} names it, and it has no row`);
  const throttle = new Throttle(rate, undefined);
  for await (const rows of liveBlobs(database, page)) {
    for (const row of rows) {
      await throttle.spend(blobCost);
      const problem = await problemOf(parts, row, throttle).catch(async (error: unknown) => {
        await refuseOtherFailures(parts.driver, error);
        return `unreadable ${row.digest}: it cannot be opened; check its permissions and its disk`;
      });
      done.blobs += 1;
      done.bytes += row.size;
      if (problem === undefined || !(await isUnchanged(database, row))) continue;
      const holders = await database.transaction((tx) => references.holders(tx, row.digest, holdersShown));
      note(`${problem}${holders.length > 0 ? `; needed by ${holders.join(', ')}` : ''}`);
    }
  }
  return done;
}

/** Digests in `table` without a live blob. */
async function* withoutBlob(database: Database, table: string): AsyncGenerator<Digest> {
  const read = (after: string) =>
    database.select<{ digest: Digest }>(
      `SELECT DISTINCT digest FROM ${table} WHERE digest > ? AND NOT EXISTS
       (SELECT 1 FROM blobs WHERE blobs.digest = ${table}.digest AND blobs.state = 'live') ORDER BY digest LIMIT ${page}`,
      [after],
    );
  for await (const rows of pagesOf('', page, read, ({ digest }) => digest)) for (const { digest } of rows) yield digest;
}

async function problemOf(
  { driver }: VerifyParts,
  { digest, size }: BlobRow,
  throttle: Throttle,
): Promise<string | undefined> {
  const stored = await driver.stat(digest);
  if (stored && stored.size !== size) return `damaged ${digest}: it has ${stored.size} bytes, and not ${size}`;
  const state = stored ? await checkStored(driver, { digest, size }, { throttle }) : 'missing';
  if (state === 'sound') return undefined;
  if (state === 'missing') return `missing ${digest}: ${size} bytes`;
  const why = state === 'unreadable' ? 'the disk cannot read it' : 'its bytes have another digest';
  return `damaged ${digest}: ${why}`;
}

/** Whether the blob was neither removed nor stored again since its row was read. */
export async function isUnchanged(database: Database, { digest, generation }: BlobRow): Promise<boolean> {
  const [row] = await findBlobs(database, [digest]);
  return row?.state === 'live' && row.generation === generation;
}
