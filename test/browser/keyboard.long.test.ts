import test, { type ExecutionContext } from 'ava';
import type { Page } from 'playwright-core';
import { browserCommand, browserIn, sharedIn, visit } from '../support/browser.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startWithData } from '../support/console-data.ts';
import { focusOf, listStops, type Stop } from './in-page.ts';
import { otherPages, testedPages } from './pages.ts';

const testInBrowser = testWith(browserCommand);
const browser = browserIn(test);
const data = sharedIn(test, (t) => startWithData(t, { days: 2, now: Date.now() }));

/** Tab reaches each element in the order of the page, shows where it is, and then leaves the page. */
async function checkTabs(t: ExecutionContext, page: Page): Promise<void> {
  const wanted = await listStops(page);
  const start = (await focusOf(page))?.index ?? -1;
  const reached: Stop[] = [];
  for (let pressed = 0; pressed < 3 * wanted + 10; pressed += 1) {
    await page.keyboard.press('Tab');
    const stop = await focusOf(page);
    if (!stop) continue;
    // A field for a date has several stops of its own.
    if (stop.index === reached.at(-1)?.index) continue;
    if (reached.some(({ index }) => index === stop.index)) break;
    reached.push(stop);
  }
  t.deepEqual(
    reached.filter(({ visible }) => !visible),
    [],
    'the focus is visible',
  );
  const order = Array.from({ length: wanted }, (_, index) => (index + start + 1) % wanted);
  t.deepEqual(
    reached.map(({ index }) => index),
    order,
    reached.map(({ html }) => html).join('\n'),
  );
}

for (const [name, { at, signedIn, status }] of Object.entries({
  ...Object.fromEntries(
    Object.entries(testedPages).map(([key, page]) => [key, { status: 200, ...page, signedIn: true }]),
  ),
  'sign-in': otherPages['sign-in']!,
})) {
  testInBrowser(`${name}: Tab reaches every element in order, visibly, and no element keeps the focus`, async (t) => {
    const all = await data();
    for (const width of [1280, 320]) {
      const options = {
        ...(!signedIn && { token: null }),
        expected: new RegExp(`status of ${status}`),
        viewport: { width, height: 700 },
      };
      await visit(t, await browser(), all.server, options, async ({ page }) => {
        await page.goto(at(all));
        // The browser focuses it when it draws the page, which can be after the page was loaded.
        await page.waitForFunction(() =>
          [...document.querySelectorAll('[autofocus]')].every((each) => each === document.activeElement),
        );
        await checkTabs(t, page);
      });
    }
  });
}

testInBrowser('the first Tab offers a link that skips to the content', async (t) => {
  const { server } = await data();
  await visit(t, await browser(), server, {}, async ({ page }) => {
    await page.goto('/console/tokens');
    const skip = page.getByText('Skip to the content');
    t.is((await skip.boundingBox())!.x < 0, true, 'hidden before');
    await page.keyboard.press('Tab');
    t.true((await skip.boundingBox())!.x >= 0);
    await page.keyboard.press('Enter');
    t.is(await page.evaluate(() => document.activeElement?.id), 'main');
    await page.keyboard.press('Tab');
    t.is(await page.evaluate(() => document.activeElement?.textContent), 'Create a token');
  });
});

testInBrowser('a token is created and revoked with the keyboard alone', async (t) => {
  const { server } = await data();
  await visit(t, await browser(), server, {}, async ({ page }) => {
    await page.goto('/console/tokens/new');
    await page.getByLabel('Name', { exact: true }).focus();
    await page.keyboard.type('by keyboard');
    await page.keyboard.press('Enter');
    await page.waitForURL('**/tokens/new');
    await page.getByRole('heading', { name: 'The token is created' }).waitFor();
    await page.goto('/console/tokens');
    await page.getByLabel('Select by keyboard').focus();
    await page.keyboard.press('Space');
    await page.getByRole('button', { name: 'Revoke the selected tokens…' }).focus();
    await page.keyboard.press('Enter');
    await page.waitForURL('**/tokens/revoke?*id=*');
    await page.getByRole('button', { name: 'Revoke the token' }).focus();
    await page.keyboard.press('Enter');
    await page.waitForURL('**/tokens');
    t.regex(await page.getByRole('row', { name: /by keyboard/ }).innerText(), /revoked/);
  });
});
