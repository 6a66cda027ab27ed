import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { programFile } from '../../runtime/program-file.ts';
import { ReaderThread, type ReadBytes } from '../../runtime/reader-thread.ts';
import { maxNuspecBytes, parseNuspec, type Nuspec, type NuspecOptions } from './nuspec.ts';

// Long nuspecs are parsed in a thread.

const read: ReadBytes<NuspecOptions> = (bytes, options) => JSON.stringify(parseNuspec(bytes, options));
export default read;

const thread = new ReaderThread(programFile('nuget/format/nuspec-reading.ts').href);
/** A nuspec of fewer bytes is parsed at once, in a few milliseconds. */
const fewBytes = 8 * 1024;
/** Bytes of memory for what was read from long nuspecs. */
const keptBytes = 8 * 2 ** 20;

/** The JSON of long nuspecs, by the digest of their bytes: each request for a version reads its nuspec. */
const kept = new LRUCache<string, string>({
  maxSize: keptBytes,
  sizeCalculation: (json, key) => 500 + 2 * (key.length + json.length),
});

/** As `parseNuspec`; a long nuspec is parsed in a thread, and kept. */
export async function readNuspec(bytes: Buffer, options: NuspecOptions = {}): Promise<Nuspec> {
  if (bytes.length <= fewBytes || bytes.length > maxNuspecBytes) return parseNuspec(bytes, options);
  const { asciiOnly = false, isPublished = false } = options;
  const key = `${asciiOnly} ${isPublished} ${createHash('sha256').update(bytes).digest('base64')}`;
  const known = kept.get(key);
  if (known !== undefined) return JSON.parse(known) as Nuspec;
  const lines = await thread.read(Buffer.from(bytes), options).catch((error: unknown) => {
    if (isDomainError(error)) throw error;
    throw new DomainError('PackageInvalid', `The nuspec cannot be used: ${(error as Error).message}.`, {
      cause: error,
    });
  });
  const json = lines.join('\n');
  kept.set(key, json);
  return JSON.parse(json) as Nuspec;
}
