import test, { type ExecutionContext } from 'ava';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import type { FeedContext } from '../../../src/nuget/hosted/feed-context.ts';
import { PackageSource } from '../../../src/nuget/source/package-source.ts';
import type { FeedViews } from '../../../src/nuget/upstream/feed-view.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf, readAll } from '../../../src/storage/files/content.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { makeNupkg, pngPixel } from '../../support/builders/nupkg.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { hostRows } from '../../support/hosted-rows.ts';

const upstreamOf = (id: string) =>
  ({
    id,
    name: `${id}.test`,
    config: { include: ['*'], exclude: ['Kept.*'] },
    serves: () => true,
  }) as unknown as Upstream;
const [one, two] = [upstreamOf('one'), upstreamOf('two')];
const down = new UpstreamError('UpstreamUnavailable', 'It is down.');
const broken = new Error('it broke');

type Fake = Record<string, unknown>;

const registered = (version: string, bytes = 10) => ({ version, bytes, fullVersion: version, listed: true });

interface Setup {
  mirror?: Fake;
  registrations?: Fake;
  blobs?: Fake;
  isHostedOnly?: boolean;
  until?: number;
}

/** Account 1 hosts `Own` and, together with upstreams, `Merged`. What the upstreams are asked is noted. */
async function start(t: ExecutionContext, { mirror = {}, registrations = {}, blobs = {}, ...parts }: Setup = {}) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await hostRows(database, 1, 'Own', ['1.0.0', { version: '2.0.0', publishedAt: 50, listed: false }]);
  await hostRows(database, 1, 'Merged', ['1.0.0', { version: '2.0.0-Beta', listed: false, publishedAt: 50 }]);
  await hostRows(database, 1, 'Empty', []);
  await hostRows(database, 1, 'Merged.Empty', []);
  const asked: unknown[][] = [];
  const noting = (some: Fake) =>
    Object.fromEntries(
      Object.entries(some).map(([name, answer]) => [
        name,
        async (...given: unknown[]) => {
          asked.push([name, ...given]);
          const value = typeof answer === 'function' ? (answer as (...given: unknown[]) => unknown)(...given) : answer;
          if (value instanceof Error) throw value;
          return value;
        },
      ]),
    );
  const policy = new UpstreamPolicy([one, two], undefined, ['Reserved.*'], ['Merged*']);
  const view = {
    mirror: { origin: policy, ...noting({ owner: { upstream: one }, ...mirror }) },
    registrations: noting(registrations),
  };
  const views = { of: async () => view } as unknown as FeedViews;
  const feed = { database, blobs } as unknown as FeedContext;
  const source = new PackageSource({ feed, views, policy, ...parts });
  return { source, asked, database };
}

const found = (...value: readonly string[]) => ({ value, outcome: 'stale' });

const hosted = (...value: readonly string[]) => ({ served: 'hosted', value }) as const;

test('the versions of an id are the hosted ones if it is claimed, both if it is merged, and else the upstream’s', async (t) => {
  const { source, asked } = await start(t, { mirror: { versions: found('0.5.0', '2.0.0-beta', '3.0.0') } });
  t.deepEqual(await source.versionKeys(1, 'OWN'), hosted('1.0.0', '2.0.0'));
  t.is(await source.versionKeys(1, 'Empty'), undefined);
  t.is(await source.versionKeys(1, 'Reserved.Lib'), undefined);
  t.is(await source.versionKeys(1, 'Kept.Lib'), undefined);
  t.deepEqual(asked, []);
  t.deepEqual(await source.versionKeys(1, 'Merged'), {
    served: 'stale',
    value: ['0.5.0', '1.0.0', '2.0.0-beta', '3.0.0'],
  });
  const theirs = { served: 'stale', value: ['0.5.0', '2.0.0-beta', '3.0.0'] } as const;
  for (const id of ['Merged.Empty', 'Lib']) t.deepEqual(await source.versionKeys(1, id), theirs, id);
  t.deepEqual(await source.versionKeys(2, 'Own'), theirs);
  t.deepEqual(
    asked,
    ['Merged', 'Merged.Empty', 'Lib', 'Own'].map((id) => ['versions', id]),
  );
  // The caller may know already whether the id is claimed.
  t.deepEqual(await source.versionKeys(1, 'Own', false), theirs);
  t.deepEqual(await source.versionKeys(1, 'Own', true), hosted('1.0.0', '2.0.0'));
  t.is(await source.versionKeys(1, 'Lib', true), undefined);
  const past = await start(t, { mirror: { versions: found('3.0.0') }, until: 49 });
  t.deepEqual(await past.source.versionKeys(1, 'Own'), hosted('1.0.0'));
  t.deepEqual((await past.source.versionKeys(1, 'Merged'))!.value, ['1.0.0', '3.0.0']);
});

