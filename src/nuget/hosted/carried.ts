import type { NameSet } from '../../accounts/names.ts';
import { maxHostedMemory, type HostedContents, type HostedEntry } from '../../bundle/hosted-contents.ts';
import { batches } from '../../database/batches.ts';
import { placeholders, type Transaction } from '../../database/database.ts';
import { digestOfContent } from '../../storage/files/content.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { parseDeprecation, type DeprecationInput } from '../format/deprecation.ts';
import { readNupkg } from '../format/nupkg.ts';
import { changeNotices } from './deprecations.ts';
import type { FeedContext } from './feed-context.ts';
import { keyOfVersion, packageKey } from './packages.ts';
import { packageFiles, refuseOther, writeVersion, type EarlierVersion, type PackageFiles } from './publish.ts';
import { readSymbols, writeSymbols, type SymbolsIndex } from './symbol-packages.ts';

/** Versions that one statement reads. */
const page = 500;
/** About the bytes of memory that a PDB of a symbols package takes, without its texts. */
const bytesOfPdb = 300;

interface Row {
  package_key: string;
  version_key: string;
  package_id: string;
  version: string;
  listed: number;
  published_at: number;
  deprecation: string | null;
  size_bytes: number;
  nupkg_digest: Digest;
  snupkg_digest: Digest | null;
  snupkg_size: number | null;
}

/** A version, or the symbols of one, that is ready to be written. */
type Prepared =
  | { kind: 'nupkg'; files: PackageFiles; earlier: EarlierVersion; mirroredFrom: string | undefined }
  | { kind: 'snupkg'; index: SymbolsIndex; digest: Digest };

/** The hosted packages of bundles. `mirroredFrom` tells the upstream that an id is mirrored from. */
export function carriedPackages(
  context: FeedContext,
  mirroredFrom: (accountId: number, id: string) => Promise<string | undefined>,
): HostedContents {
  const { database, blobs, now } = context;
  return {
    entries: (accountId, names) => entriesOf(context, accountId, names),
    among: async (accountId, digests) => {
      const found = new Set<string>();
      for (const some of batches(digests)) {
        const rows = await database.select<{ digest: string }>(
          `SELECT DISTINCT b.digest FROM package_blobs b JOIN package_versions v ON v.id = b.version_row
           JOIN packages p ON p.id = v.package_row WHERE p.account_id = ? AND b.digest IN (${placeholders(some)})`,
          [accountId, ...some],
        );
        for (const { digest } of rows) found.add(digest);
      }
      return found;
    },
    prepare: async (accountId, entries, stage) => {
      const prepared: Prepared[] = [];
      let memory = 0;
      // Packages come before their symbols.
      const sorted = entries.toSorted((one, other) => (one.kind < other.kind ? -1 : one.kind > other.kind ? 1 : 0));
      for (const entry of sorted) {
        await pause();
        const open = () => blobs.open(entry.digest, entry.size);
        if (entry.kind === 'nupkg') {
          const earlier = earlierOf(entry);
          const nupkg = await readNupkg(open, { asciiOnly: true, isPublished: true, verifyAll: false });
          refuseOther(nupkg, earlier);
          const sha512 = await digestOfContent(await open(), 'sha512');
          const files = await packageFiles(nupkg, { nupkg: entry.digest, sha512, size: entry.size }, stage, earlier);
          memory += files.metadataBytes;
          prepared.push({ kind: 'nupkg', files, earlier, mirroredFrom: await mirroredFrom(accountId, entry.name) });
        } else if (entry.kind === 'snupkg') {
          const index = await readSymbols(open);
          memory += index.pdbs.reduce((sum, { path }) => sum + bytesOfPdb + 2 * path.length, 0);
          prepared.push({ kind: 'snupkg', index, digest: entry.digest });
        } else {
          throw new DomainError('Invalid', `the bundle has hosted content of the unknown kind ${entry.kind}`);
        }
        if (memory > maxHostedMemory)
          throw new DomainError('Invalid', 'the bundle has too many hosted packages. Carry them in several bundles');
      }
      return async (tx, { isOlder, from }) => {
        let changed = 0;
        for (const each of prepared) {
          await pause();
          const isNew =
            each.kind === 'nupkg'
              ? await writePackage(tx, accountId, { ...each, earlier: { ...each.earlier, from } }, isOlder, now())
              : await writeNewSymbols(tx, accountId, each, isOlder);
          if (isNew) changed += 1;
        }
        return changed;
      };
    },
  };
}

