import test from 'ava';
import { newStoredRegistrations } from '../../support/inside.ts';
import { startTestServer } from '../../support/server.ts';
import { UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';

test('very many stored registrations are read in parts', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startTestServer(t, { upstreams: [up.as('nuget.org')] });
  const deprecated = { version: '1.0.0', entry: { deprecation: { reasons: ['Legacy'] } } };
  const ids = Array.from({ length: 501 }, (_, index) => `stored${String(index).padStart(3, '0')}`);
  for (const id of ids.slice(0, 500)) await up.offer({ id, versions: [{ version: '1.0.0', nupkg: Buffer.from('') }] });
  await up.offer({ id: 'stored500', versions: [deprecated] });
  for (let start = 0; start < ids.length; start += 20) {
    const some = ids.slice(start, start + 20).map((id) => server.fetch(`/v3/registration/${id}/index.json`));
    for (const response of await Promise.all(some)) await response.arrayBuffer();
  }
  const registrations = newStoredRegistrations(server);
  const read = async () => {
    const found: string[] = [];
    const isComplete = await registrations.deprecated(undefined, async ({ name, versions }) => {
      found.push(`${name} ${[...versions].join(' ')}`);
    });
    return { found, isComplete };
  };
  t.deepEqual(await read(), { found: [], isComplete: false });
  t.deepEqual(await read(), { found: ['stored500 1.0.0'], isComplete: true });
  await registrations.deprecated(['another'], async () => t.fail());
});
