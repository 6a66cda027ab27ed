import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { LRUCache } from 'lru-cache';
import { cacheStatus, type Served } from '../../http/cache-status.ts';
import { jsonInPieces } from '../../http/json-pieces.ts';
import { sendBytes, sendContent } from '../../http/send.ts';
import { digestOf } from '../../runtime/digest.ts';
import { concatInTurns } from '../../runtime/long-texts.ts';
import { contentOf, keptOverhead, ownBytes } from '../../storage/files/content.ts';
import type { Sourced } from '../source/package-source.ts';
import { hives, type Hive } from './addresses.ts';
import { idOf, noPackage, type FeedCall } from './call.ts';

const compress = promisify(gzip);
/** Bytes of memory for finished documents, in all forms together. */
const cacheBytes = 16 * 2 ** 20;

/** The forms of a package's documents: the flat container's index, and those of the hives. */
type Form = 'package' | Hive;

/** Makes the document of a package; undefined if it does not exist. `claimed` is whether the account claims the id. */
type BuildDocument = (id: string, claimed: boolean) => Promise<Sourced<object> | undefined>;

/** Sends a document of the package that the path names. Throws `NotFound`. */
export type SendPackageDocument = (call: FeedCall, form: Form, build: BuildDocument) => Promise<void>;

/** Headers of a document that a push can change: a client must revalidate it each time. */
export function changing(served: Served) {
  return { ...cacheStatus(served), 'Cache-Control': 'private, no-cache' };
}

/** Headers of a version's file, which never changes. */
export function immutable(served: Served) {
  return { ...cacheStatus(served), 'Cache-Control': 'private, max-age=31536000, immutable' };
}

/** Keeps finished documents of hosted packages in memory, up to `cacheBytes`. */
export function cachingDocuments(): SendPackageDocument {
  // The key contains everything that the document depends on, so no entry has to be removed when a package changes.
  const finished = new LRUCache<string, Buffer>({
    maxSize: cacheBytes,
    sizeCalculation: (bytes) => bytes.length + keptOverhead,
  });
  return async (call, form, build) => {
    const { accountId, addresses, source, isPast, path } = call;
    const id = idOf(path);
    const revision = await source.revisionOf(accountId, id);
    const isHosted = revision !== undefined && !source.isMerged(id) && !isPast;
    const key = isHosted ? `${revision} ${form} ${addresses.at('')}` : undefined;
    const cached = key && finished.get(key);
    if (cached) return sendBuilt(call, form, 'hosted', cached);
    const built = await build(id, revision !== undefined);
    if (!built) throw noPackage(path);
    const bytes = await bytesOf(form, built.value);
    if (key && built.served === 'hosted') finished.set(key, ownBytes(bytes));
    return sendBuilt(call, form, built.served, bytes);
  };
}

/** Sends `document`, compressed where its form is. */
export async function sendDocument(call: FeedCall, form: Form, served: Served, document: object): Promise<void> {
  await sendBuilt(call, form, served, await bytesOf(form, document));
}

async function sendBuilt(
  { request, response, isPast }: FeedCall,
  form: Form,
  served: Served,
  bytes: Buffer,
): Promise<void> {
  const headers = {
    'Content-Type': 'application/json',
    ...(isCompressed(form) && { 'Content-Encoding': 'gzip' }),
    ...changing(served),
  };
  if (!isPast) sendBytes(request, response, 200, bytes, headers);
  else await sendContent(request, response, contentOf(bytes), { headers, etag: `"${digestOf(bytes)}"` });
}

/** Clients of a compressed hive expect gzip, also when they do not ask for it. */
async function bytesOf(form: Form, document: object): Promise<Buffer> {
  const bytes = await concatInTurns(await jsonInPieces(document));
  return isCompressed(form) ? compress(bytes, { level: 4 }) : bytes;
}

function isCompressed(form: Form): boolean {
  return form !== 'package' && hives[form].gzip;
}
