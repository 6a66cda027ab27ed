import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import type { Page } from 'playwright-core';
import { noCounts } from '../../src/usage/counters.ts';
import { periodAt } from '../../src/usage/period.ts';
import { browserCommand, browserIn, sharedIn, visit } from '../support/browser.ts';
import { testWith } from '../support/clients/test-with.ts';
import { TestFeed } from '../support/feed.ts';
import { databaseOf, defaultAccountOf, flushUsage, tokenOf } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { factsOf, violationsOf } from './in-page.ts';

// Lists that are sorted, filtered and added up, without JavaScript.

const testInBrowser = testWith(browserCommand);
const browser = browserIn(test);
const hostedCount = 56;
const day = 86_400_000;
const data = sharedIn(test, async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const feed = new TestFeed(server);
  const numbers = Array.from({ length: hostedCount }, (_, index) => index);
  // The order of the sizes is not that of the names.
  const sizeOf = (number: number) => 500 + ((number * 37) % hostedCount) * 200;
  await feed.publish(
    ...numbers.map((number) => ({
      id: `Made.P${String(number).padStart(2, '0')}`,
      readme: randomBytes(sizeOf(number) / 2).toString('hex'),
    })),
  );
  await feed.publish({ id: 'Made.P40', version: '2.0.0' });
  for (const version of ['v8', 'v9', 'v9'])
    await (await server.fetch(`/v2/team/one/manifests/${version}`)).arrayBuffer();
  await tokenOf(server, ['read']);
  await up.offer({ id: 'Zoo', versions: [{ version: '1.0.0' }] });
  for (const [id, times] of [
    ['zoo', 2],
    ['made.p40', 3],
  ] as const)
    for (let time = 0; time < times; time += 1)
      await (await feed.fetch(`/package/${id}/1.0.0/${id}.1.0.0.nupkg`)).arrayBuffer();
  await new TestRepository(server, 'team/one').image('v1');
  for (const tag of ['v1', 'v2']) await new TestRepository(server, 'team/two').image(tag);
  await flushUsage(server);
  // Each name was used on each of the last 30 days, so that each has a plot.
  const today = Math.floor(Date.now() / day) * day;
  const names = [...numbers.map((number) => `made.p${String(number).padStart(2, '0')}`), 'team/one'];
  await databaseOf(server).transaction(async (tx) => {
    for (const name of names) {
      const rows = Array.from({ length: 29 }, (_, index) => ({
        ...noCounts(),
        account_id: defaultAccountOf(server),
        dimension: name.includes('/') ? 'container' : 'package',
        period_start: periodAt(today - (index + 1) * day).start,
        name,
        day: today - (index + 1) * day,
        downloads: 100 + index,
      }));
      await tx.insertNew('usage_counts', rows);
    }
    const sample = { failures: 0, milliseconds: 0, needed: 0, hits: 0, received_bytes: 0 };
    const key = { kind: 'nuget', upstream: 'up.test', hour: today - day };
    await tx.insertNew('upstream_samples', [{ ...key, ...sample, requests: 700 }]);
  });
  return { server };
});

/** The values of a column of the page: what hovering shows, else the text. */
async function cellsOf(page: Page, title: string): Promise<string[]> {
  // After a click, the next page may have begun and not all of it have come.
  await page.waitForLoadState('domcontentloaded');
  return page.evaluate((wanted) => {
    const table = [...document.querySelectorAll('table')].at(-1)!;
    const heads = [...table.querySelectorAll('thead th')].map((each) => each.textContent.trim());
    return [...table.querySelectorAll('tbody tr')].map((row) => {
      const cell = row.children[heads.indexOf(wanted)]!;
      return cell.querySelector('[title]')?.getAttribute('title') ?? cell.textContent.trim();
    });
  }, title);
}

const numbersOf = async (page: Page, title: string) =>
  (await cellsOf(page, title)).map((text) => Number(text.replaceAll(/\D/g, '')));

function isFalling(t: ExecutionContext, numbers: readonly number[]): void {
  t.deepEqual(
    numbers,
    numbers.toSorted((one, other) => other - one),
  );
}

/** The orders that the heads of the last table show. */
async function ordersOf(page: Page): Promise<[string, string][]> {
  await page.waitForLoadState('domcontentloaded');
  return page.evaluate(() =>
    [...document.querySelectorAll('thead th[aria-sort]')].map((each): [string, string] => [
      each.textContent.trim(),
      each.getAttribute('aria-sort')!,
    ]),
  );
}

/** A head that sorts: a link, or a button in a list whose rows can be selected. */
const head = (page: Page, name: string) => {
  const heads = page.locator('thead');
  return heads.getByRole('link', { name, exact: true }).or(heads.getByRole('button', { name, exact: true }));
};
const next = (page: Page) => page.getByRole('link', { name: 'Next page' });

