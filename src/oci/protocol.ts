import { imageComponent } from '../runtime/cyclonedx.ts';
import { isDigest, parseDigest } from '../runtime/digest.ts';
import { pluralOf } from '../config/protocols.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import { pagesOf } from '../runtime/pages.ts';
import type { Core } from '../server/core.ts';
import { createTokenEndpoint } from '../http/token.ts';
import type { RepeatedWork } from '../jobs/repeated-work.ts';
import type { Work } from '../jobs/jobs.ts';
import type { Counts } from '../jobs/runs.ts';
import type { JobDefinition } from '../jobs/table.ts';
import { AccountViews } from '../mirror/policy/account-views.ts';
import { Admission, noJudge } from '../mirror/policy/admission.ts';
import type { MirrorReader } from '../mirror/stored-only.ts';
import { matcher, UpstreamPolicy, type NameStory } from '../mirror/policy/upstream-policy.ts';
import type { OpenProtocol, PrivateNames, Protocol, Web } from '../server/protocol.ts';
import { baseOf } from '../upstream/configured.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { mirroredDownloads } from '../usage/mirrored.ts';
import type { Quota } from '../usage/quota.ts';
import { dropAbandonedBlobs } from './hosted/abandoned-blobs.ts';
import { carriedImages } from './hosted/carried.ts';
import { imageClaims } from './hosted/claims.ts';
import { deletedImages } from './hosted/deleted-images.ts';
import { imageOperations } from './operations/detail-operations.ts';
import { describeImageEntry, imageEntries } from './mirrored/image-entries.ts';
import { ImageMirror } from './mirrored/image-mirror.ts';
import { ImageHistory } from './catalog/image-history.ts';
import { imageStory } from './catalog/image-story.ts';
import { ImageSource } from './catalog/image-source.ts';
import { HostedImages } from './catalog/hosted-images.ts';
import { Images } from './catalog/images.ts';
import { containerOperations } from './operations/management.ts';
import { imageNames } from './catalog/image-names.ts';
import { MirroredImages } from './catalog/mirrored-images.ts';
import { compareImages, exportImages, importImages } from './import/sources.ts';
import { imageInputs } from './prefetch/inputs.ts';
import { contentsOfWithdrawn } from './prefetch/withdrawn-contents.ts';
import { imageMeaning } from './prefetch/item-meaning.ts';
import { plainImages } from './prefetch/plain.ts';
import { prefetchImages } from './prefetch/images.ts';
import { listedForms, listedName, type UpstreamRepository } from './mirrored/upstream-repository.ts';
import { dropLostUploads, dropStagedFiles } from './uploads/lost-uploads.ts';
import { PastImages } from './catalog/past-images.ts';
import { Pushes } from './catalog/pushes.ts';
import { promotableImages } from './hosted/promotable.ts';
import { imageReferences, imageRowBytes } from './hosted/references.ts';
import { isTag, isRepositoryName } from './format/reference.ts';
import { addPulls, claimsAmong, largestRepositories } from './hosted/repositories.ts';
import { correctCounts } from './hosted/repository-counts.ts';
import { retainImages } from './hosted/retention.ts';
import { retainTags, type TagRule } from './hosted/tag-retention.ts';
import { createRegistry } from './http/routes.ts';
import { imageSearches } from './operations/search-sources.ts';
import { askRateLimit } from './mirrored/rate-limit.ts';
import { storedTags } from './mirrored/stored-tags.ts';
import { StoredImages } from './catalog/stored-images.ts';
import { ContinuedUploads, uploadHandler } from './http/upload-relay.ts';

/** OCI Distribution: the container registry under `/v2`. */
export const oci: Protocol = {
  kind: 'container',
  references: imageReferences,
  rowBytes: imageRowBytes,
  addDownloads: addPulls,
  inputs: imageInputs,
  open: (core, stack) => {
    const registry = new ContainerRegistry(core);
    stack.defer(core.closing.part('the uploads', () => registry.images.close()));
    return registry;
  },
};

/** The container registry on an open core. */
export class ContainerRegistry implements OpenProtocol {
  readonly kind = 'container';
  readonly component = (name: string, digest: string) => imageComponent(name, parseDigest(digest));
  readonly spellings = listedForms;
  readonly attach: Images['attach'] = (...asked) => this.images.attach(...asked);
  readonly images: Images;
  readonly source: ImageSource;
  readonly #core: Core;
  readonly #mirrors: AccountViews<ImageMirror>;
  readonly #hosted: HostedImages;
  readonly #mirrored: MirroredImages;
  readonly #mirrorsWith: (admission: Admission, mirror: MirrorReader) => AccountViews<ImageMirror>;

