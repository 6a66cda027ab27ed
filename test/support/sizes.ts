import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { openDatabase, type Dialect } from '../../src/database/database.ts';
import { timeLimits } from '../../src/database/time-limits.ts';
import { migrations } from '../../src/database/migrations/index.ts';
import type { BucketOptions } from '../../src/storage/drivers/s3/bucket.ts';
import { emptyDatabase } from './databases.ts';
import { folderUntilEnd } from './folder.ts';
import { CommandLine, type Serving } from './processes/command.ts';
import { freePort, redisUrl } from './processes/services.ts';
import { copySchema, writeSchemas } from './schema-copy.ts';
import { until } from './until.ts';

// The combinations of docs/scaling.md, started as users do: `entrepot serve` with the environment.

export interface Size {
  database: 'SQLite' | 'MariaDB';
  redis: 'yes' | 'no';
  storage: 'folder' | 'S3';
  workers: 1 | 2;
  instances: 1 | 2;
}

/** All 32, those with most processes first. */
export function allSizes(): Size[] {
  const sizes: Size[] = [];
  for (const instances of [2, 1] as const)
    for (const workers of [2, 1] as const)
      for (const storage of ['folder', 'S3'] as const)
        for (const redis of ['no', 'yes'] as const)
          for (const database of ['SQLite', 'MariaDB'] as const)
            sizes.push({ database, redis, storage, workers, instances });
  return sizes;
}

/** As in the table of docs/scaling.md. */
export function nameOf({ database, redis, storage, workers, instances }: Size): string {
  return [database, redis, storage, workers, instances].join(' | ');
}

/** The names of the smallest and the largest combination. */
export const ends = ['SQLite | no | folder | 1 | 1', 'MariaDB | yes | S3 | 2 | 2'];

/** The last column of the table in docs/scaling.md by `nameOf`: `allowed`, or the message of the refusal. */
export function documentedSizes(): Map<string, string> {
  const text = readFileSync(join(import.meta.dirname, '../../docs/scaling.md'), 'utf8');
  const rows = text.matchAll(/^\| ((?:SQLite|MariaDB) \| (?:yes|no) \| \w+ \| \d \| \d) \| (.+) \|$/gm);
  return new Map([...rows].map(([, name, start]) => [name!, start!.replace(/^`(.*)`$/, '$1')]));
}

export const firstToken = `first-${randomBytes(20).toString('hex')}`;
/** It is in the database before the upgrade. */
export const olderToken = `older-${randomBytes(20).toString('hex')}`;

const older = migrations.slice(0, -1);
/** Other tests use the processors and the database at the same time. */
const patient = { ...timeLimits, connection: 60_000 };

/** Writes the schemas without the newest migration to a new folder, and resolves to it. */
export async function writeOlderSchemas(t: Pick<ExecutionContext, 'teardown'>): Promise<string> {
  const folder = await folderUntilEnd(t);
  await writeSchemas(folder, undefined, older);
  return folder;
}

/** The instances of one installation whose database had the schema of `older` and a token before the first start. */
export class Installation {
  readonly size: Size;
  readonly #databaseUrl: string;
  /** One for each instance; the same one for those that share a data folder. */
  readonly #commands: readonly CommandLine[];
  readonly #running = new Map<number, Serving>();

  private constructor(size: Size, databaseUrl: string, commands: readonly CommandLine[]) {
    this.size = size;
    this.#databaseUrl = databaseUrl;
    this.#commands = commands;
  }

  /** Starts nothing. A size with S3 needs a bucket. */
  static async create(
    t: ExecutionContext,
    size: Size,
    { schemas, settings, bucket }: { schemas: string; settings: Record<string, string>; bucket?: BucketOptions },
  ): Promise<Installation> {
    const dialect: Dialect = size.database === 'SQLite' ? 'sqlite' : 'mysql';
    const environment = {
      ENTREPOT_BOOTSTRAP_TOKEN: firstToken,
      ENTREPOT_LOG_LEVEL: 'info',
      ENTREPOT_HOST: '127.0.0.1',
      ENTREPOT_WORKERS: `${size.workers}`,
      ...(size.redis === 'yes' && { ENTREPOT_REDIS_URL: redisUrl() }),
      ...(bucket && bucketSettings(bucket)),
      ...(size.instances > 1 && (await clusterSettings(t))),
      ...settings,
    };
    const ownFolders = size.instances > 1 && size.database === 'MariaDB' && size.storage === 'S3';
    const create = (url?: string) =>
      CommandLine.create(t, { ...environment, ...(url !== undefined && { ENTREPOT_DATABASE_URL: url }) });
    const mysql = dialect === 'mysql' ? await emptyDatabase(t, dialect) : undefined;
    const first = await create(mysql);
    const others = Array.from({ length: size.instances - 1 }, () =>
      ownFolders ? create(mysql) : Promise.resolve(first),
    );
    const commands = [first, ...(await Promise.all(others))];
    for (const { data } of commands) await mkdir(data, { recursive: true });
    const url = mysql ?? `sqlite:${join(first.data, 'entrepot.db')}`;
    await copySchema(url, schemas);
    await addToken(url);
    return new Installation(size, url, commands);
  }

