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
    '{}',
  ]) {
    t.deepEqual(await itemsOf(text, 'tags'), [], text);
  }
  t.deepEqual(await itemsOf('\uFEFF{"tags":["a\\"]","b"],"tags":[1]}', 'tags'), ['a"]', 'b', 1]);
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
