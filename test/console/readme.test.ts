import test from 'ava';
import { readmeHtml } from '../../src/console/framework/readme.ts';

test('a README becomes HTML without scripts, images and raw HTML; links are nofollow and lead to web addresses', async (t) => {
  const { text } = await readmeHtml(
    [
      '# Title',
      '<script>alert(1)</script><img src=x onerror=alert(1)>',
      '![alt <b>"text"](https://evil.test/x.png) and [![badge](https://evil.test/b.svg)](https://ci.test/)',
      '[web](https://ok.test/?a=1&b=2 "t") [js](javascript:alert(1)) [data](data:text/html,x) [up](../docs) [frag](#x)',
      '[creds](https://u:p@ok.test/) <javascript:alert(1)> [j](JaVaScRiPt:alert(1)) [v](vbscript:x)',
      '[ref]\n\n[ref]: javascript:alert(1)\n',
      '```html onclick=x\n<b onclick="x">\n```',
      '- [ ] to do\n- [x] done\n- [y] no box\n\n1. [X] **bold**',
      '| a | b |\n|:-:|---|\n| 1 | **2** |',
    ].join('\n\n'),
  );
  t.regex(text, /<h3>Title<\/h3>/);
  t.true(text.includes('&lt;script&gt;alert(1)&lt;/script&gt;'));
  t.false(/<(?:script|img|b|style|iframe|removed)\b/i.test(text), text);
  t.false(/ (?:on\w+|style|class|title)=/.test(text.replace(/class="readme"/, '').replace(/>[^<]*</g, '><')), text);
  t.true(text.includes('alt &lt;b&gt;&quot;text&quot;') || text.includes('alt &lt;b&gt;"text"'));
  t.regex(text, /<a href="https:\/\/ci\.test\/" rel="nofollow noopener">badge<\/a>/);
  t.deepEqual(
    [...text.matchAll(/<a ([^>]*)>/g)].map(([, attributes]) => attributes),
    ['href="https://ci.test/" rel="nofollow noopener"', 'href="https://ok.test/?a=1&amp;b=2" rel="nofollow noopener"'],
  );
  t.regex(text, /<li>☐ to do<\/li>\s*<li>☑ done<\/li>\s*<li>\[y\] no box<\/li>[^]*<li>☑ <strong>bold/);
  t.regex(text, /<td>1<\/td>\s*<td><strong>2<\/strong><\/td>/);
});

test('a README that takes too long or becomes too large is shown as text, and the server goes on meanwhile', async (t) => {
  const table = `${'|a'.repeat(100)}\n${'|-'.repeat(100)}\n${'|\n'.repeat(30_000)}`;
  let turns = 0;
  const timer = setInterval(() => (turns += 1), 10);
  const { text } = await readmeHtml(table);
  clearInterval(timer);
  t.regex(text, /^<pre class="readme"/);
  t.true(turns > 10, `the event loop had ${turns} turns`);
  const { text: large } = await readmeHtml('&'.repeat(64_000));
  t.regex(large, /^<pre class="readme"/, 'its HTML is too long');
  const { text: long } = await readmeHtml(`${'a line\n'.repeat(20_000)}<end>`);
  t.true(long.length < 80_000);
  t.regex(long, /<p class="hint">The rest is in the package\.<\/p>$/);
  t.regex((await readmeHtml('# Begin', false)).text, /<h3>Begin<\/h3>[^]*The rest is in the package/);
  t.notRegex(large, /The rest is/);
  const many = await Promise.all(Array.from({ length: 20 }, (_, index) => readmeHtml(`# ${index}`)));
  t.is(many.filter((each) => each.text.startsWith('<pre')).length, 16);
  t.is((await readmeHtml('# 19')).text.includes('<h3>19</h3>'), true, 'later it is rendered');
});
