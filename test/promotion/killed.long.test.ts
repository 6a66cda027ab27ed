import { setTimeout as sleep } from 'node:timers/promises';
import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { digestOf, ociIndex, ociManifest } from '../support/registry.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';

test('a server that is killed while it promotes shows all of an image or nothing', async (t) => {
  const settings = { ENTREPOT_BOOTSTRAP_TOKEN: 'bootstrap-token-of-a-test-server' };
  const folder = await folderUntilEnd(t);
  let server = await startEntrepot(folder, settings);
  t.teardown(() => server.stop());
  const send = (path: string, init: RequestInit & { type?: string } = {}) => {
    const headers = { authorization: `Bearer ${server.token}`, 'content-type': init.type ?? 'application/json' };
    return fetch(server.url + path, { ...init, headers });
  };
  const put = async (name: string, reference: string, body: string, type = ociManifest) => {
    const answer = await send(`/v2/${name}/manifests/${reference}`, { method: 'PUT', body, type });
    if (answer.status !== 201) throw new Error(await answer.text());
    return { mediaType: type, digest: digestOf(body), size: body.length };
  };
  await send(`/v2/app/blobs/uploads/?digest=${digestOf('{}')}`, { method: 'POST', body: '{}' });
  const config = { mediaType: 'application/vnd.oci.empty.v1+json', digest: digestOf('{}'), size: 2 };
  const manifests = [];
  for (let number = 0; number < 300; number += 1) {
    const annotations = { number: String(number) };
    const image = JSON.stringify({ schemaVersion: 2, mediaType: ociManifest, config, layers: [config], annotations });
    manifests.push(await put('app', digestOf(image), image));
  }
  await put('app', 'v1', JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests }), ociIndex);

  const shown = async (name: string): Promise<number> => {
    const { items } = (await (await send(`/v1/containers/${name}/manifests?limit=200`)).json()) as { items?: object[] };
    return items?.length ?? 0;
  };
  const killed = async ({ pid }: Entrepot, after: number, name: string) => {
    const body = JSON.stringify({ kind: 'image', name: 'app', reference: 'v1', to_name: name });
    const asked = send('/v1/promotions', { method: 'POST', body }).then(
      ({ status }) => status,
      () => undefined,
    );
    await Promise.race([asked, sleep(after)]);
    process.kill(pid, 'SIGKILL');
    return asked;
  };
  let [kills, isDone] = [0, false];
  // The time in which a server does all of it differs between machines.
  for (let [milliseconds, number] = [100, 1]; !isDone && number < 15; milliseconds *= 1.8, number += 1) {
    isDone = (await killed(server, milliseconds, `to${number}`)) === 201;
    await server.stop();
    server = await startEntrepot(folder, settings);
    const found = await shown(`to${number}`);
    const { items } = (await (await send('/v1/promotions?state=done')).json()) as { items: { to_name: string }[] };
    const isRecorded = items.some(({ to_name }) => to_name === `to${number}`);
    t.is(found, isRecorded ? 200 : 0, `after ${milliseconds} ms`);
    if (isDone) t.true(isRecorded);
    if (found === 0) kills += 1;
  }
  t.true(isDone);
  t.true(kills > 0, 'some were killed before they ended');
});
