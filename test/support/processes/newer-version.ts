import type { Migration } from '../../../src/database/migrate.ts';
import { migrations } from '../../../src/database/migrations/index.ts';

// The command line of a newer version, whose schema this version can use: it has more columns, an index and a table.

(migrations as Migration[]).push(
  { name: '999-1-newer-table', sql: 'CREATE TABLE newer (id {serial}, note {text})' },
  { name: '999-2-newer-accounts', sql: 'ALTER TABLE accounts ADD COLUMN newer_note VARCHAR(100)' },
  { name: '999-3-newer-blobs', sql: 'ALTER TABLE blobs ADD COLUMN newer_note VARCHAR(100)' },
  { name: '999-4-newer-uploads', sql: 'ALTER TABLE uploads ADD COLUMN newer_count INTEGER NOT NULL DEFAULT 0' },
  { name: '999-5-newer-uploads-index', sql: 'CREATE INDEX newer_uploads ON uploads (newer_count)' },
);
const { run } = await import('../../../src/cli/commands.ts');

process.exitCode = await run(process.argv.slice(2), process.env, process);
