import test from 'ava';
import { jsonInPieces } from '../../src/http/json-pieces.ts';

const kibi = 1024;

test('a document in pieces is the JSON of the document', async (t) => {
  const long = 'x'.repeat(64 * kibi);
  for (const document of [
    {},
    { none: undefined },
    { none: undefined, one: 1 },
    { one: 'a', none: undefined, two: null, three: { list: [1, 2] } },
    { list: [] },
    { list: [], more: [] },
    { list: [1] },
    { before: true, list: [{ a: 1 }, 'b', [2], null], after: 'c', other: [3, 4] },
    { list: [long] },
    { list: ['a', long, 'b', long, long], after: 1 },
    { list: Array.from({ length: 50_000 }, (_, index) => index) },
  ]) {
    const text = Buffer.concat(await jsonInPieces(document)).toString();
    t.is(text, JSON.stringify(document), text.slice(0, 60));
  }
});

test('no piece is much longer than 64 KiB, but a longer item, which is a piece of its own', async (t) => {
  const items = Array.from({ length: 100 }, (_, index) => `${index}`.padEnd(10 * kibi, 'x'));
  const pieces = await jsonInPieces({ name: 'list', items });
  const lengths = pieces.map(({ length }) => length);
  t.true(Math.max(...lengths) < 75 * kibi, `${lengths.join()} bytes`);
  t.is(lengths.length, 15);
  const long = 'y'.repeat(100 * kibi);
  const mixed = await jsonInPieces({ items: ['a', long, 'b'] });
  t.deepEqual(
    mixed.map((each) => each.toString()),
    ['{"items":["a",', JSON.stringify(long), ',"b"]}'],
  );
  // One that has just this length is long, and one that fills a piece ends it.
  const exact = await jsonInPieces({ items: ['a', long.slice(0, 64 * kibi - 2), 'b'] });
  t.deepEqual(
    exact.map((each) => each.length),
    [14, 64 * kibi, 6],
  );
  const full = await jsonInPieces({ items: [long.slice(0, 64 * kibi - 12), 'b'] });
  t.deepEqual(
    full.map((each) => each.length),
    [64 * kibi, 6],
  );
});
