/** How often a command of one kind was run, and at which attempt it succeeded. */
export interface Counts {
  runs: number;
  first: number;
  second: number;
  later: number;
  failed: number;
}

const mostAttempts = 4;

/** Runs commands of clients; a failed one is run again, as a user or a CI would do. */
export class Commands {
  readonly counts = new Map<string, Counts>();
  /** One line for each attempt that failed. */
  readonly failures: string[] = [];

  /**
   * Resolves to whether one of four attempts succeeded. `again` is the command for the attempts after the first; a push says
   * there that the package may already exist.
   */
  async run(kind: string, command: () => Promise<unknown>, again = command): Promise<boolean> {
    const counts = this.counts.get(kind) ?? { runs: 0, first: 0, second: 0, later: 0, failed: 0 };
    this.counts.set(kind, counts);
    counts.runs += 1;
    for (let attempt = 1; attempt <= mostAttempts; attempt += 1) {
      try {
        await (attempt === 1 ? command() : again());
        counts[attempt === 1 ? 'first' : attempt === 2 ? 'second' : 'later'] += 1;
        return true;
      } catch (error) {
        this.failures.push(`${kind}, attempt ${attempt}: ${lastLines(String(error))}`);
      }
    }
    counts.failed += 1;
    return false;
  }
}

function lastLines(text: string): string {
  return text.trim().split('\n').slice(-3).join(' | ').slice(-600);
}
