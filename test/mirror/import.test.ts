import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { parseDigest } from '../../src/runtime/digest.ts';
import type { EntryDescription } from '../../src/mirror/fetch/resource.ts';
import type { Mirror } from '../../src/mirror/mirror.ts';
import { nupkgEntry, sidecarEntry } from '../../src/nuget/upstream/upstream-files.ts';
import { blobEntry, manifestEntry } from '../../src/oci/mirrored/image-entries.ts';
import { readAll } from '../../src/storage/files/content.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { openDatabase } from '../../src/database/database.ts';
import { showImported } from '../../src/mirror/imports.ts';
import { rowOf } from '../../src/mirror/store/entries.ts';
import { writeImported, type ImportedEntry } from '../../src/mirror/store/imported.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { until } from '../support/until.ts';
import { openMirror, type TestMirror } from '../support/mirror.ts';
import { digestOf, ociManifest } from '../support/registry.ts';
import { answer, serve, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';

// Content of upstreams that comes from elsewhere is checked and stored as if it had been fetched.

const plain = { type: 'application/octet-stream', etag: null, lastModified: null };
const nothingStated = () => Promise.resolve({});
/** The row of the history of an entry that was seen at `at`. */
const row = (at: number, missing: number | null = null) => [{ digest: digestOf(`${at}`), at, missing }];

async function start(t: ExecutionContext): Promise<TestMirror & { asked: () => number }> {
  const server = await startFaultyUpstream(t);
  const parts = await openMirror(t, server.url);
  return { ...parts, asked: () => server.asked.length };
}

async function importBytes({ mirror, blobs }: TestMirror, entry: EntryDescription, bytes: Buffer, stated = plain) {
  const staged = await blobs.stage(entry.algorithms ? ['sha256', ...entry.algorithms] : undefined);
  await using stack = new AsyncDisposableStack();
  stack.defer(() => staged.discard());
  await staged.append(Readable.from([bytes]), { limit: bytes.length, idle: 10_000 });
  return await mirror.import(entry, staged, stated);
}

async function stored(mirror: Mirror, entry: EntryDescription): Promise<Buffer | undefined> {
  const found = await mirror.openStored({ key: entry.key, lifetime: 'immutable' });
  return found && readAll(found.content, 2 ** 20);
}

test('imported content is served without a request, and is in the history', async (t) => {
  const parts = await start(t);
  const { mirror, upstream, database } = parts;
  const nupkg = await makeNupkg({ id: 'Lib', version: '1.0.0' });
  const entry = nupkgEntry(upstream, 'lib', '1.0.0', 2 ** 20, nothingStated);
  const metadata = await importBytes(parts, entry, nupkg);
  t.is(metadata.attributes['id'], 'Lib');
  t.deepEqual(await stored(mirror, entry), nupkg);
  const opened = await mirror.open({ ...entry, fetch: () => Promise.reject(new Error('it was requested')) });
  t.is(opened!.outcome, 'hit');
  opened!.content.close();
  const place = { upstream, name: 'team/app' };
  const text = JSON.stringify({ schemaVersion: 2, mediaType: ociManifest, config: {}, layers: [] });
  await importBytes(parts, manifestEntry(place, 'v1', 2 ** 20), Buffer.from(text), { ...plain, type: ociManifest });
  const byDigest = manifestEntry(place, digestOf(text), 2 ** 20);
  t.is(String(await stored(mirror, byDigest)), text, 'under its digest, too');
  const seen = await database.select<{ reference: string }>('SELECT reference FROM history ORDER BY id');
  t.deepEqual(
    seen.map(({ reference }) => reference),
    ['1.0.0', 'v1', digestOf(text)],
  );
  t.is(parts.asked(), 0);
});

test('what is not the content that its key names is refused, and nothing of it is stored', async (t) => {
  const parts = await start(t);
  const { mirror, upstream } = parts;
  const nupkg = await makeNupkg({ id: 'Lib', version: '1.0.0' });
  const place = { upstream, name: 'team/app' };
  const blob = Buffer.from('a layer');
  const digest = parseDigest(digestOf(blob));
  const cases: [string, EntryDescription, Buffer, string][] = [
    ['another id', nupkgEntry(upstream, 'other', '1.0.0', 2 ** 20, nothingStated), nupkg, 'Invalid'],
    ['another version', nupkgEntry(upstream, 'lib', '2.0.0', 2 ** 20, nothingStated), nupkg, 'Invalid'],
    [
      'another hash',
      nupkgEntry(upstream, 'lib', '1.0.0', 2 ** 20, () => Promise.resolve({ sha512: 'AAAA' })),
      nupkg,
      'Invalid',
    ],
    ['too large', nupkgEntry(upstream, 'lib', '1.0.0', nupkg.length - 1, nothingStated), nupkg, 'TooLarge'],
    ['a page', sidecarEntry(upstream, 'lib', '1.0.0', 'readme'), Buffer.from('<html>'), 'Invalid'],
    ['no manifest', manifestEntry(place, 'v1', 2 ** 20), Buffer.from('{}'), 'Invalid'],
    ['another digest', blobEntry(place, digest, undefined), Buffer.from('another layer'), 'DigestMismatch'],
  ];
  for (const [what, entry, bytes, name] of cases) {
    const error = await t.throwsAsync(importBytes(parts, entry, bytes), { name }, what);
    t.regex(error.message, new RegExp(entry.key.name), what);
    t.is(await stored(mirror, entry), undefined, what);
  }
  t.is(await parts.blobCount(), 0);
  t.deepEqual(await parts.staged(), []);
  await importBytes(parts, blobEntry(place, digest, undefined), blob);
  t.is(await parts.blobCount(), 1);
});

test('an import ends the memory of an answer “not found”', async (t) => {
  const server = await startFaultyUpstream(t);
  const parts = await openMirror(t, server.url);
  const { mirror, clock } = parts;
  clock.now = 1_000_000;
  server.on('/thing', answer(404));
  const resource = parts.resource('/thing', { lifetime: { freshFor: 1000, staleFor: 3_600_000 } });
  t.is(await mirror.open(resource), undefined);
  await importBytes(parts, resource, Buffer.from('imported'));
  clock.now += 2000;
  server.on('/thing', serve(Buffer.from('newer')));
  const entry = await mirror.open(resource);
  t.is(String(await readAll(entry!.content, 100)), 'newer', 'the upstream is asked again');
});

test('an entry that another installation has seen replaces an earlier one of a tag, no later one, and none that never changes', async (t) => {
  const parts = await start(t);
  const { database, entries, upstream, clock } = parts;
  clock.now = 9_000_000;
  const place = { upstream, name: 'team/app' };
  const show = async (reference: string, validatedAt: number, isImmutable: boolean, missing = false) => {
    const { key } = manifestEntry(place, reference, 2 ** 20);
    const content = `${validatedAt}`;
    const digest = parseDigest(digestOf(content));
    const metadata = { ...plain, digest, size: content.length, attributes: {}, storedAt: 5, validatedAt };
    const withdrawn = missing ? { missingAt: validatedAt, withdrawnAt: null } : undefined;
    const imported = { key, metadata, isImmutable, seen: [], withdrawn };
    let written: unknown;
    const news = await showImported({ database, entries, now: clock.time }, [imported], async (_tx, found) => {
      written = found;
    });
    t.deepEqual(written, news === 0 ? [] : [imported]);
    return news;
  };
  const rows = async (reference: string) =>
    database.select(
      `SELECT e.digest, e.validated_at AS at, w.missing_at AS missing FROM mirror_entries e
       LEFT JOIN mirror_withdrawn w ON w.id = e.id WHERE e.reference = ?`,
      [reference],
    );
  t.is(await show('v1', 2000, false), 1);
  t.is(await show('v1', 1999, false, true), 0, 'it was seen earlier than what is here');
  t.is(await show('v1', 2000, false, true), 0, 'at the same time');
  t.deepEqual(await rows('v1'), row(2000));
  t.is(await show('v1', 2001, false, true), 1);
  t.deepEqual(await rows('v1'), row(2001, 2001));
  t.is(await show('v1', 2000, false), 0);
  t.deepEqual(await rows('v1'), row(2001, 2001), 'also what is said of it stays');
  t.is(await show('v1', 2002, false), 1);
  t.deepEqual(await rows('v1'), row(2002), 'the upstream has it again');

  t.is(await show('v2', 1000, true), 1);
  t.is(await show('v2', 3000, true), 0, 'what never changes stays');
  t.deepEqual(await rows('v2'), row(1000));
});

const since = (missingAt: number, withdrawnAt: number | null = null) => ({ withdrawn: { missingAt, withdrawnAt } });

test('what an upstream has withdrawn is noted for an entry that stays, and ends when the other installation asked again', async (t) => {
  const parts = await start(t);
  const { database } = parts;
  type Told = Pick<ImportedEntry, 'withdrawn' | 'asOf'>;
  const show = async (reference: string, isImmutable: boolean, told: Told = {}) => {
    const entry = { ...thing(reference, reference, 1000, isImmutable), ...told };
    await database.transaction((tx) => writeImported(tx, [entry], 9000));
    const sql = 'SELECT missing_at AS missing, withdrawn_at AS certain FROM mirror_withdrawn WHERE reference = ?';
    const [mark] = await database.select<{ missing: number; certain: number | null }>(sql, [reference]);
    return mark && [mark.missing, mark.certain];
  };
  for (const isImmutable of [true, false]) {
    const name = isImmutable ? '1.0.0' : 'tag';
    t.is(await show(name, isImmutable), undefined);
    t.is(await show(name, isImmutable, since(1500)), undefined, 'an older bundle');
    t.is(await show(name, isImmutable, { ...since(1000), asOf: 3000 }), undefined, 'it was confirmed then');
    t.deepEqual(await show(name, isImmutable, { ...since(1001), asOf: 0 }), [1001, null]);
    t.deepEqual(await show(name, isImmutable, { ...since(1500, 1600), asOf: 0 }), [1001, 1600]);
    t.deepEqual(
      await show(name, isImmutable, { ...since(1500, 1700), asOf: 0 }),
      [1001, 1600],
      'it is certain already',
    );
    for (const told of [{}, { asOf: 0 }, { asOf: 1001 }])
      t.deepEqual(await show(name, isImmutable, told), [1001, 1600], 'it has not asked since');
    const isBack = await show(name, isImmutable, { asOf: 1002 });
    t.deepEqual(isBack, isImmutable ? undefined : [1001, 1600], 'a tag that is back is confirmed anew');
  }
});

const keyOfThing = (reference: string) => ({ upstream: 'up.test', kind: 'thing', name: 'a', reference });
const metadataOf = (text: string, validatedAt: number) => ({
  ...plain,
  digest: parseDigest(digestOf(text)),
  size: text.length,
  attributes: {},
  storedAt: 0,
  validatedAt,
});

const thing = (reference: string, text: string, validatedAt: number, isImmutable: boolean): ImportedEntry => ({
  key: keyOfThing(reference),
  metadata: metadataOf(text, validatedAt),
  isImmutable,
  seen: [],
});

test('an import replaces no entry that a fetch writes at the same time, if it is newer or never changes', async (t) => {
  const url = await temporaryDatabase(t, 'mysql');
  const database = await openDatabase(url);
  t.teardown(() => database.close());
  const fetched = [
    thing('newer', 'fetched', 20, false),
    thing('older', 'fetched', 5, false),
    thing('immutable', 'fetched', 5, true),
  ];
  const imported = fetched.map((each) => thing(each.key.reference, 'imported', 10, each.isImmutable));
  const [begun, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  // The database closes only after its transactions.
  t.teardown(end.resolve);
  const fetching = database.transaction(async (tx) => {
    await tx.insertNew(
      'mirror_entries',
      fetched.map((each) => rowOf(each.key, each.metadata, 1)),
    );
    begun.resolve();
    await end.promise;
  });
  await begun.promise;
  const importing = database.transaction((tx) => writeImported(tx, imported, 1));
  const waits = "SELECT COUNT(*) AS n FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
  // MariaDB repeats an earlier answer to whoever asks again within a tenth of a second.
  await until(async () => {
    await sleep(150);
    return (await database.get<{ n: number }>(waits))!.n > 0;
  });
  end.resolve();
  await fetching;
  t.deepEqual(
    (await importing).map((each) => each.key.reference),
    ['older'],
  );
  const rows = await database.select<{ reference: string; digest: string }>(
    'SELECT reference, digest FROM mirror_entries ORDER BY reference',
  );
  t.deepEqual(
    rows.map(({ reference, digest }) => [reference, digest]),
    [
      ['immutable', digestOf('fetched')],
      ['newer', digestOf('fetched')],
      ['older', digestOf('imported')],
    ],
  );
});
