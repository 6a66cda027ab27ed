import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { pause } from '../runtime/event-loop.ts';
import { digestOf } from '../runtime/digest.ts';
import type { Content } from '../storage/files/content.ts';
import { openFileContent } from '../storage/files/file-content.ts';
import type { StagedFile } from '../storage/files/staged-file.ts';
import type { ProxyEnvironment } from '../upstream/addresses.ts';
import type { UpstreamAnswer } from '../upstream/answer.ts';
import { discard } from '../upstream/body.ts';
import { download, downloadStep } from '../upstream/checked-download.ts';
import { ListRefused, type ListLimits } from './entry.ts';
import type { ListSettings } from './list-settings.ts';
import { filesBelow, recordsBelow, recordsIn, type RawRecord, type Reading } from './raw-records.ts';

/** Milliseconds that the download of a list may take. */
const maxDownload = 30 * 60_000;
const pieceBytes = 256 * 1024;
const maxEtag = 255;

export interface SourceParts {
  /** A new file for a download of so many bytes, 0 if that is unknown. */
  stage: (bytes: number) => Promise<StagedFile>;
  proxy: ProxyEnvironment;
  limits: ListLimits;
  signal: AbortSignal;
}

/** The state of a source, by which it is known whether it has changed. */
export interface SourceState {
  /** A digest of its bytes; of a folder, one of the paths, sizes and times of its files. */
  validator: string;
  etag: string | null;
}

/** A source whose bytes do not change while it is open. */
export interface OpenSource extends SourceState, AsyncDisposable {
  records(reading: Reading): AsyncGenerator<RawRecord>;
}

/**
 * Opens the file, the folder or the URL of a list; undefined if a URL says that it is as in `known`. Rejects with `ListRefused`,
 * with an error of the file system, or as `download`.
 */
export async function openSource(
  { url, file, allowPrivateNetwork: allowPrivate }: ListSettings,
  known: SourceState | undefined,
  parts: SourceParts,
): Promise<OpenSource | undefined> {
  if (url !== undefined) return openUrl(new URL(url), known, { ...parts, allowPrivate });
  if (file === undefined) throw new ListRefused('has neither a url nor a file');
  const found = await stat(file);
  if (found.isDirectory()) return openFolder(file, parts);
  if (!found.isFile()) throw new ListRefused('is neither a file nor a folder');
  if (found.size > parts.limits.fileBytes) throw tooLarge(parts.limits);
  const open = () => openFileContent(file, found.size);
  return {
    validator: await digestIn(open, parts.signal),
    etag: null,
    records: (reading) => recordsIn(open, reading),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

async function openFolder(folder: string, { limits, signal }: SourceParts): Promise<OpenSource> {
  // The order of the files does not count.
  const sum = Buffer.alloc(32);
  for await (const { path, size, changedAt } of filesBelow(folder, limits)) {
    signal.throwIfAborted();
    await pause();
    const hash = createHash('sha256').update(`${path}\0${size}\0${changedAt}`).digest();
    for (const [index, byte] of hash.entries()) sum[index]! ^= byte;
  }
  return {
    validator: digestOf(sum),
    etag: null,
    records: (reading) => recordsBelow(folder, reading),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

async function openUrl(
  url: URL,
  known: SourceState | undefined,
  { stage, proxy, limits, signal, allowPrivate }: SourceParts & { allowPrivate: boolean },
): Promise<OpenSource | undefined> {
  const headers: Record<string, string> = {};
  if (typeof known?.etag === 'string') headers['if-none-match'] = known.etag;
  const inTime = AbortSignal.any([signal, AbortSignal.timeout(maxDownload)]);
  return download(url, { headers, allowPrivate, proxy, signal: inTime }, async (answer) => {
    if (answer.status === 304 && 'if-none-match' in headers) {
      discard(answer.body);
      return undefined;
    }
    return receive(answer, stage, limits);
  });
}

async function receive(answer: UpstreamAnswer, stage: SourceParts['stage'], limits: ListLimits): Promise<OpenSource> {
  const { status, headers, body } = answer;
  const length = Number(headers['content-length'] ?? 0);
  if (status !== 200 || length > limits.fileBytes) {
    discard(body);
    throw status === 200 ? tooLarge(limits) : new ListRefused(`answered ${status}`);
  }
  await using stack = new AsyncDisposableStack();
  const staged = stack.adopt(await stage(length), (file) => file.discard());
  await staged.append(body, { limit: limits.fileBytes, idle: downloadStep });
  const { etag } = headers;
  const rest = stack.move();
  return {
    validator: await staged.digest(),
    etag: etag !== undefined && etag.length <= maxEtag ? etag : null,
    records: (reading) => recordsIn(() => staged.open(), reading),
    [Symbol.asyncDispose]: () => rest.disposeAsync(),
  };
}

function tooLarge({ fileBytes }: ListLimits): ListRefused {
  return new ListRefused(`is larger than ${fileBytes} bytes`);
}

async function digestIn(open: () => Promise<Content>, signal: AbortSignal): Promise<string> {
  const content = await open();
  try {
    const hash = createHash('sha256');
    const piece = Buffer.allocUnsafe(pieceBytes);
    for (let position = 0; ;) {
      signal.throwIfAborted();
      await pause();
      const read = await content.read(piece, position);
      if (read === 0) return `sha256:${hash.digest('hex')}`;
      hash.update(piece.subarray(0, read));
      position += read;
    }
  } finally {
    content.close();
  }
}
