import type { Command } from 'commander';
import { destination, pino } from 'pino';
import { loadConfig, type Environment } from '../config/load.ts';
import { startServer } from '../server.ts';
import { greeting } from './greeting.ts';
import type { Terminal } from './in-house.ts';

/** `entrepot serve` */
export function addServe(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('serve')
    .description('serve until SIGTERM or SIGINT')
    .action(async () => {
      const config = loadConfig(environment);
      const log = pino({ level: config.log.level }, destination(1));
      const server = await startServer(config, { log, now: Date.now, proxy: environment });
      const stop = new Promise<void>((resolve) => {
        terminal.once('SIGTERM', resolve);
        terminal.once('SIGINT', resolve);
      });
      if (server.firstToken !== undefined && config.bootstrapToken === undefined) {
        terminal.stdout.write(greeting(config.server.baseUrl ?? server.url, server.firstToken));
      }
      log.info({ url: server.url }, 'ready');
      await stop;
      log.info('closing');
      await server.close();
    });
}
