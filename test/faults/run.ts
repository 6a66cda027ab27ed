import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { Fault, FaultResult } from './fault.ts';
import { stopMariadb } from './private-mariadb.ts';

// `npm run test:faults`. Runs each fault of this folder, one after the other, and prints a table. Fails if an acknowledged
// push is lost, if content is half-visible, or if a fault cannot be run. `--short` makes few tries and waits less,
// `--tries N` makes at most N, and `--only TEXT` runs the faults whose name contains TEXT.

const usual = 25;
const few = 1;

const { values: options } = parseArgs({
  options: { short: { type: 'boolean', default: false }, tries: { type: 'string' }, only: { type: 'string' } },
});
const tries = Number(options.tries ?? (options.short ? few : usual));
// The processes of the faults end with this one.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(130));
try {
  process.exitCode = await main();
} finally {
  await stopMariadb();
}

async function main(): Promise<number> {
  const faults = (await loadFaults()).filter(({ name }) => options.only === undefined || name.includes(options.only));
  if (faults.length === 0) {
    console.error('No fault has this name.');
    return 1;
  }
  const rows: string[][] = [['fault', 'tries', 'acknowledged', 'lost', 'half-visible', 'recovery', 'notes']];
  let failed = false;
  for (const fault of faults) {
    const { name } = fault;
    const startedAt = performance.now();
    try {
      const result = await fault.run({ tries, short: options.short });
      if (result.lost > 0 || result.halfVisible > 0) failed = true;
      rows.push(rowOf(name, result));
    } catch (error) {
      failed = true;
      console.error(error);
      rows.push([
        name,
        '',
        '',
        '',
        '',
        '',
        `failed: ${error instanceof Error ? error.message.split('\n', 1)[0]! : ''}`,
      ]);
    }
    console.log(`${name}: ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
  }
  console.log(`\n${tableOf(rows)}`);
  return failed ? 1 : 0;
}

async function loadFaults(): Promise<Fault[]> {
  const names = (await readdir(import.meta.dirname)).filter((name) => name.endsWith('.ts') && name !== 'run.ts');
  const modules = await Promise.all(
    names.sort().map(async (name) => (await import(join(import.meta.dirname, name))) as { fault?: Fault }),
  );
  return modules.flatMap(({ fault }) => (fault ? [fault] : []));
}

function rowOf(name: string, result: FaultResult): string[] {
  const { acknowledged, lost, halfVisible, recoveryMs, notes = '' } = result;
  const numbers = [result.tries, acknowledged, lost, halfVisible].map(String);
  return [name, ...numbers, `${(recoveryMs / 1000).toFixed(1)} s`, notes];
}

/** Columns of equal width; numbers are at their right end. */
function tableOf(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const isText = (column: number) => column === 0 || column === widths.length - 1;
  const line = (row: readonly string[]) =>
    row
      .map((text, column) => (isText(column) ? text.padEnd(widths[column]!) : text.padStart(widths[column]!)))
      .join('  ');
  return rows.map((row) => line(row).trimEnd()).join('\n');
}
