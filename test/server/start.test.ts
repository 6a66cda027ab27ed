import test from 'ava';
import { failuresOf, tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

// What a start says and opens because of the settings.

test('a start names the accounts of an upstream that do not exist', async (t) => {
  const upstream = { kind: 'nuget', url: 'http://127.0.0.1:9/', allowPrivateNetwork: true };
  const known = { ...upstream, name: 'known.test', accounts: ['default'] };
  const some = { ...upstream, name: 'some.test', id: 'some', accounts: ['nobody', 'default', 'team', 'none'] };
  const first = await startTestServer(t, {});
  await tokenOf(first, ['read'], 'team');
  await first.close();
  const server = await startTestServer(t, { data: first.data, upstreams: [known, some] });
  const lines = server.lines.map((line) => JSON.parse(line) as { upstream?: string; accounts?: string[] });
  t.deepEqual(
    lines.filter(({ accounts }) => accounts).map(({ upstream: id, accounts }) => [id, accounts]),
    [['some', ['nobody', 'none']]],
  );
});

test('what clients ask for in vain is wanted of upstreams that are set to offline, and of all if the server is', async (t) => {
  const up = await UpstreamFeed.start(t);
  up.upstream.unplug();
  const ids = ['one.thing', 'two.thing'];
  const upstreams = [
    up.as('one.test', { include: ['One.*'] }),
    up.as('two.test', { include: ['Two.*'], mode: 'offline' }),
  ];
  for (const [settings, wanted] of [
    [{}, ['two.thing']],
    [{ offline: true }, ids],
  ] as const) {
    const server = await startMirrorOf(t, upstreams, settings);
    for (const id of ids) t.true((await server.fetch(`/v3/package/${id}/index.json`)).status >= 500);
    const found = await failuresOf(server).wanted(0);
    t.deepEqual(found.map(({ name }) => name).toSorted(), wanted);
  }
});
