import { readFile } from 'node:fs/promises';
import { CachedDriver } from './cached-driver.ts';
import type { Driver } from './driver.ts';
import { FilesystemDriver } from './filesystem.ts';
import type { Paths } from '../files/paths.ts';
import { S3Driver } from './s3/s3-driver.ts';
import { StorageSettingError } from './s3/failures.ts';

/** The settings of a storage. */
interface StorageSettings {
  driver: 'filesystem' | 's3';
  /** Most bytes of local copies. */
  cache: number;
  s3: {
    endpoint?: string | undefined;
    region: string;
    bucket?: string | undefined;
    prefix?: string | undefined;
    forcePathStyle: boolean;
    accessKeyId?: string | undefined;
    secretAccessKey?: string | undefined;
    caFile?: string | undefined;
    redirect: boolean;
    publicEndpoint?: string | undefined;
  };
}

/** The storage in a data folder. */
export function openDataFolder(paths: Paths): Driver {
  return new FilesystemDriver(paths);
}

/** The storage of the settings. `hasRoom` says whether the disk has room for a local copy of so many bytes. */
export async function openDriver(
  { driver, cache, s3 }: StorageSettings,
  paths: Paths,
  hasRoom: (bytes: number) => Promise<boolean>,
): Promise<Driver> {
  if (driver === 'filesystem') return openDataFolder(paths);
  const { caFile, bucket = '', ...rest } = s3;
  const ca =
    caFile === undefined
      ? undefined
      : await readFile(caFile, 'utf8').catch((error: Error) => {
          throw new StorageSettingError('storage.s3.caFile', `the file cannot be read: ${error.message}`, error);
        });
  const inBucket = await S3Driver.open({ ...rest, bucket, ca });
  return cache === 0 ? inBucket : new CachedDriver(inBucket, paths.cache, cache, hasRoom);
}
