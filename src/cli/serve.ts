import type { Command } from 'commander';
import type { Logger } from 'pino';
import { ConfigError, loadConfig, type Environment } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { createFirstToken, openInstallation, startServer } from '../server.ts';
import { greeting } from './greeting.ts';
import { clocks, type Terminal } from './with-installation.ts';
import { openLog } from './log.ts';
import { isWorker, leaveWorkers, runWorkers } from './workers.ts';

/** `entrepot serve` */
export function addServe(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('serve')
    .description('serve until SIGTERM or SIGINT')
    .action(async () => {
      const config = loadConfig(environment);
      const log = openLog(config.log.level, terminal);
      if (config.server.workers > 1 && !isWorker()) await serveWithWorkers(config, environment, terminal, log);
      else await serve(config, environment, terminal, log);
    });
}

async function serve(config: Config, environment: Environment, terminal: Terminal, log: Logger): Promise<void> {
  const server = await startServer(config, { log, ...clocks, proxy: environment });
  terminal.on('unhandledRejection', (error) => server.answerUnhandled(error));
  const stop = new Promise<void>((resolve) => {
    terminal.once('SIGTERM', resolve);
    terminal.once('SIGINT', resolve);
  });
  if (server.firstToken !== undefined) greet(config, terminal, server.url, server.firstToken);
  log.info({ url: server.url }, 'ready');
  await stop;
  log.info('closing');
  await server.close();
  leaveWorkers();
}

/** This process creates the first token before it starts the workers, so that the token is printed once. */
async function serveWithWorkers(
  config: Config,
  environment: Environment,
  terminal: Terminal,
  log: Logger,
): Promise<void> {
  if (config.redis.url === undefined) {
    throw new ConfigError('ENTREPOT_WORKERS: more than one worker needs ENTREPOT_REDIS_URL, a Redis for all workers');
  }
  if (config.server.port === 0)
    throw new ConfigError('ENTREPOT_PORT: more than one worker needs a fixed port; do not use 0');
  const firstToken = await startFirst(config, environment, log);
  const { host, port } = config.server;
  if (firstToken !== undefined) greet(config, terminal, `http://${host}:${port}`, firstToken);
  await runWorkers(config.server.workers, terminal, log);
}

async function startFirst(config: Config, environment: Environment, log: Logger): Promise<string | undefined> {
  await using installation = await openInstallation(config, { log, ...clocks, proxy: environment });
  return createFirstToken(installation.core);
}

function greet(config: Config, terminal: Terminal, url: string, firstToken: string): void {
  if (config.bootstrapToken === undefined) terminal.stdout.write(greeting(config.server.baseUrl ?? url, firstToken));
}
