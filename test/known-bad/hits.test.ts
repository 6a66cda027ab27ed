import test, { type ExecutionContext } from 'ava';
import { batches } from '../../src/database/batches.ts';
import type { Row } from '../../src/database/database.ts';
import type { BadDetail } from '../../src/known-bad/entry.ts';
import { hitsOf, hitsText, inUseFor, recordHits, type ContentInUse, type Hit } from '../../src/known-bad/in-use.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What of the content in use the entries of a list name, on rows of entries.

const now = Date.UTC(2026, 5, 1);
const hour = 3_600_000;

type Used = Awaited<ReturnType<ContentInUse['named']>>[number];

function used(name: string, reference: string, more: Partial<Used> = {}): Used {
  const kind = name.includes('/') ? 'container' : 'package';
  return { kind, name, reference, digest: `digest of ${name} ${reference}`, usedAt: now - hour, ...more };
}

function row(generation: number, kind: string, key: string, id: string, more: Row = {}): Row {
  const detail = JSON.stringify({ reason: `${id} of ${key}` });
  return { list: 'a', generation, kind, name_key: key, id, part: 0, size_bytes: 1, hash: 'h', detail, ...more };
}

async function open(
  t: ExecutionContext,
  rows: readonly Row[],
  content: readonly Used[],
  names: readonly string[] = [],
) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    for (const some of batches(rows)) await tx.insertNew('bad_entries', some);
  });
  const asked: string[] = [];
  const compared: string[] = [];
  const inUse: ContentInUse = {
    named: async (wanted, since) => {
      asked.push(`names ${wanted.join(' ')} since ${(now - since) / hour}`);
      const lower = new Set(wanted.map((each) => each.toLowerCase()));
      return content.filter(({ name, otherNames = [] }) =>
        [name, ...otherNames].some((each) => lower.has(each.toLowerCase())),
      );
    },
    withDigests: async (wanted, since) => {
      asked.push(`digests ${wanted.join(' ')} since ${(now - since) / hour}`);
      return content.filter(({ digest }) => wanted.includes(digest));
    },
    names: async function* () {
      yield* names;
    },
  };
  const parts = {
    database,
    content: inUse,
    isAffected: ({ reason }: BadDetail, version: string) => {
      compared.push(`${reason} ${version}`);
      return version !== 'fine';
    },
    signal: new AbortController().signal,
    now,
  };
  return { database, parts, asked, compared, hits: (current = 1) => hitsOf(parts, { list: 'a', next: 2, current }) };
}

const hit = (id: string, of: Used, ...more: Used[]): Hit => ({
  id,
  kind: of.kind,
  name: of.name,
  references: [of, ...more].map(({ reference }) => reference),
  digests: [of, ...more].map(({ digest }) => digest),
  usedAt: Math.max(...[of, ...more].map(({ usedAt }) => usedAt)),
});

test('an entry is known if readers see the same one now, and else it is new', async (t) => {
  const lib = used('Lib', '1.0');
  const keys = ['same', 'changed', 'moved', 'other-part', 'older', 'new'];
  const content = keys.map((each) => used(each, '1.0'));
  const { hits, asked } = await open(
    t,
    [
      ...keys.map((each) => row(2, 'package', each, 'X')),
      row(1, 'package', 'same', 'X'),
      row(1, 'package', 'changed', 'X', { hash: 'other' }),
      row(1, 'package', 'moved', 'Y'),
      row(1, 'package', 'other-part', 'X', { part: 1 }),
      row(0, 'package', 'older', 'X'),
      row(1, 'image', 'new', 'X'),
      row(1, 'package', 'new', 'X', { list: 'b' }),
      row(2, 'package', 'lib', 'X', { list: 'b' }),
      row(3, 'package', 'lib', 'X'),
    ],
    [lib, ...content],
  );
  const of = (name: string) =>
    hit(
      'X',
      content.find((each) => each.name === name)!,
    );
  t.deepEqual(await hits(), {
    added: ['changed', 'moved', 'new', 'older', 'other-part'].map(of),
    known: [of('same')],
  });
  t.deepEqual(asked, ['names changed moved new older other-part same since 720']);
  t.is(inUseFor, 720 * hour);
  t.deepEqual((await hits(0)).known, [of('older')]);
});

test('each kind of entry names what is in use by its own key', async (t) => {
  const lib = used('Lib', '1.0');
  const [fine, second] = [used('Lib', 'fine'), used('Lib', '2.0', { usedAt: now })];
  const image = used('up.test/library/App', 'v1', { otherNames: ['up.test/App'] });
  const { hits, asked, compared } = await open(
    t,
    [
      row(2, 'package', 'lib', 'P'),
      row(2, 'package', 'none', 'P'),
      row(2, 'image', 'up.test/app', 'I'),
      row(2, 'image', 'up.test/library/app', 'I2'),
      row(2, 'digest', image.digest, 'D'),
      row(2, 'digest', 'sha256:none', 'D'),
      row(2, 'pattern', 'up.test/*', 'T'),
      row(2, 'pattern', '*/library/*', 'T2'),
      row(2, 'pattern', 'lib*', 'T3'),
    ],
    [lib, fine, second, image],
    ['Lib', 'up.test/library/App', 'up.test/App', 'other'],
  );
  const found = await hits();
  t.deepEqual(found.known, []);
  const sorted = found.added.toSorted((one, other) => (one.id < other.id ? -1 : 1));
  t.deepEqual(sorted, [
    hit('D', image),
    hit('I', image),
    hit('I2', image),
    hit('P', lib, second),
    hit('T', image),
    hit('T2', image),
    hit('T3', lib, second),
  ]);
  t.deepEqual(
    asked.toSorted((one, other) => (one < other ? -1 : 1)),
    [
      `digests ${image.digest} sha256:none since 720`,
      'names Lib up.test/library/App up.test/App since 720',
      'names lib none since 720',
      'names up.test/app up.test/library/app since 720',
    ],
  );
  t.true(compared.includes('P of lib fine'), 'with what the entry itself says');
  t.true(compared.includes('T3 of lib* 1.0'));
});

