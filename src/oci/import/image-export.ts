import { Readable } from 'node:stream';
import type { ImportGroup, ImportItem, ImportResult } from '../../import/item.ts';
import type { ExportOptions, ExportTarget } from '../../import/target.ts';
import type { Database } from '../../database/database.ts';
import { parseDocument } from '../../mirror/document.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { Semaphore } from '../../runtime/semaphore.ts';
import { contentOf, piecesOf, readAll, type Content } from '../../storage/files/content.ts';
import type { UpstreamAnswer } from '../../upstream/answer.ts';
import { discard } from '../../upstream/body.ts';
import { urlBelow } from '../../upstream/url.ts';
import type { Images } from '../catalog/images.ts';
import { mediaTypes, type Descriptor } from '../format/manifest.ts';
import { fallbackTag, isRepositoryName } from '../format/reference.ts';
import { hasManifest } from '../hosted/repositories.ts';
import { readDescriptors } from '../mirrored/upstream-lists.ts';
import { contentsOf } from '../prefetch/image-contents.ts';
import { RegistryOrigin } from './registry-origin.ts';

/** Rows that one statement reads, and referrers on a page. */
const page = 500;
/** Most manifests of one image with all that belongs to it. */
const maxManifests = 10_000;

/** Pushes the images of an account to a registry: blobs, manifests after those that they name, referrers, then the tag. */
export class ImageExport {
  readonly #images: Images;
  readonly #database: Database;
  readonly #target: ExportTarget;
  readonly #options: ExportOptions;
  readonly #registry: RegistryOrigin;
  /** The end of the work that sends a blob, so that two images do not send it at the same time. */
  readonly #sending = new Map<string, Promise<number>>();
  /**
   * One manifest at a time for each repository. docker-registry truncates the link of a manifest that is pushed again under a tag,
   * and then refuses an index that names it.
   */
  readonly #manifests = new Semaphore({ max: 1 });

  constructor(
    { images, database, manifestLimit }: { images: Images; database: Database; manifestLimit: number },
    target: ExportTarget,
    options: ExportOptions,
  ) {
    this.#images = images;
    this.#database = database;
    this.#target = target;
    this.#options = options;
    this.#registry = new RegistryOrigin(target.remote, manifestLimit, options.signal);
  }

  async *groups(): AsyncGenerator<ImportGroup> {
    const { accountId, isWanted, nameThere } = this.#options;
    const read = (after: string) =>
      this.#database.select<{ id: number; name: string }>(
        `SELECT r.id, r.name FROM repositories r WHERE r.account_id = ? AND r.name > ? AND ${hasManifest} ORDER BY r.name LIMIT ?`,
        [accountId, after, page],
      );
    for await (const rows of pagesOf('', page, read, ({ name }) => name))
      for (const { id, name } of rows)
        if (isWanted(name)) yield { name, items: () => this.#tags(id, name, nameThere(name)) };
  }

