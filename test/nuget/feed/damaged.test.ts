import { readdir } from 'node:fs/promises';
import test from 'ava';
import { damages, filesOf } from '../../support/damage.ts';
import { makeNupkg } from '../../support/builders/nupkg.ts';
import { digestOf } from '../../support/registry.ts';
import { rowsOf } from '../../support/inside.ts';
import { TestFeed } from '../../support/feed.ts';
import { startTestServer } from '../../support/server.ts';

const file = '/package/contoso/1.0.0/contoso.1.0.0.nupkg';

for (const [kind, damage] of Object.entries(damages)) {
  test(`a package whose file is ${kind} is a 500 that names the repair, and the same push repairs it`, async (t) => {
    const server = await startTestServer(t);
    const feed = new TestFeed(server);
    const nupkg = await makeNupkg({ id: 'Contoso', version: '1.0.0' });
    t.is((await feed.push(nupkg)).status, 201);
    const digest = digestOf(nupkg);
    await damage(filesOf(server, digest).stored);
    for (const method of ['GET', 'HEAD']) {
      const response = await feed.fetch(file, { method });
      t.is(response.status, 500, method);
      t.regex(response.statusText, /damaged.*Push this content again/, method);
    }
    t.is(server.lines.filter((line) => line.includes('hosted content is damaged') && line.includes(digest)).length, 1);

    const again = await feed.push(nupkg);
    t.is(again.status, 201);
    t.regex(again.headers.get('x-nuget-warning') ?? '', /repaired/);
    t.deepEqual(Buffer.from(await (await feed.fetch(file)).arrayBuffer()), nupkg);
    t.is((await feed.push(nupkg)).status, 409, 'a whole version is not replaced');
    t.deepEqual(await readdir(`${server.data}/staging`), []);
    t.is((await rowsOf(server, 'SELECT id FROM package_versions')).length, 1);
  });
}

test('another file under the version of a damaged package is refused', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const nupkg = await makeNupkg({ id: 'Contoso', version: '1.0.0' });
  t.is((await feed.push(nupkg)).status, 201);
  await damages.truncated(filesOf(server, digestOf(nupkg)).stored);
  t.is((await feed.push({ id: 'Contoso', version: '1.0.0', description: 'Other' })).status, 409);
  t.is((await feed.fetch(file)).status, 500);
});
