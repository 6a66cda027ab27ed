import test, { type ExecutionContext } from 'ava';
import { pngPixel } from '../support/builders/nupkg.ts';
import { testClock } from '../support/clock.ts';
import type { Browser } from '../support/cookie-browser.ts';
import {
  addBundleKeys,
  addBundleRuns,
  addBundles,
  addImportRuns,
  addJobRuns,
  addLongLists,
  addManyBundles,
  addPrefetchRuns,
  addPulls,
  addTokens,
  addUpstreamSamples,
  addUsage,
  addWebhooks,
  hexOf,
  insertRows,
  numberedId,
  runSql,
  upTo,
} from '../support/console-states.ts';
import { TestFeed } from '../support/feed.ts';
import { applyPolicy, failuresOf, flushUsage, tokenOf } from '../support/inside.ts';
import { allowLoopback } from '../support/receiver.ts';
import { personalToken, signedIn, startProvider } from '../support/provider.ts';
import { ociIndex, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';
import { compareShown, later, visitorsWith, type Step } from './shown.ts';

// As shown.test.ts: what pages show while there is nothing yet, and of work and content in every state. Rows are inserted where real
// work would take too long. After an intended change, write the files again, and read what differs:
//   ENTREPOT_TEST_SHOWN=write npm test -- test/console/states.test.ts

const now = Date.UTC(2026, 10, 20, 9, 30);

const scopesOf = {
  reader: ['read'],
  writer: ['read', 'write'],
  operator: ['read', 'operate'],
  admin: ['read', 'write', 'delete', 'promote', 'admin'],
} as const;

async function visitorsOf(server: TestServer): Promise<Record<string, Visitor>> {
  const other = async () => Visitor.signedIn(server, await tokenOf(server, ['read', 'admin', 'promote'], 'other'));
  return { ...(await visitorsWith(server, scopesOf)), other: await other() };
}

test('the pages of a new server without upstreams say what to do first', async (t) => {
  const server = await startTestServer(
    t,
    { server: { baseUrl: 'https://hub.example.com', registryUrl: 'https://images.example.com' }, anonymousRead: 'all' },
    {},
    testClock(now),
  );
  const visitors = await visitorsOf(server);
  await compareShown(t, 'new', visitors, [
    { at: '/console/', whole: true },
    '/console/connect',
    '/console/packages',
    '/console/packages?origin=mirrored',
    '/console/images',
    '/console/images?origin=mirrored',
    '/console/mirror',
    '/console/prefetch',
    '/console/bundles',
    '/console/bundles?show=keys',
    '/console/imports',
    '/console/webhooks',
    '/console/publishers',
    '/console/waivers',
    '/console/promotions',
    '/console/deleted',
    '/console/people',
    '/console/access',
    '/console/risks',
    '/console/storage',
    { at: '/console/storage', send: { act: 'count' } },
    '/console/usage',
    '/console/usage?days=365',
    '/console/failures',
    '/console/explain?kind=package&name=Any',
    { by: 'reader', at: '/console/usage' },
    { by: 'reader', at: '/console/my-tokens' },
    { by: 'nobody', at: '/console/', whole: true },
    { by: 'nobody', at: '/console/packages' },
    { by: 'nobody', at: '/console/connect' },
    { by: 'nobody', at: '/console/sign-in', whole: true },
    { by: 'nobody', at: '/console/sign-in', send: { token: '' } },
    { by: 'nobody', at: '/console/sign-in', send: { token: 'ent_wrong', next: '/console/packages' } },
    // What is open in the navigation.
    { at: '/console/upload', whole: true },
    { at: '/console/packages', whole: true },
    { at: '/console/prefetch/none', whole: true },
    { at: '/console/search', whole: true },
    { at: '/console/none', whole: true },
    { at: '/console/deleted', whole: true },
    { by: 'reader', at: '/console/packages', whole: true },
    { by: 'writer', at: '/console/packages', whole: true },
    { by: 'operator', at: '/console/mirror', whole: true },
    { by: 'operator', at: '/console/audit', whole: true },
    { by: 'admin', at: '/console/access/new', whole: true },
    { at: '/console/tokens/new', send: [['name', 'x']] },
    { by: 'operator', at: '/console/audit' },
    () => new TestFeed(server).publish({ id: 'First', version: '1.0.0' }),
    () => flushUsage(server),
    '/console/packages/First/delete?version=1.0.0',
    { at: '/console/packages/First/delete', send: { version: '1.0.0', confirmed: 'yes' } },
    '/console/packages',
    { by: 'nobody', at: '/console/packages/First' },
  ]);
});

/** The steps of one file, of a server with content. */
type Parts = Readonly<Record<string, (parts: Server) => Step[]>>;

interface Server {
  server: TestServer;
}

const parts: Parts = {
  'states-imports': ({ server }) => [
    () => addImportRuns(server),
    '/console/imports',
    '/console/imports/running',
    '/console/imports/done',
    '/console/imports/conflicts',
    { follow: 'Next page' },
    '/console/imports/stopped',
    '/console/imports/failed',
    '/console/imports/cancelled',
    '/console/imports/interrupted',
    '/console/imports/lost',
    { at: '/console/imports/done', send: { act: 'resume', secret: '' } },
    { at: '/console/imports/running', send: { act: 'delete' } },
    { at: '/console/imports/cancelled', send: { act: 'delete' } },
    {
      at: '/console/imports',
      send: {
        kind: 'registry',
        url: ' ftp://old.example.com ',
        user: ' robot ',
        secret: 'hidden',
        only: 'A.*\n\n B , C',
        rename: ' old/*=team/* \n x ',
        hosted: 'true',
        dry_run: 'true',
      },
    },
    {
      at: '/console/imports',
      send: { kind: 'registry', url: 'https://old.example.com', rename: ' old/*=team/* \n x ' },
    },
  ],
  'states-prefetch': ({ server }) => [
    () => addPrefetchRuns(server),
    '/console/prefetch',
    ...['running', 'busy', 'done', 'missed', 'dry', 'failed', 'cancelled', 'interrupted', 'lost'].map(
      (each) => `/console/prefetch/${each}`,
    ),
    { at: '/console/prefetch/running', send: { act: 'cancel' } },
  ],
  'states-bundles': ({ server }) => [
    () => addBundleKeys(server),
    () => addBundles(server),
    () => addBundleRuns(server),
    '/console/bundles',
    () => addManyBundles(server),
    '/console/bundles',
    { follow: 'Next page' },
    '/console/bundles?sort=oldest',
    '/console/bundles?state=incomplete',
    '/console/bundles?show=made',
    '/console/bundles?show=keys',
    '/console/bundles?show=none',
    ...['fetching', 'writing', 'done', 'failed', 'cancelled', 'interrupted', 'lost'].map(
      (each) => `/console/bundles/made-${each}`,
    ),
    ...[
      'receiving',
      'running',
      'incomplete',
      'far',
      'checked',
      'done',
      'refused',
      'odd',
      'failed',
      'cancelled',
      'interrupted',
      'lost',
      'expired',
    ].map((each) => `/console/bundles/imports/in-${each}`),
    { at: '/console/bundles/made-fetching', send: { act: 'delete' } },
    { at: '/console/bundles/imports/in-running', send: { act: 'delete' } },
    { at: '/console/bundles/imports/in-checked', send: { act: 'delete' } },
    { at: '/console/bundles', send: { act: 'remove', key: hexOf('d') } },
    '/console/bundles?show=keys',
  ],
  'states-mirror': ({ server }) => [
    () => addUpstreamSamples(server, 'registry', 'docker.io'),
    '/console/mirror',
    '/console/mirror/docker.io',
    '/console/mirror/docker.io?period=month',
    '/console/mirror/docker.io?period=year',
    '/console/mirror/old.example',
    '/console/mirror/of-others',
    '/console/mirror/old.example/drop?entry=none',
    '/console/mirror/docker.io?cursor=x',
    '/console/mirror/docker.io?sort=x',
    '/console/mirror/docker.io?name=%01',
    () => addEntries(server),
    '/console/mirror/docker.io?name=library/many&sort=stored',
    { follow: 'Next page' },
    '/console/mirror/old.example',
    `/console/mirror/old.example/drop?entry=${hexOf('a')}`,
    `/console/mirror/docker.io/drop?entry=${entryId(1)}&entry=${entryId(2)}`,
    {
      at: '/console/mirror/docker.io/drop',
      send: [
        ['entry', entryId(1)],
        ['entry', 'none'],
      ],
    },
    () => ask(server, '1.0.0'),
    '/console/packages/Theirs/1.0.0',
    () =>
      applyPolicy(server, {
        minimumAge: { packages: '3d' },
        rules: [{ name: 'no', packages: ['Theirs@3.*'], verdict: 'deny', reason: 'it breaks builds' }],
      }),
    () => ask(server, '2.0.0'),
    () => ask(server, '3.0.0'),
    '/console/explain?kind=package&name=Secret.One',
    '/console/explain?kind=package&name=Own.One',
    '/console/explain?kind=package&name=Old.One',
    '/console/explain?kind=package&name=Mine',
    '/console/explain?kind=package&name=Theirs&reference=1.0.0',
    '/console/explain?kind=package&name=Theirs&reference=2.0.0',
    '/console/explain?kind=package&name=Theirs&reference=3.0.0',
    '/console/packages/Theirs/1.0.0',
    '/console/packages/Theirs/2.0.0',
    '/console/policy',
    '/console/policy?layer=all',
    '/console/policy?layer=all&q=theirs',
    { at: '/console/policy?layer=all', send: { text: 'minimumAge:\n  packages: 40000d\n', act: 'apply' } },
    { at: '/console/policy?layer=all', send: { text: 'minimumAge:\n  packages: 2d\n', act: 'check' } },
    {
      at: '/console/policy?layer=account',
      send: { text: 'mode: audit\nminimumAge:\n  packages: 400d\n', act: 'apply' },
    },
    '/console/policy',
    () => runSql(server, `UPDATE policies SET suspended_until = ${now + 3_600_000} WHERE account_id = 0`),
    '/console/policy?layer=all',
    { by: 'admin', at: '/console/policy' },
    { by: 'operator', at: '/console/policy?layer=all' },
    '/console/explain?kind=package&name=Theirs&reference=2.0.0',
    '/console/packages/Theirs/1.0.0',
    () =>
      applyPolicy(server, {
        rules: [{ name: 'no', packages: ['Theirs'], verdict: 'deny', reason: 'it breaks builds' }],
      }),
    '/console/explain?kind=package&name=Theirs&reference=1.0.0',
    '/console/policy?layer=all',
    {
      at: '/console/policy?layer=all',
      send: { text: 'minimumAge:\n  packages: 40000d\n', act: 'apply', confirmed: 'yes' },
    },
    { at: '/console/policy?layer=all', send: { text: '', act: 'apply' } },
    '/console/failures',
    '/console/failures?sort=count&kind=package',
  ],
  'states-lists': ({ server }) => [
    () => addLongLists(server),
    ...[
      '/console/claims',
      '/console/waivers',
      '/console/promotions',
      '/console/deleted',
      '/console/people?layer=all',
      '/console/access',
      '/console/failures',
    ].flatMap((at): Step[] => [at, { follow: 'Next page' }, { follow: 'First page' }]),
    '/console/waivers?layer=all',
    { follow: 'Next page' },
    '/console/people?layer=all&q=person 0',
    '/console/people',
    '/console/waivers/1',
    { at: '/console/waivers/1', send: { act: 'approve', layer: 'all' } },
    '/console/waivers/1',
    { at: '/console/waivers/2?layer=all', send: { act: 'reject', layer: 'all' } },
    '/console/waivers/2?layer=all',
    { by: 'operator', at: '/console/waivers/3?layer=all' },
    { by: 'admin', at: '/console/waivers/3' },
    { by: 'admin', at: '/console/waivers/3', send: { act: 'reject', layer: 'account' } },
    { by: 'admin', at: '/console/waivers/3' },
    '/console/promotions/1',
    { at: '/console/promotions/1', send: { act: 'reject' } },
    '/console/promotions/1',
    '/console/promotions/2',
    { at: '/console/promotions/2', send: { act: 'approve' } },
    ...upTo(3).map((number) => `/console/people/${String(number).padStart(32, '0')}`),
    `/console/people/${String(1).padStart(32, '0')}?layer=all`,
  ],
  'states-webhooks': ({ server }) => [
    () => addWebhooks(server),
    '/console/webhooks',
    '/console/webhooks?sort=created',
    '/console/webhooks?state=failing',
    '/console/webhooks?q=hook&event=tag.deleted',
    `/console/webhooks/${numberedId(1)}`,
    { follow: 'Next page' },
    `/console/webhooks/${numberedId(2)}`,
    `/console/webhooks/${numberedId(3)}`,
    `/console/webhooks/${numberedId(1)}/delete`,
    ...[101, 102, 103, 104].map((each) => `/console/webhooks/${numberedId(1)}/deliveries/${numberedId(each)}`),
    {
      at: `/console/webhooks/${numberedId(1)}`,
      send: [
        ['act', 'redeliver'],
        ['delivery', numberedId(101)],
        ['delivery', numberedId(102)],
      ],
    },
    { at: `/console/webhooks/${numberedId(1)}/deliveries/${numberedId(102)}`, send: {} },
    { at: `/console/webhooks/${numberedId(1)}`, send: { act: 'since', since: '2026-11-20T09:00' } },
    { at: `/console/webhooks/${numberedId(1)}`, send: { act: 'since', since: '2026-11-20T09:00:30' } },
    `/console/webhooks/${numberedId(1)}`,
    { at: `/console/webhooks/${numberedId(2)}`, send: { act: 'enable' } },
    { at: `/console/webhooks/${numberedId(2)}/delete`, send: {} },
  ],
  'states-tokens': ({ server }) => {
    let grant = '';
    return [
      () => addTokens(server),
      '/console/tokens',
      { follow: 'Next page' },
      '/console/tokens?name=of&sort=used',
      `/console/tokens?id=${numberedId(4)}&id=none`,
      ...upTo(9).map((number) => `/console/tokens/${numberedId(number)}`),
      `/console/tokens/${numberedId(103)}`,
      `/console/tokens/revoke?id=${numberedId(4)}&id=${numberedId(5)}&id=${numberedId(1)}`,
      '/console/sessions',
      { follow: 'Next page' },
      '/console/sessions?q=many 7',
      { at: `/console/sessions/${numberedId(2)}`, send: {} },
      { at: '/console/tokens/find', send: { token: 'ent_1' } },
      { at: '/console/access/new', send: { kind: 'account', id: 'other', verb: 'read', packages: 'Mine' } },
      async () => {
        const { items } = (await (await server.fetch('/v1/grants')).json()) as { items: { id: string }[] };
        grant = `/console/access/${items[0]!.id}`;
      },
      later(() => grant),
      later(() => ({ by: 'other', at: grant })),
      later(() => ({ by: 'other', at: grant, send: { act: 'accept' } })),
      later(() => ({ by: 'other', at: grant })),
      later(() => grant),
      later(() => ({ by: 'other', at: grant, send: { act: 'remove' } })),
      later(() => ({ by: 'other', at: grant })),
    ];
  },
  'states-usage': ({ server }) => [
    () => flushUsage(server),
    () => addUsage(server),
    '/console/usage?period=2026-10',
    { follow: 'Next page' },
    '/console/usage?period=2026-10&group_by=token&days=365',
    { by: 'reader', at: '/console/usage?period=2026-10&group_by=token' },
    '/console/usage?days=365',
    '/console/storage',
    '/console/storage?days=365',
    () =>
      runSql(
        server,
        `UPDATE packages SET updated_at = ${now - 91 * 86_400_000}, last_downloaded_at = NULL WHERE package_key = 'mine'`,
      ),
    '/console/storage',
    { at: '/console/storage', send: { run: 'evict' } },
    '/console/',
  ],
  'states-exposed': ({ server }) => [
    () => addPulls(server),
    '/console/exposed?what=Mine@1.0.0',
    { follow: 'Next page' },
    '/console/exposed?what=Mine@1.0.0&since=2026-11-21',
    '/console/exposed?what=team/app@x',
    { by: 'operator', at: '/console/exposed?what=Mine@1.0.0' },
  ],
  'states-packages': ({ server }) => [
    () => addPackages(server),
    // Pages show what is known of vulnerable versions, which is read in the background.
    () =>
      until(async () => {
        const answer = await server.fetch('/v1/findings?limit=1');
        return ((await answer.json()) as { vulnerable_count: number }).vulnerable_count > 53;
      }),
    '/console/packages/Made.Tool',
    '/console/packages/Made.Tool?show=dependencies',
    '/console/packages/Made.Tool/0.1.0-beta',
    '/console/packages/Made.Templates',
    '/console/packages/Made.Templates?show=none',
    '/console/packages/Made.Library',
    '/console/packages/Made.Library?show=dependencies',
    '/console/packages/Made.Library?show=used',
    { follow: 'Next page' },
    '/console/packages/Made.Library/1.0.0',
    '/console/packages/Made.Library/2.0.0',
    '/console/packages/Made.Many?show=versions',
    { follow: 'Next page' },
    '/console/packages/Made.Many?show=versions&sort=oldest&version=1.0.1',
    { follow: 'Next page' },
    '/console/packages/Made.Many/deprecation',
    { follow: 'Next page' },
    '/console/packages/Made.Many?show=history',
    { by: 'writer', at: '/console/packages/Made.Many?show=versions' },
    { by: 'operator', at: '/console/packages/Theirs?show=versions' },
    '/console/packages',
    { follow: 'Next page' },
    { follow: 'First page' },
    '/console/packages?sort=downloads&origin=hosted',
    { follow: 'Next page' },
    '/console/search?q=made',
    { follow: 'Next page' },
    '/console/risks',
    '/console/risks?q=made',
    { follow: 'Next page' },
    '/console/packages/Made.Library/delete?version=1.0.0',
    '/console/packages/Made.Library/delete?version=1.0.0&version=2.0.0',
    '/console/packages/Made.Many/delete?range=[1.0.0,2.0.0)',
    { at: '/console/packages/Made.Many/listing', send: { change: 'unlist', version: '9.9.9' } },
    {
      at: '/console/packages/Made.Many/listing',
      send: [
        ['change', 'unlist'],
        ['version', '1.0.1'],
        ['version', '9.9.9'],
      ],
    },
    { at: '/console/packages/Made.Tool/delete', send: { version: '1.0.0', confirmed: 'yes' } },
    {
      at: '/console/packages/Made.Templates/delete',
      send: [
        ['version', '1.0.0'],
        ['version', '9.9.9'],
        ['confirmed', 'yes'],
      ],
    },
    '/console/packages/Made.Templates',
    { at: '/console/packages/Theirs/delete', send: { version: '3.0.0', confirmed: 'yes' } },
    { by: 'reader', at: '/console/packages/Made.Library/delete?version=1.0.0' },
    { by: 'reader', at: '/console/upload' },
    '/console/deleted',
    '/console/claims',
    { at: '/console/claims/release', send: { kind: 'package', name: 'Gone.01' } },
  ],
  'states-images': ({ server }) => {
    const known: Record<string, string> = {};
    const page = (name: string) => `/console/images/team%2Fmade/${encodeURIComponent(known[name]!)}`;
    return [
      async () => Object.assign(known, await addImages(server)),
      () => flushUsage(server),
      '/console/images/team%2Fmade',
      '/console/images/team%2Fmade?attached=1',
      '/console/images/team%2Fmade?sort=desc',
      '/console/images/team%2Fmade?sort=asc&tag=v1',
      '/console/images/team%2Fmade?show=untagged',
      '/console/images/team%2Fmade?show=none',
      ...['image', 'odd', 'plain', 'index', 'chart', 'files', 'sbom'].map((name) => later(() => page(name))),
      later(() => `/console/images/team%2Fmade/delete?digest=${known['image']}&digest=none`),
      later(() => `/console/images/team%2Fmade/delete?digest=${known['index']}&tag=v1`),
      later(() => `/console/images/team%2Fmade/delete?digest=${known['sbom']}`),
      {
        at: '/console/images/team%2Fmade/delete',
        send: [
          ['tag', 'odd'],
          ['tag', 'none'],
          ['confirmed', 'yes'],
        ],
      },
      '/console/images/team%2Fmade?show=history',
      { follow: 'Next page' },
      '/console/images/docker.io%2Flibrary%2Fmulti',
      '/console/images/docker.io%2Flibrary%2Fmulti?sort=pulls',
      '/console/images/docker.io%2Flibrary%2Fmulti?cursor=x',
      '/console/images/docker.io%2Flibrary%2Fmulti?sort=x',
      later(() => `/console/images/docker.io%2Flibrary%2Fmulti/${encodeURIComponent(known['multi']!)}`),
      later(() => `/console/images/docker.io%2Flibrary%2Falpine/${encodeURIComponent(known['alpine']!)}`),
      { at: '/console/images/docker.io%2Flibrary%2Fmulti/delete', send: { tag: '1', confirmed: 'yes' } },
      { by: 'operator', at: '/console/images/docker.io%2Flibrary%2Falpine' },
      { by: 'admin', at: '/console/images/docker.io%2Flibrary%2Falpine' },
    ];
  },
  'states-publishers': ({ server }) => {
    const ids: Record<string, string> = {};
    const find = async () => {
      const { items } = (await (await server.fetch('/v1/publishers')).json()) as {
        items: { id: string; issuer: string }[];
      };
      for (const { id, issuer } of items) ids[issuer] = id;
    };
    const kinds = ['github', 'gitlab', 'azure', 'kubernetes'];
    const claims = {
      github: [
        ['claim:repository_id', ' 100 '],
        ['claim:ref', 'refs/tags/*'],
        ['claims', 'environment = a\r\n\r\nenvironment=b = c'],
      ],
      gitlab: [
        ['claim:project_id', '7'],
        ['claim:ref_protected', 'true'],
      ],
      azure: [
        ['claim:org_id', '1'],
        ['claim:prj_id', '2'],
      ],
      kubernetes: [['claim:sub', 'system:serviceaccount:a:b']],
    } as Record<string, [string, string][]>;
    return [
      '/console/publishers/new',
      ...kinds.map((kind) => `/console/publishers/new?issuer=${kind}&claim%3Aref=main&other=x`),
      ...kinds.map((kind) => ({
        at: '/console/publishers/new',
        send: [
          ['name', `of ${kind}`],
          ['issuer', kind],
          ...claims[kind]!,
          ['scope', 'read'],
          ['packages', 'A.* B'],
        ] as [string, string][],
      })),
      find,
      {
        at: '/console/publishers/new',
        send: { name: 'of azure', issuer: 'azure', 'claim:org_id': '1', scope: 'read' },
      },
      '/console/publishers',
      ...kinds.map((kind) => later(() => `/console/publishers/${ids[kind]}`)),
      ...kinds.map((kind) => later(() => `/console/publishers/${ids[kind]}/use`)),
      '/console/publishers?q=GIT',
    ];
  },
  'states-jobs': ({ server }) => [
    () => addJobRuns(server),
    '/console/jobs',
    '/console/jobs/scrub',
    '/console/jobs/gc',
    '/console/jobs/evict',
    '/console/jobs/retention',
    { at: '/console/jobs/gc', send: { act: 'preview' } },
    { at: '/console/jobs/retention', send: { act: 'preview' } },
  ],
};

const needs = (version: string) => [{ targetFramework: 'net8.0', dependencies: [{ id: 'Made.Library', version }] }];

/** A package with each of the facts that a page can show, one without, and one with many versions and dependent packages. */
async function addPackages(server: TestServer): Promise<void> {
  const feed = new TestFeed(server);
  await feed.publish(
    {
      id: 'Made.Tool',
      version: '1.0.0',
      title: 'A tool that was made',
      packageTypes: [{ name: 'DotnetTool' }],
      releaseNotes: 'It is faster.',
      minClientVersion: '5.0',
      developmentDependency: true,
      icon: pngPixel,
      license: { type: 'file', value: 'LICENSE.txt' },
      files: { 'LICENSE.txt': 'Take it.' },
      repository: { type: 'git', url: 'javascript:alert(1)' },
    },
    { id: 'Made.Tool', version: '0.1.0-beta', packageTypes: [{ name: 'DotnetTool' }] },
    { id: 'Made.Templates', version: '1.0.0', packageTypes: [{ name: 'Template' }], readme: '# Templates' },
    {
      id: 'Made.Library',
      version: '1.0.0',
      dependencyGroups: [
        { targetFramework: 'net8.0', dependencies: [] },
        { targetFramework: 'net9.0', dependencies: [{ id: 'Theirs', version: '1.0.0' }, { id: 'Mine' }] },
      ],
    },
    {
      id: 'Made.Library',
      version: '2.0.0',
      dependencies: upTo(301).map((number) => ({ id: `Needed.${number}`, version: '1.0.0' })),
    },
  );
  for (const number of upTo(52)) await feed.publish({ id: 'Made.Many', version: `1.0.${number}` });
  for (const number of upTo(52))
    await feed.publish({
      id: `Made.User.${String(number).padStart(2, '0')}`,
      version: '1.0.0',
      dependencyGroups: needs(number === 1 ? '[1.0.0]' : '1.0.0'),
    });
  const post = (path: string, body: object) =>
    server.fetch(path, { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
  for (const [versions, severity] of [
    ['[1.0.0]', 0],
    ['[2.0.0]', 1],
  ] as const)
    await post('/v1/advisories', {
      package: 'Made.Library',
      versions,
      severity,
      url: `https://a.example.com/${severity}`,
    });
  await post('/v1/advisories', {
    package: 'Made.Many',
    versions: '[1.0.0, 2.0.0)',
    severity: 2,
    url: 'https://a.example.com/2',
  });
  for (const version of ['1.0.0', '0.1.0-beta'])
    await server.fetch(`/v1/packages/Made.Tool/${version}/unlist`, { method: 'POST' });
}

/** Images with each of the facts that a page can show; resolves to their digests. */
async function addImages(server: TestServer): Promise<Record<string, string>> {
  const repository = new TestRepository(server, 'team/made');
  const configType = 'application/vnd.oci.image.config.v1+json';
  const layer = async (bytes: number) => repository.blob('x'.repeat(bytes), 'application/vnd.oci.image.layer.v1.tar');
  const put = async (reference: string, manifest: object, type = ociManifest) => {
    const text = JSON.stringify({ schemaVersion: 2, mediaType: type, ...manifest });
    const answer = await repository.put(reference, text, type);
    if (answer.status !== 201) throw new Error(`${reference}: ${answer.status} ${await answer.text()}`);
    return { mediaType: type, digest: answer.headers.get('docker-content-digest')!, size: text.length };
  };
  const config = (document: object) =>
    repository.blob(JSON.stringify({ os: 'linux', architecture: 'arm64', ...document }), configType);
  const built = {
    author: 'Ada <ada@example.com>',
    created: '2026-10-01T02:03:04.567Z',
    config: {
      Entrypoint: ['/app', '--serve'],
      Cmd: ['--port', '80'],
      Env: ['PATH=/bin'],
      User: 'app',
      WorkingDir: '/srv',
      ExposedPorts: { '80/tcp': {}, '443/tcp': {} },
      Labels: { 'org.example.team': 'made', 'org.example.other': 'x'.repeat(400) },
    },
    history: [
      { created: '2026-10-01T02:03:04Z', created_by: 'COPY . /srv' },
      { created_by: 'ENV A=1', empty_layer: true },
      { comment: 'a comment', created: '2026-10-02T02:03:04Z' },
    ],
  };
  const layers = [await layer(1000), await layer(2000)];
  const image = await put('v1', { config: await config(built), layers, annotations: { 'org.example.of': 'v1' } });
  const odd = await put('odd', { config: await config({ history: [{ created_by: 'RUN one' }] }), layers });
  const plain = await put('plain', { config: await config({ config: { Env: ['A=1', 'B=2'] } }), layers: [] });
  const indexOf = (more: object) => ({
    manifests: [{ ...image, platform: { os: 'linux', architecture: 'arm64' } }],
    ...more,
  });
  const attests = {
    'vnd.docker.reference.type': 'attestation-manifest',
    'vnd.docker.reference.digest': `sha256:${hexOf('9')}`,
  };
  const index = await put(
    'index',
    {
      manifests: [
        { ...odd, annotations: attests },
        { ...image, platform: { os: 'linux', architecture: 'arm64' } },
        plain,
      ],
    },
    ociIndex,
  );
  for (const number of upTo(45))
    await put(`index-${number}`, indexOf({ annotations: { number: String(number) } }), ociIndex);
  const empty = await repository.blob('{}', 'application/vnd.oci.empty.v1+json');
  const attach = (artifactType: string, annotations: object = {}) =>
    put('attached', { artifactType, config: empty, layers: [], subject: image, annotations });
  for (const type of [
    'application/vnd.dev.cosign.artifact.sig.v1+json',
    'application/vnd.cncf.notary.signature',
    'application/vnd.cyclonedx+json',
    'application/vnd.in-toto+json',
    'application/x.unknown',
  ])
    await attach(type);
  const sbom = await attach('application/spdx+json', { made: 'by hand', kind: 'SBOM' });
  await repository.fetch('manifests/attached', { method: 'DELETE' });
  const chart = await put('chart-1', {
    config: await repository.blob('{}', 'application/vnd.cncf.helm.config.v1+json'),
    layers: [],
  });
  const files = await put('files', { artifactType: 'application/x.files', config: empty, layers: [] });
  await put(`${image.digest.replace(':', '-')}.sig`, { config: empty, layers: [], annotations: { of: 'v1' } });
  const tool = await put('loose', { config: await config({ loose: true }), layers: [] });
  await repository.fetch('manifests/loose', { method: 'DELETE' });
  const pulled = async (name: string, reference: string) => {
    const answer = await server.fetch(`/v2/docker.io/library/${name}/manifests/${reference}`);
    await answer.arrayBuffer();
    return answer.headers.get('docker-content-digest')!;
  };
  const [multi, alpine] = [await pulled('multi', '1'), await pulled('alpine', '3')];
  return {
    image: image.digest,
    odd: odd.digest,
    plain: plain.digest,
    index: index.digest,
    chart: chart.digest,
    files: files.digest,
    sbom: sbom.digest,
    loose: tool.digest,
    multi,
    alpine,
  };
}

/** Asks for a version of a package of an upstream, as a client does. */
async function ask(server: TestServer, version: string): Promise<void> {
  // Lists are in the order of time.
  server.clock.now! += 1000;
  await (await server.fetch('/v3/package/theirs/index.json')).arrayBuffer();
  server.clock.now! += 1000;
  await (await server.fetch(`/v3/package/theirs/${version}/theirs.${version}.nupkg`)).arrayBuffer();
  await failuresOf(server).flush();
  await flushUsage(server);
}

function entryId(number: number): string {
  return String(number).padStart(64, '0');
}

/** Entries of the mirror that were not used for long, with long references and without. */
async function addEntries(server: TestServer): Promise<void> {
  const entry = {
    upstream: 'docker.io',
    kind: 'manifest',
    name: 'library/many',
    size_bytes: 1000,
    content_type: ociManifest,
    etag: null,
    last_modified: null,
    attributes: '{}',
    stored_at: now - 100 * 86_400_000,
    validated_at: now - 100 * 86_400_000,
    used_at: now - 91 * 86_400_000,
  };
  await insertRows(
    server,
    'mirror_entries',
    upTo(60).map((number) => ({
      ...entry,
      id: entryId(number),
      reference: { 1: 'a-tag-that-is-much-longer-than-the-table-shows-it', 2: 'a'.repeat(40) }[number] ?? `v${number}`,
      digest: `sha256:${entryId(number)}`,
    })),
  );
  await insertRows(server, 'mirror_entries', [
    {
      ...entry,
      id: hexOf('a'),
      upstream: 'old.example',
      kind: 'service-index',
      name: '',
      reference: '',
      digest: `sha256:${hexOf('a')}`,
    },
  ]);
}

const issuer = (name: string) => ({
  name,
  kind: name,
  issuer: `https://${name}.example.com`,
  audience: 'https://hub.example.com',
});

async function startWithStates(t: ExecutionContext): Promise<Server> {
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const broken = await startFaultyUpstream(t);
  broken.unplug();
  registry.image('library/alpine', '3');
  const child = {
    mediaType: ociManifest,
    digest: `sha256:${hexOf('1')}`,
    size: 500,
    platform: { os: 'linux', architecture: 'amd64' },
  };
  registry.manifest(
    'library/multi',
    {
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [child, { ...child, digest: `sha256:${hexOf('2')}`, platform: undefined }],
    },
    '1',
  );
  const versions = ['1.0.0', '2.0.0', '3.0.0'].map((version) => ({ version, published: '2026-11-19T00:00:00Z' }));
  await feed.offer({ id: 'Theirs', versions });
  const nowhere = { url: 'http://127.0.0.1:9/index.json', allowPrivateNetwork: true };
  const server = await startTestServer(
    t,
    {
      upstreams: [
        feed.as('nuget.org', { exclude: ['Secret.*'] }),
        { name: 'old.example', kind: 'nuget', mode: 'offline', include: ['Old.*'], ...nowhere },
        { name: 'of-others', kind: 'nuget', accounts: ['other'], ...nowhere },
        registry.settings('docker.io', { default: true }),
        { name: 'down.example', kind: 'registry', url: broken.url.href, allowPrivateNetwork: true },
      ],
      reserved: { packages: ['Own.*'] },
      limits: { accountStorage: '1GB', accountEgress: '2GB', blob: '3GB' },
      mirror: { maxSize: '100kB' },
      deletedFor: '12h',
      retention: { packages: { keepVersions: 1 } },
      trustedIssuers: ['github', 'gitlab', 'azure', 'kubernetes'].map(issuer),
      publishers: [{ name: 'of the settings', issuer: 'github', claims: { repository_id: '1' }, scopes: ['read'] }],
      ...allowLoopback,
    },
    {},
    testClock(now),
  );
  await new TestFeed(server).publish({ id: 'Mine', version: '1.0.0' }, { id: 'Mine', version: '2.0.0' });
  return { server };
}

test('the pages show work, lists and content in every state as the files in the folder shown say', async (t) => {
  t.timeout(240_000);
  const data = await startWithStates(t);
  const visitors = await visitorsOf(data.server);
  for (const [part, steps] of Object.entries(parts)) await compareShown(t, part, visitors, steps(data));
});

test('the pages of people who sign in with a provider show their accounts and their own tokens', async (t) => {
  const rules = [
    { claim: 'sub', value: 'ann', account: 'default', scopes: ['read', 'write'] },
    { claim: 'sub', value: 'ann', account: 'other', scopes: ['read'] },
    { claim: 'sub', value: 'bob', account: 'default', scopes: ['read'] },
  ];
  const people = { ann: { name: 'Ann' }, bob: { name: 'Bob' } };
  const { server, who } = await startProvider(t, people, rules);
  // With this fraction of a second, times are masked: the provider has the real one.
  server.clock.now = Math.floor(Date.now() / 1000) * 1000 + 1;
  const visitors = await visitorsOf(server);
  const browsers = new Map<string, Browser>();
  for (const id of ['ann', 'bob']) {
    who.id = id;
    const browser = await signedIn(server);
    browsers.set(id, browser);
    const visitor = new Visitor(server);
    visitor.cookie = [...browser.cookies(server.url)].map(([name, value]) => `${name}=${value}`).join('; ');
    visitors[id] = visitor;
  }
  const ids: string[] = [];
  await compareShown(t, 'people', visitors, [
    { by: 'ann', at: '/console/', whole: true },
    { by: 'bob', at: '/console/', whole: true },
    { by: 'ann', at: '/console/connect' },
    { by: 'bob', at: '/console/connect' },
    { by: 'ann', at: '/console/my-tokens', whole: true },
    { by: 'ann', at: '/console/connect', send: { name: '', scopes: 'read' } },
    { by: 'ann', at: '/console/connect', send: { name: 'a laptop', scopes: 'read write' } },
    async () => {
      for (const name of ['first', 'second']) {
        await personalToken(browsers.get('ann')!, server, ['read']);
        ids.push(name);
      }
      const { items } = (await (await server.fetch('/v1/tokens')).json()) as { items: { id: string; name: string }[] };
      ids.splice(0, ids.length, ...items.filter(({ name }) => name === 'mine').map(({ id }) => id));
    },
    { by: 'ann', at: '/console/my-tokens' },
    later(() => ({ by: 'ann', at: `/console/my-tokens/${ids[0]}` })),
    { by: 'bob', at: '/console/my-tokens/none' },
    later(() => ({ by: 'ann', at: `/console/my-tokens/${ids[0]}`, send: {} })),
    { by: 'ann', at: '/console/my-tokens' },
    '/console/tokens',
    later(() => ({ at: `/console/tokens/${ids[1]}` })),
    '/console/sessions',
    '/console/people',
    '/console/people?layer=all',
    { by: 'ann', at: '/console/account', send: { account: 'other' } },
    { by: 'ann', at: '/console/', whole: true },
    { by: 'ann', at: '/console/sign-in' },
    { by: 'bob', at: '/console/sign-out', send: {} },
    { by: 'bob', at: '/console/sign-in', whole: true },
    { by: 'nobody', at: '/console/sign-in', send: { token: 'x', next: '/console/jobs' } },
    { by: 'nobody', at: '/console/sign-in?next=/console/jobs' },
  ]);
});
