import type { ExecutionContext } from 'ava';
import { startIssuer, type TestIssuer } from '../support/issuer.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

export type Json = Record<string, unknown>;

/** The claims of a workflow in the repository that the rules of tests accept. */
export const fromRepository = {
  repository_id: '100',
  repository: 'team/app',
  ref: 'refs/heads/main',
  event_name: 'push',
};

/** An issuer, and a server that trusts it under the name `github`. */
export async function startPair(
  t: ExecutionContext,
  settings: Json = {},
  trusted: object = {},
): Promise<{ server: TestServer; issuer: TestIssuer }> {
  const clock: { time?: () => number } = {};
  const issuer = await startIssuer(t, () => clock.time?.() ?? Date.now());
  const server = await startTestServer(t, { trustedIssuers: [issuer.trusted(trusted)], ...settings });
  clock.time = server.clock.time;
  return { server, issuer };
}

export function sendJson(server: TestServer, method: string, path: string, body: unknown, token?: string) {
  return server.fetch(path, {
    method,
    body: JSON.stringify(body),
    headers: { 'content-type': 'application/json' },
    ...(token !== undefined && { token }),
  });
}

/** Creates a rule by `/v1`. */
export async function createRule(server: TestServer, rule: Json = {}, token?: string): Promise<Json> {
  const response = await sendJson(
    server,
    'POST',
    '/v1/publishers',
    {
      name: 'main of app',
      issuer: 'github',
      claims: { repository_id: '100' },
      scopes: ['read', 'write'],
      ...rule,
    },
    token,
  );
  if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Json;
}

/** Exchanges an identity token as RFC 8693 says. */
export async function exchange(
  server: TestServer,
  token: string,
  more: Record<string, string> = {},
): Promise<{ status: number; body: Json; headers: Headers }> {
  const response = await server.fetch('/v1/token-exchange', {
    method: 'POST',
    token: null,
    body: new URLSearchParams({
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      subject_token: token,
      subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
      ...more,
    }),
  });
  return { status: response.status, body: (await response.json()) as Json, headers: response.headers };
}

/** The error of an exchange that is refused. */
export async function refusalOf(server: TestServer, token: string, more: Record<string, string> = {}): Promise<string> {
  const { status, body } = await exchange(server, token, more);
  return `${status} ${String(body['error'])}: ${String(body['error_description'])}`;
}
