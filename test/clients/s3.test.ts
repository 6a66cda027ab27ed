import test from 'ava';
import { Bucket } from '../../src/storage/drivers/s3/bucket.ts';
import { startSwift } from '../support/processes/swift.ts';
import { testS3 } from '../storage/drivers/s3/s3-suite.ts';

// The suite of the fake S3 and of the S3 driver, on a real server: the S3 interface of OpenStack Swift.

const swift = await startSwift();
test.after.always(() => swift?.stop());

if (swift) {
  const access = { ...swift, bucket: 'artifacts', forcePathStyle: true };
  test.before(async () => {
    const connected = await Bucket.open({ ...access, times: { pause: 1000, attempts: 10 } });
    // Its servers may need a moment more than its proxy.
    await connected.run(() => connected.client.send(new connected.sdk.CreateBucketCommand({ Bucket: access.bucket })));
    connected.close();
  });

  testS3('Swift', () => access);
} else {
  test.skip('Swift is not installed', () => undefined);
}
