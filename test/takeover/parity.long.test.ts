import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { entrepot } from '../support/in-process.ts';
import { databaseOf, rowsOf, runJob } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startMoving } from '../support/takeover.ts';
import { startFaultyUpstream, answer } from '../support/upstreams/faulty-upstream.ts';

for (const dialect of dialects) {
  test(`${dialect}: a whole move is proven, and each difference is found: missing, extra, listed, a date, a dependency, a tag`, async (t) => {
    const database = await temporaryDatabase(t, dialect);
    const { old, here } = await startMoving(t, { database: { url: database } });
    const from = new TestFeed(old);
    const dependencies = [{ id: 'Contoso.Base', version: '[1.0.0, )' }];
    await from.publish(
      { id: 'Contoso.Core', version: '1.0.0', dependencies },
      { id: 'Contoso.Core', version: '2.0.0' },
      { id: 'Contoso.Core', version: '3.0.0' },
      { id: 'Contoso.Base', version: '1.0.0' },
    );
    const app = new TestRepository(old, 'team/app');
    await app.image('1.0');
    await app.image('latest');
    const settings = {
      ENTREPOT_DATA: here.data,
      ENTREPOT_DATABASE_URL: database,
      ENTREPOT_PREDECESSORS: JSON.stringify(here.installation.core.config.predecessors),
      ENTREPOT_UPSTREAMS: '[]',
    };
    const takeover = (...words: string[]) => entrepot(settings, 'takeover', ...words);
    const early = await takeover('finish', 'old-feed');
    t.is(early.code, 1);
    t.regex(early.stderr, /^missing\tcontoso\.core\t1\.0\.0$/m);
    t.regex(
      early.stderr,
      /old-feed is not taken over: .*contoso\.core.* differ\. Bring them, or name them with --accept\.$/m,
    );
    await runJob(here, 'takeover');
    for (const name of ['old-feed', 'old-images']) {
      const clean = await takeover('report', name, '--read');
      t.deepEqual([clean.code, clean.stderr], [0, ''], name);
    }
    t.regex((await takeover('status')).stdout, /^old-feed\tnuget\tdefault\tread at .*\nold-feed\there\t2$/m);
    // One of each.
    await from.publish({ id: 'Contoso.Core', version: '4.0.0' });
    await new TestFeed(here).publish({ id: 'Contoso.Core', version: '5.0.0' });
    t.is((await here.fetch('/v1/packages/Contoso.Core/3.0.0', { method: 'DELETE' })).status, 204);
    t.is((await new TestFeed(here).fetch('/push/Contoso.Core/2.0.0', { method: 'DELETE' })).status, 204);
    await databaseOf(here).transaction(async (tx) => {
      await tx.run(
        "UPDATE package_versions SET published_at = 1, metadata = REPLACE(metadata, 'Contoso.Base', 'Contoso.Case') WHERE version = '1.0.0'",
        [],
      );
    });
    await app.image('latest');
    const report = join(here.data, 'report');
    const found = await takeover('report', 'old-feed', '--report', report);
    t.is(found.code, 1);
    t.regex(
      (await takeover('report', 'old-feed', '--report', report)).stderr,
      /report exists already\. Name a new file/,
    );
    const lines = (await readFile(report, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    t.like(
      lines.find(({ name }) => name === 'contoso.core'),
      {
        result: 'different',
        missing: ['4.0.0'],
        deleted: ['3.0.0'],
        extra: ['5.0.0'],
        different: { '1.0.0': ['date', 'dependencies'], '2.0.0': ['listed'] },
      },
    );
    t.regex((await takeover('report', 'old-images')).stderr, /^different\tteam\/app\tlatest\thash$/m);
    const refused = await takeover('finish', 'old-feed', '--accept', 'Contoso.Core');
    t.regex(refused.stderr, /not taken over: contoso\.base differ/);
    const finished = await takeover('finish', 'old-feed', '--accept', 'Contoso.Core', 'Contoso.Base');
    t.deepEqual([finished.code, finished.stdout.includes('accepted\tContoso.Core')], [0, true]);
    t.regex((await takeover('status')).stdout, /^old-feed\tnuget\tdefault\tfinished at /m);
    const [event] = await rowsOf<{ details: string }>(
      here,
      "SELECT details FROM events WHERE type = 'takeover.finished'",
    );
    t.deepEqual(JSON.parse(event!.details), { accepted: ['Contoso.Core', 'Contoso.Base'] });
    // Nothing is asked for any more.
    t.is((await here.fetch('/v3/package/contoso.core/4.0.0/contoso.core.4.0.0.nupkg')).status, 404);
  });
}

test('one changed byte of a file is found, also under a hash that tells nothing of it', async (t) => {
  const { old, here } = await startMoving(t);
  const from = new TestFeed(old);
  const bytes = await makeNupkg({ id: 'Contoso.Core', version: '1.0.0' });
  await from.push(bytes);
  await runJob(here, 'takeover');
  // The same feed, whose file has another byte.
  const changed = Buffer.from(bytes);
  changed[changed.length - 30]! ^= 1;
  const front = await startFaultyUpstream(t);
  const forward = async (path: string) => {
    const response = await from.fetch(path.replace(/^\/v3/, ''));
    const text = (await response.text()).replaceAll(old.url, front.url.origin);
    front.on(path, answer(response.status, { 'content-type': 'application/json' }, text));
  };
  for (const path of [
    '/v3/index.json',
    '/v3/registration-gz-semver2/contoso.core/index.json',
    '/v3/package/contoso.core/index.json',
    '/v3/search',
  ])
    await forward(path);
  front.on('/v3/package/contoso.core/1.0.0/contoso.core.1.0.0.nupkg', answer(200, {}, changed));
  const predecessors = [{ name: 'old-feed', kind: 'nuget', url: `${front.url.origin}/v3/index.json` }];
  const settings = {
    ENTREPOT_DATA: here.data,
    ENTREPOT_PREDECESSORS: JSON.stringify(predecessors),
    ENTREPOT_UPSTREAMS: '[]',
  };
  const told = await entrepot(settings, 'takeover', 'report', 'old-feed');
  t.deepEqual([told.code, told.stderr], [0, '']);
  const read = await entrepot(settings, 'takeover', 'report', 'old-feed', '--read');
  t.is(read.code, 1);
  t.regex(read.stderr, /^different\tcontoso\.core\t1\.0\.0\thash$/m);
});
