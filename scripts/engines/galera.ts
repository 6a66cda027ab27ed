import { existsSync } from 'node:fs';
import { chmod, mkdir } from 'node:fs/promises';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createConnection } from 'mysql2/promise';
import { settings } from '../../test/faults/pushes.ts';
import { Teardown } from '../../test/faults/teardown.ts';
import { temporaryFolder } from '../../test/support/clients/clients.ts';
import { endWithThisProcess } from '../../test/support/processes/ending.ts';
import { freePort, installMariadb, mariadbUrl, runMariadb } from '../../test/support/processes/services.ts';
import { findCommand } from '../packages.ts';
import { WriterAddress } from './writer-address.ts';
import { seconds, table, startTraffic } from './traffic.ts';

// Two servers on a Galera cluster of three MariaDB nodes, whose writer is killed under pushes.
// Debian packages: mariadb-server galera-4 rsync

const library = '/usr/lib/galera/libgalera_smm.so';
/** Milliseconds of pushes before the fail-over, and after it. */
const [before, after] = [5000, 10_000];

interface Node {
  name: string;
  port: number;
  child: ChildProcess;
}

async function main(): Promise<void> {
  const commands = ['mariadbd', 'mariadb-install-db', 'rsync'].map((name) => findCommand(name));
  if (commands.includes(undefined) || !existsSync(library))
    throw new Error('install the Debian packages mariadb-server, galera-4 and rsync');
  const [mariadbd, installer] = commands as [string, string];
  await using t = new Teardown();
  const folder = await temporaryFolder();
  t.teardown(() => folder.remove());
  const names = ['one', 'two', 'three'];
  const groupPorts = await Promise.all(names.map(() => freePort()));
  const address = `gcomm://${groupPorts.map((port) => `127.0.0.1:${port}`).join(',')}`;
  await installMariadb(join(folder.path, 'one'), installer);
  const nodes: Node[] = [];
  for (const [index, name] of names.entries()) {
    const data = join(folder.path, name, 'data');
    await mkdir(data, { recursive: true });
    // If this process is root, the rsync that receives the state runs as the user nobody.
    for (const each of [folder.path, join(folder.path, name), data]) await chmod(each, 0o777);
    const port = await freePort();
    const [ist, sst] = [await freePort(), await freePort()];
    const group = groupPorts[index]!;
    const options = [
      '--wsrep-on=ON',
      `--wsrep-provider=${library}`,
      `--wsrep-cluster-address=${index === 0 ? 'gcomm://' : address}`,
      '--wsrep-cluster-name=entrepot',
      `--wsrep-node-name=${name}`,
      `--wsrep-node-address=127.0.0.1:${group}`,
      `--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:${group};ist.recv_addr=127.0.0.1:${ist};gcache.size=64M`,
      '--wsrep-sst-method=rsync',
      `--wsrep-sst-receive-address=127.0.0.1:${sst}`,
      '--binlog-format=ROW',
      '--innodb-autoinc-lock-mode=2',
      '--innodb-flush-log-at-trx-commit=2',
    ];
    const child = await runMariadb(join(folder.path, name), mariadbd, port, options);
    endWithThisProcess(child);
    t.teardown(() => void child.kill('SIGKILL'));
    nodes.push({ name, port, child });
    console.error(`node ${name} is ready`);
  }
  const writer = await WriterAddress.listen(
    nodes.map(({ port }) => port),
    isWritable,
  );
  t.teardown(() => writer.close());
  const connection = await createConnection({ uri: mariadbUrl(nodes[0]!.port) });
  await connection.query('CREATE DATABASE entrepot CHARACTER SET utf8mb4');
  await connection.end();

  const environment = { ...settings, ENTREPOT_DATABASE_URL: `mysql://root@127.0.0.1:${writer.port}/entrepot` };
  const { servers, traffic } = await startTraffic(t, folder.path, environment);
  await sleep(before);
  const pushedBefore = traffic.pushes.acknowledged;
  nodes[0]!.child.kill('SIGKILL');
  const killedAt = performance.now();
  await writer.moved();
  const movedAfter = performance.now() - killedAt;
  await sleep(after);
  const figures = await traffic.stop();
  console.log(
    table('Galera, three nodes, kill -9 of the writer', figures, [
      ['pushes before the fail-over', String(pushedBefore)],
      ['until the address led to another node', seconds(movedAfter)],
    ]),
  );
  for (const defect of figures.defects) console.error(defect);
  if (process.argv.includes('--log')) for (const server of servers) console.error(server.log());
}

/** Whether the node is part of the cluster's majority and has its state. */
async function isWritable(port: number): Promise<boolean> {
  try {
    const connection = await createConnection({ uri: mariadbUrl(port), connectTimeout: 1000 });
    try {
      const [rows] = await connection.query({ sql: "SHOW STATUS LIKE 'wsrep_ready'", timeout: 1000 });
      return (rows as { Value: string }[])[0]?.Value === 'ON';
    } finally {
      connection.destroy();
    }
  } catch {
    return false;
  }
}

await main();
