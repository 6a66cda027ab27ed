import { randomBytes } from 'node:crypto';
import { copyFile, mkdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { gzipSync } from 'node:zlib';
import test from 'ava';
import { makeNupkg, makeNuspec, makePdb, makeSnupkg, pngPixel } from '../support/builders/nupkg.ts';
import { writeZip } from '../support/builders/zip.ts';
import { TestFeed } from '../support/feed.ts';
import { startImporting } from '../support/imports.ts';
import { flushUsage } from '../support/inside.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { answer, serve } from '../support/upstreams/faulty-upstream.ts';
import { json, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

test('a whole feed comes, with dates, unlisted versions, deprecations and downloads, and a second time nothing is fetched', async (t) => {
  const old = await startTestServer(t);
  const from = new TestFeed(old);
  const kept = await makeNupkg({ id: 'Contoso.Core', version: '1.0.0' });
  t.is((await from.push(kept)).status, 201);
  await from.publish({ id: 'Contoso.Core', version: '2.0.0-beta' }, { id: 'Fabrikam', version: '1.2.0' });
  t.is((await from.fetch('/push/Fabrikam/1.2.0', { method: 'DELETE' })).status, 204);
  const deprecation = { reasons: ['Legacy'], message: 'Use another one.' };
  const deprecate = await old.fetch('/v1/packages/Contoso.Core/1.0.0/deprecation', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(deprecation),
  });
  t.is(deprecate.status, 204);
  for (let time = 0; time < 3; time += 1)
    await (await from.fetch('/package/contoso.core/1.0.0/contoso.core.1.0.0.nupkg')).arrayBuffer();
  await flushUsage(old);
  const { target, bring, file, folder } = await startImporting(t);
  const token = await file('token', `${from.token}\n`);
  const words = [`${old.url}/v3/index.json`, '--token-file', token];
  const planned = await bring(...words, '--dry-run');
  t.deepEqual([planned.code, planned.stderr], [0, '']);
  t.regex(planned.stdout, /^to import: 2 \(/);
  const into = new TestFeed(target);
  t.is((await into.fetch('/package/contoso.core/index.json')).status, 404);
  // An unlisted package is in no search.
  const names = await file('names', '# all\nContoso.Core\nfabrikam\n');
  const done = await bring(...words, '--names', names, '--report', join(folder, 'report'));
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.regex(done.stdout, /^imported: 3 \(.*\nhere already: 0\nmirrored: 0\nconflicts: 0\nfailed: 0\n$/);
  const lines = (await readFile(join(folder, 'report'), 'utf8')).trimEnd().split('\n');
  t.is(lines.length, 3);
  t.like(JSON.parse(lines.find((line) => line.includes('"1.0.0"'))!), { name: 'Contoso.Core', outcome: 'imported' });
  for (const id of ['contoso.core', 'fabrikam']) t.deepEqual(await versionsOf(into, id), await versionsOf(from, id));
  t.is((await versionsOf(into, 'fabrikam'))[0].listed, false);
  const detail = (await (await target.fetch('/v1/packages/Contoso.Core')).json()) as any;
  t.is(detail.origin, 'hosted');
  t.is(detail.download_count, 3);
  t.like(await (await target.fetch('/v1/packages/Fabrikam')).json(), { download_count: 0 });
  t.is(detail.versions.find(({ version }: any) => version === '1.0.0').download_count, 3);
  // After the counts, because it is a download here, too.
  const bytes = await (await into.fetch('/package/contoso.core/1.0.0/contoso.core.1.0.0.nupkg')).arrayBuffer();
  t.deepEqual(Buffer.from(bytes), kept);
  const events = ((await (await target.fetch('/v1/audit?type=package.published')).json()) as any).items;
  t.is(events.length, 3);
  t.is(events[0].details.imported_from, new URL(old.url).host);
  const again = await bring(...words, '--names', names);
  t.is(again.code, 0);
  t.regex(again.stdout, /^imported: 0\nhere already: 3\n/);
  await flushUsage(old);
  const counted = (await (await old.fetch('/v1/packages/Contoso.Core')).json()) as any;
  t.is(counted.versions.find(({ version }: any) => version === '1.0.0').download_count, 4);
});

test('a further run follows what has changed at the source: listed, unlisted, deprecated; not what was changed or pushed here', async (t) => {
  const old = await startTestServer(t);
  const from = new TestFeed(old);
  const versions = ['1.0.0', '2.0.0', '3.0.0', '4.0.0'];
  const files = await Promise.all(versions.map((version) => makeNupkg({ id: 'Contoso', version })));
  for (const each of files) t.is((await from.push(each)).status, 201);
  const { target, bring, file, folder } = await startImporting(t);
  const into = new TestFeed(target);
  let runs = 0;
  /** As `bring`, with what is said of the updated versions. */
  const follow = async (...words: string[]) => {
    const report = join(folder, `report-${(runs += 1)}`);
    const heard = await bring(...words, '--report', report);
    const lines = (await readFile(report, 'utf8')).trimEnd().split('\n');
    const updated = lines.map((line) => JSON.parse(line)).filter(({ outcome }) => outcome === 'updated');
    return { ...heard, updated: updated.map(({ reference, note }) => `${reference}: ${note}`).toSorted() };
  };
  // One that was pushed here, and is the same.
  t.is((await into.push(files[3])).status, 201);
  const words = ['feed', `${old.url}/v3/index.json`, '--token-file', await file('token', from.token), '--hosted'];
  t.regex((await bring(...words)).stdout, /^imported: 3 \(.*\nhere already: 1\n/);
  const change = async (of: TestServer, version: string, reasons: string[] | undefined) => {
    const { status } = await of.fetch(`/v1/packages/Contoso/${version}/deprecation`, {
      method: reasons ? 'PUT' : 'DELETE',
      headers: { 'content-type': 'application/json' },
      ...(reasons && { body: JSON.stringify({ reasons }) }),
    });
    t.is(status, 204);
  };
  const unlist = async (feed: TestFeed, version: string) =>
    t.is((await feed.fetch(`/push/Contoso/${version}`, { method: 'DELETE' })).status, 204);
  for (const version of ['1.0.0', '4.0.0']) await unlist(from, version);
  await change(old, '2.0.0', ['Legacy']);
  // Here a person has done something else, which stays.
  await unlist(into, '2.0.0');
  await unlist(into, '3.0.0');
  await change(target, '1.0.0', ['CriticalBugs']);
  const planned = await follow(...words, '--dry-run');
  t.regex(planned.stdout, /^to import: 0\nhere already: 2\nto update: 2\n/);
  const changed = 'its state at the source has changed';
  t.deepEqual(planned.updated, [`1.0.0: ${changed}`, `2.0.0: ${changed}`]);
  const followed = await follow(...words);
  t.deepEqual(followed.updated, ['1.0.0: now unlisted', '2.0.0: now deprecated']);
  t.deepEqual([followed.code, followed.stderr], [0, '']);
  t.regex(followed.stdout, /^imported: 0\nhere already: 2\nupdated: 2\n/);
  const states = async () =>
    (await versionsOf(into, 'contoso')).map(({ listed, each }: any) => [listed, each?.reasons?.[0]]);
  const expected = [
    [false, 'CriticalBugs'],
    [false, 'Legacy'],
    [false, undefined],
    [true, undefined],
  ];
  t.deepEqual(await states(), expected);
  t.regex((await bring(...words)).stdout, /^imported: 0\nhere already: 4\nmirrored/);
  // Back again; a server with another address does not change what this one brought.
  await change(old, '2.0.0', undefined);
  // This one is unlisted here already.
  await unlist(from, '3.0.0');
  await change(old, '3.0.0', ['Legacy']);
  t.is((await from.fetch('/push/Contoso/1.0.0', { method: 'POST' })).status, 200);
  const other = [words[0]!, words[1]!.replace('127.0.0.1', 'localhost'), ...words.slice(2)];
  t.regex((await bring(...other)).stdout, /^imported: 0\nhere already: 4\nmirrored/);
  const back = await follow(...words);
  t.regex(back.stdout, /^imported: 0\nhere already: 1\nupdated: 3\n/);
  t.deepEqual(back.updated, ['1.0.0: now listed', '2.0.0: now not deprecated any more', '3.0.0: now deprecated']);
  t.deepEqual(await states(), [[true, 'CriticalBugs'], [false, undefined], [false, 'Legacy'], expected[3]]);
  const events = ((await (await target.fetch('/v1/audit?type=package.relisted')).json()) as any).items;
  t.is(events.length, 1);
});

test('a folder of packages with their symbols: other bytes are a conflict, and the file times are the dates', async (t) => {
  const { target, bring, folder } = await startImporting(t);
  const place = join(folder, 'packages/some/where');
  await mkdir(place, { recursive: true });
  const guid = Buffer.alloc(16, 7);
  const symbols = await makeSnupkg({
    id: 'Contoso.Core',
    version: '1.0.0',
    files: { 'lib/net8.0/Contoso.Core.pdb': makePdb(guid) },
  });
  // A symbols package that is read before its package.
  await writeFile(join(place, 'a.snupkg'), symbols);
  await writeFile(join(place, 'b.nupkg'), await makeNupkg({ id: 'Contoso.Core', version: '1.0.0' }));
  await writeFile(join(place, 'c.nupkg'), await makeNupkg({ id: 'CONTOSO.core', version: '1.0' }));
  await writeFile(join(place, 'd.nupkg'), 'no zip');
  const dependencies = [{ id: 'Other', version: '$version$' }];
  await writeFile(join(place, 'e.nupkg'), await makeNupkg({ id: 'Old', version: '1.0.0', authors: '', dependencies }));
  await utimes(join(place, 'e.nupkg'), new Date('2020-01-02'), new Date('2020-01-02'));
  await writeFile(join(place, 'f.nupkg'), await makeNupkg({ id: 'Future', version: '1.0.0' }));
  await utimes(join(place, 'f.nupkg'), new Date('2100-01-02'), new Date('2100-01-02'));
  const planned = await bring(join(folder, 'packages'), '--dry-run', '--report', join(folder, 'plan'));
  t.regex(planned.stdout, /^to import: 5 \(/);
  const plan = (await readFile(join(folder, 'plan'), 'utf8')).trimEnd().split('\n');
  const sent = plan.map((line) => JSON.parse(line)).find(({ reference }) => reference === '1.0.0 symbols');
  t.deepEqual([sent.outcome, sent.bytes], ['imported', symbols.length]);
  const heard = await bring(join(folder, 'packages'));
  t.is(heard.code, 1);
  t.regex(heard.stdout, /^imported: 4 \(/);
  t.regex(heard.stderr, /^conflict: contoso\.core 1\.0\.0: other content is here under this name$/im);
  t.regex(heard.stderr, /^failed: some\/where\/d\.nupkg: .*zip/m);
  t.regex(heard.stderr, /^entrepot: 2 did not come$/m);
  const feed = new TestFeed(target);
  const key = `${Buffer.alloc(16, 7).toString('hex')}ffffffff`;
  t.is((await feed.fetch(`/symbols/contoso.core.pdb/${key}/contoso.core.pdb`)).status, 200);
  const index = await feed.json('/registration-gz-semver2/old/index.json');
  const { published, dependencyGroups } = index.items[0].items[0].catalogEntry;
  t.regex(published, /^2020-01-02/);
  t.is(dependencyGroups[0].dependencies[0].range, '(, )', 'as clients read a range that is none');
  const [future] = await versionsOf(feed, 'future');
  t.true(Date.parse(future.published) <= Date.now(), 'nothing is published later than now');
  const again = await bring(join(folder, 'packages'));
  t.regex(again.stdout, /^imported: 0\nhere already: 4\n/);
  const recent = await bring(join(folder, 'packages'), '--since', '2021-01-01', '--dry-run');
  t.regex(recent.stdout, /^to import: 0\nhere already: 3\n/);
});

test('what an upstream has with the same content apart from its signature is mirrored, other content waits for a person', async (t) => {
  const upstream = await UpstreamFeed.start(t);
  const content = { 'lib/a.dll': Buffer.alloc(5000, 1) };
  const plain = (id: string, files: Record<string, Buffer> = content) =>
    makeNupkg({ id, version: '1.0.0', payloadBytes: 0, files });
  const signed = (id: string) => plain(id, { ...content, '.signature.p7s': Buffer.from('signature') });
  await upstream.offer({ id: 'Public', versions: [{ version: '1.0.0', nupkg: await signed('Public') }] });
  await upstream.offer({ id: 'Forked', versions: [{ version: '1.0.0', nupkg: await signed('Forked') }] });
  const { target, bring, folder, file } = await startImporting(t, [upstream.as('feed.test')]);
  const place = join(folder, 'packages');
  await mkdir(place);
  await writeFile(join(place, 'public.nupkg'), await plain('Public'));
  await writeFile(join(place, 'forked.nupkg'), await plain('Forked', { 'lib/a.dll': Buffer.alloc(5000, 2) }));
  await writeFile(join(place, 'own.nupkg'), await plain('Own'));
  // They are mirrored here already.
  const got = async (id: string) => {
    const answered = await new TestFeed(target).fetch(`/package/${id}/1.0.0/${id}.1.0.0.nupkg`);
    return Buffer.from(await answered.arrayBuffer());
  };
  const mirrored = [await got('public'), await got('forked')];
  const planned = await bring(place, '--dry-run');
  t.regex(planned.stdout, /^to import: 3 \(/);
  t.regex(planned.stdout, /^upstreams have it, too\tPublic\tfeed\.test$/m);
  const done = await bring(place);
  t.is(done.code, 1);
  t.regex(done.stdout, /^imported: 1 \(.*\nhere already: 0\nmirrored: 1\nconflicts: 1\n/);
  t.regex(done.stderr, /^conflict: Forked 1\.0\.0: feed\.test has other content under this name/);
  // What was the same is remembered: neither the upstream nor the file is asked again, as long as the file is the same.
  const asked = upstream.upstream.asked.length;
  const again = await bring(place, '--only', 'Public');
  t.regex(again.stdout, /^imported: 0\nhere already: 0\nmirrored: 1\n/);
  t.is(upstream.upstream.asked.length, asked);
  await writeFile(join(place, 'public.nupkg'), await plain('Public', { 'lib/a.dll': Buffer.alloc(5000, 3) }));
  t.regex((await bring(place, '--only', 'Public')).stderr, /^conflict: Public 1\.0\.0: feed\.test has other content/m);
  await writeFile(join(place, 'second.nupkg'), await makeNupkg({ id: 'Public', version: '2.0.0' }));
  const newer = await bring(place, '--only', 'Public', '--dry-run');
  t.regex(newer.stdout, /^to import: 2 \(/);
  await rm(join(place, 'second.nupkg'));
  t.deepEqual([await got('public'), await got('forked')], mirrored);
  const own = await bring(place, '--hosted', '--only', 'Fork*');
  t.regex(own.stdout, /^imported: 1 \(/);
  t.deepEqual(await got('forked'), await readFile(join(place, 'forked.nupkg')));
  // A source that sends other bytes than it tells, and one without a version.
  const entry = { packageHash: 'AAAA', packageHashAlgorithm: 'SHA512' };
  await upstream.offer({ id: 'Wrong', versions: [{ version: '1.0.0', entry }] });
  const wrong = await bring(`${upstream.url}/index.json`, '--hosted', '--names', await file('names', 'Wrong\nMissing'));
  t.regex(wrong.stderr, /^failed: Wrong 1\.0\.0: The source sent content with another hash than it tells$/m);
  t.regex(wrong.stderr, /^failed: Missing.*: The source lists this package and has no version of it$/m);
  const originOf = async (id: string) => ((await (await target.fetch(`/v1/packages/${id}`)).json()) as any).origin;
  t.deepEqual(await Promise.all(['Public', 'Forked', 'Own'].map(originOf)), ['mirrored', 'hosted', 'hosted']);
});

test('a large package that an upstream has, too, and that is not stored yet, is mirrored', async (t) => {
  const upstream = await UpstreamFeed.start(t);
  const nupkg = await makeNupkg({ id: 'Public', version: '1.0.0', payloadBytes: 24 * 2 ** 20 });
  await upstream.offer({ id: 'Public', versions: [{ version: '1.0.0', nupkg }] });
  const { bring, folder } = await startImporting(t, [upstream.as('feed.test')]);
  const place = join(folder, 'packages');
  await mkdir(place);
  await writeFile(join(place, 'public.nupkg'), nupkg);
  const done = await bring(place);
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.regex(done.stdout, /^imported: 0\nhere already: 0\nmirrored: 1\n/);
});

test('the folder of BaGetter with its database: dates, unlisted versions and downloads, and versions whose file is missing', async (t) => {
  const { target, bring, folder, file } = await startImporting(t);
  for (const version of ['1.0.0', '2.0.0', '4.0.0', '5.0.0']) {
    const place = join(folder, 'bagetter/packages/contoso.core', version);
    await mkdir(place, { recursive: true });
    const nupkg = await makeNupkg({ id: 'Contoso.Core', version });
    await writeFile(join(place, `contoso.core.${version}.nupkg`), nupkg);
    await utimes(join(place, `contoso.core.${version}.nupkg`), new Date('2019-05-06'), new Date('2019-05-06'));
  }
  const database = new DatabaseSync(join(folder, 'bagetter/bagetter.db'));
  // The columns of BaGetter that are read, and some of the others.
  database.exec(`CREATE TABLE "Packages" ("Key" INTEGER NOT NULL CONSTRAINT "PK_Packages" PRIMARY KEY AUTOINCREMENT,
    "Id" TEXT COLLATE NOCASE NOT NULL, "Version" TEXT COLLATE NOCASE NOT NULL, "OriginalVersion" TEXT NULL, "Authors" TEXT NULL,
    "Downloads" INTEGER NOT NULL, "Listed" INTEGER NOT NULL, "Published" TEXT NOT NULL, "SemVerLevel" INTEGER NOT NULL)`);
  const add = database.prepare(
    'INSERT INTO "Packages" ("Id", "Version", "Downloads", "Listed", "Published", "SemVerLevel") VALUES (?, ?, ?, ?, ?, 0)',
  );
  add.run('Contoso.Core', '1.0.0', 41, 1, '2020-02-03 04:05:06.7890123');
  add.run('Contoso.Core', '2.0.0.0', 7, 0, '2021-02-03 04:05:06Z');
  add.run('Contoso.Core', '3.0.0', 7, 1, '2022-02-03 04:05:06');
  add.run('contoso.core', '4.0.0', -5, 1, 'never');
  add.run('Contoso.Core', '5.0.0', 1.5, 1, '0001-01-01 00:00:00');
  add.run('Contoso.Core', 'no version', 7, 1, '2022-02-03 04:05:06');
  const done = await bring(join(folder, 'bagetter'));
  t.is(done.code, 1);
  t.regex(done.stdout, /^imported: 4 \(/);
  t.is(
    done.stderr,
    'failed: Contoso.Core 3.0.0: The database lists this version, and its file is missing\nentrepot: 1 did not come\n',
  );
  const states = async () =>
    (await versionsOf(new TestFeed(target), 'contoso.core')).map(({ version, listed, published }: any) => [
      version,
      listed,
      published,
    ]);
  const fileTime = '2019-05-06T00:00:00.000+00:00';
  t.deepEqual(await states(), [
    ['1.0.0', true, '2020-02-03T04:05:06.789+00:00'],
    ['2.0.0', false, '1900-01-01T00:00:00+00:00'],
    ['4.0.0', true, fileTime],
    ['5.0.0', true, fileTime],
  ]);
  const detail = (await (await target.fetch('/v1/packages/Contoso.Core')).json()) as any;
  t.deepEqual(detail.versions.map(({ version, download_count: count }: any) => [version, count]).toSorted(), [
    ['1.0.0', 41],
    ['2.0.0', 7],
    ['4.0.0', 0],
    ['5.0.0', 0],
  ]);
  // The database says now that one is listed; a filter is for what it lists, too.
  database.exec(`UPDATE "Packages" SET "Listed" = 1 WHERE "Version" = '2.0.0.0'`);
  database.close();
  const recent = await bring(join(folder, 'bagetter'), '--since', '2021-01-01');
  t.regex(recent.stdout, /^imported: 0\nhere already: 0\nupdated: 1\n/);
  t.deepEqual((await states())[1], ['2.0.0', true, '2021-02-03T04:05:06.000+00:00']);
  for (const filter of [
    ['--only', 'Other*'],
    ['--names', await file('names', 'Other')],
  ]) {
    const filtered = await bring(join(folder, 'bagetter'), ...filter);
    t.regex(filtered.stderr, /^entrepot: .*bagetter has nothing that can be imported\n$/, filter[0]);
  }
  await writeFile(join(folder, 'bagetter/bagetter.db'), 'no database');
  const broken = await bring(join(folder, 'bagetter'));
  t.regex(broken.stderr, /bagetter\.db cannot be read as the database of BaGetter/);
  // A file with such a name says nothing of packages in other folders.
  await mkdir(join(folder, 'plain'));
  await writeFile(join(folder, 'plain/notes.db'), 'no database');
  await writeFile(join(folder, 'plain/a.nupkg'), await makeNupkg({ id: 'Plain', version: '1.0.0' }));
  t.regex((await bring(join(folder, 'plain'))).stdout, /^imported: 1 \(/);
});

/** A package with one version. */
const made = async (id: string, payloadBytes = 10) => ({
  id,
  versions: [{ version: '1.0.0', nupkg: await makeNupkg({ id, version: '1.0.0', payloadBytes }) }],
});
const fileIn = (id: string) => `/flat/${id}/1.0.0/${id}.1.0.0.nupkg`;
const importedLine = (id: string, bytes: number, version = '1.0.0') => [id, version, 'imported', bytes, undefined];
const presentLine = (id: string, note: string, version = '1.0.0') => [id, version, 'present', 0, note];

test('what a feed tells: pages elsewhere, no registration, no length, a coding, too much, wrong deprecations, dates', async (t) => {
  const source = await UpstreamFeed.start(t);
  const [chunked, full, large, plain] = await Promise.all([
    made('Chunked'),
    made('Full', 3000),
    made('Large', 3001),
    made('Plain'),
  ]);
  const [quiet, zipped] = await Promise.all([made('Quiet'), made('Zipped')]);
  const bytesOf = ({ versions: [first] }: typeof full) => first!.nupkg;
  for (const each of [chunked, full, large, plain, zipped]) await source.offer(each);
  await source.offer({ ...quiet, versions: [{ ...quiet.versions[0]!, published: '1900-01-01T00:00:00+00:00' }] });
  const published = ['2021-12-31T23:59:59Z', '2022-01-01T00:00:00Z'];
  const versions = await Promise.all(
    published.map(async (each, at) => {
      const version = `${at + 1}.0.0`;
      const deprecation = at === 0 ? { reasons: ['Other'] } : { reasons: ['Legacy', 'Legacy'], message: 'Old.' };
      const nupkg = await makeNupkg({ id: 'Paged', version });
      return { version, nupkg, published: each, entry: { deprecation } };
    }),
  );
  await source.offer({ id: 'Paged', versions, pageSize: 1 });
  source.upstream.on('/registration/plain/index.json', answer(404));
  source.upstream.on(fileIn('chunked'), serve(bytesOf(chunked), { length: false }));
  const coded = gzipSync(bytesOf(zipped));
  source.upstream.on(fileIn('zipped'), answer(200, { 'content-encoding': 'gzip' }, coded));
  // One that only the registration has.
  source.upstream.on('/flat/full/index.json', answer(404));
  const limit = bytesOf(full).length;
  const { target, bring, file: write, folder } = await startImporting(t, [], { ENTREPOT_LIMITS_NUPKG: String(limit) });
  const names = await write('names', 'Chunked\nFull\nLarge\nPaged\nPlain\nQuiet\nZipped\n');
  let runs = 0;
  const run = async (...words: string[]) => {
    const report = join(folder, `report-${(runs += 1)}`);
    await bring(`${source.url}/index.json`, '--names', names, '--report', report, ...words);
    const lines = (await readFile(report, 'utf8'))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    return lines
      .map(({ name, reference, outcome, bytes, note }) => [name, reference, outcome, bytes, note])
      .toSorted((one, other) => (`${one[0]} ${one[1]}` < `${other[0]} ${other[1]}` ? -1 : 1));
  };
  const others = [
    importedLine('Paged', versions[0]!.nupkg.length),
    importedLine('Paged', versions[1]!.nupkg.length, '2.0.0'),
    importedLine('Plain', bytesOf(plain).length),
    importedLine('Quiet', bytesOf(quiet).length),
  ];
  t.deepEqual(await run('--dry-run'), [
    importedLine('Chunked', 0),
    importedLine('Full', limit),
    importedLine('Large', bytesOf(large).length),
    ...others,
    importedLine('Zipped', coded.length),
  ]);
  const recent = await run('--dry-run', '--since', '2022-01-01');
  t.deepEqual(
    recent.map(([id, version]) => [id, version]),
    [
      ['Paged', '2.0.0'],
      ['Plain', '1.0.0'],
      ['Quiet', '1.0.0'],
    ],
  );
  t.deepEqual(await run(), [
    importedLine('Chunked', bytesOf(chunked).length),
    importedLine('Full', limit),
    ['Large', '1.0.0', 'failed', 0, `The package is larger than the ${limit} bytes allowed here.`],
    ...others,
    importedLine('Zipped', bytesOf(zipped).length),
  ]);
  const feed = new TestFeed(target);
  const legacy = { message: 'Old.', reasons: ['Legacy'] };
  t.deepEqual(
    (await versionsOf(feed, 'paged')).map(({ listed, published: time, each }: any) => [listed, time, each]),
    [
      [true, '2021-12-31T23:59:59.000+00:00', undefined],
      [true, '2022-01-01T00:00:00.000+00:00', legacy],
    ],
  );
  t.is((await versionsOf(feed, 'quiet'))[0].listed, false);
  t.is((await versionsOf(feed, 'plain'))[0].listed, true);
  // The source does not tell any more that it is unlisted, and has another file.
  source.upstream.on('/registration/quiet/index.json', answer(404));
  source.upstream.on(fileIn('zipped'), serve(Buffer.alloc(5)));
  const bySize = 'compared by the size: the source tells no hash';
  t.deepEqual(await run(), [
    presentLine('Chunked', 'the source tells neither a hash nor a size'),
    presentLine('Full', bySize),
    ['Large', '1.0.0', 'failed', 0, `The package is larger than the ${limit} bytes allowed here.`],
    presentLine('Paged', bySize),
    presentLine('Paged', bySize, '2.0.0'),
    presentLine('Plain', bySize),
    presentLine('Quiet', bySize),
    ['Zipped', '1.0.0', 'conflict', 0, 'other content is here under this name'],
  ]);
  t.is((await versionsOf(feed, 'quiet'))[0].listed, false);
});

test('a source that refuses HEAD is measured by GET, and so is one whose files are at addresses that are signed for GET', async (t) => {
  const source = await UpstreamFeed.start(t);
  const refusals = [403, 405, 501];
  const sizes = new Map<string, number>();
  for (const status of refusals) {
    const id = `Refused${status}`;
    const offered = await made(id, 40_000);
    await source.offer(offered);
    const bytes = offered.versions[0]!.nupkg;
    sizes.set(id, bytes.length);
    source.upstream.on(fileIn(id.toLowerCase()), (request, response) =>
      (request.method === 'HEAD' ? answer(status) : serve(bytes))(request, response),
    );
  }
  source.upstream.on('/flat/gone/index.json', json({ versions: ['1.0.0'] }));
  const { bring, file, folder } = await startImporting(t);
  const names = await file('names', [...sizes.keys(), 'Gone'].join('\n'));
  const run = async (name: string, ...words: string[]) => {
    await bring(`${source.url}/index.json`, '--names', names, '--report', join(folder, name), ...words);
    const lines = (await readFile(join(folder, name), 'utf8')).trimEnd().split('\n');
    return lines
      .map((line) => JSON.parse(line))
      .map(({ name, outcome, bytes }) => [name, outcome, bytes])
      .toSorted(([one], [other]) => (one < other ? -1 : 1));
  };
  const missing = ['Gone', 'failed', 0];
  t.deepEqual(await run('planned', '--dry-run'), [missing, ...[...sizes].map(([id, size]) => [id, 'imported', size])]);
  await run('first');
  t.deepEqual(await run('second'), [missing, ...[...sizes].map(([id]) => [id, 'present', 0])]);
});

test('packages that clients use come although their icon or readme cannot be used, or old tools have made them', async (t) => {
  const { target, bring, folder } = await startImporting(t);
  const place = join(folder, 'packages');
  await mkdir(place);
  const gif = Buffer.from('GIF89a');
  const packages: Record<string, Buffer> = {
    Fine: await makeNupkg({ id: 'Fine', icon: pngPixel, readme: '# Fine' }),
    Gif: await makeNupkg({ id: 'Gif', icon: gif, readme: '# Gif' }),
    Missing: await makeNupkg({ id: 'Missing', iconPath: 'none.png', readmePath: 'none.md' }),
    Large: await makeNupkg({ id: 'Large', icon: pngPixel, readme: randomBytes(2 ** 20 + 1) }),
    Old: writeZip([
      { name: 'Old.nuspec', data: makeNuspec({ id: 'Old', readmePath: 'docs\\README.md' }) },
      { name: 'lib\\net20\\Old.dll', data: 'code' },
      { name: 'docs\\README.md', data: '# Old' },
    ]),
  };
  const feed = new TestFeed(target);
  for (const [id, bytes] of Object.entries(packages)) {
    await writeFile(join(place, `${id}.nupkg`), bytes);
    if (id !== 'Fine') t.is((await feed.push(bytes)).status, 400, `${id} as a new package`);
  }
  const damaged = writeZip([
    { name: 'Damaged.nuspec', data: makeNuspec({ id: 'Damaged', iconPath: 'icon.png' }) },
    { name: 'icon.png', data: pngPixel, crc: 1 },
  ]);
  await writeFile(join(place, 'Damaged.nupkg'), damaged);
  const done = await bring(place);
  t.regex(done.stdout, /^imported: 5 \(/);
  t.regex(done.stderr, /^failed: Damaged 1\.0\.0: 'icon\.png' does not match its checksum/m);
  const statusOf = async (id: string, file: string) => (await feed.fetch(`/package/${id}/1.0.0/${file}`)).status;
  const shown = async (id: string) => [await statusOf(id, 'icon'), await statusOf(id, 'readme')];
  t.deepEqual(await Promise.all(['fine', 'gif', 'missing', 'large', 'old'].map(shown)), [
    [200, 200],
    [404, 200],
    [404, 404],
    [200, 404],
    [404, 200],
  ]);
  const [old] = await versionsOf(feed, 'old');
  t.is(old.version, '1.0.0');
  const got = await feed.fetch('/package/old/1.0.0/old.1.0.0.nupkg');
  t.deepEqual(Buffer.from(await got.arrayBuffer()), packages['Old']);
});

test('names come although the search of the source fails or sends what is none, without downloads', async (t) => {
  const source = await UpstreamFeed.start(t);
  for (const id of ['One', 'Two']) await source.offer(await made(id));
  const { bring, file } = await startImporting(t);
  const words = [`${source.url}/index.json`, '--names', await file('names', 'One\nTwo'), '--dry-run'];
  for (const broken of [answer(500), answer(400), answer(403), answer(200, {}, 'no JSON')]) {
    source.upstream.on('/query', broken);
    const before = source.upstream.asked.length;
    const planned = await bring(...words);
    t.is(planned.code, 0);
    t.regex(planned.stdout, /^to import: 2 \(/);
    t.is(
      planned.stderr,
      'warning: The search of the source fails, so packages come without the downloads that it has counted.\n',
    );
    const queries = source.upstream.asked.slice(before).filter(({ path }) => path.startsWith('/query'));
    t.is(new Set(queries.map(({ path }) => path)).size, 1, 'it is asked no more');
  }
});

test('a search that ends early is asked by first letters; autocompletion is enough; without both, names are needed', async (t) => {
  const source = await UpstreamFeed.start(t);
  const ids = ['A.One', 'B.Two', 'C.Three'];
  for (const id of ids) await source.offer(await made(id));
  let isHidden = false;
  source.upstream.on('/query', (request, response) => {
    const asked = new URL(request.url!, source.url).searchParams;
    const beginning = asked.get('q')!.toLowerCase();
    const found = ids.filter((id) => id.toLowerCase().startsWith(beginning));
    const isLater = Number(asked.get('skip') ?? 0) > 0;
    const shown = isLater ? [] : found.filter((id) => id !== 'C.Three' || (beginning !== '' && !isHidden));
    const data = shown.map((id) => ({ id, version: '1.0.0', versions: [{ version: '1.0.0', downloads: 1 }] }));
    json({ totalHits: found.length, data })(request, response);
  });
  const { 'SearchAutocompleteService/3.5.0': completion } = source.resources;
  delete source.resources['SearchAutocompleteService/3.5.0'];
  source.announce();
  const { bring, file } = await startImporting(t);
  const words = [`${source.url}/index.json`, '--dry-run'];
  const asked = () =>
    source.upstream.asked
      .filter(({ path }) => path.startsWith('/query'))
      .map(({ path }) => Object.fromEntries(new URL(path, source.url).searchParams));
  const planned = await bring(...words);
  t.deepEqual([planned.code, planned.stderr], [0, '']);
  t.regex(planned.stdout, /^to import: 3 \(/);
  const page = { q: '', prerelease: 'true', skip: '0', take: '200', semVerLevel: '2.0.0' };
  const next = { ...page, skip: '2' };
  const stable = { prerelease: 'false' };
  const first = [page, next, { ...page, ...stable }, { ...next, ...stable }];
  const letters = Array.from('abcdefghijklmnopqrstuvwxyz0123456789._-', (q) => ({ ...page, q }));
  t.deepEqual(asked(), [...first, ...letters]);
  t.regex((await bring(...words, '--only', 'b.*')).stdout, /^to import: 1 \(/);
  isHidden = true;
  t.is(
    (await bring(...words)).stderr,
    'warning: The source tells of 3 packages and lists 2: some may be missing. List them in a file, and name it with --names.\n',
  );
  t.regex((await bring(...words, '--names', await file('names', 'B.two'))).stdout, /^to import: 1 \(/);
  t.deepEqual(asked().at(-1), { q: 'B.two', prerelease: 'true', semVerLevel: '2.0.0', take: '20' });
  delete source.resources['SearchQueryService/3.5.0'];
  source.announce();
  t.regex((await bring(...words)).stderr, /^failed: the list of names: The source has no search\. List the packages/m);
  source.resources['SearchAutocompleteService/3.5.0'] = completion!;
  source.announce();
  t.regex((await bring(...words)).stdout, /^to import: 3 \(/);
});

test('an upstream that cannot be asked, has lost the file, or has other files under the same names', async (t) => {
  const upstream = await UpstreamFeed.start(t);
  const [one, two] = [Buffer.alloc(50, 1), Buffer.alloc(50, 2)];
  const next = await UpstreamFeed.start(t);
  const { target, bring, folder } = await startImporting(t, [upstream.as('feed.test'), next.as('next.test')]);
  const place = join(folder, 'packages');
  await mkdir(place);
  const plain = { version: '1.0.0', payloadBytes: 0 };
  const pairs: [id: string, here: Record<string, Buffer>, there: Record<string, Buffer>][] = [
    ['Lost', { a: one }, { a: one }],
    ['More', { a: one, b: two }, { a: one }],
    ['Renamed', { a: one, b: two }, { a: one, c: two }],
    ['Same', { b: two, a: one }, { a: one, b: two }],
    ['Unknown', { a: one }, { a: one }],
  ];
  for (const [id, here, there] of pairs) {
    await writeFile(join(place, `${id}.nupkg`), await makeNupkg({ ...plain, id, files: here }));
    await upstream.offer({
      id,
      versions: [{ version: '1.0.0', nupkg: await makeNupkg({ ...plain, id, files: there }) }],
    });
  }
  // The first upstream knows the ID and has no version of it any more.
  const second = await makeNupkg({ ...plain, id: 'Second', files: { a: one } });
  await writeFile(join(place, 'Second.nupkg'), second);
  await upstream.offer({ id: 'Second', versions: [] });
  await next.offer({ id: 'Second', versions: [{ version: '1.0.0', nupkg: second }] });
  upstream.upstream.on('/flat/lost/1.0.0/lost.1.0.0.nupkg', answer(404));
  upstream.upstream.on('/flat/unknown/index.json', answer(403));
  upstream.upstream.on('/registration/unknown/index.json', answer(403));
  const done = await bring(place);
  t.is(done.code, 1);
  t.regex(done.stdout, /^imported: 0\nhere already: 0\nmirrored: 2\nconflicts: 3\nfailed: 1\n/);
  for (const id of ['Lost', 'More', 'Renamed'])
    t.true(done.stderr.includes(`conflict: ${id} 1.0.0: feed.test has other content under this name; to serve`), id);
  t.regex(
    done.stderr,
    /^failed: Unknown: It is not known whether feed\.test has this package, too: .* Import it again later, or with --hosted$/m,
  );
  const origin = (await (await target.fetch('/v1/packages/Same')).json()) as any;
  t.is(origin.origin, 'mirrored');
  // The file of a version is there, although it is not known where it belongs.
  await mkdir(join(folder, 'bagetter/packages'), { recursive: true });
  await copyFile(join(place, 'Unknown.nupkg'), join(folder, 'bagetter/packages/unknown.1.0.0.nupkg'));
  const database = new DatabaseSync(join(folder, 'bagetter/bagetter.db'));
  database.exec(`CREATE TABLE "Packages" ("Key" INTEGER PRIMARY KEY, "Id" TEXT, "Version" TEXT, "Downloads" INTEGER,
    "Listed" INTEGER, "Published" TEXT); INSERT INTO "Packages" VALUES (1, 'Unknown', '1.0.0', 0, 1, '2020-02-03 04:05:06')`);
  database.close();
  const known = await bring(join(folder, 'bagetter'));
  t.regex(known.stderr, /^failed: Unknown: It is not known whether [^\n]*\nentrepot: 1 did not come\n$/);
  t.regex((await bring(place, '--hosted', '--only', 'Unknown')).stdout, /^imported: 1 \(/);
});

/** What a registration says. */
const versionsOf = async (feed: TestFeed, id: string) =>
  (await feed.json(`/registration-gz-semver2/${id}/index.json`)).items
    .flatMap(({ items }: any) => items)
    .map(({ catalogEntry: { version, listed, published, deprecation: each } }: any) => ({
      version,
      listed,
      published,
      each,
    }));
