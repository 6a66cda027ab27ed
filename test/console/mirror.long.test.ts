import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { UpstreamSamples } from '../../src/mirror/upstream-samples.ts';
import { createToken, databaseOf, flushUsage, tokenOf } from '../support/inside.ts';
import { figuresOf } from '../support/upstreams/figures.ts';
import { startTestServer } from '../support/server.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { until } from '../support/until.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

const idsOf = (page: string) => [...page.matchAll(/name="entry" value="(\w+)"/g)].map(([, id]) => id!);

test('the mirror page shows each upstream with its state and what it saved, and says what the figures cover', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('up.test'), upstream.settings('off.test', { mode: 'offline' })],
  });
  const { layer } = upstream.image('app', 'v1');
  const path = `/v2/up.test/app/blobs/${layer.digest}`;
  for (let count = 0; count < 3; count += 1) await (await server.fetch(path)).arrayBuffer();
  const visitor = await Visitor.signedIn(server);
  server.clock.now = Date.now();
  // As after a restart: what other processes have counted is shown.
  const samples = new UpstreamSamples(databaseOf(server), () => server.clock.now! - 6 * 86_400_000);
  await samples.add([
    figuresOf({
      statuses: { 200: 10 },
      outcomes: { hit: 300, miss: 100 },
      received: 5_000_000,
      times: { bounds: [], counts: [], sum: 4 },
    }),
  ]);
  const older = new UpstreamSamples(databaseOf(server), () => server.clock.now! - 8 * 86_400_000);
  await older.add([figuresOf({ outcomes: { hit: 1000 } })]);
  const page = (await visitor.page('/console/mirror')).replace(/\s+/g, ' ');
  t.regex(
    page,
    /Without an upstream<\/dt> <dd> <strong>75\.0 %<\/strong> <span class="quiet">of 400 requests in 7 days/,
  );
  t.regex(page, /Waiting saved<\/dt> <dd> <strong>2\.0 min<\/strong>/);
  t.regex(page, /href="\/console\/mirror\/up\.test\?kind=registry".*working.*75\.0 %.*5\.0 MB/);
  t.regex(page, /off\.test[^]*set to offline[^]*nothing is stored/);

  await flushUsage(server);
  const overview = async () => (await visitor.page('/console/')).replace(/\s+/g, ' ');
  t.regex(await overview(), />no failures<\/span> 2 upstreams, none of which fails\./);

  upstream.unplug();
  t.true((await server.fetch(`/v2/up.test/app/blobs/sha256:${'1'.repeat(64)}`)).status >= 500);
  const paused = await visitor.page('/console/mirror/up.test?kind=registry');
  t.regex(paused, /class="state bad">paused<\/span>\s*since[^]*Next try/);
  t.regex(paused, new RegExp(`title="${layer.digest}">${layer.digest.slice(0, 40)}…`));
  t.regex(
    await overview(),
    /<a href="\/console\/mirror\/up\.test\?kind=registry">up\.test<\/a> <span class="state bad">paused<\/span> 1 of 2 upstreams\./,
  );
  await until(async () =>
    /An upstream fails: requests to it are paused \(cannot be reached \(\w+\)\)/.test(
      await visitor.page('/console/audit?type=upstream.opened'),
    ),
  );
  t.is((await visitor.fetch('/console/mirror/none')).status, 404);
});

