import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { startTestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';
import { findingsOn, warningFeed, type Json } from './findings-suite.ts';

findingsOn('mysql');

test('while a feed does not answer, the list says that it may lack some, and nobody waits for long', async (t) => {
  const up = await warningFeed(t);
  const server = await startTestServer(t, { upstreams: [up.as('nuget.org', { timeout: '60s', freshFor: '1ms' })] });
  await new TestFeed(server).publish({ id: 'Hosted', version: '1.0.0' });
  await (await server.fetch('/v3/package/stored/1.0.0/stored.1.0.0.nupkg')).arrayBuffer();
  up.upstream.on('/vulnerabilities/index.json', () => undefined);
  const list = (await (await server.fetch('/v1/findings')).json()) as Json;
  t.like(list, { is_complete: false, items: [] });
  t.is((await server.fetch('/v1/packages')).status, 200);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/risks'), /may lack some: a feed did not send its vulnerability data/);
});
