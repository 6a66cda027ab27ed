import { isDeepStrictEqual } from 'node:util';
import test from 'ava';
import { Access } from '../../src/accounts/access.ts';
import type { Grant, Grantee } from '../../src/accounts/grant-rows.ts';
import type { Patterns } from '../../src/accounts/names.ts';
import { isDisabled, personIdOf, type Person } from '../../src/accounts/people.ts';
import type { Scope } from '../../src/accounts/principal.ts';
import { rightOf, type Right } from '../../src/accounts/rights.ts';
import type { Token } from '../../src/accounts/token-rows.ts';

// Who has a right, and why. test/identity/grants.test.ts asks a server.

const account = { id: 7, name: 'team' };
const issuer = 'https://provider.example';
const now = 1000;

const grantTo = (subject: Partial<Grantee>, more: Partial<Grant> = {}): Grant => ({
  id: `to-${subject.kind ?? 'person'}-${subject.id}`,
  accountId: account.id,
  subject: { kind: 'person', issuer: null, id: '', ...subject },
  verbs: ['read'],
  patterns: null,
  createdBy: { kind: 'system', id: null, name: null },
  createdAt: 1,
  acceptedAt: null,
  ...more,
});

const tokenOf = (id: string, more: Partial<Token> = {}): Token => ({
  id,
  name: `token ${id}`,
  tokenPrefix: '',
  scopes: ['read'],
  patterns: null,
  publisherId: null,
  personId: null,
  createdBy: null,
  createdAt: 0,
  expiresAt: null,
  lastUsedAt: null,
  revokedAt: null,
  refusedBecause: null,
  ...more,
});

const person = (subject: string, more: Partial<Person> = {}): Person => ({
  issuer,
  subject,
  name: `Name of ${subject}`,
  claims: [],
  ...more,
});

interface Facts {
  grants?: Grant[];
  known?: Person[];
  /** Rights of people by rules, by subject. */
  ruled?: Record<string, Right[]>;
  rules?: { claim: string; value: string; account: string; scopes: Scope[] }[];
  tokens?: Token[];
  allowed?: Scope[] | null;
  /** Why the limits of personal tokens cannot be read. */
  failure?: Error;
}

const version = 3;
const isOwn = (id: number) => id === account.id;

function accessWith({ grants = [], known = [], ruled = {}, rules = [], tokens = [], allowed = null, failure }: Facts) {
  const to = ({ kind, issuer: of, id }: Grantee) =>
    grants.filter(({ subject }) => subject.kind === kind && subject.issuer === of && subject.id === id);
  const ofAccount = {
    to,
    get subjects() {
      return grants.map(({ subject }) => subject);
    },
  };
  const people = {
    rightsIn: (one: Person, place: object) =>
      Promise.resolve(
        isDisabled(one, account.name) || !isDeepStrictEqual(place, { ...account, version })
          ? []
          : [...(ruled[one.subject] ?? []), ...to({ kind: 'person', issuer, id: one.subject }).map(rightOf)],
      ),
    rightsOfGroup: (id: string) => Promise.resolve(to({ kind: 'group', issuer, id }).map(rightOf)),
    withSubject: (id: string) => Promise.resolve(known.find(({ subject }) => subject === id) ?? person(id)),
    rulesOf: (name: string) => rules.filter((each) => each.account === name),
  };
  const rows = known.map((each) => ({ id: personIdOf(each), person: each, knownIn: ['team'] }));
  return new Access({
    grants: {
      versionOf: (id: number) => Promise.resolve(isOwn(id) ? version : 0),
      of: (id: number, of: number) =>
        isOwn(id) && of === version ? Promise.resolve(ofAccount) : Promise.reject(new Error('another account')),
    },
    people,
    knownPeople: {
      find: (id: string) => Promise.resolve(rows.find((each) => each.id === id)),
      list: (limit: number) => Promise.resolve(rows.slice(0, limit)),
      concerns: (one: (typeof rows)[number]) => !one.person.name.startsWith('Stranger'),
    },
    personalLimits: {
      of: (id: number) =>
        failure ? Promise.reject(failure) : Promise.resolve({ scopes: isOwn(id) ? allowed : [], longest: null }),
    },
    tokens: {
      get: (id: number, wanted: string) => Promise.resolve(tokens.find((each) => isOwn(id) && each.id === wanted)),
      list: (id: number, limit: number) => Promise.resolve(isOwn(id) ? tokens.slice(0, limit) : []),
    },
    now: () => now,
  } as never);
}

const ask = (who: Pick<Grantee, 'kind' | 'id'>, more: { verb?: Scope; name?: string } = {}) => ({
  account,
  who,
  verb: 'read' as Scope,
  kind: 'package',
  name: 'Contoso.Core',
  ...more,
});

const some: Patterns = { packages: ['contoso.*'] };
const refused = (because: string) => ({ allowed: false, because, grants: [] });

