import { runImport } from '../import/import.ts';
import { importOutcomes, type ImportOutcome } from '../import/item.ts';
import type { ImportLine, ImportReport } from '../import/report.ts';
import { DomainError } from '../runtime/errors.ts';
import { jsonLines } from './new-file.ts';
import { row, shown } from './printed.ts';
import { binaryBytes, ProgressBar } from './progress.ts';
import type { Terminal } from './with-installation.ts';

/** What the summary calls each outcome, and an outcome of an assessment; one that is not here does not occur. */
export type ReportWords = Partial<Record<ImportOutcome, [done: string, planned: string]>> & { problems: string };

interface RunFlags {
  concurrency: number;
  rate?: number;
  report?: string;
}

/** Runs an import, or an export, with a bar of progress and a report in a file. */
export async function reportedRun(
  begin: Parameters<typeof runImport>[0],
  { concurrency, rate, report }: RunFlags,
  {
    controller,
    terminal,
    ...more
  }: Pick<Parameters<typeof runImport>[1], 'onLine' | 'other'> & { controller: AbortController; terminal: Terminal },
): Promise<ImportReport> {
  const lines = await jsonLines(report, () => controller.abort());
  const bar = new ProgressBar(terminal.screen);
  const result = await runImport(begin, {
    concurrency,
    rate,
    signal: controller.signal,
    watch: (progress) => bar.show(progress),
    ...more,
    onLine: (line) => {
      lines.write(lineOf(line));
      more.onLine?.(line);
    },
  }).finally(() => bar.clear());
  await lines.end();
  return result;
}

/** A line of the report in a file. */
function lineOf({ name, reference, outcome, bytes, note, alsoAt }: ImportLine): object {
  return {
    name,
    reference,
    outcome,
    bytes,
    ...(note !== undefined && { note }),
    ...(alsoAt !== undefined && { upstream: alsoAt }),
  };
}

/** Prints the summary to stdout and what needs a person to stderr. Throws if something does, or if the source was not read whole. */
export function printReport(report: ImportReport, words: ReportWords, dryRun: boolean, terminal: Terminal): void {
  const { counts, warnings, alsoAt, problems, problemCount, stopped } = report;
  for (const outcome of importOutcomes) {
    const { count: number, bytes } = counts[outcome];
    const [done, planned] = words[outcome] ?? [];
    if (done === undefined) continue;
    if (outcome === 'updated' && number === 0) continue;
    const size = bytes > 0 ? ` (${binaryBytes(bytes)})` : '';
    terminal.stdout.write(`${dryRun ? planned : done}: ${number}${size}\n`);
  }
  for (const [name, upstream] of alsoAt) terminal.stdout.write(row('upstreams have it, too', name, upstream));
  for (const each of warnings) terminal.stderr.write(`warning: ${shown(each)}\n`);
  for (const { name, reference, outcome, note = '' } of problems)
    terminal.stderr.write(`${outcome}: ${shown(`${name} ${reference}`.trim())}: ${shown(note.replace(/\.$/, ''))}\n`);
  if (problemCount > problems.length)
    terminal.stderr.write(`and ${problemCount - problems.length} more; --report writes all of them\n`);
  if (stopped !== undefined)
    throw new DomainError(
      'Aborted',
      `stopped before the end: ${stopped.replace(/\.$/, '')}; run the same command again to continue`,
    );
  if (problemCount > 0) throw new DomainError('Invalid', `${problemCount} ${words.problems}`);
}
