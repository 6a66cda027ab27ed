import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { startTestServer } from '../support/server.ts';

const on = (...ids: string[]) => ids.map((id) => ({ id, version: '1.0.0' }));

test('the dependents of a package are those of the newest versions, also if as many others are named', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish(
    { id: 'Kept' },
    { id: 'Dropped' },
    { id: 'Added' },
    { id: 'App', version: '1.0.0', dependencies: on('Kept', 'Dropped') },
    { id: 'App', version: '1.1.0', dependencies: on('Kept', 'Added') },
  );
  const found: string[] = [];
  for (const id of ['Kept', 'Dropped', 'Added']) {
    const { items } = (await (await server.fetch(`/v1/packages/${id}/dependents`)).json()) as {
      items: { id: string; version: string }[];
    };
    found.push(`${id}: ${items.map((each) => `${each.id} ${each.version}`).join()}`);
  }
  t.deepEqual(found, ['Kept: App 1.1.0', 'Dropped: ', 'Added: App 1.1.0']);
});
