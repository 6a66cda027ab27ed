import test, { type ExecutionContext } from 'ava';
import { createTokenExchange } from '../../../src/api/publishers/token-exchange.ts';
import type { HttpHandler } from '../../../src/http/app.ts';
import { DomainError, type ErrorName } from '../../../src/runtime/errors.ts';
import { answerRequests } from '../../support/answers.ts';

const grant = 'urn:ietf:params:oauth:grant-type:token-exchange';
const accessToken = 'urn:ietf:params:oauth:token-type:access_token';
const jwt = 'urn:ietf:params:oauth:token-type:jwt';
const good = { grant_type: grant, subject_token: 'TOKEN', subject_token_type: jwt };
const form = 'application/x-www-form-urlencoded';
const nuget = { path: '/v1/token-exchange/nuget', authorization: 'Bearer TOKEN', type: 'application/json' };
const issuer = { audience: 'https://here.example' };

interface Sent {
  path?: string;
  method?: string;
  type?: string;
  authorization?: string;
}

/** The exchange without a server, and what it is asked. */
async function open(t: ExecutionContext) {
  const asked: { token: string; account: unknown; scopes?: unknown }[] = [];
  const state = { failure: undefined as Error | undefined, refused: 0, received: 0 };
  const exchange = {
    exchange: (wanted: { token: string; account: unknown; scopes?: unknown }) => {
      const account =
        typeof wanted.account === 'function'
          ? (wanted.account as (token: object) => string)({ issuer })
          : wanted.account;
      asked.push({ token: wanted.token, account, ...('scopes' in wanted && { scopes: wanted.scopes }) });
      if (state.failure) return Promise.reject(state.failure);
      return Promise.resolve({ value: 'MADE', scopes: ['read', 'write'], expiresAt: 1000 });
    },
  };
  const onRefused = () => {
    state.refused += 1;
  };
  const log = { error: () => undefined, warn: () => undefined, info: () => undefined };
  const parts = { exchange, limits: { uploadIdle: 60_000 }, clients: {}, onRefused, log };
  const mount = createTokenExchange(parts as never) as { path: string; answer: HttpHandler };
  t.is(mount.path, '/v1/token-exchange');
  const port = await answerRequests(t, (request, response) => {
    response.once('close', () => (state.received = response.context.received));
    return mount.answer(request, response);
  });
  const send = async (
    body: string | Record<string, unknown>,
    { path = '/v1/token-exchange', method = 'POST', type = form, authorization }: Sent = {},
  ) => {
    const text =
      typeof body === 'string'
        ? body
        : type === form
          ? new URLSearchParams(body as Record<string, string>).toString()
          : JSON.stringify(body);
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method,
      headers: { 'content-type': type, ...(authorization !== undefined && { authorization }) },
      ...(method !== 'GET' && { body: text }),
    });
    const answer = (await response.json()) as Record<string, unknown>;
    return { status: response.status, headers: response.headers, answer };
  };
  return { asked, state, send };
}

test('an identity token is exchanged for a token of the account that is named, or of the default one', async (t) => {
  const { asked, send } = await open(t);
  for (const [more, account, scopes] of [
    [{}, 'default', undefined],
    [{ audience: '' }, 'default', undefined],
    [{ audience: issuer.audience }, 'default', undefined],
    [{ audience: 'team', scope: ' read  write ' }, 'team', ['read', 'write']],
    [
      { requested_token_type: accessToken, subject_token_type: 'urn:ietf:params:oauth:token-type:id_token' },
      'default',
      undefined,
    ],
    [{ actor_token: '', scope: ' ' }, 'default', []],
  ] as const) {
    for (const type of [form, `${form.toUpperCase()} ; charset=utf-8`, 'application/json']) {
      const body = { ...good, ...more };
      const text = type.startsWith('application/json') ? body : new URLSearchParams(body).toString();
      const { status, answer, headers } = await send(text, { type });
      t.deepEqual([status, answer], [
        200,
        {
          access_token: 'MADE',
          issued_token_type: accessToken,
          token_type: 'Bearer',
          expires_in: 900,
          scope: 'read write',
        },
      ] as never);
      t.is(headers.get('cache-control'), 'no-store');
      t.deepEqual(asked.pop(), { token: 'TOKEN', account, scopes });
    }
  }
});

