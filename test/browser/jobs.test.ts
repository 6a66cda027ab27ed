import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { Page } from 'playwright-core';
import { browserCommand, browserIn, sharedIn, visit } from '../support/browser.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startWithData, type ConsoleData } from '../support/console-data.ts';
import { createToken } from '../support/inside.ts';

// What people come to the console for, each from the overview, with made content as `npm run demo:console` shows it. The table in
// docs/console.md has the pages and clicks that each takes.

const testInBrowser = testWith(browserCommand);
const browser = browserIn(test);
const data = sharedIn(test, (t) => startWithData(t, { days: 10, now: Date.now() }));

/** A visitor who follows links and sends forms. */
class Walk {
  readonly page: Page;
  /** Links and buttons that were pressed. */
  clicks = 0;

  constructor(page: Page) {
    this.page = page;
  }

  async follow(name: string | RegExp, within = 'main, nav.sections'): Promise<void> {
    this.clicks += 1;
    await this.page.locator(within).getByRole('link', { name }).first().click();
  }

  async press(name: string | RegExp): Promise<void> {
    this.clicks += 1;
    await this.page.getByRole('button', { name }).first().click();
  }

  async search(text: string): Promise<void> {
    await this.page.locator('#find').fill(text);
    await this.press('Search');
  }

  /** Waits until the page shows this. */
  async sees(...texts: (string | RegExp)[]): Promise<void> {
    for (const text of texts) await this.page.getByText(text).first().waitFor({ state: 'attached' });
  }
}

const jobs: Readonly<Record<string, (walk: Walk, data: ConsoleData) => Promise<void>>> = {
  'Connect a client': async (walk) => {
    await walk.follow('Connect');
    await walk.press('Create a token and fill it in below');
    await walk.sees(/dotnet nuget add source \S+ --name entrepot --username api --password ent_/);
  },
  'Find a package': async (walk) => {
    await walk.search('contoso.core');
    await walk.follow('Contoso.Core');
    await walk.sees('Latest versions', /dotnet add package Contoso\.Core --version/, 'The types that all services');
  },
  'Find an image tag': async (walk) => {
    await walk.search('team/api');
    await walk.follow('team/api');
    await walk.sees(/docker pull \S+\/team\/api:latest/);
  },
  'Find out why a restore or a pull failed': async (walk, { server }) => {
    await (await server.fetch('/v3/package/contoso.typo/index.json')).arrayBuffer();
    await walk.follow('Mirror');
    await walk.follow('Failed requests');
    await walk.follow('contoso.typo');
    await walk.sees('Last failed request', /says that it has no contoso\.typo/);
  },
  'Make a rule for a CI': async (walk) => {
    await walk.follow('Tokens');
    await walk.follow('Rules for a CI');
    await walk.follow('Create a rule');
    await walk.page.getByLabel('Name', { exact: true }).fill('nightly builds');
    await walk.page.getByRole('textbox', { name: 'Claims' }).fill('project_id = 42');
    await walk.press('Save');
    await walk.sees('Paste this into', /token-exchange/);
  },
  'Trace a leaked token': async (walk, { server }) => {
    const { value } = await createToken(server, ['read']);
    await (await server.fetch('/v1/packages', { token: value, headers: { 'user-agent': 'curl/8' } })).arrayBuffer();
    await walk.follow('Tokens');
    await walk.follow('Find a token', 'nav.sections');
    await walk.page.getByLabel('A token, or its beginning').fill(value);
    await walk.press('Find');
    await walk.sees('From where, in the last 30 days', 'curl/8', 'What it changed', 'Revoke…');
  },
  'See what fills the disk': async (walk) => {
    await walk.follow('Usage');
    await walk.follow('Storage');
    await walk.sees(
      'The largest packages and images',
      'Not downloaded and not changed for 90 days',
      'What can be freed',
    );
  },
  'See what is vulnerable': async (walk) => {
    await walk.follow('Vulnerable and deprecated');
    await walk.sees(/versions with a known vulnerability/, 'Contoso.Core 1.0.0', 'vulnerable: high');
  },
  'Delete old versions': async (walk) => {
    await walk.search('contoso.core');
    await walk.follow('Contoso.Core');
    await walk.follow('Versions');
    await walk.page.getByLabel('And the versions in the range').fill('[1.0.0, 1.2.0)');
    await walk.press('Delete…');
    await walk.sees('Delete 2 versions of Contoso.Core', /loses a version that it needs|find no other/);
  },
  'Look at the use of the last weeks': async (walk) => {
    await walk.follow('Usage');
    await walk.sees('Mirrored requests: hits below, misses above', 'Bytes from upstreams');
  },
};

for (const [job, work] of Object.entries(jobs)) {
  testInBrowser(`${job}: in as many pages and clicks as docs/console.md says`, async (t) => {
    const all = await data();
    await visit(t, await browser(), all.server, {}, async ({ page }) => {
      let pages = 0;
      page.on('framenavigated', (frame) => {
        if (frame === page.mainFrame()) pages += 1;
      });
      const walk = new Walk(page);
      await page.goto('/console/');
      await work(walk, all);
      const text = await readFile(join(import.meta.dirname, '../../docs/console.md'), 'utf8');
      const [, shownPages, shownClicks] = new RegExp(`^\\| ${job} \\| (\\d+) \\| (\\d+) \\|`, 'm').exec(text) ?? [];
      t.deepEqual([pages, walk.clicks], [Number(shownPages), Number(shownClicks)]);
    });
  });
}
