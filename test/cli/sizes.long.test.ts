import test from 'ava';
import { checkSize } from '../support/size-checks.ts';
import { s3Access, startS3 } from '../support/s3.ts';
import { allSizes, documentedSizes, ends, Installation, nameOf, writeOlderSchemas } from '../support/sizes.ts';

// In a process of its own: it waits before it declares its tests.

// The smallest and the largest combination of database, Redis, storage, workers and instances, and those that are refused, as
// docs/scaling.md lists them. test/clients/sizes.long.test.ts has the others, which take minutes. The checks are in
// test/support/size-checks.ts.

let schemas: string;
const atEnd: (() => unknown)[] = [];
test.before(async () => {
  schemas = await writeOlderSchemas({ teardown: (end) => void atEnd.push(end) });
});
test.after.always(async () => {
  for (const end of atEnd) await end();
});

const documented = documentedSizes();

test('the documents have each combination once', (t) => {
  t.deepEqual([...documented.keys()].sort(), allSizes().map(nameOf).sort());
});

for (const size of allSizes()) {
  const start = documented.get(nameOf(size));
  if (start === 'allowed' && !ends.includes(nameOf(size))) continue;
  test.serial(`${nameOf(size)}: ${start === 'allowed' ? start : 'refused'}`, async (t) => {
    const bucket = size.storage === 'S3' ? { bucket: s3Access(await startS3(t)) } : {};
    if (start === 'allowed') return checkSize(t, size, { schemas, ...bucket });
    const installation = await Installation.create(t, size, { schemas, settings: {}, ...bucket });
    t.is(await installation.refusal(), `entrepot: ${start}\n`);
  });
}