test('while the upstream fails or has nothing, a merged id has its hosted versions', async (t) => {
  const registrations = { versions: down, sizes: down, pages: down };
  const failing = (await start(t, { mirror: { versions: down }, registrations })).source;
  t.deepEqual(await failing.versionKeys(1, 'Merged'), { served: 'hosted', value: ['1.0.0', '2.0.0-beta'] });
  const [only] = (await failing.versions(1, 'Merged', true, '1.0.0', '1.0.0'))!.value;
  t.is(only!.version, '1.0.0');
  t.deepEqual(
    (await failing.pages(1, 'Merged', true))!.value.map(({ lower, upper, count }) => [lower, upper, count]),
    [['1.0.0', '2.0.0-Beta', 2]],
  );
  for (const id of ['Merged.Empty', 'Lib']) {
    await t.throwsAsync(failing.versionKeys(1, id), { is: down });
    await t.throwsAsync(failing.versions(1, id, true, '1.0.0', '1.0.0'), { is: down });
    await t.throwsAsync(failing.pages(1, id, true), { is: down });
  }
  const other = await start(t, { mirror: { versions: broken }, registrations: { versions: broken, sizes: broken } });
  await t.throwsAsync(other.source.versionKeys(1, 'Merged'), { is: broken });
  await t.throwsAsync(other.source.versions(1, 'Merged', true, '1.0.0', '1.0.0'), { is: broken });
  await t.throwsAsync(other.source.pages(1, 'Merged', true), { is: broken });
  for (const versions of [undefined, found()]) {
    const { source } = await start(t, {
      mirror: { versions },
      registrations: { versions: versions && { value: [], outcome: 'hit' } },
    });
    t.deepEqual((await source.versionKeys(1, 'Merged'))!.served, 'hosted');
    t.is(await source.versionKeys(1, 'Merged.Empty'), undefined);
    t.is((await source.versions(1, 'Merged', true, '1.0.0', '1.0.0'))!.served, 'hosted');
    t.is(await source.versions(1, 'Lib', true, '1.0.0', '1.0.0'), undefined);
  }
});

test('a range of a registration has hosted versions and those of the upstream, which equal hosted ones hide', async (t) => {
  const versions = { value: ['1.0.0', '1.5.0', '2.0.0-BETA'].map((each) => registered(each)), outcome: 'stale' };
  const { source, asked } = await start(t, { registrations: { versions } });
  const range = async (accountId: number, id: string, semVer2 = true) => {
    const { served, value } = (await source.versions(accountId, id, semVer2, '1.0.0', '2.0.0-beta'))!;
    return [served, value.map(({ version, metadata }) => [version, metadata?.id])];
  };
  t.deepEqual(await range(1, 'Own'), ['hosted', [['1.0.0', 'Own']]]);
  t.deepEqual(asked, []);
  t.deepEqual(await range(1, 'Merged', false), [
    'stale',
    [
      ['1.0.0', 'Merged'],
      ['1.5.0', undefined],
      ['2.0.0-Beta', 'Merged'],
    ],
  ]);
  const [[, id], [, owner, key, semVer2, lower, upper]] = asked as [unknown[], unknown[]];
  t.deepEqual([id, owner, key, semVer2], ['Merged', { upstream: one }, 'merged', false]);
  t.like(lower, { major: 1, minor: 0 });
  t.like(upper, { major: 2 });
  t.deepEqual(await range(2, 'Merged'), ['stale', versions.value.map(({ version }) => [version, undefined])]);
  t.is(await (await start(t, { mirror: { owner: undefined } })).source.versions(1, 'Lib', true, '1', '2'), undefined);
  t.is(await source.versions(1, 'Reserved.Lib', true, '1.0.0', '2.0.0'), undefined);
});

