import test from 'ava';
import { generateKeyPair, SignJWT } from 'jose';
import type { IssuerKind } from '../../src/config/identity.ts';
import { IdentityTokens } from '../../src/identity/identity-token.ts';
import type { IssuerKeys } from '../../src/identity/issuer-keys.ts';
import { audience } from '../support/issuer.ts';

const now = 1_800_000_000;
const pair = generateKeyPair('ES256');

/** Two issuers with the same key, and for each search of it whether it might have been fetched. */
function tokensOf(kind: IssuerKind = 'other') {
  const asked: boolean[] = [];
  const keyFor: IssuerKeys['keyFor'] = async (_header, _token, mayFetch) => {
    asked.push(mayFetch);
    return (await pair).publicKey;
  };
  const issuers = ['https://ci.example', 'https://other.example'].map((issuer) => ({
    settings: { name: 'ci', issuer, audience, kind, allowPrivateNetwork: false },
    keys: { keyFor } as IssuerKeys,
  }));
  return { tokens: new IdentityTokens(issuers, () => now * 1000), asked };
}

const sign = async (claims: Record<string, unknown> = {}) =>
  new SignJWT({ iss: 'https://ci.example', aud: audience, iat: now, exp: now + 300, jti: '1', ...claims })
    .setProtectedHeader({ alg: 'ES256', kid: 'first' })
    .sign((await pair).privateKey);

test('keys are fetched only for a token with the right audience and times, or of a known sender', async (t) => {
  const { tokens, asked } = tokensOf();
  for (const [claims, mayFetch] of [
    [{}, true],
    [{ aud: [audience] }, true],
    [{ aud: 'other' }, false],
    [{ aud: ['other'] }, false],
    [{ exp: now - 29 }, true],
    [{ exp: now - 30 }, false],
    [{ exp: undefined }, false],
    [{ exp: '9999999999' }, false],
    [{ iat: now + 30 }, true],
    [{ iat: now + 31 }, false],
    [{ iat: now - 86_430 }, true],
    [{ iat: now - 86_431 }, false],
    [{ iat: undefined }, false],
    [{ iat: String(now) }, false],
  ] as const) {
    const token = await sign(claims);
    await tokens.verify(token).catch(() => undefined);
    await tokens.verify(token, true).catch(() => undefined);
    t.deepEqual(asked.splice(0), [mayFetch, true], JSON.stringify(claims));
  }
});

const nested = (levels: number) => JSON.parse(`${'['.repeat(levels)}1${']'.repeat(levels)}`) as unknown;

test('a token is accepted up to the longest lifetime, length and depth', async (t) => {
  const { tokens } = tokensOf();
  const refused = async (claims: Record<string, unknown>) =>
    tokens.verify(await sign(claims)).then(
      () => undefined,
      (error: Error) => error.message,
    );
  t.is(await refused({ exp: now + 86_400 }), undefined);
  t.regex((await refused({ exp: now + 86_401 }))!, /more than 24 hours/);
  t.is(await refused({ a: nested(15), b: null }), undefined);
  t.regex((await refused({ a: nested(16) }))!, /more than 16 levels/);
  const { length } = await sign({ a: '' });
  const [head, , tail] = (await sign()).split('.') as [string, string, string];
  // Three characters of a claim are four of the token.
  const padded = await sign({ a: 'x'.repeat(Math.floor(((16_384 - length) / 4) * 3)) });
  const longest = padded + 'A'.repeat(16_384 - padded.length);
  t.true(head.length + tail.length < longest.length && padded.length > 16_380);
  t.notThrows(() => tokens.read(longest));
  t.throws(() => tokens.read(`${longest}A`), { name: 'Unauthorized', message: /more than 16384 characters/ });
});

test('the event pull_request_target is one of GitHub', async (t) => {
  const token = await sign({ event_name: 'pull_request_target' });
  await t.notThrowsAsync(tokensOf('gitlab').tokens.verify(token));
  await t.throwsAsync(tokensOf('github').tokens.verify(token), { message: /pull_request_target/ });
});

test('the use of a token is known by its ID, else by all that is signed, until its tolerance has passed', async (t) => {
  const { tokens } = tokensOf();
  const useOf = async (claims: Record<string, unknown>) => (await tokens.verify(await sign(claims))).useId;
  const [first, ...others] = await Promise.all([
    useOf({}),
    useOf({ jti: '2' }),
    useOf({ iss: 'https://other.example' }),
    useOf({ jti: undefined }),
    useOf({ jti: undefined, sub: 'b' }),
    useOf({ jti: 1 }),
    useOf({ jti: 1, sub: 'b' }),
    useOf({ jti: '' }),
    useOf({ jti: '', sub: 'b' }),
  ]);
  t.regex(first, /^[0-9a-f]{64}$/);
  t.is(new Set([first, ...others]).size, 9);
  t.is(await useOf({ sub: 'b' }), first);
  t.is((await tokens.verify(await sign())).acceptedUntil, (now + 330) * 1000);
});
