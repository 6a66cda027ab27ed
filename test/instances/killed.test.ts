import { randomBytes } from 'node:crypto';
import test from 'ava';
import { temporaryDatabase } from '../support/databases.ts';
import { internalOf } from '../support/instances.ts';
import { databaseOf, rowsOf, runJob } from '../support/inside.ts';
import { CommandLine } from '../support/processes/command.ts';
import { redisUrl } from '../support/processes/services.ts';
import { answerOf, digestOf, errorOf, openRequest, TestRepository } from '../support/registry.ts';
import { s3Environment, s3Storage, startS3 } from '../support/s3.ts';
import { startTestServer } from '../support/server.ts';
import { until, within } from '../support/until.ts';

const bytes = randomBytes(400_000);

test('uploads whose instance was killed end, and their clients start anew at another one', async (t) => {
  const s3 = await startS3(t);
  const database = { url: await temporaryDatabase(t, 'mysql') };
  const internal = await internalOf(t);
  const storage = { ...s3Storage(s3), cache: 0 };
  const b = await startTestServer(t, { database, redis: { url: redisUrl() }, storage, server: { internal } });
  const commands = await CommandLine.create(t, {
    ENTREPOT_DATABASE_URL: database.url,
    ENTREPOT_REDIS_URL: redisUrl(),
    ...s3Environment(s3),
    ENTREPOT_STORAGE_CACHE: '0',
    ENTREPOT_INTERNAL_HOST: '127.0.0.1',
    ENTREPOT_INTERNAL_PORT: '0',
    ENTREPOT_INTERNAL_SECRET_FILE: String(internal['secretFile']),
    ENTREPOT_UPSTREAMS: '[]',
  });
  const own = b.installation.core.instances.id;
  const a = await commands.serve();
  const at = new TestRepository(b, 'team/app');
  const begin = async () => {
    const headers = { authorization: `Bearer ${b.token}` };
    const answer = await fetch(`${a.url}/v2/team/app/blobs/uploads/`, { method: 'POST', headers });
    return answer.headers.get('location')!;
  };
  const done = await begin();
  const whole = { method: 'PUT', body: bytes };
  t.is((await at.fetch(`${done}?digest=${digestOf(bytes)}`, whole)).status, 201, 'it ends at the other instance');
  t.true(s3.objects.has(`blobs/sha256/${digestOf(bytes).slice(7, 9)}/${digestOf(bytes).slice(7)}`));

  const [idle, active] = [await begin(), await begin()];
  const late = openRequest(b, 'PATCH', active, { 'content-length': bytes.length });
  const ended = answerOf(late);
  late.write(bytes.subarray(0, 1000));
  await until(async () => (await at.fetch(active)).headers.get('range') === '0-999', 30_000);
  await a.stop('SIGKILL');
  t.is((await within(ended)).status, 404);
  t.deepEqual(await errorOf(await at.fetch(idle, { method: 'PATCH', body: 'x' })), [404, 'BLOB_UPLOAD_UNKNOWN']);
  await databaseOf(b).transaction((tx) => tx.run('UPDATE instances SET seen_at = 0 WHERE id <> ?', [own]));
  await runJob(b, 'uploads');
  t.deepEqual(await rowsOf(b, 'SELECT id FROM uploads'), [], 'nothing counts for the account any more');
  const again = randomBytes(1000);
  t.is((await at.fetch(`${await at.start()}?digest=${digestOf(again)}`, { ...whole, body: again })).status, 201);
});
