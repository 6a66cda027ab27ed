import test, { type ExecutionContext } from 'ava';
import type { Page } from 'playwright-core';
import { browserCommand, browserIn, sharedIn, visit } from '../support/browser.ts';
import { testWith } from '../support/clients/test-with.ts';
import { makeToken } from '../support/console-data.ts';
import { TestFeed } from '../support/feed.ts';
import { allowLoopback, createWebhook, deliverUntil, startReceiver, type Receiver } from '../support/receiver.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// What is selected in a list stays selected on its other pages, without JavaScript.

const testInBrowser = testWith(browserCommand);
const browser = browserIn(test);

/** More than a page of each list with boxes. */
const many = 53;

interface Lists {
  server: TestServer;
  receiver: Receiver;
  webhookId: string;
}

const lists = sharedIn(test, async (t): Promise<Lists> => {
  const upstream = await startUpstreamRegistry(t);
  const receiver = await startReceiver(t);
  const server = await startTestServer(t, { ...allowLoopback, upstreams: [upstream.settings('up.test')] });
  const { id: webhookId } = await createWebhook(server, receiver.url, ['package.published']);
  const feed = new TestFeed(server);
  const repository = new TestRepository(server, 'team/app');
  const first = await repository.image('v0');
  const manifest = JSON.parse(first.bytes) as Record<string, unknown>;
  for (let index = 0; index < many; index += 1) {
    await feed.publish({ id: 'Contoso.Core', version: `1.${index}.0`, payloadBytes: 0 });
    await repository.put(`v${index}`, first.bytes);
    const untagged = JSON.stringify({ ...manifest, annotations: { index: String(index) } });
    await repository.put('moving', untagged);
    await makeToken(server, { name: `token ${index}`, scopes: ['read'] });
    const { digest } = upstream.blob('app', `blob ${index}`);
    await (await server.fetch(`/v2/up.test/app/blobs/${digest}`)).arrayBuffer();
  }
  await deliverUntil(server, () => receiver.received.length === many);
  return { server, receiver, webhookId };
});

const boxes = (page: Page) => page.locator('td input[type=checkbox]');
const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
const line = (page: Page) => page.locator('[data-selected]');

/** The values that the form of a confirmation sends. */
function sentValues(page: Page, name: string): Promise<string[]> {
  return page
    .locator(`form[method=post] input[type=hidden][name=${name}]`)
    .evaluateAll((all) => all.map((each) => (each as HTMLInputElement).value).toSorted());
}

/** Selects two rows of the first page and one of the second, and returns to the first. Resolves to their values. */
async function selectThree(t: ExecutionContext, page: Page): Promise<string[]> {
  const chosen: string[] = [];
  const check = async (index: number) => {
    await boxes(page).nth(index).check();
    chosen.push(await boxes(page).nth(index).inputValue());
  };
  t.true(await line(page).isHidden());
  await check(0);
  await check(2);
  await press(page, 'Next page');
  t.regex(await line(page).innerText(), /^2 selected, 2 of them not on this page\./);
  await check(1);
  await press(page, 'First page');
  t.regex(await line(page).innerText(), /^3 selected, 1 of them not on this page\./);
  t.deepEqual([await boxes(page).nth(0).isChecked(), await boxes(page).nth(1).isChecked()], [true, false]);
  t.true(await boxes(page).nth(2).isChecked());
  const heads = page.locator('thead button');
  if ((await heads.count()) > 0) {
    await heads.last().click();
    t.regex(await line(page).innerText(), /^3 selected/);
    t.regex(page.url(), /[?&]sort=/);
  }
  return chosen.toSorted();
}

const cases: Readonly<
  Record<
    string,
    { at: (all: Lists) => string; name: string; filter?: string; action: string; withoutConfirmation?: true }
  >
> = {
  versions: {
    at: () => '/console/packages/Contoso.Core?show=versions',
    name: 'version',
    filter: 'Versions that begin with',
    action: 'Delete…',
  },
  'versions to deprecate': {
    at: () => '/console/packages/Contoso.Core/deprecation',
    name: 'version',
    action: 'Deprecate or end the deprecation…',
  },
  tags: { at: () => '/console/images/team%2Fapp', name: 'tag', filter: 'Tags that contain', action: 'Delete…' },
  'untagged manifests': {
    at: () => '/console/images/team%2Fapp?show=untagged',
    name: 'digest',
    action: 'Delete…',
  },
  tokens: { at: () => '/console/tokens', name: 'id', filter: 'Name contains', action: 'Revoke the selected tokens…' },
  'entries of an upstream': {
    at: () => '/console/mirror/up.test?kind=registry',
    name: 'entry',
    filter: 'Name begins with',
    action: 'Drop the selected entries…',
  },
  deliveries: {
    at: ({ webhookId }) => `/console/webhooks/${webhookId}`,
    name: 'delivery',
    action: 'Deliver the selected ones again',
    withoutConfirmation: true,
  },
};

for (const [title, { at, name, filter, action, withoutConfirmation }] of Object.entries(cases)) {
  testInBrowser(`${title}: what is selected on several pages is acted on together, without JavaScript`, async (t) => {
    const all = await lists();
    await visit(t, await browser(), all.server, { javaScriptEnabled: false }, async ({ page }) => {
      await page.goto(at(all));
      const chosen = await selectThree(t, page);
      if (filter !== undefined) {
        await page.getByLabel(filter).fill('none of them');
        await press(page, 'Filter');
        t.is(await boxes(page).count(), 0);
        t.regex(await line(page).innerText(), /^3 selected, 3 of them not on this page\./);
      }
      if (withoutConfirmation) {
        await press(page, action);
        t.regex(await page.locator('.notice').innerText(), /due again/);
        const { received } = all.receiver;
        await deliverUntil(all.server, () => received.length >= many + 3);
        t.deepEqual(
          received
            .slice(many)
            .map(({ headers }) => String(headers['webhook-id']))
            .toSorted(),
          chosen,
        );
        return;
      }
      await press(page, action);
      t.deepEqual(await sentValues(page, name), chosen);
      await page.reload();
      t.deepEqual(await sentValues(page, name), chosen, 'loaded again');
      await page.getByRole('link', { name: /^(Keep|Cancel)/ }).click();
      t.regex(await line(page).innerText(), /^3 selected/, 'back in the list');
      await page.getByRole('link', { name: 'Clear the selection' }).click();
      t.true(await line(page).isHidden());
      t.is(await page.locator('td input:checked').count(), 0);
    });
  });
}

testInBrowser('with JavaScript, the number of selected rows follows the boxes', async (t) => {
  const { server } = await lists();
  await visit(t, await browser(), server, {}, async ({ page }) => {
    await page.goto('/console/tokens');
    await boxes(page).nth(0).check();
    await boxes(page).nth(1).check();
    t.regex(await line(page).innerText(), /^2 selected\./);
    await press(page, 'Next page');
    await boxes(page).nth(0).check();
    t.regex(await line(page).innerText(), /^3 selected/);
    await press(page, 'First page');
    for (const index of [0, 1]) await boxes(page).nth(index).uncheck();
    t.regex(await line(page).innerText(), /^1 selected/);
    await page.getByRole('link', { name: 'Clear the selection' }).click();
    t.true(await line(page).isHidden());
  });
});
