import test, { type ExecutionContext } from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { Admission, type Verdict } from '../../../src/mirror/policy/admission.ts';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import { entryId } from '../../../src/mirror/store/entries.ts';
import { addWords } from '../../../src/mirror/store/words.ts';
import type { FeedViews } from '../../../src/nuget/upstream/feed-view.ts';
import { MirroredPackages } from '../../../src/nuget/upstream/mirrored-packages.ts';
import type { PackageGate } from '../../../src/nuget/upstream/package-gate.ts';
import { PackageMirror } from '../../../src/nuget/upstream/package-mirror.ts';
import type { StoredRegistrations } from '../../../src/nuget/upstream/stored-registrations.ts';
import { temporaryDatabase } from '../../support/databases.ts';
import { openMirror, openUpstream } from '../../support/mirror.ts';
import { until } from '../../support/until.ts';

interface Stored {
  upstream?: string;
  kind?: string;
  attributes?: Record<string, string>;
  size?: number;
  storedAt?: number;
  usedAt?: number;
  lastModified?: string;
}

const [account, other] = [1, 2];
const settings = (name: string) => ({ settings: { name, kind: 'nuget', url: `http://${name}/` } });

/** The packages of two upstreams, of which each account gets the content; that of a third one is for another account alone. */
async function start(t: ExecutionContext, rules: { merged?: string[]; reserved?: string[] } = {}) {
  const verdicts = new Map<string, Verdict>();
  const withdrawn = new Map<string, ReadonlyMap<string, number>>();
  const unlisted = new Map<string, ReadonlySet<string>>();
  const asked: string[] = [];
  const withdrawals = {
    of: async () => [],
    times: async ({ upstream, name }: { upstream: string; name: string }) =>
      withdrawn.get(`${upstream} ${name}`) ?? new Map<string, number>(),
  };
  const { mirror, database, clock } = await openMirror(t, new URL('http://up.test/'), {
    databaseUrl: await temporaryDatabase(t, 'sqlite'),
    mirror: { withdrawals: withdrawals as never },
  });
  const base = new URL('http://up.test/');
  const one = (await openUpstream(t, base, settings('one.test'))).upstream;
  const two = (await openUpstream(t, base, settings('two.test'))).upstream;
  const far = (await openUpstream(t, base, { settings: { ...settings('far.test').settings, accounts: ['far'] } }))
    .upstream;
  const judged = new Set<string>();
  const judge = async ({ name }: { name: string }) => {
    judged.add(name);
    return (reference: string) => verdicts.get(`${name} ${reference}`) ?? verdicts.get(name) ?? 'allow';
  };
  const gate = { admission: new Admission(judge), accountId: account } as unknown as PackageGate;
  const origin = new UpstreamPolicy([one, two, far], undefined, rules.reserved ?? [], rules.merged);
  const packages = new PackageMirror(mirror, origin, gate, { nupkg: 2 ** 20 } as never);
  const views = { of: async () => ({ mirror: packages }) } as unknown as FeedViews;
  const registrations = {
    unlisted: async (upstream: string, key: string) => {
      asked.push(`${upstream} ${key}`);
      return unlisted.get(`${upstream} ${key}`) ?? new Set<string>();
    },
  } as unknown as StoredRegistrations;
  clock.now = 5000;
  const store = async (name: string, reference: string, stored: Stored = {}) => {
    const { upstream = one.id, kind = 'nupkg', attributes = {}, size = 1 } = stored;
    const key = { upstream, kind, name, reference };
    const { storedAt = 100, usedAt = 100, lastModified } = stored;
    await database.transaction(async (tx) => {
      await tx.insertNew('mirror_entries', [
        {
          id: entryId(key),
          ...key,
          digest: `sha256:${entryId(key)}`,
          size_bytes: size,
          content_type: 'application/octet-stream',
          etag: null,
          last_modified: lastModified ?? null,
          attributes: JSON.stringify(attributes),
          stored_at: storedAt,
          validated_at: storedAt,
          used_at: usedAt,
        },
      ]);
      await addWords(tx, key);
    });
  };
  const claim = (key: string, accountId = account) =>
    database.transaction((tx) =>
      tx.run(
        `INSERT INTO packages (account_id, package_key, package_id, standing, created_at, updated_at)
         VALUES (?, ?, ?, 0, 0, 0)`,
        [accountId, key, key],
      ),
    );
  const download = (name: string, version: string, downloads: number, accountId = account) =>
    database.transaction((tx) =>
      tx.insertNew('mirrored_downloads', [{ account_id: accountId, kind: 'package', name, version, downloads }]),
    );
  const found = new MirroredPackages(database, views, registrations, clock.time);
  const told = { verdicts, withdrawn, unlisted, asked, judged };
  return { found, packages, database, one, two, far, ...told, store, claim, download };
}

