import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { readTables } from '../../src/database/tables.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

for (const dialect of dialects) {
  test(`${dialect}: SECURITY.md says of each table what bounds its rows`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    const text = await readFile(join(import.meta.dirname, '../../SECURITY.md'), 'utf8');
    const [, part = ''] = text.split('\n## Rows\n');
    const lines = [...part.matchAll(/^\| `(\w+)` +\| (\S.*) \|$/gm)].map(([, table]) => table);
    t.deepEqual(
      lines,
      (await readTables(database)).map(({ name }) => name),
    );
  });
}
