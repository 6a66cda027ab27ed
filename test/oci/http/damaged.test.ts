import { randomBytes } from 'node:crypto';
import { access, readFile, stat } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import { damages, filesOf } from '../../support/damage.ts';
import { rowsOf, tokenOf } from '../../support/inside.ts';
import { digestOf, errorOf, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

const sizes = { small: 1000, large: 600_000 };

const logged = (server: TestServer, digest: string, message: string) =>
  server.lines.filter((line) => line.includes(message) && line.includes(digest)).length;

async function assertWhole(t: ExecutionContext, app: TestRepository, digest: string, bytes: Buffer, message: string) {
  const response = await app.fetch(`blobs/${digest}`);
  t.is(response.status, 200, message);
  t.is(response.headers.get('content-length'), String(bytes.length), message);
  t.deepEqual(Buffer.from(await response.arrayBuffer()), bytes, message);
}

for (const [kind, damage] of Object.entries(damages)) {
  for (const [name, size] of Object.entries(sizes)) {
    // The digest of a large blob is not computed for each read: the scrub finds a flipped bit.
    if (kind === 'flipped' && name === 'large') continue;
    const title = `a ${name} blob whose file is ${kind}`;

    test(`${title}: hosted, it is a 500 that names the repair, and the same push repairs it`, async (t) => {
      const server = await startTestServer(t);
      const app = new TestRepository(server, 'team/app');
      const bytes = randomBytes(size);
      const { digest } = await app.blob(bytes);
      const files = filesOf(server, digest);
      await damage(files.stored);

      const reader = new TestRepository(server, 'team/app', await tokenOf(server, ['read']));
      for (const method of ['GET', 'HEAD', 'GET']) {
        const response = await reader.fetch(`blobs/${digest}`, { method });
        t.is(response.status, 500, method);
        t.regex(response.statusText, new RegExp(`${digest}.*damaged.*Push this content again`), method);
        t.is(response.headers.get('docker-content-digest'), null, method);
        if (method === 'GET') t.deepEqual(await errorOf(response), [500, 'UNKNOWN']);
      }
      t.is((await app.fetch(`blobs/${digest}`)).status, 500, 'a GET never says that there is no such blob');
      t.is(logged(server, digest, 'hosted content is damaged; push it again'), 1, 'logged once, not by each request');
      await t.throwsAsync(access(files.stored), { code: 'ENOENT' });
      if (kind !== 'missing') await t.notThrowsAsync(access(files.quarantined));

      await app.blob(bytes);
      await assertWhole(t, app, digest, bytes, 'after the push');
      t.is((await app.fetch(`blobs/${digest}`, { method: 'HEAD' })).status, 200);
    });

    test(`${title}: a push without a read before it repairs it`, async (t) => {
      const server = await startTestServer(t);
      const app = new TestRepository(server, 'team/app');
      const bytes = randomBytes(size);
      const { digest } = await app.blob(bytes);
      await damage(filesOf(server, digest).stored);
      await app.blob(bytes);
      await assertWhole(t, app, digest, bytes, 'after the push');
    });

    test(`${title}: mirrored, the same request fetches it again`, async (t) => {
      const upstream = await startUpstreamRegistry(t);
      const bytes = randomBytes(size);
      const { digest } = upstream.blob('team/app', bytes);
      const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
      const app = new TestRepository(server, 'up.test/team/app');
      await assertWhole(t, app, digest, bytes, 'cold');
      const { stored } = filesOf(server, digest);
      await damage(stored);
      const again = await startTestServer(t, { data: server.data, upstreams: [upstream.settings('up.test')] });
      const later = new TestRepository(again, 'up.test/team/app');
      await assertWhole(t, later, digest, bytes, 'after the damage');
      t.deepEqual(await readFile(stored), bytes);
      await assertWhole(t, later, digest, bytes, 'from the storage');
      t.is(upstream.requests().length, 2);
      t.is(logged(again, digest, 'mirrored content is damaged'), 1);
    });
  }
}

for (const kind of ['truncated', 'missing'] as const) {
  test(`a mirrored blob whose file is ${kind} is the failure of the upstream while that fails`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const bytes = randomBytes(600_000);
    const { digest } = upstream.blob('team/app', bytes);
    const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
    const app = new TestRepository(server, 'up.test/team/app');
    await assertWhole(t, app, digest, bytes, 'cold');
    await damages[kind](filesOf(server, digest).stored);
    upstream.on(`/v2/team/app/blobs/${digest}`, (_request, response) => void response.writeHead(500).end());
    t.is((await app.fetch(`blobs/${digest}`)).status, 502);
    const rows = await rowsOf(server, 'SELECT digest FROM blobs');
    t.is(rows.length, kind === 'missing' ? 1 : 0, 'a file that is missing, perhaps for a while, keeps its row');
  });
}

