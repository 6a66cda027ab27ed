import { deepEqual } from 'node:assert/strict';
import { Accounts } from '../../../src/accounts/accounts.ts';
import { openDatabase, type Database, type Dialect, type Row, type Value } from '../../../src/database/database.ts';
import { migrate } from '../../../src/database/migrate.ts';
import { packageKey } from '../../../src/nuget/hosted/packages.ts';
import type { Bench, Place } from '../bench.ts';
import { pushImage, pushPackage } from '../content.ts';
import type { Entrepot } from '../peers.ts';
import { openBulk, type Bulk } from './bulk.ts';
import { fillPackages, fillTags } from './fill.ts';
import { makePackages, rowsOf } from './packages.ts';
import { makeImages, repositoryRow, rowsOfImage } from './tags.ts';

/** Content that is really pushed to every store, so that it can be pulled completely. */
export const hot = {
  id: 'Hot.JsonClient',
  repository: 'hot/app',
  tag: 'v1',
  nuspec: {
    title: 'Hot JSON client',
    authors: 'Somebody, Somebody Else',
    description: 'A client for what is asked for most. It is used by everybody.',
    tags: 'hot json client',
    projectUrl: 'https://example.test/hot',
    dependencyGroups: [{ targetFramework: 'net8.0', dependencies: [{ id: 'Contoso.Core', version: '1.0.0' }] }],
  },
  versions: ['0.9.0-beta', '0.9.0-rc.1', ...Array.from({ length: 8 }, (_, patch) => `1.0.${patch}`)],
  downloads: 0,
};

const stores = new Map<string, Promise<Place>>();

/**
 * A place with `count` packages, with `average` versions each if it is given, and `count` tags, created once per run. All except the pushed ones are written directly to
 * the database, without their files. Throws if these rows differ from the rows that a push writes.
 */
export function storeOf(
  bench: Bench,
  count: number,
  dialect: Dialect = bench.dialect,
  average?: number,
): Promise<Place> {
  const name = `store-${count}-${dialect}${average === undefined ? '' : `-${average}`}`;
  const store = stores.get(name) ?? makeStore(bench, name, count, dialect, average);
  stores.set(name, store);
  return store;
}

async function makeStore(
  bench: Bench,
  name: string,
  count: number,
  dialect: Dialect,
  average: number | undefined,
): Promise<Place> {
  const place = await bench.place(name, dialect);
  await fillPlace(bench, place, async ({ bulk, database, accountId }) => {
    await fillPackages(bulk, accountId, makePackages(count - 1, average));
    await fillTags(bulk, accountId, makeImages(count - 1));
    const server = await bench.serve(place);
    await pushHot(server, database, accountId);
    await server.stop();
  });
  return place;
}

/** What fills an empty store: its database, and its default account. */
interface Filling {
  bulk: Bulk;
  database: Database;
  accountId: number;
}

/** Prepares the database of an empty place for rows without pushes, and lets `fill` write them. */
export async function fillPlace(bench: Bench, place: Place, fill: (filling: Filling) => Promise<void>): Promise<void> {
  const database = await openDatabase(place.databaseUrl);
  const bulk = openBulk(place.databaseUrl);
  try {
    await migrate(database);
    // A start refuses rows without any file, unless the database and the storage were paired before.
    await (await bench.serve(place)).stop();
    const { account } = await new Accounts(database, Date.now).ensureDefault();
    await fill({ bulk, database, accountId: account.id });
  } finally {
    await bulk.close();
    await database.close();
  }
}

/** Pushes the content of every store, and compares the rows with the generated rows. */
async function pushHot(server: Entrepot, database: Database, accountId: number): Promise<void> {
  for (const version of hot.versions) {
    await pushPackage(server, { id: hot.id, ...hot.nuspec, version, payloadBytes: 20_000 });
  }
  const image = { ...hot, ...(await pushImage(server, hot.repository)) };
  const key = async (query: string, value: Value) => (await database.get<{ id: number }>(query, [value]))!.id;
  const packageRow = await key('SELECT id FROM packages WHERE package_key = ?', packageKey(hot.id));
  const firstVersion = await key('SELECT MIN(id) AS id FROM package_versions WHERE package_row = ?', packageRow);
  const repository = await key('SELECT id FROM repositories WHERE name = ?', hot.repository);
  const manifest = await key('SELECT id FROM manifests WHERE repository_id = ?', repository);
  const now = Date.now();
  const countsOfHot = { tag_count: 1, manifest_count: 1, size_bytes: 0 };
  const ofPackage = rowsOf(hot, { accountId, package: packageRow, firstVersion, now });
  const ofImage = rowsOfImage(image, { repository, id: manifest, now });
  for (const [table, where, id, made] of [
    ['packages', 'id', packageRow, ofPackage.packages],
    ['package_versions', 'package_row', packageRow, ofPackage.package_versions],
    ['package_terms', 'package_row', packageRow, ofPackage.package_terms],
    ['package_frameworks', 'package_row', packageRow, ofPackage.package_frameworks],
    ['package_dependencies', 'package_row', packageRow, ofPackage.package_dependencies],
    ['repositories', 'id', repository, [repositoryRow(hot.repository, { accountId, repository, now }, countsOfHot)]],
    ['manifests', 'id', manifest, ofImage.manifests],
    ['tags', 'repository_id', repository, ofImage.tags],
    ['repository_blobs', 'repository_id', repository, ofImage.repository_blobs],
    ['manifest_references', 'manifest_id', manifest, ofImage.manifest_references],
  ] as const) {
    const pushed = await database.select(`SELECT * FROM ${table} WHERE ${where} = ?`, [id]);
    deepEqual(comparable(pushed), comparable(made), `a push writes other rows into ${table}`);
  }
}

/** Sorted rows, without times and without values that only a file or an upload has. */
function comparable(rows: readonly Row[]): Row[] {
  const own = /_at$|^sha512$|^size_bytes$|^nu(?:pkg|spec)_digest$|^upload_id$/;
  return rows
    .map((row) => Object.fromEntries(Object.entries(row).filter(([column]) => !own.test(column))))
    .sort((a, b) => (sortable(a) < sortable(b) ? -1 : 1));
}

function sortable(row: Row): string {
  return `${row['id']} ${row['term']} ${row['digest']}`;
}
