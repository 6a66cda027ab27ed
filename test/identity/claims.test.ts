import test from 'ava';
import type { IssuerKind } from '../../src/config/identity.ts';
import type { DomainError } from '../../src/runtime/errors.ts';
import { isForProject, mismatches, parseWanted, valuesIn } from '../../src/identity/claims.ts';
import { jobOf } from '../../src/identity/job.ts';

/** For each kind of issuer, the claims of which a rule needs one. */
const identifying: Record<IssuerKind, string[]> = {
  github: ['repository_id', 'repository_owner_id', 'enterprise_id'],
  gitlab: ['project_id', 'namespace_id'],
  azure: ['org_id', 'prj_id', 'def_id'],
  kubernetes: ['kubernetes.io/serviceaccount/uid', 'sub'],
  other: [],
};
const kinds = Object.keys(identifying) as IssuerKind[];

for (const kind of kinds) {
  test(`a rule for ${kind} names a claim that is never given to another project, with its whole value`, (t) => {
    for (const claim of identifying[kind]) {
      t.deepEqual(parseWanted({ [claim]: 7 }, kind), { [claim]: ['7'] });
      t.throws(() => parseWanted({ [claim]: '7*' }, kind), { name: 'Invalid', message: /is an ID/ });
      t.true(isForProject({ [claim]: ['7'] }, [], kind));
      const missed = { claim, wanted: ['7'], found: [] };
      t.false(isForProject({ [claim]: ['7'] }, [missed], kind));
      t.false(isForProject({ [claim]: ['7'], ref: ['a'] }, [{ ...missed, claim: 'ref' }, missed], kind));
      t.true(isForProject({ [claim]: ['7'], ref: ['a'] }, [{ ...missed, claim: 'ref' }], kind));
    }
    const others = kinds.flatMap((each) => identifying[each]).filter((each) => !identifying[kind].includes(each));
    for (const claim of others.filter((each) => each !== 'sub')) {
      if (kind === 'other') t.notThrows(() => parseWanted({ [claim]: '7' }, kind));
      else t.throws(() => parseWanted({ [claim]: '7' }, kind), { name: 'Invalid', message: /Add one of the claims/ });
      t.false(isForProject({ [claim]: ['7'] }, [], kind));
    }
  });
}

test('a rule names no claim that every token has, and no "sub" whose form depends on the issuer', (t) => {
  for (const claim of ['iss', 'aud', 'exp', 'nbf', 'iat', 'jti', '__proto__'])
    t.throws(() => parseWanted(JSON.parse(`{ "${claim}": "x" }`), 'other'), {
      name: 'Invalid',
      message: /cannot name the claim/,
    });
  for (const kind of ['github', 'gitlab', 'azure'] as const) {
    const id = identifying[kind][0]!;
    t.throws(() => parseWanted({ [id]: '7', sub: 'x' }, kind), { name: 'Invalid', message: /"sub"/ });
  }
  t.deepEqual(parseWanted({ sub: 'x' }, 'kubernetes'), { sub: ['x'] });
  t.deepEqual(parseWanted({ sub: 'x' }, 'other'), { sub: ['x'] });
});

test('an ID that is a number at its issuer is refused as another text, of which the message shows the beginning', (t) => {
  for (const kind of ['github', 'gitlab'] as const) {
    const id = identifying[kind][0]!;
    t.deepEqual(parseWanted({ [id]: ['7', '123456'] }, kind), { [id]: ['7', '123456'] });
    for (const value of ['team', '7x', 'x7', '-7', '1.5', ' 7'])
      t.throws(() => parseWanted({ [id]: value }, kind), { message: new RegExp(`"${value}" never matches`) }, value);
    const { message } = t.throws(() => parseWanted({ [id]: 'x'.repeat(200) }, kind));
    t.true(message.includes(`"${'x'.repeat(100)}" never`), message);
  }
  for (const kind of ['azure', 'kubernetes'] as const)
    t.notThrows(() => parseWanted({ [identifying[kind][0]!]: 'a-7' }, kind), kind);
});

const claims = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, each) => [`c${each}`, 'x']));
const values = (count: number) => ({ claim: Array.from({ length: count }, (_, each) => `v${each}`) });

test('the numbers and lengths of claims and values have bounds', (t) => {
  const invalid = { name: 'Invalid' };
  t.is(Object.keys(parseWanted(claims(20), 'other')).length, 20);
  t.throws(() => parseWanted(claims(21), 'other'), invalid);
  const none = t.throws<DomainError>(() => parseWanted({}, 'other'), invalid);
  t.deepEqual(none.detail, { errors: [{ field: 'claims', message: none.message }] });
  t.is(parseWanted(values(20), 'other')['claim']!.length, 20);
  t.throws(() => parseWanted(values(21), 'other'), invalid);
  t.throws(() => parseWanted(values(0), 'other'), invalid);
  t.notThrows(() => parseWanted({ ['n'.repeat(500)]: 'v'.repeat(500) }, 'other'));
  t.throws(() => parseWanted({ ['n'.repeat(501)]: 'v' }, 'other'), invalid);
  t.throws(() => parseWanted({ claim: 'v'.repeat(501) }, 'other'), invalid);
  t.throws(() => parseWanted({ '': 'v' }, 'other'), invalid);
  t.throws(() => parseWanted({ claim: '' }, 'other'), invalid);
  for (const all of ['*', '**'])
    t.throws(() => parseWanted({ claim: all }, 'other'), { message: /accepts every value/ });
  const some = ['*main', 'refs/*', 'a*b'];
  t.deepEqual(parseWanted({ claim: some }, 'other'), { claim: some });
});

