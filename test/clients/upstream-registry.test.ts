import { digestOf, ociManifest } from '../support/registry.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { startDebianRegistry } from '../support/upstreams/debian-registry.ts';
import { testRegistry } from '../upstream/registry-suite.ts';

// The suite of the fake upstream registry, on a real one.

testRegistry("Debian's registry", async (t) => {
  const registry = await startDebianRegistry(await folderUntilEnd(t));
  const { host, username, password } = registry;
  t.teardown(() => registry.stop());
  const url = `http://${host}`;
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  const send = async (method: string, address: string, type: string, body: Buffer | undefined) => {
    const answer = await fetch(address, {
      method,
      headers: { authorization, 'content-type': type },
      ...(body && { body: new Uint8Array(body) }),
    });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    return answer;
  };
  const type = 'application/octet-stream';
  return {
    url,
    headers: { authorization },
    blob: async (bytes) => {
      const begun = await send('POST', `${url}/v2/app/blobs/uploads/`, type, undefined);
      const location = new URL(begun.headers.get('location')!, url);
      location.searchParams.set('digest', digestOf(bytes));
      await send('PUT', location.href, type, bytes);
      return { mediaType: type, digest: digestOf(bytes), size: bytes.length };
    },
    manifest: async (text, tag) => send('PUT', `${url}/v2/app/manifests/${tag}`, ociManifest, Buffer.from(text)),
  };
});