const day = Date.UTC(2024, 0, 2);

/** A package with a stable version between others, and copies at an upstream of lower priority. */
async function storeAlpha({ store, two, download, withdrawn, unlisted, one }: Awaited<ReturnType<typeof start>>) {
  await store('alpha', '1.9.0', {
    attributes: { id: 'Alpha', version: '1.9.0.0', type: 'DotnetTool', sha512: 'bbb=' },
    size: 30,
    storedAt: 200,
    usedAt: 500,
    lastModified: new Date(day).toUTCString(),
  });
  await store('alpha', '1.10.0-beta', {
    attributes: { id: 'ALPHA', version: '1.10.0-Beta', publishedAt: '7' },
    size: 20,
    storedAt: 300,
    usedAt: 900,
  });
  await store('alpha', '1.0.0', { size: 10, storedAt: 150, usedAt: 400 });
  await store('alpha', '9.0.0', {
    upstream: two.id,
    attributes: { id: 'Other' },
    size: 1000,
    storedAt: 1,
    usedAt: 1000,
  });
  await store('alpha', '1.9.0', { kind: 'nuspec', size: 500 });
  await download('alpha', '1.9.0', 3);
  await download('alpha', '1.0.0', 4);
  await download('alpha', '1.9.0', 100, other);
  withdrawn.set(`${one.id} alpha`, new Map([['1.0.0', 77]]));
  unlisted.set(`${one.id} alpha`, new Set(['1.10.0-beta']));
}

const summary = {
  key: 'alpha',
  id: 'Alpha',
  upstream: 'one.test',
  packageTypes: ['DotnetTool'],
  latestVersion: '1.9.0.0',
  versionCount: 3,
  sizeBytes: 60,
  downloadCount: 7,
  createdAt: 150,
  updatedAt: 300,
  lastDownloadedAt: 900,
};

const beta = {
  version: '1.10.0-Beta',
  listed: false,
  publishedAt: 7,
  cachedAt: 300,
  withdrawnAt: null,
  sizeBytes: 20,
  sha512: '',
  downloadCount: 0,
};
const stable = {
  version: '1.9.0.0',
  listed: true,
  publishedAt: day,
  cachedAt: 200,
  withdrawnAt: null,
  sizeBytes: 30,
  sha512: 'bbb=',
  downloadCount: 3,
};
const oldest = {
  version: '1.0.0',
  listed: false,
  publishedAt: 150,
  cachedAt: 150,
  withdrawnAt: 77,
  sizeBytes: 10,
  sha512: '',
  downloadCount: 4,
};

test('a package shows the versions of its first upstream, the newest first, and is named by its newest release', async (t) => {
  const feed = await start(t);
  await storeAlpha(feed);
  const found = (await feed.found.get(account, 'ALPHA'))!;
  const orders = found.versions.map(({ order }) => order);
  const versions = [beta, stable, oldest].map((each, at) => ({ ...each, order: orders[at]! }));
  t.deepEqual<object, object>(found, { ...summary, versions });
  t.deepEqual(orders, orders.toSorted().toReversed());
  t.is(new Set(orders).size, 3);
  t.deepEqual(await feed.found.versions(account, 'Alpha'), found.versions);
  t.deepEqual(feed.asked, [`${feed.one.id} alpha`, `${feed.one.id} alpha`]);
  feed.asked.length = 0;
  const stored = (await feed.found.stored(account, 'Alpha'))!;
  t.deepEqual(
    stored.versions.map(({ version, listed }) => [version, listed]),
    [
      ['1.10.0-Beta', true],
      ['1.9.0.0', true],
      ['1.0.0', false],
    ],
  );
  t.deepEqual(feed.asked, [], 'what is stored is shown without a look at registrations');
});

