import test from 'ava';
import type { Principal } from '../../src/accounts/principal.ts';
import { newTokenValue } from '../../src/accounts/token-value.ts';
import {
  Authenticator,
  authorizationOf,
  bearerOf,
  tokenIn,
  type ForeignCredential,
} from '../../src/http/authenticate.ts';

// How credentials are read, and who is asked about them.

const basic = (pair: string, scheme = 'Basic') => `${scheme} ${Buffer.from(pair).toString('base64')}`;

test('a token is the value of Bearer, or the password of Basic with the user name api', (t) => {
  const both: [authorization: string, token: string | undefined, ofAnyUser: string | undefined][] = [
    ['Bearer x', 'x', 'x'],
    ['bEARER   x ', 'x', 'x'],
    [basic('api:x'), 'x', 'x'],
    [basic('api:x', 'bASIC '), 'x', 'x'],
    [basic('api:a:b:'), 'a:b:', 'a:b:'],
    [basic('api:'), '', ''],
    [basic('me:x'), undefined, 'x'],
    [basic(':x'), undefined, 'x'],
    [basic('API:x'), undefined, 'x'],
    [basic('api'), undefined, undefined],
    ['Bearer', undefined, undefined],
    ['Bearer  ', undefined, undefined],
    ['Digest x', undefined, undefined],
    [basic('api:x', 'Digest'), undefined, undefined],
    ['Bearerx', undefined, undefined],
    ['x', undefined, undefined],
    ['', undefined, undefined],
  ];
  for (const [authorization, token, ofAnyUser] of both) {
    t.is(tokenIn(authorization), token, authorization);
    t.is(tokenIn(authorization, { anyUser: true }), ofAnyUser, authorization);
  }
});

const kept = (authorization: string | undefined) =>
  authorizationOf({ headers: authorization === undefined ? {} : { authorization } });

test('Basic with an empty user name and password is no credential', (t) => {
  for (const none of [undefined, 'Basic Og==', 'bASIC   Og==', ' Basic Og== ']) t.is(kept(none), undefined);
  for (const some of ['', 'Basic', 'Basic Og==x', 'xBasic Og==', 'Basic Og', 'Bearer Og==', 'BasicOg=='])
    t.is(kept(some), some);
});

test('credentials of another server are a Bearer value, too', (t) => {
  const secret = 'me:p\u00e4ss?>\u00ff';
  const value = `basic.${Buffer.from(secret).toString('base64url')}`;
  for (const scheme of ['Basic', 'bASIC', 'Basic  ']) t.is(bearerOf(basic(secret, scheme)), value, scheme);
  t.is(bearerOf(` ${basic(secret)} `), value);
  for (const none of ['Bearer x', 'Basic', 'Basic a b', 'xBasic abc', '']) t.is(bearerOf(none), undefined, none);
});

const known = { kind: 'token', tokenId: 'known' } as Principal;
const foreign = { kind: 'token', tokenId: 'foreign' } as Principal;
const nobody = { kind: 'anonymous' } as Principal;

/** An authenticator that knows the token `known`, and the credentials of another server; and what was asked of it. */
function authenticatorWith(anonymous?: Principal) {
  const asked: (string | ForeignCredential)[] = [];
  const counts = { refused: 0, looks: 0 };
  const authenticator = new Authenticator(
    [
      { verify: () => Promise.resolve(undefined) },
      { verify: (value) => Promise.resolve(asked.push(value) && value === 'known' ? known : undefined) },
    ],
    anonymous,
    () => void (counts.refused += 1),
    (look) => ((counts.looks += 1), look()),
    {
      verifyForeign: (credential) =>
        Promise.resolve(asked.push(credential) && credential.secret === 'theirs' ? foreign : undefined),
    },
  );
  const find = async (headers: Record<string, string>, rules = {}) => {
    asked.length = 0;
    Object.assign(counts, { refused: 0, looks: 0 });
    const found = await authenticator.principalOf({ headers }, rules).catch((error: Error) => error.message);
    return [found, [...asked], counts.refused, counts.looks];
  };
  return { find, authenticator };
}

const notValid = 'The API token is not valid. It may have expired, or have been revoked.';
const noToken = (end: string) =>
  `The credential has no API token. Send one as Bearer, or as the password of Basic authentication${end}.`;
const missing = 'Authenticate with an API token, as Bearer or as Basic with user name "api".';

