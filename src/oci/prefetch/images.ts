import type { Config } from '../../config/schema.ts';
import type { Database } from '../../database/database.ts';
import { isDigest, type Digest } from '../../digest.ts';
import { parseDocument } from '../../mirror/document.ts';
import type { Mirror } from '../../mirror/mirror.ts';
import { matcher } from '../../mirror/upstream-policy.ts';
import { claimsAmong } from '../repositories.ts';
import type { ImageMirror } from '../image-mirror.ts';
import type { Place } from '../place.ts';
import { readAll } from '../../storage/content.ts';
import { contentsOf, select, type Item } from './image-contents.ts';
import type { ImageName } from './image-name.ts';
import { platformText, type Platform } from '../../prefetch/platform.ts';
import { inUseSpot, type PrefetchOptions } from '../../prefetch/prefetch.ts';
import { usedTags } from '../../mirror/listing.ts';
import { isImage } from './requirement.ts';
import type { PrefetchRun } from '../../prefetch/run.ts';
import type { Spot } from '../../prefetch/requirement.ts';

/** Signatures and what else cosign keeps under tags that a digest names. */
const cosignSuffixes = ['sig', 'att', 'sbom'];
/** Referrers of referrers: a signature of a bill of materials. */
const deepest = 2;

export interface ImageParts {
  config: Config;
  database: Database;
  mirror: Mirror;
  imageMirror: ImageMirror;
}

/** A manifest on its way here, and on whose behalf. */
interface WantedManifest {
  place: Place;
  image: string;
  platforms: readonly Platform[];
  spot: Spot;
  /** How many referrers lie between it and the image. */
  depth: number;
}

/** Adds to a prefetch the images that the options ask for. */
export async function prefetchImages(parts: ImageParts, run: PrefetchRun, options: PrefetchOptions): Promise<void> {
  const images = new WantedImages(parts, run, options);
  for (const { image, platforms, spot } of options.requirements.filter(isImage).toReversed()) {
    images.image(image, platforms, spot);
  }
  if (!options.inUse) return;
  for await (const { upstream: name, name: repository, tag } of usedTags(
    parts.database,
    'manifest',
    options.inUse.since,
  )) {
    const upstream = parts.imageMirror.upstreams.find((each) => each.name === name);
    if (upstream) images.tag({ upstream, name: repository }, tag, inUseSpot);
  }
}

/** What is asked of images. */
class WantedImages {
  readonly #parts: ImageParts;
  readonly #run: PrefetchRun;
  readonly #options: PrefetchOptions;
  readonly #isReserved: (name: string) => boolean;
  readonly #tags = new Map<string, Promise<ReadonlySet<string>>>();

  constructor(parts: ImageParts, run: PrefetchRun, options: PrefetchOptions) {
    this.#parts = parts;
    this.#run = run;
    this.#options = options;
    this.#isReserved = matcher(parts.config.reserved.containers);
  }

