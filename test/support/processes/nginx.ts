import { spawn } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { requiredCommand } from '../clients/clients.ts';
import { endWithThisProcess } from './ending.ts';
import { answers, freePort } from './services.ts';

// nginx with a configuration that the project documents, in front of several instances.

const folderOfDocuments = join(import.meta.dirname, '../../../docker');

/** The documented configurations, and what each one listens on. Instance `index` is replaced by its own port. */
const documents = {
  'nginx.conf': { listen: 'listen 443 ssl;', instance: (index: number) => `127.0.0.1:${8080 + index} ` },
  'nginx.cluster.conf': { listen: 'listen 8080;', instance: (index: number) => `10.89.77.${11 + index}:8080 ` },
};
type Document = keyof typeof documents;

export interface Nginx {
  /** `http://host:port` */
  url: string;
  /** One line for each request: status, method, path, the instances that it was sent to, and their statuses. */
  requests(): Promise<string[]>;
  stop(): Promise<void>;
}

/** The documented configuration, with these ports instead of its own, and without TLS. */
async function site(name: Document, port: number, instances: readonly number[]): Promise<string> {
  let text = await readFile(join(folderOfDocuments, name), 'utf8');
  const replace = (pattern: RegExp | string, by: string): void => {
    const changed = text.replaceAll(pattern, by);
    if (changed === text) throw new Error(`docker/${name} has no ${String(pattern)}`);
    text = changed;
  };
  const { listen, instance } = documents[name];
  replace(listen, `listen 127.0.0.1:${port};`);
  if (name === 'nginx.conf') replace(/ +ssl_certificate(?:_key)? .*\n/g, '');
  for (const [index, each] of instances.entries()) replace(instance(index), `127.0.0.1:${each} `);
  return text;
}

/** Waits until the instances answer through it. Writes only to `folder`. */
export async function startNginx(
  folder: string,
  instances: readonly number[],
  document: Document = 'nginx.conf',
): Promise<Nginx> {
  const at = (name: string): string => join(folder, name);
  const port = await freePort();
  await mkdir(folder, { recursive: true });
  await writeFile(at('site.conf'), await site(document, port, instances));
  const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  await writeFile(
    at('nginx.conf'),
    `daemon off; worker_processes 2; pid ${at('pid')}; ${process.getuid?.() === 0 ? 'user root;' : ''}
error_log ${at('error.log')};
events { worker_connections 1024; }
http {
  ${kinds.map((kind) => `${kind}_temp_path ${at(kind)};`).join(' ')}
  log_format upstreams '$status $request_method $request_uri $upstream_addr $upstream_status';
  access_log ${at('access.log')} upstreams;
  include ${at('site.conf')};
}
`,
  );
  const args = ['-e', at('error.log'), '-p', folder, '-c', at('nginx.conf')];
  const child = spawn(requiredCommand('nginx'), args, { stdio: 'ignore' });
  endWithThisProcess(child);
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await closed;
  };
  const url = `http://127.0.0.1:${port}`;
  const deadline = Date.now() + 10_000;
  while (!(await answers(`${url}/readyz`))) {
    if (child.exitCode !== null || Date.now() > deadline) {
      await stop();
      throw new Error(`nginx did not start: ${await readFile(at('error.log'), 'utf8')}`);
    }
    await sleep(50);
  }
  return { url, requests: async () => (await readFile(at('access.log'), 'utf8')).trim().split('\n'), stop };
}
