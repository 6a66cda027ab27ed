import { pino } from 'pino';
import { openDatabase } from '../../../src/database/database.ts';
import { Jobs } from '../../../src/jobs/jobs.ts';
import { Runs } from '../../../src/jobs/runs.ts';
import { Schedule } from '../../../src/jobs/schedule.ts';

// An instance with one job, `endless`, which is due every second and never ends. Writes a line when a run has started.

const [url = '', lease = ''] = process.argv.slice(2);
const database = await openDatabase(url);
const run = async () => {
  process.stdout.write('begun\n');
  await new Promise(() => setInterval(() => undefined, 1000));
  return {};
};
new Jobs({
  runs: new Runs(database, Date.now, database.processes && (() => database.processes!)),
  jobs: [{ name: 'endless', summary: '', schedule: new Schedule('* * * * * *'), canDryRun: false, run }],
  log: pino({ level: 'silent' }),
  now: Date.now,
  tick: 20,
  jitter: 0,
  lease: Number(lease),
}).start();
setInterval(() => undefined, 1000);
