import test from 'ava';
import type { Page } from 'playwright-core';
import { browserCommand, browserIn, sharedIn, visit } from '../support/browser.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startWithData } from '../support/console-data.ts';
import { startTestServer } from '../support/server.ts';
import { testedPages } from './pages.ts';

// The console without JavaScript, and its weight.

const testInBrowser = testWith(browserCommand);
const browser = browserIn(test);
const data = sharedIn(test, (t) => startWithData(t, { days: 2, now: Date.now() }));

/** Most bytes of a page with its styles, script and icon, headers included. */
const mostBytes = 100_000;

/** The text that a visitor sees, without the buttons that only JavaScript shows. */
async function textOf(page: Page, path: string): Promise<string> {
  await page.goto(path);
  return page.evaluate(() => {
    for (const each of document.querySelectorAll<HTMLElement>('button.copy')) each.hidden = true;
    return document.body.innerText;
  });
}

testInBrowser('each page shows the same without JavaScript', async (t) => {
  const all = await data();
  const expected = /status of 422/;
  await visit(t, await browser(), all.server, { expected }, async ({ page: withScripts }) => {
    await visit(t, await browser(), all.server, { expected, javaScriptEnabled: false }, async ({ page }) => {
      for (const { at } of Object.values(testedPages)) {
        const path = at(all);
        const without = await textOf(page, path);
        t.true(without.length > 200, path);
        const scripted = withoutBrowser(await textOf(withScripts, path));
        // Figures can change between the two visits: this server counts what it sends.
        if (withoutBrowser(without) !== scripted) t.is(withoutBrowser(await textOf(page, path)), scripted, path);
      }
    });
  });
});

/** Without what says which session is this one. */
function withoutBrowser(text: string): string {
  return text.replaceAll(/ ?\(this one\)|HeadlessChrome\S*/g, '');
}

testInBrowser(
  'without JavaScript a visitor signs in, creates and revokes a token, runs a job, ends a session and signs out',
  async (t) => {
    const server = await startTestServer(t);
    const options = { token: null, javaScriptEnabled: false, expected: /status of 422/ };
    await visit(t, await browser(), server, options, async ({ page }) => {
      const press = async (name: string | RegExp) => {
        await page.getByRole('button', { name }).click();
      };
      await page.goto('/console/jobs');
      await page.getByLabel('API token').fill('wrong');
      await press('Sign in');
      t.regex(page.url(), /sign-in/);
      await page.getByLabel('API token').fill(server.token);
      await press('Sign in');
      t.regex(page.url(), /\/console\/jobs$/, 'back to the page that was wanted');

      await page.getByRole('link', { name: 'gc' }).click();
      await press('Run now');
      t.regex(await page.locator('.notice').innerText(), /has started/);
      t.regex(page.url(), /\/console\/jobs\/gc$/);
      await page.reload();
      t.is(await page.locator('.notice').count(), 0, 'once');

      await page.goto('/console/tokens');
      await page.getByRole('link', { name: 'Create a token' }).click();
      const name = page.getByLabel('Name', { exact: true });
      const read = page.getByRole('checkbox', { name: /^read/ });
      await name.fill('ci');
      await read.uncheck();
      await press('Create');
      await page.waitForURL(/[?&]refused=/);
      await page.reload();
      await page.getByRole('link', { name: 'Packages' }).click();
      await page.waitForURL(/\/console\/packages$/);
      await page.goBack();
      t.is(await page.locator('.field-error').count(), 1, 'after a reload and the button Back');
      t.is(await name.inputValue(), 'ci');
      await read.check();
      await press('Create');
      const value = await page.locator('.copyable code').first().innerText();
      t.is((await server.fetch('/v1/packages', { token: value })).status, 200);
      await page.getByRole('link', { name: 'Back to the tokens' }).click();
      await page.getByLabel('Select ci').check();
      await press('Revoke the selected tokens…');
      t.is((await server.fetch('/v1/packages', { token: value })).status, 200, 'not before the confirmation');
      await press('Revoke the token');
      t.regex(await page.locator('.notice').innerText(), /^Revoked/);
      t.is((await server.fetch('/v1/packages', { token: value })).status, 401);

      await press('Sign out');
      t.regex(await page.locator('.notice').innerText(), /signed out/);
      await page.goto('/console/tokens');
      t.regex(page.url(), /sign-in/);
    });
  },
);

testInBrowser('each page weighs less than 100 kB with everything that it loads', async (t) => {
  const all = await data();
  for (const { at } of Object.values(testedPages)) {
    await visit(t, await browser(), all.server, { expected: /status of 422/ }, async ({ page, context }) => {
      const session = await context.newCDPSession(page);
      let bytes = 0;
      let files = 0;
      session.on('Network.loadingFinished', ({ encodedDataLength }) => {
        bytes += encodedDataLength;
        files += 1;
      });
      await session.send('Network.enable');
      await page.goto(at(all), { waitUntil: 'networkidle' });
      t.true(files >= 3, 'page, styles and script');
      t.true(bytes < mostBytes, `${at(all)}: ${bytes} bytes`);
    });
  }
});
