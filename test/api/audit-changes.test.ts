import test from 'ava';
import { until } from '../support/until.ts';
import { newKeyPair, readSigningKey } from '../../src/bundle/keys.ts';
import { writeRevocation } from '../../src/bundle/statements.ts';
import type { EventType } from '../../src/events/event.ts';
import { createRule, exchange, fromRepository, sendJson, startPair, type Json } from '../identity/support.ts';
import { auditOf } from '../support/audit.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { databaseOf, eventsOf, noteDeletedTag, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { allowLoopback, createWebhook } from '../support/receiver.ts';
import { TestRepository } from '../support/registry.ts';
import type { TestServer } from '../support/server.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

/** What changes nothing that others see. */
const without = new Map([
  ['POST /me/tokens', 'no token may; console/person-sign-in'],
  ['DELETE /me/tokens/{id}', 'no token may; console/person-sign-in'],
  ['POST /client-checks', 'waits for a request'],
  ['POST /tokens/find', 'only searches'],
  ['POST /policy/check', 'only reads a text'],
  ['POST /publishers/explain', 'shows what a rule would do'],
  ['POST /jobs/{name}/preview', 'a dry run'],
  ['POST /bundles/imports', 'nothing is imported yet'],
  ['PUT /bundles/imports/{id}/segments/{number}', 'nothing is imported yet'],
  ['POST /bundles/imports/{id}/segments', 'nothing is imported yet'],
  ['POST /webhooks/{id}/test', 'only sends a request'],
  ['POST /upstreams/{id}/retry', 'only sends a request; upstream.closed tells that it succeeded'],
]);

const image = 'up.test/app:v1\n';

function formOf(fields: Record<string, string>, files: Record<string, string>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  for (const [name, text] of Object.entries(files)) form.append('file', new Blob([text]), name);
  return form;
}

/** The events of `work`, by type and kind of actor. */
async function during(server: TestServer, work: () => Promise<unknown>): Promise<Map<EventType, string>> {
  await eventsOf(server).dispatch();
  const before = await eventsOf(server).latest();
  await work();
  return new Map((await auditOf(server, `after=${before}`)).map(({ type, actor }) => [type, actor.kind]));
}