test('an upstream that refuses everything is not shown as working, and the pages say why', async (t) => {
  const up = await UpstreamFeed.start(t);
  up.upstream.on('/index.json', answer(401));
  const server = await startTestServer(t, { upstreams: [up.as('feeds.corp')] });
  t.is((await server.fetch('/v3/package/a/index.json')).status, 502);
  t.is((await server.fetch('/v3/vulnerabilities/index.json')).status, 200);
  const visitor = await Visitor.signedIn(server);
  const page = async (path: string) => (await visitor.page(path)).replace(/\s+/g, ' ');
  const why =
    /class="state bad">refuses access<\/span>[^]*for service-index: it refused access; check its credentials\./;
  const list = await page('/console/mirror');
  t.regex(list, why);
  t.regex(list, /Upstreams that fail<\/dt> <dd> <strong>1<\/strong> <span class="quiet">of 1/);
  const one = await page('/console/mirror/feeds.corp');
  t.regex(one, why);
  t.regex(one, /Nothing is stored of it\./);
  t.regex(one, /Try now/);
  t.regex(one, /1 answer with vulnerability data lacked those of this feed/);
  await new TestFeed(server).publish({ id: 'Own', version: '1.0.0' });
  await flushUsage(server);
  t.regex(
    await page('/console/'),
    /<a href="\/console\/mirror\/feeds\.corp\?kind=nuget">feeds\.corp<\/a> <span class="state bad">refuses access<\/span> 1 of 1 upstream\./,
  );
  t.is(
    leadsTo(await visitor.send('/console/mirror/feeds.corp', [])),
    '/console/mirror/feeds.corp?kind=nuget (upstream-fails)',
  );

  up.announce();
  t.is(
    leadsTo(await visitor.send('/console/mirror/feeds.corp', [])),
    '/console/mirror/feeds.corp?kind=nuget (upstream-works)',
  );
  t.regex(await page('/console/mirror'), /class="state good">working/);
  t.is((await server.fetch('/v3/package/a/index.json')).status, 404);
  t.regex(await page('/console/mirror/feeds.corp'), /<th[^>]*><span class="quiet">the upstream itself<\/span><\/th>/);
});

test('without upstreams the page says what to do', async (t) => {
  const server = await startTestServer(t);
  t.regex(await (await Visitor.signedIn(server)).page('/console/mirror'), /settings name no upstream[^]*Add one/);
});

test('selected entries are dropped after a confirmation that names them, and only with delete and operate', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const layers = ['a', 'b', 'c'].map((name) => upstream.blob('app', name.repeat(10)));
  for (const { digest } of layers) await (await server.fetch(`/v2/up.test/app/blobs/${digest}`)).arrayBuffer();
  const visitor = await Visitor.signedIn(server);
  const list = '/console/mirror/up.test?kind=registry';
  const ids = idsOf(await visitor.page(list));
  t.is(ids.length, 3);
  t.is(idsOf(await visitor.page(`${list}&name=app&entry_kind=blob`)).length, 3);
  t.regex(
    await visitor.page(`${list}&name=zzz`),
    /Nothing matches\. <a href="\/console\/mirror\/up\.test\?kind=registry">Clear the filter/,
  );
  const drop = '/console/mirror/up.test/drop';
  t.regex(await visitor.page(`${drop}?kind=registry`), /No entry is selected/);
  const confirm = await visitor.page(`${drop}?kind=registry&entry=${ids[0]}&entry=${ids[1]}&entry=${'0'.repeat(64)}`);
  t.regex(confirm, /2 entries of up\.test with[^]*Drop 2 entries/);
  t.is(idsOf(confirm).length, 2);
  t.is(idsOf(await visitor.page(list)).length, 3, 'showing the page drops nothing');

  const sent: [string, string][] = [ids[0]!, ids[1]!, ids[1]!, '0'.repeat(64)].map((id) => ['entry', id]);
  for (const scopes of [
    ['read', 'operate'],
    ['read', 'delete'],
  ]) {
    const other = await Visitor.signedIn(server, await tokenOf(server, scopes));
    t.is((await other.send(`${drop}?kind=registry`, sent)).status, 403, scopes.join());
  }
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read', 'operate']));
  t.is(idsOf(await reader.page(list)).length, 0, 'no boxes without delete');
  const done = await visitor.send(`${drop}?kind=registry`, sent);
  t.is(leadsTo(done), `${list} (entries-dropped)`);
  t.deepEqual(idsOf(await visitor.page(list)), [ids[2]!]);
  await until(async () => (await server.fetch(`/v2/up.test/app/blobs/${layers[0]!.digest}`)).status === 200);

  const { value } = await createToken(server, ['read', 'write', 'delete', 'admin']);
  const account = await Visitor.signedIn(server, value);
  for (const path of ['/console/mirror', list]) t.is((await account.fetch(path)).status, 403, path);
  t.notRegex(await account.page('/console/'), />Mirror<\/a>/);
});
