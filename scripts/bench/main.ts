import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ensureCommands } from '../packages.ts';
import { Bench } from './bench.ts';
import { beside } from './parts/beside.ts';
import { blobs } from './parts/blobs.ts';
import { bundles } from './parts/bundles.ts';
import { cluster } from './parts/cluster.ts';
import { consolePages } from './parts/console.ts';
import { growth } from './parts/growth.ts';
import { imports } from './parts/imports.ts';
import { manifests } from './parts/manifests.ts';
import { mirror } from './parts/mirror.ts';
import { packages } from './parts/packages.ts';
import { policy } from './parts/policy.ts';
import { pushes } from './parts/pushes.ts';
import { restore } from './parts/restore.ts';
import { rights } from './parts/rights.ts';
import { s3 } from './parts/s3.ts';
import { search } from './parts/search.ts';
import { sizes } from './parts/sizes.ts';
import { start } from './parts/start.ts';
import { trips } from './parts/trips.ts';
import { results } from './report.ts';

// Measures this server and the installed peers in one run, in turn, with the same client. `--quick` for a short run,
// `--only` for one part, `--production` for this server with two workers, MariaDB and Redis. The part `sizes` runs only when
// it is named: with `--minutes` of the busy hour, and with `--size` for one size.

const { values: flags } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    production: { type: 'boolean', default: false },
    minutes: { type: 'string' },
    size: { type: 'string' },
  },
});
const parts = {
  manifests,
  blobs,
  beside,
  pushes,
  packages,
  imports,
  mirror,
  search,
  console: consolePages,
  start,
  growth,
  restore,
  policy,
  rights,
  bundles,
  cluster,
  trips,
  s3,
};
const named = {
  ...parts,
  sizes: (bench: Bench) =>
    sizes(bench, { minutes: flags.minutes === undefined ? undefined : Number(flags.minutes), only: flags.size }),
};
const chosen = Object.entries(flags.only === undefined ? parts : named).filter(
  ([name]) => flags.only === undefined || flags.only === name,
);
if (chosen.length === 0) throw new Error(`--only takes one of ${Object.keys(named).join(', ')}`);

await ensureCommands({ 'docker-registry': 'docker-registry', nginx: 'nginx-light', wrk: 'wrk' });
const bench = await Bench.open(flags.quick, flags.production ? 'production' : 'embedded');
try {
  for (const [, part] of chosen) {
    await part(bench);
    await bench.endPart();
  }
  await mkdir('bench-results', { recursive: true });
  const file = join('bench-results', `${new Date().toISOString().replaceAll(':', '-')}.json`);
  await writeFile(file, JSON.stringify(results(bench.setting), null, 1));
  process.stdout.write(`\nkept in ${file}\n`);
} finally {
  await bench.close();
}