test('a package of prereleases without attributes is named by its key, and lists of another upstream by its own', async (t) => {
  const { found, store, two, verdicts, claim } = await start(t);
  await store('pre', '1.0.0-a', { upstream: two.id });
  await store('pre', '1.0.0-b', { upstream: two.id });
  const all = (await found.get(account, 'Pre'))!;
  t.like(all, { id: 'pre', latestVersion: '1.0.0-b', packageTypes: ['Dependency'], upstream: 'two.test' });
  t.is(all.versions[0]!.publishedAt, 100);
  verdicts.set('pre 1.0.0-b', 'hold');
  t.like(await found.get(account, 'Pre'), { latestVersion: '1.0.0-a', versionCount: 1 });
  verdicts.set('pre', 'hold');
  verdicts.set('pre 1.0.0-a', 'hold');
  t.is(await found.get(account, 'Pre'), undefined);
  verdicts.clear();
  await claim('pre');
  t.is(await found.get(account, 'Pre'), undefined);
  t.is(await found.stored(account, 'Pre'), undefined);
  t.is(await found.versions(account, 'Pre'), undefined);
  t.is((await found.versions(other, 'Pre'))!.length, 2);
  t.is(await found.versions(account, 'none'), undefined);
});

test('a package that an upstream of higher priority hides is not shown from a later one', async (t) => {
  const { found, store, two, verdicts } = await start(t);
  await store('lib', '1.0.0');
  await store('lib', '2.0.0', { upstream: two.id });
  verdicts.set('lib 1.0.0', 'hold');
  t.is(await found.get(account, 'lib'), undefined);
  t.deepEqual(await found.list(account, 10), []);
});

test('a thousand versions of a package are shown and counted, and all are listed for those who need them', async (t) => {
  const { found, database, one } = await start(t);
  const rows = Array.from({ length: 1001 }, (_, at) => {
    const key = { upstream: one.id, kind: 'nupkg', name: 'many', reference: `1.0.${at}` };
    const times = { stored_at: 1000 - at, validated_at: 1, used_at: at };
    const file = { digest: `sha256:${entryId(key)}`, size_bytes: 2, content_type: '', attributes: '{}' };
    return { id: entryId(key), ...key, ...file, ...times };
  });
  await database.transaction(async (tx) => {
    for (let at = 0; at < rows.length; at += 91) await tx.insertNew('mirror_entries', rows.slice(at, at + 91));
  });
  const shown = (await found.get(account, 'many'))!;
  t.like(shown, { versionCount: 1001, sizeBytes: 2002, createdAt: 0, updatedAt: 1000, lastDownloadedAt: 1000 });
  t.deepEqual([shown.versions.length, shown.versions.at(-1)!.version], [1000, '1.0.1']);
  t.is((await found.stored(account, 'many'))!.versions.length, 1000);
  const all = (await found.versions(account, 'many'))!;
  t.deepEqual([all.length, all.at(-1)!.version], [1001, '1.0.0']);
});