  async *#tags(repository: number, here: string, there: string): AsyncGenerator<ImportItem> {
    if (!isRepositoryName(there))
      throw new DomainError('NameInvalid', `${there.slice(0, 300)} is not a name of images.`);
    const read = (after: string) =>
      this.#database.select<{ name: string; digest: Digest }>(
        'SELECT name, digest FROM tags WHERE repository_id = ? AND name > ? AND updated_at >= ? ORDER BY name LIMIT ?',
        [repository, after, this.#options.since ?? 0, page],
      );
    for await (const rows of pagesOf('', page, read, ({ name }) => name))
      for (const { name: tag, digest } of rows) {
        await pause();
        // Lists of referrers: they are made anew there, if it needs them.
        if (/^sha(?:256|512)-[0-9a-f]{64}$/.test(tag)) continue;
        yield { name: there, reference: tag, run: () => new ImageWay(this, here, there).send(tag, digest) };
      }
  }

  get options(): ExportOptions {
    return this.#options;
  }

  get registry(): RegistryOrigin {
    return this.#registry;
  }

  /** A manifest of the account. */
  async manifest(here: string, digest: Digest): Promise<{ bytes: Buffer; mediaType: string }> {
    const { content, mediaType } = await this.#images.manifests.open(this.#options.accountId, here, { digest });
    return { bytes: await readAll(content, content.size!), mediaType };
  }

  /** What refers to a manifest here. */
  async referrers(here: string, subject: Digest): Promise<Descriptor[]> {
    const found: Descriptor[] = [];
    for (let last: Digest | '' | undefined = ''; last !== undefined;) {
      const read = { limit: page, last };
      const { descriptors, next } = await this.#images.referrers.list(this.#options.accountId, here, subject, read);
      found.push(...descriptors);
      if (found.length > maxManifests) throw tooMany();
      last = next;
    }
    return found;
  }

  async has(here: string, digest: Digest): Promise<boolean> {
    return this.#images.manifests.has(this.#options.accountId, here, { digest });
  }

  /** Sends a blob that the target lacks; resolves to the bytes that were sent, or in an assessment would be. */
  blob(here: string, there: string, digest: Digest): Promise<number> {
    const key = `${there} ${digest}`;
    const other = this.#sending.get(key);
    if (other) return other.then(() => 0);
    const work = this.#sendBlob(here, there, digest).finally(() => this.#sending.delete(key));
    this.#sending.set(key, work);
    return work;
  }

  async #sendBlob(here: string, there: string, digest: Digest): Promise<number> {
    const { accountId, dryRun } = this.#options;
    const found = await this.#ask(there, 'HEAD', this.#url(there, 'blobs', digest));
    if (found.status === 200) return 0;
    const open = () => this.#images.blobs.open(accountId, here, digest);
    const content = await open();
    content.close();
    if (dryRun) return content.size!;
    const begun = await this.#ask(there, 'POST', new URL(`${this.#url(there, 'blobs', 'uploads').href}/`));
    const upload = begun.status === 202 ? this.#uploadAt(begun) : undefined;
    if (!upload) throw refused(`an upload to ${there}`, begun.status);
    upload.searchParams.append('digest', digest);
    const headers = { 'content-type': 'application/octet-stream' };
    const { status } = await this.#ask(there, 'PUT', upload, headers, { size: content.size!, open });
    if (status !== 201 && status !== 204) throw refused(digest, status);
    return content.size!;
  }

  /** Where an upload goes on: at the target itself, or nothing is sent. */
  #uploadAt({ headers: { location } }: UpstreamAnswer): URL | undefined {
    const { base } = this.#target.remote;
    const url = location === undefined ? null : URL.parse(location, base.href);
    if (url && url.origin !== base.origin)
      throw new DomainError(
        'Invalid',
        `The target leads an upload to ${url.protocol}//${url.host}, which is not its own address, so nothing is sent there.`,
      );
    return url ?? undefined;
  }

  async put(there: string, reference: string, bytes: Buffer, mediaType: string): Promise<void> {
    const sent = { size: bytes.length, open: () => Promise.resolve(contentOf(bytes)) };
    const url = this.#url(there, 'manifests', reference);
    const push = () => this.#ask(there, 'PUT', url, { 'content-type': mediaType }, sent);
    const { status } = await this.#manifests.run(push, there);
    if (status !== 201 && status !== 200) throw refused(`the manifest ${reference}`, status);
  }

  async #ask(
    there: string,
    method: 'HEAD' | 'POST' | 'PUT',
    url: URL,
    headers: Record<string, string> = {},
    sent?: { size: number; open: () => Promise<Content> },
  ): Promise<UpstreamAnswer> {
    const answer = await this.#target.remote.send({
      method,
      url,
      headers,
      subject: there,
      scope: `repository:${there}:pull,push`,
      signal: this.#options.signal,
      sent: sent && {
        size: sent.size,
        open: async () => Readable.from(piecesOf(await sent.open()), { objectMode: false }),
      },
    });
    discard(answer.body);
    return answer;
  }

  #url(there: string, ...rest: string[]): URL {
    return urlBelow(this.#target.remote.base, 'v2', ...there.split('/'), ...rest);
  }
}

