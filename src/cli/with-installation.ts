import { destination, pino } from 'pino';
import { loadConfig, type Environment } from '../config/load.ts';
import { DomainError } from '../errors.ts';
import { inBackground, runForSystem, type Core } from '../core.ts';
import { openInstallation, type Installation } from '../server.ts';

/** The signals that end a server in order. */
export type StopSignal = 'SIGTERM' | 'SIGINT' | 'SIGHUP';

interface Output {
  write(text: string): unknown;
  on?(event: 'error', listener: () => void): unknown;
}

/** The parts of the process that commands use. */
export interface Terminal {
  pid?: number;
  stdin?: AsyncIterable<Uint8Array | string>;
  stdout: Output;
  /** `columns` only if it is a terminal. */
  stderr: Output & { isTTY?: boolean; columns?: number };
  once(event: StopSignal | 'exit', listener: () => void): unknown;
  on(event: 'unhandledRejection' | StopSignal, listener: (error: unknown) => void): unknown;
  /** Ends the process at once; without `code`, with the code of the command. */
  exit(code?: number): void;
}

/** The clocks of this machine. */
export const clocks = { now: Date.now, watch: () => performance.now() };

/**
 * Opens the installation without its HTTP server, also while a server runs, and closes it after `work`. With the level
 * `silent` nothing is logged, for work that reports everything on the terminal itself.
 */
export async function withInstallation(
  environment: Environment,
  work: (installation: Installation) => Promise<void>,
  level: 'warn' | 'silent' = 'warn',
): Promise<void> {
  const log = pino({ level }, destination(2));
  await using installation = await openInstallation(loadConfig(environment), {
    log,
    ...clocks,
    proxy: environment,
  });
  await runForSystem('command', () => inBackground(() => work(installation)));
}

/** The ID of the account with this name; `NotFound` with advice if there is none. */
export async function accountId(core: Core, name: string): Promise<number> {
  const account = await core.accounts.named(name);
  if (!account)
    throw new DomainError('NotFound', `There is no account "${name}". "entrepot account list" shows all accounts.`);
  return account.id;
}
