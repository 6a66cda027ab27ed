import { S3Driver } from '../../../src/storage/s3/s3-driver.ts';
import { startS3, type FakeS3 } from '../../support/s3.ts';
import { testDriver } from '../driver-suite.ts';

const open = (s3: FakeS3) =>
  S3Driver.open({
    endpoint: s3.endpoint,
    region: 'us-east-1',
    bucket: s3.bucket,
    prefix: 'team',
    forcePathStyle: true,
    accessKeyId: 'key',
    secretAccessKey: 'secret',
  });

testDriver('fake S3', async (_paths, t) => open(await startS3(t)));
