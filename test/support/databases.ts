import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { openDatabase, type Database, type Dialect } from '../../src/database/database.ts';
import { createDatabase } from './services.ts';
import { folderUntilEnd } from './folder.ts';

type Test = Pick<ExecutionContext, 'teardown'>;

/** Both databases, for suites that run on each. */
export const dialects: readonly Dialect[] = ['sqlite', 'mysql'];

/** The URL of a fresh, empty database; it is removed when the test ends. */
export async function temporaryDatabase(t: Test, dialect: Dialect): Promise<string> {
  if (dialect === 'mysql') {
    const database = await createDatabase();
    t.teardown(() => database.drop());
    return database.url;
  }
  const folder = await folderUntilEnd(t);
  return `sqlite:${join(folder, 'entrepot.db')}`;
}

/** Opens `url` until the test ends. */
export async function openUntilEnd(t: Test, url: string): Promise<Database> {
  const database = await openDatabase(url);
  t.teardown(() => database.close());
  return database;
}
