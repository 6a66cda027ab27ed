import type { Token } from '../../src/accounts/tokens.ts';
import type { Database, Row } from '../../src/database/database.ts';
import type { Counts } from '../../src/jobs/runs.ts';
import type { Work } from '../../src/jobs/jobs.ts';
import type { UpstreamVulnerabilities } from '../../src/nuget/upstream/upstream-vulnerabilities.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import type { TestServer } from './server.ts';

// What a test needs of a running server and cannot ask for by HTTP. No other file reaches into one.

type Server = Pick<TestServer, 'house'>;

export function databaseOf({ house }: Server): Database {
  return house.database;
}

export function rowsOf<T extends object = Row>(server: Server, sql: string): Promise<T[]> {
  return databaseOf(server).select<T>(sql);
}

/** A new token with `scopes`, of the account with this name, which is made when there is none. */
export async function createToken(
  { house }: Server,
  scopes: readonly string[],
  account = 'default',
): Promise<{ token: Token; value: string }> {
  const { accounts, tokens } = house;
  const { id } = (await accounts.named(account)) ?? (await accounts.create(account));
  return tokens.create(id, { name: 'a test', scopes });
}

/** The value of such a token. */
export async function tokenOf(server: Server, scopes: readonly string[], account?: string): Promise<string> {
  return (await createToken(server, scopes, account)).value;
}

/** The row id of the account `default`. */
export function defaultAccountOf({ house }: Server): number {
  return house.defaultAccount.id;
}

/** Runs a job at once, as `entrepot jobs run` does. */
export function runJob({ house }: Server, name: string, options?: Partial<Omit<Work, 'signal'>>): Promise<Counts> {
  return house.jobs.run(name, options);
}

// What a server writes every few seconds, written now.

export function flushUsage({ house }: Server): Promise<void> {
  return house.usage.flush();
}

/** When tokens were last used. */
export function flushTokens({ house }: Server): Promise<void> {
  return house.tokens.flush();
}

/** When upstream content was last used. */
export function flushUses({ house }: Server): Promise<void> {
  return house.entries.flushUses();
}

/** The first upstream in the settings. */
export function firstUpstream({ house }: Server): Upstream {
  return house.upstreams[0]!;
}

export function vulnerabilitiesOf({ house }: Server): UpstreamVulnerabilities {
  return house.vulnerabilities;
}