test('a credential is looked for here, then at other servers, and counts as a failed sign-in if nobody knows it', async (t) => {
  const { find, authenticator } = authenticatorWith();
  t.is(authenticator.anonymous, undefined);
  t.deepEqual(await find({}), [missing, [], 0, 0]);
  t.deepEqual(await find({ authorization: 'Bearer known' }), [known, ['known'], 0, 2]);
  t.deepEqual(await find({ authorization: basic('api:known') }), [known, ['known'], 0, 2]);
  t.deepEqual(await find({ authorization: 'Bearer other' }), [notValid, ['other'], 1, 2]);
  t.deepEqual(await find({ authorization: 'Bearer anonymous' }), [notValid, ['anonymous'], 1, 2]);
  const mine = { user: 'me', secret: 'theirs' };
  t.deepEqual(await find({ authorization: basic('me:theirs') }), [foreign, [mine], 0, 0]);
  t.deepEqual(await find({ authorization: bearerOf(basic('me:theirs'))!.replace(/^/, 'Bearer ') }), [
    foreign,
    [bearerOf(basic('me:theirs')), mine],
    0,
    2,
  ]);
  for (const spaced of [` ${basic('me:theirs')} `, basic('me:theirs', 'bASIC  ')])
    t.deepEqual(await find({ authorization: spaced }), [foreign, [mine], 0, 0], spaced);
  for (const none of [`x${basic('me:theirs')}`, `${basic('me:theirs')} more`])
    t.deepEqual(await find({ authorization: none }), [noToken(' with the user name "api"'), [], 1, 0], none);
  const wrong = { user: 'me', secret: 'x:y' };
  t.deepEqual(await find({ authorization: basic('me:x:y') }), [noToken(' with the user name "api"'), [wrong], 1, 0]);
  t.deepEqual(await find({ authorization: basic('me:x:y') }, { anyUser: true }), [notValid, ['x:y', wrong], 1, 2]);
  t.deepEqual(await find({ authorization: 'Basic !' }, { anyUser: true }), [noToken(''), [], 1, 0]);
  const mistyped = `${newTokenValue().slice(0, -6)}000000`;
  const [message] = await find({ authorization: `Bearer ${mistyped}` });
  t.is(message, 'The API token is mistyped or incomplete: its checksum is wrong. Copy it again.');
});

const key = (value: string) => ({ 'x-nuget-apikey': value });

test('an API key comes before other credentials, where the route takes one', async (t) => {
  const { find } = authenticatorWith();
  let warned = 0;
  const rules = { apiKey: true, onInvalidKey: () => void (warned += 1) };
  t.deepEqual(await find(key('known')), [missing, [], 0, 0], 'not by default');
  t.deepEqual(await find(key('known'), rules), [known, ['known'], 0, 2]);
  t.deepEqual(await find(key(''), rules), [missing, [], 0, 0]);
  const theirs = { user: undefined, secret: 'theirs' };
  t.deepEqual(await find(key('theirs'), rules), [foreign, ['theirs', theirs], 0, 2]);
  const wrong = { user: undefined, secret: 'wrong' };
  t.deepEqual(await find(key('wrong'), rules), [notValid, ['wrong', wrong], 1, 2]);
  t.is(warned, 0);
  const beside = { ...key('wrong'), authorization: 'Bearer known' };
  t.deepEqual(await find(beside, rules), [known, ['wrong', wrong, 'known'], 0, 4]);
  t.is(warned, 1);
  const both = { ...key('wrong'), authorization: 'Bearer other' };
  t.deepEqual(await find(both, rules), [notValid, ['wrong', wrong, 'other'], 1, 4]);
  t.is(warned, 1);
});

test('without a credential, or with the value for it, a reader is anonymous where that is allowed', async (t) => {
  const { find, authenticator } = authenticatorWith(nobody);
  t.is(authenticator.anonymous, nobody);
  t.deepEqual(await find({}), [nobody, [], 0, 0]);
  t.deepEqual(await find({ authorization: 'Basic Og==' }), [nobody, [], 0, 0]);
  t.deepEqual(await find({ authorization: 'Bearer anonymous' }), [nobody, [], 0, 0]);
  t.deepEqual(await find({ authorization: 'Bearer other' }), [notValid, ['other'], 1, 2]);
});

test('without limits and other servers, credentials are looked for here, and nobody is told about refused ones', async (t) => {
  const verify = (value: string) => Promise.resolve(value === 'known' ? known : undefined);
  const authenticator = new Authenticator([{ verify }], undefined);
  const find = (headers: Record<string, string>, rules = {}) => authenticator.principalOf({ headers }, rules);
  t.is(await find({ authorization: 'Bearer known' }), known);
  t.is(await find({ ...key('wrong'), authorization: 'Bearer known' }, { apiKey: true }), known);
  await t.throwsAsync(find(key('wrong'), { apiKey: true }), { name: 'Unauthorized', message: notValid });
  await t.throwsAsync(find({ authorization: basic('me:x') }), { name: 'Unauthorized' });
});