  get servers(): Serving[] {
    return [...this.#running].sort(([one], [other]) => one - other).map(([, server]) => server);
  }

  /** Server processes that can answer. */
  get processes(): number {
    return this.#running.size * this.size.workers;
  }

  /** Starts instance number `index`; resolves when all of its workers are ready. */
  async start(index: number): Promise<void> {
    const { workers } = this.size;
    const server = await this.#commands[index]!.serve({ ENTREPOT_PORT: workers > 1 ? `${await freePort()}` : '0' });
    await until(() => server.said().split('"msg":"ready"').length > workers, 300_000);
    this.#running.set(index, server);
  }

  /** The standard error of a start of the first instance, which must end by itself. */
  async refusal(): Promise<string> {
    const { code, stderr } = await this.#commands[0]!.run('serve');
    if (code !== 1) throw new Error(`a refused start ended with ${code}: ${stderr}`);
    return stderr;
  }

  /**
   * Sends SIGTERM to instance number `index`. Throws unless it ends with 0, and has reported no error since its start, except of
   * readiness: on a busy machine its checks end late.
   */
  async stop(index: number): Promise<void> {
    const server = this.#running.get(index)!;
    this.#running.delete(index);
    const { code, stdout, stderr } = await server.stop();
    const lines = stdout.split('\n').filter((line) => /^\{"level":[56]0/.test(line));
    const errors = lines.filter((line) => !line.includes('"msg":"the service is not ready or degraded'));
    if (code !== 0 || stderr !== '' || errors.length > 0)
      throw new Error(`instance ${index} ended with ${code}: ${stderr} ${errors.join('\n')}`);
  }

  /** The names of the migrations that the database does not have. */
  async missingMigrations(): Promise<string[]> {
    const database = await openDatabase(this.#databaseUrl, undefined, patient);
    try {
      const done = new Set(
        (await database.select<{ name: string }>('SELECT name FROM migrations')).map((row) => row.name),
      );
      return migrations.map(({ name }) => name).filter((name) => !done.has(name));
    } finally {
      await database.close();
    }
  }
}

async function addToken(url: string): Promise<void> {
  const database = await openDatabase(url, undefined, patient);
  await database.transaction(async (tx) => {
    const account = await tx.insert('accounts', { name: 'default', created_at: 1 });
    const hash = createHash('sha256').update(olderToken).digest('hex');
    const row = { id: 'older', account_id: account, name: 'older', token_prefix: '', hash, scopes: 'read' };
    await tx.insert('tokens', { ...row, created_at: 1 });
  });
  await database.close();
}

function bucketSettings(bucket: BucketOptions): Record<string, string> {
  return {
    ENTREPOT_STORAGE_DRIVER: 's3',
    ENTREPOT_STORAGE_S3_ENDPOINT: bucket.endpoint!,
    ENTREPOT_STORAGE_S3_REGION: bucket.region,
    ENTREPOT_STORAGE_S3_BUCKET: bucket.bucket,
    ENTREPOT_STORAGE_S3_FORCE_PATH_STYLE: 'true',
    ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: bucket.accessKeyId!,
    ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: bucket.secretAccessKey!,
  };
}

/** What several instances have in common beside the database, Redis and the storage. */
async function clusterSettings(t: ExecutionContext): Promise<Record<string, string>> {
  const folder = await folderUntilEnd(t);
  const [internal, secrets] = [join(folder, 'internal-secret'), join(folder, 'secret-key')];
  await writeFile(internal, 'the secret of the instances of a test\n');
  await writeFile(secrets, `${randomBytes(32).toString('base64')}\n`);
  return {
    ENTREPOT_INTERNAL_HOST: '127.0.0.1',
    ENTREPOT_INTERNAL_PORT: '0',
    ENTREPOT_INTERNAL_SECRET_FILE: internal,
    ENTREPOT_SECRET_KEY_FILE: secrets,
    ENTREPOT_BASE_URL: 'http://entrepot.test',
  };
}
