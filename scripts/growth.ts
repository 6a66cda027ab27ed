import { parseArgs } from 'node:util';
import { Accounts } from '../src/accounts/accounts.ts';
import { openDatabase } from '../src/database/database.ts';
import { migrate } from '../src/database/migrate.ts';
import { Bench } from './bench/bench.ts';
import { openCloner, type Cloner } from './bench/growth/clones.ts';
import { fill } from './bench/growth/fill.ts';
import { mebibyte } from './bench/processes.ts';
import { timeAll } from './bench/growth/requests.ts';

// Times the requests of each kind to a server among very many rows: `node scripts/growth.ts --packages 100000`. A package
// has ten versions. `--tags` is the number of tags, by default as many as versions; `--database` is mysql or sqlite.

const { values: flags } = parseArgs({
  options: {
    packages: { type: 'string', default: '100000' },
    tags: { type: 'string' },
    database: { type: 'string', default: 'mysql' },
  },
});
const packages = Number(flags.packages);
const tags = Number(flags.tags ?? packages * 10);
/** Memory of MariaDB and size of its log, in MiB, while rows are inserted and while requests are timed. */
const memory = { fill: { buffers: 10_240, log: 4096 }, time: { buffers: 1024, log: 256 } };
const dialect = flags.database === 'sqlite' ? 'sqlite' : 'mysql';

const bench = await Bench.open(false, 'embedded');
try {
  const place = await bench.place('growth', dialect);
  const database = await openDatabase(place.databaseUrl);
  await migrate(database);
  await new Accounts(database, Date.now).ensureDefault();
  await database.close();
  const first = await bench.serve(place);
  const cloner = await openCloner(place.databaseUrl);
  // SQLite has one writer at a time.
  const second = dialect === 'mysql' ? await openCloner(place.databaseUrl) : cloner;
  const start = performance.now();
  if (dialect === 'mysql') await setMemory(cloner, memory.fill);
  await fill(cloner, second, first, { packages, tags });
  await first.stop();
  if (dialect === 'mysql') {
    await analyze(cloner);
    await setMemory(cloner, memory.time);
    await second.close();
  }
  await cloner.close();
  process.stdout.write(`filled in ${((performance.now() - start) / 1000).toFixed(0)} s\n`);
  await timeAll(await bench.serve(place), place.databaseUrl, { packages, tags });
} finally {
  await bench.close();
}

/** MariaDB writes changed pages only when its log is full. With the small log of the tests, it would write each page many times. */
async function setMemory(cloner: Cloner, { buffers, log }: { buffers: number; log: number }): Promise<void> {
  await cloner.run(`SET GLOBAL innodb_buffer_pool_size = ${buffers * mebibyte}`);
  await cloner.run(`SET GLOBAL innodb_log_file_size = ${log * mebibyte}`);
}

async function analyze(cloner: Cloner): Promise<void> {
  for (const table of [
    'packages',
    'package_versions',
    'package_terms',
    'package_blobs',
    'blobs',
    'repositories',
    'manifests',
    'tags',
    'repository_blobs',
    'manifest_references',
    'events',
  ])
    await cloner.run(`ANALYZE TABLE ${table}`);
}
