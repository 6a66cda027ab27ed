import { createHash, randomUUID } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { testedPages } from '../../../test/browser/pages.ts';
import { browserCommand, startBrowser } from '../../../test/support/browser.ts';
import type { ShownContent } from '../../../test/support/console-data.ts';
import { ociManifest } from '../../../test/support/registry.ts';
import { describeMissing, ensureCommands } from '../../packages.ts';
import { dayOf, periodAt } from '../../../src/usage/period.ts';
import type { Bench } from '../bench.ts';
import { compare, median } from '../report.ts';
import type { Entrepot } from '../peers.ts';
import { openBulk } from '../store/bulk.ts';
import { makePackages } from '../store/packages.ts';
import { hot, storeOf } from '../store/store.ts';

/** Versions of each package on average: 1,000,000 in all. */
const versions = 10;
const requests = 20;
/** An upstream that is never asked, so that the page of the mirror has a row. */
const upstreams = JSON.stringify([
  { name: 'nuget.org', kind: 'nuget', url: 'http://127.0.0.1:9/v3/index.json', allowPrivateNetwork: true },
]);
/** The pages of the screenshots. */
const shown = {
  overview: '/',
  package: '/packages/:id',
  image: '/images/:name',
  mirror: '/mirror',
  usage: '/usage',
  connect: '/connect',
} as const satisfies Record<string, keyof typeof testedPages>;

/**
 * The time of each page of the console among many packages, versions, tags, events, tokens and counters, and screenshots of some
 * in `bench-results/console`.
 */
export async function consolePages(bench: Bench): Promise<void> {
  const place = await storeOf(bench, bench.many, bench.dialect, versions);
  const first = await bench.serve(place);
  const { items } = (await read(first, '/v1/tokens')) as { items: { id: string }[] };
  await first.stop();
  await fillHistory(place.databaseUrl, bench.many, items[0]!.id);

  const server = await bench.serve(place, { settings: { ENTREPOT_UPSTREAMS: upstreams } });
  const cookie = await signIn(server);
  const sessions = (await read(server, '/v1/sessions')) as { items: { id: string }[] };
  const content: ShownContent = {
    package: hot.id,
    version: hot.versions.at(-1)!,
    image: hot.repository,
    tag: hot.tag,
    digest: await digestOfHot(server),
    tokenId: items[0]!.id,
    sessionId: sessions.items[0]!.id,
    // The generated rows have none of these, so their pages are left out.
    webhookId: '',
    deliveryId: '',
    ruleId: '',
    advisoryId: '',
    prefetchId: '',
    makingId: '',
    importId: '',
    movingId: '',
    waiverId: '',
    promotionId: '',
    grantId: '',
    personId: '',
    upstream: '',
    entryId: '',
  };
  const missing =
    /^\/(?:webhooks|publishers|prefetch|bundles|bundles\/imports|mirror|waivers|promotions|access)\/:|advisories/;
  for (const [path, { at, status = 200 }] of Object.entries(testedPages)) {
    if (missing.test(path)) continue;
    const title = `page ${path} among ${bench.many} packages with ${versions * bench.many} versions`;
    await firstVisit(server.url + at(content), cookie, title);
    const time = () => medianTime(server.url + at(content), cookie, status);
    await compare({ title, unit: 'ms', bar: '≤ 50 ms' }, bench.rounds, { [server.name]: time });
  }
  await takeScreenshots(server, cookie, content);
}

async function takeScreenshots({ url }: Entrepot, cookie: string, content: ShownContent): Promise<void> {
  const commands = await ensureCommands({ [browserCommand]: browserCommand });
  if (commands.missing.length > 0) throw new Error(describeMissing(commands));
  const folder = join('bench-results', 'console');
  await mkdir(folder, { recursive: true });
  await using browser = await startBrowser();
  for (const colorScheme of ['light', 'dark'] as const) {
    const viewport = { width: 1280, height: 800 };
    const page = await browser.newPage({ baseURL: url, colorScheme, viewport, extraHTTPHeaders: { cookie } });
    for (const [name, path] of Object.entries(shown)) {
      await page.goto(testedPages[path]!.at(content));
      await page.screenshot({ path: join(folder, `${name}-${colorScheme}.png`) });
    }
  }
}

