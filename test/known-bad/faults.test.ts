import { execFileSync } from 'node:child_process';
import { mkdir, readdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import test from 'ava';
import type { ListLimits } from '../../src/known-bad/entry.ts';
import { writeZip } from '../support/builders/zip.ts';
import { dialects } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { hour, linesOf, listOf, openLists, osv, startListServer, type ListServer } from '../support/known-bad.ts';
import { freePort } from '../support/processes/services.ts';

const good = [osv('MAL-0', 'kept')];
const goodZip = writeZip([{ name: 'MAL-1.json', data: JSON.stringify(osv('MAL-1', 'a')) }]);
const many = Array.from({ length: 30 }, (_, index) => osv(`MAL-${index}`, `p${index}`));
const long = 'x'.repeat(2 ** 20);

/** What a list file holds, what its refusal says, and lower bounds under which it is too much. */
const badFiles: [what: string, bytes: Buffer | string, reason: RegExp, limits?: Partial<ListLimits>][] = [
  ['nothing', '', /^has no records; a list that is empty on purpose is the file \[\]$/],
  ['blank lines', '\n\r\n', /^has no records/],
  ['a page', '<html>Not found</html>', /^has a record that is no JSON, or not complete: line 1$/],
  ['half a record', linesOf(many).slice(0, -20), /no JSON, or not complete: line 30$/],
  ['half a document', JSON.stringify(many, null, 2).slice(0, -20), /no JSON, or not complete: line 1$/],
  ['half a zip', goodZip.subarray(0, -30), /^cannot be read: The zip file is not valid, or not complete/],
  ['a damaged zip', writeZip([{ name: 'MAL-1.json', data: '{}', crc: 1 }]), /does not match its checksum/],
  ['a zip without records', writeZip([{ name: 'README.md', data: '# osv' }]), /^has no records/],
  ['a zip with a wrong record', writeZip([{ name: 'a/MAL-1.json', data: '{' }]), /not complete: a\/MAL-1\.json$/],
  ['a zip bomb', writeZip([{ name: 'GHSA-1.json', data: Buffer.alloc(2 ** 21) }]), /It looks like a zip bomb/],
  [
    'a zip that declares 10 GB',
    writeZip([1, 2, 3].map((each) => ({ name: `${each}.json`, data: '{}', size: 3.5e9, compressedSize: 3.4e9, method: 0 }))),
    /^cannot be read: /,
  ],
  [
    'a zip with more than 2 GiB',
    writeZip([1, 2, 3].map((each) => ({ name: `${each}.json`, data: Buffer.alloc(8e6), size: 8e8 }))),
    /(?:bomb|more than 2147483648 bytes)/,
  ],
  ['a zip with too many records', writeZip(many.map((each, n) => ({ name: `${n}.json`, data: JSON.stringify(each) }))), /more than 29 entries/, { records: 29 }],
  ['a zip with too large a record', writeZip([{ name: 'x/MAL-1.json', data: JSON.stringify(Array.from({ length: 900 }, () => 'x')) }]), /more than 1000 bytes: x\/MAL-1\.json$/, { recordBytes: 1000 }],
  ['an endless line', `${JSON.stringify(good[0])}\n${long}x`, /^has a line of more than 1048576 bytes/],
  ['too many records', linesOf(many), /^has more than 29 records$/, { records: 29 }],
  ['too many bytes', linesOf(many), /^has more than 5000 bytes of records$/, { unpackedBytes: 5000 }],
  ['a file that is too large', linesOf(many), /^is larger than 5000 bytes$/, { fileBytes: 5000 }],
  ['too many entries', linesOf(many), /^has more than 29 entries$/, { entries: 29 }],
  ['too many bytes of entries', linesOf(many), /^has more than 1000 bytes of entries$/, { entryBytes: 1000 }],
  [
    'too many entries of one name',
    linesOf(many.map((_, index) => osv(`MAL-${index}`, 'same'))),
    /^has more than 29 entries, or 1048576 bytes, for package same$/,
    { entriesOfName: 29 },
  ],
  [
    'too many patterns',
    linesOf(many.map((_, index) => ({ id: `S-${index}`, images: [`${index}/*`] }))),
    /^has more than 29 entries, or 1048576 bytes, for patterns$/,
    { entriesOfName: 29 },
  ],
  [
    'too many bytes of one name',
    linesOf(many.map((_, index) => osv(`MAL-${index}`, 'same'))),
    /^has more than 1000 entries, or 1000 bytes, for package same$/,
    { bytesOfName: 1000 },
  ],
  ['a record that is none', '[1]', /^has a record that cannot be used: record 1: /],
  ['a record without an ID', linesOf([{ summary: 'x' }]), /cannot be used: record 1: id: /],
  ['an ID of 101 characters', linesOf([osv('M'.repeat(101), 'a')]), /record 1: id: expected 1 to 100 characters/],
  ['an empty version', linesOf([osv('MAL-1', 'a', { affected: [{ versions: [''] }] })]), /affected\.0\.versions\.0: /],
  ['a version of 256 characters', linesOf([osv('MAL-1', 'a', { affected: [{ versions: ['1'.repeat(256)] }] })]), /affected\.0\.versions\.0: /],
  ['too many packages', linesOf([osv('MAL-1', 'a', { affected: Array.from({ length: 1001 }, () => ({})) })]), /record 1: affected: .*1000/],
  ['too many ranges', linesOf([osv('MAL-1', 'a', { affected: [{ ranges: Array.from({ length: 1001 }, () => ({ type: 'SEMVER', events: [] })) }] })]), /affected\.0\.ranges: .*1000/],
  ['an empty name of an image', linesOf([{ id: 'S-1', images: [''] }]), /record 1: images\.0: /],
  ['an image with a space', linesOf([{ id: 'S-1', images: ['a/b c'] }]), /images\.0: expected names or patterns of images$/],
  ['a long name of an image', linesOf([{ id: 'S-1', images: ['a'.repeat(256)] }]), /images\.0: .*255/],
  ['too many images', linesOf([{ id: 'S-1', images: Array.from({ length: 1001 }, () => 'a') }]), /record 1: images: .*1000/],
  ['too many digests', linesOf([{ id: 'S-1', digests: Array.from({ length: 1001 }, () => `sha256:${'a'.repeat(64)}`) }]), /record 1: digests: .*1000/],
  ['too many own packages', linesOf([{ id: 'S-1', packages: Array.from({ length: 1001 }, () => ({ id: 'a' })) }]), /record 1: packages: .*1000/],
  ['a package with a space', linesOf([{ id: 'S-1', packages: [{ id: 'a b' }] }]), /packages\.0\.id: expected the ID of a package$/],
  ['an unknown key of a package', linesOf([{ id: 'S-1', packages: [{ id: 'a', version: '1.0' }] }]), /packages\.0: Unrecognized key: "version"$/],
  ['a range without an end', linesOf([{ id: 'S-1', packages: [{ id: 'a', versions: '[1.0' }] }]), /packages\.0\.versions: expected a range/],
  ['a range without a begin', linesOf([{ id: 'S-1', packages: [{ id: 'a', versions: '1.0)' }] }]), /packages\.0\.versions: expected a range/],
  ['a range that is too long', linesOf([{ id: 'S-1', packages: [{ id: 'a', versions: '1'.repeat(521) }] }]), /packages\.0\.versions: .*520/],
  ['a key that is too long for a message', linesOf([{ id: 'S-1', packages: [], ['k'.repeat(1000)]: 1 }]), /^(?=.{500}$)has a record that cannot be used: record 1: Unrecognized key: "k+$/],
  ['a record with too many values', linesOf([...good, { id: 'MAL-1', values: Array.from({ length: 60_001 }, () => 1) }]), /^has a record with more than 60000 values: line 2$/],
  ['an ID with a space', linesOf([osv('MAL 1', 'a')]), /record 1: id: expected 1 to 100 characters/],
  ['affected that is no list', linesOf([osv('MAL-1', 'a', { affected: {} })]), /record 1: affected: /],
  ['an event that is no version', linesOf([osv('MAL-1', 'a', { affected: [{ ranges: [{ type: 'SEMVER', events: [{ introduced: 1 }] }] }] })]), /affected\.0\.ranges\.0\.events\.0\.introduced/],
  ['too many events', linesOf([osv('MAL-1', 'a', { affected: [{ ranges: [{ type: 'SEMVER', events: Array.from({ length: 1001 }, () => ({ introduced: '0' })) }] }] })]), /ranges\.0\.events: .*1000/],
  ['too many versions', linesOf([osv('MAL-1', 'a', { affected: [{ versions: Array.from({ length: 10_001 }, String) }] })]), /versions: .*10000/],
  ['too long a name', linesOf([osv('MAL-1', 'n'.repeat(256))]), /^has a record with a name of more than 255 characters: MAL-1$/],
  ['an unknown key', linesOf([{ id: 'S-1', digest: 'x', packages: [] }]), /record 1: Unrecognized key: "digest"/],
  ['a record that names all images', linesOf([{ id: 'S-1', images: ['a/*'] }, { id: 'S-2', images: ['*/*'] }]), /line 2: images\.0: expected a pattern that does not mean all images$/],
  ['a wrong digest', linesOf([{ id: 'S-1', digests: ['sha256:abc'] }]), /digests\.0: expected sha256:<64 hex>/],
  ['a wrong range', linesOf([{ id: 'S-1', packages: [{ id: 'a', versions: '1.0 - 2.0' }] }]), /packages\.0\.versions: expected a range/],
]; // prettier-ignore

for (const dialect of dialects) {
  test(`${dialect}: a list that cannot be used changes nothing, and says why`, async (t) => {
    const file = join(await folderUntilEnd(t), 'list');
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })]);
    for (const [what, bytes, reason, limits = {}] of badFiles) {
      lists.limits = {};
      await writeFile(file, linesOf(good));
      lists.clock.now += 6 * hour;
      await lists.refresh();
      t.like((await lists.knownBad.states(lists.clock.now))[0], { failures: 0, entries: 1 });
      lists.limits = limits;
      await writeFile(file, bytes);
      lists.clock.now += 6 * hour;
      t.deepEqual(await lists.refresh(), { lists_failed: 1 }, what);
      t.regex((await lists.knownBad.states(lists.clock.now))[0]!.failure!, reason, what);
      t.deepEqual(await lists.idsOf('kept'), ['MAL-0'], what);
      t.is((await lists.database.select('SELECT id FROM bad_entries')).length, 1, `${what}: nothing is left`);
    }
    t.is((await lists.events()).length, badFiles.length + 1, 'each failure after a success, and the first entries');
  });

  test(`${dialect}: what does not count is not examined, and an empty list may be empty on purpose`, async (t) => {
    const folder = await folderUntilEnd(t);
    const file = join(folder, 'list');
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file })], { limits: { recordBytes: 1000 } });
    const large = JSON.stringify({ id: 'GHSA-1', text: 'x'.repeat(2000) });
    const record = { name: 'MAL-1.json', data: JSON.stringify(osv('MAL-1', 'a')) };
    await writeFile(
      file,
      writeZip([
        record,
        { name: 'GHSA-1.json', data: large },
        { name: 'GHSA-2.json', data: '{"id":"GHSA-2","affected":7}' },
      ]),
    );
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 1 });
    await writeFile(file, writeZip([{ name: 'GHSA-1.json', data: large }]));
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_read: 1 }, 'it has a record, and none that counts');
    t.deepEqual(await lists.idsOf('a'), []);
    const text = linesOf(many);
    const longest = 'p29 is malware';
    const details = many.map(({ summary: reason }) => JSON.stringify({ reason, ranges: [[{ introduced: '0' }]] }));
    const bytesOfName = Math.max(...details.map((each) => each.length));
    const entryBytes = details.join('').length;
    const bounds = { records: 30, entries: 30, entriesOfName: 1, bytesOfName, entryBytes };
    const recordBytes = JSON.stringify(many.find(({ summary }) => summary === longest)).length;
    for (const [name, bytes, limits] of [
      ['lines', text, { fileBytes: text.length, unpackedBytes: text.length - 30, recordBytes }],
      ['blank lines', `\n\r\n${text.replaceAll('\n', '\n\n')}`, { unpackedBytes: text.length - 30, recordBytes }],
      ['a document', JSON.stringify(many), { unpackedBytes: JSON.stringify(many).length }],
      [
        'a zip',
        writeZip(many.map((each) => ({ name: `${String(each['id'])}.json`, data: JSON.stringify(each) }))),
        { unpackedBytes: text.length - 30, recordBytes },
      ],
    ] as const) {
      lists.limits = { ...bounds, ...limits };
      await writeFile(file, '[]');
      lists.clock.now += 6 * hour;
      t.deepEqual(await lists.refresh(), { lists_read: 1 });
      await writeFile(file, bytes);
      lists.clock.now += 6 * hour;
      t.deepEqual(
        await lists.refresh(),
        { lists_read: 1, entries: 30 },
        `${name}: each bound is reached and not passed`,
      );
    }
  });

  test(`${dialect}: of a folder, files with records are read, up to the bounds`, async (t) => {
    const folder = await folderUntilEnd(t);
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', file: folder })], {
      limits: { recordBytes: 1000 },
    });
    const large = JSON.stringify({ id: 'x', text: 'x'.repeat(2000) });
    await mkdir(join(folder, 'folder.json'));
    for (const [name, text] of Object.entries({
      'MAL-90.json': JSON.stringify(osv('MAL-90', 'a')),
      'GHSA-1.json': large,
      'more.jsonl': linesOf(many),
      'empty.jsonl': '',
      'MAL-91.json.bak': '{',
    }))
      await writeFile(join(folder, name), text);
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 31 });
    const failure = async () => (await lists.knownBad.states(lists.clock.now))[0]!.failure;
    await writeFile(join(folder, 'MAL-92.json'), large);
    lists.clock.now += 6 * hour;
    t.deepEqual(await lists.refresh(), { lists_failed: 1 });
    t.is(await failure(), 'has a record of more than 1000 bytes: MAL-92.json');
    await writeFile(join(folder, 'MAL-92.json'), '{');
    t.deepEqual(await lists.refresh(), { lists_failed: 1 });
    t.is(await failure(), 'has a record that is no JSON, or not complete: MAL-92.json line 1');
    lists.limits = { records: 6 };
    t.deepEqual(await lists.refresh(), { lists_failed: 1 });
    t.is(await failure(), 'is a folder with more than 6 files');
  });

  test(`${dialect}: a source that is no file or no folder of lists is refused`, async (t) => {
    const folder = await folderUntilEnd(t);
    const fifo = join(folder, 'fifo');
    execFileSync('mkfifo', [fifo]);
    const outside = join(await folderUntilEnd(t), 'outside.json');
    await writeFile(outside, JSON.stringify(osv('MAL-1', 'outside')));
    const linked = join(folder, 'linked');
    await mkdir(linked);
    await symlink(outside, join(linked, 'MAL-1.json'));
    const sources = { fifo, device: '/dev/zero', empty: linked, missing: join(folder, 'none') };
    const lists = await openLists(
      t,
      dialect,
      Object.entries(sources).map(([name, file]) => listOf({ name, file })),
    );
    t.deepEqual(await lists.refresh(), { lists_failed: 4 });
    t.deepEqual(
      Object.fromEntries((await lists.knownBad.states(lists.clock.now)).map(({ name, failure }) => [name, failure])),
      {
        fifo: 'is neither a file nor a folder',
        device: 'is neither a file nor a folder',
        empty: 'has no records; a list that is empty on purpose is the file []',
        missing: 'cannot be read: there is no such file or folder',
      },
    );
    t.deepEqual(await lists.idsOf('outside'), [], 'a link is not followed');
  });

  test(`${dialect}: a URL that fails, lies or leads elsewhere changes nothing`, async (t) => {
    const body = linesOf(many);
    const answers: [what: string, answer: ListServer['answer'], reason: RegExp][] = [
      ['404', (_, response) => response.writeHead(404).end(body), /^answered 404$/],
      ['500', (_, response) => response.writeHead(500).end(), /^answered 500$/],
      ['204', (_, response) => response.writeHead(204).end(), /^answered 204$/],
      ['304 that nobody asked for', (_, response) => response.writeHead(304).end(), /^answered 304$/],
      ['a cut connection', (request) => request.socket.destroy(), /^failed: |^cannot be reached/],
      [
        'a cut body',
        (_, response) => {
          response.writeHead(200, { 'content-length': body.length });
          response.write(body.slice(0, -100), () => response.destroy());
        },
        /The connection closed before the body was complete/,
      ],
      [
        '10 GB declared',
        (_, response) => {
          response.writeHead(200, { 'content-length': 10e9 });
          response.write(body);
        },
        /^is larger than 100000 bytes$/,
      ],
      [
        'an endless body',
        (_, response) => {
          const more = (): void => void response.write(body, () => !response.destroyed && more());
          more();
        },
        /^cannot be read: The body is larger than the 100000 bytes/,
      ],
      [
        'a packed bomb',
        (_, response) => response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(Buffer.alloc(10e6))),
        /^cannot be read: The body is larger than the 100000 bytes/,
      ],
      [
        'a redirect to a metadata service',
        (_, response) => response.writeHead(302, { location: 'http://169.254.169.254/latest' }).end(),
        /redirects to, an address that is refused: 169\.254\.169\.254 is never allowed/,
      ],
      ['a redirect to a file', (_, response) => response.writeHead(302, { location: 'file:///etc/passwd' }).end(), /neither http nor https/],
      ['a circle', (_, response) => response.writeHead(302, { location: '/' }).end(), /^redirects more than 5 times$/],
    ]; // prettier-ignore
    const upstream = await startListServer(t, (_, response) => response.end(linesOf(good)));
    const lists = await openLists(t, dialect, [listOf({ name: 'osv', url: upstream.url })], {
      limits: { fileBytes: 100_000 },
    });
    t.deepEqual(await lists.refresh(), { lists_read: 1, entries: 1 });
    for (const [what, answer, reason] of answers) {
      upstream.answer = answer;
      lists.clock.now += 6 * hour;
      t.deepEqual(await lists.refresh(), { lists_failed: 1 }, what);
      t.regex((await lists.knownBad.states(lists.clock.now))[0]!.failure!, reason, what);
      t.deepEqual(await lists.idsOf('kept'), ['MAL-0'], what);
      t.deepEqual(await readdir(lists.staging), [], what);
    }
    t.is((await lists.events()).length, 2, 'one event for all failures');
    lists.lists = [listOf({ name: 'osv', url: `http://127.0.0.1:${await freePort()}` })];
    await lists.refresh();
    t.is((await lists.knownBad.states(lists.clock.now))[0]!.failure, 'cannot be reached (ECONNREFUSED)');
  });

  test(`${dialect}: a URL at a private address needs a permission, and none is asked offline`, async (t) => {
    const upstream = await startListServer(t, (_, response) => response.end(linesOf(good)));
    const refused = listOf({ name: 'osv', url: upstream.url, allowPrivateNetwork: false });
    const lists = await openLists(t, dialect, [refused]);
    t.deepEqual(await lists.refresh(), { lists_failed: 1 });
    t.regex((await lists.knownBad.states(lists.clock.now))[0]!.failure!, /127\.0\.0\.1 is a private address/);
    const file = join(await folderUntilEnd(t), 'own.jsonl');
    await writeFile(file, linesOf(good));
    const both = [{ ...refused, allowPrivateNetwork: true }, listOf({ name: 'own', file })];
    const offline = await openLists(t, dialect, both, { offline: true });
    t.deepEqual(await offline.refresh(), { lists_read: 1, entries: good.length }, 'a file is read');
    t.deepEqual(upstream.requests, []);
  });
}
