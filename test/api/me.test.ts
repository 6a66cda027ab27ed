import test from 'ava';
import { createToken, tokenOf } from '../support/inside.ts';
import { personalToken, signedIn, startProvider } from '../support/provider.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

const meOf = async (server: TestServer, token: string | null = server.token) => server.fetch('/v1/me', { token });

test('a token is told whose it is, and what it may do', async (t) => {
  const server = await startTestServer(t, { anonymousRead: true });
  const { token, value } = await createToken(server, ['read', 'write'], 'team', { packages: ['Contoso.*'] });
  t.deepEqual(await (await meOf(server, value)).json(), {
    kind: 'token',
    id: token.id,
    name: 'a test',
    account: 'team',
    accounts: ['team'],
    scopes: ['read', 'write'],
    limited: true,
    person_id: null,
    expires_at: null,
  });
  t.like(await (await meOf(server, await tokenOf(server, ['read']))).json(), { account: 'default', limited: false });
  t.is((await meOf(server, null)).status, 401);
});

test('a person is told the accounts and rights in the browser, and a personal token names its person', async (t) => {
  const rules = ['default', 'other'].map((account) => ({ claim: 'sub', value: 'ann', account, scopes: ['read'] }));
  const { server } = await startProvider(t, { ann: { name: 'Ann' } }, rules);
  await tokenOf(server, ['read'], 'other');
  const browser = await signedIn(server);
  const me = (await (await browser.fetch(`${server.url}/v1/me`)).json()) as { id: string };
  t.like(me, { kind: 'person', name: 'ann', account: 'default', accounts: ['default', 'other'], scopes: ['read'] });
  t.like(me, { limited: false, expires_at: null, person_id: me.id });
  const own = (await (await meOf(server, await personalToken(browser, server, ['read']))).json()) as object;
  t.like(own, { kind: 'token', person_id: me.id, scopes: ['read'] });
  t.regex(JSON.stringify(own), /"expires_at":"20/);
});
