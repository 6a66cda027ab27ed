import type { Config } from '../../config/schema.ts';
import type { Database } from '../../database/database.ts';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { parseDocument } from '../../mirror/document.ts';
import type { MirrorReader } from '../../mirror/stored-only.ts';
import { matcher } from '../../mirror/policy/upstream-policy.ts';
import { claimsAmong } from '../hosted/repositories.ts';
import type { AccountViews } from '../../mirror/policy/account-views.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import { upstreamNamed, type UpstreamRepository } from '../mirrored/upstream-repository.ts';
import { unlessUpstreamFails } from '../../upstream/upstream-error.ts';
import { readAll, readThrough } from '../../storage/files/content.ts';
import { contentsOf, selectPlatforms, type Item } from './image-contents.ts';
import { isOwnHost } from './item-meaning.ts';
import type { ImageName } from './image-name.ts';
import { platformText, type Platform } from '../../prefetch/platform.ts';
import { inUseLocation, storedLocation, type PrefetchOptions } from '../../prefetch/prefetch.ts';
import { usedEntries } from '../../mirror/store/listing.ts';
import { isImage } from './image-item.ts';
import { notStored, type PrefetchRun } from '../../prefetch/run.ts';
import type { ItemLocation } from '../../prefetch/item.ts';

/** Suffixes of the tags that cosign makes from a digest: signatures, attestations, bills of materials. */
const cosignSuffixes = ['sig', 'att', 'sbom'];
/** Depth of referrers that are followed: 2 includes, for example, the signature of a bill of materials. */
const deepest = 2;

interface ImageParts {
  config: Config;
  database: Database;
  mirror: MirrorReader;
  mirrors: AccountViews<ImageMirror>;
}

/** The parts, and the mirror as the account sees it. */
type OpenParts = ImageParts & { imageMirror: ImageMirror };

/** A manifest to fetch, and the image that needs it. */
interface WantedManifest {
  place: UpstreamRepository;
  image: string;
  platforms: readonly Platform[];
  location: ItemLocation;
  /** Number of referrers between the manifest and the image. */
  depth: number;
}

/** Adds the images of the options to a prefetch. */
export async function prefetchImages(parts: ImageParts, run: PrefetchRun, options: PrefetchOptions): Promise<void> {
  const imageMirror = await parts.mirrors.of(options.accountId);
  const images = new WantedImages({ ...parts, imageMirror }, run, options);
  for (const { image, platforms, location } of options.items.filter(isImage).toReversed()) {
    images.image(image, platforms, location);
  }
  if (options.stored)
    for await (const { upstream: id, name, reference } of usedEntries(parts.database, 'manifest', 0)) {
      const upstream = imageMirror.upstreams.find((each) => each.id === id);
      if (upstream) images.tag({ upstream, name }, reference, storedLocation);
    }
  if (!options.inUse) return;
  for await (const { upstream: id, name, reference } of usedEntries(parts.database, 'manifest', options.inUse.since)) {
    const upstream = imageMirror.upstreams.find((each) => each.id === id);
    if (upstream && !isDigest(reference)) images.tag({ upstream, name }, reference, inUseLocation);
  }
}

/** Adds work for images to a prefetch. */
class WantedImages {
  readonly #parts: OpenParts;
  readonly #run: PrefetchRun;
  readonly #options: PrefetchOptions;
  readonly #isReserved: (name: string) => boolean;
  readonly #tags = new Map<string, Promise<ReadonlySet<string>>>();

  constructor(parts: OpenParts, run: PrefetchRun, options: PrefetchOptions) {
    this.#parts = parts;
    this.#run = run;
    this.#options = options;
    this.#isReserved = matcher(parts.config.reserved['containers'] ?? []);
  }

