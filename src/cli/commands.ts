import { Command, CommanderError } from 'commander';
import { destination, pino } from 'pino';
import { loadConfig, type Environment } from '../config/load.ts';
import { parseDuration } from '../config/units.ts';
import { DomainError } from '../errors.ts';
import { openHouse, startServer, type House } from '../server.ts';
import { greeting } from './greeting.ts';
import packageFile from '../../package.json' with { type: 'json' };

const { version } = packageFile;

/** The process as the command line uses it. */
export interface Terminal {
  stdout: { write(text: string): unknown };
  stderr: { write(text: string): unknown };
  once(signal: 'SIGTERM' | 'SIGINT', listener: () => void): unknown;
}

/** Runs one command; resolves to the exit code. Results go to stdout, errors to stderr as one line. */
export async function run(words: readonly string[], environment: Environment, terminal: Terminal): Promise<number> {
  const program = new Command('entrepot')
    .description('A NuGet feed, container registry and pull-through mirror in one server')
    .version(version)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void terminal.stdout.write(text),
      writeErr: (text) => void terminal.stderr.write(text),
    });
  addServe(program, environment, terminal);
  addAccount(program, environment, terminal);
  addToken(program, environment, terminal);
  try {
    await program.parseAsync([...words], { from: 'user' });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode;
    terminal.stderr.write(`entrepot: ${explain(error)}\n`);
    return 1;
  }
}

function addServe(program: Command, environment: Environment, terminal: Terminal): void {
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

function addAccount(program: Command, environment: Environment, terminal: Terminal): void {
  const account = program.command('account').description('create and list accounts');
  account
    .command('create <name>')
    .description('create an account')
    .action((name: string) =>
      inHouse(environment, async (house) => {
        const created = await house.accounts.create(name);
        terminal.stdout.write(`${created.name}\n`);
      }),
    );
  account
    .command('list')
    .description('list the accounts')
    .action(() =>
      inHouse(environment, async (house) => {
        for (const { name, createdAt } of await house.accounts.list()) {
          terminal.stdout.write(`${name}\t${new Date(createdAt).toISOString()}\n`);
        }
      }),
    );
}

function addToken(program: Command, environment: Environment, terminal: Terminal): void {
  const token = program.command('token').description('create, list and revoke API tokens');
  token
    .command('create')
    .description('create a token and print it')
    .option('--account <name>', 'the account it belongs to', 'default')
    .requiredOption('--name <name>', 'what it is for')
    .option('--scope <list>', 'any of read,write,delete,admin', 'read')
    .option('--expires <duration>', 'for how long it is valid, such as 90d; for ever when left out')
    .action((options: { account: string; name: string; scope: string; expires?: string }) =>
      inHouse(environment, async (house) => {
        const { value } = await house.tokens.create(await accountId(house, options.account), {
          name: options.name,
          scopes: options.scope.split(','),
          expiresAt: options.expires === undefined ? null : Date.now() + durationOf(options.expires),
        });
        terminal.stdout.write(`${value}\n`);
      }),
    );
  token
    .command('list')
    .description('list the tokens of an account')
    .option('--account <name>', 'the account', 'default')
    .action((options: { account: string }) =>
      inHouse(environment, async (house) => {
        for (const each of await house.tokens.list(await accountId(house, options.account), 10_000)) {
          const columns = [
            each.id,
            each.tokenPrefix,
            each.scopes.join(','),
            endOf(each.expiresAt, each.revokedAt),
            each.name,
          ];
          terminal.stdout.write(`${columns.join('\t')}\n`);
        }
      }),
    );
  token
    .command('revoke <id>')
    .description('end a token')
    .option('--account <name>', 'the account it belongs to', 'default')
    .action((id: string, options: { account: string }) =>
      inHouse(environment, async (house) => house.tokens.revoke(await accountId(house, options.account), id)),
    );
}

async function inHouse(environment: Environment, work: (house: House) => Promise<void>): Promise<void> {
  const log = pino({ level: 'warn' }, destination(2));
  const house = await openHouse(loadConfig(environment), { log, now: Date.now, proxy: environment });
  try {
    await work(house);
  } finally {
    await house.close();
  }
}

async function accountId(house: House, name: string): Promise<number> {
  const account = await house.accounts.named(name);
  if (!account) throw new DomainError('NotFound', `There is no account "${name}"; "entrepot account list" shows them.`);
  return account.id;
}

function durationOf(text: string): number {
  const duration = parseDuration(text);
  if (duration === undefined || duration <= 0)
    throw new DomainError('Invalid', '--expires takes a duration such as 12h or 90d.');
  return duration;
}

function endOf(expiresAt: number | null, revokedAt: number | null): string {
  if (revokedAt !== null) return `revoked ${new Date(revokedAt).toISOString()}`;
  return expiresAt === null ? 'never expires' : `expires ${new Date(expiresAt).toISOString()}`;
}

/** One line for whoever typed the command. */
function explain(error: unknown): string {
  const { name, message } = error as { name?: string; message?: string };
  const line = (message || String(error)).split('\n', 1)[0]!;
  if (name?.startsWith('Sequelize')) return `ENTREPOT_DATABASE_URL: the database failed: ${line}`;
  return line;
}
