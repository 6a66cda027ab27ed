import test, { type ExecutionContext } from 'ava';
import type { Dialect, Transaction, Value } from '../../src/database/database.ts';
import { countOn, storedDigests } from '../../src/mirror/store/counted-on.ts';
import { entryId } from '../../src/mirror/store/entries.ts';
import {
  allNames,
  contentsWithDigest,
  entriesOf,
  entriesOfName,
  entriesUnder,
  entryNames,
  lastUseOf,
  newestEntries,
  taggedEntries,
  totalsOfNames,
  usedEntries,
} from '../../src/mirror/store/listing.ts';
import { addWords, nameQuery, storedNames } from '../../src/mirror/store/words.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// Each query over the stored entries, with an entry beside those that it means for each of its conditions.

const [a, b, c] = [digestOf('a'), digestOf('b'), digestOf('c')];

interface Made {
  upstream?: string;
  kind?: string;
  name?: string;
  reference: string;
  digest?: Digest;
  size?: number;
  storedAt?: number;
  usedAt?: number;
}

function rowOf({ upstream = 'u', kind = 'manifest', name = 'app', reference, digest = a, ...rest }: Made) {
  const { size = 10, storedAt = 1, usedAt = 1 } = rest;
  const times = { stored_at: storedAt, validated_at: 1, used_at: usedAt };
  const content = { digest, size_bytes: size, content_type: 'x', attributes: '{}' };
  return { id: entryId({ upstream, kind, name, reference }), upstream, kind, name, reference, ...content, ...times };
}

async function databaseWith(t: ExecutionContext, dialect: Dialect, entries: readonly Made[]) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await database.transaction((tx) => tx.insertNew('mirror_entries', entries.map(rowOf)));
  return database;
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const each of items) list.push(each);
  return list;
}

const references = (entries: readonly { reference: string }[]) => entries.map(({ reference }) => reference);

const number = (index: number) => String(index).padStart(4, '0');

const manifests = { upstream: 'u', kind: 'manifest' };

