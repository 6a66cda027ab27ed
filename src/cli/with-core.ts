import { destination, pino } from 'pino';
import { loadConfig, type Environment } from '../config/load.ts';
import { DomainError } from '../errors.ts';
import { openCore, type Core } from '../server.ts';

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
 * Opens the core without the network, beside a running server too, and closes it after `work`. What `work` tells by
 * itself need not be in a log on the terminal too: `level` says how much is.
 */
export async function withCore(
  environment: Environment,
  work: (core: Core) => Promise<void>,
  level: 'warn' | 'silent' = 'warn',
): Promise<void> {
  const log = pino({ level }, destination(2));
  const core = await openCore(loadConfig(environment), { log, now: Date.now, proxy: environment });
  try {
    await work(core);
  } finally {
    await core.close();
  }
}

/** The account of that name; `NotFound` says how to find the right one. */
export async function accountId(core: Core, name: string): Promise<number> {
  const account = await core.accounts.named(name);
  if (!account) throw new DomainError('NotFound', `There is no account "${name}"; "entrepot account list" shows them.`);
  return account.id;
}
