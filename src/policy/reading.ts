import { DomainError, isDomainError } from '../runtime/errors.ts';
import { programFile } from '../runtime/program-file.ts';
import { ReaderThread, type ReadBytes } from '../runtime/reader-thread.ts';
import { parsePolicy, type PolicyPlaceOf } from './document.ts';

// Policies of clients are parsed in a thread: also few characters of YAML can take a parser very long.

/** Texts of one account that may wait. */
const maxWaiting = 20;

/** A policy that was read. */
interface ReadPolicy {
  written: unknown;
  /** As of `parsePolicy`, of what the text has itself. */
  placeOf: PolicyPlaceOf;
}

/** What the thread tells of a policy: the place of each value by its path. */
interface Told {
  written: unknown;
  places: Record<string, string>;
}

const read: ReadBytes<object> = (bytes) => {
  const parsed = parsePolicy(bytes.toString());
  if (!parsed) return 'null';
  const { written, placeOf } = parsed;
  return JSON.stringify({ written, places: Object.fromEntries(placesIn(written, placeOf, [])) } satisfies Told);
};
export default read;

const thread = new ReaderThread(programFile('policy/reading.ts').href, { maxWaiting });

/**
 * As `parsePolicy`, in a thread, for a text of an account: accounts take turns. Throws `TooManyRequests` also if it takes too much
 * time or memory, or if too many texts of the account wait.
 */
export async function readPolicy(text: string, accountId: number): Promise<ReadPolicy | null> {
  const lines = await thread.read(Buffer.from(text), {}, String(accountId)).catch((error: unknown) => {
    if (isDomainError(error)) throw error;
    throw new DomainError('Invalid', 'The policy cannot be read.', { cause: error });
  });
  const told = JSON.parse(lines.join('\n')) as Told | null;
  return told && { written: told.written, placeOf: (path) => told.places[path.join('.')] ?? '' };
}

/** A policy that was checked is not deep. */
function placesIn(value: unknown, placeOf: PolicyPlaceOf, path: readonly string[]): [path: string, place: string][] {
  const inside = typeof value === 'object' && value !== null ? Object.entries(value) : [];
  return [[path.join('.'), placeOf(path)], ...inside.flatMap(([key, each]) => placesIn(each, placeOf, [...path, key]))];
}
