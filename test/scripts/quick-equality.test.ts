import test from 'ava';

// `test/support/quick-equality.ts` changes how ava compares bytes, and nothing else.

test('equal bytes are equal, and a changed, missing or further byte, or another type, is a difference', (t) => {
  const bytes = Buffer.alloc(2 ** 20, 7);
  const same = Buffer.from(bytes);
  t.deepEqual(bytes, same);
  t.deepEqual(new Uint8Array(bytes).buffer, new Uint8Array(bytes).buffer);
  same[2 ** 19] = 8;
  for (const [one, other] of [
    [bytes.subarray(2 ** 19, 2 ** 19 + 100), same.subarray(2 ** 19, 2 ** 19 + 100)],
    [Buffer.from('ab'), Buffer.from('a')],
    [Buffer.from('a'), Buffer.from('ab')],
    [Buffer.from('a'), new Uint8Array([97])],
    [new Uint8Array([97]), new Uint8Array([97]).buffer],
  ])
    t.notDeepEqual(one, other);
});

test('other values are compared by ava', (t) => {
  for (const [one, other] of [
    [new Set([1, 2]), new Set([2, 1])],
    [
      new Map([
        [1, 1],
        [2, 2],
      ]),
      new Map([
        [2, 2],
        [1, 1],
      ]),
    ],
    [new Headers({ a: '1' }), new Headers({ a: '2' })],
    [new URLSearchParams('a=1'), new URLSearchParams('a=2')],
    [[0], [-0]],
  ])
    t.notDeepEqual<unknown, unknown>(one, other);
});
