import { BackgroundTask } from '../upstream/background-task.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { Platform } from './image-name.ts';
import { WantedImages, type ImageParts } from './images.ts';
import { allNames, usedTags } from '../mirror/listing.ts';
import { WantedPackages, type PackageParts } from './packages.ts';
import type { Report } from './report.ts';
import { PrefetchRun } from './run.ts';
import type { Spot, Requirement } from './requirement.ts';
import type { Window } from './window.ts';

export interface PrefetchParts extends PackageParts, ImageParts {
  upstreams: readonly Upstream[];
}

export interface PrefetchOptions {
  /** What this account hosts is not fetched. */
  accountId: number;
  requirements: readonly Requirement[];
  /** Also what has been used through the mirror. */
  inUse?: { newest: number; since: number } | undefined;
  /** Of multi-platform images only these; none means all. */
  platforms: readonly Platform[];
  /** For references that do not say what they are for; none means those of the projects in `requirements`. */
  frameworks: readonly string[];
  referrers: boolean;
  dryRun: boolean;
  concurrency: number;
  /** Bytes a second, from all upstreams together. */
  rate?: number | undefined;
  /** How much of an upstream's announced rate limit may be used up, from 0 to 1. */
  rateLimitShare: number;
  window?: Window | undefined;
  signal: AbortSignal;
  now: () => number;
  /** Milliseconds after which an upstream that gives nothing is given up. */
  patience?: number;
  /** Hears how far it is, now and then. */
  watch?: (progress: Progress) => void;
}

export interface Progress {
  /** Things that are known to be wanted by now, and those of them that are done. */
  known: number;
  ended: number;
  /** Bytes from upstreams. */
  received: number;
  /** Why nothing moves. */
  waiting: string | undefined;
}

const anywhere: Spot = { file: 'what is in use', line: 0 };

/**
 * Fills the mirror with what will be needed, through the doors that clients use. What is stored is passed over, so that
 * one that was called off goes on where it stopped. What cannot be had is in the report; it rejects only for faults of
 * our own, such as a full disk.
 */
export async function prefetch(parts: PrefetchParts, options: PrefetchOptions): Promise<Report> {
  const { accountId, signal, watch, patience = 30_000 } = options;
  const task = new BackgroundTask(signal, options.rate);
  let why: string | undefined;
  const run = new PrefetchRun({
    ...options,
    upstreams: parts.upstreams,
    share: options.rateLimitShare,
    patience,
    waiting: (reason) => {
      why = reason;
    },
  });
  const packages = new WantedPackages(parts, run, accountId);
  const images = new WantedImages(parts, run, options);
  const tell = () => watch?.({ ...run.progress, received: task.received, waiting: why });
  const timer = watch && setInterval(tell, 200);
  try {
    await task.run(async () => {
      begin(options, packages, images, run);
      if (options.inUse || options.requirements.some(({ kind }) => ['package', 'dependency'].includes(kind))) {
        packages.advisories({ file: 'advisories', line: 0 });
      }
      if (options.inUse) {
        for await (const id of allNames(parts.database, 'nupkg')) packages.newest(id, options.inUse.newest, anywhere);
        for await (const { upstream: name, name: repository, tag } of usedTags(
          parts.database,
          'manifest',
          options.inUse.since,
        )) {
          const upstream = parts.imageMirror.upstreams.find((each) => each.name === name);
          if (upstream) images.tag({ upstream, name: repository }, tag, anywhere);
        }
      }
      await run.done();
    });
  } finally {
    clearInterval(timer);
    tell();
  }
  run.report.received = task.received;
  return run.report;
}

function begin(
  { requirements, frameworks }: PrefetchOptions,
  packages: WantedPackages,
  images: WantedImages,
  run: PrefetchRun,
): void {
  const inProjects = new Set(
    requirements.flatMap((requirement) => ('frameworks' in requirement ? requirement.frameworks : [])),
  );
  const usual = frameworks.length > 0 ? frameworks : [...inProjects];
  const central = new Set(
    requirements.flatMap((requirement) => (requirement.kind === 'dependency' ? [requirement.id.toLowerCase()] : [])),
  );
  for (const requirement of requirements.toReversed()) {
    const { spot } = requirement;
    if (requirement.kind === 'package') packages.version(requirement.id, requirement.version, spot);
    if (requirement.kind === 'image') images.image(requirement.image, requirement.platforms, spot);
    if (requirement.kind === 'unclear') run.missing(requirement.what, requirement.reason, spot);
    if (requirement.kind === 'dependency') {
      const own = requirement.frameworks.length === 0 ? usual : requirement.frameworks;
      packages.dependency(requirement.id, requirement.range, own, spot);
    }
    if (requirement.kind === 'central' && !central.has(requirement.id.toLowerCase())) {
      run.missing(requirement.id, 'it has no version here; give Directory.Packages.props too', spot);
    }
  }
}
