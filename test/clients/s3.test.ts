import { randomUUID } from 'node:crypto';
import test from 'ava';
import { Bucket } from '../../src/storage/s3/bucket.ts';
import { S3Driver } from '../../src/storage/s3/s3-driver.ts';
import { startSwift } from '../support/processes/swift.ts';
import { testDriver } from '../storage/driver-suite.ts';

// The S3 driver on a real server: the S3 interface of OpenStack Swift.

const swift = await startSwift();
test.after.always(() => swift?.stop());

/** S3 refuses smaller parts, except the last one. */
const smallestPart = 5 * 2 ** 20;

if (swift) {
  const bucket = 'artifacts';
  const options = { ...swift, bucket, forcePathStyle: true };
  test.before(async () => {
    const connected = await Bucket.open({ ...options, times: { pause: 1000, attempts: 10 } });
    // Its servers may need a moment more than its proxy.
    await connected.run(() => connected.client.send(new connected.sdk.CreateBucketCommand({ Bucket: bucket })));
    connected.close();
  });

  testDriver('Swift', () =>
    S3Driver.open({ ...options, prefix: randomUUID() }, { single: smallestPart, part: smallestPart }),
  );
} else {
  test.skip('Swift is not installed', () => undefined);
}