test('entries of one ID and name are one hit, with each reference and digest once and 20 at most', async (t) => {
  const many = Array.from({ length: 25 }, (_, at) =>
    used('lib', `${at}`, { digest: `d${Math.floor(at / 2)}`, usedAt: now - at }),
  );
  const { hits } = await open(
    t,
    [row(2, 'package', 'lib', 'X'), row(2, 'package', 'lib', 'X', { part: 1 }), row(2, 'package', 'lib', 'Y')],
    [many[3]!, many[3]!, ...many],
  );
  const { added } = await hits();
  t.deepEqual(
    added.map(({ id, usedAt }) => [id, usedAt]),
    [
      ['X', now],
      ['Y', now],
    ],
  );
  for (const { references, digests } of added) {
    t.deepEqual(references, ['3', '0', '1', '2', ...Array.from({ length: 16 }, (_, at) => `${at + 4}`)]);
    t.deepEqual(digests, ['d1', 'd0', ...Array.from({ length: 11 }, (_, at) => `d${at + 2}`)]);
  }
});

test('100 hits of each kind are told, and more entries than one statement reads are compared', async (t) => {
  const keys = Array.from({ length: 501 }, (_, at) => `n${String(at).padStart(3, '0')}`);
  const content = keys.flatMap((each) => [used(each, '1.0'), used(each, '2.0')]);
  const { hits, asked } = await open(
    t,
    [
      ...keys.map((each) => row(2, 'package', each, 'X')),
      ...keys.slice(0, 250).map((each) => row(1, 'package', each, 'X')),
      row(2, 'package', 'n250', 'X', { part: 1 }),
    ],
    content,
  );
  const { added, known } = await hits();
  t.deepEqual(
    known.map(({ name }) => name),
    keys.slice(0, 100),
  );
  t.deepEqual(
    added.map(({ name }) => name),
    keys.slice(250, 350),
  );
  t.true(added.every(({ references }) => references.join() === '1.0,2.0'));
  t.is(asked.length, 2);
  t.is(asked[1], 'names n499 n500 since 720');
});

test('a pattern takes 500 uses, and names are asked for 500 at a time', async (t) => {
  const names = Array.from({ length: 501 }, (_, at) => `up.test/n${String(at).padStart(3, '0')}`);
  const { hits, asked, compared } = await open(
    t,
    [row(2, 'pattern', 'up.test/*', 'T'), row(2, 'pattern', 'up.test/n500', 'T2')],
    names.map((each) => used(each, 'v1')),
    ['other', ...names, 'another'],
  );
  const { added } = await hits();
  t.is(added.length, 101 - 1);
  t.deepEqual(
    asked.map((each) => each.split(' ').length - 3),
    [500, 1],
  );
  t.deepEqual(
    [
      compared.filter((each) => each.startsWith('T of')).length,
      compared.filter((each) => each.startsWith('T2')).length,
    ],
    [500, 1],
  );
  const none = await open(t, [row(2, 'pattern', 'down/*', 'T')], [], ['up.test/a']);
  t.deepEqual(await none.hits(), { added: [], known: [] });
});

test('a comparison ends when it is cancelled', async (t) => {
  const { parts } = await open(t, [row(2, 'package', 'lib', 'X')], [used('lib', '1.0')]);
  const signal = AbortSignal.abort(new Error('stopped'));
  await t.throwsAsync(hitsOf({ ...parts, signal }, { list: 'a', next: 2, current: 0 }), { message: 'stopped' });
});

const details = ({ id, references, digests }: Hit) => ({
  list: 'own',
  id,
  references,
  digests,
  last_used_at: '2026-05-31T23:00:00.000Z',
});

test('of hits, the new ones are stored first, 100 in all with five references and digests, and all are told', async (t) => {
  const many = Array.from({ length: 6 }, (_, at) => used('lib', `${at}`));
  const long = hit('L', many[0]!, ...many.slice(1));
  const short = Array.from({ length: 100 }, (_, at) => hit(`S${at}`, used('lib', '1')));
  const stored = JSON.parse(hitsText({ added: [long], known: short })) as Hit[];
  t.is(stored.length, 100);
  t.deepEqual(stored[0], { ...long, references: ['0', '1', '2', '3', '4'], digests: long.digests.slice(0, 5) });
  t.deepEqual(stored[99], short[98]);
  t.is(hitsText({ added: [], known: [] }), '[]');
  const { database } = await open(t, [], []);
  await database.transaction((tx) => recordHits(tx, 'own', [long, short[0]!], 77));
  const events = await database.select<{ details: string }>(
    'SELECT type, account_id, subject_kind, subject_name, time, details FROM events ORDER BY id',
  );
  const about = { type: 'known_bad.in_use', account_id: 0, subject_kind: 'package', subject_name: 'lib', time: 77 };
  t.deepEqual(events.map((each) => ({ ...each, details: JSON.parse(each.details) as object })) as object[], [
    { ...about, details: details(long) },
    { ...about, details: details(short[0]!) },
  ]);
});
