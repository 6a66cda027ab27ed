import { createHash } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../support/feed.ts';
import { flushUsage } from '../support/inside.ts';
import { makeNupkg, pngPixel } from '../support/builders/nupkg.ts';
import { OpenDocument } from '../support/open-document.ts';
import type { TestServer } from '../support/server.ts';
import { eventually } from '../support/until.ts';
import { json, startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

// Mirrored and hosted packages in the management API.

interface Setup {
  up: UpstreamFeed;
  server: TestServer;
  feed: TestFeed;
}

async function download(feed: TestFeed, id: string, version: string): Promise<void> {
  const key = id.toLowerCase();
  const response = await feed.fetch(`/package/${key}/${version}/${key}.${version}.nupkg`);
  if (response.status !== 200) throw new Error(`${id} ${version}: ${response.status}`);
  await response.arrayBuffer();
}

async function listed(server: TestServer, limit = 50): Promise<[id: string, origin: string][]> {
  const found: [string, string][] = [];
  for (let path: string | undefined = `/v1/packages?limit=${limit}`; path !== undefined;) {
    const page: any = await (await server.fetch(path)).json();
    found.push(...page.items.map(({ id, origin }: any) => [id, origin]));
    path = page.next_cursor === null ? undefined : `/v1/packages?limit=${limit}&cursor=${page.next_cursor}`;
  }
  return found;
}

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, setup: Setup) => Promise<void>, settings: object = {}) =>
    test(`${dialect}: ${title}`, async (t) => {
      const up = await UpstreamFeed.start(t);
      const database = { url: await temporaryDatabase(t, dialect) };
      const server = await startMirrorOf(t, [up.as('up.test')], { database, ...settings });
      await run(t, { up, server, feed: new TestFeed(server) });
    });

  suite('a mirrored package shows its stored versions and its upstream', async (t, setup) => {
    const { up, server, feed } = setup;
    const document = await OpenDocument.of(server);
    const tool = { id: 'Public.Tool', packageTypes: [{ name: 'DotnetTool' }] };
    const [old, beta] = [
      await makeNupkg({ ...tool, version: '1.9.0' }),
      await makeNupkg({ ...tool, version: '2.0.0-Beta' }),
    ];
    await up.offer({
      id: 'Public.Tool',
      versions: [{ version: '1.9.0', nupkg: old }, { version: '1.10.0' }, { version: '2.0.0-beta', nupkg: beta }],
    });
    const dated = { 'last-modified': 'Tue, 02 Jan 2024 03:04:05 GMT' };
    up.upstream.on('/flat/public.tool/1.9.0/public.tool.1.9.0.nupkg', answer(200, dated, old));
    const before = Date.now();
    await download(feed, 'Public.Tool', '1.9.0');
    await download(feed, 'Public.Tool', '2.0.0-beta');
    // The downloads would else be counted between two answers.
    await flushUsage(server);
    const list = await document.read('GET /packages', await server.fetch('/v1/packages'));
    const [summary] = list['items'] as any[];
    t.like(summary, {
      id: 'Public.Tool',
      package_type: 'DotnetTool',
      origin: 'mirrored',
      upstream: 'up.test',
      latest_version: '1.9.0',
      version_count: 2,
      size_bytes: old.length + beta.length,
    });
    t.true(Date.parse(summary.created_at) >= before && summary.created_at <= summary.updated_at);
    const details: any = await document.read('GET /packages/{id}', await server.fetch('/v1/packages/public.TOOL'));
    const { versions, ...rest } = details;
    t.deepEqual(rest, summary);
    t.deepEqual(
      versions.map(({ version, size_bytes, sha512 }: any) => [version, size_bytes, sha512]),
      [
        ['2.0.0-Beta', beta.length, createHash('sha512').update(beta).digest('base64')],
        ['1.9.0', old.length, createHash('sha512').update(old).digest('base64')],
      ],
    );
    t.is(versions[1].published_at, '2024-01-02T03:04:05.000Z');
    t.true(versions.every(({ cached_at }: any) => Date.parse(cached_at) >= before));
    t.is((await server.fetch('/v1/packages/Public.Other')).status, 404);
  });

  suite(
    'a mirrored version has the date that its upstream says, and is unlisted if the upstream unlists it',
    async (t, setup) => {
      const { up, server, feed } = setup;
      const document = await OpenDocument.of(server);
      const offered = [
        { version: '1.0.0', published: '2021-03-04T05:06:07Z' },
        { version: '1.1.0', published: '1900-01-01T00:00:00Z', changed: '2022-02-03T04:05:06Z' },
        { version: '1.2.0-Beta', published: '2023-01-02T03:04:05Z', entry: { listed: false } },
        { version: '1.3.0', published: '2024-01-02T03:04:05Z' },
      ];
      const copied = { 'last-modified': 'Tue, 02 Jan 2025 03:04:05 GMT' };
      for (const [id, pageSize, hive = 'registration-gz-semver2'] of [
        ['Dated'],
        ['Paged', 3],
        // Dates come from the registrations with all versions.
        ['Plain', 3, 'registration'],
      ] as const) {
        await up.offer({ id, versions: offered, ...(pageSize !== undefined && { pageSize }) });
        const key = id.toLowerCase();
        const index = await feed.json(`/${hive}/${key}/index.json`);
        for (const page of index.items) await feed.json(page['@id']);
        await feed.json(`/package/${key}/index.json`);
        for (const { version } of offered) {
          const lower = version.toLowerCase();
          const nupkg = await makeNupkg({ id, version });
          up.upstream.on(`/flat/${key}/${lower}/${key}.${lower}.nupkg`, answer(200, copied, nupkg));
          await download(feed, id, lower);
        }
        const known = [
          ['1.3.0', '2024-01-02T03:04:05.000Z', true],
          ['1.2.0-Beta', '2023-01-02T03:04:05.000Z', false],
          ['1.1.0', '2022-02-03T04:05:06.000Z', false],
          ['1.0.0', '2021-03-04T05:06:07.000Z', true],
        ] as const;
        const expected = known.map(([version, date, isListed]) => [
          version,
          hive === 'registration' ? '2025-01-02T03:04:05.000Z' : date,
          isListed,
        ]);
        const shown = async (name: string, path: string) => {
          const answered: any = await document.read(name, await server.fetch(path));
          return (answered.versions ?? answered.items).map((one: any) => [one.version, one.published_at, one.listed]);
        };
        t.deepEqual(await shown('GET /packages/{id}', `/v1/packages/${id}`), expected, id);
        t.deepEqual(await shown('GET /packages/{id}/versions', `/v1/packages/${id}/versions`), expected, id);
        for (const [version, published, isListed] of expected) {
          const details = await (await server.fetch(`/v1/packages/${id}/${String(version)}`)).json();
          t.like(details, { published_at: published, listed: isListed });
        }
      }
    },
  );

  suite('pages of hosted and mirrored packages have each ID once', async (t, { up, server, feed }) => {
    for (const id of ['A.Up', 'C.Up', 'E.Up', 'Taken', 'Gone']) {
      await up.offer({ id, versions: [{ version: '1.0.0' }] });
      await download(feed, id, '1.0.0');
    }
    await feed.publish(
      { id: 'B.Here', version: '1.0.0' },
      { id: 'D.Here', version: '1.0.0' },
      { id: 'Taken', version: '2.0.0' },
      { id: 'Gone', version: '2.0.0' },
    );
    t.is((await server.fetch('/v1/packages/Gone/2.0.0', { method: 'DELETE' })).status, 204);
    const all: [string, string][] = [
      ['A.Up', 'mirrored'],
      ['B.Here', 'hosted'],
      ['C.Up', 'mirrored'],
      ['D.Here', 'hosted'],
      ['E.Up', 'mirrored'],
      ['Taken', 'hosted'],
    ];
    for (const limit of [1, 2, 5, 50]) t.deepEqual(await listed(server, limit), all);
    t.is((await server.fetch('/v1/packages/Gone')).status, 404);
    t.like(await (await server.fetch('/v1/packages/Taken')).json(), { origin: 'hosted', version_count: 1 });
  });

  suite('a deleted mirrored version is fetched again', async (t, { up, server, feed }) => {
    await up.offer({ id: 'A', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
    for (const version of ['1.0.0', '2.0.0']) await download(feed, 'A', version);
    const remove = async (version: string) =>
      (await server.fetch(`/v1/packages/a/${version}`, { method: 'DELETE' })).status;
    t.is(await remove('1.0'), 204);
    t.is(await remove('1.0.0'), 404);
    t.is(await remove('7.0.0'), 404);
    t.is(await remove('no-version'), 404);
    t.like(await (await server.fetch('/v1/packages/A')).json(), { version_count: 1, latest_version: '2.0.0' });
    // The details of the package also ask for its vulnerabilities, at any time.
    const asked = () => up.asked.filter((path) => path.startsWith('/flat/'));
    const before = asked().length;
    await download(feed, 'A', '2.0.0');
    t.deepEqual(asked().slice(before), []);
    await download(feed, 'A', '1.0.0');
    t.deepEqual(asked().slice(before), ['/flat/a/1.0.0/a.1.0.0.nupkg']);
    t.like(await (await server.fetch('/v1/packages/A')).json(), { version_count: 2 });
    for (const version of ['1.0.0', '2.0.0']) t.is(await remove(version), 204);
    t.is((await server.fetch('/v1/packages/A')).status, 404);
    t.deepEqual(await listed(server), []);
  });

  suite(
    'for a merged ID the hosted version is deleted first, and for a hosted ID no mirrored version is',
    async (t, { up, server, feed }) => {
      for (const id of ['Merged', 'Plain']) {
        await up.offer({ id, versions: [{ version: '1.0.0' }] });
        await download(feed, id, '1.0.0');
        await feed.publish({ id, version: '1.0.0' });
      }
      const remove = async (id: string) =>
        (await server.fetch(`/v1/packages/${id}/1.0.0`, { method: 'DELETE' })).status;
      t.deepEqual([await remove('Merged'), await remove('Merged'), await remove('Merged')], [204, 204, 404]);
      t.deepEqual([await remove('Plain'), await remove('Plain')], [204, 404]);
    },
    { merge: { packages: ['Merged'] } },
  );
}

test('for an ID of two upstreams the first upstream is shown, and reserved IDs are hidden', async (t) => {
  const [first, second] = [await UpstreamFeed.start(t), await UpstreamFeed.start(t)];
  for (const id of ['Both', 'Secret.Plans']) await second.offer({ id, versions: [{ version: '1.0.0' }] });
  const upstreams = [first.as('first.test', { freshFor: '1s', negativeFor: '1s' }), second.as('second.test')];
  const server = await startMirrorOf(t, upstreams);
  server.clock.now = Date.now();
  const feed = new TestFeed(server);
  for (const id of ['Both', 'Secret.Plans']) await download(feed, id, '1.0.0');
  await first.offer({ id: 'Both', versions: [{ version: '2.0.0' }] });
  server.clock.now += 5000;
  await download(feed, 'Both', '2.0.0');
  t.like(await (await server.fetch('/v1/packages/Both')).json(), { upstream: 'first.test', latest_version: '2.0.0' });
  await server.close();
  const later = await startMirrorOf(t, upstreams, { data: server.data, reserved: { packages: ['secret.*'] } });
  t.deepEqual(await listed(later), [['Both', 'mirrored']]);
  t.is((await later.fetch('/v1/packages/Secret.Plans')).status, 404);
  t.is((await later.fetch('/v1/packages/Secret.Plans/1.0.0', { method: 'DELETE' })).status, 404);
});

test('the details of a mirrored version have what its upstream says of it, if that is known', async (t) => {
  const up = await UpstreamFeed.start(t);
  const deprecation = { reasons: ['Legacy'], message: 'Old', alternatePackage: { id: 'New', range: '*' } };
  const vulnerabilities = ['0', '2', '7'].map((severity, number) => ({
    advisoryUrl: `https://a.test/${number}`,
    severity,
  }));
  const nupkg = await makeNupkg({ id: 'Advised', version: '1.0.0', readme: '# Hello', icon: pngPixel });
  const entry = { deprecation, vulnerabilities, listed: false };
  await up.offer({ id: 'Advised', versions: [{ version: '1.0.0', nupkg, entry }] });
  await up.offer({ id: 'Plain', versions: [{ version: '1.0.0', entry: { deprecation: { reasons: ['Other'] } } }] });
  await up.offer({ id: 'Silent', versions: [{ version: '1.0.0' }] });
  const page = { '@name': 'base', '@id': `${up.url}/base.json`, '@updated': '2026-01-01T00:00:00Z' };
  const warnings = ['0', '3'].map((number) => ({
    severity: 3,
    url: `https://a.test/${number}`,
    versions: '(, 9.0.0)',
  }));
  up.upstream.on('/vulnerabilities/index.json', json([page]));
  up.upstream.on('/base.json', json({ Advised: warnings }));
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const feed = new TestFeed(server);
  for (const id of ['Advised', 'Plain', 'Silent']) await download(feed, id, '1.0.0');
  up.upstream.on('/registration/silent/index.json', answer(500));
  const details = async (id: string) => {
    const answered: any = await (await server.fetch(`/v1/packages/${id}/1.0.0`)).json();
    const { listed: isListed, deprecation: told, vulnerabilities: known, is_advice_known: isKnown } = answered;
    return [isListed, told, known, isKnown];
  };
  // An answer waits 1.5 s for what the upstream says, and the next one has it.
  const known = (id: string) =>
    eventually(
      () => details(id),
      ([, , advisories, isKnown]) => isKnown && (id !== 'advised' || advisories.length === 4),
    );
  t.deepEqual(await known('advised'), [
    false,
    { reasons: ['Legacy'], message: 'Old', alternate_package: { id: 'New', range: '*' } },
    [
      { advisory_url: 'https://a.test/0', severity: 'low' },
      { advisory_url: 'https://a.test/1', severity: 'high' },
      { advisory_url: 'https://a.test/2', severity: '7' },
      { advisory_url: 'https://a.test/3', severity: 'critical' },
    ],
    true,
  ]);
  const plain = { reasons: ['Other'], message: null, alternate_package: null };
  t.deepEqual(await known('plain'), [true, plain, [], true]);
  t.deepEqual(await details('silent'), [true, null, [], false]);
  const shown = await (await server.fetch('/v1/packages/advised/1.0.0')).json();
  t.like(shown, { id: 'Advised', origin: 'mirrored', upstream: 'up.test', readme: '# Hello', has_icon: true });
  t.is((await server.fetch('/v1/packages/advised/2.0.0')).status, 404);
  t.is((await server.fetch('/v1/packages/advised/x')).status, 404);
});