  /** Adds an image with the layers of its platforms and, if wanted, its referrers. */
  image(image: ImageName, platforms: readonly Platform[] | undefined, location: ItemLocation): void {
    const chosen = platforms ?? this.#options.platforms;
    this.#run.once(`image ${image.text} ${chosen.map(platformText).join()}`, image.text, location, async () => {
      const place = await this.#locate(image, location);
      if (place)
        this.#manifest(
          { place, image: image.text, platforms: chosen, location, depth: 0 },
          image.reference,
          image.text,
        );
    });
  }

  /** Adds a tag that was pulled through the mirror. */
  tag(place: UpstreamRepository, tag: string, location: ItemLocation): void {
    const image = `${place.upstream.name}/${place.name}:${tag}`;
    this.#run.once(`tag ${image}`, image, location, async () => {
      const located = await this.#open(`${place.upstream.name}/${place.name}`, image, location);
      if (located)
        this.#manifest({ place: located, image, platforms: this.#options.platforms, location, depth: 0 }, tag, image);
    });
  }

  /** The upstream and repository of an image; undefined if it cannot be fetched: the report then has the reason. */
  async #locate(
    { text, registry, repository }: ImageName,
    location: ItemLocation,
  ): Promise<UpstreamRepository | undefined> {
    const isUpstream = (known: string) => this.#parts.imageMirror.upstreams.some(({ name }) => name === known);
    // Docker takes a name without a registry from Docker Hub, also if that is not the default upstream here.
    const hub = registry === undefined && isUpstream('docker.io') ? `docker.io/${repository}` : undefined;
    if (registry === undefined || isOwnHost(registry, this.#parts.config.server))
      return this.#open(repository, text, location, hub);
    const known = upstreamNamed(registry);
    if (isUpstream(known)) return this.#open(`${known}/${repository}`, text, location);
    this.#run.missing(text, `no upstream is named ${known}`, location);
    return undefined;
  }

  /** The place of `name`; if no upstream has the name, the place of `other`. Never asks for a name that is hosted here. */
  async #open(
    name: string,
    image: string,
    location: ItemLocation,
    other?: string,
  ): Promise<UpstreamRepository | undefined> {
    const { hosted, place } = this.#parts.imageMirror.names.locate(name, undefined);
    const claims = await claimsAmong(this.#parts.database, this.#options.accountId, hosted);
    if ([...claims.values()].includes(true)) this.#run.report.skipped.set(image, 'hosted here');
    else if (hosted.some(this.#isReserved)) this.#run.report.skipped.set(image, 'reserved');
    else if (place) return place;
    else if (other !== undefined) return this.#open(other, image, location);
    else this.#run.missing(image, 'no upstream is configured for this name', location);
    return undefined;
  }

  #manifest(wanted: WantedManifest, reference: string, what = `${wanted.image}: manifest ${reference}`): void {
    const { place, location, platforms, depth } = wanted;
    const key = `manifest ${place.upstream.name} ${place.name} ${reference} ${platforms.map(platformText).join()}`;
    this.#run.once(key, what, location, async () => {
      if (!(await this.#isCurrent(place, reference))) await this.#run.gate.pass(place.upstream);
      const entry = await this.#parts.imageMirror.openManifest(place, reference);
      if (!entry) {
        this.#run.missing(what, `${place.upstream.name} does not have this image`, location);
        return;
      }
      const metadata = await entry.complete;
      const bytes = await readAll(entry.content, metadata.size);
      const key = keyOf(place, 'manifest', reference);
      const isNew = entry.outcome === 'miss' || entry.outcome === 'passed';
      if (isNew && !this.#run.dryRun && !(await this.#parts.mirror.stored(key))) throw notStored();
      this.#run.needed(key, metadata);
      if (entry.outcome === 'stale')
        this.#run.missing(what, 'the upstream failed; the stored manifest may be out of date', location);
      this.#run.found('manifest', isNew ? 'fetched' : 'present', bytes.length);
      this.#contents(wanted, bytes, what);
      if (this.#options.referrers && depth < deepest) this.#referrers(wanted, metadata.digest);
    });
  }

  #contents(wanted: WantedManifest, bytes: Buffer, what: string): void {
    const { place, image, location, platforms } = wanted;
    const { manifests, blobs } = contentsOf(parseDocument(bytes) ?? {});
    const chosen = selectPlatforms(manifests, platforms);
    if (manifests.length > 0 && chosen.length === 0) {
      const available = manifests
        .filter(({ subject }) => subject === undefined)
        .map(({ platform }) => platformText(platform!));
      this.#run.missing(
        what,
        `the image does not have ${platforms.map(platformText).join(', ')}; it has ${available.join(', ')}`,
        location,
      );
    }
    // Every stored manifest is an item by itself.
    if (!this.#isOnlyStored(location)) for (const { digest } of chosen) this.#manifest(wanted, digest);
    for (const blob of blobs) this.#blob(place, blob, image, location);
  }

  #blob(place: UpstreamRepository, { digest, size }: Item, image: string, location: ItemLocation): void {
    const what = `${image}: layer ${digest}`;
    this.#run.once(`blob ${place.upstream.name} ${place.name} ${digest}`, what, location, async () => {
      const stored = await this.#parts.mirror.openStored({ key: keyOf(place, 'blob', digest), lifetime: 'immutable' });
      stored?.content.close();
      if (stored?.metadata) this.#run.needed(keyOf(place, 'blob', digest), stored.metadata);
      if (stored) return this.#run.found('blob', 'present', stored.size ?? 0);
      if (this.#isOnlyStored(location)) return undefined;
      if (this.#run.dryRun) return this.#run.found('blob', 'fetched', size);
      await this.#run.gate.pass(place.upstream, false);
      const entry = await this.#parts.imageMirror.openBlob(place, digest);
      if (!entry) return this.#run.missing(what, `${place.upstream.name} does not have this blob`, location);
      if (entry.outcome === 'passed') {
        // What is passed on comes only as fast as it is read.
        entry.content.close();
        throw notStored();
      }
      // If the disk becomes full in the middle, the rest is passed on.
      await readThrough(entry.content);
      const metadata = await entry.complete;
      if (!(await this.#parts.mirror.stored(keyOf(place, 'blob', digest)))) throw notStored();
      this.#run.needed(keyOf(place, 'blob', digest), metadata);
      return this.#run.found('blob', entry.outcome === 'miss' ? 'fetched' : 'present', metadata.size);
    });
  }

  /** Whether an item is there because it is stored, so that nothing is fetched for it. */
  #isOnlyStored(location: ItemLocation): boolean {
    return location === storedLocation;
  }

  /** Adds the referrers of a manifest, from the referrers API and from cosign's tags. */
  #referrers(wanted: WantedManifest, digest: Digest): void {
    const { place, image, location, depth } = wanted;
    const key = `referrers ${place.upstream.name} ${place.name} ${digest}`;
    this.#run.once(key, `${image}: referrers of ${digest}`, location, async () => {
      if (!(await this.#isCurrent(place, digest, 'referrers'))) await this.#run.gate.pass(place.upstream);
      const listed = () => this.#parts.imageMirror.listReferrers(place, digest);
      const list = await (this.#options.isOffline ? unlessUpstreamFails(listed) : listed());
      const document = await this.#parts.mirror.stored(keyOf(place, 'referrers', digest));
      if (document) this.#run.needed(keyOf(place, 'referrers', digest), document);
      const found = { ...wanted, platforms: [], depth: depth + 1 };
      for (const each of list?.items ?? []) this.#manifest(found, each.digest);
      const named = () => this.#tagsOf(place);
      const tags = (this.#options.isOffline ? await unlessUpstreamFails(named) : await named()) ?? new Set();
      for (const suffix of cosignSuffixes) {
        const tag = `${digest.replace(':', '-')}.${suffix}`;
        if (tags.has(tag)) this.#manifest(found, tag);
      }
    });
  }

  /** The tags of a repository, requested once. A list does not count for the rate limit of pulls, one request per tag would. */
  #tagsOf(place: UpstreamRepository): Promise<ReadonlySet<string>> {
    const key = `${place.upstream.name} ${place.name}`;
    const known = this.#tags.get(key);
    if (known) return known;
    const list = this.#parts.imageMirror.listTags(place).then((found) => new Set(found?.items));
    this.#tags.set(key, list);
    list.catch(() => this.#tags.delete(key));
    return list;
  }

  /** Whether the mirror can answer from storage, without a request to the upstream. */
  async #isCurrent(place: UpstreamRepository, reference: string, kind = 'manifest'): Promise<boolean> {
    const metadata = await this.#parts.mirror.stored(keyOf(place, kind, reference));
    if (!metadata) return false;
    const isImmutable = kind === 'manifest' && isDigest(reference);
    return isImmutable || this.#options.now() < metadata.validatedAt + place.upstream.config.freshFor;
  }
}

function keyOf({ upstream, name }: UpstreamRepository, kind: string, reference: string) {
  return { upstream: upstream.id, kind, name, reference };
}
