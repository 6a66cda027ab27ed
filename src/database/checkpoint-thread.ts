import { DatabaseSync } from 'node:sqlite';
import { workerData } from 'node:worker_threads';

// Copies the log of a SQLite database into its file, and waits for the disk: `workerData` is the path.

const database = new DatabaseSync(workerData as string);
database.exec('PRAGMA wal_checkpoint(PASSIVE)');
database.close();
