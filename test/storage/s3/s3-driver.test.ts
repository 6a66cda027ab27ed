import { S3Driver } from '../../../src/storage/s3/s3-driver.ts';
import { s3Access, startS3, type FakeS3 } from '../../support/s3.ts';
import { testDriver } from '../driver-suite.ts';

const open = (s3: FakeS3) => S3Driver.open({ ...s3Access(s3), prefix: 'team' });

testDriver('fake S3', async (_paths, t) => open(await startS3(t)));
