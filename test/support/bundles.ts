import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { ExecutionContext } from 'ava';
import type { BundleEntry, BundleHeader } from '../../src/bundle/format.ts';
import { run } from '../../src/cli/commands.ts';
import type { Dialect } from '../../src/database/database.ts';
import { emptyDatabase } from './databases.ts';
import { folderUntilEnd } from './folder.ts';
import { startTestServer, type TestServer } from './server.ts';
import { UpstreamFeed } from './upstreams/upstream-feed.ts';
import { startUpstreamRegistry, type UpstreamRegistry } from './upstreams/upstream-registry.ts';

// Two installations with no way between them but a folder: one that reaches the upstreams, and one that does not.

/** An installation. */
export interface Site {
  data: string;
  /** The settings of its upstreams. */
  upstreams: readonly Record<string, unknown>[];
  /** Runs a command in this process. */
  run(...words: string[]): Promise<{ code: number; stdout: string; stderr: string }>;
  /** As `run`; fails unless the command succeeds. Resolves to what it prints. */
  ok(...words: string[]): Promise<string>;
  /** As `run`; fails if the command succeeds. Resolves to its error. */
  fails(...words: string[]): Promise<string>;
  /** Starts its server, with further settings. */
  serve(settings?: Record<string, unknown>, surroundings?: Parameters<typeof startTestServer>[2]): Promise<TestServer>;
}

/** The places of a test. */
export interface AirGap {
  folder: string;
  feed: UpstreamFeed;
  registry: UpstreamRegistry;
  /** It reaches the upstreams. */
  near: Site;
  /** It reaches nothing. */
  far: Site;
  /** Writes a file into the folder; resolves to its path. */
  file: (name: string, text: string) => Promise<string>;
  /** The path of a name in the folder. */
  path: (name: string) => string;
}

/** Opens a site with its data in `data`. */
export function siteAt(t: ExecutionContext, data: string, upstreams: Site['upstreams'], database?: string): Site {
  const environment = {
    ENTREPOT_DATA: data,
    ENTREPOT_UPSTREAMS: JSON.stringify(upstreams),
    ...(database !== undefined && { ENTREPOT_DATABASE_URL: database }),
  };
  const command: Site['run'] = async (...words) => {
    const output = { stdout: '', stderr: '' };
    const code = await run(words, environment, {
      stdin: Readable.from(['']),
      stdout: { write: (text: string) => (output.stdout += text) },
      stderr: { write: (text: string) => (output.stderr += text) },
      once: () => {},
      on: () => {},
      exit: () => {},
    });
    return { code, ...output };
  };
  return {
    data,
    upstreams,
    run: command,
    ok: async (...words) => {
      const { code, stdout, stderr } = await command(...words);
      if (code !== 0) throw new Error(`${words.join(' ')}: ${stderr}`);
      return stdout;
    },
    fails: async (...words) => {
      const { code, stdout, stderr } = await command(...words);
      t.not(code, 0, `${words.join(' ')}: ${stdout}`);
      return stderr;
    },
    serve: (settings, surroundings) =>
      startTestServer(
        t,
        { data, upstreams, ...(database !== undefined && { database: { url: database } }), ...settings },
        surroundings,
      ),
  };
}

/** Both sites, with the upstreams `feed.test` and `docker.io`. */
export async function startAirGap(
  t: ExecutionContext,
  nearSettings: Record<string, unknown> = {},
  dialect: Dialect = 'sqlite',
): Promise<AirGap> {
  const database = () => (dialect === 'sqlite' ? undefined : emptyDatabase(t, dialect));
  const folder = await folderUntilEnd(t);
  const path = (name: string) => join(folder, name);
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const reachable = [
    feed.as('feed.test', { timeout: '30s', ...nearSettings }),
    registry.settings('docker.io', { default: true, ...nearSettings }),
  ];
  // Nothing listens there, and it is never asked.
  const nowhere = { url: 'http://127.0.0.1:9/', mode: 'offline' };
  const unreachable = reachable.map((each) => ({ ...each, ...nowhere }));
  return {
    folder,
    feed,
    registry,
    path,
    near: siteAt(t, path('near'), reachable, await database()),
    far: siteAt(t, path('far'), unreachable, await database()),
    file: async (name, text) => {
      await writeFile(path(name), text);
      return path(name);
    },
  };
}

/** Keys of the near site, trusted by the far one; resolves to the file of the private key. */
export async function trustedKey({ near, far, path }: AirGap): Promise<string> {
  const key = path('near.key');
  await near.ok('bundle', 'keygen', '--to', key);
  await far.ok('bundle', 'trust', 'add', `${key}.pub`);
  return key;
}

/** An entry of a bundle: a small manifest, unless `changes` says otherwise. */
export function bundleEntry(changes: Partial<BundleEntry> & Pick<BundleEntry, 'digest'>): BundleEntry {
  return {
    protocol: 'oci',
    upstream: 'up.test',
    kind: 'manifest',
    name: 'app',
    reference: 'v1',
    size: 1,
    type: 'text/plain',
    etag: null,
    modified: null,
    attributes: {},
    validated_at: 1,
    seen: [],
    ...changes,
  };
}

/** The header of a bundle for everybody, of one segment or several. */
export function headerOf(
  changes: Pick<BundleHeader, 'segments' | 'blob_count' | 'entry_count' | 'bytes'>,
): BundleHeader {
  return {
    format: 'entrepot-bundle',
    version: 1,
    source: '00000000-0000-4000-8000-000000000000',
    audience: null,
    created_at: 1,
    sequence: 1,
    expires_at: null,
    against: null,
    policy: null,
    ...changes,
  };
}