test('a damaged manifest is a 500 by tag and by digest, and its push repairs it', async (t) => {
  const server = await startTestServer(t);
  const app = new TestRepository(server, 'team/app');
  const reader = new TestRepository(server, 'team/app', await tokenOf(server, ['read']));
  const image = await app.image('v1');
  await damages.truncated(filesOf(server, image.digest).stored);
  for (const reference of ['v1', image.digest]) {
    for (const method of ['GET', 'HEAD']) {
      t.is((await reader.fetch(`manifests/${reference}`, { method })).status, 500, `${method} ${reference}`);
    }
    t.is((await app.fetch(`manifests/${reference}`)).status, 500);
    // containerd and oras send a HEAD before they push a manifest, and stop at every status but 200 and 404.
    t.is(
      (await app.fetch(`manifests/${reference}`, { method: 'HEAD' })).status,
      404,
      `HEAD ${reference} before a push`,
    );
  }
  t.is((await app.put('v1', image.bytes, image.mediaType)).status, 201);
  t.is(await (await app.fetch('manifests/v1')).text(), image.bytes);
});

for (const [kind, damage] of Object.entries(damages)) {
  test(`a HEAD before a push does not find a hosted blob whose file is ${kind}, so that the client uploads it`, async (t) => {
    const server = await startTestServer(t);
    const app = new TestRepository(server, 'team/app');
    const bytes = randomBytes(sizes.small);
    const { digest } = await app.blob(bytes);
    // Now its bytes are in memory too.
    await assertWhole(t, app, digest, bytes, 'before the damage');
    await damage(filesOf(server, digest).stored);
    const head = () => app.fetch(`blobs/${digest}`, { method: 'HEAD' });
    for (let each = 0; each < 2; each += 1) t.is((await head()).status, 404);
    await app.blob(bytes);
    t.is((await head()).status, 200);
    await assertWhole(t, app, digest, bytes, 'after the push');
  });
}

test('a damaged blob is not mounted, so that the client uploads it', async (t) => {
  const server = await startTestServer(t);
  const one = new TestRepository(server, 'team/one');
  const two = new TestRepository(server, 'team/two');
  const bytes = randomBytes(600_000);
  const { digest } = await one.blob(bytes);
  await damages.truncated(filesOf(server, digest).stored);
  const mount = () => two.fetch(`blobs/uploads/?mount=${digest}&from=team/one`, { method: 'POST' });
  t.is((await mount()).status, 202);
  await two.blob(bytes);
  await assertWhole(t, one, digest, bytes, 'repaired in the other repository too');
  t.is((await mount()).status, 201);
});

test('a blob that was repaired and is damaged again a moment later is moved and told again', async (t) => {
  const server = await startTestServer(t);
  const app = new TestRepository(server, 'team/app');
  const bytes = randomBytes(sizes.large);
  const { digest } = await app.blob(bytes);
  const { stored } = filesOf(server, digest);
  for (const times of [1, 2]) {
    await damages.truncated(stored);
    t.is((await app.fetch(`blobs/${digest}`)).status, 500);
    await t.throwsAsync(access(stored), { code: 'ENOENT' });
    t.is(logged(server, digest, 'hosted content is damaged; push it again'), times);
    await app.blob(bytes);
    await assertWhole(t, app, digest, bytes, 'after the push');
  }
});

test('an upload session repairs a damaged blob', async (t) => {
  const server = await startTestServer(t);
  const app = new TestRepository(server, 'team/app');
  const bytes = randomBytes(600_000);
  const { digest } = await app.blob(bytes);
  const { stored } = filesOf(server, digest);
  await damages.truncated(stored);
  const location = await app.start();
  const done = await app.fetch(`${location}?digest=${digest}`, { method: 'PUT', body: bytes });
  t.is(done.status, 201);
  t.is((await stat(stored)).size, bytes.length);
  t.is(digestOf(await readFile(stored)), digest);
});
