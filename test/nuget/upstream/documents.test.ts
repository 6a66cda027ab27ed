import test from 'ava';
import type { MirrorEntry } from '../../../src/mirror/mirror.ts';
import { readBytes, readEntry, readOnce, type DocumentReading } from '../../../src/nuget/upstream/documents.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { digestOf } from '../../../src/runtime/digest.ts';

test('the content of a stored document is closed if its reading has no options', async (t) => {
  let closed = 0;
  const metadata = { digest: digestOf(Buffer.from('{}')) };
  const entry = { metadata, content: { close: () => (closed += 1) }, complete: Promise.resolve(metadata) };
  const reading: DocumentReading<string, 'short'> = {
    kind: 'short',
    options: () => Promise.reject(new Error('the upstream fails')),
    make: ([text]) => ({ value: text!, items: 1 }),
  };
  await t.throwsAsync(readEntry(entry as unknown as MirrorEntry, 100, reading, 'public'), {
    message: 'the upstream fails',
  });
  t.is(closed, 1);
});

let made = 0;

/** A reading of a list, which is part of the document; `options` are of another reading. */
function listReading(options: object = { of: 'test' }, items = 1) {
  const calls: (readonly string[])[] = [];
  const reading: DocumentReading<string[], 'short'> = {
    kind: 'short',
    options: () => options,
    make: async (lines) => {
      calls.push(lines);
      const { list } = JSON.parse(lines[0]!) as { list?: string[] };
      if (!list) throw new Error('it has no list');
      return { value: list, items };
    },
  };
  return { reading, calls };
}

/** A document that no other test has. */
const documentOf = (...list: readonly string[]) => Buffer.from(JSON.stringify({ list, number: (made += 1) }));

/** An entry of the mirror, which is stored unless it `arrives`; `closed` counts how often its content is closed. */
function entryOf(bytes: Buffer, { arrives = false } = {}) {
  const closed = { count: 0 };
  const metadata = { digest: digestOf(bytes), size: bytes.length };
  const content = { ...contentOf(bytes), close: () => void (closed.count += 1) };
  const entry = { metadata: arrives ? undefined : metadata, content, complete: Promise.resolve(metadata) };
  return { entry: entry as unknown as MirrorEntry, closed };
}

test('a document is read once, whether it is stored or arrives, and its content is closed', async (t) => {
  const bytes = documentOf('a', 'b');
  const { reading, calls } = listReading();
  for (const arrives of [true, false, true, false]) {
    const { entry, closed } = entryOf(bytes, { arrives });
    t.deepEqual(await readEntry(entry, 100, reading, 'up'), ['a', 'b']);
    t.true(closed.count > 0);
  }
  t.is(
    await readBytes(digestOf(bytes), bytes, reading, 'up'),
    await readBytes(digestOf(bytes), bytes, reading, 'other'),
  );
  t.is(calls.length, 1);
  t.deepEqual(
    calls[0]!.map((line) => JSON.parse(line) as object),
    [JSON.parse(bytes.toString()) as object],
  );
  const other = listReading({ of: 'other' });
  t.deepEqual(await readBytes(digestOf(bytes), bytes, other.reading, 'up'), ['a', 'b']);
  t.is(other.calls.length, 1, 'another reading makes its own value');
});

test('a document that many need at once is read once', async (t) => {
  const bytes = documentOf('a');
  const { reading, calls } = listReading();
  const entries = Array.from({ length: 5 }, () => entryOf(bytes));
  const values = await Promise.all(entries.map(({ entry }) => readEntry(entry, 100, reading, 'up')));
  t.is(new Set(values).size, 1);
  t.is(calls.length, 1);
  t.true(entries.every(({ closed }) => closed.count > 0));
});

test('a document of another form is a failure of its upstream, and is read again', async (t) => {
  const bytes = Buffer.from(JSON.stringify({ number: (made += 1) }));
  const { reading, calls } = listReading();
  for (const arrives of [true, false]) {
    const { entry, closed } = entryOf(bytes, { arrives });
    const error = await t.throwsAsync(readEntry(entry, 100, reading, 'up'), {
      name: 'UpstreamUnavailable',
      message: 'An upstream sent a document that is not of the expected form.',
    });
    t.like(error, { cause: { message: 'it has no list' } });
    t.true(closed.count > 0);
  }
  await t.throwsAsync(readBytes(digestOf(bytes), bytes, reading, 'up'), { message: 'it has no list' });
  await t.throwsAsync(readOnce(bytes, reading, 'https://up.test/'), { message: 'it has no list' });
  t.is(calls.length, 4);
});

test('a document that is longer than its limit is not read', async (t) => {
  const bytes = documentOf('x'.repeat(100));
  const { reading, calls } = listReading();
  for (const arrives of [true, false])
    await t.throwsAsync(readEntry(entryOf(bytes, { arrives }).entry, 100, reading, 'up'));
  t.is(calls.length, 0);
  t.deepEqual(await readEntry(entryOf(bytes).entry, bytes.length, reading, 'up'), ['x'.repeat(100)]);
});

test('nothing is kept of a document that is needed once', async (t) => {
  const bytes = documentOf('a');
  const { reading, calls } = listReading();
  for (let run = 0; run < 2; run += 1)
    t.deepEqual(await readOnce(Buffer.from(bytes), reading, 'https://up.test/'), ['a']);
  t.is(calls.length, 2);
});

// Alone, because such a value takes the place of others.
test.serial('values that are too large for the memory are not kept, by their texts and their items', async (t) => {
  for (const [text, items, isKept] of [
    ['a', 223_000, true],
    ['a', 224_000, false],
    ['x'.repeat(30_000), 223_450, true],
    ['é'.repeat(30_000), 223_450, false],
    ['x'.repeat(60_000), 223_450, false],
  ] as const) {
    const bytes = documentOf(text);
    const { reading, calls } = listReading({ of: 'size' }, items);
    for (let run = 0; run < 2; run += 1) await readBytes(digestOf(bytes), Buffer.from(bytes), reading, 'up');
    t.is(calls.length, isKept ? 1 : 2, `${text.slice(0, 1)} ${text.length} ${items}`);
  }
});
