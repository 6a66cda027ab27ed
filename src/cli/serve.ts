import { once } from 'node:events';
import { hostname } from 'node:os';
import type { Command } from 'commander';
import { ConfigError, loadConfig, type Environment } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import type { Surroundings } from '../server/core.ts';
import { ServerCertificate } from '../tls/certificate.ts';
import { createFirstToken } from '../server/first-token.ts';
import { openRequirements } from '../server/preflight.ts';
import { authorityOf } from '../runtime/authority.ts';
import { closingTimes } from '../runtime/closing.ts';
import { checkPorts, startServer } from '../server/server.ts';
import { openInstallation } from '../server/installation.ts';
import { greeting } from './greeting.ts';
import { clocks, type Terminal } from './with-installation.ts';
import { openLog } from './log.ts';
import { isWorker, leaveWorkers, openExchange, runWorkers } from './workers.ts';

/** What is over for sure this many milliseconds after `shutdownGrace`. The process has ended before 5 seconds. */
const exitTime = closingTimes.all + 250;
/** How long the first process of several workers may take to end its checks; milliseconds. */
const maxClose = 1000;
/** After everything is closed, the process gets this long to end by itself; milliseconds. */
const lastTime = 100;

/** `entrepot serve` */
export function addServe(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('serve')
    .description('serve until SIGTERM, SIGINT or SIGHUP')
    .action(async () => {
      // An output that is closed or full must not end the server.
      for (const output of [terminal.stdout, terminal.stderr]) output.on?.('error', () => undefined);
      const config = loadConfig(environment);
      const { log, droppedLines } = openLog(config.log.level, terminal);
      const instanceName = [hostname(), terminal.pid].join('/');
      const surroundings = { log, droppedLines, instanceName, ...clocks, proxy: environment };
      const stop = new StopSignal(terminal);
      if (config.server.workers > 1 && !isWorker()) await serveWithWorkers(config, terminal, surroundings, stop);
      else await serve(config, terminal, surroundings, stop);
    });
}

async function serve(config: Config, terminal: Terminal, surroundings: Surroundings, stop: StopSignal): Promise<void> {
  const { log } = surroundings;
  using exchange = openExchange();
  const server = await startServer(config, { ...surroundings, exchange });
  terminal.on('unhandledRejection', (error) => server.answerUnhandled(error));
  const stopped = stop.takeOver();
  if (server.firstToken !== undefined) greet(config, terminal, server.url, server.firstToken);
  log.info({ url: server.url }, 'ready');
  await once(stopped, 'abort');
  log.info('closing');
  setTimeout(() => {
    const parts = server.unclosed.join(', ') || 'its connections';
    terminal.stderr.write(`entrepot: ended without closing ${parts}\n`);
    terminal.exit(1);
  }, config.shutdownGrace + exitTime).unref();
  try {
    await server.close();
  } finally {
    await exchange?.report();
    leaveWorkers();
    // A part that did not close may have connections and timers, which would keep the process running.
    setTimeout(() => terminal.exit(), lastTime).unref();
  }
}

/** This process creates the first token before it starts the workers, so that the token is printed once. */
async function serveWithWorkers(
  config: Config,
  terminal: Terminal,
  surroundings: Surroundings,
  stop: StopSignal,
): Promise<void> {
  if (config.redis.url === undefined) {
    throw new ConfigError(
      'ENTREPOT_WORKERS: more than one worker needs ENTREPOT_REDIS_URL, a Redis for all workers. Set it, or set ENTREPOT_WORKERS to 1',
    );
  }
  if (config.server.port === 0)
    throw new ConfigError('ENTREPOT_PORT: more than one worker needs a fixed port; do not use 0');
  const certificate = await ServerCertificate.open(config.server.tls, surroundings);
  const { host, port } = config.server;
  await checkPorts(config.server);
  const firstToken = await startFirst(config, surroundings);
  const scheme = certificate ? 'https' : 'http';
  if (firstToken !== undefined) greet(config, terminal, `${scheme}://${authorityOf(host, port)}`, firstToken);
  const bound = config.shutdownGrace + exitTime;
  const inTime = await runWorkers(config.server.workers, stop.takeOver(), bound, surroundings.log);
  if (!inTime) throw new Error('workers did not exit in time and were killed');
}

/**
 * The first signal to stop: ends the process at once during the start, and is later left to the code that calls `takeOver`. A
 * second signal of the same kind ends the process at once. A worker can get the same signal twice, from the supervisor and
 * from the first process; the first process kills a worker that takes too long.
 */
class StopSignal {
  readonly #controller = new AbortController();
  #isStarting = true;

  constructor(terminal: Terminal) {
    const stop = () => {
      if (this.#isStarting) terminal.exit(1);
      this.#controller.abort();
    };
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
      if (isWorker()) terminal.on(signal, stop);
      else terminal.once(signal, stop);
    }
  }

  takeOver(): AbortSignal {
    this.#isStarting = false;
    return this.#controller.signal;
  }
}

async function startFirst(config: Config, surroundings: Surroundings): Promise<string | undefined> {
  await using installation = await openInstallation(config, surroundings);
  const requirements = await openRequirements(installation.core);
  await requirements.enforce().finally(() => requirements.close(maxClose));
  await installation.webhooks.checkKey();
  return await createFirstToken(installation.core);
}

function greet(config: Config, terminal: Terminal, url: string, firstToken: string): void {
  if (config.bootstrapToken === undefined) terminal.stdout.write(greeting(config.server.baseUrl ?? url, firstToken));
}
