import { spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { requiredCommand } from '../clients/clients.ts';
import type { Access } from '../processes/entrepot.ts';
import { answers, freePort } from '../processes/services.ts';

// The registry of another project, as an upstream.

export interface DebianRegistry extends Access {
  stop(): Promise<void>;
}

/** bcrypt of the word "secret" */
const htpasswd = 'api:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n';

export async function startDebianRegistry(folder: string, port?: number): Promise<DebianRegistry> {
  const at = port ?? (await freePort());
  const passwords = join(folder, 'htpasswd');
  const configuration = join(folder, 'registry.yml');
  await mkdir(join(folder, 'blobs'), { recursive: true });
  await writeFile(passwords, htpasswd);
  const settings = {
    version: '0.1',
    log: { level: 'error', accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: join(folder, 'blobs') }, delete: { enabled: true } },
    auth: { htpasswd: { realm: 'test', path: passwords } },
    http: { addr: `127.0.0.1:${at}` },
  };
  // JSON is YAML.
  await writeFile(configuration, JSON.stringify(settings));

  const child = spawn(requiredCommand('docker-registry'), ['serve', configuration], { stdio: 'ignore' });
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL');
    await closed;
  };
  for (let attempt = 0; !(await answers(`http://127.0.0.1:${at}/v2/`, 401)); attempt++) {
    if (child.exitCode !== null || attempt === 200) {
      await stop();
      throw new Error('docker-registry did not start');
    }
    await sleep(50);
  }
  return { host: `127.0.0.1:${at}`, username: 'api', password: 'secret', stop };
}
