import test from 'ava';
import { Addresses, hives, type Hive } from '../../../src/nuget/feed/addresses.ts';
import { addReading } from '../../../src/nuget/feed/read-routes.ts';
import { registrationIndex, registrationLeaf, registrationPage } from '../../../src/nuget/feed/registration.ts';
import { serviceIndex } from '../../../src/nuget/feed/service-index.ts';
import type { RegisteredVersion } from '../../../src/nuget/format/pages.ts';
import { NameSet } from '../../../src/accounts/names.ts';
import { createAdvisory } from '../../../src/nuget/hosted/advisories.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { feedRoutes, routeJson, type RouteAnswer } from '../../support/feed-routes.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

const addresses = new Addresses('https://here.test');
const noNames = { names: undefined, kind: 'token' };

type Test = Parameters<typeof feedRoutes>[0];

/** Routes with a source whose answers are those of `source`; `asked` has what it was asked. */
async function reading(t: Test, source: Record<string, unknown>, call: object = {}, parts: object = {}) {
  const asked: unknown[][] = [];
  const recording = Object.fromEntries(
    Object.entries(source).map(([name, answer]) => [
      name,
      (...given: unknown[]) => {
        asked.push([name, ...given]);
        return typeof answer === 'function' ? answer(...given) : answer;
      },
    ]),
  );
  const all = { isMerged: () => false, ...recording };
  const routes = await feedRoutes(
    t,
    (router, answering) => addReading(router, answering, { source: all, ...parts } as never),
    { source: all, principal: noNames, ...call } as never,
  );
  return { ...routes, asked };
}

const changing = 'private, no-cache';
const immutable = 'private, max-age=31536000, immutable';
const headersOf = ({ headers }: RouteAnswer, ...names: string[]) => names.map((name) => headers.get(name));
const shown = ['content-type', 'content-encoding', 'cache-control', 'cache-status', 'etag'] as const;

test('the service index is the same for each request, and has a validator in the past', async (t) => {
  for (const isPast of [false, true]) {
    const { ask } = await reading(t, {}, { isPast });
    const answer = await ask('/index.json');
    t.deepEqual(answer.needs, ['read', 'version-check']);
    t.deepEqual(routeJson(answer), serviceIndex(addresses, isPast));
    t.deepEqual(headersOf(answer, ...shown), [
      'application/json',
      null,
      changing,
      'entrepot; hit; detail=hosted',
      isPast ? `"${digestOf(answer.body)}"` : null,
    ]);
  }
});

test('the versions of a package are told, and a document of a hosted package is made once for each revision', async (t) => {
  let revision: string | undefined = '7/1';
  let isMerged = false;
  let served = 'hosted';
  const { ask, asked } = await reading(t, {
    revisionOf: () => revision,
    isMerged: () => isMerged,
    versionKeys: () => ({ served, value: ['1.0.0', '2.0.0'] }),
  });
  const made = () => asked.splice(0).filter(([name]) => name === 'versionKeys');
  const first = await ask('/package/LIB/index.json');
  t.deepEqual(first.needs, ['read', 'version-check']);
  t.deepEqual(routeJson(first), { versions: ['1.0.0', '2.0.0'] });
  t.deepEqual(headersOf(first, ...shown), ['application/json', null, changing, 'entrepot; hit; detail=hosted', null]);
  t.deepEqual(asked.splice(0), [
    ['revisionOf', 1, 'lib'],
    ['isMerged', 'lib'],
    ['versionKeys', 1, 'lib', true],
  ]);
  const again = await ask('/package/lib/index.json');
  t.deepEqual([again.body, ...headersOf(again, ...shown)], [first.body, ...headersOf(first, ...shown)]);
  t.deepEqual(made(), []);
  revision = '7/2';
  await ask('/package/lib/index.json');
  t.is(made().length, 1);
  isMerged = true;
  for (const _ of [1, 2]) await ask('/package/lib/index.json');
  t.is(made().length, 2);
  isMerged = false;
  revision = '7/3';
  served = 'stale';
  for (const _ of [1, 2])
    t.is((await ask('/package/lib/index.json')).headers.get('cache-status'), 'entrepot; hit; detail=stale');
  t.is(made().length, 2);
  revision = undefined;
  for (const _ of [1, 2]) await ask('/package/lib/index.json');
  t.deepEqual(made(), [
    ['versionKeys', 1, 'lib', false],
    ['versionKeys', 1, 'lib', false],
  ]);
});

