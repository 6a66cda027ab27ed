import test from 'ava';
import type { People } from '../../src/accounts/people.ts';
import { PersonSignIn } from '../../src/identity/person-sign-in.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { testClock } from '../support/clock.ts';
import { testLog } from '../support/mirror.ts';

// Sign-in with a provider, without a provider. test/console/hostile-sign-in.test.ts has one.

const issuer = 'https://idp.test:8443/realm';

const metadata = {
  issuer,
  jwks_uri: `${issuer}/keys`,
  authorization_endpoint: `${issuer}/authorize`,
  token_endpoint: `${issuer}/token`,
  response_types_supported: ['code'],
};

function setUp(settings: object = {}) {
  const clock = testClock(1_000_000);
  const { log, lines } = testLog();
  const requests: string[] = [];
  const provider = { answer: (): object | Error => metadata };
  const signIn = new PersonSignIn({
    settings: { issuer, clientId: 'entrepot', scopes: ['openid', 'profile'], rules: [], ...settings } as never,
    fetch: {
      fetch: (url, request) => {
        requests.push(`${request?.method} ${url.href}`);
        const answer = provider.answer();
        if (answer instanceof Error) return Promise.reject(answer);
        return Promise.resolve(Response.json(answer));
      },
    },
    people: {} as People,
    log,
    now: clock.time,
  });
  const logged = () =>
    lines.splice(0).map((line) => {
      const { level, upstream, subject, reason, untold, msg } = JSON.parse(line) as Record<string, unknown>;
      return { level, upstream, subject, reason, untold, msg };
    });
  return { clock, requests, provider, signIn, logged };
}

test('a browser is led to the provider with values that only the secret of its cookie gives', async (t) => {
  const { signIn, requests } = setUp();
  t.is(signIn.providerName, 'idp.test:8443');
  t.is(setUp({ name: 'Company' }).signIn.providerName, 'Company');
  const secret = signIn.newSecret();
  t.regex(secret, /^[\w-]{43}$/);
  t.not(signIn.newSecret(), secret);
  const address = await signIn.addressFor(secret, 'https://hub.test/callback');
  const url = new URL(address);
  t.is(url.origin + url.pathname, metadata.authorization_endpoint);
  const { state, nonce, code_challenge: challenge, ...rest } = Object.fromEntries(url.searchParams);
  t.deepEqual(rest, {
    client_id: 'entrepot',
    redirect_uri: 'https://hub.test/callback',
    response_type: 'code',
    scope: 'openid profile',
    code_challenge_method: 'S256',
  });
  const values = [state, nonce, challenge];
  t.is(new Set(values).size, 3);
  for (const each of values) t.regex(each!, /^[\w-]{43}$/);
  t.false(address.includes(secret));
  t.is(await signIn.addressFor(secret, 'https://hub.test/callback'), address);
  t.not(await signIn.addressFor(signIn.newSecret(), 'https://hub.test/callback'), address);
  t.deepEqual(requests, [`GET ${issuer}/.well-known/openid-configuration`]);
});

test('the provider is asked again after an hour, and after a failure in 5 seconds', async (t) => {
  const { clock, signIn, provider, requests } = setUp();
  const ask = () => signIn.addressFor('secret', 'https://hub.test/callback');
  provider.answer = () => Object.assign(new Error('text'), { code: 'ECONNREFUSED' });
  const failed = await t.throwsAsync<DomainError>(ask(), { instanceOf: DomainError, name: 'UpstreamUnavailable' });
  t.regex(failed.message, /^The provider .+\. Try again\.$/);
  clock.now! += 4999;
  await t.throwsAsync(ask(), { message: failed.message });
  t.is(requests.length, 1);
  clock.now! += 1;
  provider.answer = () => metadata;
  await Promise.all([ask(), ask()]);
  t.is(requests.length, 2);
  clock.now! += 3_600_000 - 1;
  await ask();
  t.is(requests.length, 2);
  clock.now! += 1;
  await ask();
  t.is(requests.length, 3);
});

test('people sign out at the provider, too, if it has an address for that', async (t) => {
  const { signIn } = setUp();
  t.is(await signIn.signOutAddress(), undefined);
  const other = setUp();
  other.provider.answer = () => ({ ...metadata, end_session_endpoint: `${issuer}/end` });
  const url = new URL((await other.signIn.signOutAddress())!);
  t.deepEqual(
    [url.origin + url.pathname, Object.fromEntries(url.searchParams)],
    [`${issuer}/end`, { client_id: 'entrepot' }],
  );
});

const line = (subject: string, reason: string, untold?: number) => ({
  level: 40,
  upstream: 'idp.test:8443',
  subject,
  reason,
  untold,
  msg: 'a person was not signed in',
});

test('a failed sign-in is logged with its cause, once in 10 seconds for each reason', (t) => {
  const { clock, signIn, logged } = setUp();
  const fail = (message: string, cause?: unknown, address?: string) =>
    signIn.logFailure(new DomainError('Unauthorized', message, { cause }), address);
  fail('Refused.', undefined, '192.0.2.1');
  fail('Refused.', 'no error', '192.0.2.1');
  fail('Refused.', new Error('x'.repeat(501)));
  fail('Refused.', undefined, '192.0.2.2');
  t.deepEqual(logged(), [line('192.0.2.1', 'Refused.'), line('', `Refused. (${'x'.repeat(500)})`, 1)]);
  clock.now! += 10_000;
  fail('Refused.', undefined, '192.0.2.2');
  t.deepEqual(logged(), [line('192.0.2.2', 'Refused.', 1)]);
});
