import test from 'ava';
import { auditOf } from '../support/audit.ts';
import { createRule, sendJson, startPair, type Json } from './support.ts';

test('the audit has what was given to whom, and what was changed', async (t) => {
  const { server, issuer } = await startPair(t);
  server.clock.now = Date.UTC(2027, 0, 1);
  const call = async (method: string, path: string, body?: Json): Promise<Json> => {
    const response = await (body ? sendJson(server, method, path, body) : server.fetch(path, { method }));
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.status === 204 ? {} : ((await response.json()) as Json);
  };
  const patterns = { packages: ['Contoso.*'], containers: ['team/*'] };
  const end = '2027-02-01T00:00:00.000Z';
  const some = await call('POST', '/v1/tokens', { name: 'some', scopes: ['write', 'read'], patterns, expires_at: end });
  const all = await call('POST', '/v1/tokens', { name: 'all', scopes: ['read'] });
  await call('DELETE', `/v1/tokens/${String(all['id'])}`);
  await call('DELETE', `/v1/tokens/${String(all['id'])}`);
  const rule = await createRule(server, { name: 'main', patterns });
  const changed = { name: 'changed', issuer: 'github', claims: { repository_id: ['1', 2] }, scopes: ['read'] };
  await call('PUT', `/v1/publishers/${String(rule['id'])}`, changed);
  await call('DELETE', `/v1/publishers/${String(rule['id'])}`);
  // A group may have the name of an account, also of this one.
  const subject = { kind: 'group', issuer: 'https://login.example', id: 'default' };
  const grant = await call('POST', '/v1/grants', { subject, verbs: ['write', 'read'], packages: ['Lib'] });
  await call('DELETE', `/v1/grants/${String(grant['id'])}`);
  await call('PUT', '/v1/account/personal-tokens', { scopes: ['write', 'read'], longest_days: 2 });
  await call('PUT', '/v1/account/personal-tokens', { scopes: null, longest_days: null });

  const events = await auditOf(server, 'account=default');
  const known = events.filter(({ type }) => /^(?:token|publisher|grant)\./.test(type)).slice(-10);
  const said = known.map(({ type, account, subject: about, details }) => [
    type,
    account,
    about.kind,
    about.name,
    details,
  ]);
  const given = { grant_id: grant['id'], subject, verbs: ['read', 'write'], patterns: { packages: ['Lib'] } };
  const ofRule = { publisher_id: rule['id'], issuer: 'github', issuer_url: issuer.url };
  const claims = { repository_id: ['1', '2'] };
  t.deepEqual(said, [
    [
      'token.created',
      'default',
      'token',
      'some',
      { token_id: some['id'], scopes: ['read', 'write'], patterns, expires_at: end },
    ],
    ['token.created', 'default', 'token', 'all', { token_id: all['id'], scopes: ['read'], expires_at: null }],
    ['token.revoked', 'default', 'token', 'all', { token_id: all['id'] }],
    [
      'publisher.created',
      'default',
      'token',
      'main',
      { ...ofRule, claims: { repository_id: ['100'] }, scopes: ['read', 'write'], patterns },
    ],
    ['publisher.updated', 'default', 'token', 'changed', { ...ofRule, claims, scopes: ['read'] }],
    ['publisher.deleted', 'default', 'token', 'changed', { ...ofRule, claims, scopes: ['read'] }],
    ['grant.created', 'default', 'account', 'default', given],
    ['grant.removed', 'default', 'account', 'default', given],
    ['token.limits_changed', 'default', 'account', 'default', { scopes: ['read', 'write'], longest_seconds: 172_800 }],
    ['token.limits_changed', 'default', 'account', 'default', { scopes: null, longest_seconds: null }],
  ]);
});
