import test from 'ava';
import { nextPage } from '../../src/upstream/next-page.ts';
import { processorTime } from '../support/measures.ts';

const url = new URL('https://up.test/v2/app/tags/list');

test('the next page is the one that the header names, at the origin that was asked', (t) => {
  for (const [link, next] of [
    ['</v2/app/tags/list?last=a>; rel="next"', 'https://up.test/v2/app/tags/list?last=a'],
    ['<?last=b>; rel=next', 'https://up.test/v2/app/tags/list?last=b'],
    ['<?x>; rel="prev", <?last=c>; title="t"; rel="next"', 'https://up.test/v2/app/tags/list?last=c'],
    ['<http://up.test/v2/app/tags/list?last=d>; rel="next"', 'https://up.test/v2/app/tags/list?last=d'],
    ['<https://user:secret@other.test:5000/list?last=e>; rel="next"', 'https://up.test/list?last=e'],
    ['<https://other.test//third.test/x>; rel="next"', 'https://up.test//third.test/x'],
    ['<data:text/plain,x>; rel="next"', 'https://up.test/text/plain,x'],
    ['<http://[>; rel="next"', undefined],
    ['<?x>; rel="prev"', undefined],
    ['', undefined],
  ] as const)
    t.is(nextPage(link, url)?.href, next, link);
  t.is(nextPage(undefined, url), undefined);
});

test('a header of 16 KiB takes no longer than its length', async (t) => {
  for (const link of ['<'.repeat(16_000), '<a>;'.repeat(4000), `<${'a'.repeat(16_000)}`, `<a>${' '.repeat(16_000)}`]) {
    const taken = await processorTime(() => t.is(nextPage(link, url), undefined));
    t.true(taken < 20_000, `${link.slice(0, 10)}: ${taken} µs`);
  }
});
