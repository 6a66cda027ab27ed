import type { TokenUses } from '../../src/usage/token-uses.ts';
import type { FailedRequests } from '../../src/usage/failed-requests.ts';
import type { Patterns } from '../../src/accounts/names.ts';
import type { Token } from '../../src/accounts/token-rows.ts';
import type { Core } from '../../src/server/core.ts';
import type { Database, Row, Value } from '../../src/database/database.ts';
import type { Events } from '../../src/events/events.ts';
import type { Counts } from '../../src/jobs/runs.ts';
import type { Work } from '../../src/jobs/jobs.ts';
import type { Digest } from '../../src/runtime/digest.ts';
import { StoredRegistrations } from '../../src/nuget/upstream/stored-registrations.ts';
import type { UpstreamVulnerabilities } from '../../src/nuget/upstream/upstream-vulnerabilities.ts';
import { PackageFeed } from '../../src/nuget/protocol.ts';
import { ContainerRegistry } from '../../src/oci/protocol.ts';
import { noteDeleted } from '../../src/permanence/deleted.ts';
import { allAccounts } from '../../src/policy/policies.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import type { TestServer } from './server.ts';

// Access to a running server for tests that cannot use HTTP. Only this file uses the internals of a server.

type Server = Pick<TestServer, 'installation'>;

function coreOf({ installation }: Server): Core {
  return installation.core;
}

export function usesOf(server: Server): TokenUses {
  return coreOf(server).uses;
}

export function failuresOf(server: Server): FailedRequests {
  return coreOf(server).failures;
}

export function databaseOf(server: Server): Database {
  return coreOf(server).database;
}

export function rowsOf<T extends object = Row>(server: Server, sql: string): Promise<T[]> {
  return databaseOf(server).select<T>(sql);
}

/** Replaces the policy of all accounts, as a command does. */
export async function applyPolicy(server: Server, policy: object): Promise<void> {
  await coreOf(server).policies.put(allAccounts, policy, 'command');
}

/** A new token with `scopes` in the account with this name, which is created without an event if it does not exist. */
export async function createToken(
  server: Server,
  scopes: readonly string[],
  account = 'default',
  patterns?: Patterns,
  value?: string,
): Promise<{ token: Token; value: string }> {
  const { accounts, database, tokens } = coreOf(server);
  const row = { name: account, created_at: Date.now() };
  if (!(await accounts.named(account))) await database.transaction((tx) => tx.insertNew('accounts', [row]));
  const { id } = (await accounts.named(account))!;
  return tokens.create(id, { name: 'a test', scopes, patterns, ...(value !== undefined && { value }) });
}

/** As above, only the value of the token. */
export async function tokenOf(server: Server, scopes: readonly string[], account?: string): Promise<string> {
  return (await createToken(server, scopes, account)).value;
}

/** The row id of the account `default`. */
export function defaultAccountOf(server: Server): number {
  return coreOf(server).defaultAccount.id;
}

/** A deleted tag of the account `default` that can be restored; resolves to the number of the deletion. */
export function noteDeletedTag(
  server: Server,
  tag: { name: string; reference: string; digest: string },
): Promise<number> {
  const what = { ...tag, accountId: defaultAccountOf(server), kind: 'container', type: 'tag', size: 0 } as const;
  return databaseOf(server).transaction((tx) => noteDeleted(tx, what, { now: Date.now(), deletedFor: 86_400_000 }));
}

/** Runs a job at once, as `entrepot jobs run` does. */
export function runJob(
  { installation }: Server,
  name: string,
  options?: Partial<Omit<Work, 'signal'>>,
): Promise<Counts> {
  return installation.jobs.run(name, options);
}

// Write now the data that a server writes every few seconds.

export function flushUsage(server: Server): Promise<void> {
  return coreOf(server).usage.flush();
}

/** When tokens were last used. */
export function flushTokens(server: Server): Promise<void> {
  return coreOf(server).tokens.flush();
}

/** When upstream content was last used. */
export function flushUses(server: Server): Promise<void> {
  return coreOf(server).entries.flushUses();
}

/** The first upstream in the settings. */
export function firstUpstream(server: Server): Upstream {
  return coreOf(server).upstreams[0]!;
}

/** Ends all flights of the mirror. */
export function closeMirror(server: Server): Promise<void> {
  return coreOf(server).mirror.close();
}

export function packageFeedOf({ installation }: Server): PackageFeed {
  return installation.protocols.find((each) => each instanceof PackageFeed)!;
}

export function containerRegistryOf({ installation }: Server): ContainerRegistry {
  return installation.protocols.find((each) => each instanceof ContainerRegistry)!;
}

/** Replaces what `/v1/account` asks for. */
export function failAccounts(server: Server, fail: () => never | Promise<never>): void {
  coreOf(server).accounts.get = async () => fail();
}

/** Each look for a token fails with `fail`. */
export function failTokens(server: Server, fail: () => Promise<never>): void {
  coreOf(server).tokens.verify = fail;
}

/** No token can be created: that fails with `error`. */
export function failNewTokens(server: Server, error: Error): void {
  coreOf(server).tokens.create = () => Promise.reject(error);
}

/** One that has read nothing yet. `opened` gets the digest of each document that it opens. */
export function newStoredRegistrations(server: Server, opened?: (digest: Digest) => unknown): StoredRegistrations {
  const { database, blobs } = coreOf(server);
  const open: typeof blobs.open = async (digest, size) => {
    await opened?.(digest);
    return blobs.open(digest, size);
  };
  return new StoredRegistrations({ database, blobs: Object.create(blobs, { open: { value: open } }) as typeof blobs });
}

export async function vulnerabilitiesOf(server: Server): Promise<UpstreamVulnerabilities> {
  return (await packageFeedOf(server).views.of(defaultAccountOf(server))).vulnerabilities;
}

/**
 * Runs `meanwhile` once, after the next read outside of transactions whose SQL contains `text`, and before its result is
 * used: as another request would that is faster than the work which reads.
 */
export function afterRead(server: Server, text: string, meanwhile: () => Promise<unknown>): void {
  const database = databaseOf(server);
  const select = database.select.bind(database);
  database.select = async <T extends object = Row>(sql: string, values?: readonly Value[]) => {
    const rows = await select<T>(sql, values);
    if (sql.includes(text)) {
      database.select = select;
      await meanwhile();
    }
    return rows;
  };
}

/** Resolves after the next read of one row outside of transactions whose SQL contains `text`. */
export function afterGet(server: Server, text: string): Promise<void> {
  const database = databaseOf(server);
  const get = database.get.bind(database);
  const { promise, resolve } = Promise.withResolvers<void>();
  database.get = async <T extends object = Row>(sql: string, values?: readonly Value[]) => {
    const row = await get<T>(sql, values);
    if (sql.includes(text)) {
      database.get = get;
      setImmediate(resolve);
    }
    return row;
  };
  return promise;
}

/** Writes the repeated events, such as failed sign-ins, whose period is over; with `all`, all of them. */
export function flushEvents(server: Server, all = false): Promise<void> {
  return coreOf(server).repeatedEvents.flush(all);
}

/** The record of events, without positions for new ones until `dispatch`. */
export function eventsOf(server: Server): Events {
  return coreOf(server).events;
}

/** Makes the bills of materials of images that jobs pushed. */
export function makeBills({ installation }: Server): Promise<void> {
  return installation.bills.run();
}
