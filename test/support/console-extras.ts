import { newKeyPair } from '../../src/bundle/keys.ts';
import type { ExecutionContext } from 'ava';
import { allowLoopback, createWebhook, deliveriesOf, deliverUntil, startReceiver } from './receiver.ts';
import { bundleForm, called, ended, sentImport } from './bundle-runs.ts';
import { databaseOf, tokenOf } from './inside.ts';
import type { TestServer } from './server.ts';

// What the pages of the mirror, of prefetches, webhooks, rules and advisories show.

/** Settings of the server. It never fetches the keys of the issuer. */
export const extraSettings = {
  ...allowLoopback,
  trustedIssuers: [{ name: 'builds', issuer: 'https://builds.example.com', audience: 'https://hub.example.com' }],
};

export interface ExtraContent {
  webhookId: string;
  deliveryId: string;
  ruleId: string;
  advisoryId: string;
  prefetchId: string;
  /** A bundle that is made, and an import with a segment. */
  makingId: string;
  importId: string;
  /** An import from another server. */
  movingId: string;
  waiverId: string;
  promotionId: string;
  grantId: string;
  personId: string;
  /** An upstream, and an entry that is stored of it. */
  upstream: string;
  entryId: string;
}

/** Fills a server that hosts `packageId` and mirrors `upstream`. */
export async function addExtras(
  t: Pick<ExecutionContext, 'teardown'>,
  server: TestServer,
  { packageId, upstream }: { packageId: string; upstream: string },
): Promise<ExtraContent> {
  const post = async (path: string, body: object): Promise<{ id: string }> => {
    const headers = { 'content-type': 'application/json' };
    const response = await server.fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as { id: string };
  };
  const rule = await post('/v1/publishers', {
    name: 'releases of app',
    issuer: 'builds',
    claims: { project_id: '4711', ref: 'refs/tags/*' },
    scopes: ['read', 'write'],
  });
  const receiver = await startReceiver(t);
  const webhook = await createWebhook(server, receiver.url);
  const advisory = await post('/v1/advisories', {
    package: packageId,
    versions: '[1.0.0, 1.2.0)',
    severity: 2,
    url: 'https://docs.example.com/advisories/1',
  });
  await deliverUntil(server, async () => (await deliveriesOf(server, webhook.id)).length > 0);
  const [delivery] = await deliveriesOf(server, webhook.id);
  const form = new FormData();
  form.append('file', new Blob(['services:\n  db:\n    image: alpine:3.21\n']), 'compose.yaml');
  const started = await server.fetch('/v1/prefetch', { method: 'POST', body: form });
  const prefetch = (await started.json()) as { id: string };
  const making = await called(server, 'POST', '', bundleForm({}, { stored: 'true', allow_missing: 'true' }));
  await ended(server, `/${making['id']}`);
  const segment = await server.fetch(`/v1/bundles/${making['id']}/segments/1`);
  const importAt = await sentImport(server, { 1: Buffer.from(await segment.arrayBuffer()) });
  const moving = await post('/v1/imports', { kind: 'registry', url: 'http://127.0.0.1:1/', secret: 'one' });
  const { publicKey } = newKeyPair();
  await post('/v1/bundles/keys', { name: 'build server', public_key: publicKey.pem });
  const waiver = await post('/v1/waivers', {
    kind: 'package',
    name: 'Serilog',
    references: ['4.2.0'],
    lifts: 'age',
    reason: 'It has the fix that the release needs.',
    expires_at: new Date(server.clock.now! + 14 * 86_400_000).toISOString(),
  });
  const headers = { 'content-type': 'application/json' };
  const rules = { method: 'PUT', headers, body: JSON.stringify({ from: ['default'] }) };
  await server.fetch('/v1/account/promotion', { ...rules, token: await tokenOf(server, ['admin'], 'released') });
  const hosted = (await (await server.fetch(`/v1/packages/${packageId}`)).json()) as { latest_version: string };
  const promotion = await post('/v1/promotions', {
    kind: 'package',
    name: packageId,
    reference: hosted.latest_version,
    to_account: 'released',
    reason: 'Release 7.',
  });
  const grant = await post('/v1/grants', {
    subject: { kind: 'account', id: 'released' },
    verbs: ['read'],
    packages: [packageId],
  });
  const personId = 'a'.repeat(32);
  const person = { issuer: 'https://id.example.com', subject: 'dee', name: 'Dee Doe', claims: [] };
  const disabled = {
    default: { by: { kind: 'system', id: null, name: null }, at: server.clock.now!, reason: 'Has left.' },
  };
  await databaseOf(server).transaction((tx) =>
    tx.insert('people', {
      id: personId,
      person: JSON.stringify(person),
      signed_in_at: server.clock.now!,
      disabled: JSON.stringify(disabled),
    }),
  );
  const list = await server.fetch(`/v1/upstreams/${upstream}/entries`);
  const { items } = (await list.json()) as { items: { id: string }[] };
  return {
    webhookId: webhook.id,
    deliveryId: delivery!.id,
    ruleId: rule.id,
    advisoryId: advisory.id,
    prefetchId: prefetch.id,
    makingId: String(making['id']),
    importId: importAt.split('/').at(-1)!,
    movingId: moving.id,
    waiverId: waiver.id,
    promotionId: promotion.id,
    grantId: grant.id,
    personId,
    upstream,
    entryId: items[0]!.id,
  };
}
