import test from 'ava';
import {
  allow,
  allowedAs,
  allowLasting,
  allowObject,
  allowToken,
  coversPatterns,
  credentialMissing,
  endOfMade,
  forAction,
  isAllowed,
  type Action,
} from '../../src/accounts/allow.ts';
import { Names } from '../../src/accounts/names.ts';
import { parseScopes, readsHosted, tokenIdOf, type Principal, type Scope } from '../../src/accounts/principal.ts';
import { requesterOf } from '../../src/accounts/requester.ts';
import type { DomainError } from '../../src/runtime/errors.ts';

// Who may do what with which name, and what a refusal says.

const token = (more: object = {}, scopes: readonly Scope[] = ['read']) =>
  ({
    kind: 'token',
    accountId: 1,
    accountName: 'team',
    tokenId: 't',
    personId: null,
    expiresAt: null,
    isShortLived: false,
    scopes: new Set(scopes),
    names: undefined,
    ...more,
  }) as unknown as Principal;
const person = (more: object = {}) => token({ kind: 'person', personId: 'p', ...more });
const anonymous = (reads = 'all') => token({ kind: 'anonymous', reads });
const some = new Names({ packages: ['Contoso.*', 'Lib'] });

/** The name, the message and the details of a refusal; undefined without one. */
function refusal(work: () => unknown): unknown[] | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    const { name, message, detail } = error as DomainError;
    return detail === undefined ? [name, message] : [name, message, detail];
  }
}

const code = (work: () => unknown) => refusal(work)?.[0];
const credential = (which: string) => ['Unauthorized', `Authenticate with an API token${which}.`];
const own = (what: string) => `The name patterns of this token do not match ${what}.`;
const right = (verb: string, what: string) =>
  `The right "${verb}" in the account team is limited to names that do not match ${what}.`;

const asked = (principal: Principal, action: Action, kind?: string, name?: string | readonly string[]) =>
  refusal(() => allow(principal, action, kind, name));

test('who lacks a scope is told which one, or asked for a credential', (t) => {
  for (const [principal, action, expected] of [
    [anonymous(), 'read', undefined],
    [anonymous(), 'sign-in', undefined],
    [anonymous(), 'account', credential(' with the scope "read"')],
    [anonymous(), 'any', credential('')],
    [anonymous(), 'write', credential(' with the scope "write"')],
    [token(), 'read', undefined],
    [token(), 'account', undefined],
    [token(), 'any', undefined],
    [token({}, []), 'any', undefined],
    [token({}, []), 'sign-in', undefined],
    [token({}, ['write']), 'account', ['ScopeMissing', 'This token lacks the scope "read".', { scope: 'read' }]],
    [token(), 'write', ['ScopeMissing', 'This token lacks the scope "write".', { scope: 'write' }]],
    [
      person(),
      'admin',
      [
        'ScopeMissing',
        'You do not have the right "admin" in the account team. Ask its administrators, or those of this server.',
        { scope: 'admin' },
      ],
    ],
  ] as const)
    t.deepEqual(asked(principal, action), expected as never, `${principal.kind} ${action}`);
  const advice = 'Authenticate with an API token, as Bearer or as Basic with user name "api".';
  t.deepEqual(
    refusal(() => {
      throw credentialMissing();
    }),
    ['Unauthorized', advice],
  );
  t.deepEqual(
    refusal(() => {
      throw credentialMissing('It ended.');
    }),
    ['Unauthorized', `It ended. ${advice}`],
  );
});

test('who is limited to names may use these alone, and is told which name is none of them', (t) => {
  const limited = token({ names: some });
  const byScope = new Map([
    ['read', undefined],
    ['write', some],
  ]);
  const mixed = token({ names: undefined, namesByScope: byScope }, ['read', 'write']);
  const other = { kind: 'package', name: 'other' };
  for (const [principal, action, kind, name, expected] of [
    [limited, 'read', undefined, undefined, undefined],
    [limited, 'read', 'package', undefined, undefined],
    [limited, 'read', 'package', 'contoso.core', undefined],
    [limited, 'read', 'package', ['other', 'lib'], undefined],
    [token(), 'read', 'package', 'other', undefined],
    [limited, 'read', 'package', 'other', [own('the package "other"'), other]],
    [limited, 'read', 'package', ['other', 'more'], [own('the package "other"'), other]],
    [limited, 'read', 'package', [], [own('any package'), { kind: 'package' }]],
    [limited, 'read', 'container', undefined, [own('any container'), { kind: 'container' }]],
    [
      limited,
      'read',
      'package',
      'x'.repeat(300),
      [own(`the package "${'x'.repeat(260)}"`), { kind: 'package', name: 'x'.repeat(260) }],
    ],
    [limited, 'any', 'package', 'other', [own('the package "other"'), other]],
    [person({ names: some }), 'read', 'package', 'other', [right('read', 'the package "other"'), other]],
    [person({ names: some }), 'any', 'package', 'other', [right('read', 'the package "other"'), other]],
    [token({ names: some, personId: 'p' }), 'read', 'package', 'other', [right('read', 'the package "other"'), other]],
    [mixed, 'read', 'package', 'other', undefined],
    [mixed, 'write', 'package', 'lib', undefined],
    [mixed, 'write', 'package', 'other', [right('write', 'the package "other"'), other]],
  ] as const) {
    const wanted = expected && ['NameDenied', ...expected];
    t.deepEqual(asked(principal, action, kind, name), wanted as never, `${action} ${kind} ${String(name)}`);
  }
  t.deepEqual(
    [
      ['read', 'other'],
      ['write', 'other'],
      ['write', 'lib'],
      ['admin', 'lib'],
    ].map(([scope, name]) => isAllowed(mixed, scope as Scope, 'package', name!)),
    [true, false, true, false],
  );
  t.is(forAction(mixed, 'write').names, some);
  t.is(forAction(mixed, 'any').names, undefined);
  const narrow = token({ names: some, namesByScope: new Map([['read', some]]) });
  for (const action of ['any', 'sign-in'] as const) t.is(forAction(narrow, action).names, some, action);
  t.is(forAction(limited, 'read'), limited);
  t.is(allowedAs(mixed, 'write').names, some);
  t.is(allowedAs(mixed, 'read', 'Only for all names.').names, undefined);
  t.deepEqual(
    refusal(() => allowedAs(mixed, 'write', 'Only for all names.')),
    ['NameDenied', 'Only for all names.'],
  );
  t.deepEqual(refusal(() => allowedAs(mixed, 'admin'))?.[0], 'ScopeMissing');
});

