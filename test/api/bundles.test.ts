import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { newKeyPair, readSigningKey, seal } from '../../src/bundle/keys.ts';
import { statementType } from '../../src/bundle/write.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { TarWriter } from '../../src/storage/files/tar.ts';
import { called, ranImport, refusal, sentImport } from '../support/bundle-runs.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer } from '../support/server.ts';

// What `/v1/bundles` refuses. bundles.long.test.ts makes and imports bundles.

const noRun = '00000000-0000-4000-8000-000000000000';

test('a segment has a number and a size, and an import exists', async (t) => {
  const server = await startTestServer(t, { bundles: { segment: '100kB' } });
  const at = await sentImport(server, {});
  const put = (number: string, body: Uint8Array<ArrayBuffer> | ReadableStream, more: object = {}) =>
    refusal(server, 'PUT', `${at}/segments/${number}`, { body, ...more });
  const small = new Uint8Array(1000).fill(1);
  for (const number of ['0', '10000', '-1', '1.5', '0x1', 'a', '..%2f1', '00001'])
    t.is((await put(number, small)).status, 400, number);
  const announced = await put('1', new Uint8Array(100_001));
  t.is(announced.status, 413);
  t.regex(announced.detail, /at most 100000 bytes \(bundles\.segment\)/);
  const endless = ReadableStream.from(
    (async function* () {
      for (;;) yield new Uint8Array(50_000);
    })(),
  );
  t.is((await put('1', endless, { duplex: 'half' })).status, 413, 'a body that does not announce its length');
  t.is((await put('1', new Uint8Array(0))).status, 400, 'no bytes');
  t.deepEqual((await called(server, 'GET', at))['segments'], []);
  t.deepEqual(await readdir(join(server.data, 'staging')), [], 'nothing of them stays');
  await called(server, 'PUT', `${at}/segments/9999`, small);
  t.deepEqual((await called(server, 'GET', at))['segments'], [{ number: 9999, size_bytes: 1000 }]);
  for (const path of [`/imports/${noRun}/segments/1`, '/imports/..%2f..%2fx/segments/1'])
    t.is((await refusal(server, 'PUT', path, { body: small })).status, 404, path);
  const form = new FormData();
  form.append('segment', new Blob([small]), 'C:\\bundle\\0002.tar');
  form.append('segment', new Blob([small]), '0003.tar');
  t.is((await called(server, 'POST', `${at}/segments`, form))['segments'].length, 3);
  for (const name of ['../../0001.tar.exe', 'bundle.tar', '0000.tar', '']) {
    const wrong = new FormData();
    wrong.append('segment', new Blob([name === '' ? '' : small]), name);
    t.is((await refusal(server, 'POST', `${at}/segments`, { body: wrong })).status, 400, name);
  }
  const large = new FormData();
  large.append('segment', new Blob([new Uint8Array(100_001)]), '0001.tar');
  t.is((await refusal(server, 'POST', `${at}/segments`, { body: large })).status, 413);
});

test('the list of a bundle is not read before its signature is accepted', async (t) => {
  const server = await startTestServer(t);
  const path = join(await folderUntilEnd(t), '0001.tar');
  const list = Buffer.from('nothing that a bundle has\n');
  const { privateKey } = newKeyPair();
  const payload = Buffer.from(JSON.stringify({ list: digestOf(list) }));
  const cases = [
    [readSigningKey(privateKey, 'a key'), /is signed by the key [0-9a-f]{16}, which is not trusted here/],
    [undefined, /the bundle is not signed/],
  ] as const;
  for (const [key, message] of cases) {
    await using tar = await TarWriter.create(path, { mode: 0o600 });
    const statement = Buffer.from(seal(statementType, payload, key));
    await tar.add('bundle.dsse.json', statement.length, [statement]);
    await tar.add('bundle.json', list.length, [list]);
    await tar.finish();
    const at = await sentImport(server, { 1: await readFile(path) });
    for (const options of [{ check: true }, {}]) t.regex((await ranImport(server, at, options))['error'], message);
  }
});

test('bundles need operate and a token without name patterns', async (t) => {
  const server = await startTestServer(t);
  const { value: limited } = await createToken(server, ['operate'], 'default', { containers: ['up.test/*'] });
  const document = await OpenDocument.of(server);
  const operations = document.operations.filter((each) => / \/bundles\b/.test(each));
  t.true(operations.length >= 15);
  for (const token of [await tokenOf(server, ['read', 'write', 'delete', 'admin']), limited])
    for (const each of operations) {
      const [method = '', path = ''] = each.split(' ');
      const answer = await server.fetch(`/v1${path.replace('{id}', noRun).replace('{number}', '1')}`, {
        method,
        token,
      });
      t.is(answer.status, 403, each);
    }
  t.is(
    (await server.fetch('/v1/bundles', { method: 'POST', body: '{}', headers: { 'content-type': 'application/json' } }))
      .status,
    415,
  );
  for (const path of [`/${noRun}`, `/imports/${noRun}`, `/${noRun}/segments/1`, '/nothing'])
    t.is((await refusal(server, 'GET', path)).status, 404, path);
});