test('the pages of a registration are hosted, the upstream’s, or those of all versions together', async (t) => {
  const sizes = { value: [registered('0.1.0'), registered('2.0.0-beta')], outcome: 'stale' };
  const pages = { value: [{ lower: '1', upper: '2', count: 2 }], outcome: 'miss' };
  const versions = { value: [registered('0.1.0'), registered('2.0.0-beta')], outcome: 'hit' };
  const { source, asked } = await start(t, { registrations: { sizes, pages, versions } });
  const own = (await source.pages(1, 'Own', true))!;
  t.deepEqual([own.served, own.value.map(({ count, items }) => [count, items!.length])], ['hosted', [[2, 2]]]);
  t.is(await source.pages(1, 'Empty', true), undefined);
  t.is(await source.pages(1, 'Reserved.Lib', true), undefined);
  t.deepEqual(asked, []);
  for (const id of ['Lib', 'Merged.Empty'])
    t.deepEqual(await source.pages(1, id, false), { served: 'miss', value: pages.value }, id);
  t.deepEqual(asked.splice(0), [
    ['owner', 'Lib'],
    ['pages', { upstream: one }, 'lib', false],
    ['owner', 'Merged.Empty'],
    ['pages', { upstream: one }, 'merged.empty', false],
  ]);
  t.deepEqual((await source.pages(1, 'Own', true, false))!.served, 'miss');
  t.is(await source.pages(1, 'Lib', true, true), undefined);
  asked.length = 0;
  const merged = (await source.pages(1, 'Merged', true))!;
  t.is(merged.served, 'hit');
  t.deepEqual(
    merged.value.map(({ lower, upper, count, items }) => [lower, upper, count, items!.map(({ version }) => version)]),
    [['0.1.0', '2.0.0-Beta', 3, ['0.1.0', '1.0.0', '2.0.0-Beta']]],
  );
  t.deepEqual(
    asked.map(([name]) => name),
    ['owner', 'sizes', 'owner', 'versions'],
  );
  t.deepEqual(asked[1], ['sizes', { upstream: one }, 'merged', true]);
  t.like(asked[3]![4], { major: 0, minor: 1 });
  t.like(asked[3]![5], { major: 2 });
  const long = { value: [registered('0.1.0', 2 ** 20), registered('3.0.0', 2 ** 20)], outcome: 'stale' };
  const other = await start(t, { registrations: { sizes: long } });
  t.deepEqual(await other.source.pages(1, 'Merged', true), {
    served: 'stale',
    value: [
      { lower: '0.1.0', upper: '0.1.0', count: 1 },
      { lower: '1.0.0', upper: '2.0.0-Beta', count: 2 },
      { lower: '3.0.0', upper: '3.0.0', count: 1 },
    ],
  });
  t.is(await (await start(t, { mirror: { owner: undefined } })).source.pages(1, 'Lib', true), undefined);
});

test('a source of hosted packages asks no upstream', async (t) => {
  const { source, asked } = await start(t, { isHostedOnly: true });
  t.is(await source.versionKeys(1, 'Lib'), undefined);
  t.deepEqual((await source.versionKeys(1, 'Merged'))!.value, ['1.0.0', '2.0.0-beta']);
  t.deepEqual((await source.pages(1, 'Merged', true))!.served, 'hosted');
  t.deepEqual(await source.candidates(1, 'Lib'), []);
  t.false(await source.isUpstreamOnly(1, 'Lib'));
  t.is(await source.ownerFor(1, 'Lib'), undefined);
  t.is(await source.openFile(1, 'Lib', '1.0.0', 'nupkg'), undefined);
  t.false(source.isMerged('Merged'));
  t.deepEqual(await source.merged(1, 'Merged', ['1.0.0'], ['1.0.0', '3.0.0']), ['1.0.0', '3.0.0']);
  t.deepEqual(asked, []);
});

