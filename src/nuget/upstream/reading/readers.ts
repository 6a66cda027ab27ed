import { programFile } from '../../../runtime/program-file.ts';
import { ReaderThread, type ReadBytes } from '../../../runtime/reader-thread.ts';
import { readFlatIndex, readVersionList } from './flat-index.ts';
import { jsonIn } from './json.ts';
import { readRegistration, readStates, type RegistrationOptions } from './registration.ts';
import { readHits, readIds, type HitOptions } from './search-answers.ts';
import { readVulnerabilities } from './vulnerability-page.ts';

/** What each kind of bytes is read with. */
export interface ReadingOptions {
  flat: object;
  registration: RegistrationOptions;
  states: Pick<RegistrationOptions, 'key'>;
  vulnerabilities: object;
  hits: HitOptions;
  ids: object;
  'version-list': object;
  short: object;
}

export type ReadingKind = keyof ReadingOptions;

const readers: { [Kind in ReadingKind]: ReadBytes<ReadingOptions[Kind]> } = {
  flat: readFlatIndex,
  registration: readRegistration,
  states: readStates,
  vulnerabilities: readVulnerabilities,
  hits: readHits,
  ids: readIds,
  'version-list': readVersionList,
  // For documents whose limit is so low that they need no other form.
  short: (bytes) => JSON.stringify(jsonIn(bytes)),
};

/** So many bytes are read at once: that takes a few milliseconds. */
const fewBytes = 64 * 1024;

interface Task {
  kind: ReadingKind;
  options: object;
}

const readTask: ReadBytes<Task> = (bytes, { kind, options }) => readers[kind](bytes, options as never);
export default readTask;

/** Who has sent a document: an upstream with its ID, or a source that a person of some account named, with its address. */
interface Sender {
  of: 'upstream' | 'source';
  id: string;
}

const file = programFile('nuget/upstream/reading/readers.ts').href;
const threads: Record<Sender['of'], ReaderThread> = {
  upstream: new ReaderThread(file),
  source: new ReaderThread(file),
};

/** Bytes, or a file with them: what waits for its turn to be read is not in memory yet. */
export type Unread = Buffer | { size: number; bytes: () => Promise<Buffer> };

/**
 * The lines of the text that a reader makes of a document; a long document is read in a thread, where senders take turns. Throws with
 * the reason if the reader does, or if it takes too much time or memory. The caller must not use the bytes any more.
 */
export async function read<Kind extends ReadingKind>(
  kind: Kind,
  unread: Unread,
  options: ReadingOptions[Kind],
  { of, id }: Sender,
): Promise<string[]> {
  const size = Buffer.isBuffer(unread) ? unread.length : unread.size;
  const bytes = async () => (Buffer.isBuffer(unread) ? unread : unread.bytes());
  if (size > fewBytes) return threads[of].read(bytes, { kind, options }, id);
  const text = readers[kind](await bytes(), options);
  return text === '' ? [] : text.split('\n');
}
