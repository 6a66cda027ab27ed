import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { tokenOf } from '../support/inside.ts';

import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

test('jobs are listed, previewed and started by a visitor with operate', async (t) => {
  const server = await startTestServer(t, { retention: { packages: { keepVersions: 1 } } });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'A', version: '1.0.0' }, { id: 'A', version: '2.0.0' });
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/jobs'), /href="\/console\/jobs\/retention"[^]*never/);
  const preview = await visitor.send('/console/jobs/retention', { act: 'preview' });
  t.is(preview.status, 200);
  t.regex(await preview.text(), /nothing was changed[^]*A 1\.0\.0/);
  t.is((await feed.json('/package/a/index.json')).versions.length, 2);
  t.is(leadsTo(await visitor.send('/console/jobs/retention', { act: 'run' })), '/console/jobs/retention (job-started)');
  await until(async () => /class="state good">done/.test(await visitor.page('/console/jobs/retention')));
  t.is((await feed.json('/package/a/index.json')).versions.length, 1);
  t.regex(
    await visitor.page('/console/jobs/retention'),
    />Began<[^]*>Took<[^]*>Started by<[^]*>Result<[^]*a person[^]*>done/,
  );
  t.is((await visitor.fetch('/console/jobs/none')).status, 404);
  t.regex(await visitor.page('/console/jobs'), /<a href="\/console\/instances" >Instances<\/a>/);
  t.regex(await visitor.page('/console/instances'), /class="state good">runs<[^]*just now/);
  t.is((await visitor.send('/console/jobs/scrub', { act: 'preview' })).status, 400);
});

test('a preview that takes too long says so, and which command has no limit', async (t) => {
  const server = await startTestServer(t);
  const { jobs } = server.installation;
  const run = jobs.run.bind(jobs);
  jobs.run = (name, options) => run(name, { ...options, signal: AbortSignal.abort(new Error('the time is over')) });
  const expected =
    /The preview of the job "gc" takes too long here\. "[^"]*jobs run gc --dry-run" has no limit of time/;
  const answer = await server.fetch('/v1/jobs/gc/preview', { method: 'POST' });
  t.is(answer.status, 400);
  const { code, detail } = (await answer.json()) as { code: string; detail: string };
  t.is(code, 'Aborted');
  t.regex(detail, expected);
  const visitor = await Visitor.signedIn(server);
  const page = await visitor.send('/console/storage', { act: 'count' });
  t.is(page.status, 200);
  t.regex((await page.text()).replaceAll('&quot;', '"'), expected);
});

test('without operate there are no jobs, in the console and in /v1', async (t) => {
  const server = await startTestServer(t);
  const token = await tokenOf(server, ['read', 'write', 'delete', 'admin']);
  const visitor = await Visitor.signedIn(server, token);
  for (const path of ['jobs', 'instances']) t.is((await visitor.fetch(`/console/${path}`)).status, 403, path);
  t.is((await visitor.send('/console/jobs/gc', { act: 'run' })).status, 403);
  for (const [method, path] of [
    ['GET', '/v1/jobs'],
    ['GET', '/v1/jobs/gc/runs'],
    ['POST', '/v1/jobs/gc/runs'],
    ['POST', '/v1/jobs/gc/preview'],
  ]) {
    t.is((await server.fetch(path!, { method: method!, token })).status, 403, path);
  }
});

test('the page of the job prefetch leads to what it did not find, which its preview names', async (t) => {
  const file = join(await folderUntilEnd(t), 'images.txt');
  await writeFile(file, 'team/none:1\n');
  const registry = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    upstreams: [registry.settings('docker.io', { default: true })],
    prefetch: { files: [file] },
  });
  const visitor = await Visitor.signedIn(server);
  const path = '/console/jobs/prefetch';
  t.notRegex(await visitor.page(path), /The preview names/);
  await visitor.send(path, { act: 'run' });
  await until(async () => /1 missing/.test(await visitor.page(path)));
  t.regex(await visitor.page(path), /The preview names what a run would not find now/);
  const preview = await (await visitor.send(path, { act: 'preview' })).text();
  t.regex(preview, /missing: team\/none:1 \(\S+images\.txt:1\): docker\.io does not have this image/);
  t.notRegex(preview, /The preview names/);
});