test('one stored version is shown as in its package, with its nupkg, unless the account hosts the id', async (t) => {
  const feed = await start(t, { merged: ['Merged.*'] });
  const { found, store, two, claim, download, withdrawn, unlisted, one } = feed;
  await storeAlpha(feed);
  const attributes = { id: 'Alpha', version: '1.9.0.0', type: 'DotnetTool', sha512: 'bbb=' };
  const { nupkg, ...shown } = (await found.version(account, 'ALPHA', '1.9.0'))!;
  t.deepEqual(shown as object, { ...stable, id: 'Alpha', upstream: 'one.test' });
  t.like(nupkg, { size: 30, storedAt: 200, attributes });
  for (const [key, id, expected] of [
    ['1.10.0-beta', 'ALPHA', beta],
    ['1.0.0', 'alpha', oldest],
  ] as const) {
    const { nupkg: _, ...rest } = (await found.version(account, 'Alpha', key))!;
    t.deepEqual(rest as object, { ...expected, id, upstream: 'one.test' });
  }
  t.is(await found.version(account, 'alpha', '2.0.0'), undefined);
  // A copy of a later upstream is found by its version.
  t.like(await found.version(account, 'alpha', '9.0.0'), { upstream: 'two.test', id: 'Other' });
  t.deepEqual((await found.nupkg(account, 'Alpha', '1.9.0'))!.attributes, attributes);

  await store('merged.lib', '1.0.0', { upstream: two.id });
  await download('merged.lib', '1.0.0', 2);
  withdrawn.set(`${one.id} merged.lib`, new Map([['1.0.0', 5]]));
  unlisted.set(`${two.id} merged.lib`, new Set(['1.0.0']));
  for (const key of ['alpha', 'merged.lib']) await claim(key);
  t.is(await found.version(account, 'Alpha', '1.9.0'), undefined);
  t.is(await found.nupkg(account, 'Alpha', '1.9.0'), undefined);
  t.like(await found.version(account, 'Merged.Lib', '1.0.0'), {
    id: 'merged.lib',
    listed: false,
    withdrawnAt: null,
    downloadCount: 2,
    upstream: 'two.test',
  });
  t.is(await found.get(account, 'Merged.Lib'), undefined);
});

test('a stored version that a policy refuses is shown and not given', async (t) => {
  const { found, store, verdicts } = await start(t);
  await store('lib', '1.0.0');
  verdicts.set('lib 1.0.0', { denied: 'It is too new.' });
  t.is((await found.version(account, 'Lib', '1.0.0'))!.version, '1.0.0');
  await t.throwsAsync(found.nupkg(account, 'Lib', '1.0.0'), { name: 'Denied', message: 'It is too new.' });
  verdicts.set('lib 1.0.0', 'hold');
  t.is(await found.version(account, 'Lib', '1.0.0'), undefined);
  t.is(await found.nupkg(account, 'Lib', '1.0.0'), undefined);
});

const keysOf = (packages: readonly { key: string }[]) => packages.map(({ key }) => key);

test('the list of packages is in pages by key, without what is hosted, hidden, or of upstreams for others', async (t) => {
  const { found, store, far, two, claim, verdicts, judged } = await start(t);
  const names = Array.from({ length: 25 }, (_, at) => `p${String(at).padStart(2, '0')}`);
  for (const name of names) await store(name, '1.0.0', name === 'p24' ? { upstream: two.id } : {});
  await store('far', '1.0.0', { upstream: far.id });
  await store('p01x', '1.0.0', { kind: 'nuspec' });
  for (const name of ['p00', 'p12']) await claim(name);
  await claim('p03', other);
  verdicts.set('p02', 'hold');
  const shown = names.filter((name) => !['p00', 'p02', 'p12'].includes(name));
  t.deepEqual(keysOf(await found.list(account, 100)), shown);
  for (const limit of [1, 3, 10, 21, 22]) t.deepEqual(keysOf(await found.list(account, limit)), shown.slice(0, limit));
  t.deepEqual(keysOf(await found.list(account, 2, 'p11')), ['p13', 'p14']);
  t.deepEqual(keysOf(await found.list(account, 5, 'p22')), ['p23', 'p24']);
  t.deepEqual(keysOf(await found.list(account, 5, '', new NameSet(['p1*', 'p24']))), [
    'p10',
    'p11',
    'p13',
    'p14',
    'p15',
  ]);
  t.deepEqual(keysOf(await found.list(account, 5, 'p18', new NameSet(['p1*', 'p24']))), ['p19', 'p24']);
  t.like((await found.list(account, 1, 'p23'))[0], { key: 'p24', upstream: 'two.test', versionCount: 1 });
  // No more names are decided than the page needs, or ten.
  for (const [limit, after, read] of [
    [1, '', names.slice(1, 10)],
    [10, 'p12', names.slice(13, 23)],
    [11, 'p12', names.slice(13, 24)],
  ] as const) {
    judged.clear();
    await found.list(account, limit, after);
    t.deepEqual([...judged].toSorted(), read, `${limit} ${after}`);
  }
});

