import { spawn, type ChildProcess } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { execute } from '../clients/clients.ts';
import { until } from '../until.ts';
import { endWithThisProcess } from './ending.ts';
import { answers, freePort } from './services.ts';
import { findCommand } from '../../../scripts/packages.ts';

/** Command → Debian package. */
export const swiftCommands = {
  'swift-proxy-server': 'swift-proxy',
  'swift-account-server': 'swift-account',
  'swift-container-server': 'swift-container',
  'swift-object-server': 'swift-object',
  'swift-ring-builder': 'swift',
  memcached: 'memcached',
};

/** OpenStack Swift with its S3 interface: a real S3 server. */
export interface Swift {
  endpoint: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  /** The folders of the devices. */
  devices: readonly string[];
  stop(): Promise<void>;
}

const kinds = ['account', 'container', 'object'] as const;

/**
 * Starts a private Swift with one copy of each object on each of some devices. Undefined if its packages are not installed.
 */
export async function startSwift(copies = 1): Promise<Swift | undefined> {
  const commands = new Map(Object.keys(swiftCommands).map((name) => [name, findCommand(name)]));
  if ([...commands.values()].includes(undefined)) return undefined;
  const folder = await mkdtemp(join(tmpdir(), 'entrepot-swift-'));
  const devices = Array.from({ length: copies }, (_, each) => join(folder, 'node', `disk${each}`));
  const children: ChildProcess[] = [];
  const run = (name: string, args: string[]) => {
    const child = spawn(commands.get(name)!, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    endWithThisProcess(child);
    const log = createWriteStream(join(folder, `${name}.log`));
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    children.push(child);
  };
  const answering = (name: string, port: number) =>
    until(() => answers(`http://127.0.0.1:${port}/healthcheck`)).catch(async (error: unknown) => {
      throw new Error(await readFile(join(folder, `${name}.log`), 'utf8'), { cause: error });
    });
  const stop = async () => {
    for (const child of children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await ended;
    }
    await rm(folder, { recursive: true, force: true });
  };
  try {
    for (const device of devices) await mkdir(device, { recursive: true });
    const hash = 'swift_hash_path_prefix = entrepot\nswift_hash_path_suffix = entrepot\n';
    await writeFile(join(folder, 'swift.conf'), `[swift-hash]\n${hash}[storage-policy:0]\nname = one\ndefault = yes\n`);
    // In parallel, because each call takes seconds on a busy machine.
    const startNode = async (kind: (typeof kinds)[number]) => {
      const port = await freePort();
      const builder = join(folder, `${kind}.builder`);
      const ring = async (...args: string[]) => {
        const done = await execute(commands.get('swift-ring-builder')!, [builder, ...args]);
        if (done.code !== 0) throw new Error(`swift-ring-builder: ${done.stdout}${done.stderr}`);
      };
      await ring('create', '4', String(copies), '1');
      for (const [each, device] of devices.entries())
        await ring('add', `r1z${each + 1}-127.0.0.1:${port}/${basename(device)}`, '1');
      await ring('rebalance');
      const file = join(folder, `${kind}.conf`);
      await writeFile(
        file,
        `[DEFAULT]
bind_ip = 127.0.0.1
bind_port = ${port}
workers = 0
user = root
swift_dir = ${folder}
devices = ${join(folder, 'node')}
mount_check = false
fallocate_reserve = 0
[pipeline:main]
pipeline = healthcheck ${kind}-server
[filter:healthcheck]
use = egg:swift#healthcheck
[app:${kind}-server]
use = egg:swift#${kind}
`,
      );
      const name = `swift-${kind}-server`;
      run(name, [file, '-v']);
      await answering(name, port);
    };
    await Promise.all(kinds.map(startNode));
    const memory = await freePort();
    run('memcached', ['-u', 'root', '-l', '127.0.0.1', '-p', String(memory)]);
    const port = await freePort();
    const file = join(folder, 'proxy.conf');
    await writeFile(
      file,
      `[DEFAULT]
bind_ip = 127.0.0.1
bind_port = ${port}
workers = 0
user = root
swift_dir = ${folder}
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck proxy-logging cache listing_formats s3api tempauth copy slo dlo versioned_writes symlink proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
# After ten errors within a minute, the proxy would refuse all requests for a minute: there is no other node.
error_suppression_interval = 0
# A node that is only busy takes longer than the default of half a second to accept a connection.
conn_timeout = 10
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:proxy-logging]
use = egg:swift#proxy_logging
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:${memory}
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
[filter:symlink]
use = egg:swift#symlink
`,
    );
    run('swift-proxy-server', [file, '-v']);
    await answering('swift-proxy-server', port);
    return {
      endpoint: `http://127.0.0.1:${port}`,
      region: 'us-east-1',
      accessKeyId: 'test:tester',
      secretAccessKey: 'testing',
      devices,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}