test('a claim of a token is read by its name or its path, as texts', (t) => {
  const token = { 'a/b': 'flat', a: { b: 'deep', c: { d: 7 } }, list: ['x', true, null, { y: 1 }, 2], none: null };
  t.deepEqual(valuesIn(token, 'a/b'), ['flat']);
  t.deepEqual(valuesIn(token, 'a/c/d'), ['7']);
  t.deepEqual(valuesIn(token, 'list'), ['x', 'true', '2']);
  for (const name of ['a', 'a/c', 'a/none', 'none', 'none/a', 'toString', 'a/toString', 'list/length', 'a/b/length'])
    t.deepEqual(valuesIn(token, name), [], name);
  const many = Array.from({ length: 1001 }, (_, each) => each);
  t.is(valuesIn({ many }, 'many').length, 1000);
  t.is(valuesIn({ many }, 'many', Infinity).length, 1001);
});

const matches = async (value: string, found: string) => (await mismatches({ c: [value] }, { c: found })).length === 0;

test('a value matches as a whole; a star stands for any characters', async (t) => {
  for (const [value, found] of [
    ['main', 'main'],
    ['refs/*', 'refs/'],
    ['refs/*', 'refs/heads/main'],
    ['*main', 'main'],
    ['a*b*c', 'a-b-b-c'],
    ['*b*', 'abc'],
    ['aa*aa', 'aaaa'],
    ['a*b*b', 'abb'],
    ['a*b*b*c', 'a-bb-c'],
    ['refs/*', `refs/${'x'.repeat(995)}`],
  ] as const)
    t.true(await matches(value, found), `${value} ${found.slice(0, 20)}`);
  for (const [value, found] of [
    ['main', 'Main'],
    ['main', 'main2'],
    ['refs/*', 'x/refs/'],
    ['*main', 'main/'],
    ['aa*aa', 'aaa'],
    ['a*b*c', 'a-c-b'],
    ['a*b*b', 'a-b'],
    ['a*b*b*c', 'a-b-c'],
    ['refs/*', `refs/${'x'.repeat(996)}`],
  ] as const)
    t.false(await matches(value, found), `${value} ${found.slice(0, 20)}`);
  t.deepEqual(await mismatches({ c: ['a', 'b'], d: ['x'] }, { c: ['z', 'b'], d: 'y' }), [
    { claim: 'd', wanted: ['x'], found: ['y'] },
  ]);
});

test('the comparison of many long values pauses', async (t) => {
  const found = Array.from({ length: 1000 }, () => 'ab'.repeat(500));
  const patterns = Array.from({ length: 20 }, (_, each) => `*a*b*${each}`);
  let hasTurned = false;
  setImmediate(() => (hasTurned = true));
  const wanted = Object.fromEntries(Array.from({ length: 20 }, (_, each) => [`c${each}`, [...patterns]]));
  const missed = await mismatches(wanted, Object.fromEntries(Object.keys(wanted).map((claim) => [claim, found])));
  t.is(missed.length, 20);
  t.true(hasTurned);
});

const jobIn = (kind: IssuerKind, claimed: object) => {
  const issuer = { name: 'ci', issuer: 'https://ci.example', audience: 'x', kind };
  return jobOf(1, { issuer, claims: claimed } as never);
};

test('a job has the repository, the ref and the run that tokens of its kind of issuer name', (t) => {
  const named: [kind: IssuerKind, claims: object][] = [
    ['github', { repository: 'team/app', ref: 'main', run_id: 7 }],
    ['gitlab', { project_path: 'team/app', ref: 'main', pipeline_id: 7 }],
    ['azure', { rpo_uri: 'team/app', rpo_ref: 'main', run_id: 7 }],
    [
      'kubernetes',
      { 'kubernetes.io': { namespace: 'team/app', serviceaccount: { name: 'main' }, pod: { name: '7' } } },
    ],
    ['other', { repository: 'team/app', ref: 'main', run_id: 7 }],
  ];
  for (const [kind, claimed] of named) {
    const { id, ...job } = jobIn(kind, { ...claimed, sub: 'x'.repeat(501) });
    t.regex(id, /^[0-9a-f]{32}$/);
    const subject = 'x'.repeat(500);
    t.deepEqual(job, { issuer: 'ci', repository: 'team/app', ref: 'main', run: '7', subject }, kind);
  }
  t.like(jobIn('github', {}), { repository: null, ref: null, run: null, subject: null });
});

test('the tokens of one run are one job, and each other account, issuer, repository, ref or run is another one', (t) => {
  const issuer = { name: 'ci', issuer: 'https://ci.example', audience: 'x', kind: 'github' as IssuerKind };
  const claims = { repository: 'team/app', ref: 'refs/heads/main', run_id: '7', sub: 'repo:team/app' };
  const idOf = (more: object = {}, accountId = 1, address = issuer.issuer) =>
    jobOf(accountId, { issuer: { ...issuer, issuer: address }, claims: { ...claims, ...more } } as never).id;
  t.is(idOf({ sub: 'repo:team/app:environment:production' }), idOf(), 'a run has several subjects');
  const others = [
    idOf({}, 2),
    idOf({}, 1, 'https://other.example'),
    idOf({ repository: 'team/other' }),
    idOf({ ref: 'refs/heads/other' }),
    idOf({ run_id: '8' }),
    // Without a run, the subject is all that is known.
    idOf({ run_id: undefined }),
    idOf({ run_id: undefined, sub: 'repo:team/other' }),
  ];
  t.is(new Set([idOf(), ...others]).size, 8);
});
