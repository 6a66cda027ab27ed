import { readdir, readlink } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import type { Verdict } from '../../src/mirror/policy/admission.ts';
import { makePdb } from '../support/builders/nupkg.ts';
import { flushUsage } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { ociManifest } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { answer, serve } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { until } from '../support/until.ts';

// Every route that reveals a mirrored version, tag or byte passes the one admission.

const [open, denied, hidden] = ['1.0.0', '3.8.2', '4.7.1'];
/** Its bytes are the same in both orders in which a GUID is written. */
const guid = Buffer.from('11111111222233334444555555555555', 'hex');
const reason = 'Version 3.8.2 has known malware.';

/** Replaces the judge's verdicts; without any, everything is allowed. */
interface Gate {
  verdicts: Map<string, Verdict> | undefined;
}

interface Setup {
  server: TestServer;
  registry: Awaited<ReturnType<typeof startUpstreamRegistry>>;
  gate: Gate;
  /** References that are held, and refused. */
  held: string[];
  refused: string[];
  digests: Record<'open' | 'denied' | 'hidden' | 'layer' | 'subject', string>;
  /** The path of symbols that are held. */
  symbols: string;
  /** The upstreams do not offer any more what is held. */
  withdraw: () => Promise<void>;
}

/** A feed and a registry whose content is stored already. */
async function start(t: ExecutionContext): Promise<Setup> {
  const gate: Gate = { verdicts: undefined };
  const feed = await UpstreamFeed.start(t);
  const versions = [{ version: open }, { version: denied }, { version: hidden }];
  await feed.offer({ id: 'Lib', versions });
  await feed.offer({ id: 'Paged.Lib', versions, pageSize: 1 });
  await feed.offer({ id: 'Young.Lib', versions: [{ version: hidden }] });
  const pdb = makePdb(guid);
  const registry = await startUpstreamRegistry(t);
  const images = { open: registry.image('team/app', 'open-tag'), denied: registry.image('team/app', 'denied-tag') };
  const hiddenImage = registry.image('team/app', 'hidden-tag');
  const { config } = images.open;
  const subject = { mediaType: ociManifest, digest: images.open.manifest.digest, size: images.open.manifest.size };
  const referrer = { schemaVersion: 2, mediaType: ociManifest, config, layers: [config], subject };
  const hiddenReferrer = registry.manifest('team/app', referrer);
  registry.on('/v2/team/app/tags/list', (_request, response) => {
    const tags = ['alias-tag', 'denied-tag', 'hidden-tag', 'open-tag'];
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ tags }));
  });
  registry.manifest('team/app', hiddenImage.manifest.bytes, 'alias-tag');
  registry.on(`/v2/team/app/referrers/${subject.digest}`, (_request, response) => {
    const index = { schemaVersion: 2, manifests: [hiddenReferrer] };
    response.writeHead(200, { 'content-type': 'application/vnd.oci.image.index.v1+json' }).end(JSON.stringify(index));
  });
  const upstreams = [
    feed.as('feed.test', { symbolsUrl: `${feed.url}/symbols`, freshFor: '1h' }),
    registry.settings('registry.test', { freshFor: '1h' }),
  ];
  const judge = async () => {
    const { verdicts } = gate;
    return verdicts && ((reference: string) => verdicts.get(reference) ?? 'allow');
  };
  const server = await startTestServer(t, { upstreams }, { judge });
  const document = await (await server.fetch('/v3/index.json')).text();
  t.true(document.includes('/v3/'));
  const key = `${guid.toString('hex')}ffffffff`;
  feed.upstream.on(`/symbols/lib.pdb/${key}/lib.pdb`, serve(pdb));
  const digests = {
    open: images.open.manifest.digest,
    denied: images.denied.manifest.digest,
    hidden: hiddenImage.manifest.digest,
    layer: hiddenImage.layer.digest,
    subject: hiddenReferrer.digest,
  };
  const withdraw = async () => {
    const left = [{ version: open }, { version: denied }];
    await feed.offer({ id: 'Lib', versions: left });
    await feed.offer({ id: 'Paged.Lib', versions: left, pageSize: 1 });
    for (const document of ['flat', 'registration']) feed.upstream.on(`/${document}/young.lib/index.json`, answer(404));
    for (const tag of ['hidden-tag', 'alias-tag']) registry.on(`/v2/team/app/manifests/${tag}`, answer(404));
    registry.on('/v2/team/app/tags/list', answer(404));
    server.clock.now = Date.now() + 7_200_000;
  };
  return {
    server,
    registry,
    gate,
    withdraw,
    held: [hidden, 'hidden-tag', digests.hidden, digests.layer, digests.subject, key],
    refused: [denied, 'denied-tag', digests.denied],
    digests,
    symbols: `/v3/symbols/lib.pdb/${key}/lib.pdb`,
  };
}

