import type { ExecutionContext, TestFn } from 'ava';
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core';
import { networkInterfaces } from 'node:os';
import { requiredCommand } from './clients/clients.ts';
import type { TestServer } from './server.ts';
import { Visitor } from './visitor.ts';

// Pages in a real browser. What a browser reports fails the test: errors, refused content, requests to other servers.

/** Debian's Chromium without windows. playwright-core itself downloads no browser. */
export const browserCommand = 'chromium-headless-shell';

/** An address of this machine that is not loopback; undefined if it has none. */
export const lanAddress = Object.values(networkInterfaces())
  .flatMap((each) => each ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;

/** Starts the browser. It reaches this machine only; `hosts` maps host names to addresses such as `127.0.0.1:8080`. */
export function startBrowser(hosts: Readonly<Record<string, string>> = {}): Promise<Browser> {
  const own = ['127.0.0.1', 'localhost', lanAddress, ...Object.keys(hosts)].filter((each) => each !== undefined);
  const rules = [
    ...Object.entries(hosts).map(([name, address]) => `MAP ${name} ${address}`),
    'MAP * ~NOTFOUND',
    ...own.map((each) => `EXCLUDE ${each}`),
  ];
  return chromium.launch({
    executablePath: requiredCommand(browserCommand),
    args: [`--host-resolver-rules=${rules.join(', ')}`],
  });
}

/** What `start` makes for all tests of a file: it starts with the first test that needs it, and ends after the last one. */
export function sharedIn<Made>(
  test: TestFn,
  start: (t: Pick<ExecutionContext, 'teardown'>) => Promise<Made>,
): () => Promise<Made> {
  const ends: (() => void | PromiseLike<void>)[] = [];
  let started: Promise<Made> | undefined;
  test.after.always(async () => {
    await started?.catch(() => undefined);
    for (const end of ends.toReversed()) await end();
  });
  return () => (started ??= start({ teardown: (end) => void ends.push(end) }));
}

/** The browser of a test file. */
export function browserIn(test: TestFn): () => Promise<Browser> {
  return sharedIn(test, async (t) => {
    const browser = await startBrowser();
    t.teardown(() => browser.close());
    return browser;
  });
}

export interface VisitOptions extends BrowserContextOptions {
  /** The token that the browser is signed in with; by default the token of the server. Null for none. */
  token?: string | null;
  /** Another address of the server; by default `server.url`. */
  url?: string;
  /** Messages of the console that the test expects. */
  expected?: RegExp;
  /** Allows requests to these origins. */
  origins?: readonly string[];
}

/** A browser window with cookies of its own. */
export interface Visit {
  page: Page;
  context: BrowserContext;
  /** What the browser reported. */
  problems: string[];
}

/**
 * Opens a window, runs `work` in it, and closes it. Fails the test if the browser reported an error, a violation of the
 * content security policy, a dialog, a failed request or a request to another origin.
 */
export async function visit(
  t: ExecutionContext,
  browser: Browser,
  server: TestServer,
  options: VisitOptions,
  work: (visit: Visit) => Promise<void>,
): Promise<void> {
  const { token, url = server.url, expected, origins = [], ...rest } = options;
  const context = await browser.newContext({ baseURL: url, reducedMotion: 'reduce', ...rest });
  try {
    const problems = await watch(context, new Set([new URL(url).origin, ...origins]), expected);
    if (token !== null) await signIn(context, server, url, token);
    const page = await context.newPage();
    await work({ page, context, problems });
    t.deepEqual(problems, []);
  } finally {
    await context.close();
  }
}

/** Sends the sign-in form outside of the browser, and gives the browser its cookie. */
export async function signIn(
  context: BrowserContext,
  server: TestServer,
  url = server.url,
  token = server.token,
): Promise<void> {
  const { cookie } = await Visitor.signedIn(server, token);
  const [name, value] = cookie!.split('=') as [string, string];
  await context.addCookies([{ name, value, url, httpOnly: true, sameSite: 'Lax' }]);
}

/** Runs in each page before its own scripts. A string, because the types of browsers are those of `test/browser` only. */
const reporter = `
document.addEventListener('securitypolicyviolation', (event) =>
  reportProblem('policy: ' + event.violatedDirective + ' refused ' + event.blockedURI + ' ' + event.sample));
globalThis.xss = () => reportProblem('a payload ran on ' + location.pathname);
`;

/** Records what goes wrong in all windows of a context. The payloads of tests call `xss()`. */
async function watch(context: BrowserContext, origins: Set<string>, expected: RegExp | undefined): Promise<string[]> {
  const problems: string[] = [];
  const note = (text: string) => {
    if (!expected?.test(text)) problems.push(text);
  };
  await context.exposeBinding('reportProblem', (_source, text: string) => note(text));
  await context.addInitScript({ content: reporter });
  context.on('page', (page) => {
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) note(`console: ${message.text()}`);
    });
    page.on('pageerror', (error) => note(`script: ${error.message}`));
    page.on('dialog', async (dialog) => {
      note(`dialog: ${dialog.message()}`);
      await dialog.dismiss();
    });
    page.on('requestfailed', (request) => note(`failed: ${request.url()} ${request.failure()?.errorText}`));
    page.on('request', (request) => {
      const { protocol, origin } = new URL(request.url());
      if (protocol !== 'data:' && !origins.has(origin)) note(`request to another origin: ${request.url()}`);
    });
  });
  return problems;
}
