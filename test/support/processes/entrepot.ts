import { spawn } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { execute } from '../clients/clients.ts';
import { answers, freePort } from './services.ts';

// The server as users run it: with the command line, a data folder and the environment.

const main = join(import.meta.dirname, '../../../bin/entrepot.js');

export interface Access {
  /** host:port, the registry name for container clients. */
  host: string;
  username: string;
  password: string;
}

export interface Entrepot extends Access {
  /** `http://host:port`, or `https://…` with TLS. */
  url: string;
  pid: number;
  /** A token with all scopes; also the password of the registry. */
  token: string;
  /** Creates a token with only these scopes. */
  createToken(scopes: string): Promise<string>;
  log(): string;
  stop(): Promise<void>;
}

/**
 * `folder` has the data, maybe from an earlier run. Without upstreams in `settings`, there are none. A server with TLS needs an
 * admin port in `settings`, where this waits until it is ready.
 */
export async function startEntrepot(folder: string, settings: Record<string, string> = {}): Promise<Entrepot> {
  const data = join(folder, 'data');
  await mkdir(data, { recursive: true });
  const port = await freePort();
  const env: NodeJS.ProcessEnv = {
    PATH: process.env.PATH,
    TMPDIR: process.env.TMPDIR,
    ENTREPOT_HOST: '127.0.0.1',
    ENTREPOT_PORT: `${port}`,
    ENTREPOT_DATA: data,
    ENTREPOT_LOG_LEVEL: 'warn',
    ENTREPOT_UPSTREAMS: '[]',
    ...settings,
  };
  const createToken = async (scopes: string): Promise<string> => {
    const args = ['token', 'create', '--account', 'default', '--name', `test-${scopes}`, '--scope', scopes];
    const { code, stdout, stderr } = await execute(process.execPath, [main, ...args], { env });
    if (code !== 0) throw new Error(`entrepot token create ended with ${code}: ${stderr}`);
    return stdout.trim();
  };
  // With a chosen first token, `serve` itself is the first that uses the data.
  const token = env['ENTREPOT_BOOTSTRAP_TOKEN'] ?? (await createToken('read,write,delete,admin,operate'));

  const child = spawn(process.execPath, [main, 'serve'], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await closed;
  };

  const scheme = env['ENTREPOT_TLS_CERT_FILE'] === undefined ? 'http' : 'https';
  const host = `${env['ENTREPOT_HOST']}:${env['ENTREPOT_PORT']}`;
  const url = `${scheme}://${host}`;
  const { ENTREPOT_ADMIN_PORT: adminPort } = env;
  const operations = adminPort === undefined ? url : `http://${env['ENTREPOT_HOST']}:${adminPort}`;
  // A cold disk of a busy machine gives the processes of several servers their code slowly.
  const deadline = Date.now() + 120_000;
  while (!(await answers(`${operations}/readyz`))) {
    if (child.exitCode !== null || Date.now() > deadline) {
      await stop();
      throw new Error(`entrepot did not start: ${output}`);
    }
    await sleep(50);
  }
  return {
    url,
    pid: child.pid!,
    host,
    username: 'api',
    password: token,
    token,
    createToken,
    log: () => output,
    stop,
  };
}