test('a person has what rules and grants give, unless it is disabled in the account', async (t) => {
  const own = grantTo({ issuer, id: 'ann' }, { patterns: some });
  const disabled = { team: { by: own.createdBy, at: 1, reason: 'left' } };
  const access = accessWith({
    grants: [own, grantTo({ issuer, id: 'eve' }), grantTo({ kind: 'group', issuer, id: 'dev' }, { verbs: ['write'] })],
    known: [person('ann'), person('eve', { disabled }), person('zed', { disabled })],
    ruled: { bob: [{ scopes: ['write'], patterns: null }] },
  });
  const of = (id: string, more = {}) => access.explain(ask({ kind: 'person', id }, more));
  const because = 'the grant to-person-ann to the person gives that';
  const byOwn = { allowed: true, because, grants: [own] };
  t.deepEqual(await of('ann'), byOwn);
  t.deepEqual(await of(personIdOf(person('ann'))), byOwn, 'by the ID');
  const others = 'no rule and no grant gives that for this name, and 1 for others';
  t.deepEqual(await of('ann', { name: 'Fabrikam' }), refused(others));
  t.deepEqual(await of('ann', { verb: 'write' }), refused('no rule and no grant gives that'));
  t.deepEqual(await of('bob', { verb: 'write' }), {
    allowed: true,
    because: 'a rule of the settings gives that',
    grants: [],
  });
  t.deepEqual(await of('eve'), refused('the person is disabled here'));
  t.deepEqual(await of('zed'), refused('no rule and no grant gives that'), 'whether it is disabled is not told');
  t.like(await access.explain(ask({ kind: 'group', id: 'dev' }, { verb: 'write' })), { allowed: true });
  t.deepEqual(await access.explain(ask({ kind: 'group', id: 'dev' })), refused('no rule and no grant gives that'));
});

test('a token may do what it was made for, and a personal one of that what its person and its account allow', async (t) => {
  const ann = personIdOf(person('ann'));
  const given = grantTo({ kind: 'token', id: 'ci' }, { verbs: ['write'] });
  const facts: Facts = {
    grants: [given],
    known: [person('ann')],
    ruled: { ann: [{ scopes: ['read', 'write'], patterns: some }] },
    tokens: [
      tokenOf('ci'),
      tokenOf('gone', { revokedAt: 5 }),
      tokenOf('late', { expiresAt: now }),
      tokenOf('soon', { expiresAt: now + 1 }),
      tokenOf('own', { personId: ann, scopes: ['read', 'write'] }),
      tokenOf('narrow', { personId: ann, patterns: { packages: ['other'] } }),
      tokenOf('away', { personId: ann, refusedBecause: 'no_sign_in' }),
      tokenOf('unknown', { personId: 'nobody' }),
    ],
  };
  const of = (id: string, more = {}, allowed: Scope[] | null = null) =>
    accessWith({ ...facts, allowed }).explain(ask({ kind: 'token', id }, more));
  t.deepEqual(await of('ci'), { allowed: true, because: 'the token was made for that', grants: [] });
  t.deepEqual(await of('ci', { verb: 'write' }), {
    allowed: true,
    because: 'the grant to-token-ci to the token gives that',
    grants: [given],
  });
  t.deepEqual(await of('ci', { verb: 'delete' }), refused('no rule and no grant gives that'));
  t.deepEqual(await of('gone'), refused('the token is revoked'));
  t.deepEqual(await of('late'), refused('the token has expired'));
  t.true((await of('soon')).allowed);
  await t.throwsAsync(of('none'), { name: 'NotFound', message: /^This account has no such token\./ });
  t.true((await of('own')).allowed);
  t.regex((await of('own', { name: 'Fabrikam' })).because, /and 1 for others$/);
  t.deepEqual(await of('own', { verb: 'delete' }), refused('the personal token was made for other verbs or names'));
  t.deepEqual(await of('narrow'), refused('the personal token was made for other verbs or names'));
  t.deepEqual(
    await of('own', { verb: 'write' }, ['read', 'delete']),
    refused('the account allows personal tokens only read, delete'),
  );
  t.true((await of('own', {}, ['read'])).allowed);
  for (const id of ['away', 'unknown'])
    t.deepEqual(await of(id), refused('its person has not signed in for too long'), id);
});

const ofOther = (grants: Grant[]) => accessWith({ grants }).explain(ask({ kind: 'account', id: 'other' }));

test('another account has what it was given from its acceptance on', async (t) => {
  const grant = grantTo({ kind: 'account', id: 'other' });
  t.deepEqual(await ofOther([grant]), {
    allowed: false,
    because: 'the other account has not accepted the grant to-account-other',
    grants: [grant],
  });
  t.true((await ofOther([grant, { ...grant, acceptedAt: 1 }])).allowed);
  t.deepEqual(await ofOther([]), refused('no rule and no grant gives that'));
});

