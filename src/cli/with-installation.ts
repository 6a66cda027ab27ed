import { resolve } from 'node:path';
import type { Command } from 'commander';
import { destination, pino } from 'pino';
import { typed } from '../runtime/command-name.ts';
import { loadConfig, type Environment } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import { inBackground, runForSystem, type Core } from '../server/core.ts';
import { checkStorage } from '../server/preflight.ts';
import { openInstallation, type Installation } from '../server/installation.ts';

/** The signals that end a server in order. */
export type StopSignal = 'SIGTERM' | 'SIGINT' | 'SIGHUP';

interface Output {
  write(text: string): unknown;
  on?(event: 'error', listener: (error: Error) => void): unknown;
}

/** The parts of the process that commands use. */
export interface Terminal {
  pid?: number;
  /** `setRawMode` only if it is a terminal. */
  stdin?: AsyncIterable<Uint8Array | string> & { isTTY?: boolean; setRawMode?(isRaw: boolean): unknown };
  stdout: Output;
  /** `columns` only if it is a terminal. */
  stderr: Output & { isTTY?: boolean; columns?: number };
  /** The error output for a progress bar, which moves the cursor. */
  screen?: Terminal['stderr'];
  once(event: StopSignal | 'exit', listener: () => void): unknown;
  on(event: 'unhandledRejection' | StopSignal, listener: (error: unknown) => void): unknown;
  /** Ends the process at once; without `code`, with the code of the command. */
  exit(code?: number): void;
  /** The program of this process, which is Node, and its own options. */
  execPath?: string;
  execArgv?: readonly string[];
}

/** The clocks of this machine. */
export const clocks = { now: Date.now, watch: () => performance.now() };

interface OpenOptions {
  /** With `silent` nothing is logged, for work that reports everything on the terminal itself. */
  level?: 'warn' | 'silent';
  /** Makes an installation where there is none, if a setting names the place. */
  creates?: boolean;
}

/**
 * Whether a setting names the place, so that a command may make an installation there. A file of settings that leaves the data
 * folder at `./data` names none: that is another folder for each folder in which a command runs.
 */
export function namesPlace(environment: Environment, { data, database }: Config): boolean {
  return Boolean(environment['ENTREPOT_DATA']) || database.url !== undefined || data !== resolve('data');
}

/**
 * Opens the installation without its HTTP server, also while a server runs, and closes it after `work`. Rejects if there is
 * none, except with `creates`.
 */
export async function withInstallation(
  environment: Environment,
  work: (installation: Installation) => Promise<void>,
  { level = 'warn', creates = false }: OpenOptions = {},
): Promise<void> {
  const log = pino({ level }, destination(2));
  const config = loadConfig(environment);
  await using installation = await openInstallation(config, {
    log,
    ...clocks,
    proxy: environment,
    command: { creates: creates && namesPlace(environment, config) },
  });
  await checkStorage(installation.core);
  await runForSystem('command', () => inBackground(() => work(installation)));
}

/** For work that ends when a person or the system stops the command, with `reason` if there is one. */
export function stoppedBy(terminal: Terminal, reason?: Error): AbortController {
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) terminal.once(signal, () => controller.abort(reason));
  return controller;
}

type AccountWork<Options> = (
  account: number,
  installation: Installation,
  options: Options & { account: string },
  ...words: (string | undefined)[]
) => Promise<void>;

/**
 * Lets a command concern an account, which its option `--account` names. `work` gets the number of the account, and the words
 * of the command after its options.
 */
export function forAccount<Options = object>(
  command: Command,
  environment: Environment,
  work: AccountWork<Options>,
  open?: OpenOptions,
): void {
  command.option('--account <name>', 'the account that it concerns', 'default').action((...given: unknown[]) => {
    const options = given.at(-2) as Parameters<AccountWork<Options>>[2];
    const words = given.slice(0, -2) as (string | undefined)[];
    return withInstallation(
      environment,
      async (opened) => work(await accountId(opened.core, options.account), opened, options, ...words),
      open,
    );
  });
}

/** The ID of the account with this name; `NotFound` with advice if there is none. */
export async function accountId(core: Core, name: string): Promise<number> {
  const account = await core.accounts.named(name);
  if (!account)
    throw new DomainError('NotFound', `There is no account "${name}". "${typed('account list')}" shows all accounts.`);
  return account.id;
}
