import type { Row } from '../../../src/database/database.ts';
import type { Bulk } from './bulk.ts';
import { makePackages, rowsOf } from './packages.ts';
import { makeImages, repositoryRow, rowsOfImage, wordRows, type Counts } from './tags.ts';

/** Packages per batch; a large batch, so that its words can be inserted in the order of the index. */
const chunk = 20_000;

/** Writes `count` generated packages into a database that has none; with `average`, this many versions of each. */
export async function fillPackages(bulk: Bulk, accountId: number, count: number, average?: number): Promise<void> {
  const now = Date.now();
  let [row, version] = [1, 1];
  let rows: ReturnType<typeof rowsOf>[] = [];
  let versions = 0;
  for (const made of makePackages(count, average)) {
    rows.push(rowsOf(made, { accountId, package: row, firstVersion: version, now }));
    row += 1;
    version += made.versions.length;
    versions += made.versions.length;
    if (versions < 2 * chunk && rows.length < chunk && row <= count) continue;
    await insertAll(bulk, rows);
    rows = [];
    versions = 0;
  }
}

/** Writes `count` generated tags into a database that has none. */
export async function fillTags(bulk: Bulk, accountId: number, count: number): Promise<void> {
  const now = Date.now();
  const repositories = new Map<string, { repository: number; counts: Counts }>();
  const rows: ReturnType<typeof rowsOfImage>[] = [];
  for (const image of makeImages(count)) {
    const { repository, counts } = repositories.get(image.repository) ?? {
      repository: repositories.size + 1,
      counts: { tag_count: 0, manifest_count: 0, size_bytes: 0 },
    };
    counts.tag_count += 1;
    counts.manifest_count += 1;
    for (const { size } of [image.manifest, ...image.parts]) counts.size_bytes += size;
    repositories.set(image.repository, { repository, counts });
    rows.push(rowsOfImage(image, { repository, id: rows.length + 1, now }));
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