testInBrowser('packages: the heads sort, and pages and the filter keep the order', async (t) => {
  const { server } = await data();
  await visit(t, await browser(), server, { javaScriptEnabled: false }, async ({ page }) => {
    await page.goto('/console/packages');
    const first = await page.locator('main').innerText();
    t.regex(first, /57 packages, [\d.]+ [kM]B/);
    t.deepEqual(await ordersOf(page), [['Package', 'ascending']]);
    await head(page, 'Size').click();
    t.deepEqual(await ordersOf(page), [['Size', 'descending']]);
    const sizes = await numbersOf(page, 'Size');
    t.is(sizes.length, 50);
    await next(page).click();
    const more = await numbersOf(page, 'Size');
    t.is(more.length, 7);
    t.deepEqual(await ordersOf(page), [['Size', 'descending']], 'on the next page');
    isFalling(t, [...sizes, ...more]);
    t.true(new Set(sizes).size > 40, 'the sizes differ');

    await page.getByLabel('ID contains').fill('p4');
    await page.getByRole('button', { name: 'Filter' }).click();
    t.deepEqual(await ordersOf(page), [['Size', 'descending']], 'with the filter');
    const filtered = await numbersOf(page, 'Size');
    t.is(filtered.length, 10);
    isFalling(t, filtered);
    t.regex(await page.locator('main').innerText(), /10 packages, /);

    await head(page, 'Downloads').click();
    t.is((await cellsOf(page, 'Package'))[0], 'Made.P40');
    await head(page, 'Package').click();
    const names = await cellsOf(page, 'Package');
    t.deepEqual(names, names.toSorted());
    t.is(names.length, 10, 'the filter stays');
    t.deepEqual(await ordersOf(page), [['Package', 'ascending']]);
  });
});

testInBrowser('a filter that nothing matches says so, and can be cleared', async (t) => {
  const { server } = await data();
  for (const [path, label] of [
    ['/console/packages?sort=size', 'ID contains'],
    ['/console/images?sort=size', 'Name contains'],
    ['/console/usage?sort=downloads&group_by=container', 'Name contains'],
    ['/console/mirror/up.test?sort=size', 'Name begins with'],
  ] as const) {
    await visit(t, await browser(), server, { javaScriptEnabled: false }, async ({ page }) => {
      await page.goto(path);
      await page.getByLabel(label).fill('zzzz');
      await page.getByRole('button', { name: 'Filter' }).click();
      t.regex(await page.locator('.empty').last().innerText(), /^Nothing matches\. Clear the filter$/, path);
      await page.getByRole('link', { name: 'Clear the filter' }).click();
      t.is(await page.getByLabel(label).inputValue(), '');
      t.regex(page.url(), /sort=(?:size|downloads)/, 'the order stays');
      t.is((await ordersOf(page))[0]![1], 'descending');
      if (path.includes('usage')) t.regex(page.url(), /group_by=container/);
    });
  }
});

testInBrowser('images, usage and what is stored of an upstream are sorted by the heads, too', async (t) => {
  const { server } = await data();
  await visit(t, await browser(), server, { javaScriptEnabled: false }, async ({ page }) => {
    await page.goto('/console/images');
    t.deepEqual(await cellsOf(page, 'Image'), ['team/one', 'team/two']);
    t.regex(await page.locator('main').innerText(), /2 images, /);
    await head(page, 'Tags').click();
    t.deepEqual(await cellsOf(page, 'Image'), ['team/two', 'team/one']);

    await page.goto('/console/usage');
    await head(page, 'Requests').click();
    t.deepEqual((await cellsOf(page, 'Name')).slice(0, 2), ['made.p40', 'zoo']);
    t.regex(await page.locator('main').innerText(), /57 packages: [\d,]+ requests, [\d,]+ downloads, /);
    await next(page).click();
    t.deepEqual(await ordersOf(page), [['Requests', 'descending']]);
    await page.getByLabel('Name contains').fill('zoo');
    await page.getByRole('button', { name: 'Filter' }).click();
    t.deepEqual(await cellsOf(page, 'Name'), ['zoo']);
    t.regex(await page.locator('main').innerText(), /1 package: \d+ requests?, 2 downloads, /);
    await page.getByRole('link', { name: '‹' }).click();
    t.regex(page.url(), /q=zoo/, 'other months keep the filter');

    await page.goto('/console/mirror/up.test');
    await head(page, 'Size').click();
    const sizes = await numbersOf(page, 'Size');
    t.true(new Set(sizes).size >= 2);
    isFalling(t, sizes);
    t.regex(await page.locator('main').innerText(), new RegExp(`${sizes.length} entries, `));
  });
});

