import test from 'ava';
import { assert, constantFrom, property, string } from 'fast-check';
import { html, webAddress } from '../../src/console/framework/html.ts';
import { given, withQuery } from '../../src/console/framework/links.ts';
import { untilText } from '../../src/console/pages/permanence/deleted.ts';
import { agoText, breakable, bytesText, counted, ratio, short } from '../../src/console/framework/format.ts';
import { barChart, shareBar, sparkline } from '../../src/console/framework/plot.ts';
import { durationText } from '../../src/console/pages/mirror/mirror.ts';

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
  t.deepEqual([0, 999, 1000, 99_949, 99_950, 999_999, 1_500_000, 2.5e15, 1e18].map(bytesText), [
    '0 B',
    '999 B',
    '1.0 kB',
    '99.9 kB',
    '100 kB',
    '1000 kB',
    '1.5 MB',
    '2.5 PB',
    '1000 PB',
  ]);
  t.deepEqual([0, 59.94, 60, 3599, 3600, 5400].map(durationText), [
    '0.0 s',
    '59.9 s',
    '1.0 min',
    '60.0 min',
    '1.0 h',
    '1.5 h',
  ]);
  const now = Date.parse('2026-01-31T00:00:00Z');
  const at = (seconds: number) => agoText(new Date(now - seconds * 1000).toISOString(), now);
  t.deepEqual([-5, 0, 59, 60, 7200, 86_400, 3 * 86_400, -3600, 30 * 86_400, 365 * 86_400, 800 * 86_400].map(at), [
    'now',
    'just now',
    'just now',
    '1 minute ago',
    '2 hours ago',
    '1 day ago',
    '3 days ago',
    'in 1 hour',
    '1 month ago',
    '1 year ago',
    '2 years ago',
  ]);
});

test('numbers and shares are words, and a text that is too long ends in an ellipsis', (t) => {
  t.deepEqual(
    [0, 1, 1200].map((each) => counted(each, 'name')),
    ['0 names', '1 name', '1,200 names'],
  );
  t.is(counted(2, 'entry', 'entries'), '2 entries');
  t.deepEqual([ratio(0, 0), ratio(0, 4), ratio(3, 4), ratio(4, 4)], ['–', '0.0 %', '75.0 %', '100 %']);
  t.deepEqual([short('abc', 3), short('abcd', 3), short('ab\u{1f600}', 3)], ['abc', 'abc…', 'ab…']);
});

/** The lines and texts of a drawing, with the numbers of its shapes. */
const drawn = (svg: string) =>
  [...svg.matchAll(/<(line|rect|text|title|path|svg|meter)\b([^>]*)>([^<]*)/g)].map(([, name, rest, text]) => {
    const numbers = [...rest!.matchAll(/(?:class|x1?|y1?|width|height|viewBox|d|min|max|value|high)="([^"]*)"/g)];
    return [name, ...numbers.map(([, value]) => value), text!.trim()].filter((each) => each !== '').join(' ');
  });

const labelsOf = (count: number) => {
  const many = Array.from({ length: count }, (_, index) => ({ label: String(index), value: 1, text: '1' }));
  return [...barChart(many, 'Values').text.matchAll(/text-anchor="middle">(\d+)</g)].map(([, label]) => Number(label));
};

