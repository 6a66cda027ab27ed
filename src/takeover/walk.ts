import type { Work } from '../jobs/jobs.ts';
import type { Counts } from '../jobs/runs.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Arrivals } from './arrivals.ts';
import { isLeftName, namesAtATime, nameStates, type Inventory } from './inventory.ts';
import type { Predecessor } from './predecessor.ts';

/** Versions or tags that come at the same time. */
const together = 4;
/** Most characters of a name here. */
const longestName = 255;

interface WalkParts {
  predecessors: readonly Predecessor[];
  inventory: Inventory;
  arrivals: Arrivals;
  /** Only read the inventories. */
  onlyNames: boolean;
}

/** Reads the inventories of all predecessors, then brings what is not here. The job that calls it runs once at a time on all instances. */
export async function walk(parts: WalkParts, { signal, say }: Pick<Work, 'signal' | 'say'>): Promise<Counts> {
  const { predecessors, inventory } = parts;
  const counts: Counts = { names: 0, imported: 0, mirrored: 0, conflicts: 0, failed: 0 };
  let failed: unknown;
  for (const predecessor of predecessors) {
    await inventory.begin(predecessor.name, predecessor.sourceKey);
    if ((await inventory.takeover(predecessor.name))?.finished_at !== null) continue;
    try {
      counts['names']! += await readNames(parts, predecessor, signal);
      if (!parts.onlyNames) await bringAll(parts, predecessor, signal, counts);
    } catch (error) {
      signal.throwIfAborted();
      say(`${predecessor.name}: ${(error as Error).message}`);
      failed = error;
    }
  }
  if (failed !== undefined) throw failed;
  return counts;
}

/** Resolves to the number of names. */
export async function readNames(
  { inventory, arrivals }: Omit<WalkParts, 'predecessors' | 'onlyNames'>,
  predecessor: Predecessor,
  signal: AbortSignal,
): Promise<number> {
  const { name, nameHere } = predecessor;
  let warning: string | null = null;
  const warn = (text: string) => void (warning ??= text);
  let found = 0;
  let some: { name: string; key: string }[] = [];
  const add = async () => {
    for (const [one, other] of await inventory.add(name, some))
      warn(`${one} and ${other} would have one name here: rename one of them, or leave it out.`);
    some = [];
  };
  for (const phase of arrivals.groupsOf(predecessor, { ...(await arrivals.options(predecessor)), signal, warn })) {
    for await (const group of phase) {
      signal.throwIfAborted();
      const key = nameHere(group.name).toLowerCase();
      if (key.length > longestName) warn(`${key.slice(0, 50)}… would be too long a name here.`);
      else some.push({ name: group.name, key });
      found += 1;
      if (some.length >= namesAtATime) await add();
    }
  }
  await add();
  signal.throwIfAborted();
  await inventory.noteRead(name, warning);
  return found;
}

async function bringAll(
  { inventory, arrivals }: WalkParts,
  predecessor: Predecessor,
  signal: AbortSignal,
  counts: Counts,
): Promise<void> {
  const { rate } = predecessor.config;
  for await (const page of inventory.pages(predecessor.name, nameStates)) {
    const rows = page.filter((row) => !isLeftName(row) && predecessor.isWanted(row.name));
    if (rows.length === 0) continue;
    const { found, stopped } = await arrivals.run(predecessor, rows, { signal, concurrency: together, rate });
    for (const { imported, mirrored, problems, failure, ended } of found) {
      const conflicts = [...problems.values()].filter(({ outcome }) => outcome === 'conflict').length;
      counts['imported']! += imported;
      counts['mirrored']! += mirrored;
      counts['conflicts']! += conflicts;
      counts['failed']! += problems.size - conflicts + (failure && !ended ? 1 : 0);
    }
    signal.throwIfAborted();
    if (stopped !== undefined) throw new DomainError('Aborted', stopped);
  }
}
