import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { parsePeriod } from '../../src/usage/period.ts';
import { reconcile } from '../../src/usage/reconcile.ts';
import { dialects } from '../support/databases.ts';
import { databaseOf } from '../support/inside.ts';
import { reconcileMixed } from '../support/mixed-requests.ts';
import { startTestServer } from '../support/server.ts';

// test/faults/usage-reconcile.ts sends many more requests.

for (const dialect of dialects) {
  const mixture = { dialect, instances: dialect === 'mysql' ? 2 : 1, requests: 1500 };
  test.serial(`${dialect}: mixed requests reconcile with the logs of all instances`, async (t) => {
    t.log(JSON.stringify(await reconcileMixed(t, mixture)));
    t.pass();
  });
}

test('an error in a log names file and line', async (t) => {
  const server = await startTestServer(t);
  const file = join(server.data, 'access.log');
  await writeFile(file, '{"msg":"ready"}\n\n{"msg":"req\n');
  const period = parsePeriod('2027-02')!;
  await t.throwsAsync(reconcile(databaseOf(server), [file], period), {
    name: 'Invalid',
    message: /access\.log:3: /,
  });
  await t.throwsAsync(reconcile(databaseOf(server), [`${file}.none`], period), { message: /cannot be read/ });
});