test('a chart draws each value in proportion to the largest one, its part from below, and some labels', (t) => {
  const bars = [
    { label: 'a', value: 0, text: 'none' },
    { label: 'b', value: 4, part: 1, text: 'four' },
    { label: 'c', value: 2, part: 2, text: 'two' },
    { label: 'd', value: 0.001, part: 0, text: 'little' },
  ];
  t.deepEqual(drawn(barChart(bars, 'Values').text), [
    'svg plot',
    'line axis 0 12.00%',
    'rect bar 3.00% 88.00% 19.00% 0.00%',
    'title a: none',
    'text 12.50% 99% a',
    'rect bar 28.00% 12.00% 19.00% 76.00%',
    'title b: four',
    'rect part 28.00% 69.00% 19.00% 19.00%',
    'text 37.50% 99% b',
    'rect bar 53.00% 50.00% 19.00% 38.00%',
    'title c: two',
    'rect part 53.00% 50.00% 19.00% 38.00%',
    'text 62.50% 99% c',
    'rect bar 78.00% 87.50% 19.00% 0.50%',
    'title d: little',
    'text 87.50% 99% d',
    'line axis 0 88.00%',
    'text 0 9.00% at most four',
  ]);
  t.deepEqual(drawn(barChart([{ label: 'a', value: 0, text: '0' }], 'Values', 'plot small').text), [
    'svg plot small',
    'rect bar 12.00% 88.00% 76.00% 0.00%',
    'title a: 0',
    'text 50.00% 99% a',
    'line axis 0 88.00%',
  ]);
  t.deepEqual(drawn(barChart([], 'Values').text), ['svg plot', 'line axis 0 88.00%']);
  t.is(labelsOf(11).length, 11);
  t.deepEqual(labelsOf(12), [0, 5, 10]);
  t.deepEqual(labelsOf(53), [0, 7, 14, 21, 28, 35, 42, 49]);
});

test('a small plot draws the numbers of days, and says their sum and the highest one', (t) => {
  t.deepEqual(drawn(sparkline([1, 0, 3], 'pull')!.text), [
    'svg spark 0 0 9 24',
    'title 4 pulls in 3 days, 3 at most on a day',
    'path M1 24v-8M7 24v-24',
  ]);
  t.deepEqual(drawn(sparkline([1, 1200], 'entry', 'entries')!.text), [
    'svg spark 0 0 6 24',
    'title 1,201 entries in 2 days, 1,200 at most on a day',
    'path M1 24v-1M4 24v-24',
  ]);
  for (const none of [undefined, [], [0, 0]]) t.is(sparkline(none, 'pull'), undefined);
});

test('a bar of a share ends at the whole, and warns from nine tenths on', (t) => {
  t.deepEqual(drawn(shareBar(30, 200, 'some').text), ['meter 0 200 30 180']);
  t.true(shareBar(30, 200, 'some').text.trimEnd().endsWith('some'));
  t.deepEqual(drawn(shareBar(300, 200, 'more').text), ['meter 0 200 200 180']);
  t.deepEqual(drawn(shareBar(0, 0, 'none').text), ['meter 0 1 0 0']);
});

test('an address has the parameters that have a value, and no question mark without them', (t) => {
  t.is(withQuery('/a', {}), '/a');
  t.is(withQuery('/a', { q: '', cursor: null, origin: undefined }), '/a');
  t.is(withQuery('/a', { q: 'x y', cursor: '' }), '/a?q=x+y');
  t.deepEqual(given({ q: 'x', cursor: '', other: 'y' }, 'q', 'cursor', 'none'), { q: 'x' });
});

test('a long name may break after its signs, and a short one is whole', (t) => {
  t.is(breakable('v1.2.3-alpine').text, 'v1.2.3-alpine');
  t.is(breakable('a-name-of-24-characters.').text, 'a-name-of-24-characters.');
  t.is(breakable('a-name-of-25-characters..').text.replaceAll('<wbr />', '|'), 'a-|name-|of-|25-|characters.|.');
  t.is(
    breakable('build-2026.11.26-a_<b>/0123').text,
    'build-<wbr />2026.<wbr />11.<wbr />26-<wbr />a_<wbr />&lt;b&gt;/<wbr />0123',
  );
});

test('what is deleted can be restored for a time in its own unit', (t) => {
  for (const [seconds, text] of [
    [0.5, '0.5 seconds'],
    [60, '1 minute'],
    [90, '1.5 minutes'],
    [3600, '1 hour'],
    [86_400, '1 day'],
    [129_600, '1.5 days'],
    [2_592_000, '30 days'],
    [63_072_000, '730 days'],
  ] as const)
    t.regex(untilText(seconds), new RegExp(`can be restored for ${text},`));
  t.regex(untilText(0), /cannot be undone/);
});
