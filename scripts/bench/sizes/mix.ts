import { availableParallelism } from 'node:os';

/** The content and the load of a size of docs/scaling.md. docs/performance.md explains the assumptions. */
export interface Size {
  name: 'small' | 'middle' | 'large';
  developers: number;
  /** Pulls of images a day. */
  pulls: number;
  packages: number;
  /** Repositories of images, with ten tags each. */
  repositories: number;
  /** Packages and repositories of which the files exist, too; clients ask for these. */
  withFiles: { packages: number; repositories: number };
  /** Packages that only the upstream has. */
  mirrored: number;
  /** The part of the load that is sent. */
  share: number;
  workers: number;
  /** MiB that docs/scaling.md states. */
  memory: number;
}

const workers = availableParallelism();

export const sizes: Record<Size['name'], Size> = {
  small: {
    name: 'small',
    developers: 50,
    pulls: 5000,
    packages: 1000,
    repositories: 50,
    withFiles: { packages: 1000, repositories: 50 },
    mirrored: 200,
    share: 1,
    workers: 1,
    memory: 512,
  },
  middle: {
    name: 'middle',
    developers: 1000,
    pulls: 100_000,
    packages: 20_000,
    repositories: 400,
    withFiles: { packages: 20_000, repositories: 400 },
    mirrored: 2000,
    share: 1,
    workers,
    memory: 512 * workers,
  },
  // One machine can neither store it nor send so much: it has all rows, the files of a tenth, and a twentieth of the load.
  large: {
    name: 'large',
    developers: 10_000,
    pulls: 1_000_000,
    packages: 200_000,
    repositories: 4000,
    withFiles: { packages: 20_000, repositories: 400 },
    mirrored: 2000,
    share: 1 / 20,
    workers,
    memory: 512 * workers,
  },
};

/** Versions of each package, on average. */
export const versionsOfPackage = 10;
export const tagsOfRepository = 10;
/** Images that only the upstream has. */
export const mirroredImages = 20;

/** What a developer, with the builds that the developer causes, does in a day. */
const eachDay = {
  restore: 10,
  registration: 10,
  search: 10,
  page: 5,
  packagePush: 1,
  imagePush: 0.5,
};

/** Each share of the requests that is for content of the upstream. */
export const mirroredShare = { packages: 0.3, images: 0.2 };

/** A restore: IDs whose list of versions it reads, and how many of them it downloads. */
export const restored = { ids: 40, downloads: 20 };

/** A day's work is done in this many hours. The busy one has this many times the average of them. */
export const day = { hours: 8, peak: 3 };

const inBusyHour = (perDay: number) => (perDay / day.hours) * day.peak;

/** What is begun in the busy hour, by kind: the part that is sent. */
export function busyHour({ developers, pulls, share }: Size): Record<keyof typeof eachDay | 'pull', number> {
  const each = (kind: keyof typeof eachDay) => inBusyHour(share * developers * eachDay[kind]);
  return {
    restore: each('restore'),
    registration: each('registration'),
    search: each('search'),
    page: each('page'),
    packagePush: each('packagePush'),
    imagePush: each('imagePush'),
    pull: inBusyHour(share * pulls),
  };
}
