import { destination, pino } from 'pino';
import { loadConfig, type Environment } from '../config/load.ts';
import { DomainError } from '../errors.ts';
import type { Core } from '../core.ts';
import { openInstallation, type Installation } from '../server.ts';

/** The process as the command line uses it. */
export interface Terminal {
  stdin?: AsyncIterable<Uint8Array | string>;
  stdout: { write(text: string): unknown };
  /** `columns` where it is a screen. */
  stderr: { write(text: string): unknown; isTTY?: boolean; columns?: number };
  once(event: 'SIGTERM' | 'SIGINT' | 'exit', listener: () => void): unknown;
  on(event: 'unhandledRejection', listener: (error: unknown) => void): unknown;
}

/**
 * Opens the installation without the network, also beside a running server, and closes it after `work`. `level` is `silent`
 * for work that reports everything on the terminal by itself.
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
  await work(installation);
}

/** The account of that name; `NotFound` says how to find the right one. */
export async function accountId(core: Core, name: string): Promise<number> {
  const account = await core.accounts.named(name);
  if (!account) throw new DomainError('NotFound', `There is no account "${name}"; "entrepot account list" shows them.`);
  return account.id;
}
