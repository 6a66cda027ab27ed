import test from 'ava';
import * as fc from 'fast-check';
import { hashToken, isMistyped, newTokenValue, prefixOf } from '../../src/accounts/token-value.ts';

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'.split('');

test('a value is ent_ and 36 base-62 characters, and values are unique', (t) => {
  const values = Array.from({ length: 6000 }, newTokenValue);
  t.is(new Set(values).size, 6000);
  for (const value of values) t.regex(value, /^ent_[0-9A-Za-z]{36}$/);
  // 180,000 random characters: each of the 62 is expected 2903 times, give or take 53.
  const counts = new Map<string, number>();
  for (const value of values) for (const each of value.slice(4, 34)) counts.set(each, (counts.get(each) ?? 0) + 1);
  for (const each of alphabet) {
    const count = counts.get(each) ?? 0;
    t.true(count > 2500 && count < 3300, `${each} came ${count} times`);
  }
});

test('the checksum detects a wrong character, two swapped characters and a missing end', (t) => {
  fc.assert(
    fc.property(fc.nat(35), fc.constantFrom(...alphabet), (at, other) => {
      const value = newTokenValue();
      t.false(isMistyped(value));
      const changed = value.slice(0, 4 + at) + other + value.slice(5 + at);
      t.is(isMistyped(changed), changed !== value);
      const [one, two] = [value[10]!, value[11]!];
      const swapped = value.slice(0, 10) + two + one + value.slice(12);
      t.is(isMistyped(swapped), one !== two);
    }),
  );
  for (const other of ['', 'ent_', 'a-password', newTokenValue().slice(0, -1), `${newTokenValue()}0`, ' '.repeat(40)]) {
    t.false(isMistyped(other), 'only text in the format of a token is a mistyped token');
  }
});

test('the stored hash and the shown prefix do not reveal the value', (t) => {
  const value = newTokenValue();
  t.regex(hashToken(value), /^[0-9a-f]{64}$/);
  t.is(prefixOf(value), value.slice(0, 8));
  for (const other of [`x${value}`, `${value}x`, value.slice(0, -1)]) t.is(prefixOf(other), '', other);
  t.is(prefixOf('chosen-by-the-operator'), '', 'it may be a password');
});
