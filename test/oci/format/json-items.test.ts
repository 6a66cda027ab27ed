import test from 'ava';
import * as fc from 'fast-check';
import { inOrder } from '../../../src/oci/format/in-order.ts';
import { itemsIn } from '../../../src/runtime/json-items.ts';
import { hasMoreValues } from '../../../src/runtime/json-values.ts';

async function itemsOf(text: string, field?: string): Promise<unknown[]> {
  const items: unknown[] = [];
  for await (const some of itemsIn(Buffer.from(text), field)) items.push(...some);
  return items;
}

test('the items of a list are those that JSON.parse finds', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.jsonValue()), fc.jsonValue(), fc.boolean(), async (made, other, isFirst) => {
      // JSON has no -0.
      const items = JSON.parse(JSON.stringify(made)) as unknown[];
      const document = isFirst ? { tags: items, other } : { other, tags: items };
      t.deepEqual(await itemsOf(JSON.stringify(document, undefined, 1), 'tags'), items);
      t.deepEqual(await itemsOf(JSON.stringify(items)), items);
    }),
    { numRuns: 200 },
  );
});

test('a field that is no list, elsewhere or absent has no items', async (t) => {
  for (const text of [
    '{"tags":"abc"}',
    '{"tags":{"length":[1]}}',
    '{"tags":null,"other":[1]}',
    '{"inner":{"tags":[1]}}',
    '{"a":"tags","b":[1]}',
    '["tags",[1]]',
    '[[1]]',
    '{}',
  ]) {
    t.deepEqual(await itemsOf(text, 'tags'), [], text);
  }
  t.deepEqual(await itemsOf('\uFEFF{"tags":["a\\"]","b"],"tags":[1]}', 'tags'), ['a"]', 'b', 1]);
});

const sizesOf = async (text: string, field?: string) => {
  const sizes: number[] = [];
  for await (const some of itemsIn(Buffer.from(text), field)) sizes.push(some.length);
  return sizes;
};

test('a list is read some at a time, with pauses, and splits no item', async (t) => {
  // The first item ends after 16 bytes, and each other one 16 bytes later: the comma after 65,536 bytes ends the first part.
  const texts = ['a'.repeat(14), ...Array.from({ length: 20_000 }, () => 'a'.repeat(13))];
  const text = JSON.stringify(texts);
  t.deepEqual(await sizesOf(text), [4096, 4097, 4097, 4097, 3614]);
  t.deepEqual(await itemsOf(text), texts);
  const large = Array.from({ length: 3 }, () => ({ list: Array.from({ length: 40_000 }, () => 1), more: 1 }));
  t.deepEqual(await sizesOf(JSON.stringify(large)), [1, 1, 1]);
  t.deepEqual(await itemsOf(JSON.stringify({ tags: large }), 'tags'), large);
  t.deepEqual(await itemsOf(JSON.stringify({ other: { a: 'x'.repeat(100_000), b: 1 }, tags: [1] }), 'tags'), [1]);
  t.deepEqual(await itemsOf(JSON.stringify({ tags: [1] })), []);

  let hasTurned = false;
  setImmediate(() => (hasTurned = true));
  for await (const some of itemsIn(Buffer.from(`[${'"x",'.repeat(3_000_000)}1]`), undefined)) void some;
  t.true(hasTurned);
});

const around = (...texts: string[]) => JSON.stringify({ a: texts[0], tags: [1], b: texts[1] });
const beside = (bytes: number) => {
  const text = 'x'.repeat(bytes - around('', '').length + 1);
  return around(text.slice(100_000), text.slice(0, 100_000));
};
const few = (count: number) => JSON.stringify({ other: Array.from({ length: count }, () => 1), tags: [] });

test('one item, and everything beside the list, has at most 256 KiB, and the rest at most 1000 values', async (t) => {
  const most = 256 * 1024;
  const item = 'x'.repeat(most - 2);
  t.deepEqual(await itemsOf(JSON.stringify({ tags: [item, item] }), 'tags'), [item, item]);
  t.deepEqual(await itemsOf(beside(most), 'tags'), [1]);
  t.deepEqual(await itemsOf(few(997), 'tags'), []);
  for (const text of [beside(most + 1), few(998), JSON.stringify([`${item}xxx`])])
    await t.throwsAsync(itemsOf(text, 'tags'), { instanceOf: SyntaxError }, text.slice(0, 40));
});

test('a document that is no JSON, or has too much in one item or beside the list, is refused', async (t) => {
  for (const text of [
    '',
    'null',
    '7',
    '{"tags":[',
    '{"tags":[1}',
    '{"tags":[1]',
    '{"tags":[1]}}',
    '{"tags":[a]}',
    '{"tags":[1]x}',
    `{"tags":["${'x'.repeat(300_000)}"]}`,
    `{"tags":[],"other":"${'x'.repeat(300_000)}"}`,
    `{"other":[${'1,'.repeat(2000)}1]}`,
  ]) {
    await t.throwsAsync(itemsOf(text, 'tags'), { instanceOf: SyntaxError }, text.slice(0, 40));
  }
});

test('items are put into order with each key once', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.integer({ min: 0, max: 900 }), { maxLength: 500, size: 'max' }), async (numbers) => {
      const keys = numbers.map(String);
      t.deepEqual(await inOrder(keys, (key) => key), [...new Set(keys)].toSorted());
    }),
    { numRuns: 50 },
  );
  const keys = Array.from({ length: 20_000 }, (_, index) => String((index * 7919) % 15_000));
  const items = await inOrder(
    keys.map((key) => ({ key })),
    ({ key }) => key,
  );
  t.deepEqual(
    items.map(({ key }) => key),
    [...new Set(keys)].toSorted(),
  );
  const sorted = keys.toSorted();
  t.deepEqual(await inOrder(sorted, (key) => key), [...new Set(sorted)], 'as a registry sends them');
  t.deepEqual(await inOrder([], String), []);
});

test('values are counted outside of texts', (t) => {
  const text = Buffer.from('{"a,[{\\"":[1,2,{"b":""}],"c":"\\\\"}');
  t.false(hasMoreValues(text, 6));
  t.true(hasMoreValues(text, 5));
  t.false(hasMoreValues(Buffer.from('"not closed, ['), 0));
});
