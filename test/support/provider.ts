import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';
import { Provider } from 'oidc-provider';
import { Browser } from './cookie-browser.ts';
import type { StartInstance } from './instances.ts';
import { startTestServer, type TestServer } from './server.ts';

/** A whole provider (npm oidc-provider) with these people, where the person `who.id` is signed in, and a server that uses it. */
export async function startProvider(
  t: Pick<ExecutionContext, 'teardown'>,
  people: Readonly<Record<string, object>>,
  rules: readonly object[],
  settings: Record<string, unknown> = {},
  start: StartInstance = (given) => startTestServer(t, given),
) {
  const who = { id: 'ann' };
  const http = createServer();
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    http.closeAllConnections();
    http.close();
  });
  const issuer = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const oidc = { issuer, clientId: 'entrepot', clientSecret: 'secret', allowPrivateNetwork: true, rules };
  const server = await start({ ...settings, signIn: { oidc } });
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: 'entrepot',
        client_secret: 'secret',
        redirect_uris: [`${server.url}/console/sign-in/oidc/callback`],
      },
    ],
    claims: { openid: ['sub'], profile: ['name', 'groups', 'hasgroups'] },
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false } },
    cookies: { keys: ['key'] },
    findAccount: (_context: unknown, id: string) => ({
      accountId: id,
      claims: () => Promise.resolve({ sub: id, ...people[id] }),
    }),
    interactions: { url: (_context: unknown, { uid }: { uid: string }) => `/interaction/${uid}` },
    loadExistingGrant: async (context: { oidc: { client: { clientId: string }; session: { accountId: string } } }) => {
      const { client, session } = context.oidc;
      const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope('openid profile');
      await grant.save();
      return grant;
    },
  } as never);
  const answer = provider.callback();
  http.on('request', (request, response) => {
    if (!request.url!.startsWith('/interaction/')) return void answer(request, response);
    return void provider.interactionFinished(request, response, { login: { accountId: who.id } });
  });
  return { server, issuer, who, oidc };
}

/** A browser in which the person of the provider has signed in. */
export async function signedIn(server: TestServer): Promise<Browser> {
  const browser = new Browser();
  const { url, response } = await browser.follow(`${server.url}/console/sign-in/oidc?next=%2Fconsole%2Fconnect`);
  if (response.status !== 200 || !url.endsWith('/console/connect')) throw new Error(`${url} ${response.status}`);
  return browser;
}

/** A new personal token of who is signed in. */
export async function personalToken(
  browser: Browser,
  server: TestServer,
  scopes: readonly string[],
  patterns?: object,
): Promise<string> {
  const answer = await browser.fetch(`${server.url}/v1/me/tokens`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'mine', scopes, ...(patterns && { patterns }) }),
  });
  if (answer.status !== 201) throw new Error(`${answer.status} ${await answer.text()}`);
  return ((await answer.json()) as { token: string }).token;
}