async function* entriesOf({ database }: FeedContext, accountId: number, names: NameSet): AsyncGenerator<HostedEntry> {
  const among = names.where('p.package_key');
  const read = ([key, version]: readonly [string, string]) =>
    database.select<Row>(
      `SELECT p.package_key, v.version_key, p.package_id, v.version, v.listed, v.published_at, v.deprecation, v.size_bytes,
         v.nupkg_digest, v.snupkg_digest, ${sizeOf('v.snupkg_digest')} AS snupkg_size
       FROM packages p JOIN package_versions v ON v.package_row = p.id
       WHERE p.account_id = ? AND ${among.sql}
       AND (p.package_key > ? OR (p.package_key = ? AND v.version_key > ?))
       ORDER BY p.package_key, v.version_key LIMIT ?`,
      [accountId, ...among.values, key, key, version, page],
    );
  for await (const rows of pagesOf(['', ''] as readonly [string, string], page, read, placeOf)) {
    for (const row of rows) {
      const common = { name: row.package_key, reference: row.version_key, type: 'application/octet-stream', seen: [] };
      const attributes: Record<string, string> = {
        id: row.package_id,
        version: row.version,
        publishedAt: String(row.published_at),
        listed: String(row.listed),
        ...(row.deprecation !== null && { deprecation: row.deprecation }),
      };
      yield { ...common, kind: 'nupkg', digest: row.nupkg_digest, size: row.size_bytes, attributes };
      if (row.snupkg_digest !== null && row.snupkg_size !== null)
        yield { ...common, kind: 'snupkg', digest: row.snupkg_digest, size: row.snupkg_size, attributes: {} };
    }
  }
}

function placeOf(row: Row): readonly [string, string] {
  return [row.package_key, row.version_key];
}

/** What an entry says about its version. Throws `Invalid`. */
function earlierOf({ name, reference, attributes }: HostedEntry): EarlierVersion {
  const { publishedAt = '', listed = '1', deprecation } = attributes;
  const date = /^\d{1,16}$/.test(publishedAt) ? Number(publishedAt) : Number.NaN;
  if (!(date <= 8.64e15))
    throw new DomainError('Invalid', `the bundle does not say when ${name} ${reference} was published`);
  return {
    from: '',
    id: name,
    version: reference,
    publishedAt: date,
    listed: listed !== '0',
    downloads: 0,
    deprecation: deprecation === undefined ? undefined : deprecationOf(name, deprecation),
  };
}

/** Throws `Invalid` for a text that is no deprecation: it comes from another installation. */
function deprecationOf(id: string, text: string) {
  try {
    const { alternatePackage: alternative, ...rest } = JSON.parse(text) as Omit<DeprecationInput, 'alternative'> & {
      alternatePackage?: DeprecationInput['alternative'];
    };
    return parseDeprecation(id, { ...rest, alternative });
  } catch (error) {
    throw new DomainError('Invalid', `the bundle has a wrong deprecation of ${id}`, { cause: error });
  }
}

/** Resolves to whether something changed. */
async function writePackage(
  tx: Transaction,
  accountId: number,
  { files, earlier, mirroredFrom }: Extract<Prepared, { kind: 'nupkg' }>,
  isOlder: boolean,
  now: number,
): Promise<boolean> {
  const { id, version: key, listed, deprecation } = earlier;
  const existing = await tx.get<{ nupkg_digest: Digest }>(
    `SELECT v.nupkg_digest FROM packages p JOIN package_versions v ON v.package_row = p.id AND v.version_key = ?
     WHERE p.account_id = ? AND p.package_key = ?`,
    [key, accountId, id],
  );
  if (!existing) {
    await writeVersion(tx, accountId, files, { isRepair: false, mirroredFrom, earlier }, now);
    return true;
  }
  if (existing.nupkg_digest !== files.digests.nupkg)
    throw new DomainError(
      'Invalid',
      `this account hosts ${files.nuspec.id} ${key} already, with other bytes than the bundle. Nothing was imported: delete one of the two, or make the bundle without it`,
    );
  if (isOlder) return false;
  const change = { accountId, id, keys: [key], after: '', now };
  return (await changeNotices(tx, change, { deprecation, listed })).changed > 0;
}

/** Symbols may be replaced by newer ones. Resolves to whether something changed. */
async function writeNewSymbols(
  tx: Transaction,
  accountId: number,
  { index, digest }: Extract<Prepared, { kind: 'snupkg' }>,
  isOlder: boolean,
): Promise<boolean> {
  const before = await tx.get<{ snupkg_digest: Digest | null }>(
    `SELECT v.snupkg_digest FROM packages p JOIN package_versions v ON v.package_row = p.id AND v.version_key = ?
     WHERE p.account_id = ? AND p.package_key = ?`,
    [keyOfVersion(index.version)!, accountId, packageKey(index.id)],
  );
  const known = before?.snupkg_digest ?? undefined;
  if (known === digest || (isOlder && known !== undefined)) return false;
  await writeSymbols(tx, accountId, index, digest);
  return true;
}
