import test, { type ExecutionContext } from 'ava';
import { startEntrepot, type Entrepot } from '../../support/processes/entrepot.ts';
import { serve } from '../../support/upstreams/faulty-upstream.ts';
import { packageForm } from '../../support/feed.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { peakGrowth } from '../../support/memory.ts';
import { makeNupkg, makeNuspec } from '../../support/builders/nupkg.ts';
import { UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { emptyFields, writeZip, type RawEntry } from '../../support/builders/zip.ts';

// In a process of its own: it measures the process.

// Memory that a package costs a server in its own process. The tests run one after the other, so that ports stay free.

async function start(t: ExecutionContext, upstreams: unknown[] = []): Promise<Entrepot> {
  const server = await startEntrepot(await folderUntilEnd(t), { ENTREPOT_UPSTREAMS: JSON.stringify(upstreams) });
  t.teardown(() => server.stop());
  return server;
}

async function push({ url, token }: Entrepot, nupkg: Buffer): Promise<Response> {
  const { body, type } = packageForm(nupkg);
  const headers = { 'content-type': type, 'x-nuget-apikey': token };
  return fetch(`${url}/v3/push`, { method: 'PUT', headers, body: new Uint8Array(body) });
}

const nuspec = (id: string): RawEntry => ({ name: `${id}.nuspec`, data: makeNuspec({ id }) });

/** 13 MB of extra fields; a reader that parses them makes an object of each. */
function withManyFields(id: string): Buffer {
  const extra = emptyFields(65_532);
  return writeZip([nuspec(id), ...Array.from({ length: 200 }, (_, i) => ({ name: `f${i}`, extra }))]);
}

test.serial('a push with millions of extra fields in its zip is refused without much memory', async (t) => {
  const server = await start(t);
  t.is((await push(server, await makeNupkg({ payloadBytes: 13_000_000 }))).status, 201);
  const nupkg = withManyFields('Evil');
  const grown = await peakGrowth(server.pid, async () => {
    const response = await push(server, nupkg);
    t.is(response.status, 400);
    t.regex(response.statusText, /extra fields or a comment of more than 1024 bytes/);
  });
  t.true(grown < 80, `${grown} MiB`);
});

test.serial('an upstream package with millions of extra fields is refused without much memory', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({
    id: 'Good',
    versions: [{ version: '1.0.0', nupkg: await makeNupkg({ id: 'Good', payloadBytes: 13_000_000 }) }],
  });
  await up.offer({ id: 'Evil', versions: [{ version: '1.0.0' }] });
  up.upstream.on('/flat/evil/1.0.0/evil.1.0.0.nupkg', serve(withManyFields('Evil')));
  const server = await start(t, [up.as('up.test')]);
  const headers = { authorization: `Bearer ${server.token}` };
  const read = async (key: string) => {
    const response = await fetch(`${server.url}/v3/package/${key}/1.0.0/${key}.1.0.0.nupkg`, { headers });
    return response.status === 200 ? (await response.arrayBuffer()).byteLength : response.status;
  };
  t.true((await read('good')) > 13_000_000);
  const grown = await peakGrowth(server.pid, async () => {
    // The last byte is withheld, so the body is cut.
    await t.throwsAsync(read('evil'));
  });
  t.true(grown < 80, `${grown} MiB`);
});

test.serial('concurrent pushes with many entries take time, but not memory', async (t) => {
  const server = await start(t);
  t.is((await push(server, await makeNupkg({ payloadBytes: 13_000_000 }))).status, 201);
  const files = Array.from({ length: 65_534 }, (_, i) => ({ name: `lib/net8.0/some/folder/f${i}`, method: 0 }));
  const packages = ['A', 'B', 'C', 'D'].map((id) => writeZip([nuspec(id), ...files]));
  const grown = await peakGrowth(server.pid, async () => {
    const answers = await Promise.all(packages.map((each) => push(server, each)));
    t.deepEqual(
      answers.map(({ status }) => status),
      [201, 201, 201, 201],
    );
  });
  t.true(grown < 160, `${grown} MiB`);
});