test('documents of the past are made again for each request, with a validator', async (t) => {
  const { ask, asked } = await reading(
    t,
    { revisionOf: '7/1', versionKeys: { served: 'hosted', value: ['1.0.0'] } },
    { isPast: true },
  );
  for (const _ of [1, 2]) {
    const answer = await ask('/package/lib/index.json');
    t.is(answer.headers.get('etag'), `"${digestOf(answer.body)}"`);
    t.is(answer.headers.get('cache-control'), changing);
  }
  t.is(asked.filter(([name]) => name === 'versionKeys').length, 2);
});

test('a package that does not exist is not found, and no source is asked for what is no id', async (t) => {
  const { ask, asked } = await reading(t, {
    revisionOf: undefined,
    versionKeys: undefined,
    pages: undefined,
    versions: undefined,
    openFile: undefined,
  });
  const missing = { name: 'NotFound', message: 'The package Lib does not exist in this feed.' };
  for (const path of [
    '/package/Lib/index.json',
    '/registration/Lib/index.json',
    '/registration/Lib/page/1.0.0/2.0.0.json',
  ])
    t.deepEqual(routeJson(await ask(path)), missing, path);
  const noFile = { name: 'NotFound', message: 'Lib 1.0 has no such file in this feed.' };
  for (const path of ['/package/Lib/1.0/readme', '/registration/Lib/1.0.json'])
    t.deepEqual(routeJson(await ask(path)), noFile, path);
  asked.length = 0;
  const long = 'a'.repeat(101);
  for (const path of [
    `/package/${long}/index.json`,
    `/registration/${long}/index.json`,
    `/registration/${long}/page/1/2.json`,
  ])
    t.is(routeJson(await ask(path)).message, `The package ${long.slice(1)} does not exist in this feed.`);
  for (const path of [`/package/${long}/1.0/readme`, `/registration/${long}/1.0.json`])
    t.is(routeJson(await ask(path)).message, `The package ${long.slice(1)} does not exist in this feed.`);
  t.deepEqual(asked, []);
  for (const path of [
    '/registration/lib/page/x/2.0.0.json',
    '/registration/lib/page/1.0.0/x.json',
    '/registration/lib/x.json',
  ])
    t.is(routeJson(await ask(path)).name, 'NotFound', path);
  t.deepEqual(asked, []);
});

test('the files of a version have their names in any spelling, and nothing else is a file', async (t) => {
  const bytes = Buffer.from('some bytes');
  const digest = digestOf(bytes);
  for (const isPast of [false, true]) {
    const { ask, asked } = await reading(
      t,
      { openFile: () => ({ served: 'hit', content: contentOf(bytes), digest, type: 'x/y' }) },
      { isPast },
    );
    for (const [file, kind] of [
      ['lib.1.0.nupkg', 'nupkg'],
      ['LIB.1.0.0.NUPKG', 'nupkg'],
      ['lib.1.00.0.0.nupkg', 'nupkg'],
      ['lib.nuspec', 'nuspec'],
      ['Lib.NuSpec', 'nuspec'],
      ['readme', 'readme'],
      ['README', 'readme'],
      ['icon', 'icon'],
    ] as const) {
      const answer = await ask(`/package/Lib/1.0/${file}`);
      t.deepEqual(answer.needs, ['read']);
      t.deepEqual(asked.splice(0), [['openFile', 1, 'lib', '1.0', kind]]);
      t.deepEqual(answer.body, bytes);
      t.deepEqual(headersOf(answer, ...shown, 'accept-ranges'), [
        'x/y',
        null,
        isPast ? changing : immutable,
        'entrepot; hit',
        `"${digest}"`,
        'bytes',
      ]);
      const isPackage = kind === 'nupkg';
      t.deepEqual(
        [answer.context.act, answer.context.version],
        isPackage ? ['download', '1.0.0'] : [undefined, undefined],
      );
    }
    const head = await ask('/package/lib/1.0.0/lib.1.0.0.nupkg', { method: 'HEAD' });
    t.deepEqual([head.status, head.context.act, head.context.version], [200, undefined, undefined]);
    asked.length = 0;
    for (const file of [
      'lib.nupkg',
      'lib.1.0.1.nupkg',
      'lib1.0.0.nupkg',
      'other.1.0.nupkg',
      'lib.1.0.0.zip',
      'lib.1.0.0.nupkgs',
      'lib.x.nupkg',
      'other.nuspec',
      'lib.nuspecs',
      'readme.md',
      'icons',
    ])
      t.is(
        routeJson(await ask(`/package/lib/1.0.0/${file}`)).message,
        'lib 1.0.0 has no such file in this feed.',
        file,
      );
    t.deepEqual(asked, []);
  }
});

