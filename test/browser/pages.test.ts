import test from 'ava';
import { pages } from '../../src/console/pages/index.ts';
import { browserCommand, browserIn, sharedIn, visit } from '../support/browser.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startWithData } from '../support/console-data.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, flushUsage, tokenOf } from '../support/inside.ts';
import { allowLoopback, createWebhook, deliverUntil, startReceiver } from '../support/receiver.ts';
import { ociIndex, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { Visitor } from '../support/visitor.ts';
import { violationsOf } from './in-page.ts';
import { pagesOfPeople, testedPages } from './pages.ts';

// The pages of the console: titles, the scopes that show each, and the header. Accessibility and width: accessible.long.test.ts.

const testInBrowser = testWith(browserCommand);
const browser = browserIn(test);
const data = sharedIn(test, (t) => startWithData(t, { days: 2, now: Date.now() }));

test('every page of the console is in the table of tested pages', (t) => {
  t.deepEqual([...Object.keys(testedPages), ...pagesOfPeople].sort(), pages.map(({ path }) => path).sort());
});

testInBrowser('on a phone the header leaves the page its place, and shows the section of the page', async (t) => {
  const { server } = await data();
  await visit(t, await browser(), server, { viewport: { width: 390, height: 844 } }, async ({ page }) => {
    for (const path of ['/console/mirror', '/console/audit']) {
      await page.goto(path);
      const { y } = (await page.locator('main').boundingBox())!;
      t.true(y < 210, `${path}: ${y} pixels`);
      const { x, width } = (await page.locator('.sections [aria-current]').boundingBox())!;
      t.true(x >= 0 && x + width <= 390, `${path}: ${x}`);
    }
  });
});

testInBrowser('the counters of the overview follow what clients do, without loading the page again', async (t) => {
  const { server } = await data();
  await visit(t, await browser(), server, {}, async ({ page }) => {
    await page.clock.install();
    await page.goto('/console/');
    const counter = page.locator('[data-live="uploads"]');
    const before = Number(await counter.textContent());
    await page.evaluate(() => Object.assign(globalThis, { isSame: true }));
    await new TestFeed(server).publish({ id: 'Counted.Live', version: '1.0.0' });
    await flushUsage(server);
    await until(async () => {
      await page.clock.fastForward(5000);
      return Number(await counter.textContent()) === before + 1;
    });
    t.true(await page.evaluate(() => 'isSame' in globalThis));
  });
});

testInBrowser('the answer to a form is never loaded again by itself, and a choice is not lost', async (t) => {
  const receiver = await startReceiver(t);
  const server = await startTestServer(t, allowLoopback);
  const { id } = await createWebhook(server, receiver.url, ['package.published']);
  receiver.answer = (response) => void response.writeHead(500).end();
  await new TestFeed(server).publish({ id: 'Waits', version: '1.0.0' });
  await deliverUntil(server, () => receiver.received.length === 1);
  const { value } = await createToken(server, ['read', 'write', 'admin'], 'other');
  await visit(t, await browser(), server, {}, async ({ page }) => {
    await page.clock.install();
    await page.goto(`/console/webhooks/${id}`);
    let asked = 0;
    page.on('request', (request) => (asked += request.resourceType() === 'fetch' ? 1 : 0));
    const first = page.waitForRequest((request) => request.resourceType() === 'fetch');
    await page.clock.runFor(6000);
    await (await first).response();
    await page.getByRole('button', { name: 'Send a test' }).click();
    await page.getByText('Result of the test').waitFor();
    t.is(await page.locator('[data-refresh]').count(), 1);
    await page.clock.runFor(60_000);
    t.deepEqual([asked, receiver.received.length], [1, 2], 'loading it again would send the form again');
  });
  await visit(t, await browser(), server, { token: value }, async ({ page }) => {
    await page.clock.install();
    await page.goto('/console/connect');
    await page.evaluate(() => Object.assign(globalThis, { isSame: true }));
    await page.getByLabel('To', { exact: true }).selectOption('read write');
    await (await server.fetch('/v3/index.json', { token: value })).text();
    for (let turn = 1; turn <= 2; turn += 1) {
      const answer = page.waitForResponse((response) => response.request().resourceType() === 'fetch');
      await page.clock.runFor(3000);
      await (await answer).finished();
    }
    t.true(await page.evaluate(() => 'isSame' in globalThis));
    t.is(await page.getByLabel('To', { exact: true }).inputValue(), 'read write');
  });
});

testInBrowser('tables show clock times, no plain text takes the focus, and Copy covers no line', async (t) => {
  const { server, image } = await data();
  await visit(t, await browser(), server, { viewport: { width: 1280, height: 800 } }, async ({ page }) => {
    await page.goto('/console/packages');
    const shown = await page.evaluate(() => {
      const time = document.querySelector('td time')!;
      const stops = [...document.querySelectorAll('main [tabindex="0"]')].filter(
        (each) => !each.matches('pre, .table'),
      );
      return { clock: getComputedStyle(time, '::after').content, stops: stops.length };
    });
    t.regex(shown.clock, /^"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"$/);
    t.is(shown.stops, 0);
    await page.goto('/console/connect');
    for (const block of (await page.locator('.lines:visible').all()).slice(0, 3)) {
      const [text, copy] = [await block.locator('pre').boundingBox(), await block.locator('.copy').boundingBox()];
      t.true(text!.x + text!.width <= copy!.x);
    }
  });
  await visit(t, await browser(), server, { viewport: { width: 390, height: 844 } }, async ({ page }) => {
    await page.goto(`/console/images/${encodeURIComponent(image)}`);
    const row = page.locator('tbody tr').first();
    const [box, tag] = [
      await row.getByRole('checkbox').boundingBox(),
      await row.getByRole('link').first().boundingBox(),
    ];
    t.true(tag!.x + tag!.width <= 390 && Math.abs(tag!.y - box!.y) < 24, 'the tag is beside its box');
    t.regex(await row.innerText(), /latest/);
    for (const cell of await row.getByRole('cell').all()) {
      const place = await cell.boundingBox();
      t.true(place === null || place.x + place.width <= 390);
    }
  });
});

testInBrowser('the navigation marks the page within its section', async (t) => {
  const { server, prefetchId } = await data();
  await visit(t, await browser(), server, {}, async ({ page }) => {
    for (const [path, ...marked] of [
      [`/console/prefetch/${prefetchId}`, 'Mirror true', 'Prefetch page'],
      ['/console/claims', 'Packages true', 'Claims page'],
      ['/console/mirror', 'Mirror page'],
    ]) {
      await page.goto(path!);
      const marks = await page
        .locator('.sections [aria-current]')
        .evaluateAll((all) => all.map((each) => `${each.textContent} ${each.getAttribute('aria-current')}`));
      t.deepEqual(marks, marked, path);
    }
  });
});

testInBrowser('an attestation that many indexes list has links that are far enough from each other', async (t) => {
  const { server } = await data();
  const repository = new TestRepository(server, 'team/attested');
  const config = await repository.blob('{}');
  const attestation = { schemaVersion: 2, mediaType: ociManifest, config, layers: [] };
  const pushed = await repository.put('attestation', JSON.stringify(attestation), ociManifest);
  const digest = pushed.headers.get('docker-content-digest')!;
  const size = JSON.stringify(attestation).length;
  for (let number = 0; number < 24; number += 1) {
    const manifests = [{ mediaType: ociManifest, digest, size, annotations: { number: String(number) } }];
    const index = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests });
    t.is((await repository.put(`v${number}`, index, ociIndex)).status, 201);
  }
  await visit(t, await browser(), server, { viewport: { width: 1280, height: 800 } }, async ({ page }) => {
    await page.goto(`/console/images/team%2Fattested/${encodeURIComponent(digest)}`);
    t.is(await page.locator('.choices a').count(), 24);
    for (const width of [1280, 320]) {
      await page.setViewportSize({ width, height: 800 });
      t.deepEqual(await violationsOf(page, ['target-size']), [], `${width} pixels`);
    }
  });
});

testInBrowser('the titles of all pages differ', async (t) => {
  const all = await data();
  const visitor = await Visitor.signedIn(all.server);
  const titles = new Map<string, string>();
  for (const [path, { at }] of Object.entries(testedPages)) {
    const [, title] = /<title>([^<]*)<\/title>/.exec(await (await visitor.fetch(at(all))).text())!;
    t.false(titles.has(title!), `${path} and ${titles.get(title!)}: ${title}`);
    titles.set(title!, path);
  }
});

testInBrowser('each page needs exactly the scopes in the table', async (t) => {
  const all = await data();
  const every = ['read', 'write', 'delete', 'promote', 'admin', 'operate'] as const;
  for (const [path, { at, scopes, also = [], status = 200 }] of Object.entries(testedPages)) {
    const enough = await Visitor.signedIn(all.server, await tokenOf(all.server, scopes));
    t.is((await enough.fetch(at(all))).status, status, path);
    const others = every.filter((each) => !scopes.includes(each) && !also.includes(each));
    const tooLittle = await Visitor.signedIn(all.server, await tokenOf(all.server, others));
    t.is((await tooLittle.fetch(at(all))).status, 403, path);
  }
});
