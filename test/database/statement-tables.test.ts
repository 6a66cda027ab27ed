import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { tablesRead, tableWritten } from '../../src/database/statement-tables.ts';
import { migrations } from '../../src/database/migrations/index.ts';

test('a statement that writes names its table, or none that is sure', (t) => {
  for (const [sql, table] of [
    ['INSERT INTO tags (a) VALUES (?) ON DUPLICATE KEY UPDATE b = VALUES(b)', 'tags'],
    ['insert into Tags\n (a) VALUES (?)', 'tags'],
    ['INSERT INTO history SELECT * FROM tags', 'history'],
    [' UPDATE manifests SET pull_count = 1 WHERE id = (SELECT id FROM repositories)', 'manifests'],
    ['DELETE FROM uploads WHERE id = ?', 'uploads'],
    ['DELETE FROM uploads', 'uploads'],
    ['UPDATE tags t JOIN manifests m ON m.id = t.id SET t.x = m.y', undefined],
    ['UPDATE tags, manifests SET x = y', undefined],
    ['DELETE t FROM tags t JOIN manifests m ON m.id = t.id', undefined],
    ['REPLACE INTO tags (a) VALUES (1)', undefined],
    ['ALTER TABLE tags ADD COLUMN x INTEGER', undefined],
    ['WITH x AS (SELECT 1) DELETE FROM tags', undefined],
  ] as const)
    t.is(tableWritten(sql), table, sql);
});

test('a statement that reads names all its tables, or none', (t) => {
  for (const [sql, tables] of [
    ['SELECT * FROM tags', ['tags']],
    [
      'SELECT * FROM tags WHERE a IN (SELECT b FROM Links l left join blobs ON l.x = blobs.x) ORDER BY a, b',
      ['blobs', 'links', 'tags'],
    ],
    ['SELECT a, b FROM tags GROUP BY a, b', ['tags']],
    ['SELECT 1 FROM tags t JOIN (SELECT x FROM blobs) AS y ON y.x = t.x', ['blobs', 'tags']],
    ['SELECT 1 FROM a UNION SELECT 2 FROM b', ['a', 'b']],
    ['SELECT * FROM tags t, manifests m WHERE t.x = m.x', undefined],
    ['SELECT * FROM tags t JOIN links l ON l.x = t.x, manifests m', undefined],
    ['WITH x AS (SELECT 1) SELECT * FROM tags', undefined],
    ['SELECT 1', undefined],
  ] as const)
    t.deepEqual(tablesRead(sql), tables && [...tables], sql);
});

test('no foreign key and no trigger changes a table that the statement does not name', (t) => {
  for (const { name, sql } of migrations)
    t.notRegex(sql, /\bFOREIGN KEY|\bREFERENCES\b|\bTRIGGER\b|\bCREATE VIEW\b/i, name);
});

test('all writes of the source name their table', (t) => {
  const folder = join(import.meta.dirname, '../../src');
  let found = 0;
  for (const path of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!path.endsWith('.ts') || path.includes('migrations') || path.startsWith('console')) continue;
    const text = readFileSync(join(folder, path), 'utf8');
    for (const [sql] of text.matchAll(/(?<=[`'"])(?:UPDATE|DELETE FROM|INSERT INTO) [a-z_]+ (?:SET|WHERE|\()/g)) {
      found += 1;
      t.truthy(tableWritten(sql), `${path}: ${sql}`);
    }
  }
  t.true(found > 50, `${found} statements`);
});
