import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { startTestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { testFeed } from './feed-suite.ts';

// In a process of its own: a helper declares tests of it.

async function filesOf(): Promise<Record<string, Buffer>> {
  const versions = ['1.0.0', '1.1.0-Beta', '2.0.0'];
  const files = versions.map(async (version) => [version, await makeNupkg({ id: 'Some.Lib', version })] as const);
  return Object.fromEntries(await Promise.all(files));
}

testFeed('the feed of this program', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  const files = await filesOf();
  for (const bytes of [...Object.values(files), await makeNupkg({ id: 'Some.Tool', version: '1.0.0' })]) {
    const { status } = await feed.push(bytes);
    if (status !== 201) throw new Error(`a push was answered with ${status}`);
  }
  const headers = { authorization: `Bearer ${feed.token}` };
  return { index: `${feed.server.url}/v3/index.json`, headers, files };
});

for (const pageSize of [undefined, 2])
  testFeed(`the fake feed with ${pageSize ?? 'all'} versions on a page`, async (t) => {
    const feed = await UpstreamFeed.start(t);
    const files = await filesOf();
    const versions = Object.entries(files).map(([version, nupkg]) => ({ version, nupkg }));
    await feed.offer({ id: 'Some.Lib', versions, ...(pageSize && { pageSize }) });
    await feed.offer({ id: 'Some.Tool', versions: [{ version: '1.0.0' }] });
    return { index: `${feed.url}/index.json`, headers: {}, files };
  });
