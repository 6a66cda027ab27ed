import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { dialects } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, runJob } from '../support/inside.ts';
import { within } from '../support/until.ts';
import { emptyPlace, manifestOf, serveOn, type Installed } from './support.ts';

const script = join(import.meta.dirname, '../support/processes/backup-until.ts');

/** Runs a backup or a restore in its own process up to a step, and kills it there. */
async function killedAt(t: ExecutionContext, { environment }: Installed, ...words: string[]): Promise<void> {
  const child = spawn(process.execPath, [script, ...words], {
    env: { PATH: process.env['PATH'], ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = once(child, 'close');
  const [line] = (await within(Promise.race([once(child.stdout, 'data'), ended]), 90_000)) as [unknown];
  t.is(String(line), 'waits\n', words.join(' '));
  child.kill('SIGKILL');
  await ended;
}

for (const dialect of dialects) {
  test(`${dialect}: a backup that is killed leaves the earlier one whole, and the collector waits only for its lease`, async (t) => {
    const place = await emptyPlace(t, dialect);
    const server = await serveOn(t, place, { gc: { grace: '0s' } });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Old', version: '1.0.0' });
    const folder = join(place.folder, 'backup');
    const back = () => entrepot(place.environment, 'backup', folder, '--incremental');
    t.is((await back()).code, 0);
    const { state } = await manifestOf(folder);
    await feed.publish({ id: 'New', version: '1.0.0' });
    t.is((await server.fetch('/v1/packages/Old/1.0.0', { method: 'DELETE' })).status, 204);
    for (const step of dialect === 'sqlite' ? ['rows', 'finish'] : ['blob 1']) {
      await killedAt(t, place, 'backup', folder, step);
      t.is((await manifestOf(folder)).state, state, step);
      t.is((await entrepot({}, 'verify', folder)).code, 0, step);
    }
    server.clock.now = Date.now() + 10_000_000;
    t.like(await runJob(server, 'gc'), { blobs: 0, held: 1 });
    await databaseOf(server).transaction((tx) => tx.run('UPDATE storage_holds SET expires_at = expires_at - 120000'));
    t.like(await runJob(server, 'gc'), { blobs: 2 });
    await killedAt(t, place, 'backup', folder, 'named');
    t.not((await manifestOf(folder)).state, state, 'the new backup is complete');
    t.is((await entrepot({}, 'verify', folder)).code, 0);
    t.is((await back()).code, 0);
    t.is((await entrepot({}, 'verify', folder)).code, 0);
    t.is((await readdir(join(folder, 'rows'))).length, 1);
    const files = await readdir(join(folder, 'blobs'), { recursive: true, withFileTypes: true });
    t.is(files.filter((each) => each.isFile()).length, 2, 'only what the rows name');
    t.deepEqual(await readdir(join(folder, 'staging')), []);
  });

  test(`${dialect}: a restore that is killed stops every start, and a second one finishes`, async (t) => {
    const place = await emptyPlace(t, dialect);
    const server = await serveOn(t, place);
    await new TestFeed(server).publish({ id: 'First', version: '1.0.0' }, { id: 'Second', version: '1.0.0' });
    const folder = join(place.folder, 'backup');
    t.is((await entrepot(place.environment, 'backup', folder)).code, 0);
    const other = await emptyPlace(t, dialect);
    for (const step of dialect === 'sqlite' ? ['step 0', 'step 5'] : ['step 3']) {
      await killedAt(t, other, 'restore', folder, step);
      for (const words of [['serve'], ['token', 'list'], ['adopt']]) {
        const start = await entrepot({ ...other.environment, ENTREPOT_PORT: '0' }, ...words);
        t.is(start.code, 1, `${step}: ${words.join(' ')}`);
        t.regex(start.stderr, /a restore into this place is not finished/, step);
      }
    }
    const restored = await entrepot(other.environment, 'restore', folder);
    t.deepEqual([restored.code, restored.stderr], [0, '']);
    t.is((await entrepot(other.environment, 'verify')).code, 0);
    const copy = await serveOn(t, other);
    t.is((await new TestFeed(copy).fetch('/package/second/1.0.0/second.1.0.0.nupkg')).status, 200);
    const again = await entrepot(other.environment, 'restore', folder);
    t.regex(again.stderr, /is not empty/);
  });
}
