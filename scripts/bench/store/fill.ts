import type { Row } from '../../../src/database/database.ts';
import type { Bulk } from './bulk.ts';
import { rowsOf, type MadeFiles, type MadePackage } from './packages.ts';
import { repositoryRow, rowsOfImage, wordRows, type Counts, type MadeImage } from './tags.ts';

/** Packages per batch; a large batch, so that its words can be inserted in the order of the index. */
const chunk = 20_000;

/** Writes generated packages into a database that has none; `write` writes the files of those that have some. */
export async function fillPackages(
  bulk: Bulk,
  accountId: number,
  packages: Iterable<MadePackage>,
  write?: (made: MadePackage) => MadeFiles[] | undefined,
): Promise<void> {
  const now = Date.now();
  let [row, version] = [1, 1];
  let rows: ReturnType<typeof rowsOf>[] = [];
  let versions = 0;
  for (const made of packages) {
    rows.push(rowsOf(made, { accountId, package: row, firstVersion: version, now }, write?.(made)));
    row += 1;
    version += made.versions.length;
    versions += made.versions.length;
    if (versions < 2 * chunk && rows.length < chunk) continue;
    await insertAll(bulk, rows);
    rows = [];
    versions = 0;
  }
  if (rows.length > 0) await insertAll(bulk, rows);
}

/** Writes generated images, which may share blobs, into a database that has none. */
export async function fillTags(bulk: Bulk, accountId: number, images: Iterable<MadeImage>): Promise<void> {
  const now = Date.now();
  const repositories = new Map<string, { repository: number; counts: Counts }>();
  const rows: ReturnType<typeof rowsOfImage>[] = [];
  const seen = new Set<string>();
  const isNew = (key: string) => seen.size < seen.add(key).size;
  for (const image of images) {
    const { repository, counts } = repositories.get(image.repository) ?? {
      repository: repositories.size + 1,
      counts: { tag_count: 0, manifest_count: 0, size_bytes: 0 },
    };
    counts.tag_count += 1;
    counts.manifest_count += 1;
    repositories.set(image.repository, { repository, counts });
    const made = rowsOfImage(image, { repository, id: rows.length + 1, now });
    const linked = image.parts.map(({ digest }) => isNew(`${repository} ${digest}`));
    counts.size_bytes += image.manifest.size;
    for (const [index, { size }] of image.parts.entries()) counts.size_bytes += linked[index] ? size : 0;
    rows.push({
      ...made,
      repository_blobs: made.repository_blobs.filter((_, index) => linked[index]),
      blobs: made.blobs.filter(({ digest }) => isNew(String(digest))),
    });
  }
  await bulk.insert(
    'repositories',
    [...repositories].map(([name, { repository, counts }]) =>
      repositoryRow(name, { accountId, repository, now }, counts),
    ),
  );
  await bulk.insert(
    'repository_words',
    [...repositories.keys()].flatMap((name) => wordRows(name, accountId)),
  );
  await insertAll(bulk, rows);
}

/** Writes the rows of many packages or tags, sorted for the index of each table. */
async function insertAll(bulk: Bulk, all: readonly Record<string, Row[]>[]): Promise<void> {
  const insert = (table: string) => {
    const rows = all.flatMap((each) => each[table]!);
    const column = ['term', 'digest'].find((name) => name in rows[0]!);
    if (column !== undefined) rows.sort((a, b) => (a[column]! < b[column]! ? -1 : 1));
    return bulk.insert(table, rows);
  };
  await Promise.all(Object.keys(all[0]!).map(insert));
}