  /** An image with its platforms' layers, and what refers to it. */
  image(image: ImageName, platforms: readonly Platform[] | undefined, spot: Spot): void {
    const chosen = platforms ?? this.#options.platforms;
    this.#run.once(`image ${image.text} ${chosen.map(platformText).join()}`, image.text, spot, async () => {
      const place = await this.#locate(image, spot);
      if (place)
        this.#manifest({ place, image: image.text, platforms: chosen, spot, depth: 0 }, image.reference, image.text);
    });
  }

  /** A tag that has been pulled through here. */
  tag(place: Place, tag: string, spot: Spot): void {
    const image = `${place.upstream.name}/${place.name}:${tag}`;
    this.#run.once(`tag ${image}`, image, spot, async () => {
      const located = await this.#open(`${place.upstream.name}/${place.name}`, image, spot);
      if (located)
        this.#manifest({ place: located, image, platforms: this.#options.platforms, spot, depth: 0 }, tag, image);
    });
  }

  /** Where an image is upstream; undefined, with the reason told, where it is not to be fetched. */
  async #locate({ text, registry, repository }: ImageName, spot: Spot): Promise<Place | undefined> {
    if (registry === undefined || this.#isHere(registry)) return this.#open(repository, text, spot);
    const known = ['index.docker.io', 'registry-1.docker.io'].includes(registry) ? 'docker.io' : registry;
    if (this.#parts.imageMirror.upstreams.some(({ name }) => name === known)) {
      return this.#open(`${known}/${repository}`, text, spot);
    }
    this.#run.missing(text, `there is no upstream named ${known}`, spot);
    return undefined;
  }

  async #open(name: string, image: string, spot: Spot): Promise<Place | undefined> {
    const { hosted, place } = this.#parts.imageMirror.locate(name, undefined);
    const claims = await claimsAmong(this.#parts.database, this.#options.accountId, hosted);
    if ([...claims.values()].includes(true)) this.#run.report.skipped.set(image, 'hosted here');
    else if (hosted.some(this.#isReserved)) this.#run.report.skipped.set(image, 'reserved');
    else if (place) return place;
    else this.#run.missing(image, 'no upstream may be asked for it', spot);
    return undefined;
  }

  /** Whether a name's host is this service itself: the rest is then a name as its clients ask for it. */
  #isHere(host: string): boolean {
    const { baseUrl, registryUrl, host: listening, port } = this.#parts.config.server;
    const own = [baseUrl, registryUrl].filter((each) => each !== undefined).map((each) => new URL(each).host);
    return [...own, `${listening}:${port}`, `localhost:${port}`, `127.0.0.1:${port}`].includes(host);
  }

  #manifest(wanted: WantedManifest, reference: string, what = `${wanted.image}: manifest ${reference}`): void {
    const { place, spot, platforms, depth } = wanted;
    const key = `manifest ${place.upstream.name} ${place.name} ${reference} ${platforms.map(platformText).join()}`;
    this.#run.once(key, what, spot, async () => {
      if (!(await this.#isCurrent(place, reference))) await this.#run.gate.pass(place.upstream);
      const entry = await this.#parts.imageMirror.openManifest(place, reference);
      if (!entry) {
        this.#run.missing(what, `${place.upstream.name} has no such image`, spot);
        return;
      }
      const bytes = await readAll(entry.content, this.#parts.config.limits.manifest);
      const { digest } = await entry.complete;
      if (entry.outcome === 'stale') this.#run.missing(what, 'its upstream failed; what is here may be old', spot);
      this.#run.found('manifest', entry.outcome === 'miss' ? 'fetched' : 'present', bytes.length);
      this.#contents(wanted, bytes, what);
      if (this.#options.referrers && depth < deepest) this.#referrers(wanted, digest);
    });
  }

  #contents(wanted: WantedManifest, bytes: Buffer, what: string): void {
    const { place, image, spot, platforms } = wanted;
    const { manifests, blobs } = contentsOf(parseDocument(bytes) ?? {});
    const chosen = select(manifests, platforms);
    if (manifests.length > 0 && chosen.length === 0) {
      const there = manifests.filter(({ about }) => about === undefined).map(({ platform }) => platformText(platform!));
      this.#run.missing(
        what,
        `it has none of ${platforms.map(platformText).join(', ')}, but ${there.join(', ')}`,
        spot,
      );
    }
    for (const { digest } of chosen) this.#manifest(wanted, digest);
    for (const blob of blobs) this.#blob(place, blob, image, spot);
  }

  #blob(place: Place, { digest, size }: Item, image: string, spot: Spot): void {
    const what = `${image}: layer ${digest}`;
    this.#run.once(`blob ${place.upstream.name} ${place.name} ${digest}`, what, spot, async () => {
      const stored = await this.#parts.mirror.openStored({ key: keyOf(place, 'blob', digest), lifetime: 'immutable' });
      stored?.content.close();
      if (stored) return this.#run.found('blob', 'present', stored.size ?? 0);
      if (this.#run.dryRun) return this.#run.found('blob', 'fetched', size);
      await this.#run.gate.pass(place.upstream, false);
      const entry = await this.#parts.imageMirror.openBlob(place, digest);
      if (!entry) return this.#run.missing(what, `${place.upstream.name} has no such blob`, spot);
      try {
        const { size: stored } = await entry.complete;
        return this.#run.found('blob', entry.outcome === 'miss' ? 'fetched' : 'present', stored);
      } finally {
        entry.content.close();
      }
    });
  }

  /** What refers to a manifest, by the API and by cosign's tags. */
  #referrers(wanted: WantedManifest, digest: Digest): void {
    const { place, image, spot, depth } = wanted;
    const key = `referrers ${place.upstream.name} ${place.name} ${digest}`;
    this.#run.once(key, `${image}: what refers to ${digest}`, spot, async () => {
      if (!(await this.#isCurrent(place, digest, 'referrers'))) await this.#run.gate.pass(place.upstream);
      const list = await this.#parts.imageMirror.listReferrers(place, digest);
      const found = { ...wanted, platforms: [], depth: depth + 1 };
      for (const each of list?.items ?? []) this.#manifest(found, each.digest);
      const tags = await this.#tagsOf(place);
      for (const suffix of cosignSuffixes) {
        const tag = `${digest.replace(':', '-')}.${suffix}`;
        if (tags.has(tag)) this.#manifest(found, tag);
      }
    });
  }

  /** The tags of a repository, asked for once: a list costs no pull, as a question for each tag would. */
  #tagsOf(place: Place): Promise<ReadonlySet<string>> {
    const key = `${place.upstream.name} ${place.name}`;
    const known = this.#tags.get(key);
    if (known) return known;
    const list = this.#parts.imageMirror.listTags(place).then((found) => new Set(found?.items));
    this.#tags.set(key, list);
    list.catch(() => this.#tags.delete(key));
    return list;
  }

  /** Whether the mirror answers from what it has. */
  async #isCurrent(place: Place, reference: string, kind = 'manifest'): Promise<boolean> {
    const metadata = await this.#parts.mirror.stored(keyOf(place, kind, reference));
    if (!metadata) return false;
    const isImmutable = kind === 'manifest' && isDigest(reference);
    return isImmutable || this.#options.now() < metadata.validatedAt + place.upstream.config.freshFor;
  }
}

function keyOf({ upstream, name }: Place, kind: string, reference: string) {
  return { upstream: upstream.name, kind, name, reference };
}