test('large packages are led to the storage, and other files are not', async (t) => {
  const bytes = Buffer.alloc(2 ** 20);
  const content = () => ({
    ...contentOf(bytes),
    size: bytes.length,
    location: () => Promise.resolve('https://storage.test/'),
  });
  const { ask } = await reading(t, {
    openFile: () => ({ served: 'hit', content: content(), digest: undefined, type: 'x/y' }),
  });
  const nupkg = await ask('/package/lib/1.0.0/lib.1.0.0.nupkg', { redirect: 'manual' });
  t.deepEqual([nupkg.status, nupkg.headers.get('location')], [307, 'https://storage.test/']);
  const readme = await ask('/package/lib/1.0.0/readme', { redirect: 'manual' });
  t.deepEqual([readme.status, readme.body.length, readme.headers.get('etag')], [200, bytes.length, null]);
});

const version = (name: string): RegisteredVersion => ({
  version: name,
  fullVersion: name,
  listed: true,
  hasIcon: false,
  hasReadme: false,
  bytes: 1,
  metadata: { id: 'Lib', packageTypes: [] },
});

const plain = (value: unknown) => JSON.parse(JSON.stringify(value));

test('each hive has its versions, and is compressed or not', async (t) => {
  const pages = [{ lower: '1.0.0', upper: '2.0.0-0', count: 2, items: [version('1.0.0'), version('2.0.0-0')] }];
  const { ask, asked } = await reading(t, {
    revisionOf: '7/1',
    pages: { served: 'hosted', value: pages },
    versions: { served: 'miss', value: [version('2.0.0--0'), version('2.0.0-0')] },
  });
  for (const hive of Object.keys(hives) as Hive[]) {
    const { semVer2, gzip } = hives[hive];
    const read = async (path: string, status: string) => {
      const answer = await ask(path);
      t.deepEqual(answer.needs, ['read', 'version-check']);
      t.deepEqual(headersOf(answer, ...shown), ['application/json', gzip ? 'gzip' : null, changing, status, null]);
      return routeJson(answer);
    };
    const hosted = 'entrepot; hit; detail=hosted';
    const miss = 'entrepot; fwd=miss; stored';
    const index = plain(registrationIndex(addresses, hive, 'lib', pages));
    t.deepEqual(await read(`/${hive}/Lib/index.json`, hosted), index);
    t.deepEqual(asked.splice(0), [
      ['revisionOf', 1, 'lib'],
      ['pages', 1, 'lib', semVer2, true],
    ]);
    t.deepEqual(await read(`/${hive}/lib/index.json`, hosted), index);
    t.deepEqual(asked.splice(0), [['revisionOf', 1, 'lib']]);
    const bounds = { lower: '1.0.0-rc', upper: '2.0.0' };
    t.deepEqual(
      await read(`/${hive}/Lib/page/1.0-RC/2.00.json`, miss),
      plain(registrationPage(addresses, hive, 'lib', bounds, [version('2.0.0--0'), version('2.0.0-0')])),
    );
    t.deepEqual(
      await read(`/${hive}/Lib/2.0-0.json`, miss),
      plain(registrationLeaf(addresses, hive, 'lib', version('2.0.0-0'))),
    );
    t.deepEqual(asked.splice(0), [
      ['versions', 1, 'lib', semVer2, '1.0.0-rc', '2.0.0'],
      ['versions', 1, 'lib', semVer2, '2.0.0-0', '2.0.0-0'],
    ]);
    t.is(routeJson(await ask(`/${hive}/Lib/2.0.0-1.json`)).message, 'Lib 2.0.0-1 has no such file in this feed.');
    asked.length = 0;
  }
});

