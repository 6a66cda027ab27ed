import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { open, readFile, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Bucket } from '../../src/storage/drivers/s3/bucket.ts';
import { endWithThisProcess } from '../../test/support/processes/ending.ts';
import { ownMariadb } from '../../test/support/processes/mariadb.ts';
import { startNginx, type Nginx } from '../../test/support/processes/nginx.ts';
import { ownRedis } from '../../test/support/processes/redis.ts';
import { answers, createDatabase, freePort } from '../../test/support/processes/services.ts';
import { startSwift, type Swift } from '../../test/support/processes/swift.ts';
import { until } from '../../test/support/until.ts';

// A cluster on this machine, all on loopback addresses: three instances as processes, with a private MariaDB, Redis and Swift,
// behind nginx with docker/nginx.cluster.conf. Each instance has a data folder of its own.

const command = join(import.meta.dirname, '../../bin/entrepot.js');
/** Milliseconds in which an instance must be ready on a busy machine. */
const startLimit = 60_000;

interface Closing {
  teardown(step: () => unknown): void;
}

export interface Cluster {
  /** nginx. */
  nginx: Nginx;
  instances: readonly Instance[];
  /** Has all scopes. */
  token: string;
}

/** Starts the cluster in `folder`, which the caller removes. `settings` are added to those of each instance. */
export async function startCluster(
  closing: Closing,
  folder: string,
  settings: Record<string, string> = {},
): Promise<Cluster> {
  const [mariadb, redis, swift] = await Promise.all([ownMariadb(folder), ownRedis(closing), requireSwift()]);
  closing.teardown(() => mariadb.stop());
  closing.teardown(() => swift.stop());
  await redis.start();
  const database = await createDatabase(mariadb.url);
  const bucket = 'artifacts';
  const connected = await Bucket.open({ ...swift, bucket, forcePathStyle: true });
  const create = new connected.sdk.CreateBucketCommand({ Bucket: bucket });
  // Swift answers 503 until all its parts have started, also after it has created the bucket.
  await until(() => connected.client.send(create).then(Boolean, saysThatItExists), startLimit);
  connected.close();

  const secret = async (name: string) => {
    const path = join(folder, name);
    await writeFile(path, randomBytes(24).toString('hex'), { mode: 0o600 });
    return path;
  };
  const token = randomBytes(24).toString('hex');
  const common = {
    ENTREPOT_DATABASE_URL: database.url,
    ENTREPOT_REDIS_URL: redis.url,
    ENTREPOT_BOOTSTRAP_TOKEN: token,
    ENTREPOT_SECRET_KEY_FILE: await secret('secret-key'),
    ENTREPOT_INTERNAL_HOST: '127.0.0.1',
    ENTREPOT_INTERNAL_PORT: '0',
    ENTREPOT_INTERNAL_SECRET_FILE: await secret('internal-secret'),
    ENTREPOT_TRUST_PROXY: 'loopback',
    ENTREPOT_STORAGE_DRIVER: 's3',
    ENTREPOT_STORAGE_S3_ENDPOINT: swift.endpoint,
    ENTREPOT_STORAGE_S3_REGION: swift.region,
    ENTREPOT_STORAGE_S3_BUCKET: bucket,
    ENTREPOT_STORAGE_S3_FORCE_PATH_STYLE: 'true',
    ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: swift.accessKeyId,
    ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: swift.secretAccessKey,
    ENTREPOT_LOG_LEVEL: 'warn',
    ...settings,
  };
  const instances: Instance[] = [];
  for (const number of [1, 2, 3]) {
    const instance = new Instance(`instance ${number}`, await freePort(), join(folder, `instance-${number}`), common);
    closing.teardown(() => instance.kill());
    await instance.start();
    instances.push(instance);
  }
  const ports = instances.map(({ port }) => port);
  const nginx = await startNginx(join(folder, 'nginx'), ports, 'nginx.cluster.conf');
  closing.teardown(() => nginx.stop());
  return { nginx, instances, token };
}

function saysThatItExists({ name }: Error): boolean {
  return name.startsWith('BucketAlready');
}

async function requireSwift(): Promise<Swift> {
  const swift = await startSwift();
  if (!swift)
    throw new Error('OpenStack Swift, the S3 server of the cluster, is not installed: see scripts/packages.ts');
  return swift;
}

/** One `entrepot serve`, which can be killed and started again on the same port and data folder. */
export class Instance {
  readonly name: string;
  readonly port: number;
  readonly url: string;
  readonly #folder: string;
  readonly #settings: Record<string, string>;
  #child: ChildProcess | undefined;

  constructor(name: string, port: number, folder: string, settings: Record<string, string>) {
    this.name = name;
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    this.#folder = folder;
    this.#settings = settings;
  }

  get logFile(): string {
    return `${this.#folder}.log`;
  }

  /** Resolves to the milliseconds until it was ready. */
  async start(): Promise<number> {
    const startedAt = performance.now();
    const log = await open(this.logFile, 'a');
    const env = {
      PATH: `${dirname(process.execPath)}${delimiter}${process.env.PATH}`,
      ENTREPOT_DATA: this.#folder,
      ENTREPOT_PORT: `${this.port}`,
      ...this.#settings,
    };
    const child = spawn(command, ['serve'], { env, stdio: ['ignore', log.fd, log.fd] });
    await log.close();
    this.#child = child;
    endWithThisProcess(child);
    while (!(await answers(`${this.url}/readyz`))) {
      if (hasEnded(child) || performance.now() - startedAt > startLimit)
        throw new Error(`${this.name} did not start: ${(await readFile(this.logFile, 'utf8')).slice(-1000)}`);
      await sleep(20);
    }
    return performance.now() - startedAt;
  }

  /** As `kill -9`. Resolves when the process has exited. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (!child || hasEnded(child)) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }

  /** Resident bytes; 0 while it does not run. */
  async resident(): Promise<number> {
    const status = await readFile(`/proc/${this.#child?.pid}/status`, 'utf8').catch(() => '');
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) * 1024;
  }
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}
