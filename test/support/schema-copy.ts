import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { RowDataPacket } from 'mysql2/promise';
import { openDatabase } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { migrations as known } from '../../src/database/migrations/index.ts';
import { version } from '../../src/runtime/package.ts';
import { createDatabase } from './processes/services.ts';

// All migrations take two seconds on MySQL. A run makes them once for each kind of database, and copies the result. The client
// of MySQL has a hundred modules, which tests on SQLite do not load.

/**
 * Writes the schemas of both kinds of database after `migrations` to `folder`. ENTREPOT_TEST_SCHEMAS names the folder with the
 * newest ones to the tests.
 */
export async function writeSchemas(folder: string, server?: string, migrations = known): Promise<void> {
  const migrated = async (url: string) => {
    const database = await openDatabase(url);
    await migrate(database, { version, migrations });
    await database.close();
  };
  await migrated(`sqlite:${join(folder, 'schema.db')}`);
  const database = await createDatabase(server);
  await migrated(database.url);
  await writeFile(join(folder, 'schema.sql'), await statementsOf(database.url));
  await database.drop();
}

/**
 * Gives the empty database at `url` the tables of a schema in `folder`, by default the newest ones. Outside of a run of tests,
 * it then stays empty.
 */
export async function copySchema(url: string, folder = process.env.ENTREPOT_TEST_SCHEMAS): Promise<void> {
  if (folder === undefined) return;
  if (url.startsWith('sqlite:')) return copyFile(join(folder, 'schema.db'), url.slice('sqlite:'.length));
  const statements = await readFile(join(folder, 'schema.sql'), 'utf8');
  const { createConnection } = await import('mysql2/promise');
  const connection = await createConnection({ uri: url, multipleStatements: true, connectTimeout: 60_000 });
  try {
    await connection.query(statements);
  } finally {
    await connection.end();
  }
}

/** The statements that make the tables of a MySQL database, and their rows. */
async function statementsOf(url: string): Promise<string> {
  const { createConnection, escape } = await import('mysql2/promise');
  const connection = await createConnection({ uri: url, connectTimeout: 60_000 });
  try {
    const [tables] = await connection.query<RowDataPacket[]>('SHOW TABLES');
    const statements: string[] = [];
    for (const name of tables.map((row) => String(Object.values(row)[0]))) {
      const [[created]] = await connection.query<RowDataPacket[]>(`SHOW CREATE TABLE ${name}`);
      statements.push(String(created?.['Create Table']));
      const [rows] = await connection.query<RowDataPacket[]>({ sql: `SELECT * FROM ${name}`, rowsAsArray: true });
      if (rows.length > 0) statements.push(`INSERT INTO ${name} VALUES ${escape(rows)}`);
    }
    return statements.join(';\n');
  } finally {
    await connection.end();
  }
}
