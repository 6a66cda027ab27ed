import { randomBytes } from 'node:crypto';
import test from 'ava';
import { tokenOf } from '../../support/inside.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { digestOf, errorOf, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';

const bytes = randomBytes(50_000);
const digest = digestOf(bytes);
const unknown: [number, string] = [404, 'BLOB_UPLOAD_UNKNOWN'];

for (const dialect of dialects) {
  test(`${dialect}: the last request of an upload can be repeated when its answer was lost`, async (t) => {
    const url = await temporaryDatabase(t, dialect);
    const settings = { database: { url } };
    const server = await startTestServer(t, settings);
    const app = new TestRepository(server, 'team/app');
    const location = await app.start();
    t.is((await app.fetch(location, { method: 'PATCH', body: bytes.subarray(0, 20_000) })).status, 202);
    const path = `${location}?digest=${digest}`;
    const last = bytes.subarray(20_000);
    const finish = (repository: TestRepository, at = path) => repository.fetch(at, { method: 'PUT', body: last });
    t.is((await finish(app)).status, 201);

    for (const body of [last, undefined]) {
      const again = await app.fetch(path, { method: 'PUT', body });
      t.is(again.status, 201);
      t.is(again.headers.get('location'), `/v2/team/app/blobs/${digest}`);
      t.is(again.headers.get('docker-content-digest'), digest);
    }
    t.deepEqual(await errorOf(await finish(app, `${location}?digest=${digestOf('other')}`)), unknown, 'another digest');
    const { digest: other } = await app.blob('other');
    t.deepEqual(await errorOf(await finish(app, `${location}?digest=${other}`)), unknown, 'the blob of another upload');
    const elsewhere = new TestRepository(server, 'team/other');
    await elsewhere.blob(bytes);
    t.deepEqual(await errorOf(await finish(elsewhere, path.replace('team/app', 'team/other'))), unknown);
    const stranger = new TestRepository(server, 'team/app', await tokenOf(server, ['read', 'write'], 'stranger'));
    await stranger.blob(bytes);
    t.deepEqual(await errorOf(await finish(stranger)), unknown, 'another account');
    for (const method of ['GET', 'PATCH', 'DELETE']) {
      t.deepEqual(await errorOf(await app.fetch(location, { method })), unknown, method);
    }

    const second = await startTestServer(t, { ...settings, data: server.data });
    t.is((await finish(new TestRepository(second, 'team/app'))).status, 201, 'at another instance');
    t.is((await app.fetch(`blobs/${digest}`, { method: 'DELETE' })).status, 202);
    t.deepEqual(await errorOf(await finish(app)), unknown, 'the blob is gone');
  });
}
