import type { ChildProcess } from 'node:child_process';
import { requiredCommand } from '../clients/clients.ts';
import { endWithThisProcess } from './ending.ts';
import { freePort, installMariadb, mariadbUrl, runMariadb } from './services.ts';

/** A private MariaDB, which a test can stop, kill and freeze. */
export interface OwnMariadb {
  /** For `createDatabase`. */
  url: string;
  /** Starts it again on the same port, unless it runs; resolves when it answers. */
  start(): Promise<void>;
  /** Ends it; SIGKILL as in a crash of its process, which loses no commit. */
  stop(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** Until `thaw`, it accepts connections and does not answer. */
  freeze(): void;
  thaw(): void;
}

/** Creates a MariaDB in `folder`, which the caller removes after `stop`, and starts it. */
export async function ownMariadb(folder: string): Promise<OwnMariadb> {
  const port = await freePort();
  await installMariadb(folder, requiredCommand('mariadb-install-db'));
  const program = requiredCommand('mariadbd');
  let child: ChildProcess | undefined;
  // With 2, commits survive the death of the process.
  const options = ['--innodb-flush-log-at-trx-commit=2'];
  const isRunning = () => child !== undefined && child.exitCode === null && child.signalCode === null;
  const mariadb: OwnMariadb = {
    url: mariadbUrl(port),
    start: async () => {
      if (isRunning()) return;
      child = await runMariadb(folder, program, port, options);
      endWithThisProcess(child);
    },
    stop: async (signal = 'SIGKILL') => {
      if (!isRunning()) return;
      const closed = new Promise((resolve) => child!.once('close', resolve));
      child!.kill(signal);
      await closed;
    },
    freeze: () => void child!.kill('SIGSTOP'),
    thaw: () => void child!.kill('SIGCONT'),
  };
  await mariadb.start();
  return mariadb;
}
