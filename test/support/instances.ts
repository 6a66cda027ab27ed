import { writeFile } from 'node:fs/promises';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { temporaryDatabase } from './databases.ts';
import { folderUntilEnd } from './folder.ts';
import { MemoryDriver } from './memory-driver.ts';
import { redisUrl } from './processes/services.ts';
import { startTestServer, type TestServer } from './server.ts';

// Instances with one database and one storage, each with a data folder of its own.

export type StartInstance = (
  settings?: Record<string, unknown>,
  surroundings?: Parameters<typeof startTestServer>[2],
) => Promise<TestServer>;

export const internalSecret = 'the secret of the instances of a test';

/** The setting `server.internal` with a free port. */
export async function internalOf(t: ExecutionContext, secret = internalSecret): Promise<Record<string, unknown>> {
  const secretFile = join(await folderUntilEnd(t), 'internal-secret');
  await writeFile(secretFile, `${secret}\n`);
  return { host: '127.0.0.1', port: 0, secretFile };
}

/** Starts instances in this process: on MariaDB with Redis, or on one SQLite file, which is faster. */
export async function instancesOf(t: ExecutionContext, dialect: 'sqlite' | 'mysql' = 'sqlite'): Promise<StartInstance> {
  const shared = {
    database: { url: await temporaryDatabase(t, dialect) },
    ...(dialect === 'mysql' && { redis: { url: redisUrl() } }),
    server: { internal: await internalOf(t) },
  };
  const driver = new MemoryDriver();
  let count = 0;
  return (settings = {}, surroundings = {}) => {
    count += 1;
    const options = { driver, instanceName: `host/${count}`, ...surroundings };
    return startTestServer(t, { ...shared, ...settings }, options);
  };
}

/** The names of the staged files of an instance. */
export function stagedAt({ data }: TestServer): Promise<string[]> {
  return readdir(join(data, 'staging'));
}
