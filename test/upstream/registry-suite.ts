import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { digestOf, ociManifest, type Descriptor } from '../support/registry.ts';

// What every upstream registry in the tests must do, the fake one and a real one.

export interface OpenedRegistry {
  /** Without a slash at the end. */
  url: string;
  /** For the requests of the suite. */
  headers: Record<string, string>;
  /** Offers a blob of the repository `app`. */
  blob(bytes: Buffer): Promise<Descriptor> | Descriptor;
  /** Offers a manifest of the repository `app` under its digest and a tag. */
  manifest(text: string, tag: string): Promise<unknown>;
}

/** The tests of a registry. `open` gives one without the repository `app`. */
export function testRegistry(name: string, open: (t: ExecutionContext) => Promise<OpenedRegistry>): void {
  const suite = (title: string, run: (t: ExecutionContext, registry: OpenedRegistry) => Promise<void>) =>
    test(`${name}: ${title}`, async (t) => run(t, await open(t)));

  suite('a manifest is found by its tag and its digest, with its bytes unchanged', async (t, registry) => {
    const config = await registry.blob(Buffer.from('{}'));
    const document = { schemaVersion: 2, mediaType: ociManifest, config, layers: [] };
    const text = JSON.stringify(document, undefined, 3);
    await registry.manifest(text, '1.0');
    const digest = digestOf(text);
    t.is((await ask(registry, '')).status, 200);
    for (const reference of ['1.0', digest]) {
      for (const method of ['GET', 'HEAD']) {
        const answer = await ask(registry, `app/manifests/${reference}`, { accept: ociManifest }, method);
        t.is(answer.status, 200);
        t.is(answer.headers.get('content-type'), ociManifest);
        t.is(answer.headers.get('docker-content-digest'), digest);
        t.is(answer.headers.get('content-length'), String(Buffer.byteLength(text)));
        t.is(await answer.text(), method === 'GET' ? text : '');
      }
    }
    for (const path of ['app/manifests/2.0', `app/manifests/${digestOf('none')}`, 'other/manifests/1.0'])
      t.is((await ask(registry, path, { accept: ociManifest })).status, 404, path);
  });

  suite('a blob is found by its digest, also from a byte on', async (t, registry) => {
    const bytes = randomBytes(100_000);
    const { digest } = await registry.blob(bytes);
    const whole = await ask(registry, `app/blobs/${digest}`);
    t.is(whole.status, 200);
    t.is(whole.headers.get('docker-content-digest'), digest);
    t.true(bytes.equals(Buffer.from(await whole.arrayBuffer())));
    const head = await ask(registry, `app/blobs/${digest}`, {}, 'HEAD');
    t.is(head.headers.get('content-length'), '100000');
    const rest = await ask(registry, `app/blobs/${digest}`, { range: 'bytes=99990-' });
    t.is(rest.status, 206);
    t.is(rest.headers.get('content-range'), 'bytes 99990-99999/100000');
    t.deepEqual(Buffer.from(await rest.arrayBuffer()), bytes.subarray(99_990));
    t.is((await ask(registry, `app/blobs/${digest}`, { range: 'bytes=100000-' })).status, 416);
    t.is((await ask(registry, `app/blobs/${digestOf('none')}`)).status, 404);
  });
}

function ask({ url, headers }: OpenedRegistry, path: string, more: Record<string, string> = {}, method = 'GET') {
  return fetch(`${url}/v2/${path}`, { method, headers: { ...headers, ...more } });
}