  constructor(core: Core) {
    const { config, database, blobs, accounts, mirror, admission, gate, sightings, upstreams, instances, now } = core;
    const { limits, reserved } = config;
    const ours = upstreams.filter((each) => each.config.kind === this.upstreams.kind);
    this.#core = core;
    const examine: Images['examine'] = (...pushed) => gate.examinePush(...pushed);
    this.images = new Images(database, blobs, config, now, instances.folder, examine, core.deletedFor);
    this.#mirrorsWith = (admitting, reader) =>
      new AccountViews(
        ours,
        async (accountId) => (await accounts.get(accountId))?.name,
        (account, accountId) => {
          const policy = new UpstreamPolicy(ours, account, reserved[pluralOf(this.kind)] ?? []);
          return new ImageMirror(reader, policy, { admission: admitting, sightings, accountId }, limits);
        },
      );
    this.#mirrors = this.#mirrorsWith(admission, mirror);
    this.#hosted = new HostedImages(database, this.images);
    this.#mirrored = new MirroredImages({ database, blobs, mirrors: this.#mirrors, now });
    this.source = new ImageSource({ database, images: this.images, mirrors: this.#mirrors, limits, now });
  }

  mount(web: Web) {
    const { config, database, instances, log, now } = this.#core;
    const { images, source } = this;
    const { uploadIdle: idle } = config.limits;
    const uploads = new ContinuedUploads({ database, images, instances, relay: web.relay, idle, log });
    const mirrors = this.#mirrors;
    const history = new ImageHistory(database, mirrors);
    const pastImages = (until: number) => new PastImages({ database, mirrors, source }, until);
    const pushes = this.#pushes;
    return [
      {
        path: '/v2',
        answer: createRegistry({
          ...web,
          images,
          source,
          history,
          pastImages,
          now,
          uploads,
          pushes,
          limits: config.limits,
          log,
        }),
      },
      // Container clients look for tokens here.
      { path: '/token', answer: createTokenEndpoint(web.authenticator, log, now) },
    ];
  }

  get #pushes(): Pushes {
    const { images, source } = this;
    return new Pushes({ images, source, mirrors: this.#mirrors, hasPulled: this.#hasPulled, log: this.#core.log });
  }

  relayed(quota: Quota) {
    const { accounts, config } = this.#core;
    return [uploadHandler(this.images, accounts, quota, config.limits.uploadIdle)];
  }

  /** Another instance writes its counts of pulls within a few seconds; until then this does not see them. */
  readonly #hasPulled = async (accountId: number, place: UpstreamRepository): Promise<boolean> => {
    const { database, usage } = this.#core;
    await usage.flush();
    const name = listedName(place);
    const downloadsOf = await mirroredDownloads(database, accountId, this.kind, [name]);
    return downloadsOf(name).total > 0;
  };

  get operations() {
    const { database } = this.#core;
    const parts = { database, source: this.source, mirrors: this.#mirrors };
    const stored = new StoredImages({ ...parts, hosted: this.#hosted, mirrored: this.#mirrored });
    return [...containerOperations(this.#core, this.#lists, this.#mirrored), ...imageOperations(stored, this.#core)];
  }

  get searches() {
    return imageSearches(this.#lists);
  }

  get #lists() {
    return [this.#hosted, this.#mirrored];
  }

  get carried() {
    return carriedImages(this.#carrying);
  }

  get promotable() {
    return promotableImages(this.#carrying);
  }

  get #carrying(): Parameters<typeof carriedImages>[0] {
    const { config, database, blobs, now } = this.#core;
    const { source, images } = this;
    return { database, blobs, manifests: images.manifests, source, limit: config.limits.manifest, now };
  }

  get claims() {
    const { database, now } = this.#core;
    return imageClaims(database, now);
  }

  get deleted() {
    return deletedImages(this.#core.now);
  }

  get names() {
    return imageNames(this.#core.database, this.#mirrors, this.#mirrored);
  }

  get stored() {
    return storedTags(this.#core.database, this.#mirrors);
  }

  unfinishedBytes(accountId: number): Promise<number> {
    return this.images.uploads.bytesOf(accountId);
  }

  get jobs(): JobDefinition[] {
    const { database, instances, deletionTime } = this.#core;
    const run = async () => {
      await this.images.uploads.dropLost();
      const lost = await dropLostUploads(database, instances, deletionTime() - lostAfter);
      const { sessions, ...files } = await this.images.uploads.expire(deletionTime());
      return { sessions: sessions + lost, ...files };
    };
    return [{ name: 'uploads', summary: 'drop abandoned uploads', canDryRun: false, run }];
  }

  get chores(): RepeatedWork[] {
    const { config, database, blobs, instances, deletionTime } = this.#core;
    const dropFiles = async () => {
      await dropStagedFiles(database, blobs, deletionTime() - config.limits.uploadAge);
    };
    const dropLost = async () => {
      await this.images.uploads.dropLost();
      await dropLostUploads(database, instances, 0);
    };
    return [
      { interval: 60_000, run: dropLost, failure: 'lost uploads were not deleted' },
      { interval: 5000, run: () => this.images.uploads.closeQuiet(), failure: 'quiet uploads were not closed' },
      { interval: 600_000, run: dropFiles, failure: 'abandoned staged files were not deleted' },
    ];
  }

  async retain(work: Work): Promise<Counts> {
    const { config, database, accounts, deletedFor, deletionTime } = this.#core;
    const { containers, protect } = config.retention;
    const common = { ...work, now: deletionTime(), protect, deletedFor };
    const counts: Counts = {};
    if (containers.tags.length > 0) {
      const names = new Map((await accounts.list()).map(({ id, name }) => [id, name]));
      const rules = containers.tags.map((rule) => tagRuleOf(rule, (accountId) => names.get(accountId)));
      counts['tags'] = await retainTags(database, { ...common, rules });
    }
    const { untaggedAfter } = containers;
    if (untaggedAfter !== undefined) counts['manifests'] = await retainImages(database, { ...common, untaggedAfter });
    return counts;
  }

  async release(work: Work, before: number): Promise<Counts> {
    const { database, now } = this.#core;
    if (!work.dryRun) await correctCounts(database, now, work.signal);
    return { ...(await dropAbandonedBlobs(database, { ...work, before, now: now() })) };
  }

  contentsOfWithdrawn(...asked: Parameters<NonNullable<OpenProtocol['contentsOfWithdrawn']>>): Promise<void> {
    return contentsOfWithdrawn(this.#core.mirror, ...asked);
  }

  prefetch(...asked: Parameters<OpenProtocol['prefetch']>): Promise<void> {
    const { config, database, mirror } = this.#core;
    return prefetchImages({ config, database, mirror, mirrors: this.#mirrors }, ...asked);
  }

  async wantedLine(accountId: number, name: string, reference: string): Promise<string | undefined> {
    const mirror = await this.#mirrors.of(accountId);
    const { place } = isRepositoryName(name) ? mirror.names.locate(name, undefined) : {};
    if (!place || reference === '' || (await mirror.isStored(place, 'manifest', reference))) return undefined;
    if (!isDigest(reference)) return isTag(reference) ? `${listedName(place)}:${reference}` : undefined;
    // A list has images, not the layers of one.
    return (await mirror.blobsOfImages(place)).has(reference) ? undefined : `${listedName(place)}@${reference}`;
  }

  async *plainEntries(...[source, options]: Parameters<NonNullable<OpenProtocol['plainEntries']>>) {
    yield* plainImages(await this.#mirrors.of(options.accountId), source, options);
  }

  importFrom(...[source, options]: Parameters<NonNullable<OpenProtocol['importFrom']>>) {
    return importImages(this.#importing, source, options);
  }

  exportTo(...asked: Parameters<NonNullable<OpenProtocol['exportTo']>>) {
    return exportImages({ ...this.#importing, database: this.#core.database }, ...asked);
  }

  compare(...asked: Parameters<NonNullable<OpenProtocol['compare']>>) {
    return compareImages(this.#importing, ...asked);
  }

  get #importing(): Parameters<typeof importImages>[0] {
    const { config, blobs } = this.#core;
    const { blob: blobLimit = Number.MAX_SAFE_INTEGER, manifest: manifestLimit } = config.limits;
    return {
      images: this.images,
      source: this.source,
      mirrors: this.#mirrors,
      digestsOfTag: (...asked) => this.digestsOfTag(...asked),
      pushes: this.#pushes,
      blobs,
      blobLimit,
      manifestLimit,
    };
  }

  async usedName(accountId: number, name: string): Promise<string> {
    const { place, hosted } = await this.#located(accountId, name);
    return place ? listedName(place) : (hosted ?? name);
  }

  async digestsOfTag(accountId: number, name: string, tag: string): Promise<string[]> {
    const history = new ImageHistory(this.#core.database, this.#mirrors);
    return history.digestsOf(await this.#located(accountId, name), tag, maxDigestsOfTag);
  }

  async #located(accountId: number, name: string) {
    if (!isRepositoryName(name))
      throw new DomainError('Invalid', `${name.slice(0, 100)}: expected the name of an image, such as team/api`);
    return this.source.locate({ accountId, name, ns: undefined, mayPush: false });
  }

  async holds(accountId: number, name: string, reference?: string): Promise<boolean> {
    if (reference === undefined) return (await claimsAmong(this.#core.database, accountId, [name])).get(name) ?? false;
    return this.images.manifests.has(accountId, name, isDigest(reference) ? { digest: reference } : { tag: reference });
  }

  prefetchOver(mirror: MirrorReader) {
    const { config, database } = this.#core;
    const parts = { config, database, mirror, mirrors: this.#mirrorsWith(new Admission(noJudge), mirror) };
    return { prefetch: (...asked: Parameters<OpenProtocol['prefetch']>) => prefetchImages(parts, ...asked) };
  }

  async meaningOf(...[accountId, item]: Parameters<NonNullable<OpenProtocol['meaningOf']>>) {
    const { upstreams } = await this.#mirrors.of(accountId);
    return imageMeaning(item, this.#core.config.server, upstreams);
  }

  readonly upstreams = {
    kind: 'registry',
    entries: imageEntries,
    probe: ({ config }) => new URL('/v2/', baseOf(config).origin),
    askRateLimit,
    describe: (upstream, key) => describeImageEntry(upstream, key, this.#core.config.limits),
  } satisfies OpenProtocol['upstreams'];

  async explain(accountId: number, asked: string): Promise<NameStory> {
    return imageStory(this.#core.database, await this.#mirrors.of(accountId), accountId, asked);
  }

  largest(accountId: number, limit: number) {
    return largestRepositories(this.#core.database, accountId, limit);
  }

  get privateNames(): PrivateNames {
    const isDefault = ({ config }: Upstream) => config.kind === this.upstreams.kind && config.default;
    return {
      setting: 'containers',
      separator: '/',
      isAsked: this.#core.upstreams.some(isDefault),
      hosted: () => this.#hostedNames(),
      isMirrored: async (prefix) => {
        const accountId = this.#core.defaultAccount.id;
        const upstream = (await this.#mirrors.of(accountId)).upstreams.find(isDefault);
        const listed = `${upstream?.name}/${prefix}`;
        const [next] = await this.#mirrored.list(accountId, 1, listed);
        return next?.name.startsWith(listed) ?? false;
      },
    };
  }

  async *#hostedNames(): AsyncGenerator<string> {
    for (const { id: accountId } of await this.#core.accounts.list()) {
      const mirror = await this.#mirrors.of(accountId);
      const { repositories } = this.images;
      const read = async (after: string) => (await repositories.catalog(accountId, namesAtATime, after)).items;
      for await (const page of pagesOf('', namesAtATime, read, String))
        for (const name of page) if (mirror.names.locate(name, undefined).place) yield name;
    }
  }
}

/** A rule of the settings about tags. */
function tagRuleOf(
  { images, tags, accounts, ...rest }: Config['retention']['containers']['tags'][number],
  nameOf: (accountId: number) => string | undefined,
): TagRule {
  const isImage = matcher(images);
  const isFor = (accountId: number, name: string) =>
    isImage(name) && (accounts === undefined || accounts.includes(nameOf(accountId) ?? ''));
  return { isFor, matches: matcher(tags), keepNewest: rest.keepNewest, keepUsedFor: rest.keepUsedFor };
}

const namesAtATime = 200;
/** Digests of a tag for a question who pulled it: as many as the history keeps of a tag. */
const maxDigestsOfTag = 1000;
/** A session is ended when its data folder is gone and no request changed it for this many milliseconds. */
const lostAfter = 3_600_000;