test('which upstreams may be asked for an id, and which of those that one has found are others’', async (t) => {
  const owner = { upstream: two };
  const { source, asked } = await start(t, { mirror: { owner } });
  t.deepEqual(await source.candidates(1, 'Lib'), [one, two]);
  for (const id of ['Own', 'Merged', 'Empty', 'Reserved.Lib', 'Kept.Lib']) {
    t.deepEqual(await source.candidates(1, id), [], id);
    t.false(await source.isUpstreamOnly(1, id), id);
  }
  t.true(await source.isUpstreamOnly(1, 'Lib'));
  t.true(await source.isUpstreamOnly(2, 'Own'));
  t.deepEqual(asked, []);
  for (const id of ['Lib', 'Merged']) t.is(await source.ownerFor(1, id), owner as never, id);
  for (const id of ['Own', 'Empty', 'Reserved.Lib', 'Kept.Lib']) t.is(await source.ownerFor(1, id), undefined, id);
  t.deepEqual(asked, [
    ['owner', 'Lib'],
    ['owner', 'Merged'],
  ]);
  t.true(source.isMerged('MERGED'));
  t.false(source.isMerged('Own'));
  const ids = ['Lib', 'Own', 'MERGED', 'Merged.More', 'Reserved.Lib', 'Kept.Lib'];
  const closed = async (admitted: boolean, upstream = one) =>
    [...(await source.closedAmong(1, ids, upstream, { admitted }))].toSorted();
  t.deepEqual(await closed(false), ['kept.lib', 'merged', 'own', 'reserved.lib']);
  t.deepEqual(await closed(true), ['kept.lib', 'own', 'reserved.lib']);
  t.deepEqual(await closed(true, upstreamOf('three')), ids.map((id) => id.toLowerCase()).toSorted());
  t.true(await source.tellsPrivateId(1, 'own'));
  t.false(await source.tellsPrivateId(2, 'own'));
  t.false(await source.tellsPrivateId(1, 'merged'));
  t.true(await source.tellsPrivateId(2, 'reserved.x'));
});

test('versions of upstreams that equal hosted ones of a merged id are left out, also unlisted ones', async (t) => {
  const { source } = await start(t);
  const others = ['0.9', '1.0', '2.0.0-BETA', '3.0.0'];
  t.deepEqual(await source.merged(1, 'Merged', ['1.0.0'], others), ['0.9', '1.0.0', '3.0.0']);
  t.deepEqual(await source.merged(1, 'Lib', ['1.0.0'], others), others);
  t.deepEqual(await source.merged(2, 'Merged', ['1.0.0'], others), others);
});

async function textOf(file: Awaited<ReturnType<PackageSource['openFile']>>) {
  return file && { ...file, content: (await readAll(file.content, 2 ** 20)).toString('latin1') };
}

test('a nupkg is the hosted one, or the upstream’s of a version that is not hosted', async (t) => {
  const entry = { outcome: 'stale', content: contentOf(Buffer.from('bytes')), metadata: undefined };
  const { source, asked } = await start(t, { mirror: { openNupkg: entry } });
  const nupkg = { served: 'stale', content: 'bytes', digest: undefined, type: 'application/octet-stream' } as const;
  t.deepEqual(await textOf(await source.openFile(1, 'LIB', '1.0', 'nupkg')), nupkg);
  t.deepEqual(asked[0]!.slice(0, 3), ['openNupkg', 'LIB', '1.0.0']);
  t.deepEqual(await textOf(await source.openFile(1, 'Merged', '3.0.0', 'nupkg')), nupkg);
  asked.length = 0;
  for (const [id, version] of [
    ['Lib', 'x'],
    ['Own', '3.0.0'],
    ['Merged', '2.0.0-BETA'],
    ['Reserved.Lib', '1.0.0'],
  ] as const)
    t.is(await source.openFile(1, id, version, 'nupkg'), undefined, `${id} ${version}`);
  t.deepEqual(asked, []);
  const stored = await start(t, {
    mirror: { openNupkg: { ...entry, outcome: 'hit', metadata: { digest: 'sha256:1' } } },
  });
  t.like(await stored.source.openFile(1, 'Lib', '1.0.0', 'nupkg'), { served: 'hit', digest: 'sha256:1' });
  t.is(
    await (await start(t, { mirror: { openNupkg: undefined } })).source.openFile(1, 'Lib', '1.0.0', 'nupkg'),
    undefined,
  );
});

