import test from 'ava';
import { Bucket } from '../../src/storage/drivers/s3/bucket.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startSwift, swiftCommands } from '../support/processes/swift.ts';
import { checkSize } from '../support/size-checks.ts';
import { s3Access, startS3 } from '../support/s3.ts';
import { allSizes, documentedSizes, ends, nameOf, writeOlderSchemas, type Size } from '../support/sizes.ts';

// The combinations of docs/scaling.md that test/cli/sizes.long.test.ts does not start, and some with a real S3 server.

/** Combinations that are started at the same time. */
const atATime = 4;
const documented = documentedSizes();
const others = allSizes().filter((size) => documented.get(nameOf(size)) === 'allowed' && !ends.includes(nameOf(size)));

for (let from = 0; from < others.length; from += atATime) {
  const some = others.slice(from, from + atATime);
  test.serial(`with a fake S3: ${some.map(nameOf).join(', ')}`, async (t) => {
    const schemas = await writeOlderSchemas(t);
    const check = async (size: Size) => {
      const bucket = size.storage === 'S3' ? { bucket: s3Access(await startS3(t)) } : {};
      await checkSize(t, size, { schemas, ...bucket });
    };
    await Promise.all(some.map(check));
  });
}

const sizes: Size[] = [
  { database: 'SQLite', redis: 'no', storage: 'S3', workers: 1, instances: 1 },
  { database: 'MariaDB', redis: 'no', storage: 'S3', workers: 1, instances: 2 },
  { database: 'MariaDB', redis: 'yes', storage: 'S3', workers: 2, instances: 2 },
];

testWith(...Object.keys(swiftCommands))(`with Swift: ${sizes.map(nameOf).join(', ')}`, async (t) => {
  const swift = (await startSwift())!;
  t.teardown(() => swift.stop());
  const schemas = await writeOlderSchemas(t);
  for (const [index, size] of sizes.entries()) {
    const bucket = { ...swift, bucket: `sizes-${index}`, forcePathStyle: true };
    const connected = await Bucket.open({ ...bucket, times: { pause: 1000, attempts: 10 } });
    await connected.run(() => connected.client.send(new connected.sdk.CreateBucketCommand({ Bucket: bucket.bucket })));
    connected.close();
    await checkSize(t, size, { schemas, bucket });
  }
});
