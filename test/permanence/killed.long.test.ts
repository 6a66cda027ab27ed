import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { startEntrepot } from '../support/processes/entrepot.ts';
import { digestOf, ociManifest } from '../support/registry.ts';

const count = 40;
const tagsOf = (number: number) => Array.from({ length: 8 }, (_, each) => `${number}-${each}`);
const imageOf = (number: number) => {
  const config = { mediaType: 'application/vnd.oci.empty.v1+json', digest: digestOf('{}'), size: 2 };
  const annotations = { number: String(number) };
  return JSON.stringify({ schemaVersion: 2, mediaType: ociManifest, config, layers: [config], annotations });
};

test('a server that is killed while it restores and purges has done each wholly or not at all', async (t) => {
  const settings = { ENTREPOT_BOOTSTRAP_TOKEN: 'bootstrap-token-of-a-test-server' };
  const folder = await folderUntilEnd(t);
  let server = await startEntrepot(folder, settings);
  t.teardown(() => server.stop());
  const send = (path: string, method = 'GET', body?: string) => {
    const headers = { authorization: `Bearer ${server.token}`, 'content-type': ociManifest };
    return fetch(server.url + path, { method, headers, ...(body !== undefined && { body }) });
  };
  await send(`/v2/app/blobs/uploads/?digest=${digestOf('{}')}`, 'POST', '{}');
  const numbers = new Map<string, number>();
  for (let number = 0; number < count; number += 1) {
    const image = imageOf(number);
    numbers.set(digestOf(image), number);
    for (const tag of tagsOf(number)) t.is((await send(`/v2/app/manifests/${tag}`, 'PUT', image)).status, 201);
    t.is((await send(`/v2/app/manifests/${digestOf(image)}`, 'DELETE')).status, 202);
  }
  const deleted = async () => {
    const { items } = (await (await send('/v1/deleted?limit=200')).json()) as {
      items: { id: string; digest: string }[];
    };
    return new Map(items.map(({ id, digest }) => [numbers.get(digest)!, id]));
  };
  const end = async ([number, id]: readonly [number: number, id: string]) => {
    const isRestored = number % 2 === 0;
    const path = isRestored ? `/v1/deleted/${id}/restore` : `/v1/deleted/${id}?reason=wrong`;
    const { status } = await send(path, isRestored ? 'POST' : 'DELETE');
    if (status !== (isRestored ? 200 : 204)) throw new Error(`${number}: ${status}`);
    return number;
  };
  const check = async (left: ReadonlyMap<number, string>) => {
    const { tags } = (await (await send('/v2/app/tags/list?n=1000')).json()) as { tags: string[] };
    const restored = [...numbers.values()].filter((number) => number % 2 === 0 && !left.has(number));
    t.deepEqual(tags.toSorted(), restored.flatMap(tagsOf).toSorted());
    for (const [digest, number] of numbers)
      t.is((await send(`/v2/app/manifests/${digest}`)).status, restored.includes(number) ? 200 : 404, `${number}`);
    const eventsOf = async (type: string) =>
      ((await (await send(`/v1/audit?limit=200&type=${type}`)).json()) as { items: object[] }).items.length;
    t.is(await eventsOf('manifest.restored'), restored.length);
    t.is(await eventsOf('manifest.purged'), count - restored.length - left.size);
  };

  const all = await deleted();
  t.is(all.size, count);
  const waiting = [...all];
  const done = new Set<number>();
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      done.add(await end(next));
      if (done.size === count / 4) process.kill(server.pid, 'SIGKILL');
    }
  };
  await Promise.allSettled([worker(), worker(), worker()]);
  await server.stop();
  server = await startEntrepot(folder, settings);
  const left = await deleted();
  t.true(left.size > 0, 'it was killed before all were done');
  t.deepEqual(
    [...done].filter((number) => left.has(number)),
    [],
    'what was answered is done',
  );
  await check(left);
  for (const item of left) await end(item);
  await check(new Map());
});
