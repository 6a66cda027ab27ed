import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { glob, mkdir, readFile, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { clientCommands, clientVersions, toolCommands } from '../test/support/clients/clients.ts';
import { serviceCommands, startServices } from '../test/support/processes/services.ts';
import { writeSchemas } from '../test/support/schema-copy.ts';
import { swiftCommands } from '../test/support/processes/swift.ts';
import { describeMissing, ensureCommands } from './packages.ts';

// `npm test`, `npm run test:clients`, `npm run test:mutants`, `npm run test:faults`. Gives the run a MySQL and a Redis
// server (those named by ENTREPOT_TEST_DATABASE_URL and ENTREPOT_TEST_REDIS_URL, or private ones in a temporary folder),
// then runs ava, or the program that runs mutants or faults.

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const avaEntry = join(root, 'node_modules', '.bin', 'ava');
const args = process.argv.slice(2);
const programs: Record<string, string> = { mutants: 'test/mutants/run.ts', faults: 'test/faults/run.ts' };
const kind = args[0] === 'clients' || Object.hasOwn(programs, args[0] ?? '') ? args.shift()! : 'tests';
/** `--long` runs the files *.long.test.ts. Without it, and without names of files, all others run. */
const isLong = !Object.hasOwn(programs, kind) && args[0] === '--long';
if (isLong) args.shift();

// Short, because it contains sockets; in lower case, because podman makes image names from its path.
const name = `entrepot-${randomBytes(4).toString('hex')}`;
// Each test has its own database, and creates one in a tenth of the time in memory. The stores of container clients need
// a disk.
const folder = join(kind === 'clients' ? tmpdir() : await memoryOr(tmpdir()), name);
await mkdir(folder, { mode: 0o700 });
const running = new Set<ChildProcess>();
let interrupted: NodeJS.Signals | undefined;
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.on(signal, () => {
    interrupted = signal;
    for (const each of running) each.kill(signal);
  });

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`entrepot: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}
if (interrupted !== undefined) process.exitCode = 130;

async function main(): Promise<number> {
  const services = await servicesForRun();
  try {
    await writeSchemas(folder, services.env.ENTREPOT_TEST_DATABASE_URL);
    services.env.ENTREPOT_TEST_SCHEMAS = folder;
    if (kind === 'clients') return await avaWithClients(services.env);
    const program = programs[kind];
    if (program !== undefined) return await run(join(root, program), args, services.env);
    return args.length === 0 ? await avaFromFewFiles(services.env) : await run(avaEntry, args, services.env);
  } finally {
    await services.stop();
  }
}

/** The folder of Linux that is kept in memory, if it has room for all tests; else `other`. */
async function memoryOr(other: string): Promise<string> {
  const inMemory = '/dev/shm';
  const free = await statfs(inMemory).then(
    ({ bavail, bsize }) => bavail * bsize,
    () => 0,
  );
  return free >= 8 * 1024 ** 3 ? inMemory : other;
}

async function servicesForRun(): Promise<{ env: NodeJS.ProcessEnv; stop(): Promise<void> }> {
  const { ENTREPOT_TEST_DATABASE_URL: database, ENTREPOT_TEST_REDIS_URL: redis } = process.env;
  if (database !== undefined && redis !== undefined) return { env: { ...process.env }, stop: async () => {} };

  const commands = await ensureCommands(serviceCommands);
  if (commands.missing.length > 0)
    throw new Error(
      `${describeMissing(commands)}; install them, or set ENTREPOT_TEST_DATABASE_URL and ENTREPOT_TEST_REDIS_URL`,
    );
  const services = await startServices(folder, commands.paths);
  const env = {
    ...process.env,
    ENTREPOT_TEST_DATABASE_URL: database ?? services.databaseUrl,
    ENTREPOT_TEST_REDIS_URL: redis ?? services.redisUrl,
  };
  return { env, stop: () => services.stop() };
}

/** Runs all long tests, or all others: made into few files. See `buildTests`. */
async function avaFromFewFiles(env: NodeJS.ProcessEnv): Promise<number> {
  const { buildTests } = await import('./build-tests.ts');
  const built = `.cache/tests/${name}`;
  try {
    await buildTests(join(root, built), isLong);
    return await run(avaEntry, ['--config', 'scripts/ava-built.config.js'], { ...env, ENTREPOT_TEST_BUILT: built });
  } finally {
    await rm(join(root, built), { recursive: true, force: true });
  }
}

async function avaWithClients(env: NodeJS.ProcessEnv): Promise<number> {
  const commands = await ensureCommands({ ...toolCommands, ...clientCommands, ...swiftCommands });
  if (commands.missing.length > 0) console.error(`entrepot: ${describeMissing(commands)}; their tests are skipped`);

  const used = join(folder, 'clients-used');
  const ava = (files: string[]) =>
    run(avaEntry, ['--config', 'scripts/ava-clients.config.js', ...files], {
      ...env,
      ENTREPOT_TEST_CLIENTS_USED: used,
    });
  const codes = await Promise.all(args.length > 0 ? [ava(args)] : (await halvesOfClientTests()).map(ava));
  await reportClients(used);
  return Math.max(...codes);
}

/** The test files with clients, long ones or all others, in two parts: a client waits so often that two run in much less time. */
async function halvesOfClientTests(): Promise<string[][]> {
  const files: string[] = [];
  for await (const file of glob('test/{browser,clients}/**/*.test.ts', { cwd: root }))
    if (file.endsWith('.long.test.ts') === isLong) files.push(file);
  const half = (part: number) => files.toSorted().filter((_, index) => index % 2 === part);
  return [half(0), half(1)];
}

/** Prints which real clients the run used, and which it did not. */
async function reportClients(usedFile: string): Promise<void> {
  const used = new Set((await readFile(usedFile, 'utf8').catch(() => '')).split('\n'));
  const versions = await clientVersions();
  const lines = [...versions].map(([name, version]) => {
    if (version === undefined) return `  ${name}: not installed`;
    return `  ${name}: ${version}${used.has(name) ? '' : ' (not used in this run)'}`;
  });
  console.log(`Clients:\n${lines.join('\n')}`);
}

function run(entry: string, itsArgs: string[], env: NodeJS.ProcessEnv): Promise<number> {
  if (interrupted !== undefined) return Promise.resolve(130);
  // The temporary files of the tests are deleted together with the folder of the run.
  const child = spawn(process.execPath, [entry, ...itsArgs], {
    cwd: root,
    // Each process of tests loads the whole server, which takes half as long with the cache.
    env: { ...env, TMPDIR: folder, NODE_COMPILE_CACHE: join(folder, 'compile-cache') },
    stdio: 'inherit',
  });
  running.add(child);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => {
      running.delete(child);
      resolve(code ?? 1);
    });
  });
}
