import test from 'ava';
import { browserCommand, browserIn, sharedIn, visit } from '../support/browser.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startWithData } from '../support/console-data.ts';
import { factsOf, violationsOf } from './in-page.ts';
import { otherPages, testedPages } from './pages.ts';

// Each page of the console: accessibility, width and title.

const testInBrowser = testWith(browserCommand);
const browser = browserIn(test);
const data = sharedIn(test, (t) => startWithData(t, { days: 2, now: Date.now() }));

const everyPage = [
  ...Object.entries(testedPages).map(([name, page]) => ({ name, signedIn: true, status: 200, ...page })),
  ...Object.entries(otherPages).map(([name, page]) => ({ name, ...page })),
];

for (const { name, at, signedIn, status } of everyPage) {
  testInBrowser(
    `${name}: accessible in both schemes, and at 320 and 1280 pixels without sideways scrolling`,
    async (t) => {
      const all = await data();
      const options = {
        ...(!signedIn && { token: null }),
        ...(status !== 200 && { expected: new RegExp(`status of ${status}`) }),
        viewport: { width: 1280, height: 800 },
        colorScheme: 'light' as const,
      };
      await visit(t, await browser(), all.server, options, async ({ page }) => {
        const response = await page.goto(at(all));
        t.is(response?.status(), status);
        t.deepEqual(await violationsOf(page), []);
        const wide = await factsOf(page);
        t.like(wide, { lang: 'en', h1: 1, overflow: 0, wide: [], small: [] });
        t.regex(wide.title, /^\S.* · Entrepot$/);
        await page.emulateMedia({ colorScheme: 'dark' });
        t.deepEqual(await violationsOf(page, ['color-contrast', 'link-in-text-block']), [], 'dark');
        await page.setViewportSize({ width: 320, height: 700 });
        t.like(await factsOf(page), { overflow: 0, wide: [], small: [] }, '320 pixels');
        t.deepEqual(await violationsOf(page), [], '320 pixels');
      });
    },
  );
}
