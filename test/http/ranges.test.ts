import test from 'ava';
import * as fc from 'fast-check';
import { DomainError } from '../../src/runtime/errors.ts';
import { parseByteRange } from '../../src/http/ranges.ts';

const unsatisfiable = { instanceOf: DomainError, name: 'RangeNotSatisfiable' };

test('the examples of RFC 9110, 14.1.2, for 10,000 bytes', (t) => {
  t.deepEqual(parseByteRange('bytes=0-499', 10_000), { start: 0, end: 499 });
  t.deepEqual(parseByteRange('bytes=500-999', 10_000), { start: 500, end: 999 });
  t.deepEqual(parseByteRange('bytes=-500', 10_000), { start: 9500, end: 9999 });
  t.deepEqual(parseByteRange('bytes=9500-', 10_000), { start: 9500, end: 9999 });
  t.deepEqual(parseByteRange('Bytes=0-0', 10_000), { start: 0, end: 0 });
  t.deepEqual(parseByteRange('bytes=-20000', 10_000), { start: 0, end: 9999 });
  t.deepEqual(parseByteRange(`bytes=9999-${'9'.repeat(40)}`, 10_000), { start: 9999, end: 9999 });
});

test('a request without exactly one range gets the whole content', (t) => {
  const others = [undefined, '', 'bytes', 'bytes=', 'bytes=-', 'bytes=a-b', 'bytes=1', 'bytes=0-1,5-6', 'items=0-1'];
  for (const header of [...others, 'bytes=1-2-3', 'bytes= 0x1-2', 'bytes=1.5-2', 'bytes=--1', '0-1', 'xbytes=0-1']) {
    t.is(parseByteRange(header, 100), undefined, header);
  }
});

test('a range outside of the content, or backwards, is refused with the size', (t) => {
  for (const header of ['bytes=100-', 'bytes=100-200', 'bytes=5-4', 'bytes=-0', `bytes=${'9'.repeat(30)}-`]) {
    const error = t.throws<DomainError>(() => parseByteRange(header, 100), unsatisfiable, header);
    t.deepEqual(error.detail, { size: 100 });
  }
  for (const header of ['bytes=0-', 'bytes=0-0', 'bytes=-1'])
    t.throws(() => parseByteRange(header, 0), unsatisfiable, header);
});

test('every parsed range is inside the content and is the requested slice', (t) => {
  const bound = fc.option(fc.nat(300), { nil: undefined });
  fc.assert(
    fc.property(fc.nat(200), bound, bound, (size, first, last) => {
      const bytes = Array.from({ length: size }, (_, index) => index);
      const header = `bytes=${first ?? ''}-${last ?? ''}`;
      let wanted: number[] | undefined;
      if (first !== undefined) wanted = bytes.slice(first, last === undefined ? size : last + 1);
      else if (last !== undefined) wanted = last === 0 ? [] : bytes.slice(-last);
      if (wanted?.length === 0) {
        t.throws(() => parseByteRange(header, size), unsatisfiable, header);
        return;
      }
      const range = parseByteRange(header, size);
      t.deepEqual(range && bytes.slice(range.start, range.end + 1), wanted, header);
      if (range) t.true(range.end < size);
    }),
    { numRuns: 500 },
  );
});
