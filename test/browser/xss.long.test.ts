import test from 'ava';
import type { ExecutionContext } from 'ava';
import type { Page } from 'playwright-core';
import { browserCommand, browserIn, visit } from '../support/browser.ts';
import { testWith } from '../support/clients/test-with.ts';
import { makeToken } from '../support/console-data.ts';
import { TestFeed } from '../support/feed.ts';
import { flushEvents, flushUsage } from '../support/inside.ts';
import { ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';
import { xssPayloads } from '../support/xss-payloads.ts';
import { dangersIn, openDetails } from './in-page.ts';

// Hostile texts in everything that clients write and pages show.

const testInBrowser = testWith(browserCommand);
const browser = browserIn(test);

/** Opens a page and those that follow it, and checks that nothing in them came alive. Resolves to their text. */
async function checkPages(t: ExecutionContext, page: Page, path: string): Promise<string> {
  let text = '';
  for (let next: string | null = path; next !== null;) {
    t.is((await page.goto(next))?.status(), 200, next);
    t.deepEqual(await dangersIn(page), [], next);
    await openDetails(page);
    text += await page.locator('main').innerText();
    const link = page.locator('a[rel=next], button[name=cursor]').first();
    const [href, cursor] =
      (await link.count()) > 0 ? [await link.getAttribute('href'), await link.getAttribute('value')] : [];
    next = href ?? (cursor == null ? null : `${path.split('?')[0]}?${new URLSearchParams({ cursor }).toString()}`);
  }
  return text;
}

/** Without what a browser shows otherwise than it was sent: white space and null bytes. */
function squeezed(text: string): string {
  return text.replaceAll(/[\s\uFFFD]+/g, '').replaceAll('\0', '');
}

/** Signs in with a user agent, if a browser can send it. */
async function signInAs(server: TestServer, token: string, agent: string): Promise<boolean> {
  try {
    await new Visitor(server).send('/console/sign-in', { token }, { 'user-agent': agent });
    return true;
  } catch (error) {
    if (error instanceof TypeError) return false;
    throw error;
  }
}

testInBrowser('names of tokens, browsers of sessions, and actors and subjects of events are only text', async (t) => {
  const server = await startTestServer(t);
  let agents = 0;
  for (const [index, name] of xssPayloads.entries()) {
    const { token } = await makeToken(server, { name, scopes: ['read', 'write', 'admin'] });
    if (await signInAs(server, token, name)) agents += 1;
    await new TestFeed(server, token).publish({ id: `Evil.P${index}`, payloadBytes: 0 });
  }
  t.true(xssPayloads.length >= 50 && agents >= 40);
  await flushUsage(server);
  await visit(t, await browser(), server, {}, async ({ page }) => {
    for (const [path, least] of [
      ['/console/tokens', xssPayloads.length],
      ['/console/audit', xssPayloads.length],
      ['/console/usage?group_by=token', xssPayloads.length],
      ['/console/', 5],
    ] as const) {
      const text = squeezed(await checkPages(t, page, path));
      const shown = xssPayloads.filter((each) => text.includes(squeezed(each)));
      t.true(shown.length >= least, `${path} shows ${shown.length} payloads`);
    }
    const response = await server.fetch('/v1/tokens?limit=200');
    const { items } = (await response.json()) as { items: { id: string }[] };
    const query = new URLSearchParams(items.slice(0, 100).map(({ id }) => ['id', id]));
    t.true((await checkPages(t, page, `/console/tokens/revoke?${query}`)).includes('<svg onload=xss()>'));
  });
});

testInBrowser('the address and the fields of a form are only text when a page shows them again', async (t) => {
  const server = await startTestServer(t);
  const expected = /status of 4\d\d/;
  await visit(t, await browser(), server, { expected }, async ({ page }) => {
    for (const [index, payload] of xssPayloads.entries()) {
      const text = encodeURIComponent(payload);
      const paths = [
        `/console/audit?actor=${text}&subject=${text}&since=${text}&type=${text}`,
        `/console/audit?actor=${text}&subject=${text}`,
        `/console/usage?group_by=${text}`,
        `/console/${text}`,
      ];
      await page.goto(paths[index % paths.length]!);
      t.deepEqual(await dangersIn(page), [], payload);
    }
    for (const payload of xssPayloads.filter((_, index) => index % 8 === 0)) {
      await page.goto('/console/tokens/new');
      await page.getByLabel('Name', { exact: true }).fill(payload);
      await page.getByLabel('Only packages').fill(`${payload}${'x'.repeat(300)}`);
      await page.getByRole('button', { name: 'Create' }).click();
      t.deepEqual(await dangersIn(page), []);
    }
  });
});

testInBrowser('metadata of packages and images is only text', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  let published = 0;
  for (const [index, payload] of xssPayloads.entries()) {
    const response = await feed.push({
      id: `Evil.P${index}`,
      title: payload,
      authors: payload,
      description: payload,
      summary: payload,
      tags: payload,
      releaseNotes: payload,
      projectUrl: payload,
      license: { type: 'expression', value: payload },
      repository: { type: 'git', url: payload, commit: payload },
      dependencyGroups: [{ targetFramework: 'net8.0', dependencies: [{ id: 'Evil.P0', version: '1.0.0' }] }],
      readme: `# ${payload}\n\n${payload}\n\n[a](${payload}) ![b](${payload})\n`,
      payloadBytes: 0,
    });
    // XML has no null bytes.
    if (response.status === 201) published += 1;
    else t.is(response.status, 400, payload);
  }
  t.true(published >= 50);
  const digest = await pushHostileImage(server);
  await flushEvents(server, true);
  await visit(t, await browser(), server, {}, async ({ page }) => {
    for (const path of ['search?q=evil', 'packages', 'images']) await checkPages(t, page, `/console/${path}`);
    const response = await server.fetch('/v1/packages?limit=200');
    const { items } = (await response.json()) as { items: { id: string }[] };
    t.is(items.length, published);
    // A page of a package shows its newest version, so these pages show everything.
    for (const { id } of items) await checkPages(t, page, `/console/packages/${id}`);
    await checkPages(t, page, '/console/packages/Evil.P0/1.0.0');
    await checkPages(t, page, '/console/packages/Evil.P0/delete?version=1.0.0');
    await checkPages(t, page, '/console/images/evil%2Fimage');
    await checkPages(t, page, `/console/images/evil%2Fimage/${encodeURIComponent(digest)}`);
    await checkPages(t, page, '/console/audit');
  });
});

