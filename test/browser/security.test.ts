import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import type { BrowserContext } from 'playwright-core';
import { browserCommand, browserIn, lanAddress, visit } from '../support/browser.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startTlsServer } from '../support/tls.ts';
import { Visitor } from '../support/visitor.ts';

// What pages of other sites can do to the console, and its cookies, as browsers really behave.

const testInBrowser = testWith(browserCommand);
const browser = browserIn(test);

/** Another site: a server that answers each request with `page`. */
async function otherSite(t: ExecutionContext, page: string, host = '127.0.0.1'): Promise<string> {
  const site = createServer((_request, response) => {
    response.setHeader('Content-Type', 'text/html; charset=utf-8').end(page);
  }).listen(0, host);
  await once(site, 'listening');
  t.teardown(() => {
    site.closeAllConnections();
    site.close();
  });
  return `http://${host}:${(site.address() as AddressInfo).port}`;
}

const formTo = (url: string, path: string, fields: Record<string, string>) =>
  `<!doctype html><title>Prize</title><form method="post" action="${url}/console${path}">${Object.entries(fields)
    .map(([name, value]) => `<input type="hidden" name="${name}" value="${value}">`)
    .join('')}<button>Win</button></form>`;

async function tokenNames(server: TestServer): Promise<string[]> {
  const { items } = (await (await server.fetch('/v1/tokens')).json()) as { items: { name: string }[] };
  return items.map(({ name }) => name);
}

testInBrowser('a form of another site is refused, and changes nothing', async (t) => {
  const server = await startTestServer(t);
  const { port } = new URL(server.url);
  // Another port is the same site for cookies: SameSite does not hold them back. Another host name is another site.
  for (const [host, address] of [
    ['127.0.0.1', server.url],
    ['localhost', server.url],
    ['127.0.0.1', `http://localhost:${port}`],
  ] as const) {
    for (const [path, fields] of [
      ['/tokens/new', { name: 'stolen', scope: 'admin', days: '0' }],
      ['/sign-out', {}],
      ['/jobs/gc', { act: 'run' }],
    ] as const) {
      const site = await otherSite(t, formTo(address, path, fields), host);
      const options = { url: address, origins: [site], expected: /status of 40[13]|Cross-Origin-Opener-Policy/ };
      await visit(t, await browser(), server, options, async ({ page }) => {
        await page.goto('/console/tokens');
        t.is(await page.locator('h1').innerText(), 'Tokens');
        await page.goto(site);
        await page.getByRole('button').click();
        t.regex(
          await page.locator('main').innerText(),
          /A page of another site sent this form, so nothing was changed/,
        );
        await page.goto('/console/tokens');
        t.is(await page.locator('h1').innerText(), 'Tokens', 'still signed in');
      });
    }
  }
  t.deepEqual(await tokenNames(server), ['first token']);
});

testInBrowser('a page of another site shows no page of the console in a frame, and reads none', async (t) => {
  const server = await startTestServer(t);
  const site = await otherSite(
    t,
    `<!doctype html><title>Frame</title><iframe src="${server.url}/console/tokens"></iframe>`,
  );
  const options = {
    origins: [site],
    expected: /frame-ancestors|ERR_BLOCKED_BY_RESPONSE|blocked by CORS policy|ERR_FAILED/,
  };
  await visit(t, await browser(), server, options, async ({ page, context }) => {
    await page.goto(site);
    const frame = page.frames()[1]!;
    t.notRegex(await frame.content(), /Tokens/);
    const read = page.evaluate(
      (url) => fetch(url, { credentials: 'include' }).then((response) => response.text()),
      `${server.url}/console/tokens`,
    );
    await t.throwsAsync(read, { message: /Failed to fetch/ });
    // A page that another one opened keeps no reference to it.
    const [opened] = await Promise.all([
      context.waitForEvent('page'),
      page.evaluate((url) => {
        Object.assign(globalThis, { opened: open(url) });
      }, `${server.url}/console/tokens`),
    ]);
    await opened.waitForLoadState();
    t.is(await opened.evaluate(() => window.opener), null);
    t.true(await page.evaluate(() => (globalThis as unknown as { opened: Window }).opened.closed));
  });
});

