import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import { forAction } from '../../accounts/allow.ts';
import { isDigest, parseDigest, type DigestAlgorithm } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { contextOf } from '../../http/request-context.ts';
import { cacheStatus } from '../../http/cache-status.ts';
import { sendEmpty, type RegistryCall } from './call.ts';
import { isRepositoryName, isUploadId } from '../format/reference.ts';
import { uploadUnknown, type UploadKey } from '../uploads/upload-lease.ts';
import type { Chunk } from '../uploads/upload-body.ts';

// Push of blobs (distribution-spec); end-… are its endpoints.

/** end-4a, end-4b, end-4c, end-11: a session, a whole blob, or a mount, which falls back to a session. */
export async function startUpload(call: RegistryCall): Promise<void> {
  const { response, principal, repository, name, query, images } = call;
  const mount = query.get('mount');
  if (mount !== null) {
    const from = query.get('from') ?? undefined;
    if (isDigest(mount)) await images.examine(name, [mount]);
    const isMounted =
      isDigest(mount) &&
      mayMount(call, from) &&
      (await images.blobs.mount(
        repository.accountId,
        name,
        mount,
        from && (await hostedName(call, from)),
        forAction(principal, 'read').names?.of('container'),
      ));
    if (isMounted) {
      sendBlobCreated(call, mount);
      return;
    }
  } else if (query.has('digest')) {
    const digest = parseDigest(query.get('digest')!);
    await images.examine(name, [digest]);
    await images.uploads.whole(repository.accountId, name, digest, chunkOf(call));
    sendBlobCreated(call, digest);
    return;
  }
  // Nothing of the repository is there yet: its name may be invented, and each name in usage is a row for ever.
  contextOf(response).subject = '';
  const id = await images.uploads.start(repository.accountId, name, algorithmIn(query));
  sendEmpty(response, 202, progress({ ...call, item: id }, 0));
}

/** end-5: one chunk, or the whole body as a stream. */
export async function patchUpload(call: RegistryCall): Promise<void> {
  const received = await inOrder(call, () => call.uploads.append(keyOf(call), chunkOf(call)));
  sendEmpty(call.response, 202, progress(call, received));
}

/** end-6: with or without a last chunk. */
export async function finishUpload(call: RegistryCall): Promise<void> {
  const text = call.query.get('digest');
  if (text === null) throw new DomainError('DigestInvalid', 'Close an upload with ?digest=<digest of the whole blob>.');
  const digest = parseDigest(text);
  await call.images.examine(call.name, [digest]);
  await inOrder(call, () => call.uploads.finish(keyOf(call), digest, chunkOf(call)));
  sendBlobCreated(call, digest);
}

/** end-13 */
export async function getUpload(call: RegistryCall): Promise<void> {
  contextOf(call.response).subject = '';
  const received = await call.uploads.received(keyOf(call));
  sendEmpty(call.response, 204, { ...cacheStatus('hosted'), ...progress(call, received) });
}

/** end-14 */
export async function cancelUpload(call: RegistryCall): Promise<void> {
  contextOf(call.response).subject = '';
  await call.uploads.cancel(keyOf(call));
  sendEmpty(call.response, 204, {});
}

/** The principal must be allowed to read the source. A source outside its account or its names is not found. */
function mayMount({ principal }: RegistryCall, from: string | undefined): boolean {
  return principal.scopes.has('read') && (from === undefined || isRepositoryName(from));
}

/** The name under which the source of a mount is hosted. */
async function hostedName({ source, repository }: RegistryCall, name: string): Promise<string> {
  return (await source.hosted({ ...repository, name, ns: undefined })).name;
}

function algorithmIn(query: URLSearchParams): DigestAlgorithm {
  const algorithm = query.get('digest-algorithm') ?? 'sha256';
  if (algorithm === 'sha256' || algorithm === 'sha512') return algorithm;
  throw new DomainError('DigestInvalid', 'The digest algorithms are sha256 and sha512.');
}

function keyOf({ repository, name, item }: RegistryCall): UploadKey {
  if (!isUploadId(item)) throw uploadUnknown(item);
  return { accountId: repository.accountId, repository: name, id: item };
}

function chunkOf({ request, response, principal, quota }: RegistryCall): Chunk {
  const context = contextOf(response);
  return {
    ...announced(request),
    source: request,
    size: Number(request.headers['content-length'] ?? 0),
    allowance: quota.unfinishedOf(principal),
    onData: (bytes) => (context.received += bytes),
  };
}

/** Reads `Content-Range: 0-99` (distribution-spec) or `bytes 0-99/*` (HTTP). */
function announced(request: IncomingMessage): { start?: number; length?: number } {
  const header = request.headers['content-range'];
  if (header === undefined) return {};
  const match = /^(?:bytes[ =])?\s*(\d{1,15})-(\d{1,15})(?:\/(?:\d+|\*))?$/.exec(header);
  if (!match)
    throw new DomainError('UploadInvalid', 'Content-Range has to be <first byte>-<last byte>, both inclusive.');
  const start = Number(match[1]);
  const length = Number(match[2]) + 1 - start;
  if (length < 0) throw new DomainError('UploadInvalid', 'Content-Range ends before it starts.');
  const bytes = request.headers['content-length'];
  if (bytes !== undefined && Number(bytes) > 0 && Number(bytes) !== length) {
    throw new DomainError('LengthInvalid', `Content-Length is ${bytes}, but Content-Range has ${length} bytes.`);
  }
  return { start, length };
}

/** Runs `work`. For a chunk out of order, the answer's headers say where to continue (end-5, end-6). */
async function inOrder<T>(call: RegistryCall, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isDomainError(error, 'UploadOutOfOrder')) {
      const headers = progress(call, error.detail!['received'] as number);
      for (const [name, value] of Object.entries(headers)) call.response.setHeader(name, value!);
    }
    throw error;
  }
}

/** The headers with the state of a session. `Range` is inclusive, and `0-0` for no bytes: clients parse two numbers. */
function progress({ name, item }: RegistryCall, received: number): OutgoingHttpHeaders {
  return {
    Location: `/v2/${name}/blobs/uploads/${item}`,
    Range: `0-${Math.max(0, received - 1)}`,
    'Docker-Upload-UUID': item,
  };
}

function sendBlobCreated({ response, name }: RegistryCall, digest: string): void {
  sendEmpty(response, 201, { Location: `/v2/${name}/blobs/${digest}`, 'Docker-Content-Digest': digest });
}
