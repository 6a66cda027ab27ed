import test from 'ava';
import { auditOf, said } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { flushEvents } from '../support/inside.ts';
import { digestOf, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// Events that no change in the database belongs to, and those of names that a push takes over from the mirror.

for (const dialect of dialects) {
  test(`${dialect}: an upstream that fails and works again, and one that sends wrong content, are recorded`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const { manifest } = upstream.image('team/app', 'v1');
    upstream.on('/v2/team/limited/manifests/v1', answer(429, { 'retry-after': '2' }));
    const wrong = digestOf('promised');
    upstream.on(`/v2/team/wrong/manifests/${wrong}`, answer(200, { 'content-type': ociManifest }, manifest.bytes));
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [upstream.settings('up.test', { default: true })],
    });
    server.clock.now = Date.now();
    const pull = async (path: string) => {
      const response = await server.fetch(`/v2/${path}`);
      await response.arrayBuffer().catch(() => undefined);
      return response.status;
    };
    for (const _ of [1, 2]) await pull(`team/wrong/manifests/${wrong}`);
    t.is(await pull('team/limited/manifests/v1'), 502);
    t.is(await pull('team/app/manifests/v1'), 502, 'paused');
    server.clock.now += 3000;
    t.is(await pull('team/app/manifests/v1'), 200);
    await flushEvents(server);
    const changes = await auditOf(server, 'type=upstream.*');
    t.deepEqual(changes.map(said), ['upstream.opened up.test', 'upstream.closed up.test']);
    t.like(changes[0], {
      account: null,
      actor: { kind: 'system' },
      address: null,
      request_id: null,
      details: { reason: 'asks for a pause (429)', count: 1 },
    });
    server.clock.now += 60_000;
    await flushEvents(server);
    const [mismatch, ...more] = await auditOf(server, 'type=upstream.digest_mismatch');
    t.deepEqual(more, []);
    t.like(mismatch, {
      actor: { kind: 'token', name: 'first token' },
      subject: { kind: 'upstream', name: 'up.test' },
      details: { name: 'team/wrong', expected: wrong, received: manifest.digest, count: 2 },
    });
  });

  test(`${dialect}: a limit that refuses pushes is recorded, once in a minute`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      limits: { accountStorage: 10_000 },
    });
    server.clock.now = Date.now();
    const feed = new TestFeed(server);
    for (const _ of [1, 2, 3]) t.is((await feed.push({ id: 'Large', payloadBytes: 50_000 })).status, 413);
    server.clock.now += 60_000;
    await flushEvents(server);
    const [reached, ...more] = await auditOf(server, 'type=limit.reached');
    t.deepEqual(more, []);
    t.like(reached, {
      account: 'default',
      actor: { kind: 'token', name: 'first token' },
      subject: { kind: 'account', name: 'default', reference: 'storage' },
      details: { limit: 'storage', used: 0, allowed: 10_000, count: 3 },
    });
  });

  test(`${dialect}: what is deleted of the mirror is recorded, and the first push of a name that was mirrored says so`, async (t) => {
    const up = await UpstreamFeed.start(t);
    for (const id of ['Contoso.Utility', 'Contoso.Listed']) await up.offer({ id, versions: [{ version: '1.0.0' }] });
    const registry = await startUpstreamRegistry(t);
    registry.image('team/app', 'v1');
    const server = await startMirrorOf(t, [up.as('up.test'), registry.settings('images.test', { default: true })], {
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const feed = new TestFeed(server);
    const app = new TestRepository(server, 'team/app');
    t.is((await feed.fetch('/package/contoso.utility/1.0.0/contoso.utility.1.0.0.nupkg')).status, 200);
    t.is((await app.fetch('manifests/v1')).status, 200);
    t.is((await server.fetch('/v1/packages/contoso.utility/1.0', { method: 'DELETE' })).status, 204);
    t.is((await server.fetch('/v1/containers/images.test/team/app/v1', { method: 'DELETE' })).status, 204);
    const deleted = await auditOf(server);
    t.deepEqual(
      deleted.slice(-2).map((each) => [said(each), each.account, each.details]),
      [
        ['package.deleted contoso.utility 1.0.0', 'default', { origin: 'mirrored', upstream: 'up.test' }],
        ['tag.deleted images.test/team/app v1', 'default', { origin: 'mirrored', upstream: 'images.test' }],
      ],
    );
    t.is((await feed.fetch('/package/contoso.utility/1.0.0/contoso.utility.1.0.0.nupkg')).status, 200);
    t.is((await app.fetch('manifests/v1')).status, 200);
    // Only its versions were asked.
    t.is((await feed.fetch('/package/contoso.listed/index.json')).status, 200);
    await feed.publish(
      { id: 'Contoso.Utility', version: '2.0.0' },
      { id: 'Contoso.Utility', version: '3.0.0' },
      { id: 'Contoso.Listed', version: '2.0.0' },
      { id: 'Contoso.New' },
    );
    for (const tag of ['v2', 'v3']) await app.image(tag);
    await new TestRepository(server, 'team/new').image('v1');
    const events = await auditOf(server);
    const taken = events.filter(({ details }) => details['taken_over_from'] !== undefined);
    t.deepEqual(
      taken.map((each) => [said(each), each.details['taken_over_from']]),
      [
        ['package.published Contoso.Utility 2.0.0', 'up.test'],
        ['package.published Contoso.Listed 2.0.0', 'up.test'],
        ['image.pushed team/app v2', 'images.test'],
      ],
    );
  });
}