testInBrowser('sign-in gives a new session, and leads only to pages of the console', async (t) => {
  const server = await startTestServer(t);
  const stranger = await Visitor.signedIn(server);
  for (const [next, path] of [
    ['/console/tokens', '/console/tokens'],
    ['https://evil.test/', '/console/'],
    ['//evil.test/console/', '/console/'],
    ['/console/\\..\\..\\evil', '/console/'],
    ['/\\evil.test/', '/console/'],
    ['/console/..%2f..%2f%2fevil.test', '/console/..%2f..%2f%2fevil.test'],
    ['javascript:xss()', '/console/'],
    ['\t//evil.test', '/console/'],
  ] as const) {
    const options = { token: null, expected: /status of 404/ };
    await visit(t, await browser(), server, options, async ({ page, context }) => {
      // A cookie that somebody else has put there, and knows.
      const chosen = 'A'.repeat(43);
      await setSession(context, server, chosen);
      await page.goto(`/console/sign-in?next=${encodeURIComponent(next)}`);
      await page.getByLabel('API token').fill(server.token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.waitForURL((url) => !url.pathname.startsWith('/console/sign-in'));
      t.is(page.url(), server.url + path, next);
      t.not((await sessionOf(context)).value, chosen);
    });
  }
  await visit(t, await browser(), server, { token: null }, async ({ page, context }) => {
    // The session of another person: the sign-in page does not ask there, and signing out ends only that session.
    await setSession(context, server, stranger.cookie!.split('=')[1]!);
    await page.goto('/console/tokens');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('API token').fill(server.token);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.waitForURL('**/console/');
    t.not((await sessionOf(context)).value, stranger.cookie!.split('=')[1]);
  });
  t.is((await stranger.fetch('/console/connect')).status, 303);
});

async function setSession(context: BrowserContext, { url }: TestServer, value: string): Promise<void> {
  await context.addCookies([{ name: 'entrepot-session', value, url }]);
}

async function sessionOf(context: BrowserContext) {
  const cookies = await context.cookies();
  if (cookies.length !== 1) throw new Error(`${cookies.length} cookies`);
  return cookies[0]!;
}

testInBrowser(
  'the cookie of a session is kept from scripts, and over HTTPS from plain HTTP and other hosts',
  async (t) => {
    const plain = await startTestServer(t);
    const { server: secure } = await startTlsServer(t);
    for (const [server, flags] of [
      [plain, { name: 'entrepot-session', secure: false }],
      [secure, { name: '__Host-entrepot-session', secure: true }],
    ] as const) {
      await visit(t, await browser(), server, { token: null, ignoreHTTPSErrors: true }, async ({ page, context }) => {
        await page.goto('/console/');
        await page.getByLabel('API token').fill(server.token);
        await page.getByRole('button', { name: 'Sign in' }).click();
        await page.waitForURL('**/console/');
        const cookie = await sessionOf(context);
        t.like(cookie, { ...flags, httpOnly: true, sameSite: 'Lax', path: '/', domain: '127.0.0.1', expires: -1 });
        t.is(await page.evaluate(() => document.cookie), '');
        await page.getByRole('button', { name: 'Sign out' }).click();
        t.deepEqual(await context.cookies(), []);
      });
    }
  },
);

testInBrowser(
  'plain HTTP on an address of the network: signing in, forms and copying work, other sites are refused',
  async (t) => {
    if (lanAddress === undefined) {
      t.log('this machine has no such address');
      t.pass();
      return;
    }
    const server = await startTestServer(t, { server: { host: lanAddress } });
    const site = await otherSite(t, formTo(server.url, '/tokens/new', { name: 'stolen', scope: 'admin' }), lanAddress);
    // Chromium says on each page that the header counts over HTTPS only.
    const expected = /Cross-Origin-Opener-Policy|status of 403/;
    await visit(t, await browser(), server, { token: null, expected, origins: [site] }, async ({ page, context }) => {
      const sent: Record<string, string>[] = [];
      page.on('request', (request) => {
        if (request.method() === 'POST') void request.allHeaders().then((headers) => sent.push(headers));
      });
      await page.goto('/console/tokens');
      await page.getByLabel('API token').fill(server.token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.waitForURL('**/console/tokens');
      t.like(await sessionOf(context), { name: 'entrepot-session', secure: false, httpOnly: true });
      await page.goto('/console/tokens/new');
      await page.getByLabel('Name', { exact: true }).fill('from the network');
      await page.getByRole('button', { name: 'Create' }).click();
      const copy = page.locator('button.copy').first();
      await copy.click();
      t.regex(await copy.innerText(), /^Copied/);
      t.is(sent.length, 2);
      t.true(sent.every((headers) => headers['origin'] === server.url && !('sec-fetch-site' in headers)));
      await page.goto(site);
      await page.getByRole('button').click();
      t.regex(await page.locator('main').innerText(), /A page of another site sent this form/);
    });
    t.deepEqual((await tokenNames(server)).sort(), ['first token', 'from the network']);
  },
);
