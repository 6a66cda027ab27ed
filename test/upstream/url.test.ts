import test from 'ava';
import * as fc from 'fast-check';
import { urlBelow } from '../../src/upstream/url.ts';

test('any segment stays one segment of the path', (t) => {
  const segment = fc.string({ minLength: 1, unit: 'grapheme' }).filter((text) => text !== '.' && text !== '..');
  fc.assert(
    fc.property(fc.array(segment, { minLength: 1, maxLength: 5 }), (segments) => {
      const url = urlBelow('http://up.test/base?q=1#f', ...segments);
      const parts = url.pathname.split('/');
      t.deepEqual(parts.slice(0, 2), ['', 'base']);
      t.deepEqual(parts.slice(2).map(decodeURIComponent), segments);
      t.is(url.href, `http://up.test${url.pathname}`);
    }),
  );
});

test('a segment never adds a path, a query or another host', (t) => {
  for (const text of ['..\\..\\x', 'a/b', 'a?b', 'a#b', '%2e%2e', '@other.test', '//other.test', 'a\tb', '\n']) {
    const url = urlBelow('http://up.test/v2/', text);
    t.is(url.href, `http://up.test/v2/${encodeURIComponent(text)}`);
  }
  t.is(urlBelow('http://up.test', 'blobs', 'sha256:ab').href, 'http://up.test/blobs/sha256:ab');
  for (const text of ['', '.', '..', '\ud800'])
    t.throws(() => urlBelow('http://up.test', 'a', text), { name: 'Invalid' });
});
