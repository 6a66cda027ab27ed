import type { ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { temporaryDatabase } from './databases.ts';
import { startTestServer, type TestServer } from './server.ts';
import { UpstreamFeed } from './upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from './upstreams/upstream-registry.ts';

// A server whose clock stands still, for tests of ages.

/** In milliseconds. */
export const day = 86_400_000;
/** The time of the server; milliseconds since 1970 UTC. */
export const now = Date.parse('2026-11-25T12:00:00Z');
export const ago = (days: number) => new Date(now - days * day).toISOString();

/** A server with a feed and a registry as upstreams, at the time `now`. */
export async function startMirrors(t: ExecutionContext, dialect: Dialect = 'sqlite') {
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    database: { url: await temporaryDatabase(t, dialect) },
    upstreams: [feed.as('feed.test'), registry.settings('registry.test', { freshFor: '1s' })],
  });
  server.clock.now = now;
  return { feed, registry, server };
}

/** Sends a policy, as a client does. */
export function putPolicy(
  server: TestServer,
  policy: object,
  { layer = 'all', token = server.token } = {},
): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return server.fetch(`/v1/policy?layer=${layer}`, { method: 'PUT', headers, body: JSON.stringify(policy), token });
}

/** The versions that clients see of a package. */
export async function versionsOf(server: TestServer, id: string, token = server.token): Promise<string[]> {
  const response = await server.fetch(`/v3/package/${id}/index.json`, { token });
  return response.status === 404 ? [] : ((await response.json()) as { versions: string[] }).versions;
}
