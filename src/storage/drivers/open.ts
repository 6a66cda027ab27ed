import { readFile } from 'node:fs/promises';
import { CachedDriver } from './cached-driver.ts';
import type { Driver } from './driver.ts';
import type { Paths } from '../files/paths.ts';
import { S3Driver } from './s3/s3-driver.ts';
import { StorageSettingError } from './s3/failures.ts';

/** The settings of a storage in S3. */
export interface S3Settings {
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

/** A storage in S3 with its local copies. `hasRoom` says whether the disk has room for a copy of so many bytes. */
export async function openS3(
  { cache, s3 }: S3Settings,
  paths: Paths,
  hasRoom: (bytes: number) => Promise<boolean>,
): Promise<Driver> {
  const { caFile, bucket = '', ...rest } = s3;
  const ca =
    caFile === undefined
      ? undefined
      : await readFile(caFile, 'utf8').catch((error: Error) => {
          throw new StorageSettingError('storage.s3.caFile', `the file cannot be read: ${error.message}`, error);
        });
  const driver = await S3Driver.open({ ...rest, bucket, ca });
  return cache === 0 ? driver : new CachedDriver(driver, paths.cache, cache, hasRoom);
}
