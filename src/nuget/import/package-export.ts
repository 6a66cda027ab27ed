import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import type { ImportGroup, ImportItem, ImportResult } from '../../import/item.ts';
import type { ExportOptions, ExportTarget } from '../../import/target.ts';
import { hexOf, type Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import { piecesOf } from '../../storage/files/content.ts';
import { discard } from '../../upstream/body.ts';
import { urlBelow } from '../../upstream/url.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { flatContainer } from '../upstream/package-mirror.ts';
import { offeredIn, versionsThere } from './feed.ts';
import { SourceFeed } from './source-feed.ts';

/** Rows that one statement reads. */
const page = 500;
const publishTypes = ['PackagePublish/2.0.0'];
const symbolTypes = ['SymbolPackagePublish/4.9.0'];

type VersionRow = {
  version_key: string;
  version: string;
  listed: number;
  imported: string | null;
  sha512: string;
  size_bytes: number;
  nupkg_digest: Digest;
  snupkg_digest: Digest | null;
  snupkg_size: number | null;
};

/** Symbols that go with a version, and where to. */
interface SentSymbols {
  url: URL;
  digest: Digest;
  size: number;
}

/** What the target has of one id. */
interface IdThere {
  id: string;
  versions: Awaited<ReturnType<typeof versionsThere>>;
}

/** Pushes the packages of an account to a feed. */
export class PackageExport {
  readonly #context: FeedContext;
  readonly #target: ExportTarget;
  readonly #options: ExportOptions;
  readonly #feed: SourceFeed;
  /** Whether the target deletes what it is asked to unlist. */
  #deletes = false;
  #warned = false;

  constructor(context: FeedContext, target: ExportTarget, options: ExportOptions) {
    this.#context = context;
    this.#target = target;
    this.#options = options;
    this.#feed = new SourceFeed(target.remote, options.signal);
  }

  async *groups(): AsyncGenerator<ImportGroup> {
    const { accountId, isWanted } = this.#options;
    await this.#place(publishTypes);
    const read = (after: string) =>
      this.#context.database.select<{ id: number; package_key: string; package_id: string }>(
        `SELECT p.id, p.package_key, p.package_id FROM packages p WHERE p.account_id = ? AND p.package_key > ?
         AND EXISTS (SELECT 1 FROM package_versions v WHERE v.package_row = p.id AND ${this.#among}) ORDER BY p.package_key LIMIT ?`,
        [accountId, after, this.#options.since ?? 0, page],
      );
    for await (const rows of pagesOf('', page, read, (each) => each.package_key))
      for (const row of rows)
        if (isWanted(row.package_id)) yield { name: row.package_id, items: () => this.#versions(row) };
  }

  get #among(): string {
    return `v.published_at >= ?${this.#options.all ? '' : ' AND v.imported IS NULL'}`;
  }

  async *#versions(row: { id: number; package_key: string; package_id: string }): AsyncGenerator<ImportItem> {
    const name = row.package_id;
    const source = { id: row.package_key, downloads: new Map<string, number>() };
    const there = { id: row.package_key, versions: await versionsThere(this.#parts, source) };
    const symbols = await this.#feed.resource(symbolTypes);
    const read = (after: string) =>
      this.#context.database.select<VersionRow>(
        `SELECT v.version_key, v.version, v.listed, v.imported, v.sha512, v.size_bytes, v.nupkg_digest, v.snupkg_digest,
           ${sizeOf('v.snupkg_digest')} AS snupkg_size FROM package_versions v
         WHERE v.package_row = ? AND v.version_key > ? AND ${this.#among} ORDER BY v.version_key LIMIT ?`,
        [row.id, after, this.#options.since ?? 0, page],
      );
    for await (const rows of pagesOf('', page, read, (each) => each.version_key))
      for (const version of rows) {
        await pause();
        const { snupkg_digest: digest, snupkg_size: size } = version;
        const withSymbols = digest !== null && size !== null && symbols && { url: symbols, digest, size };
        if (digest !== null && !symbols) this.#warn('The target has no address for symbols, so none are sent.');
        yield { name, reference: version.version, run: () => this.#version(there, version, withSymbols || undefined) };
      }
  }

  async #version(there: IdThere, row: VersionRow, symbols: SentSymbols | undefined): Promise<ImportResult> {
    const { id } = there;
    const { dryRun } = this.#options;
    const before = await this.#compare(there, row);
    if (before === 'other') return conflict;
    const isListed = there.versions.get(row.version_key)?.registered?.listed ?? true;
    // What an import brought has its state from there.
    const unlists = row.listed === 0 && (before === undefined || (isListed && row.imported === null));
    if (dryRun) {
      if (before === undefined) return { outcome: 'imported', bytes: row.size_bytes + (symbols?.size ?? 0) };
      return { outcome: unlists ? 'updated' : 'present', bytes: 0 };
    }
    let bytes = 0;
    if (before === undefined) {
      const status = await this.#push(id, await this.#place(publishTypes), row.nupkg_digest, row.size_bytes);
      if (status === 409) {
        const meanwhile = await this.#compare({ id, versions: new Map() }, row);
        if (meanwhile !== 'same')
          return { ...conflict, note: 'the target has this version already, and does not show it' };
      } else if (status > 299) throw refused('the package', status);
      bytes += row.size_bytes;
    }
    let note: string | undefined;
    if (symbols) {
      // No address tells whether they are there.
      const status = await this.#push(id, symbols.url, symbols.digest, symbols.size);
      if (status > 299 && status !== 409) note = `the target answered ${status} to the symbols`;
      else if (before === undefined) bytes += symbols.size;
    }
    if (unlists) note = (await this.#unlist(id, row, symbols)) ?? note;
    if (before === undefined) return { outcome: 'imported', bytes, note };
    return { outcome: unlists && note === undefined ? 'updated' : 'present', bytes: 0, note };
  }

  /** Whether the target has the version, with the same bytes or others. */
  async #compare({ id, versions }: IdThere, row: VersionRow): Promise<'same' | 'other' | undefined> {
    const known = versions.get(row.version_key)?.offered;
    if (known?.sha512 !== undefined) return known.sha512 === row.sha512 ? 'same' : 'other';
    const offered =
      known ?? offeredIn(this.#parts, await this.#feed.place(flatContainer), { id, version: row.version_key });
    try {
      const size = await offered.measure!();
      if (size !== undefined && size !== row.size_bytes) return 'other';
      const staged = await this.#context.blobs.stageHosted(row.size_bytes, ['sha512']);
      try {
        await offered.fill(staged);
        const sha512 = Buffer.from(hexOf(await staged.digest('sha512')), 'hex').toString('base64');
        return sha512 === row.sha512 ? 'same' : 'other';
      } finally {
        await staged.discard();
      }
    } catch (error) {
      if (isDomainError(error, 'NotFound')) return undefined;
      throw error;
    }
  }

  /** Sends a file as clients do; resolves to the status of the answer. */
  async #push(id: string, url: URL, digest: Digest, size: number): Promise<number> {
    const boundary = randomUUID();
    const head = Buffer.from(
      `--${boundary}\r\nContent-Type: application/octet-stream\r\nContent-Disposition: form-data; name=package; filename=package.nupkg\r\n\r\n`,
    );
    const tail = Buffer.from(`\r\n--${boundary}--\r\n`);
    const open = async () => {
      const content = await this.#context.blobs.open(digest, size);
      return Readable.from(
        (async function* () {
          yield head;
          yield* piecesOf(content);
          yield tail;
        })(),
        { objectMode: false },
      );
    };
    return this.#change('PUT', id, url, {
      headers: { 'content-type': `multipart/form-data; boundary="${boundary}"` },
      sent: { size: head.length + size + tail.length, open },
    });
  }

  /** Resolves to why the version is listed there; undefined if it is not. */
  async #unlist(id: string, row: VersionRow, symbols: SentSymbols | undefined): Promise<string | undefined> {
    const listed = 'it is listed there, and not here: the target deletes what it is asked to unlist';
    if (this.#deletes) return listed;
    const publish = await this.#place(publishTypes);
    // A key that may push need not have the right to unlist.
    const status = await this.#change('DELETE', id, urlBelow(publish, id, row.version_key), { answers: [403] });
    if (status > 299) return `it is listed there, and not here: the target answered ${status}`;
    if ((await this.#compare({ id, versions: new Map() }, row)) !== undefined) return undefined;
    this.#deletes = true;
    const again = await this.#push(id, publish, row.nupkg_digest, row.size_bytes);
    if (again > 299) throw refused('the package, which it had deleted', again);
    // They were deleted with it.
    if (symbols) await this.#push(id, symbols.url, symbols.digest, symbols.size);
    return listed;
  }

  async #change(
    method: 'PUT' | 'DELETE',
    subject: string,
    url: URL,
    { headers, ...more }: Pick<Parameters<ExportTarget['remote']['send']>[0], 'headers' | 'sent' | 'answers'>,
  ): Promise<number> {
    const { remote, apiKey } = this.#target;
    const { signal } = this.#options;
    const { origin } = remote.base;
    if (url.origin !== origin)
      throw new DomainError(
        'Invalid',
        `The target names ${url.host} for pushes, which is not the host of its index, so nothing is sent there.`,
      );
    const key: Record<string, string> = apiKey === undefined ? {} : { 'x-nuget-apikey': apiKey };
    const answer = await remote.send({ ...more, method, url, subject, headers: { ...headers, ...key }, signal });
    discard(answer.body);
    return answer.status;
  }

  get #parts(): Parameters<typeof versionsThere>[0] {
    const { remote } = this.#target;
    const { nupkg: limit } = this.#context.limits;
    return { feed: this.#feed, remote, from: remote.name, signal: this.#options.signal, limit };
  }

  async #place(types: readonly string[]): Promise<URL> {
    const found = await this.#feed.resource(types);
    if (found) return found;
    throw new DomainError('Invalid', `The target has no ${types[0]}, so nothing can be pushed to it.`);
  }

  #warn(text: string): void {
    if (!this.#warned) this.#options.warn(text);
    this.#warned = true;
  }
}

const conflict: ImportResult = { outcome: 'conflict', bytes: 0, note: 'the target has other content under this name' };

function refused(what: string, status: number): DomainError {
  return new DomainError('Invalid', `The target refused ${what} (${status}).`);
}
