import test from 'ava';
import {
  checkGrant,
  grantOfRow,
  patternCount,
  rowOfGrant,
  verbs,
  type Grant,
  type NewGrant,
} from '../../src/accounts/grant-rows.ts';
import { DomainError } from '../../src/runtime/errors.ts';

// What a grant may be. test/identity/grants.test.ts has the requests.

const own = 'https://provider.example';
const given = { subject: { kind: 'person', id: 'ann' }, verbs: ['read'] };
const check = (more: Partial<NewGrant> = {}, issuer: string | undefined = own) =>
  checkGrant({ ...given, ...more }, { issuer, account: 'team' });

test('people and groups are those of an issuer, by default the one that people sign in with', (t) => {
  const checked = { verbs: ['read'], patterns: null };
  t.deepEqual(check(), { subject: { kind: 'person', issuer: own, id: 'ann' }, ...checked } as never);
  for (const issuer of ['', '  ', null, undefined])
    t.is(check({ subject: { kind: 'group', issuer, id: 'dev' } }).subject.issuer, own);
  const other = { kind: 'group', issuer: ' https://other.example ', id: ' dev ' };
  t.deepEqual(check({ subject: other }).subject, { kind: 'group', issuer: 'https://other.example', id: 'dev' });
  t.is(check({ subject: { kind: 'token', issuer: 'https://other.example', id: 'id' } }).subject.issuer, null);
  const longest = 'x'.repeat(255);
  t.deepEqual(check({ subject: { kind: 'person', issuer: longest, id: longest } }).subject, {
    kind: 'person',
    issuer: longest,
    id: longest,
  });
  const shared = { subject: { kind: 'account', id: 'other' }, patterns: { packages: ['A.*'] } };
  t.deepEqual(check(shared), {
    subject: { kind: 'account', issuer: null, id: 'other' },
    verbs: ['read'],
    patterns: { packages: ['A.*'] },
  } as never);
  t.deepEqual(check({ verbs: ['admin', 'read'] }).verbs, ['read', 'admin']);
  t.notThrows(() => check({ patterns: { packages: ['A'] } }));
});

test('a grant can give all but what concerns all accounts', (t) => {
  t.deepEqual(verbs, ['read', 'write', 'delete', 'promote', 'admin']);
});

test('a wrong grant is refused with the field that is wrong', (t) => {
  const long = 'x'.repeat(256);
  const account = { kind: 'account', id: 'other' };
  const cases: [more: Partial<NewGrant>, field: string, message: RegExp][] = [
    [
      { subject: { kind: 'robot', id: 'x' } },
      'subject.kind',
      /^A grant is for one of person, group, token, account\.$/,
    ],
    [{ subject: { kind: 'person', id: ' ' } }, 'subject.id', /has 1 to 255 characters/],
    [{ subject: { kind: 'person', id: long } }, 'subject.id', /has 1 to 255 characters/],
    [{ subject: { kind: 'person', issuer: long, id: 'x' } }, 'subject.issuer', /at most 255 characters/],
    [{ verbs: ['operate'] }, 'verbs', /cannot give "operate"/],
    [{ subject: { kind: 'account', id: 'team' } }, 'subject.id', /cannot share names with itself/],
    [{ subject: account }, 'verbs', /gives only "read", and names packages or images/],
    [{ subject: account, verbs: ['read', 'write'], patterns: { packages: ['A'] } }, 'verbs', /gives only "read"/],
    [{ verbs: ['admin'], patterns: { packages: ['A'] } }, 'verbs', /give it without packages and images/],
  ];
  for (const [more, field, message] of cases) {
    const error = t.throws<DomainError>(() => check(more), { name: 'Invalid', message });
    t.deepEqual(error.detail, { errors: [{ field, message: error.message }] });
  }
  for (const kind of ['person', 'group']) {
    const error = t.throws<DomainError>(() =>
      checkGrant(
        { ...given, subject: { kind, id: 'x' } },
        {
          issuer: undefined,
          account: 'team',
        },
      ),
    );
    t.is(error.message, `Name the issuer of the ${kind}: the setting signIn.oidc.issuer has none.`);
    t.like(error.detail, { errors: [{ field: 'subject.issuer' }] });
  }
  t.notThrows(() =>
    checkGrant({ ...given, subject: { kind: 'token', id: 'x' } }, { issuer: undefined, account: 'team' }),
  );
});

test('a row has all of a grant', (t) => {
  const grant: Grant = {
    id: 'id',
    accountId: 7,
    subject: { kind: 'group', issuer: own, id: 'dev' },
    verbs: ['read', 'write'],
    patterns: { packages: ['A', 'B.*'], containers: ['c'] },
    createdBy: { kind: 'token', id: 't', name: 'ci' },
    createdAt: 1,
    acceptedAt: 2,
  };
  const row = {
    id: 'id',
    account_id: 7,
    subject_kind: 'group',
    issuer: own,
    subject_id: 'dev',
    verbs: 'read,write',
    patterns: '{"packages":["A","B.*"],"containers":["c"]}',
    created_by: '{"kind":"token","id":"t","name":"ci"}',
    created_at: 1,
    accepted_at: 2,
  } as const;
  t.deepEqual(rowOfGrant(grant), row);
  t.deepEqual(grantOfRow(row), grant);
  t.is(patternCount(grant), 3);
  const all = { ...grant, patterns: null };
  t.is(rowOfGrant(all).patterns, null);
  t.deepEqual(grantOfRow({ ...row, patterns: null }), all);
  t.is(patternCount(all), 0);
});