function filesOf(id: string, version: string): string[] {
  const names = [`${id}.${version}.nupkg`, `${id}.nuspec`, 'readme', 'icon'];
  return names.map((file) => `/v3/package/${id}/${version}/${file}`);
}

/** Every address that could show held content, in an order that stores content before lists of it are read. */
async function addressesOf({ server, digests, symbols }: Setup): Promise<string[]> {
  const hives = ['registration', 'registration-gz', 'registration-gz-semver2'];
  const feed = ['lib', 'paged.lib', 'young.lib'].flatMap((id) => [
    ...[open, hidden].flatMap((version) => (id === 'young.lib' && version === open ? [] : filesOf(id, version))),
    `/v3/package/${id}/index.json`,
    ...hives.flatMap((hive) => [
      `/v3/${hive}/${id}/index.json`,
      `/v3/${hive}/${id}/page/${open}/9.0.0.json`,
      `/v3/${hive}/${id}/${hidden}.json`,
    ]),
    `/v3/autocomplete?id=${id}`,
  ]);
  const searches = ['/v3/search?q=lib', '/v3/search?q=young', '/v3/search?q=lib&prerelease=true&semVerLevel=2.0.0'];
  const image = '/v2/registry.test/team/app';
  const registry = [
    ...['open-tag', 'hidden-tag', 'alias-tag', digests.open, digests.hidden].map(
      (each) => `${image}/manifests/${each}`,
    ),
    `${image}/manifests/${digests.subject}`,
    `${image}/blobs/${digests.layer}`,
    `${image}/tags/list`,
    `${image}/tags/list?n=2`,
    `${image}/_oci/tag-history/hidden-tag`,
    `${image}/referrers/${digests.open}`,
    ...['open-tag', 'hidden-tag', 'alias-tag'].map((each) => `${image}/_oci/tag-history/${each}`),
  ];
  const { operations } = await OpenDocument.of(server);
  const values: Record<string, string[]> = {
    '{id}': ['Lib'],
    '{version}': [hidden, open],
    '{name}': ['registry.test/team/app'],
    '{tag}': ['hidden-tag'],
    '{digest}': [digests.hidden, digests.open],
    '{reference}': ['hidden-tag', 'alias-tag', digests.hidden, 'open-tag'],
  };
  const management = operations
    .filter((each) => each.startsWith('GET '))
    .flatMap((each) =>
      [...each.matchAll(/\{\w+\}/g)].reduce(
        (paths, [parameter]) =>
          paths.flatMap((path) => (values[parameter] ?? ['x']).map((value) => path.replace(parameter, value))),
        [`/v1${each.slice('GET '.length)}`],
      ),
    )
    .map((path) => (path === '/v1/search' ? '/v1/search?q=lib' : path));
  return [...feed, ...searches, symbols, ...registry, ...management];
}

interface Seen {
  status: number;
  text: string;
}

async function seen(server: TestServer, address: string): Promise<Seen> {
  const response = await server.fetch(address);
  return { status: response.status, text: Buffer.from(await response.arrayBuffer()).toString('latin1') };
}

/** Whether an answer shows one of `references`, or content of that address. */
function shows({ status, text }: Seen, address: string, references: readonly string[]): boolean {
  // The history of a tag is empty, not "not found", if there is none.
  if (status >= 400 || text.endsWith('"manifests":[]}')) return false;
  return references.some((each) => text.includes(each) || address.includes(each));
}

/** Ids that complete the text. */
async function completions(server: TestServer, typed: string): Promise<string[]> {
  const { text } = await seen(server, `/v3/autocomplete?q=${typed}`);
  return (JSON.parse(text) as { data: string[] }).data;
}

