import test from 'ava';
import { examine } from '../../src/cli/doctor.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { createToken } from '../support/inside.ts';
import { allowLoopback, createWebhook, deliverUntil, startReceiver } from '../support/receiver.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

const hour = 3_600_000;

for (const dialect of dialects) {
  test(`withdrawn versions and tags are shown as such in /v1, on pages, in metrics and by doctor (${dialect})`, async (t) => {
    const feed = await UpstreamFeed.start(t);
    const registry = await startUpstreamRegistry(t);
    const upstreams = [feed.as('feed.test'), registry.settings('up.test')];
    const database = { url: await temporaryDatabase(t, dialect) };
    const server = await startTestServer(t, { upstreams, database, mirror: { maxSize: '1kB' }, ...allowLoopback });
    const receiver = await startReceiver(t);
    await createWebhook(server, receiver.url, ['upstream.withdrawn', 'upstream.restored']);
    server.clock.now = Date.parse('2026-05-01T10:00:00Z');
    const app = new TestRepository(server, 'up.test/team/app');
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
    const { digest } = registry.image('team/app', 'gone').manifest;
    registry.image('team/app', 'there');
    const use = async () => {
      for (const path of ['index.json', '1.0.0/lib.1.0.0.nupkg', '2.0.0/lib.2.0.0.nupkg'])
        t.is((await server.fetch(`/v3/package/lib/${path}`)).status, 200);
      for (const tag of ['gone', 'there']) t.is((await app.fetch(`manifests/${tag}`)).status, 200);
    };
    await use();
    feed.upstream.on('/flat/lib/1.0.0/lib.1.0.0.nupkg', answer(404));
    await feed.offer({ id: 'Lib', versions: [{ version: '2.0.0' }] });
    registry.on('/v2/team/app/manifests/gone', answer(404));
    const get = async (path: string) => (await (await server.fetch(`/v1${path}`)).json()) as any;
    const shown = async () => {
      const versions = await get('/packages/Lib/versions');
      const tags = await get('/containers/up.test%2Fteam%2Fapp/tags');
      const manifest = await get(`/containers/up.test%2Fteam%2Fapp/manifests/${digest}`);
      const [image] = (await get('/containers')).items;
      return {
        versions: versions.items.map((each: any) => [each.version, each.listed, each.withdrawn_at]),
        package: (await get('/packages/Lib')).versions.map((each: any) => each.withdrawn_at),
        details: [await get('/packages/Lib/1.0.0'), await get('/packages/Lib/2.0.0')].map((each) => each.withdrawn_at),
        tags: Object.fromEntries(tags.items.map((each: any) => [each.name, each.withdrawn_at])),
        image: image.tags.map((each: any) => each.withdrawn_at),
        manifest: manifest.withdrawn_tags,
      };
    };
    server.clock.now += hour;
    await use();
    const nothing = {
      versions: [
        ['2.0.0', true, null],
        ['1.0.0', true, null],
      ],
      package: [null, null],
      details: [null, null],
      tags: { gone: null, there: null },
      image: [null, null],
      manifest: [],
    };
    t.deepEqual(await shown(), nothing, 'seen once, it may be a mistake');
    server.clock.now += hour;
    await use();
    const at = '2026-05-01T12:00:00.000Z';
    t.deepEqual(await shown(), {
      versions: [
        ['2.0.0', true, null],
        ['1.0.0', false, at],
      ],
      package: [null, at],
      details: [at, null],
      tags: { gone: at, there: null },
      image: [at, null],
      manifest: [{ name: 'gone', withdrawn_at: at }],
    });

    await deliverUntil(server, () => receiver.received.length === 2);
    t.deepEqual(receiver.received.map(({ event: { type, subject } }) => `${type} ${subject}`).sort(), [
      'entrepot.upstream.withdrawn Lib',
      'entrepot.upstream.withdrawn up.test/team/app',
    ]);

    const visitor = await Visitor.signedIn(server);
    const image = '/console/images/up.test%2Fteam%2Fapp';
    for (const [path, count] of [
      ['/console/packages/Lib?show=versions', 1],
      ['/console/packages/Lib/1.0.0', 2],
      [image, 1],
      [`${image}/${encodeURIComponent(digest)}`, 1],
    ] as const)
      t.is((await visitor.page(path)).match(/withdrawn by the upstream on 2026-05-01/gi)?.length, count, path);
    t.regex(await visitor.page('/console/audit'), /an upstream does not offer stored content any more/);

    const metrics = async () => (await fetch(`${server.url}/metrics`)).text();
    await until(async () => /^entrepot_withdrawn\{upstream="up\.test"\} 1$/m.test(await metrics()));
    t.regex(await metrics(), /^entrepot_withdrawn\{upstream="feed\.test"\} 1$/m);
    const finding = (await examine(server.installation, Date.now)).find(
      ({ subject }) => subject === 'withdrawn content',
    );
    t.is(finding?.ok, true);
    t.regex(finding!.text, /1 of feed\.test, 1 of up\.test.*above mirror\.maxSize \(1000\)/);

    // Another account sees the mark, and no event: it concerns no account.
    const { value } = await createToken(server, ['read', 'admin'], 'other');
    const other = (await (await server.fetch('/v1/audit?type=upstream.*', { token: value })).json()) as any;
    t.deepEqual(other.items, []);
  });
}
