import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import type { Browser } from 'playwright-core';
import { testedPages } from '../test/browser/pages.ts';
import { browserCommand, startBrowser } from '../test/support/browser.ts';
import { requiredCommand } from '../test/support/clients/clients.ts';
import { startWithData, type ConsoleData } from '../test/support/console-data.ts';
import { Visitor } from '../test/support/visitor.ts';
import { describeMissing, ensureCommands } from './packages.ts';

// `npm run screenshots`: writes pages of the console to docs/images/, light and dark, wide and narrow. It fills a server with
// made content and contacts no other host. `npm run screenshots -- FOLDER [TEXT]` writes them to another folder, and only
// those whose name contains TEXT.

const [folder = 'docs/images', only = ''] = process.argv.slice(2);
/** The time on the screenshots, so that they change only when the pages do. */
const now = Date.parse('2026-11-20T15:04:00Z');
/** A longer page is cut, in pixels. */
const tallest = 1500;

/** Name of the file → page. */
const shown: Readonly<Record<string, keyof typeof testedPages>> = {
  overview: '/',
  search: '/search',
  packages: '/packages',
  package: '/packages/:id',
  vulnerable: '/vulnerable',
  'package-delete': '/packages/:id/delete',
  'package-deprecation': '/packages/:id/deprecation',
  upload: '/upload',
  images: '/images',
  image: '/images/:name',
  digest: '/images/:name/:digest',
  claims: '/claims',
  permanence: '/permanence',
  policy: '/policy',
  waivers: '/waivers',
  promotions: '/promotions',
  mirror: '/mirror',
  upstream: '/mirror/:id',
  prefetch: '/prefetch/:id',
  failures: '/failures',
  explain: '/explain',
  usage: '/usage',
  storage: '/storage',
  tokens: '/tokens',
  token: '/tokens/:id',
  'token-new': '/tokens/new',
  publishers: '/publishers',
  'publisher-use': '/publishers/:id/use',
  'publisher-explain': '/publishers/explain',
  jobs: '/jobs',
  job: '/jobs/:name',
  audit: '/audit',
  webhooks: '/webhooks',
  webhook: '/webhooks/:id',
  delivery: '/webhooks/:id/deliveries/:delivery',
  connect: '/connect',
};

const forms = [
  { suffix: '', colorScheme: 'light', width: 1280 },
  { suffix: '-dark', colorScheme: 'dark', width: 1280 },
  { suffix: '-narrow', colorScheme: 'light', width: 390 },
] as const;

const commands = await ensureCommands({ [browserCommand]: browserCommand, pngquant: 'pngquant' });
if (commands.missing.length > 0) throw new Error(describeMissing(commands));
await mkdir(folder, { recursive: true });
await using stack = new AsyncDisposableStack();
const data = await startWithData({ teardown: (end) => stack.defer(end) }, { days: 19, now, settings: behindProxy() });
const browser = await startBrowser();
stack.defer(() => browser.close());
for (const form of forms) await takeAll(browser, data, form);

/** The lines of commands name the address of a proxy. */
function behindProxy(): Record<string, unknown> {
  return { server: { trustProxy: true } };
}

async function takeAll(browser: Browser, data: ConsoleData, form: (typeof forms)[number]): Promise<void> {
  const agent = 'Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0';
  const visitor = new Visitor(data.server);
  await visitor.send('/console/sign-in', { token: data.server.token }, { 'user-agent': agent });
  const context = await browser.newContext({
    baseURL: data.server.url,
    colorScheme: form.colorScheme,
    reducedMotion: 'reduce',
    viewport: { width: form.width, height: 800 },
    extraHTTPHeaders: {
      'X-Forwarded-Proto': 'https',
      'X-Forwarded-Host': 'hub.example.com',
      Cookie: `__Host-${visitor.cookie}`,
    },
  });
  const page = await context.newPage();
  for (const [name, path] of Object.entries(shown)) {
    if (!name.includes(only)) continue;
    await page.goto(testedPages[path]!.at(data));
    const height = await page.locator('html').evaluate((root) => Math.ceil(root.getBoundingClientRect().height));
    const clip = { x: 0, y: 0, width: form.width, height: Math.min(height, tallest) };
    const file = join(folder, `${name}${form.suffix}.png`);
    const bytes = await reduced(await page.screenshot({ fullPage: true, clip }));
    await writeFile(file, bytes);
    console.log(`${file}: ${bytes.length} bytes`);
  }
  await context.close();
  await visitor.send('/console/sign-out', {});
}

/** The image with at most 64 colours, which takes a third of the bytes. */
async function reduced(png: Buffer): Promise<Buffer> {
  const child = spawn(requiredCommand('pngquant'), ['64', '--speed', '1', '--strip', '-'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  child.stdin.end(png);
  const [bytes, [code]] = await Promise.all([buffer(child.stdout), once(child, 'close')]);
  if (code !== 0) throw new Error(`pngquant ended with ${code}`);
  return bytes;
}
