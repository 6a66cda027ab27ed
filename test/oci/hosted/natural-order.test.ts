import test from 'ava';
import { naturalKey } from '../../../src/oci/hosted/natural-order.ts';

test('tags are in the natural order: without letter case, and numbers by their value', (t) => {
  const hundred = '1'.repeat(100);
  const ordered = [
    '0',
    '00.1',
    '1',
    '9',
    '1'.repeat(98),
    '2'.repeat(98),
    // Of numbers with 99 digits or more, the begin counts.
    hundred,
    `${hundred.slice(1)}2`,
    '_x',
    'A-1',
    'a.1',
    'B_1',
    'ba1',
    'v2',
    'V002.0',
    'v10',
    'v0100',
    'v100.1',
    'v1000',
  ];
  const shuffled = ordered.toReversed();
  shuffled.push(...shuffled.splice(0, 7));
  t.deepEqual(
    shuffled.toSorted((one, other) => (naturalKey(one) < naturalKey(other) ? -1 : 1)),
    ordered,
  );
  t.is(naturalKey('V007'), naturalKey('v7'), 'zeros before a number and the letter case make no difference');
  t.true(
    Math.max(...['a1'.repeat(64), '1'.repeat(128), '01'.repeat(64)].map((each) => naturalKey(each).length)) <= 256,
  );
});
