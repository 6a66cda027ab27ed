import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';
import { pino } from 'pino';
import type { Database, Dialect } from '../../src/database/database.ts';
import { Events } from '../../src/events/events.ts';
import type { ListLimits } from '../../src/known-bad/entry.ts';
import type { ContentInUse } from '../../src/known-bad/in-use.ts';
import { KnownBad } from '../../src/known-bad/known-bad.ts';
import type { ListSettings } from '../../src/known-bad/list-settings.ts';
import { ListRefresh } from '../../src/known-bad/refresh.ts';
import { Paths } from '../../src/storage/files/paths.ts';
import { StagedFile } from '../../src/storage/files/staged-file.ts';
import { openUntilEnd, temporaryDatabase } from './databases.ts';
import { folderUntilEnd } from './folder.ts';

type Test = Pick<ExecutionContext, 'teardown'>;

export const hour = 3_600_000;

/** A list with the usual settings. */
export function listOf(more: Partial<ListSettings> & Pick<ListSettings, 'name'>): ListSettings {
  return { refresh: 6 * hour, ids: ['MAL-*'], except: [], mode: 'enforce', allowPrivateNetwork: true, ...more };
}

/** A record in OSV's format; without `events`, all versions of the package. */
export function osv(id: string, name: string, more: Record<string, unknown> = {}): Record<string, unknown> {
  const ranges = [{ type: 'SEMVER', events: [{ introduced: '0' }] }];
  const affected = [{ package: { ecosystem: 'NuGet', name }, ranges }];
  return {
    schema_version: '1.7.0',
    id,
    modified: '2026-05-01T00:00:00Z',
    summary: `${name} is malware`,
    affected,
    ...more,
  };
}

/** One record a line. */
export function linesOf(records: readonly unknown[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join('');
}

export interface TestLists {
  readonly knownBad: KnownBad;
  url: string;
  database: Database;
  /** The configured lists, and other bounds than those of the product; may be changed. */
  lists: ListSettings[];
  limits: Partial<ListLimits>;
  /** Milliseconds since 1970. */
  clock: { now: number };
  /** What clients use. */
  content?: ContentInUse;
  /** Where downloads are staged. */
  staging: string;
  /** Runs the job once; resolves to its counts that are not 0. `database` stands for another process. */
  refresh(database?: Database, signal?: AbortSignal): Promise<Record<string, number>>;
  /** The IDs of the entries for a package. */
  idsOf(name: string): Promise<string[]>;
  /** What was recorded, `type name details`, oldest first. */
  events(): Promise<string[]>;
}

/** The lists of known bad content on a database of their own, without a server. */
export async function openLists(
  t: Test,
  dialect: Dialect,
  lists: ListSettings[],
  { limits = {}, offline = false }: { limits?: Partial<ListLimits>; offline?: boolean } = {},
): Promise<TestLists> {
  const url = await temporaryDatabase(t, dialect);
  const database = await openUntilEnd(t, url);
  const paths = new Paths(await folderUntilEnd(t));
  await mkdir(paths.staging);
  const clock = { now: Date.UTC(2026, 5, 1) };
  const record = new Events(database, () => Promise.resolve(undefined));
  const opened: TestLists = {
    get knownBad() {
      return new KnownBad(database, () => Promise.resolve(opened.lists));
    },
    url,
    database,
    lists,
    limits,
    clock,
    staging: paths.staging,
    refresh: async (on = database, signal = new AbortController().signal) => {
      const refresh = new ListRefresh({
        database: on,
        lists: () => Promise.resolve(opened.lists),
        stage: () => StagedFile.create(paths),
        proxy: {},
        offline,
        log: pino({ level: 'silent' }),
        now: () => clock.now,
        limits: opened.limits,
        isAffected: () => true,
      });
      const counts = await refresh.run({ signal, say: () => undefined }, opened.content);
      return Object.fromEntries(Object.entries(counts).filter(([, count]) => count !== 0));
    },
    idsOf: async (name) => (await opened.knownBad.of('package', name)).map(({ id }) => id),
    events: async () => {
      await record.dispatch();
      const { events } = await record.listFrom({ type: 'known_bad.*' }, 100);
      return events.map(({ type, subject, details }) => `${type} ${subject.name} ${JSON.stringify(details)}`);
    },
  };
  return opened;
}

export interface ListServer {
  url: string;
  /** Requests so far. */
  requests: IncomingMessage[];
  answer: (request: IncomingMessage, response: ServerResponse) => void;
}

/** A server of lists on loopback, which answers as `answer` says. It is closed when the test ends. */
export async function startListServer(t: Test, answer: ListServer['answer']): Promise<ListServer> {
  const list: ListServer = { url: '', requests: [], answer };
  const server = createServer((request, response) => {
    list.requests.push(request);
    list.answer(request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  list.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return list;
}
