import { checkAnswer } from './documented.ts';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import type { ExecutionContext } from 'ava';
import { pino } from 'pino';
import { schema, type Config } from '../../src/config/schema.ts';
import type { Surroundings } from '../../src/server/core.ts';
import { healthTimes } from '../../src/http/health.ts';
import type { Protocol } from '../../src/server/protocol.ts';
import { startServer, type RunningServer } from '../../src/server/server.ts';
import { allProtocols } from '../../src/server/installation.ts';
import { patientLimits } from './databases.ts';
import { copySchema } from './schema-copy.ts';
import { testClock, type TestClock } from './clock.ts';

export interface TestServer extends RunningServer {
  /** A token of account `default` with every scope. */
  token: string;
  data: string;
  /** Log lines so far. */
  lines: string[];
  /** `fetch` on this server with the token. `init.token` sets another token, or null for none. */
  fetch(path: string, init?: RequestInit & { token?: string | null; duplex?: 'half' }): Promise<Response>;
  clock: TestClock;
}

/** A check of readiness, too. test/http/readiness.test.ts has shorter times. */
export const patientHealth = { ...healthTimes, limit: 20_000 };

/** Tests run jobs themselves, so that no schedule interferes. */
const noJobs = Object.fromEntries(Object.keys(schema.parse({}).jobs).map((name) => [name, 'off']));

interface MoreOptions {
  protocols?: readonly Protocol[];
  /** Changes the parsed settings. */
  change?: (config: Config) => void;
}

/** A whole server of this project on a free port with a new data folder. It is closed when the test ends. */
export async function startTestServer(
  t: Pick<ExecutionContext, 'teardown'>,
  settings: Record<string, unknown> = {},
  surroundings: Pick<
    Surroundings,
    | 'driver'
    | 'disk'
    | 'watch'
    | 'databaseLimits'
    | 'healthTimes'
    | 'redisTimeout'
    | 'receivers'
    | 'judge'
    | 'droppedLines'
    | 'instanceName'
    | 'instanceTimes'
    | 'requirementBounds'
    | 'searchWait'
  > = {},
  clock = testClock(),
  { protocols = allProtocols, change }: MoreOptions = {},
): Promise<TestServer> {
  const data = (settings['data'] as string | undefined) ?? (await mkdtemp(join(tmpdir(), 'entrepot-test-')));
  if (settings['data'] === undefined && settings['database'] === undefined)
    await copySchema(`sqlite:${join(data, 'entrepot.db')}`);
  const token = 'bootstrap-token-of-a-test-server';
  const server = { host: '127.0.0.1', port: 0, ...(settings['server'] as object | undefined) };
  const config: Config = schema.parse({
    bootstrapToken: token,
    upstreams: [],
    jobs: noJobs,
    // Tests of deletions look at what is left. test/permanence has the window of new installations.
    deletedFor: '0s',
    ...settings,
    data,
    server,
  });
  change?.(config);
  const lines: string[] = [];
  const log = pino(
    { level: config.log.level },
    new Writable({
      write: (chunk, _encoding, done) => {
        lines.push(String(chunk));
        done();
      },
    }),
  );
  const running = await startServer(
    config,
    {
      log,
      now: clock.time,
      // Tests have clocks of their own.
      requirementBounds: { clock: Infinity, patience: 0 },
      proxy: {},
      databaseLimits: patientLimits,
      healthTimes: patientHealth,
      // A busy machine needs longer than the times of the product. test/nuget/feed/mirror-search.test.ts has that of searches.
      searchWait: 60_000,
      // A busy machine needs longer than the times of the product, which test/cli/shutdown.long.test.ts holds.
      closingTimes: { part: 20_000, all: 30_000 },
      ...surroundings,
    },
    protocols,
  );
  let closed = false;
  const close = async (grace = 1000) => {
    if (closed) return;
    closed = true;
    await running.close(grace);
  };
  t.teardown(async () => {
    await close();
    if (settings['data'] === undefined) await rm(data, { recursive: true, force: true });
  });
  return {
    ...running,
    close,
    token,
    data,
    lines,
    clock,
    fetch: async (path, { token: other, ...init } = {}) => {
      const headers = new Headers(init.headers);
      const value = other === undefined ? token : other;
      if (value !== null && !headers.has('authorization')) headers.set('authorization', `Bearer ${value}`);
      const response = await fetch(running.url + path, { redirect: 'manual', ...init, headers });
      await checkAnswer(path, init.method ?? 'GET', response);
      return response;
    },
  };
}
