import type { Command } from 'commander';
import { destination, pino } from 'pino';
import { loadConfig, type Environment } from '../config/load.ts';
import { adoptStorage, isDataFolder } from '../server/place.ts';
import { namesPlace, type Terminal } from './with-installation.ts';

/** `entrepot adopt` */
export function addAdopt(program: Command, environment: Environment, terminal: Terminal): void {
  const say = (line: string) => void terminal.stdout.write(`${line}\n`);
  program
    .command('adopt')
    .description('confirm that the database and the storage of the settings belong together; stop all servers first')
    .action(async () => {
      const log = pino({ level: 'warn' }, destination(2));
      const config = loadConfig(environment);
      // The database may be lost, but then there is the folder of a server.
      const command = { creates: namesPlace(environment, config) || (await isDataFolder(config)) };
      const surroundings = { log, now: Date.now, proxy: environment, command };
      await adoptStorage(config, surroundings, ({ blobs, missing, files, bytes, unknown }) => {
        say(`database: ${blobs} blobs, ${missing} of them without a file in the storage`);
        say(`storage: ${files} files, ${bytes} bytes, ${unknown} of the files without a row in the database`);
      });
      say('adopted: the database and the storage now have the same identity');
    });
}
