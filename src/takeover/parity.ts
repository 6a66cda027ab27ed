import { DomainError } from '../runtime/errors.ts';
import { pause } from '../runtime/event-loop.ts';
import type { ComparedReference, SideFacts } from '../import/item.ts';
import { isLeftName, isMirroredName, nameStates, type InventoryName } from './inventory.ts';
import type { Predecessor } from './predecessor.ts';
import type { Takeover } from './takeover.ts';

/** Differences of one name that are kept. */
const kept = 1000;
/** Dates are compared to the second, because some servers store no more. */
const second = 1000;

/** What two servers have under one name. References are versions or tags. */
export interface NameParity {
  /** As it is here. */
  name: string;
  /** `mirrored`: upstreams serve it here. `failed`: it could not be compared. */
  result: 'same' | 'different' | 'mirrored' | 'failed';
  /** How many references both servers have. */
  both: number;
  /** Those that only the predecessor has; and of these, those that came, and were deleted here. */
  missing: string[];
  deleted: string[];
  /** Those that are only here. */
  extra: string[];
  /** Those that differ, with what differs. */
  different: Record<string, string[]>;
  note?: string | undefined;
}

interface ParityOptions {
  /** Read the content of the predecessor, whatever hash it tells. */
  reading: boolean;
  signal: AbortSignal;
}

/** Compares each name that a predecessor has with what is here. Reads its names anew; one name is in memory at a time. */
export async function* parityOf(
  takeover: Takeover,
  predecessor: Predecessor,
  { reading, signal }: ParityOptions,
): AsyncGenerator<NameParity> {
  const { inventory, arrivals } = takeover;
  await takeover.readNames(predecessor, signal);
  const options = { ...(await arrivals.options(predecessor)), signal, warn: () => undefined };
  for await (const rows of inventory.pages(predecessor.name, nameStates)) {
    for (const row of rows) {
      signal.throwIfAborted();
      // It was read before the settings left it out.
      if (!predecessor.isWanted(row.name)) continue;
      const found = emptyParity(row);
      if (!isLeftName(row)) {
        const came = await inventory.came(row);
        try {
          const withUpstreams = isMirroredName(row);
          const names = arrivals.comparedOf(predecessor, { ...options, names: [row.name] }, { reading, withUpstreams });
          for (const phase of names)
            for await (const { references } of phase)
              for await (const each of references()) await add(found, each, came);
          const alike = withUpstreams ? 'mirrored' : 'same';
          found.result = isClean(found) ? alike : 'different';
        } catch (error) {
          signal.throwIfAborted();
          found.result = 'failed';
          found.note = (error as Error).message;
        }
        // Nothing came yet, or a person has to decide.
        if (row.state === 'conflict') Object.assign(found, { result: 'different', note: row.note ?? undefined });
      }
      yield found;
    }
  }
}

function emptyParity({ name_key: name }: InventoryName): NameParity {
  return { name, result: 'mirrored', both: 0, missing: [], deleted: [], extra: [], different: {} };
}

async function add(
  found: NameParity,
  { reference, theirs, ours }: ComparedReference,
  came: ReadonlySet<string>,
): Promise<void> {
  await pause();
  if (!theirs) keep(found.extra, reference);
  else if (!ours) keep(came.has(reference) ? found.deleted : found.missing, reference);
  else {
    found.both += 1;
    const what = differencesOf(theirs, ours);
    if (what.length > 0 && Object.keys(found.different).length < kept) found.different[reference] = what;
  }
}

function keep(list: string[], reference: string): void {
  if (list.length < kept) list.push(reference);
}

function isClean({ missing, different }: NameParity): boolean {
  return missing.length === 0 && Object.keys(different).length === 0;
}

/** What one server says of a reference and the other says otherwise. */
function differencesOf(theirs: SideFacts, ours: SideFacts): string[] {
  const what: string[] = [];
  // Without a hash nothing is proven.
  if (theirs.hash === undefined || theirs.hash !== ours.hash) what.push('hash');
  if (theirs.listed !== undefined && theirs.listed !== (ours.listed ?? true)) what.push('listed');
  const [there, here] = [theirs.publishedAt, ours.publishedAt];
  // Some servers show the year 1900 as the date of what is unlisted.
  const areDates = there !== undefined && here !== undefined && there > 0 && theirs.listed !== false;
  if (areDates && Math.floor(there / second) !== Math.floor(here / second)) what.push('date');
  if (theirs.dependencies !== undefined && theirs.dependencies !== ours.dependencies) what.push('dependencies');
  return what;
}

/**
 * Ends a takeover: nothing comes from the predecessor any more, and its names are those of this server. Throws `Invalid` unless all
 * of it is here, apart from the `accepted` names.
 */
export async function finish(
  takeover: Takeover,
  predecessor: Predecessor,
  accepted: readonly string[],
  { watch, ...options }: ParityOptions & { watch: (found: NameParity) => void },
): Promise<void> {
  const named = new Set(accepted.map((each) => each.toLowerCase()));
  const unclean: string[] = [];
  let count = 0;
  for await (const found of parityOf(takeover, predecessor, options)) {
    watch(found);
    if (found.result === 'same' || found.result === 'mirrored' || named.has(found.name)) continue;
    count += 1;
    if (unclean.length < 10) unclean.push(found.name);
  }
  if (count > 0)
    throw new DomainError(
      'Invalid',
      `${predecessor.name} is not taken over: ${unclean.join(', ')}${count > unclean.length ? ` and ${count - unclean.length} more` : ''} differ. Bring them, or name them with --accept.`,
    );
  await takeover.inventory.finish(predecessor.name, accepted);
  await takeover.adopted.end(predecessor.name);
}