testInBrowser('versions, tags, tokens and failed requests are sorted by the heads, too', async (t) => {
  const { server } = await data();
  await visit(t, await browser(), server, { javaScriptEnabled: false }, async ({ page }) => {
    await page.goto('/console/packages/Made.P40?show=versions');
    t.deepEqual(await ordersOf(page), [['Version', 'descending']]);
    t.deepEqual(await cellsOf(page, 'Version'), ['2.0.0', '1.0.0']);
    await head(page, 'Size').click();
    t.deepEqual(await cellsOf(page, 'Version'), ['1.0.0', '2.0.0']);
    t.deepEqual(await ordersOf(page), [['Size', 'descending']]);
    await page.getByLabel('Versions that begin with').fill('1');
    await page.getByRole('button', { name: 'Filter' }).click();
    t.deepEqual(await cellsOf(page, 'Version'), ['1.0.0']);
    t.regex(page.url(), /show=versions.*sort=size/);

    await page.goto('/console/images/team%2Ftwo');
    t.deepEqual(await ordersOf(page), [['Updated', 'descending']]);
    for (const [order, tags] of [
      ['descending', ['v2', 'v1']],
      ['ascending', ['v1', 'v2']],
      ['descending', ['v2', 'v1']],
    ] as const) {
      await head(page, 'Tag').click();
      t.deepEqual(await ordersOf(page), [['Tag', order]]);
      t.deepEqual(await cellsOf(page, 'Tag'), tags);
    }
    for (const title of ['Size', 'Pulls', 'Updated']) {
      await head(page, title).click();
      t.deepEqual(await ordersOf(page), [[title, 'descending']]);
    }

    await page.goto('/console/tokens');
    t.deepEqual(await ordersOf(page), [['Made', 'descending']]);
    await head(page, 'Last used').click();
    t.deepEqual(await ordersOf(page), [['Last used', 'descending']]);

    await page.goto('/console/failures');
    t.deepEqual(await ordersOf(page), [['Last', 'descending']]);
    await head(page, 'Times').click();
    t.deepEqual(await ordersOf(page), [['Times', 'descending']]);
    t.deepEqual(await cellsOf(page, 'Times'), ['2', '1']);
  });
});

testInBrowser('plots show the last 30 days, also in words, and full lists weigh less than 100 kB', async (t) => {
  const { server } = await data();
  await visit(t, await browser(), server, { javaScriptEnabled: false }, async ({ page, context }) => {
    const session = await context.newCDPSession(page);
    let bytes = 0;
    session.on('Network.loadingFinished', ({ encodedDataLength }) => (bytes += encodedDataLength));
    await session.send('Network.enable');
    await page.goto('/console/packages', { waitUntil: 'networkidle' });
    t.true(bytes < 100_000, `${bytes} bytes`);
    const plot = page.getByRole('row', { name: 'Made.P40' }).getByRole('img');
    t.is(await plot.getAttribute('class'), 'spark');
    const sum = Array.from({ length: 29 }, (_, index) => 100 + index).reduce((all, each) => all + each, 3);
    const text = `${sum.toLocaleString('en')} downloads in 30 days, 128 at most on a day`;
    t.is(await plot.locator('title').textContent(), text);
    t.is(await page.getByRole('img', { name: text }).count(), 1);
    const box = (await plot.boundingBox())!;
    t.deepEqual([box.width, Math.round(box.height)], [90, 24]);
    // The latest day is the last bar, and the lowest.
    const bars = (await plot.locator('path').getAttribute('d'))!.split('M').slice(1);
    t.is(bars.length, 30);
    t.is(bars[0], '1 24v-24');
    t.is(bars[29], '88 24v-1');
    await page.goto('/console/images');
    t.is(await page.getByRole('img').count(), 1, 'none without a pull');
    t.regex((await page.getByRole('row', { name: 'team/one' }).locator('title').textContent())!, /pulls in 30 days/);
    await page.goto('/console/mirror');
    // The requests of this test are in it once their hour was counted.
    t.is(await page.getByRole('img', { name: /^7\d\d requests in 30 days, 700 at most on a day$/ }).count(), 1);
  });
});

testInBrowser('sorted lists are accessible at 1280 and 320 pixels, where the heads sort as well', async (t) => {
  const { server } = await data();
  for (const path of [
    '/console/packages?sort=size',
    '/console/images?sort=pulls',
    '/console/usage?group_by=package&sort=downloads',
    '/console/mirror/up.test?kind=nuget&sort=stored',
    '/console/packages/Made.P40?show=versions&sort=size',
    '/console/images/team%2Ftwo?sort=pulls',
    '/console/tokens?sort=used',
    '/console/failures?sort=count',
    '/console/claims?q=none',
    '/console/risks?q=none',
    '/console/deleted?q=none',
    '/console/bundles?state=incomplete',
  ]) {
    await visit(t, await browser(), server, { viewport: { width: 1280, height: 800 } }, async ({ page }) => {
      await page.goto(path);
      t.deepEqual(await violationsOf(page), [], path);
      await page.emulateMedia({ colorScheme: 'dark' });
      t.deepEqual(await violationsOf(page, ['color-contrast', 'link-in-text-block']), [], `${path} dark`);
      await page.setViewportSize({ width: 320, height: 700 });
      t.like(await factsOf(page), { overflow: 0, wide: [], small: [] }, path);
      t.deepEqual(await violationsOf(page), [], `${path} 320 pixels`);
      const heads = page.locator('thead :is(a, button):visible');
      for (const link of await heads.all()) {
        const box = (await link.boundingBox())!;
        t.true(box.height >= 24 && box.x >= 0 && box.x + box.width <= 320, path);
      }
      if (!(await heads.first().isVisible())) return;
      await heads.first().click();
      t.is((await ordersOf(page)).length, 1);
    });
  }
});
