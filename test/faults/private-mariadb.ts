import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { ownMariadb, type OwnMariadb } from '../support/processes/mariadb.ts';
import { createDatabase } from '../support/processes/services.ts';
import type { Teardown } from './teardown.ts';

// One MariaDB for all faults that stop or freeze it, because to create one takes seconds.

let started: Promise<{ mariadb: OwnMariadb; folder: string }> | undefined;

/** The private MariaDB, which is started at the first call, and a new database in it. `t` makes it work again. */
export async function privateMariadb(t: Teardown): Promise<{ mariadb: OwnMariadb; databaseUrl: string }> {
  started ??= start();
  const { mariadb } = await started;
  const { url } = await createDatabase(mariadb.url);
  t.teardown(async () => {
    mariadb.thaw();
    await mariadb.start();
  });
  return { mariadb, databaseUrl: url };
}

/** Ends it, if it was started, and removes its files. */
export async function stopMariadb(): Promise<void> {
  if (!started) return;
  const { mariadb, folder } = await started;
  await mariadb.stop();
  await rm(folder, { recursive: true, force: true });
}

async function start(): Promise<{ mariadb: OwnMariadb; folder: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'entrepot-mariadb-'));
  return { mariadb: await ownMariadb(folder), folder };
}
