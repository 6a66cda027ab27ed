import test, { type ExecutionContext } from 'ava';
import { createConnection, type RowDataPacket } from 'mysql2/promise';
import type { Database, Dialect, Value } from '../../../src/database/database.ts';
import { migrate } from '../../../src/database/migrate.ts';
import { parseQuery } from '../../../src/nuget/search/search-query.ts';
import { Search } from '../../../src/nuget/search/search.ts';
import { field, tier, tierWidth } from '../../../src/nuget/format/terms.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

// The work of a search has a bound, however many packages have its words.

const count = 40_000;
const options = { prerelease: false, semVer2: true, skip: 0, take: 20 };
/** Rows that the database reads for one search: MariaDB reads the rows of a limited list a second time. */
const mostReads = 200_000;
/** Each is a word of every id, except the last one, which only the second half of the packages has. */
const words = ['aa', 'bb', 'cc', 'dd', 'ee', 'ff', 'gg', 'zz'];

/** `count` packages with the same words: only the columns that a search reads, made by the database itself. */
async function fill(database: Database): Promise<void> {
  await migrate(database);
  await database.transaction(async (tx) => {
    const digits = Array.from({ length: 10 }, (_, digit) => `SELECT ${digit} AS n`).join(' UNION ALL ');
    const tables = ['a', 'b', 'c', 'd', 'e'].map((name) => `(${digits}) AS ${name}`).join(', ');
    const number = 'a.n * 10000 + b.n * 1000 + c.n * 100 + d.n * 10 + e.n';
    const rows = `SELECT ${number} + 1 AS row_id FROM ${tables} WHERE ${number} < ${count}`;
    const idTerms = words.slice(0, -1).map((word) => `.${word}`);
    await tx.run(
      `INSERT INTO packages (id, account_id, package_key, package_id, version_count, download_count, standing, flags,
         latest_stable2, id_terms, created_at, updated_at)
       SELECT row_id, 1, row_id, row_id, 1, 0, 63, 15, row_id, '${idTerms.join('')}', 1, 1 FROM (${rows}) AS made`,
    );
    await tx.run("UPDATE packages SET id_terms = CONCAT(id_terms, '.zz') WHERE id > ?", [count / 2]);
    for (const word of words) {
      for (const term of [word, `.${word}`]) {
        await tx.run(
          `INSERT INTO package_terms (account_id, term, package_row, standing, fields, flags)
           SELECT 1, ?, id, ?, ?, flags FROM packages WHERE id > ?`,
          [term, tier.id * tierWidth + 63, field.id, word === 'zz' ? count / 2 : 0],
        );
      }
    }
    await tx.run(
      `INSERT INTO package_versions (package_row, version_key, version, full_version, sort_key, listed, prerelease,
         semver2, published_at, size_bytes, sha512, nupkg_digest, nuspec_digest, metadata)
       SELECT id, '1.0.0', '1.0.0', '1.0.0', '1', 1, 0, 0, 1, 1, '', '', '', '{}' FROM packages`,
    );
    await tx.run('INSERT INTO package_frameworks (package_row, family, version) SELECT id, ?, 1000000 FROM packages', [
      'net',
    ]);
  });
}

interface Statement {
  sql: string;
  values: readonly Value[];
}

/** A search whose statements are recorded. */
async function start(t: ExecutionContext, dialect: Dialect) {
  const url = await temporaryDatabase(t, dialect);
  const database = await openUntilEnd(t, url);
  await fill(database);
  const statements: Statement[] = [];
  const record = (sql: string, values: readonly Value[] = []) => void statements.push({ sql, values });
  const recorded = changedDatabase(database, {
    select: (sql, values) => (record(sql, values), database.select(sql, values)),
    get: (sql, values) => (record(sql, values), database.get(sql, values)),
  });
  const search = new Search(recorded);
  const statementsOf = async (q: string, parse: Parameters<typeof parseQuery>[1] = {}, more = {}) => {
    statements.length = 0;
    const found = await search.findIds([{ accountId: 1, only: undefined }], parseQuery(q, parse), {
      ...options,
      ...more,
    });
    return { found, statements: [...statements] };
  };
  return { url, database, statementsOf };
}

const frameworks = new Map([['net', 8000]]);
const searches: [label: string, q: string, parse?: object, more?: object][] = [
  ['no package has all words', words.join(' ')],
  [
    'a hundred words',
    Array.from({ length: 100 }, (_, index) => words[index % 8]! + (index > 7 ? index : '')).join(' '),
  ],
  ['a deep page', 'aa bb', {}, { skip: 3000, take: 1000 }],
  ['fields', words.map((word) => `id:${word}`).join(' ')],
  ['frameworks that no package supports', '', { frameworks }],
  ['words and frameworks', 'aa bb', { frameworks }],
  ['a version that no package has', 'aa version:9.9.9'],
  ['versions that no package has', Array.from({ length: 30 }, (_, index) => `version:${index}.9.9`).join(' ')],
];

test('a search reads a bounded number of rows, whatever it looks for (mysql)', async (t) => {
  const { url, statementsOf } = await start(t, 'mysql');
  const connection = await createConnection(url);
  t.teardown(() => connection.end());
  for (const [label, q, parse, more] of searches) {
    const { statements } = await statementsOf(q, parse, more);
    await connection.query('FLUSH STATUS');
    for (const { sql, values } of statements) await connection.query(sql, [...values]);
    const [rows] = await connection.query<RowDataPacket[]>("SHOW SESSION STATUS LIKE 'Handler_read%'");
    const reads = rows.reduce((sum, row) => sum + Number(row['Value']), 0);
    t.true(reads < mostReads, `${label}: ${reads} rows`);
    t.true(statements.length <= 6, `${label}: ${statements.length} statements`);
  }
});

// The order of the hits depends on it: see `SearchLists.page`.
test('SQLite reads a bounded list row by row, and does not sort or copy it', async (t) => {
  const { database, statementsOf } = await start(t, 'sqlite');
  for (const [label, q, parse, more] of searches) {
    for (const { sql, values } of (await statementsOf(q, parse, more)).statements) {
      const plan = await database.select<{ detail: string }>(`EXPLAIN QUERY PLAN ${sql}`, values);
      const steps = plan.map(({ detail }) => detail);
      t.false(
        steps.some((step) => /MATERIALIZE|SCAN package/.test(step)),
        `${label}: ${steps.join('; ')}`,
      );
    }
  }
});

test('words after the eighth are ignored', async (t) => {
  const { statementsOf } = await start(t, 'sqlite');
  const eight = `${words.slice(0, 7).join(' ')} b`;
  const more = Array.from({ length: 92 }, (_, index) => `x${index}`).join(' ');
  const { found } = await statementsOf(`${eight} ${more}`, {}, { take: 5 });
  t.is(found.data.length, 5);
  t.deepEqual(found, (await statementsOf(eight, {}, { take: 5 })).found);
});