for (const dialect of dialects) {
  test(`${dialect}: the entries of a name are those of its upstream and its kind`, async (t) => {
    const database = await databaseWith(t, dialect, [
      { reference: 'v1', usedAt: 5 },
      { reference: 'v2', digest: b, usedAt: 7, storedAt: 9 },
      { reference: a, usedAt: 6 },
      { reference: b, digest: b },
      { reference: c, digest: c },
      { reference: 'v1', digest: c, upstream: 'other', usedAt: 50 },
      { reference: 'v3', digest: c, kind: 'blob', size: 500, usedAt: 60, storedAt: 99 },
      { reference: 'v4', digest: c, name: 'app2', usedAt: 70, storedAt: 8 },
    ]);
    t.deepEqual(references(await taggedEntries(database, manifests, 'app', 9)), ['v1', 'v2']);
    t.deepEqual(references(await taggedEntries(database, manifests, 'app', 1)), ['v1']);
    const some = await entriesOf(database, manifests, 'app', ['v1', 'v3', 'v4', c]);
    t.deepEqual(references(some).toSorted(), [c, 'v1']);
    t.is(some.find(({ reference }) => reference === 'v1')!.digest, a);

    const listed = await entriesOfName(database, manifests, 'app', '', 9);
    const expected = [
      { reference: a, isTagged: true },
      { reference: b, isTagged: true },
      { reference: c, isTagged: false },
    ].toSorted((one, other) => (one.reference < other.reference ? -1 : 1));
    t.deepEqual(
      listed.map(({ reference, isTagged }) => ({ reference, isTagged })),
      expected,
      'the tags of another upstream, kind or name are no tags of it',
    );
    const rest = await entriesOfName(database, manifests, 'app', expected[0]!.reference, 1);
    t.deepEqual(references(rest), [expected[1]!.reference]);

    const used = (digest: Digest) => lastUseOf(database, { ...manifests, name: 'app' }, digest);
    t.is(await used(a), 6);
    t.is(await used(b), 7);
    t.is(await used(c), 1, 'its uses at another upstream, of another kind or name do not count');
    t.is(await used(digestOf('none')), null);
    const newest = await newestEntries(database, manifests, 9, undefined);
    t.deepEqual(
      newest.map(({ item }) => `${item.name} ${item.reference}`),
      ['app v2', 'app2 v4', 'app v1'],
    );
  });

  test(`${dialect}: totals count each content of a name once, and only tags as references`, async (t) => {
    const database = await databaseWith(t, dialect, [
      { reference: 'v1', storedAt: 3, usedAt: 4 },
      { reference: 'v2', storedAt: 2, usedAt: 8 },
      { reference: a },
      { reference: digestOf('layer'), kind: 'blob', digest: b, size: 100, storedAt: 50, usedAt: 50 },
      { reference: 'file', kind: 'other', digest: c, size: 1000 },
      { reference: 'v1', upstream: 'second', size: 7, digest: c },
      { reference: 'v1', name: 'not asked' },
    ]);
    const totals = await totalsOfNames(database, ['manifest', 'blob'], ['app', 'none']);
    t.deepEqual(
      totals.toSorted((one, other) => (one.upstream < other.upstream ? 1 : -1)),
      [
        { upstream: 'u', name: 'app', refs: 2, storedAt: 3, usedAt: 8, bytes: 110 },
        { upstream: 'second', name: 'app', refs: 1, storedAt: 1, usedAt: 1, bytes: 7 },
      ],
    );
  });

  test(`${dialect}: names and contents are found by upstream and kind`, async (t) => {
    const database = await databaseWith(t, dialect, [
      { name: 'one', reference: 'v1' },
      { name: 'one', reference: 'v2', digest: b },
      { name: 'two', reference: 'v1', upstream: 'second' },
      { name: 'zero', reference: 'v1', kind: 'blob' },
    ]);
    const namesOf = (upstreams?: string[]) => entryNames(database, { kind: 'manifest', upstreams }, '', 9);
    t.deepEqual(await namesOf(), ['one', 'two']);
    t.deepEqual(await namesOf(['second', 'none']), ['two']);
    t.deepEqual(await namesOf([]), []);
    t.deepEqual(await entryNames(database, { kind: 'manifest' }, 'one', 9), ['two']);
    t.deepEqual(await entryNames(database, { kind: 'manifest' }, '', 1), ['one']);
    const among = { sql: 'name <> ?', values: ['one'] };
    t.deepEqual(await all(allNames(database, { kind: 'manifest', among })), ['two']);
    const contents = (beginning: string) => contentsWithDigest(database, manifests, beginning);
    t.deepEqual(await contents(b), [{ name: 'one', digest: b }], 'the whole digest');
    t.deepEqual(await contents(a.slice(0, 20)), [{ name: 'one', digest: a }], 'not under other upstreams and kinds');
    t.deepEqual(await contents(c.slice(0, 20)), []);
    t.deepEqual(await all(storedDigests(database, ['second'])), [a]);
    t.deepEqual(await all(storedDigests(database, ['u'])), [a, b].toSorted());
    t.deepEqual(await all(storedDigests(database, [])), []);
    const counted = async () =>
      (await database.select<{ digest: string }>('SELECT digest FROM mirror_counted_on ORDER BY digest')).map(
        ({ digest }) => digest,
      );
    await countOn(database, [a, b]);
    t.deepEqual(await counted(), [a, b].toSorted());
    await countOn(database, [c]);
    t.deepEqual(await counted(), [c], 'until the next call');
  });

  test(`${dialect}: very many entries under a name, and many uses at one time, are read in pages, each once`, async (t) => {
    const database = await databaseWith(t, dialect, [
      ...Array.from({ length: 501 }, (_, index) => ({ name: 'many', reference: number(index), usedAt: 5 })),
      // Two upstreams have the reference at which the first page ends.
      { upstream: 'second', name: 'many', reference: '0499', usedAt: 5 },
      { name: 'few', reference: 'v1', usedAt: 4 },
      { name: 'before', reference: 'v1', usedAt: 3 },
      { name: 'other', kind: 'blob', reference: 'v1', usedAt: 9 },
    ]);
    const found = await entriesUnder(database, 'manifest', ['few', 'many', 'other']);
    t.is(found.length, 503);
    t.is(new Set(found.map(({ upstream, name, reference }) => `${upstream} ${name} ${reference}`)).size, 503);
    const contents = Array.from({ length: 2001 }, (_, index) => digestOf(`content ${index}`));
    const more = contents.map((digest, index) =>
      rowOf({ upstream: 'third', kind: 'blob', reference: number(index), digest }),
    );
    for (const some of [more.slice(0, 1000), more.slice(1000)])
      await database.transaction((tx) => tx.insertNew('mirror_entries', some));
    const [reads, writes] = [[] as number[], [] as number[]];
    const counting = changedDatabase(database, {
      select: async <R extends object>(sql: string, values?: readonly Value[]) => {
        const found = await database.select<R>(sql, values);
        reads.push(found.length);
        return found;
      },
      transaction: (work) =>
        database.transaction((tx) => {
          const insertNew: Transaction['insertNew'] = (table, lines) => {
            writes.push(lines.length);
            return tx.insertNew(table, lines);
          };
          return work({ run: (sql: string) => tx.run(sql), insertNew } as Transaction);
        }),
    });
    const stored = await all(storedDigests(counting, ['third']));
    t.deepEqual(stored, contents.toSorted());
    await countOn(counting, stored);
    t.deepEqual(
      [reads, writes],
      [
        [2000, 1],
        [2000, 1],
      ],
      'few statements',
    );
    await countOn(counting, []);
    t.deepEqual(writes, [2000, 1], 'nothing is written');
    await countOn(counting, stored.slice(1));
    t.deepEqual(writes, [2000, 1, 2000], 'each once');
    await countOn(database, stored);
    const [counted] = await database.select<{ many: number }>('SELECT COUNT(*) AS many FROM mirror_counted_on');
    t.is(counted!.many, 2001);
    const used = await all(usedEntries(database, 'manifest', 4));
    t.is(used.length, 503, 'at this time, too');
    t.is(new Set(used.map(({ upstream, name, reference }) => `${upstream} ${name} ${reference}`)).size, 503);
  });

  test(`${dialect}: a search finds stored names by their words`, async (t) => {
    const names = ['Acme.Redis-Client', 'redis/cache.client', 'a/b/c/d/e/deep', 'twice/twice-more', 'gone/redis'];
    const database = await databaseWith(t, dialect, [
      ...names.slice(0, 4).map((name) => ({ name, reference: 'v1' })),
      { name: 'redis', reference: 'v1', upstream: 'second' },
      { name: 'gone/redis', reference: 'v1', kind: 'blob' },
    ]);
    await database.transaction(async (tx) => {
      for (const name of names) await addWords(tx, { upstream: 'u', kind: 'manifest', name, reference: 'v1' });
      for (const upstream of ['second', 'second'])
        await addWords(tx, { upstream, kind: 'manifest', name: 'redis', reference: 'v1' });
    });
    const search = async (text: string, upstreams?: string[]) =>
      (await all(storedNames(database, 'manifest', nameQuery(text)!, { upstreams })))
        .map(({ name }) => name)
        .toSorted();
    t.deepEqual(await search('redis'), ['Acme.Redis-Client', 'redis', 'redis/cache.client'], 'not what is gone');
    t.deepEqual(await search('redis', ['u']), ['Acme.Redis-Client', 'redis/cache.client']);
    t.deepEqual(await search('REDIS-CLIENT'), ['Acme.Redis-Client']);
    t.deepEqual(await search('client acme'), ['Acme.Redis-Client']);
    t.deepEqual(await search('client redis acme cache'), [], 'all words');
    t.deepEqual(await search('edis'), [], 'not in the middle of a word');
    t.deepEqual(await search('deep'), ['a/b/c/d/e/deep']);
    t.deepEqual(await search('twice'), ['twice/twice-more'], 'once');
    t.is(nameQuery('  \t'), undefined);
    t.deepEqual(nameQuery('Ab a-b/c x'), { start: 'a.b.c', others: ['ab', 'x'] });
  });
}