test('a sorted list has the packages by a number or by name, and as many as its total counts', async (t) => {
  const { found, store, two, far, claim, download, verdicts } = await start(t);
  await store('one.a', '1.0.0', { size: 5, storedAt: 10, usedAt: 900 });
  await store('one.a', '2.0.0', { size: 6, storedAt: 11, usedAt: 100 });
  await store('one.a', '3.0.0', { upstream: two.id, size: 1000 });
  await store('one.b', '1.0.0', { upstream: two.id, size: 7, storedAt: 30, usedAt: 30 });
  await store('two.c', '1.0.0', { size: 8, storedAt: 20, usedAt: 20 });
  await store('one.far', '1.0.0', { upstream: far.id, size: 3000 });
  await store('one.own', '1.0.0', { size: 2000 });
  await claim('one.own');
  await download('two.c', '1.0.0', 5);
  await download('one.b', '1.0.0', 9, other);
  const all = { by: undefined, text: '', only: undefined } as const;
  // On a busy machine, the first count can take longer than a request waits for it.
  await until(async () => (await found.total(account, '', undefined)) !== undefined);
  const page = async (order: Parameters<typeof found.ranked>[1], limit = 10, after?: [number | null, string]) =>
    (await found.ranked(account, order, limit, after)).map(({ rank, item }) => [...rank, item.key, item.versionCount]);
  t.deepEqual(await page(all), [
    [null, 'one.a', 'one.a', 2],
    [null, 'one.b', 'one.b', 1],
    [null, 'two.c', 'two.c', 1],
  ]);
  t.deepEqual(await page({ ...all, by: 'bytes' }), [
    [11, 'one.a', 'one.a', 2],
    [8, 'two.c', 'two.c', 1],
    [7, 'one.b', 'one.b', 1],
  ]);
  t.deepEqual(await page({ ...all, by: 'downloads' }), [
    [5, 'two.c', 'two.c', 1],
    [0, 'one.a', 'one.a', 2],
    [0, 'one.b', 'one.b', 1],
  ]);
  t.deepEqual(await page({ ...all, by: 'storedAt' }, 1, [30, 'one.b']), [[20, 'two.c', 'two.c', 1]]);
  t.deepEqual(await page({ ...all, by: 'usedAt', text: 'one' }), [
    [900, 'one.a', 'one.a', 2],
    [30, 'one.b', 'one.b', 1],
  ]);
  t.deepEqual(await page({ ...all, by: 'refs', only: new NameSet(['*.c', '*.a']) }), [
    [2, 'one.a', 'one.a', 2],
    [1, 'two.c', 'two.c', 1],
  ]);
  t.deepEqual(await found.total(account, '', undefined), { count: 3, bytes: 26 });
  t.deepEqual(await found.total(account, 'one', undefined), { count: 2, bytes: 18 });
  t.deepEqual(await found.total(account, '', new NameSet(['two.*'])), { count: 1, bytes: 8 });
  // Since they were counted.
  await claim('one.a');
  verdicts.set('two.c', 'hold');
  t.deepEqual(await page(all), [[null, 'one.b', 'one.b', 1]]);
});

test('a search finds each package once, at the upstream that serves it, and goes on after a position', async (t) => {
  const { found, store, two, far, claim } = await start(t);
  await store('json.core', '1.0.0');
  await store('json.core', '2.0.0', { upstream: two.id });
  await store('my.json', '1.0.0', { upstream: two.id });
  await store('json.own', '1.0.0');
  await store('json.far', '1.0.0', { upstream: far.id });
  await store('json.gone', '1.0.0', { kind: 'nuspec' });
  await store('jsonx', '1.0.0');
  await claim('json.own');
  const query = { start: 'json', others: [] };
  const all = await found.find(account, query, 10, '');
  t.deepEqual(
    all.map(({ summary }) => [summary.key, summary.upstream]),
    [
      ['my.json', 'two.test'],
      ['json.core', 'one.test'],
      ['jsonx', 'one.test'],
    ],
  );
  t.deepEqual(all[0]!.position, JSON.stringify(['json', two.id, 'my.json']));
  for (const [at, { position }] of all.entries()) {
    t.deepEqual(await found.find(account, query, 10, position), all.slice(at + 1));
    t.deepEqual(await found.find(account, query, 1, position), all.slice(at + 1, at + 2));
  }
  const only = await found.find(account, query, 10, '', new NameSet(['json*']));
  t.deepEqual(only, all.slice(1));
  t.deepEqual(await found.find(account, { start: 'json', others: ['my'] }, 10, ''), all.slice(0, 1));
});

