import { s3Access, startS3 } from '../../../support/s3.ts';
import { testS3 } from './s3-suite.ts';

// In a process of its own: a helper declares tests of it.

// The same suite as that of Swift in `test/clients/s3.test.ts`.

testS3('fake S3', async (t) => s3Access(await startS3(t)));