/** One image on its way. */
class ImageWay {
  readonly #to: ImageExport;
  readonly #here: string;
  readonly #there: string;
  readonly #seen = new Set<Digest>();
  /** Manifests whose referrers were looked for. */
  readonly #subjects = new Set<Digest>();
  #bytes = 0;

  constructor(to: ImageExport, here: string, there: string) {
    this.#to = to;
    this.#here = here;
    this.#there = there;
  }

  async send(tag: string, digest: Digest): Promise<ImportResult> {
    const { registry, options } = this.#to;
    const before = (await registry.digestOf(this.#there, tag)) ?? (await registry.manifest(this.#there, tag))?.digest;
    if (before !== undefined && before !== digest && !options.moveTags) {
      const note = 'the tag there points to another image; --move-tags moves it';
      return { outcome: 'conflict', bytes: 0, note };
    }
    if (before !== digest) await this.#manifest(digest);
    await this.#referrers(digest);
    if (before === digest) {
      const note = 'the image was there, its referrers were not';
      return this.#bytes > 0 ? { outcome: 'imported', bytes: this.#bytes, note } : { outcome: 'present', bytes: 0 };
    }
    if (!options.dryRun) {
      const { bytes, mediaType } = await this.#to.manifest(this.#here, digest);
      await this.#to.put(this.#there, tag, bytes, mediaType);
    }
    return { outcome: 'imported', bytes: this.#bytes };
  }

  /** Sends a manifest that the target lacks, after all that it needs. */
  async #manifest(digest: Digest): Promise<void> {
    if (this.#seen.has(digest)) return;
    if (this.#seen.size >= maxManifests) throw tooMany();
    this.#seen.add(digest);
    if ((await this.#to.registry.digestOf(this.#there, digest)) === digest) return;
    const { bytes, mediaType } = await this.#to.manifest(this.#here, digest);
    const { manifests, blobs } = contentsOf(parseDocument(bytes) ?? {});
    // An index may lack some of its images, here and there.
    for (const child of manifests) if (await this.#to.has(this.#here, child.digest)) await this.#manifest(child.digest);
    for (const blob of blobs) this.#bytes += await this.#to.blob(this.#here, this.#there, blob.digest);
    this.#bytes += bytes.length;
    if (!this.#to.options.dryRun) await this.#to.put(this.#there, digest, bytes, mediaType);
  }

  /** Sends what refers to a manifest, or to one that it names, and keeps the list of it where the target does not. */
  async #referrers(subject: Digest): Promise<void> {
    const { registry, options } = this.#to;
    if (this.#subjects.has(subject)) return;
    if (this.#subjects.size >= maxManifests) throw tooMany();
    this.#subjects.add(subject);
    const { bytes } = await this.#to.manifest(this.#here, subject);
    for (const { digest } of contentsOf(parseDocument(bytes) ?? {}).manifests)
      if (await this.#to.has(this.#here, digest)) await this.#referrers(digest);
    const ours = await this.#to.referrers(this.#here, subject);
    if (ours.length === 0) return;
    const theirs = new Set(await registry.referrers(this.#there, subject));
    for (const { digest } of ours) {
      if (!theirs.has(digest)) await this.#manifest(digest);
      await this.#referrers(digest);
    }
    if (!registry.lacksReferrers || options.dryRun) return;
    const tag = fallbackTag(subject);
    const list = await registry.manifest(this.#there, tag);
    const { manifests } = (list ? (parseDocument(list.bytes) ?? {}) : {}) as { manifests?: unknown };
    const before = readDescriptors(Array.isArray(manifests) ? manifests : []);
    const added = ours.filter(({ digest }) => !before.some((each) => each.digest === digest));
    if (added.length === 0) return;
    const index = { schemaVersion: 2, mediaType: mediaTypes.index, manifests: [...before, ...added] };
    await this.#to.put(this.#there, tag, Buffer.from(JSON.stringify(index)), mediaTypes.index);
  }
}

function tooMany(): DomainError {
  return new DomainError('TooLarge', `The image has more than ${maxManifests} manifests.`);
}

function refused(what: string, status: number): DomainError {
  return new DomainError('Invalid', `The target refused ${what} (${status}).`);
}
