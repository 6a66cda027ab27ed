import test from 'ava';
import { assert, constantFrom, property, string } from 'fast-check';
import { html, webAddress } from '../../src/console/framework/html.ts';
import { given, withQuery } from '../../src/console/framework/links.ts';
import { agoText, breakable, bytesText } from '../../src/console/framework/format.ts';

const unescaped = (text: string) =>
  text
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&');

test('no value can leave a text or a quoted attribute', (t) => {
  assert(
    property(string({ unit: constantFrom('<', '>', '"', "'", '&', 'a', ';', '#', 'lt') }), (value) => {
      const { text } = html`<a title="${value}">${value}</a>`;
      const [, attribute, content] = /^<a title="([^"<>]*)">([^<>]*)<\/a>$/.exec(text)!;
      t.deepEqual([unescaped(attribute!), unescaped(content!)], [value, value]);
    }),
  );
});

test('lists are joined, and parts that are absent are left out', (t) => {
  t.is(html`<p>${[1, html`<b>${'<'}</b>`, [undefined, null, false, '']]}</p>`.text, '<p>1<b>&lt;</b></p>');
});

test('only absolute web addresses without credentials become links', (t) => {
  t.is(webAddress('https://example.org/a?b'), 'https://example.org/a?b');
  for (const each of [
    'javascript:alert(1)',
    'data:text/html,x',
    '/local',
    '//x.test',
    'https://u:p@x.test',
    '',
    null,
    `https://x.test/${'a'.repeat(3000)}`,
  ]) {
    t.is(webAddress(each), undefined);
  }
});

test('sizes and times are short', (t) => {
  t.deepEqual([0, 999, 1000, 99_949, 999_999, 1_500_000, 2.5e15].map(bytesText), [
    '0 B',
    '999 B',
    '1.0 kB',
    '99.9 kB',
    '1000 kB',
    '1.5 MB',
    '2.5 PB',
  ]);
  const now = Date.parse('2026-01-31T00:00:00Z');
  const at = (seconds: number) => agoText(new Date(now - seconds * 1000).toISOString(), now);
  t.deepEqual([-5, 0, 59, 60, 7200, 86_400, 3 * 86_400, -3600, 800 * 86_400].map(at), [
    'now',
    'just now',
    'just now',
    '1 minute ago',
    '2 hours ago',
    '1 day ago',
    '3 days ago',
    'in 1 hour',
    '2 years ago',
  ]);
});

test('an address has the parameters that have a value, and no question mark without them', (t) => {
  t.is(withQuery('/a', {}), '/a');
  t.is(withQuery('/a', { q: '', cursor: null, origin: undefined }), '/a');
  t.is(withQuery('/a', { q: 'x y', cursor: '' }), '/a?q=x+y');
  t.deepEqual(given({ q: 'x', cursor: '', other: 'y' }, 'q', 'cursor', 'none'), { q: 'x' });
});

test('a long name may break after its signs, and a short one is whole', (t) => {
  t.is(breakable('v1.2.3-alpine').text, 'v1.2.3-alpine');
  t.is(
    breakable('build-2026.11.26-a_<b>/0123').text,
    'build-<wbr />2026.<wbr />11.<wbr />26-<wbr />a_<wbr />&lt;b&gt;/<wbr />0123',
  );
});
