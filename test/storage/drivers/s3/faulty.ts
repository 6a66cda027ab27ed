import { randomBytes } from 'node:crypto';
import type { ExecutionContext } from 'ava';
import { S3Driver } from '../../../../src/storage/drivers/s3/s3-driver.ts';
import { s3Access, startS3, type FakeS3, type S3Fault, type S3Request } from '../../../support/s3.ts';
import { openDriver, type TestedDriver } from '../driver-suite.ts';
import { smallestPart } from './s3-suite.ts';

/** A driver and its server. `limit` is the time limit of its requests, in milliseconds. Files of more than 5 MiB are sent in parts of 5 MiB. */
export async function openOnS3(t: ExecutionContext, limit = 5000): Promise<TestedDriver<S3Driver> & { s3: FakeS3 }> {
  const s3 = await startS3(t);
  const times = { request: limit, idle: limit, assemble: limit, pause: 1 };
  const options = { ...s3Access(s3), times };
  const tested = await openDriver(t, () => S3Driver.open(options, { single: smallestPart, part: smallestPart }));
  t.teardown(() => tested.driver.close());
  s3.requests.length = 0;
  return { ...tested, s3 };
}

/** Gives the first `count` requests that begin with `start` a fault; all of them without `count`. */
export function failing(s3: FakeS3, start: string, fault: S3Fault, count = Number.POSITIVE_INFINITY): void {
  let left = count;
  s3.fault = ({ text }: S3Request) => {
    if (!text.startsWith(start) || left === 0) return undefined;
    left -= 1;
    return fault;
  };
}

export const slowDown = { code: 'SlowDown', status: 503 };
export const small = Buffer.from('a small blob');
export const large = randomBytes(2 * smallestPart + 1000);