test('what is held is shown by no route, also if it is stored', async (t) => {
  const setup = await start(t);
  const { server, gate, held } = setup;
  // The list of failed requests repeats what clients asked for.
  const addresses = (await addressesOf(setup)).filter((each) => each !== '/v1/failed-requests');
  const before = new Map<string, Seen>();
  for (const each of addresses) before.set(each, await seen(server, each));
  await flushUsage(server);
  for (const each of addresses) before.set(each, await seen(server, each));
  const revealing = addresses.filter((each) => shows(before.get(each)!, each, held));
  t.true(revealing.length >= 50, 'without verdicts these show it');
  const inManagement = revealing.filter((each) => each.startsWith('/v1/'));
  for (const path of ['packages/Lib', 'packages/Lib/history', `packages/Lib/${hidden}`, 'packages/Lib/versions'])
    t.true(inManagement.includes(`/v1/${path}`), path);
  for (const path of ['tags', 'manifests', 'history', `manifests/${setup.digests.hidden}`])
    t.true(inManagement.includes(`/v1/containers/registry.test/team/app/${path}`), path);
  t.true(inManagement.some((each) => each.startsWith('/v1/containers') && !each.includes('team')));
  t.deepEqual(await completions(server, 'young'), ['Young.Lib']);

  gate.verdicts = new Map(held.map((each) => [each, 'hold']));
  for (const each of addresses) {
    const after = await seen(server, each);
    t.false(shows(after, each, held), `${each}: ${after.text.slice(0, 2000)}`);
    if (/\/(?:young\.lib|Young\.Lib)\//.test(each)) t.is(after.status, 404, each);
  }
  t.deepEqual(await completions(server, 'young'), [], 'it has only versions that are held');
  // What is not held stays.
  t.deepEqual(await completions(server, 'lib'), ['Lib', 'Paged.Lib']);
  const search = JSON.parse((await seen(server, '/v3/search?q=lib')).text) as {
    data: { id: string; version: string }[];
  };
  t.deepEqual(
    search.data.map(({ id, version }) => [id, version]),
    [
      ['Lib', denied],
      ['Paged.Lib', denied],
    ],
  );
  const flat = JSON.parse((await seen(server, '/v3/package/lib/index.json')).text) as { versions: string[] };
  t.deepEqual(flat.versions, [open, denied]);
  const tags = JSON.parse((await seen(server, '/v2/registry.test/team/app/tags/list')).text) as { tags: string[] };
  t.deepEqual(tags.tags, ['alias-tag', 'denied-tag', 'open-tag'], 'the upstream’s list has no digests');
  t.is((await seen(server, '/v2/registry.test/team/app/manifests/alias-tag')).status, 404, 'its digest is held');

  gate.verdicts = undefined;
  for (const each of revealing) t.true(shows(await seen(server, each), each, held), `${each}: shown again at once`);
});

test('what is held is shown by no route, also if its upstream has withdrawn it', async (t) => {
  const setup = await start(t);
  const { server, gate, held, withdraw } = setup;
  const addresses = (await addressesOf(setup)).filter((each) => each !== '/v1/failed-requests');
  for (const each of addresses) await seen(server, each);
  await withdraw();
  const before = new Map<string, Seen>();
  for (let time = 0; time < 2; time += 1) for (const each of addresses) before.set(each, await seen(server, each));
  const revealing = addresses.filter((each) => shows(before.get(each)!, each, held));
  for (const each of [
    ...['lib', 'paged.lib', 'young.lib'].flatMap((id) => [
      `/v3/package/${id}/index.json`,
      `/v3/registration/${id}/index.json`,
      `/v3/registration-gz-semver2/${id}/${hidden}.json`,
      ...filesOf(id, hidden).slice(0, 2),
    ]),
    ...['manifests/hidden-tag', 'manifests/alias-tag', 'tags/list'].map((path) => `/v2/registry.test/team/app/${path}`),
  ])
    t.true(revealing.includes(each), `${each} is put back`);
  gate.verdicts = new Map(held.map((each) => [each, 'hold']));
  for (const each of addresses) {
    const after = await seen(server, each);
    t.false(shows(after, each, held), `${each}: ${after.text.slice(0, 2000)}`);
    if (/\/(?:young\.lib|Young\.Lib)\//.test(each)) t.is(after.status, 404, each);
  }
  gate.verdicts = undefined;
  for (const each of revealing) t.true(shows(await seen(server, each), each, held), `${each}: shown again at once`);
});

test('what is denied stays in lists, and its content is refused with the reason', async (t) => {
  const { server, gate, refused, digests } = await start(t);
  const files = filesOf('lib', denied);
  const manifests = ['denied-tag', digests.denied].map((each) => `/v2/registry.test/team/app/manifests/${each}`);
  for (const isStored of [false, true]) {
    gate.verdicts = new Map(refused.map((each) => [each, { denied: reason }]));
    for (const each of [...files, ...manifests]) {
      const { status, text } = await seen(server, each);
      t.is(status, 403, `${each}, stored: ${isStored}`);
      t.true(text.includes(reason), text);
      const head = await server.fetch(each, { method: 'HEAD' });
      t.is(head.status, 403, `HEAD as GET: ${each}`);
    }
    const refusal = JSON.parse((await seen(server, manifests[0]!)).text) as { errors: { code: string }[] };
    t.is(refusal.errors[0]!.code, 'DENIED');
    const list = await seen(server, '/v3/package/lib/index.json');
    t.true(list.text.includes(denied));
    t.true((await seen(server, '/v2/registry.test/team/app/tags/list')).text.includes('denied-tag'));
    gate.verdicts = undefined;
    for (const each of [files[0]!, ...manifests]) t.is((await seen(server, each)).status, 200, 'allowed again at once');
  }
});

test('an id is completed only while it is known that some of its versions are not held', async (t) => {
  const feed = await UpstreamFeed.start(t);
  for (const id of ['Lib', 'Silent.Lib']) await feed.offer({ id, versions: [{ version: open }, { version: hidden }] });
  feed.upstream.on('/flat/silent.lib/index.json', answer(500));
  let isLimited = true;
  const judge = async () =>
    isLimited ? (reference: string): Verdict => (reference === hidden ? 'hold' : 'allow') : undefined;
  const server = await startTestServer(t, { upstreams: [feed.as('feed.test')] }, { judge });
  const found = () => completions(server, 'lib');
  t.deepEqual(await found(), ['Lib']);
  isLimited = false;
  t.deepEqual(await found(), ['Lib', 'Silent.Lib']);
});

test('held versions do not pass the ownership of an id to another upstream', async (t) => {
  const [first, second] = [await UpstreamFeed.start(t), await UpstreamFeed.start(t)];
  await first.offer({ id: 'Lib', versions: [{ version: hidden }] });
  await second.offer({ id: 'Lib', versions: [{ version: open }] });
  const judge =
    async () =>
    (reference: string): Verdict =>
      reference === hidden ? 'hold' : 'allow';
  const upstreams = [first.as('first.test'), second.as('second.test')];
  const server = await startTestServer(t, { upstreams }, { judge });
  for (const path of [`lib/index.json`, `lib/${open}/lib.${open}.nupkg`, `lib/${hidden}/lib.${hidden}.nupkg`])
    t.is((await seen(server, `/v3/package/${path}`)).status, 404, path);
  t.deepEqual(
    second.asked.filter((path) => path.includes('lib')),
    [],
  );
});

test('a prefetch stores nothing that is held, except a manifest, whose age counts from then on', async (t) => {
  const { server, gate, held, registry, digests } = await start(t);
  gate.verdicts = new Map(held.map((each) => [each, 'hold']));
  const text = `lib@${open}\nlib@${hidden}\nregistry.test/team/app:open-tag\nregistry.test/team/app:hidden-tag\n`;
  const body = new FormData();
  body.set('file', new Blob([text]), 'list.txt');
  const begun = await server.fetch('/v1/prefetch', { method: 'POST', body });
  t.is(begun.status, 201, await begun.clone().text());
  const { id } = (await begun.json()) as { id: string };
  let run: { state: string; missing?: unknown };
  do {
    run = (await (await server.fetch(`/v1/prefetch/${id}`)).json()) as typeof run;
  } while (run.state === 'running');
  gate.verdicts = undefined;
  const stored = (await (await server.fetch('/v1/packages/Lib')).json()) as { versions: { version: string }[] };
  t.deepEqual(
    stored.versions.map(({ version }) => version),
    [open],
  );
  const asked = registry.requests();
  t.true(asked.includes('GET /v2/team/app/manifests/hidden-tag'));
  t.false(asked.includes(`GET /v2/team/app/blobs/${digests.layer}`));
});

/** The open files of stored and staged content below a folder, on Linux. */
async function openContent(folder: string): Promise<string[]> {
  const names = await readdir('/proc/self/fd').catch(() => []);
  const links = await Promise.all(names.map((each) => readlink(`/proc/self/fd/${each}`).catch(() => '')));
  return links.filter((each) => each.startsWith(folder) && !/\.db|\.lock/.test(each));
}

test('a manifest that is held or refused leaves no file open', async (t) => {
  const registry = await startUpstreamRegistry(t);
  let verdict: Verdict = 'hold';
  const judge = async () => () => verdict;
  const server = await startTestServer(t, { upstreams: [registry.settings('registry.test')] }, { judge });
  // Too large for the memory that keeps small content.
  const annotations = { text: 'x'.repeat(3 * 2 ** 20) };
  const config = registry.blob('team/large', '{}');
  registry.manifest('team/large', { schemaVersion: 2, mediaType: ociManifest, config, layers: [], annotations }, '1');
  const before = await openContent(server.data);
  for (const [next, status] of [
    ['hold', 404],
    ['hold', 404],
    [{ denied: reason }, 403],
    ['allow', 200],
    ['hold', 404],
  ] as const) {
    verdict = next;
    const response = await server.fetch('/v2/registry.test/team/large/manifests/1');
    await response.arrayBuffer();
    t.is(response.status, status);
  }
  await until(async () => (await openContent(server.data)).length <= before.length);
  t.deepEqual(await openContent(server.data), before);
});