test('a principal gives no more than it has', (t) => {
  const within = { packages: ['Contoso.Core'] };
  t.deepEqual([coversPatterns(token(), null), coversPatterns(token(), within)], [true, true]);
  const limited = token({ names: some });
  t.deepEqual(
    [coversPatterns(limited, null), coversPatterns(limited, within), coversPatterns(limited, { packages: ['*'] })],
    [false, true, false],
  );
  t.is(
    code(() => allowToken(token(), ['admin', 'write'], null)),
    undefined,
    'it has all names',
  );
  t.is(
    code(() => allowToken(token(), ['operate'], null)),
    'ScopeMissing',
  );
  t.is(
    code(() => allowToken(token({}, ['operate']), ['operate'], null)),
    undefined,
  );
  t.is(
    code(() => allowToken(limited, ['read'], within)),
    undefined,
  );
  t.is(
    code(() => allowToken(limited, ['read', 'write'], within)),
    'ScopeMissing',
  );
  t.is(
    code(() => allowToken(limited, ['read'], null)),
    'NameDenied',
  );
  const narrow = new Map([
    ['read', some],
    ['write', new Names({ packages: ['Lib'] })],
  ]);
  const mixed = token({ names: some, namesByScope: narrow }, ['read', 'write']);
  t.is(
    code(() => allowToken(mixed, ['read'], within)),
    undefined,
  );
  t.is(
    code(() => allowToken(mixed, ['write'], within)),
    'NameDenied',
  );
  t.is(
    code(() => allowToken(mixed, ['write'], { packages: ['Lib'] })),
    undefined,
  );
  t.is(
    code(() => allowObject(token(), { scopes: ['admin'], patterns: null })),
    undefined,
  );
  t.is(
    code(() => allowObject(token(), { scopes: ['read', 'operate'], patterns: null })),
    'ScopeMissing',
  );
  t.is(
    code(() => allowObject(limited, { scopes: ['admin'], patterns: null })),
    'NameDenied',
  );
  t.is(
    code(() => allowObject(limited, { scopes: ['admin'], patterns: within })),
    undefined,
  );
});

test('what a token makes ends with it at the latest, and one that ends soon makes nothing that lasts', (t) => {
  const ending = token({ expiresAt: 86_400_000 });
  const ends = (wanted: number | null) => endOfMade(ending, wanted);
  t.deepEqual([ends(null), ends(5), ends(86_400_000)], [86_400_000, 5, 86_400_000]);
  const message = 'Your own token expires at 1970-01-02T00:00:00.000Z, so the new one cannot expire later.';
  t.deepEqual(
    refusal(() => ends(86_400_001)),
    ['Invalid', message, { errors: [{ field: 'expires_at', message }] }],
  );
  for (const principal of [token(), person({ expiresAt: 5 })])
    t.deepEqual([endOfMade(principal, null), endOfMade(principal, 7)], [null, 7]);
  t.is(
    refusal(() => allowLasting(token(), 'admin')),
    undefined,
  );
  t.is(
    refusal(() => allowLasting(person({ isShortLived: true }), 'admin')),
    undefined,
  );
  for (const [action, scope] of [
    ['admin', 'admin'],
    ['account', 'read'],
  ] as const)
    t.deepEqual(
      refusal(() => allowLasting(token({ isShortLived: true }), action)),
      ['ScopeMissing', 'This token ends soon, and what you make or change here would outlive it.', { scope }],
    );
});

test('all tokens of a person, and all that a rule gives, count as one requester', (t) => {
  const requesters = [
    person(),
    token({ personId: 'p' }),
    token({ personId: 'p', publisherId: 'r' }),
    token({ publisherId: 'r' }),
    token({ publisherId: null }),
  ].map(requesterOf);
  t.deepEqual(requesters, ['person:p', 'person:p', 'person:p', 'rule:r', 'token:t']);
  t.deepEqual(
    refusal(() => requesterOf(anonymous())),
    ['Unauthorized', 'Authenticate with an API token.'],
  );
});

test('scopes are a list of known words', (t) => {
  t.deepEqual(parseScopes([' write ', 'read', '', 'read']), ['read', 'write']);
  const all = 'read, write, delete, promote, admin, operate';
  t.deepEqual(
    refusal(() => parseScopes(['read', 'sudo'])),
    ['Invalid', `There is no scope "sudo"; there are ${all}.`],
  );
  for (const none of [[], ['', ' ']])
    t.deepEqual(
      refusal(() => parseScopes(none)),
      ['Invalid', `Name at least one scope of ${all}.`],
    );
  t.deepEqual([anonymous(), anonymous('mirrored'), token(), person()].map(readsHosted), [true, false, true, true]);
  t.deepEqual([token(), person(), anonymous(), undefined].map(tokenIdOf), ['t', undefined, undefined, undefined]);
});
