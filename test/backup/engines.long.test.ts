import test from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { backUpAndRestore } from './round-trip.ts';

// From SQLite to SQLite: backup.test.ts.
const ways: [from: Dialect, to: Dialect, name: string][] = [
  ['sqlite', 'mysql', 'backup.tar'],
  ['mysql', 'sqlite', 'backup.tar'],
  ['mysql', 'mysql', 'folder'],
];

for (const [from, to, name] of ways)
  test(`${from} to ${to} by ${name}: all that was acknowledged before the backup can be pulled after the restore`, (t) =>
    backUpAndRestore(t, from, to, name));
