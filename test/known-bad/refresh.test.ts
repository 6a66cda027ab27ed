import { appendFile, mkdir, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { KnownBad } from '../../src/known-bad/known-bad.ts';
import { dialects, openUntilEnd } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { hour, linesOf, listOf, openLists, osv, startListServer } from '../support/known-bad.ts';
import { writeZip } from '../support/builders/zip.ts';

const digest = `sha256:${'ab'.repeat(32)}` as const;
const other = `sha256:${'cd'.repeat(32)}` as const;

for (const dialect of dialects) {
  test(`${dialect}: a list in OSV's format says which packages are bad, in any letter case`, async (t) => {
    const folder = await folderUntilEnd(t);
    const file = join(folder, 'list.jsonl');
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })]);
    t.deepEqual(await lists.knownBad.of('package', 'evil'), [], 'before it is read');
    const ranges = [
      { type: 'GIT', events: [{ introduced: 'abc' }] },
      { type: 'ECOSYSTEM', events: [{ introduced: '1.0' }, { fixed: '2.0' }], database_specific: {} },
    ];
    const records = [
      osv('MAL-2026-1', 'Evil.Package', { summary: 'steals\n keys\u0007 ' }),
      osv('MAL-2026-2', 'Evil.Package', {
        affected: [
          { package: { ecosystem: 'NuGet', name: 'Evil.Package' }, ranges, versions: ['3.0'] },
          { package: { ecosystem: 'npm', name: 'evil.npm' }, versions: ['1.0.0'] },
          { package: { ecosystem: 'NuGet:more', name: 'Second' } },
        ],
      }),
      osv('GHSA-aaaa-bbbb-cccc', 'Evil.Package'),
      osv('MAL-2026-3', 'Withdrawn', { withdrawn: '2026-05-01T00:00:00Z' }),
      osv('MAL-2026-4', 'Taken.Back'),
      osv('MAL-2026-4', 'Taken.Back', { withdrawn: '2026-05-02T00:00:00Z' }),
      osv('MAL-2026-5', 'Renamed'),
      osv('MAL-2026-5', 'New.Name', { withdrawn: null }),
      { id: 'MAL-2026-6', modified: '2026-05-01T00:00:00Z' },
      osv('MAL-2026-7', 'Any.Version', {
        summary: 's'.repeat(501),
        withdrawn: '',
        affected: [
          { package: { ecosystem: 'NuGet', name: 'Any.Version' }, ranges: ranges.slice(0, 1), versions: [] },
          { package: null, versions: ['1.0.0'] },
          { versions: ['1.0.0'] },
        ],
      }),
      osv('MAL-2026-8', 'n'.repeat(255), { summary: null }),
    ];
    await writeFile(file, linesOf(records));
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 6 });
    const anyVersion = { list: 'osv', id: 'MAL-2026-7', reason: 's'.repeat(500) };
    t.deepEqual(await lists.knownBad.of('package', 'any.version'), [anyVersion], 'a range of commits is none');
    t.like(await lists.knownBad.of('package', 'n'.repeat(255)), [{ id: 'MAL-2026-8', reason: '' }]);
    t.deepEqual(await lists.knownBad.of('package', 'EVIL.package'), [
      { list: 'osv', id: 'MAL-2026-1', reason: 'steals keys', ranges: [[{ introduced: '0' }]] },
      {
        list: 'osv',
        id: 'MAL-2026-2',
        reason: 'Evil.Package is malware',
        ranges: [[{ introduced: '1.0' }, { fixed: '2.0' }]],
        versions: ['3.0'],
      },
    ]);
    t.deepEqual(await lists.idsOf('second'), ['MAL-2026-2']);
    t.deepEqual(await lists.idsOf('new.name'), ['MAL-2026-5']);
    for (const name of ['evil.npm', 'withdrawn', 'taken.back', 'renamed', 'evil'])
      t.deepEqual(await lists.idsOf(name), [], name);
    t.deepEqual(await lists.knownBad.of('image', 'evil.package'), []);
    const again = dialect === 'sqlite' ? t.is : t.deepEqual;
    // MySQL answers from memory only with Redis.
    const { knownBad } = lists;
    again(await knownBad.of('package', 'evil.package'), await knownBad.of('package', 'Evil.Package'), 'from memory');
  });

  test(`${dialect}: own entries name packages, images and digests, and need no pattern of IDs`, async (t) => {
    const folder = await folderUntilEnd(t);
    const file = join(folder, 'own.json');
    const lists = await openLists(t, dialect, [listOf({ name: 'own', file })]);
    const own = [
      { id: 'SEC-1', reason: 'a backdoor', digests: [digest], images: ['docker.io/Evil/*', 'ghcr.io/bad/app'] },
      {
        id: 'SEC-2',
        packages: [{ id: 'Foo', versions: '[1.0,2.0)' }, { id: 'Foo', versions: '[3.0]' }, { id: 'Bar' }],
      },
      { id: 'SEC-3', digests: [other], withdrawn: '2026-05-01T00:00:00Z' },
    ];
    await writeFile(file, `\uFEFF${JSON.stringify(own, null, 2)}`);
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 6 });
    const found = async (name: string) => (await lists.knownBad.of('image', name)).map(({ id }) => id);
    t.deepEqual(await found('docker.io/evil/any/app'), ['SEC-1']);
    t.deepEqual(await found('ghcr.io/bad/app'), ['SEC-1']);
    t.deepEqual(await found('ghcr.io/bad/app2'), []);
    t.deepEqual(await found('ghcr.io/docker.io/evil/app'), []);
    t.like((await lists.knownBad.ofDigests([digest])).get(digest)![0], {
      list: 'own',
      id: 'SEC-1',
      reason: 'a backdoor',
    });
    t.is((await lists.knownBad.ofDigests([other, digest])).get(other), undefined);
    const unlisted = Array.from({ length: 500 }, (_, at) => `sha256:${at.toString(16).padStart(64, '0')}`);
    t.deepEqual([...(await lists.knownBad.ofDigests([...unlisted, digest])).keys()], [digest], 'of many digests');
    const foo = await lists.knownBad.of('package', 'foo');
    t.deepEqual(
      foo.map(({ range }) => range),
      ['[1.0,2.0)', '[3.0]'],
    );
    t.deepEqual(await lists.idsOf('bar'), ['SEC-2']);
  });

  test(`${dialect}: a list is read again when its time has come, its settings change, or it failed`, async (t) => {
    const folder = await folderUntilEnd(t);
    const file = join(folder, 'list.jsonl');
    await writeFile(file, linesOf([osv('MAL-1', 'a'), osv('GHSA-1', 'b')]));
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })]);
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 1 });
    t.deepEqual(await lists.refresh(), {}, 'not due');
    const elsewhere = new KnownBad(await openUntilEnd(t, lists.url), () => Promise.resolve(lists.lists));
    t.deepEqual(await elsewhere.of('package', 'b'), []);
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_unchanged: 1 });
    t.like((await lists.knownBad.states(lists.clock.now))[0], {
      refreshedAt: lists.clock.now,
      checkedAt: lists.clock.now,
      entries: 1,
    });
    lists.clock.now += 5 * hour;
    t.deepEqual(await lists.refresh(), {});
    lists.lists = [listOf({ name: 'osv', file, ids: ['ghsa-*'] })];
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 1 });
    t.deepEqual([await lists.idsOf('a'), await lists.idsOf('b')], [[], ['GHSA-1']]);
    t.like(await elsewhere.of('package', 'b'), [{ id: 'GHSA-1' }], 'another instance knows it at once');
    lists.clock.now -= 24 * hour;
    t.deepEqual(await lists.refresh(), { lists_unchanged: 1 }, 'the clock was set back');

    await rm(file);
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_failed: 1 });
    lists.clock.now += hour;
    t.deepEqual(await lists.refresh(), { lists_failed: 1 }, 'tried again');
    const failure = 'cannot be read: there is no such file or folder';
    t.like((await lists.knownBad.states(lists.clock.now))[0], {
      refreshedAt: lists.clock.now - 7 * hour,
      checkedAt: lists.clock.now,
      failedAt: lists.clock.now,
      failures: 2,
      failure,
      entries: 1,
    });
    t.deepEqual(await lists.idsOf('b'), ['GHSA-1'], 'the last good one stays');
    await writeFile(file, linesOf([osv('GHSA-1', 'b'), osv('GHSA-2', 'c')]));
    lists.lists = [listOf({ name: 'osv', file, ids: ['ghsa-*'], refresh: 48 * hour })];
    t.deepEqual(
      await lists.refresh(),
      { lists_read: 1, entries: 2 },
      'at once, although it is read every two days now',
    );
    lists.lists = [listOf({ name: 'osv', file, ids: ['ghsa-*'] })];
    t.like((await lists.knownBad.states(lists.clock.now))[0], { failures: 0, failure, failedAt: lists.clock.now });
    // Another byte, the same entries.
    await appendFile(file, '\n');
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 2 });
    await rm(file);
    lists.clock.now += 6 * hour;
    await lists.refresh();
    t.deepEqual(await lists.events(), [
      'known_bad.refreshed osv {"entries":1,"entries_before":0,"in_use":0}',
      'known_bad.refreshed osv {"entries":1,"entries_before":1,"in_use":0}',
      `known_bad.failed osv {"reason":"${failure}"}`,
      'known_bad.refreshed osv {"entries":2,"entries_before":1,"in_use":0}',
      `known_bad.failed osv {"reason":"${failure}"}`,
    ]);
    lists.lists = [];
    t.deepEqual(await lists.refresh(), { lists_removed: 1 });
    t.deepEqual(await lists.idsOf('b'), []);
    t.deepEqual(await lists.database.select('SELECT 1 FROM bad_entries UNION SELECT 1 FROM bad_lists'), []);
  });

  test(`${dialect}: a folder and a zip are lists, and two lists do not touch each other`, async (t) => {
    const folder = await folderUntilEnd(t);
    const below = join(folder, 'osv/malicious/nuget/a');
    await mkdir(below, { recursive: true });
    await writeFile(join(below, 'MAL-1.json'), JSON.stringify(osv('MAL-1', 'a'), null, 2));
    await writeFile(join(folder, 'more.jsonl'), linesOf([osv('MAL-2', 'b'), osv('MAL-3', 'c')]));
    await writeFile(join(folder, 'README.md'), 'no record');
    const file = join(await folderUntilEnd(t), 'all.zip');
    await writeFile(
      file,
      writeZip([
        { name: 'osv/' },
        { name: 'osv/MAL-1.json', data: JSON.stringify(osv('MAL-1', 'a')) },
        { name: 'osv/readme.md', data: '#' },
      ]),
    );
    const lists = await openLists(t, dialect, [
      listOf({ name: 'folder', file: folder }),
      listOf({ name: 'zip', file }),
    ]);
    t.deepEqual(await lists.refresh(), { lists_read: 2, entries: 4 });
    t.deepEqual(
      (await lists.knownBad.of('package', 'a')).map(({ list }) => list),
      ['folder', 'zip'],
    );
    t.deepEqual([await lists.idsOf('b'), await lists.idsOf('c')], [['MAL-2'], ['MAL-3']]);

    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_unchanged: 2 });
    await writeFile(join(below, 'MAL-1.json'), JSON.stringify(osv('MAL-1', 'z'), null, 2));
    await utimes(join(below, 'MAL-1.json'), 1, 1);
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_read: 1, lists_unchanged: 1, entries: 3 });
    t.deepEqual(
      (await lists.knownBad.of('package', 'a')).map(({ list }) => list),
      ['zip'],
    );
    lists.lists = lists.lists.slice(0, 1);
    await lists.refresh();
    t.deepEqual([await lists.idsOf('a'), await lists.idsOf('z')], [[], ['MAL-1']]);
  });

  test(`${dialect}: a URL is asked conditionally, and its redirects are followed`, async (t) => {
    let body: Buffer | string = linesOf([osv('MAL-1', 'a')]);
    let etag = '"1"';
    const upstream = await startListServer(t, (request, response) => {
      if (request.url === '/moved') response.writeHead(302, { location: '/list' }).end();
      else if (request.headers['if-none-match'] === etag) response.writeHead(304).end();
      else response.writeHead(200, { etag }).end(body);
    });
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', url: `${upstream.url}/moved` })]);
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 1 });
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_unchanged: 1 });
    etag = '"2"';
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_unchanged: 1 }, 'the same bytes');
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_unchanged: 1 });
    t.is(upstream.requests.at(-1)!.headers['if-none-match'], '"2"', 'the new one is kept');
    etag = '"3"';
    body = writeZip([{ name: 'MAL-2.json', data: JSON.stringify(osv('MAL-2', 'b')) }]);
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 1 });
    t.deepEqual([await lists.idsOf('a'), await lists.idsOf('b')], [[], ['MAL-2']]);
    lists.lists = [listOf({ name: 'osv', url: `${upstream.url}/list` })];
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 1 }, 'another URL is asked without a condition');
    t.is(upstream.requests.at(-1)!.headers['if-none-match'], undefined);
    for (const length of [255, 256]) {
      etag = 'e'.repeat(length);
      for (const what of ['it is told', 'it is sent']) {
        lists.clock.now += 6 * hour;
        t.deepEqual(await lists.refresh(), { lists_unchanged: 1 }, what);
      }
      t.is(upstream.requests.at(-1)!.headers['if-none-match'], 'e'.repeat(255), 'a longer one is not kept');
    }
  });
}