const byGrant = (kind: string, id: string) => `the grant to-${kind}-${id} to the ${kind} gives that`;
const many = (length: number) => Array.from({ length }, (_, index) => index);

test('all who have a right are listed: rules, groups, people, tokens, accounts', async (t) => {
  const rule = { claim: 'groups', value: 'root', account: 'team', scopes: ['read'] as Scope[] };
  const facts: Facts = {
    rules: [rule, { ...rule, value: 'w', scopes: ['write'] }, { ...rule, value: 'x', account: 'other' }],
    grants: [
      grantTo({ kind: 'account', id: 'other' }, { acceptedAt: 1 }),
      grantTo({ kind: 'account', id: 'waiting' }),
      grantTo({ kind: 'token', id: 'write' }),
      grantTo({ issuer, id: 'new' }),
      grantTo({ issuer, id: 'ann' }),
      grantTo({ kind: 'group', issuer, id: 'dev' }),
      // A group can have the name of an account, and the ID of a person.
      grantTo({ kind: 'group', issuer, id: 'other' }, { verbs: ['delete'] }),
      grantTo({ kind: 'group', issuer, id: 'new' }),
    ],
    known: [person('ann'), person('bob'), person('eve', { name: 'Stranger' })],
    ruled: { eve: [{ scopes: ['read'], patterns: null }] },
    tokens: [
      tokenOf('made'),
      tokenOf('write', { scopes: ['write'] }),
      tokenOf('none', { scopes: ['write'] }),
      tokenOf('of-ann', { personId: personIdOf(person('ann')) }),
      // The account has not met this person, whose token it has.
      tokenOf('of-eve', { personId: personIdOf(person('eve')) }),
      tokenOf('of-bob', { personId: personIdOf(person('bob')) }),
      tokenOf('of-nobody', { personId: 'nobody' }),
    ],
    allowed: ['read'],
  };
  const asked = { account, verb: 'read', kind: 'package', name: 'Lib' };
  const { entitled, isComplete } = await accessWith(facts).entitled(asked);
  t.deepEqual(entitled, [
    { who: { kind: 'rule', id: 'groups=root' }, name: null, because: 'a rule of the settings gives that' },
    { who: { kind: 'group', id: 'dev' }, name: null, because: byGrant('group', 'dev') },
    { who: { kind: 'group', id: 'new' }, name: null, because: byGrant('group', 'new') },
    {
      who: { kind: 'person', id: 'ann' },
      name: 'Name of ann',
      because: 'the grant to-person-ann to the person gives that',
    },
    { who: { kind: 'person', id: 'new' }, name: null, because: 'the grant to-person-new to the person gives that' },
    { who: { kind: 'token', id: 'made' }, name: 'token made', because: 'the token was made for that' },
    { who: { kind: 'token', id: 'write' }, name: 'token write', because: byGrant('token', 'write') },
    { who: { kind: 'token', id: 'of-ann' }, name: 'token of-ann', because: byGrant('person', 'ann') },
    { who: { kind: 'token', id: 'of-eve' }, name: 'token of-eve', because: 'a rule of the settings gives that' },
    { who: { kind: 'account', id: 'other' }, name: null, because: byGrant('account', 'other') },
  ]);
  t.true(isComplete);
  const toTokens = async (allowed: Scope[]) =>
    (await accessWith({ ...facts, allowed }).entitled(asked)).entitled.filter(({ who }) => who.kind === 'token').length;
  t.deepEqual([await toTokens(['read']), await toTokens(['write'])], [4, 2], 'the account limits personal tokens');
  const complete = async (more: Facts) => (await accessWith(more).entitled(asked)).isComplete;
  t.true(await complete({ tokens: many(999).map((each) => tokenOf(String(each))) }));
  t.false(await complete({ tokens: many(1000).map((each) => tokenOf(String(each))) }));
  t.true(await complete({ known: many(999).map((each) => person(String(each))) }));
  t.false(await complete({ known: many(1000).map((each) => person(String(each))) }));
  await t.throwsAsync(accessWith({}).entitled({ ...asked, verb: 'sudo' }), { name: 'Invalid' });
  const failure = new Error('the connection is lost');
  await t.throwsAsync(accessWith({ failure }).entitled(asked), { is: failure }, 'also without a personal token');
});

test('a question as a command asks it has a known kind and verb', async (t) => {
  const access = accessWith({ tokens: [tokenOf('ci')] });
  const about = { account, kind: 'package', name: 'Lib' };
  t.true((await access.explainTyped(about, { who: 'token', id: 'ci', verb: 'read' })).allowed);
  await t.throwsAsync(async () => access.explainTyped(about, { who: 'robot', id: 'ci', verb: 'read' }), {
    name: 'Invalid',
    message: 'robot: expected one of person, group, token, account.',
  });
  await t.throwsAsync(async () => access.explainTyped(about, { who: 'token', id: 'ci', verb: 'sudo' }), {
    name: 'Invalid',
  });
});
