import type { ExecutionContext } from 'ava';
import { startTestServer, type TestServer } from './server.ts';

/** A server that is replaced, and the one that replaces it. */
export interface Moving {
  old: TestServer;
  here: TestServer;
}

/** `old` is the predecessor of `here` for packages and images, with the names `old-feed` and `old-images`. */
export async function startMoving(
  t: ExecutionContext,
  settings: Record<string, unknown> = {},
  more: object = {},
): Promise<Moving> {
  const old = await startTestServer(t);
  const auth = { bearer: old.token };
  const predecessors = [
    { name: 'old-feed', kind: 'nuget', url: `${old.url}/v3/index.json`, auth, ...more },
    { name: 'old-images', kind: 'registry', url: old.url, auth, ...more },
  ];
  return { old, here: await startTestServer(t, { predecessors, ...settings }) };
}

/** Reads only the names that predecessors have, as the job does first. */
export async function readNames({ installation }: Pick<TestServer, 'installation'>): Promise<void> {
  await installation.takeover.walk({ signal: new AbortController().signal, say: () => undefined }, true);
}
