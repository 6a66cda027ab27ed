import test from 'ava';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { findingsOn, type Json } from './findings-suite.ts';

findingsOn('sqlite');

test('a page of a registration that its index names no more deprecates nothing', async (t) => {
  const up = await UpstreamFeed.start(t);
  const deprecated = { version: '1.0.0', entry: { deprecation: { reasons: ['Legacy'] } } };
  await up.offer({ id: 'Stored', versions: [deprecated], pageSize: 1 });
  const server = await startTestServer(t, { upstreams: [up.as('nuget.org', { freshFor: '1ms' })] });
  const read = async (path: string) => (await (await server.fetch(path)).json()) as Json;
  await (await server.fetch('/v3/package/stored/1.0.0/stored.1.0.0.nupkg')).arrayBuffer();
  const { items: pages } = await read('/v3/registration/stored/index.json');
  await read(new URL(pages[0]['@id']).pathname);
  await up.offer({ id: 'Stored', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
  await read('/v3/registration/stored/index.json');
  await until(async () => (await read('/v1/findings'))['is_complete'] === true);
  t.deepEqual((await read('/v1/findings'))['items'], []);
});
