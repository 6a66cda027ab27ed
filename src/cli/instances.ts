import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { instanceItem } from '../instances/instances.ts';
import { row } from './printed.ts';
import { withInstallation, type Terminal } from './with-installation.ts';

/** `entrepot instances` */
export function addInstances(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('instances')
    .description('list the running servers of this installation, the oldest first')
    .option('--json', 'print one JSON object on a line, as in /v1/instances')
    .action(({ json }: { json?: boolean }) =>
      withInstallation(environment, async ({ core }) => {
        if (!json) terminal.stdout.write('name\tstate\tversion\taddress\tstarted\tseen\n');
        for (const each of await core.instances.list()) {
          const item = instanceItem(each);
          const { name, state, version, address, started_at: started, seen_at: seen } = item;
          terminal.stdout.write(
            json ? `${JSON.stringify(item)}\n` : row(name, state, version, address ?? '-', started, seen),
          );
        }
      }),
    );
}
