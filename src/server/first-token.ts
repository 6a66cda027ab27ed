import { ConfigError } from '../config/load.ts';
import type { Core } from './core.ts';

/** Fewest characters of a chosen first token. */
const minChosenLength = 32;

/**
 * Creates the first token of account `default` if it is missing. Resolves to its value if it was created. Rejects with one
 * line if the setting `bootstrapToken` is too short for a new token; logs a warning if that token exists already.
 */
export async function createFirstToken({ tokens, defaultAccount, config, log }: Core): Promise<string | undefined> {
  const { bootstrapToken: chosen } = config;
  if (chosen !== undefined && chosen.length < minChosenLength) {
    const fewest = `${minChosenLength} characters`;
    if (!(await tokens.isKnown(chosen))) {
      throw new ConfigError(
        `ENTREPOT_BOOTSTRAP_TOKEN: a new token needs at least ${fewest}, for example from "openssl rand -hex 32"`,
      );
    }
    log.warn(`bootstrapToken has fewer than ${fewest}: create a longer token, and revoke this one`);
  }
  return tokens.bootstrap(defaultAccount.id, chosen);
}
