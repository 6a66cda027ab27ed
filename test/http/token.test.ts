import { type IncomingHttpHeaders } from 'node:http';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import type { Principal } from '../../src/accounts/principal.ts';
import { Authenticator } from '../../src/http/authenticate.ts';
import { type RequestContext } from '../../src/http/request-context.ts';
import { createTokenEndpoint } from '../../src/http/token.ts';
import { DomainError, type ErrorName } from '../../src/runtime/errors.ts';
import { answerRequests } from '../support/answers.ts';

// The token endpoint by itself.

const principal = { kind: 'token', tokenId: 't' } as Principal;

const verifyForeign = ({ secret }: { secret: string }) => Promise.resolve(secret === 'theirs' ? principal : undefined);

/** A server with only the token endpoint, which knows the token `known`, or whose look for a token fails. */
async function startEndpoint(t: ExecutionContext, { failure, anonymous }: { failure?: Error; anonymous?: Principal }) {
  const asked: string[] = [];
  const verify = (value: string) => {
    asked.push(value);
    return failure ? Promise.reject(failure) : Promise.resolve(value === 'known' ? principal : undefined);
  };
  const authenticator = new Authenticator([{ verify }], anonymous, undefined, undefined, { verifyForeign });
  const endpoint = createTokenEndpoint(authenticator, pino({ level: 'silent' }), () => Date.UTC(2026, 0, 2));
  let context: RequestContext;
  const port = await answerRequests(t, (request, response) => {
    context = response.context;
    return endpoint(request, response);
  });
  const url = `http://127.0.0.1:${port}/token`;
  return async (init: RequestInit = {}) => {
    asked.length = 0;
    const response = await fetch(url, init);
    const body = (await response.json()) as any;
    return { status: response.status, headers: response.headers, body, asked: [...asked], received: context.received };
  };
}

const basic = (pair: string): IncomingHttpHeaders => ({
  authorization: `Basic ${Buffer.from(pair).toString('base64')}`,
});
const form = (fields: Record<string, string>): RequestInit => ({ method: 'POST', body: new URLSearchParams(fields) });

test('each failure has its status and its code', async (t) => {
  const failures: [name: ErrorName, status: number, code: string][] = [
    ['Unauthorized', 401, 'UNAUTHORIZED'],
    ['Unsupported', 405, 'UNSUPPORTED'],
    ['TooLarge', 400, 'UNSUPPORTED'],
    ['Aborted', 400, 'UNSUPPORTED'],
    ['TooManyRequests', 429, 'TOOMANYREQUESTS'],
    ['DatabaseUnavailable', 503, 'UNAVAILABLE'],
    ['StorageUnavailable', 503, 'UNAVAILABLE'],
    ['StorageFull', 507, 'UNAVAILABLE'],
    ['UpstreamUnavailable', 502, 'UNAVAILABLE'],
    ['UpstreamTimeout', 504, 'UNAVAILABLE'],
    ['QuotaExceeded', 403, 'DENIED'],
  ];
  for (const [name, status, code] of failures) {
    const ask = await startEndpoint(t, { failure: new DomainError(name, 'Not now.') });
    const answer = await ask({ headers: { authorization: 'Bearer x' } });
    t.deepEqual([answer.status, answer.body], [status, { errors: [{ code, message: 'Not now.' }] }], name);
    const challenge = status === 401 || status === 403 ? 'Basic realm="Entrepot"' : null;
    t.is(answer.headers.get('www-authenticate'), challenge);
  }
  const message = 'An error occurred in this server. Its log has the details.';
  for (const failure of [new Error('a secret'), new DomainError('TagInvalid', 'a secret')]) {
    const ask = await startEndpoint(t, { failure });
    const { status, body } = await ask({ headers: { authorization: 'Bearer x' } });
    t.deepEqual([status, body], [500, { errors: [{ code: 'UNKNOWN', message }] }]);
  }
});

const answerWith = (token: string) => ({
  token,
  access_token: token,
  expires_in: 300,
  issued_at: '2026-01-02T00:00:00.000Z',
});

test('a client gets the token back that it sent, in each form, for five minutes', async (t) => {
  const ask = await startEndpoint(t, {});
  const theirs = `basic.${Buffer.from('me:theirs').toString('base64url')}`;
  for (const [init, token] of [
    [{ headers: { authorization: 'Bearer known' } }, 'known'],
    [{ headers: basic('api:known') }, 'known'],
    [{ headers: basic('me:theirs') }, theirs],
    [form({ grant_type: 'password', username: 'api', password: 'known' }), 'known'],
    [form({ password: 'known' }), 'known'],
    [form({ username: 'me', password: 'theirs' }), theirs],
    [form({ grant_type: 'refresh_token', refresh_token: 'known' }), 'known'],
    [{ ...form({ service: 'x' }), headers: { authorization: 'Bearer known' } }, 'known'],
    [{ ...form({ password: 'known' }), headers: { authorization: 'Bearer other' } }, 'known'],
  ] as [RequestInit, string][]) {
    const { status, body, headers, received } = await ask(init);
    t.deepEqual([status, body], [200, answerWith(token)], JSON.stringify(init.headers ?? token));
    t.is(headers.get('cache-control'), 'no-store');
    t.is(received, init.body instanceof URLSearchParams ? init.body.toString().length : 0);
  }
  for (const init of [{}, form({}), { headers: basic(':') }, form({ username: '', password: '' })] as RequestInit[])
    t.is((await ask(init)).status, 401);
  t.is((await ask(form({ password: 'other' }))).status, 401);
  const none = await ask(form({ grant_type: 'refresh_token' }));
  t.deepEqual([none.status, none.asked], [401, []]);
  t.deepEqual((await ask(form({ grant_type: 'refresh_token', refresh_token: 'other' }))).asked, ['other']);
});

test('a client without credentials gets the anonymous token where reading needs none', async (t) => {
  const ask = await startEndpoint(t, { anonymous: { kind: 'anonymous' } as Principal });
  for (const init of [{}, form({}), { headers: basic(':') }] as RequestInit[]) {
    const { status, body, asked } = await ask(init);
    t.deepEqual([status, body.token, asked], [200, 'anonymous', []]);
  }
});

/** A form with a body of so many bytes. */
const padded = (length: number) => form({ password: 'known', x: 'x'.repeat(length - 'password=known&x='.length) });

test('only GET and POST are supported, and no form of more than 64 KiB', async (t) => {
  const ask = await startEndpoint(t, {});
  for (const method of ['PUT', 'DELETE', 'PATCH']) {
    const { status, headers, body } = await ask({ method });
    t.deepEqual([status, headers.get('allow')], [405, 'GET, POST']);
    t.is(body.errors[0].message, 'The token endpoint supports only GET and POST.');
  }
  t.is((await ask(padded(64 * 1024))).status, 200);
  const refused = await ask(padded(64 * 1024 + 1));
  t.deepEqual([refused.status, refused.body.errors[0].code], [400, 'UNSUPPORTED']);
});