/** An image whose annotations, configuration and history are hostile, as its tags are as far as they can. Resolves to its digest. */
async function pushHostileImage(server: TestServer): Promise<string> {
  const repository = new TestRepository(server, 'evil/image');
  const annotations = Object.fromEntries(xssPayloads.map((payload, index) => [`test.${index}.${payload}`, payload]));
  const config = await repository.blob(
    JSON.stringify({
      architecture: '<script>xss()</script>',
      os: '" onmouseover="xss()',
      author: '<img src=x onerror=xss()>',
      config: { Labels: annotations, Env: xssPayloads, Cmd: xssPayloads, Entrypoint: xssPayloads },
      history: xssPayloads.map((payload) => ({ created_by: payload, comment: payload, author: payload })),
      rootfs: { type: 'layers', diff_ids: [] },
    }),
    'application/vnd.oci.image.config.v1+json',
  );
  const layer = await repository.blob('layer', 'application/vnd.oci.image.layer.v1.tar');
  let digest = '';
  for (const tag of ['1.0', '_onload.xss', '__proto__']) {
    const manifest = {
      schemaVersion: 2,
      mediaType: ociManifest,
      config,
      layers: [{ ...layer, annotations }],
      annotations,
    };
    const response = await repository.put(tag, manifest, ociManifest);
    if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
    digest = response.headers.get('docker-content-digest')!;
  }
  return digest;
}