test('the vulnerability data has the advisories that a client may see, and those of upstreams on what is not hosted', async (t) => {
  const hosted = await HostedPackages.open(t);
  for (const id of ['Lib', 'App']) await hosted.push({ id });
  const asked: unknown[][] = [];
  const [upstreamPage, updated] = [{ upstream: 'up', name: 'base' }, '2026-01-01T00:00:00.0000000Z'];
  const page = {
    outcome: 'stale',
    upstream: { id: 'up' },
    value: [
      ['Lib', '[1]'],
      ['Other', '[2]'],
      ['app', '[3]'],
      ['Last', '[4]'],
    ],
  };
  const vulnerabilities = {
    pages: () => Promise.resolve([{ ...upstreamPage, updated }]),
    page: (...given: string[]) => {
      asked.push(['page', ...given]);
      return Promise.resolve(given[0] === 'up' ? page : undefined);
    },
  };
  const views = {
    of: (...given: unknown[]) => {
      asked.push(['view', ...given]);
      return Promise.resolve({ vulnerabilities });
    },
  };
  const closed = { closedAmong: (...given: unknown[]) => (given[3] as any).admitted && new Set(['other']) };
  const open = async (principal: object) => {
    const parts = { feed: hosted.context, views };
    return reading(t, closed, { principal }, parts);
  };
  const all = await open(noNames);
  const none = routeJson(await all.ask('/vulnerabilities/index.json'));
  const others = {
    '@name': 'up-base',
    '@id': 'https://here.test/v3/vulnerabilities/up/base.json',
    '@updated': updated,
  };
  const base = 'https://here.test/v3/vulnerabilities/base.json';
  t.deepEqual(none, [{ '@name': 'base', '@id': base, '@updated': '2024-01-01T00:00:00.0000000Z' }, others]);
  t.deepEqual(routeJson(await all.ask('/vulnerabilities/base.json')), {});
  const url = 'https://example.com/';
  for (const [packageId, severity] of [
    ['Lib', 2],
    ['App', 0],
  ] as const) {
    hosted.clock.now += 1000;
    await createAdvisory(hosted.context, 1, { packageId, versions: '[1.0.0]', severity, url });
  }
  const own = await all.ask('/vulnerabilities/base.json');
  t.deepEqual(own.needs, ['read']);
  const about = (severity: number) => [{ severity, url, versions: '[1.0.0, 1.0.0]' }];
  t.deepEqual(routeJson(own), { lib: about(2), app: about(0) });
  t.deepEqual(headersOf(own, ...shown), [
    'application/json',
    null,
    changing,
    'entrepot; hit; detail=hosted',
    `"${digestOf(own.body)}"`,
  ]);
  const index = await all.ask('/vulnerabilities/index.json');
  t.deepEqual(index.needs, ['read']);
  t.deepEqual(routeJson(index), [
    {
      '@name': `base-${digestOf(own.body).slice('sha256:'.length).slice(0, 24)}`,
      '@id': base,
      '@updated': '1970-01-01T00:00:03.0000000Z',
    },
    others,
  ]);
  asked.length = 0;
  const theirs = await all.ask('/vulnerabilities/up/base.json');
  t.deepEqual(theirs.needs, ['read']);
  t.is(theirs.body.toString(), '{"Lib":[1],"app":[3],"Last":[4]}');
  t.deepEqual(headersOf(theirs, ...shown), ['application/json', null, changing, 'entrepot; hit; detail=stale', null]);
  t.deepEqual(asked.splice(0), [
    ['view', 1],
    ['page', 'up', 'base'],
  ]);
  t.deepEqual(all.asked, [['closedAmong', 1, ['Lib', 'Other', 'app', 'Last'], page.upstream, { admitted: true }]]);
  t.deepEqual(routeJson(await all.ask('/vulnerabilities/down/x.json')), {
    name: 'NotFound',
    message: 'This page of vulnerability data does not exist.',
  });
  const names = { of: () => new NameSet(['app', 'l*t']) };
  const some = await open({ ...noNames, names });
  t.deepEqual(routeJson(await some.ask('/vulnerabilities/base.json')), { app: about(0) });
  t.is((await some.ask('/vulnerabilities/up/base.json')).body.toString(), '{"app":[3],"Last":[4]}');
  const mirrored = await open({ kind: 'anonymous', reads: 'mirrored' });
  t.deepEqual(routeJson(await mirrored.ask('/vulnerabilities/base.json')), {});
  t.deepEqual(routeJson(await mirrored.ask('/vulnerabilities/index.json')), none);
});

test('a long page of vulnerability data is whole', async (t) => {
  const value = Array.from({ length: 3000 }, (_, index) => [`Lib${index}`, `["${'x'.repeat(index % 100)}"]`]);
  const page = { outcome: 'hit', upstream: {}, value };
  const views = { of: () => ({ vulnerabilities: { page: () => page } }) };
  const { ask } = await reading(t, { closedAmong: new Set() }, {}, { views });
  const answer = await ask('/vulnerabilities/up/base.json');
  t.is(answer.body.toString(), `{${value.map(([id, list]) => `"${id}":${list}`).join(',')}}`);
});
