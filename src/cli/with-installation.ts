import { destination, pino } from 'pino';
import { loadConfig, type Environment } from '../config/load.ts';
import { DomainError } from '../errors.ts';
import { inBackground, type Core } from '../core.ts';
import { openInstallation, type Installation } from '../server.ts';

/** The parts of the process that commands use. */
export interface Terminal {
  stdin?: AsyncIterable<Uint8Array | string>;
  stdout: { write(text: string): unknown };
  /** `columns` only if it is a terminal. */
  stderr: { write(text: string): unknown; isTTY?: boolean; columns?: number };
  once(event: 'SIGTERM' | 'SIGINT' | 'exit', listener: () => void): unknown;
  on(event: 'unhandledRejection', listener: (error: unknown) => void): unknown;
}

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
    now: Date.now,
    proxy: environment,
  });
  await inBackground(() => work(installation));
}

/** The ID of the account with this name; `NotFound` with advice if there is none. */
export async function accountId(core: Core, name: string): Promise<number> {
  const account = await core.accounts.named(name);
  if (!account)
    throw new DomainError('NotFound', `There is no account "${name}". "entrepot account list" shows all accounts.`);
  return account.id;
}
