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

const thread = new ReaderThread(programFile('nuget/upstream/reading/readers.ts').href);

/**
 * The lines of the text that a reader makes of a document; a long document is read in a thread. Throws with the reason if the reader
 * does, or if it takes too much time or memory. The caller must not use `bytes` any more.
 */
export async function read<Kind extends ReadingKind>(
  kind: Kind,
  bytes: Buffer,
  options: ReadingOptions[Kind],
): Promise<string[]> {
  if (bytes.length > fewBytes) return thread.read(bytes, { kind, options });
  const text = readers[kind](bytes, options);
  return text === '' ? [] : text.split('\n');
}