test('whether an id is only an upstream’s, and the names of its history', async (t) => {
  const { found, store, claim, one, two, verdicts } = await start(t, { reserved: ['Reserved.*'], merged: ['m.*'] });
  await claim('own');
  await claim('m.own');
  t.deepEqual(
    await Promise.all(['Lib', 'Own', 'M.Own', 'Reserved.Lib'].map((id) => found.isUpstreamOnly(account, id))),
    [true, false, false, false],
  );
  t.true(await found.isUpstreamOnly(other, 'Own'));
  const owners = await found.historyOwners(account, 'Lib');
  t.deepEqual(
    owners.map(({ accountId, upstream, name, upstreamName }) => ({ accountId, upstream, name, upstreamName })),
    [
      { accountId: 0, upstream: one.id, name: 'lib', upstreamName: 'one.test' },
      { accountId: 0, upstream: two.id, name: 'lib', upstreamName: 'two.test' },
    ],
  );
  await store('lib', '1.0.0');
  verdicts.set('lib 1.0.0', 'hold');
  const entries = ['1.0.0', '2.0.0'].map((reference) => ({ reference }));
  t.deepEqual(await owners[0]!.listed(entries as never), [entries[1]] as never);
  t.deepEqual(await found.historyOwners(account, 'Reserved.Lib'), []);
});

test('a version is removed with the files beside it, at all upstreams, with an event for each', async (t) => {
  const { found, store, two, claim, database } = await start(t, { merged: ['Merged'] });
  const kinds = ['nupkg', 'nuspec', 'readme', 'icon'];
  for (const kind of [...kinds, 'symbols', 'flat']) await store('lib', '1.0.0', { kind });
  await store('lib', '1.0.0', { upstream: two.id });
  await store('lib', '2.0.0');
  await store('own', '1.0.0');
  await store('merged', '1.0.0');
  for (const key of ['own', 'merged']) await claim(key);
  let allowed = 0;
  const mayDelete = () => void (allowed += 1);
  for (const [id, version] of [
    ['Lib', 'x'],
    ['Lib', '3.0.0'],
    ['Own', '1.0.0'],
  ] as const)
    t.false(await found.deleteVersion(account, id, version, mayDelete), `${id} ${version}`);
  t.is(allowed, 0);
  const refusal = new Error('no');
  const refuse = () => {
    throw refusal;
  };
  await t.throwsAsync(found.deleteVersion(account, 'Lib', '1.0', refuse), { is: refusal });
  const left = async () =>
    (
      await database.select<{ kind: string; name: string; reference: string }>(
        'SELECT kind, name, reference FROM mirror_entries ORDER BY name, kind, reference',
      )
    ).map(({ kind, name, reference }) => `${kind} ${name} ${reference}`);
  t.is((await left()).length, 10);
  t.true(await found.deleteVersion(account, 'Lib', '1.0', mayDelete));
  t.true(await found.deleteVersion(account, 'MERGED', '01.0', mayDelete));
  t.is(allowed, 2);
  t.deepEqual(await left(), ['flat lib 1.0.0', 'nupkg lib 2.0.0', 'symbols lib 1.0.0', 'nupkg own 1.0.0']);
  const events = await database.select(
    `SELECT type, account_id, time, subject_kind, subject_name, subject_reference, details FROM events ORDER BY id`,
  );
  const event = (name: string, upstream: string) => ({
    type: 'package.deleted',
    account_id: account,
    time: 5000,
    subject_kind: 'package',
    subject_name: name,
    subject_reference: '1.0.0',
    details: JSON.stringify({ origin: 'mirrored', upstream }),
  });
  t.deepEqual(
    events.map((each) => ({ ...each })),
    [event('Lib', 'one.test'), event('Lib', 'two.test'), event('MERGED', 'one.test')],
  );
  t.false(await found.deleteVersion(account, 'Lib', '1.0', mayDelete));
});
