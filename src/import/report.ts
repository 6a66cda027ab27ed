import { importOutcomes, type ImportItem, type ImportOutcome, type ImportResult } from './item.ts';

/** What is kept of each list; the report in a file has everything. */
const kept = 1000;

/** An item with its result. `reference` is empty for a whole name that cannot be read. */
export type ImportLine = Pick<ImportItem, 'name' | 'reference'> & ImportResult;

/** The results of an import. */
export class ImportReport {
  readonly counts = Object.fromEntries(importOutcomes.map((each) => [each, { count: 0, bytes: 0 }])) as Record<
    ImportOutcome,
    { count: number; bytes: number }
  >;
  /** The first conflicts and failures. */
  readonly problems: ImportLine[] = [];
  /** The first names that upstreams of this server have, too, with the upstream. */
  readonly alsoAt = new Map<string, string>();
  /** Sentences about the whole source. */
  readonly warnings: string[] = [];
  /** Why it ended before everything was read; undefined if it did not. */
  stopped: string | undefined;

  add(line: ImportLine): void {
    const tally = this.counts[line.outcome];
    tally.count += 1;
    tally.bytes += line.bytes;
    if (isProblem(line) && this.problems.length < kept) this.problems.push(line);
    if (line.alsoAt !== undefined && this.alsoAt.size < kept) this.alsoAt.set(line.name, line.alsoAt);
  }

  /** Conflicts and failures. */
  get problemCount(): number {
    return this.counts.conflict.count + this.counts.failed.count;
  }

  get ended(): number {
    return importOutcomes.reduce((sum, each) => sum + this.counts[each].count, 0);
  }
}

function isProblem({ outcome }: Pick<ImportLine, 'outcome'>): boolean {
  return outcome === 'conflict' || outcome === 'failed';
}