const entry = (metadata?: object) => ({ outcome: 'miss', content: contentOf(Buffer.from('beside')), metadata });

test('a file of a stored nupkg is read from it, and others are asked for', async (t) => {
  const bytes = await makeNupkg({ id: 'Lib', version: '1.0.0', icon: pngPixel });
  const opened: unknown[][] = [];
  const open = async (...given: unknown[]) => {
    opened.push(given);
    return contentOf(bytes);
  };
  const attributes = { type: 'image/gif' };
  const storedNupkg = { nupkg: { digest: 'sha256:nupkg', size: bytes.length }, outcome: 'withdrawn' };
  const openSidecar = entry({ digest: 'sha256:beside', attributes });
  const { source, asked } = await start(t, { mirror: { storedNupkg, openSidecar }, blobs: { open } });
  const icon = await textOf(await source.openFile(1, 'Lib', '1.0', 'icon'));
  const digest = digestOf(pngPixel);
  t.deepEqual(icon, { served: 'withdrawn', content: pngPixel.toString('latin1'), digest, type: 'image/png' });
  const nuspec = (await textOf(await source.openFile(1, 'Lib', '1.0.0', 'nuspec')))!;
  t.deepEqual([nuspec.served, nuspec.type], ['withdrawn', 'text/plain']);
  t.regex(nuspec.content, /<id>Lib<\/id>/);
  t.deepEqual(opened[0], ['sha256:nupkg', bytes.length]);
  t.deepEqual(
    asked.map(([name]) => name),
    ['storedNupkg', 'storedNupkg'],
  );
  const readme = { served: 'miss', content: 'beside', digest: 'sha256:beside' } as const;
  t.deepEqual(await textOf(await source.openFile(1, 'Lib', '1.0.0', 'readme')), {
    ...readme,
    type: 'text/markdown; charset=utf-8',
  });
  t.deepEqual(asked.at(-1), ['openSidecar', 'Lib', '1.0.0', 'readme']);
  const damaged = new DomainError('ContentDamaged', 'It is damaged.');
  for (const [blobs, stored] of [
    [{ open: () => Promise.reject(damaged) }, storedNupkg],
    [{}, undefined],
  ] as const) {
    const other = await start(t, { mirror: { storedNupkg: stored, openSidecar }, blobs });
    t.deepEqual(await textOf(await other.source.openFile(1, 'Lib', '1.0.0', 'icon')), { ...readme, type: 'image/gif' });
  }
  const bad = await start(t, { mirror: { storedNupkg, openSidecar }, blobs: { open: () => Promise.reject(broken) } });
  await t.throwsAsync(bad.source.openFile(1, 'Lib', '1.0.0', 'icon'), { is: broken });
  for (const [answer, expected] of [
    [entry(), { served: 'miss', type: 'application/octet-stream', digest: undefined }],
    [entry({ digest: 'sha256:2', attributes: {} }), { type: 'application/octet-stream', digest: 'sha256:2' }],
  ] as const) {
    const arriving = await start(t, { mirror: { storedNupkg: undefined, openSidecar: answer } });
    t.like(await arriving.source.openFile(1, 'Lib', '1.0.0', 'icon'), expected);
  }
  const none = await start(t, { mirror: { storedNupkg: undefined, openSidecar: undefined } });
  t.is(await none.source.openFile(1, 'Lib', '1.0.0', 'icon'), undefined);
  t.deepEqual(none.asked, [
    ['storedNupkg', 'Lib', '1.0.0'],
    ['openSidecar', 'Lib', '1.0.0', 'icon'],
  ]);
});

test('the revision of a package is that of its account', async (t) => {
  const { source } = await start(t);
  const revision = await source.revisionOf(1, 'OWN');
  t.regex(revision!, /^\d+\/1\/\d+$/);
  t.not(revision, await source.revisionOf(1, 'Merged'));
  t.is(await source.revisionOf(2, 'Own'), undefined);
});