test('a request that is wrong is refused with the code of the protocol, before any exchange', async (t) => {
  const { asked, state, send } = await open(t);
  for (const [change, code] of [
    [{ grant_type: '' }, 'invalid_request'],
    [{ grant_type: 'password' }, 'unsupported_grant_type'],
    [{ subject_token: '' }, 'invalid_request'],
    [{ subject_token_type: accessToken }, 'invalid_request'],
    [{ subject_token_type: '' }, 'invalid_request'],
    [{ requested_token_type: jwt }, 'invalid_request'],
    [{ actor_token: 'x' }, 'invalid_request'],
  ] as const) {
    const { status, answer } = await send({ ...good, ...change });
    t.deepEqual([status, answer['error'], typeof answer['error_description']], [400, code, 'string']);
  }
  for (const [body, type] of [
    [`${new URLSearchParams(good).toString()}&scope=a&scope=b`, form],
    ['[]', 'application/json'],
    ['null', 'application/json'],
    ['"x"', 'application/json'],
    ['{', 'application/json'],
    [JSON.stringify({ ...good, scope: ['read'] }), 'application/json'],
  ] as const) {
    const { status, answer } = await send(body, { type });
    t.deepEqual([status, answer['error']], [400, 'invalid_request'], body);
  }
  const long = { ...good, scope: 'x'.repeat(70_000) };
  const large = await send(long);
  t.deepEqual([large.status, large.answer['error']], [413, 'invalid_request']);
  const named = await send({ ...good, ['y'.repeat(80)]: 1 }, { type: 'application/json' });
  t.is(named.answer['error_description'], `The value of '${'y'.repeat(50)}' must be text.`);
  const got = await send('', { method: 'GET' });
  t.deepEqual([got.status, got.headers.get('allow'), got.answer['error']], [405, 'POST', 'invalid_request']);
  const away = await send(good, { path: '/v1/token-exchange/other' });
  t.deepEqual([away.status, away.answer['error']], [404, 'invalid_request']);
  t.is((await send(good, { path: '/v1/token-exchange?a=b' })).status, 200);
  t.deepEqual([asked.length, state.refused], [1, 0]);
});

test('a failure has the code and the status of the protocol, and a text of ASCII', async (t) => {
  const { state, send } = await open(t);
  const failures: [ErrorName, string | undefined, number, number][] = [
    ['Unauthorized', 'invalid_request', 400, 401],
    ['Invalid', 'invalid_request', 400, 400],
    ['NotFound', 'invalid_request', 404, 404],
    ['Unsupported', 'invalid_request', 400, 400],
    ['TooLarge', 'invalid_request', 413, 413],
    ['ScopeMissing', 'invalid_scope', 400, 403],
    ['Aborted', 'invalid_request', 400, 400],
    ['TooManyRequests', 'temporarily_unavailable', 429, 429],
    ['UpstreamUnavailable', 'temporarily_unavailable', 503, 503],
    ['DatabaseUnavailable', 'temporarily_unavailable', 503, 503],
    ['StorageUnavailable', 'temporarily_unavailable', 503, 503],
    ['StorageFull', 'temporarily_unavailable', 507, 507],
  ];
  const message = 'It is "no" – \\ at all~.';
  const body = { tokenType: 'ApiKey' };
  for (const [name, code, status, nugetStatus] of failures) {
    state.failure = new DomainError(name, message);
    const plain = await send(good);
    t.deepEqual(
      [plain.status, plain.answer],
      [status, { error: code, error_description: "It is 'no' ? ? at all~." }] as never,
      name,
    );
    const other = await send(body, nuget);
    t.deepEqual([other.status, other.answer], [nugetStatus, { error: message }] as never, name);
    const isChallenged = name === 'Unauthorized';
    t.is(other.headers.get('www-authenticate'), isChallenged ? 'Bearer realm="Entrepot"' : null, name);
  }
  t.is(state.refused, 2);
  state.failure = new Error('a defect');
  t.is((await send(good)).status, 500);
});

test('the token service of NuGet gives a key to an account by its name', async (t) => {
  const { asked, state, send } = await open(t);
  const body = { tokenType: 'ApiKey', username: 'team' };
  const { status, answer, headers } = await send(body, nuget);
  t.deepEqual([status, answer] as unknown[], [
    200,
    { tokenType: 'ApiKey', expires: new Date(1000).toISOString(), apiKey: 'MADE' },
  ]);
  t.is(headers.get('cache-control'), 'no-store');
  t.is((await send({ tokenType: 'ApiKey' }, { ...nuget, authorization: 'bearer   TOKEN ' })).status, 200);
  t.is((await send({ tokenType: 'ApiKey', username: '' }, nuget)).status, 200);
  t.deepEqual(asked, [
    { token: 'TOKEN', account: 'team' },
    { token: 'TOKEN', account: 'default' },
    { token: 'TOKEN', account: 'default' },
  ]);
  for (const authorization of ['', 'Basic TOKEN', 'BearerTOKEN', 'Bearer', 'Bearer a b', 'x Bearer TOKEN'])
    t.is((await send(body, { ...nuget, authorization })).status, 401, authorization);
  t.is(state.refused, 6);
  for (const wrong of [{}, { tokenType: 'apikey' }]) {
    const refused = await send(wrong, nuget);
    t.deepEqual([refused.status, refused.answer] as unknown[], [400, { error: 'tokenType must be ApiKey.' }]);
  }
  const got = await send('', { ...nuget, method: 'GET' });
  t.deepEqual([got.status, got.headers.get('allow')], [405, 'POST']);
  t.is((await send(body, { ...nuget, path: '/v1/token-exchange/nuget/x' })).status, 404);
  t.is(asked.length, 3);
});