test('every operation of /v1 that changes something records an event of its client', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('app', 'v1');
  upstream.image('listed', 'v1');
  upstream.on('/v2/listed/tags/list', answer(200, {}, '{"tags":["v1"]}'));
  const { server, issuer } = await startPair(t, {
    ...allowLoopback,
    upstreams: [upstream.settings('up.test')],
    prefetch: { platforms: ['linux/amd64'] },
  });
  const document = await OpenDocument.of(server);
  const feed = new TestFeed(server);
  const app = new TestRepository(server, 'app');
  const call = async (method: string, path: string, body?: unknown): Promise<Json> => {
    const response =
      body instanceof FormData
        ? await server.fetch(`/v1${path}`, { method, body })
        : body === undefined
          ? await server.fetch(`/v1${path}`, { method })
          : await sendJson(server, method, `/v1${path}`, body);
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === '' ? {} : (JSON.parse(text) as Json);
  };
  const deprecation = { reasons: ['Legacy'] };
  const rule = { name: 'second', issuer: 'github', claims: { repository_id: '100' }, scopes: ['read'] };
  const advice = { package: 'Lib', versions: '[1.0,2.0)', severity: 2, url: 'https://advisories.test/1' };
  await feed.publish({ id: 'Lib' }, { id: 'Claimed' });
  await call('DELETE', '/packages/Claimed/1.0.0');
  await app.image('v1');
  const { digest } = await app.image('v2');
  const claimed = new TestRepository(server, 'claimed');
  await claimed.image('v1');
  await call('DELETE', '/containers/claimed/v1');
  const made = await createRule(server);
  let granted: Json = {};
  const webhook = await createWebhook(server, 'http://127.0.0.1:9/secret-path', ['package.*']);
  const { id: token } = await call('POST', '/tokens', { name: 'ci', scopes: ['read'] });
  await Visitor.signedIn(server);
  const sessions = (await call('GET', '/sessions'))['items'] as Json[];
  const advisory = await call('POST', '/advisories', { ...advice, url: 'https://advisories.test/2' });
  await databaseOf(server).transaction((tx) =>
    tx.run(
      `INSERT INTO webhook_deliveries (id, webhook_id, event_position, type, body, state, attempts, next_at, created_at)
       VALUES ('00000000-0000-4000-8000-000000000001', ?, 1, 'package.published', '{}', 'failed', 1, 1, 1)`,
      [webhook.id],
    ),
  );
  const waiver = {
    kind: 'image',
    name: 'up.test/listed',
    references: ['v1'],
    lifts: 'age',
    reason: 'needed',
    expires_at: new Date(Date.now() + 86_400_000).toISOString(),
  };
  const reader = await tokenOf(server, ['read']);
  await new TestRepository(server, 'promoted').image('v1');
  await call('PUT', '/account/promotion', { approval: 'another' });
  const asking = await tokenOf(server, ['promote']);
  const asked: Json[] = [];
  for (const to_name of ['approved', 'rejected']) {
    const body = JSON.stringify({ kind: 'image', name: 'promoted', reference: 'v1', to_name });
    const headers = { 'content-type': 'application/json' };
    const response = await server.fetch('/v1/promotions', { method: 'POST', headers, body, token: asking });
    asked.push((await response.json()) as Json);
  }
  const requested: Json[] = [];
  for (let each = 0; each < 2; each += 1) {
    const headers = { 'content-type': 'application/json' };
    const init = { method: 'POST', headers, body: JSON.stringify(waiver), token: reader };
    requested.push((await (await server.fetch('/v1/waivers', init)).json()) as Json);
  }
  for (const path of ['manifests/v1', 'tags/list']) await (await server.fetch(`/v2/up.test/listed/${path}`)).text();
  const stored = (await call('GET', '/upstreams/up.test/entries?name=listed'))['items'] as Json[];
  let dry = '';
  let making = '';
  let importing = '';
  let moving = '';
  const { publicKey } = newKeyPair();
  const offline = newKeyPair();
  const statement = writeRevocation('0'.repeat(64), readSigningKey(offline.privateKey, 'offline'));
  const nupkg = new Blob([new Uint8Array(await makeNupkg({ id: 'Formed' }))]);

  // They are deleted tags, because this server keeps nothing that is deleted.
  const deletions: number[] = [];
  for (const reference of ['back', 'gone'])
    deletions.push(await noteDeletedTag(server, { name: 'app', reference, digest }));

  const changes: [string, EventType, () => Promise<unknown>][] = [
    ['POST /deleted/{id}/restore', 'tag.restored', () => call('POST', `/deleted/${deletions[0]}/restore`)],
    ['DELETE /deleted/{id}', 'tag.purged', () => call('DELETE', `/deleted/${deletions[1]}?reason=wrong`)],
    [
      'PUT /account/permanence',
      'permanence.changed',
      () => call('PUT', '/account/permanence', { keep: { packages: ['None.*'] } }),
    ],
    [
      'POST /packages',
      'package.published',
      () => {
        const form = new FormData();
        form.append('package', nupkg, 'formed.nupkg');
        return call('POST', '/packages', form);
      },
    ],
    ['POST /packages/{id}/{version}/unlist', 'package.unlisted', () => call('POST', '/packages/Lib/1.0.0/unlist')],
    ['POST /packages/{id}/{version}/relist', 'package.relisted', () => call('POST', '/packages/Lib/1.0.0/relist')],
    [
      'PUT /packages/{id}/{version}/deprecation',
      'package.deprecated',
      () => call('PUT', '/packages/Lib/1.0.0/deprecation', deprecation),
    ],
    [
      'DELETE /packages/{id}/{version}/deprecation',
      'package.undeprecated',
      () => call('DELETE', '/packages/Lib/1.0.0/deprecation'),
    ],
    [
      'PUT /packages/{id}/deprecations',
      'package.deprecated',
      () => call('PUT', '/packages/Lib/deprecations', { ...deprecation, versions: 'all' }),
    ],
    [
      'DELETE /packages/{id}/deprecations',
      'package.undeprecated',
      () => call('DELETE', '/packages/Lib/deprecations?versions=all'),
    ],
    ['POST /advisories', 'advisory.created', () => call('POST', '/advisories', advice)],
    ['DELETE /advisories/{id}', 'advisory.deleted', () => call('DELETE', `/advisories/${String(advisory['id'])}`)],
    ['DELETE /packages/{id}/{version}', 'package.deleted', () => call('DELETE', '/packages/Formed/1.0.0')],
    ['DELETE /containers/{name}/{tag}', 'tag.deleted', () => call('DELETE', '/containers/app/v1')],
    [
      'DELETE /containers/{name}/manifests/{reference}',
      'manifest.deleted',
      () => call('DELETE', `/containers/app/manifests/${digest}`),
    ],
    ['DELETE /claims/package/{name}', 'claim.released', () => call('DELETE', '/claims/package/claimed')],
    [
      'DELETE /claims/container/{name}',
      'claim.released',
      async () => {
        const { items } = (await call('GET', '/containers/claimed/manifests').catch(() => ({ items: [] }))) as {
          items: Json[];
        };
        for (const each of items) await call('DELETE', `/containers/claimed/manifests/${String(each['digest'])}`);
        return call('DELETE', '/claims/container/claimed');
      },
    ],
    ['POST /tokens', 'token.created', () => call('POST', '/tokens', { name: 'other', scopes: ['read'] })],
    ['DELETE /tokens/{id}', 'token.revoked', () => call('DELETE', `/tokens/${String(token)}`)],
    ['DELETE /sessions/{id}', 'session.ended', () => call('DELETE', `/sessions/${String(sessions[0]!['id'])}`)],
    [
      'POST /token-exchange',
      'token.created',
      async () => t.is((await exchange(server, await issuer.sign(fromRepository))).status, 200),
    ],
    [
      'POST /token-exchange/nuget',
      'token.created',
      async () => {
        const authorization = `Bearer ${await issuer.sign(fromRepository)}`;
        const response = await server.fetch('/v1/token-exchange/nuget', {
          method: 'POST',
          token: null,
          body: JSON.stringify({ username: 'default', tokenType: 'ApiKey' }),
          headers: { 'content-type': 'application/json', authorization },
        });
        t.is(response.status, 200);
      },
    ],
    [
      'POST /grants',
      'grant.created',
      async () => {
        granted = await call('POST', '/grants', {
          subject: { kind: 'group', issuer: 'https://a.test', id: 'g' },
          verbs: ['read'],
        });
      },
    ],
    ['DELETE /grants/{id}', 'grant.removed', () => call('DELETE', `/grants/${String(granted['id'])}`)],
    [
      'POST /grants/{id}/accept',
      'grant.accepted',
      async () => {
        const shared = { subject: { kind: 'account', id: 'default' }, verbs: ['read'], packages: ['Shared.*'] };
        const token = await tokenOf(server, ['read', 'admin'], 'other');
        const { id } = (await (await sendJson(server, 'POST', '/v1/grants', shared, token)).json()) as Json;
        return call('POST', `/grants/${String(id)}/accept`);
      },
    ],
    [
      'POST /people/{id}/disable',
      'person.disabled',
      async () => {
        const disabled = JSON.stringify({ default: { by: { kind: 'system', name: 'x' }, at: 0, reason: 'before' } });
        const person = JSON.stringify({ issuer: 'https://a.test', subject: 's', name: 'Ann', claims: [] });
        const row = { id: 'ann', person, disabled, signed_in_at: Date.now() };
        await databaseOf(server).transaction((tx) => tx.insert('people', row));
        return call('POST', '/people/ann/disable', { reason: 'left' });
      },
    ],
    ['POST /people/{id}/enable', 'person.enabled', () => call('POST', '/people/ann/enable')],
    [
      'PUT /account/personal-tokens',
      'token.limits_changed',
      () => call('PUT', '/account/personal-tokens', { scopes: ['read'], longest_days: 30 }),
    ],
    [
      'PUT /account/observed-bills',
      'account.bills_changed',
      () => call('PUT', '/account/observed-bills', { enabled: true }),
    ],
    ['POST /publishers', 'publisher.created', () => call('POST', '/publishers', rule)],
    [
      'PUT /publishers/{id}',
      'publisher.updated',
      () => call('PUT', `/publishers/${String(made['id'])}`, { ...rule, name: 'changed' }),
    ],
    ['DELETE /publishers/{id}', 'publisher.deleted', () => call('DELETE', `/publishers/${String(made['id'])}`)],
    ['PUT /policy', 'policy.changed', () => call('PUT', '/policy', { mode: 'audit' })],
    [
      'PUT /account/promotion',
      'promotion.rules_changed',
      () => call('PUT', '/account/promotion', { approval: 'another' }),
    ],
    [
      'POST /promotions',
      'promotion.requested',
      () => call('POST', '/promotions', { kind: 'image', name: 'promoted', reference: 'v1', to_name: 'third' }),
    ],
    [
      'POST /promotions/{id}/approve',
      'promotion.approved',
      () => call('POST', `/promotions/${String(asked[0]!['id'])}/approve`),
    ],
    [
      'POST /promotions/{id}/reject',
      'promotion.rejected',
      () => call('POST', `/promotions/${String(asked[1]!['id'])}/reject`),
    ],
    ['POST /waivers', 'waiver.requested', () => call('POST', '/waivers', waiver)],
    [
      'POST /waivers/{id}/approve',
      'waiver.approved',
      () => call('POST', `/waivers/${String(requested[0]!['id'])}/approve`),
    ],
    [
      'POST /waivers/{id}/reject',
      'waiver.rejected',
      () => call('POST', `/waivers/${String(requested[1]!['id'])}/reject`),
    ],
    ['DELETE /waivers/{id}', 'waiver.ended', () => call('DELETE', `/waivers/${String(requested[0]!['id'])}`)],
    ['POST /jobs/{name}/runs', 'job.started', () => call('POST', '/jobs/sample/runs')],
    [
      'POST /prefetch',
      'job.started',
      async () => {
        const run = await call('POST', '/prefetch', formOf({ kind: 'images', dry_run: 'true' }, { 'a.txt': image }));
        dry = String(run['id']);
      },
    ],
    [
      'DELETE /prefetch/{id}',
      'job.cancelled',
      async () => {
        await databaseOf(server).transaction((tx) =>
          tx.run("UPDATE prefetch_runs SET state = 'running', cancelled = 0"),
        );
        await call('DELETE', `/prefetch/${dry}`);
      },
    ],
    [
      'POST /prefetch/{id}/fetch',
      'job.started',
      async () => {
        await databaseOf(server).transaction((tx) => tx.run("UPDATE prefetch_runs SET state = 'done', slot = NULL"));
        await call('POST', `/prefetch/${dry}/fetch`);
      },
    ],
    [
      'POST /bundles',
      'job.started',
      async () => {
        const run = await call('POST', '/bundles', formOf({ stored: 'true' }, {}));
        making = String(run['id']);
      },
    ],
    [
      'POST /imports',
      'job.started',
      async () => {
        moving = String(
          (await call('POST', '/imports', { kind: 'feed', url: 'http://127.0.0.1:1/v3/index.json' }))['id'],
        );
      },
    ],
    [
      'POST /imports/{id}/resume',
      'job.started',
      async () => {
        await until(async () => (await call('GET', `/imports/${moving}`))['state'] !== 'running');
        return call('POST', `/imports/${moving}/resume`, {});
      },
    ],
    ['DELETE /imports/{id}', 'job.cancelled', () => call('DELETE', `/imports/${moving}`)],
    ['DELETE /bundles/{id}', 'job.cancelled', () => call('DELETE', `/bundles/${making}`)],
    [
      'POST /bundles/imports/{id}/run',
      'job.started',
      async () => {
        const run = await call('POST', '/bundles/imports');
        importing = String(run['id']);
        await server.fetch(`/v1/bundles/imports/${importing}/segments/1`, { method: 'PUT', body: 'no segment' });
        return call('POST', `/bundles/imports/${importing}/run`, {});
      },
    ],
    ['DELETE /bundles/imports/{id}', 'job.cancelled', () => call('DELETE', `/bundles/imports/${importing}`)],
    ['POST /bundles/receipt', 'bundle.receipt', () => call('POST', '/bundles/receipt')],
    [
      'POST /bundles/keys',
      'bundle.key_trusted',
      () => call('POST', '/bundles/keys', { name: 'near', public_key: publicKey.pem }),
    ],
    [
      'POST /bundles/keys/revocations',
      'bundle.key_revoked',
      async () => {
        await call('POST', '/bundles/keys', { name: 'offline', role: 'revoke', public_key: offline.publicKey.pem });
        return call('POST', '/bundles/keys/revocations', { statement });
      },
    ],
    ['DELETE /bundles/keys/{id}', 'bundle.key_removed', () => call('DELETE', `/bundles/keys/${publicKey.id}`)],
    [
      'POST /webhooks',
      'webhook.created',
      () => call('POST', '/webhooks', { url: 'http://127.0.0.1:9/secret-path', events: ['*'] }),
    ],
    [
      'PATCH /webhooks/{id}',
      'webhook.updated',
      () => call('PATCH', `/webhooks/${webhook.id}`, { rotate_secret: true }),
    ],
    [
      'POST /webhooks/{id}/deliveries/{delivery}/redeliver',
      'webhook.redelivered',
      () => call('POST', `/webhooks/${webhook.id}/deliveries/00000000-0000-4000-8000-000000000001/redeliver`),
    ],
    [
      'POST /webhooks/{id}/redeliver',
      'webhook.redelivered',
      () => call('POST', `/webhooks/${webhook.id}/redeliver`, { since: '2026-01-01T00:00:00Z' }),
    ],
    ['DELETE /webhooks/{id}', 'webhook.deleted', () => call('DELETE', `/webhooks/${webhook.id}`)],
  ];
  t.true(stored.some(({ kind }) => kind === 'tags'));
  for (const { id, kind, reference } of stored) {
    const type =
      kind !== 'manifest' ? 'upstream.entry_dropped' : reference === 'v1' ? 'tag.deleted' : 'manifest.deleted';
    const path = `/upstreams/up.test/entries/${String(id)}`;
    changes.push(['DELETE /upstreams/{id}/entries/{entry}', type, () => call('DELETE', path)]);
  }
  const changing = document.operations.filter((each) => !/^(?:GET|HEAD) /.test(each));
  t.deepEqual(
    [...new Set(changing.filter((each) => !without.has(each)))].toSorted(),
    [...new Set(changes.map(([operation]) => operation))].toSorted(),
    'each operation that changes something is here',
  );
  t.deepEqual(
    [...without.keys()].filter((each) => !changing.includes(each)),
    [],
  );
  for (const [operation, type, change] of changes) {
    const found = await during(server, change);
    t.is(found.get(type), operation.startsWith('POST /token-exchange') ? 'rule' : 'token', `${operation}: ${type}`);
  }
  const text = JSON.stringify(await auditOf(server, 'type=webhook.*'));
  t.false(text.includes('secret-path'), 'a URL can contain a secret');
  t.true(text.includes('127.0.0.1:9'));
  t.deepEqual((await auditOf(server, 'type=webhook.updated'))[0]!.details['changed'], ['secret']);
});