/** Waits until the page is there: what it measures first can take longer than a page may. Says so if it takes a second. */
async function firstVisit(url: string, cookie: string, title: string): Promise<void> {
  const start = performance.now();
  for (let status = 503; status === 503;) {
    const response = await fetch(url, { headers: { cookie }, redirect: 'manual' });
    await response.arrayBuffer();
    ({ status } = response);
    const took = performance.now() - start;
    if (took > 300_000) throw new Error(`${title}: still ${status}`);
    if (took > 1000)
      process.stdout.write(`${title}: the first visit had ${status} after ${(took / 1000).toFixed(1)} s\n`);
  }
}

/** The median of milliseconds until the last byte, after some requests that are not measured. */
async function medianTime(url: string, cookie: string, status: number): Promise<number> {
  const times: number[] = [];
  for (let done = -5; done < requests; done += 1) {
    const start = performance.now();
    const response = await fetch(url, { headers: { cookie }, redirect: 'manual' });
    await response.arrayBuffer();
    if (response.status !== status) throw new Error(`${url}: ${response.status}`);
    if (done >= 0) times.push(performance.now() - start);
  }
  return median(times);
}

async function signIn({ url, token }: Entrepot): Promise<string> {
  const body = new URLSearchParams({ token });
  const response = await fetch(`${url}/console/sign-in`, { method: 'POST', body, redirect: 'manual' });
  const [cookie] = response.headers.getSetCookie();
  if (cookie === undefined) throw new Error(`sign-in: ${response.status}`);
  return cookie.split(';', 1)[0]!;
}

async function digestOfHot({ url, token }: Entrepot): Promise<string> {
  const headers = { authorization: `Bearer ${token}`, accept: ociManifest };
  const response = await fetch(`${url}/v2/${hot.repository}/manifests/${hot.tag}`, { method: 'HEAD', headers });
  return response.headers.get('docker-content-digest')!;
}

async function read({ url, token }: Entrepot, path: string): Promise<unknown> {
  const response = await fetch(url + path, { headers: { authorization: `Bearer ${token}` } });
  if (response.status !== 200) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

/** Events, a month of counters by package, day and token, tokens and runs of jobs. */
async function fillHistory(databaseUrl: string, many: number, tokenId: string): Promise<void> {
  const bulk = openBulk(databaseUrl);
  const now = Date.now();
  const [account_id, time] = [1, now - 1000];
  const ids = [...makePackages(many)].map(({ id }) => id);
  const counters = { requests: 40, downloads: 30, uploads: 1, version_checks: 9, cache_hits: 20, cache_misses: 4 };
  const bytes = { egress_bytes: 4e6, ingress_bytes: 5e4, upstream_bytes: 3e5 };
  const { start } = periodAt(now);
  const day = dayOf(now);
  const count = (dimension: string, name: string) => ({
    account_id,
    dimension,
    period_start: start,
    name,
    day,
    ...counters,
    ...bytes,
  });
  try {
    await bulk.insert(
      'tokens',
      Array.from({ length: 1000 }, (_, index) => tokenRow(account_id, index, now)),
    );
    await bulk.insert('usage_counts', [
      ...ids.map((id) => count('package', id.toLowerCase())),
      ...Array.from({ length: 1000 }, () => count('token', randomUUID())),
    ]);
    const position = 1000;
    await bulk.insert(
      'events',
      ids.map((id, index) => ({
        position: position + index,
        time,
        type: 'package.published',
        account_id,
        actor_kind: 'token',
        actor_id: tokenId,
        actor_name: 'bench',
        subject_kind: 'package',
        subject_name: id,
        subject_key: id.toLowerCase(),
        subject_reference: '1.0.0',
        address: '127.0.0.1',
        request_id: null,
        details: '{}',
      })),
    );
  } finally {
    await bulk.close();
  }
}

function tokenRow(account_id: number, index: number, now: number) {
  return {
    id: randomUUID(),
    account_id,
    name: `token ${index}`,
    token_prefix: 'ent_1234',
    hash: createHash('sha256').update(String(index)).digest('hex'),
    scopes: 'read',
    created_at: now + index,
  };
}
