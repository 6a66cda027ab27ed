import type { Token } from '../../src/accounts/tokens.ts';
import type { Database, Row } from '../../src/database/database.ts';
import type { Counts } from '../../src/jobs/runs.ts';
import type { Work } from '../../src/jobs/jobs.ts';
import type { UpstreamVulnerabilities } from '../../src/nuget/upstream/upstream-vulnerabilities.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import type { TestServer } from './server.ts';

// Access to a running server for tests that cannot use HTTP. Only this file uses the internals of a server.

type Server = Pick<TestServer, 'core'>;

export function databaseOf({ core }: Server): Database {
  return core.database;
}

export function rowsOf<T extends object = Row>(server: Server, sql: string): Promise<T[]> {
  return databaseOf(server).select<T>(sql);
}

/** A new token with `scopes` in the account with this name, which is created if it does not exist. */
export async function createToken(
  { core }: Server,
  scopes: readonly string[],
  account = 'default',
): Promise<{ token: Token; value: string }> {
  const { accounts, tokens } = core;
  const { id } = (await accounts.named(account)) ?? (await accounts.create(account));
  return tokens.create(id, { name: 'a test', scopes });
}

/** As above, only the value of the token. */
export async function tokenOf(server: Server, scopes: readonly string[], account?: string): Promise<string> {
  return (await createToken(server, scopes, account)).value;
}

/** The row id of the account `default`. */
export function defaultAccountOf({ core }: Server): number {
  return core.defaultAccount.id;
}

/** Runs a job now, as `entrepot jobs run` does. */
export function runJob({ core }: Server, name: string, options?: Partial<Omit<Work, 'signal'>>): Promise<Counts> {
  return core.jobs.run(name, options);
}

// Write now the data that a server writes every few seconds.

export function flushUsage({ core }: Server): Promise<void> {
  return core.usage.flush();
}

/** The times of last use of tokens. */
export function flushTokens({ core }: Server): Promise<void> {
  return core.tokens.flush();
}

/** The times of last use of upstream content. */
export function flushUses({ core }: Server): Promise<void> {
  return core.entries.flushUses();
}

/** The first upstream in the settings. */
export function firstUpstream({ core }: Server): Upstream {
  return core.upstreams[0]!;
}

export function vulnerabilitiesOf({ core }: Server): UpstreamVulnerabilities {
  return core.vulnerabilities;
}
