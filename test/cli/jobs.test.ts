import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';

for (const dialect of dialects) {
  test(`${dialect}: maintenance by command while a server runs`, async (t) => {
    const [data, url] = [await folderUntilEnd(t), await temporaryDatabase(t, dialect)];
    const server = await startTestServer(t, { data, database: { url } });
    const environment = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_GC_GRACE: '0s' };
    const app = new TestRepository(server, 'team/app');
    await app.blob('abandoned');
    const kept = await app.blob('kept');
    await app.image('v1', { layers: [kept] });
    const old = await app.image('old', { layers: [kept], annotations: { a: 'b' } });
    await app.fetch('manifests/old', { method: 'DELETE' });

    const listed = await entrepot(environment, 'jobs', 'list');
    t.deepEqual(
      listed.stdout
        .trimEnd()
        .split('\n')
        .map((line) => line.split('\t')[0]),
      [
        'uploads',
        'retention',
        'evict',
        'gc',
        'sample',
        'prefetch',
        'scrub',
        'audit',
        'known-bad',
        'exposure',
        'takeover',
        'waivers',
      ],
    );
    t.regex(listed.stdout, /^gc\tnext \S+:20:00\.000Z\tnever ran\t/m);
    const off = await entrepot({ ...environment, ENTREPOT_JOBS_GC: 'off' }, 'jobs', 'list');
    t.regex(off.stdout, /^gc\toff\tnever ran\t/m);

    const beforeDryRun = Date.now();
    const young = await entrepot({ ...environment, ENTREPOT_GC_GRACE: '12h' }, 'gc', '--dry-run');
    t.is(young.code, 0);
    const keptLine =
      /^kept for now: 3 layers, 209 layer bytes: .*"gc\.grace".* after (\S+) .*\nwould be done: nothing\n$/;
    t.regex(young.stdout, keptLine);
    const hours = (Date.parse(keptLine.exec(young.stdout)![1]!) - beforeDryRun) / 3_600_000;
    t.true(hours > 11.9 && hours < 13, `${hours}`);

    const would = await entrepot(environment, 'gc', '--dry-run');
    // The image helper adds a layer for each image. These two images do not use theirs.
    t.deepEqual(would, { code: 0, stdout: 'would be done: 3 layers, 209 layer bytes\n', stderr: '' });
    t.regex((await entrepot(environment, 'jobs', 'list')).stdout, /^gc\t.*never ran/m, 'a dry run is not recorded');
    const done = await entrepot(environment, 'gc');
    t.is(done.stdout, 'done: 3 layers, 209 layer bytes, 3 blobs, 209 bytes\n');
    t.regex((await entrepot(environment, 'jobs', 'list')).stdout, /^gc\tnext \S+\tdone \S+ in [\d.]+ s\t3 layers, /m);
    t.is((await entrepot(environment, 'jobs', 'run', 'gc')).stdout, 'done: nothing\n');
    const nothing = await entrepot({ ...environment, ENTREPOT_GC_GRACE: '12h' }, 'gc', '--dry-run');
    t.is(nothing.stdout, 'would be done: nothing\n', 'nothing is kept for now');
    t.is(await (await app.fetch(`blobs/${kept.digest}`)).text(), 'kept');

    const rules = { ...environment, ENTREPOT_RETENTION_CONTAINERS_UNTAGGED_AFTER: '0s' };
    const line = `manifest team/app@${old.digest}\n`;
    t.is((await entrepot(rules, 'retention', '--dry-run')).stdout, `${line}would be done: 1 manifests\n`);
    t.is((await app.fetch(`manifests/${old.digest}`)).status, 200);
    t.is((await entrepot(rules, 'jobs', 'run', 'retention')).stdout, `${line}done: 1 manifests\n`);
    t.is((await app.fetch(`manifests/${old.digest}`)).status, 404);
    t.is((await app.fetch('manifests/v1')).status, 200);

    t.regex((await entrepot(environment, 'scrub')).stdout, /^done: 4 blobs, \d+ bytes\n$/);
    await writeFile(join(data, 'blobs/sha256', kept.digest.slice(7, 9), kept.digest.slice(7)), 'kepT');
    const damaged = await entrepot(environment, 'scrub');
    t.is(damaged.code, 1);
    t.is(damaged.stderr, 'entrepot: 1 hosted blob is damaged; see above\n');
    t.is((await entrepot(environment, 'jobs', 'run', 'scrub')).code, 1, 'also as a job');
    t.regex(damaged.stdout, new RegExp(`^corrupt ${kept.digest}: needed by repository team/app; push it again\\n`));
    t.deepEqual(await readdir(join(data, 'quarantine')), [kept.digest.replace(':', '-')]);
  });
}

for (const dialect of dialects) {
  test(`${dialect}: a dry run of the garbage collection tells what can still be restored`, async (t) => {
    const [data, url] = [await folderUntilEnd(t), await temporaryDatabase(t, dialect)];
    const server = await startTestServer(t, { data, database: { url }, deletedFor: '2d' });
    const environment = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_GC_GRACE: '0s' };
    const start = Date.now();
    const tell = async () => (await entrepot(environment, 'gc', '--dry-run')).stdout;
    // A manifest with two tags is one deletion.
    const app = new TestRepository(server, 'team/app');
    const { digest } = await app.image('v1');
    await app.image('v2');
    await app.image('v3', { annotations: { a: 'b' } });
    t.is(await tell(), 'would be done: nothing\n');
    for (const [at, reference] of [
      [start, digest],
      [start + 3_600_000, 'v3'],
    ] as const) {
      server.clock.now = at;
      t.is((await app.fetch(`manifests/${reference}`, { method: 'DELETE' })).status, 202);
    }
    const until = new Date(start + 2 * 86_400_000).toISOString();
    t.is(
      await tell(),
      `kept for now: 2 deletions that can be restored, with their content; the first until ${until}. "entrepot deleted list" shows them\nwould be done: nothing\n`,
    );
    await databaseOf(server).transaction((tx) => tx.run(`UPDATE deleted_items SET ends_at = ${start}`));
    t.is(await tell(), 'would be done: 2 deleted items\n');
  });
}

test('a job that cannot run reports the reason', async (t) => {
  const environment = { ENTREPOT_DATA: await folderUntilEnd(t) };
  await entrepot(environment, 'account', 'create', 'team');
  const cases: [string[], RegExp][] = [
    [['jobs', 'run', 'tidy'], /no job "tidy". The jobs are uploads, retention, evict, gc, sample, prefetch, scrub/],
    [['jobs', 'run', 'scrub', '--dry-run'], /"scrub" has no dry run/],
    [['jobs', 'run'], /missing required argument 'name'/],
    [['gc', '--force'], /unknown option/],
  ];
  for (const [words, message] of cases) {
    const result = await entrepot(environment, ...words);
    t.is(result.code, 1, words.join(' '));
    t.regex(result.stderr, message);
  }
  const wrong = await entrepot({ ...environment, ENTREPOT_JOBS_GC: '* * *' }, 'jobs', 'list');
  t.is(wrong.code, 1);
  t.regex(
    wrong.stderr,
    /^entrepot: ENTREPOT_JOBS_GC: expected a cron expression .*: expected 5 or 6 fields but got 3\n$/,
  );
});
