import test from 'ava';
import type { KnownPerson } from '../../src/accounts/known-people.ts';
import { Names } from '../../src/accounts/names.ts';
import { everywhere } from '../../src/accounts/people.ts';
import { peopleOperations } from '../../src/api/account/people.ts';
import type { OperationCall } from '../../src/api/framework/operation.ts';

// Which people an account sees and changes. test/identity/people.test.ts has requests of people who sign in.

const day = 86_400_000;
const by = { kind: 'token', id: 'id', name: 'an operator' } as const;
const disabled = (at: number) => ({ by, at, reason: `reason ${at}` });

const known = (id: string, name: string, more: Partial<KnownPerson> = {}): KnownPerson => ({
  id,
  person: { issuer: 'https://provider.example', subject: `sub-${id}`, name, claims: [] },
  accounts: ['alpha', 'beta'],
  knownIn: ['alpha'],
  signedInAt: 7000,
  ...more,
});

const ann = known('1', 'Ann Ash');
const bob = known('2', 'Bob', { knownIn: ['beta'] });
const eve = known('3', 'Eve', {
  person: {
    ...ann.person,
    name: 'Eve',
    disabled: { alpha: disabled(1), beta: disabled(2), [everywhere]: disabled(3) },
  },
});
const all = [ann, bob, eve];

function open({
  operates = false,
  concerns = false,
  limits = { scopes: null as string[] | null, longest: null as number | null },
} = {}) {
  const asked: unknown[] = [];
  const noted =
    (name: string, answer?: unknown) =>
    (...given: unknown[]) => {
      asked.push([name, ...given]);
      return Promise.resolve(answer);
    };
  const operations = peopleOperations(
    {
      get: noted('get', eve),
      list: (limit: number, after = '') => Promise.resolve(all.filter(({ id }) => id > after).slice(0, limit)),
      concerns: ({ knownIn }: KnownPerson, account: string | undefined) =>
        account === undefined || knownIn.includes(account),
      operates: noted('operates', operates),
      disable: noted('disable', ann),
      enable: noted('enable', ann),
    } as never,
    { of: () => Promise.resolve(limits), concernOperate: noted('concern', concerns), put: noted('put') } as never,
  );
  const run = async (id: string, call: object = {}, principal: object = {}): Promise<Record<string, any>> => {
    const found = operations.find((each) => each.id === id)!;
    const { query: asking, ...others } = { query: {}, ...call };
    const scopes = new Set(['read', 'admin']);
    return found.run({
      principal: { kind: 'token', accountId: 7, accountName: 'alpha', scopes, personId: null, ...principal },
      params: { id: '3' },
      query: found.query?.parse(asking),
      ...others,
    } as unknown as OperationCall<never, never>) as never;
  };
  return { run, asked };
}

const operator = { scopes: new Set(['read', 'admin', 'operate']) };
const alpha = { id: 7, name: 'alpha' };
const whole = { layer: 'all' };

test('an account sees its people, and only what concerns it', async (t) => {
  const { run, asked } = open();
  const shown = {
    id: '3',
    name: 'Eve',
    issuer: 'https://provider.example',
    subject: 'sub-1',
    signed_in_at: '1970-01-01T00:00:07.000Z',
  };
  const own = { account: 'alpha', by, at: '1970-01-01T00:00:00.001Z', reason: 'reason 1' };
  const always = { account: null, by: null, at: '1970-01-01T00:00:00.003Z', reason: 'reason 3' };
  t.deepEqual(await run('getPerson'), { ...shown, accounts: ['alpha'], disabled: [own, always] });
  t.deepEqual(await run('getPerson', { query: whole }, operator), {
    ...shown,
    accounts: ['alpha', 'beta'],
    disabled: [own, { ...own, account: 'beta', at: '1970-01-01T00:00:00.002Z', reason: 'reason 2' }, { ...always, by }],
  });
  t.deepEqual(asked, [
    ['get', '3', 'alpha'],
    ['get', '3', undefined],
  ]);

  const ids = async (query: object, principal?: object) =>
    ((await run('listPeople', { query }, principal))['items'] as { id: string }[]).map(({ id }) => id);
  t.deepEqual(await ids({}), ['1', '3']);
  t.deepEqual(await ids(whole, operator), ['1', '2', '3']);
  t.deepEqual(await ids({ q: 'ASH' }), ['1'], 'the name');
  t.deepEqual(await ids({ ...whole, q: 'sub-2' }, operator), ['2'], 'the subject');
  t.deepEqual(await ids({ q: 'bob' }), []);
  const first = await run('listPeople', { query: { limit: '1', total: '1' } });
  t.deepEqual([first['total'], first['items'].length], [{ count: 2 }, 1]);
  const cursor = first['next_cursor'] as string;
  t.deepEqual(await ids({ cursor }), ['3']);
  await t.throwsAsync(ids({ ...whole, cursor }, operator), { name: 'Invalid' }, 'of another list');
});

test('people are seen with the scope of their list, without name patterns', async (t) => {
  const { run } = open();
  for (const id of ['listPeople', 'getPerson', 'disablePerson', 'enablePerson']) {
    const body = { reason: 'x' };
    await t.throwsAsync(run(id, { query: whole, body }), { name: 'ScopeMissing', message: /"operate"/ }, id);
    await t.throwsAsync(
      run(id, { body }, { scopes: new Set(['read']) }),
      { name: 'ScopeMissing', message: /"admin"/ },
      id,
    );
    const names = new Names({ packages: ['a'] });
    await t.throwsAsync(run(id, { body }, { names }), { name: 'NameDenied', message: /cannot use people/ }, id);
  }
});

test('a person is disabled in the account or everywhere, and who operates only by who does, too', async (t) => {
  const body = { reason: 'left' };
  const { run, asked } = open();
  t.is((await run('disablePerson', { body }))['id'], '1');
  t.deepEqual((await run('disablePerson', { body, query: whole }, operator))['accounts'], ['alpha', 'beta']);
  t.deepEqual((await run('enablePerson'))['accounts'], ['alpha']);
  t.is((await run('enablePerson', { query: whole }, operator))['id'], '1');
  t.deepEqual(asked, [
    ['get', '3', 'alpha'],
    ['operates', eve, 'alpha'],
    ['disable', '3', alpha, 'left'],
    ['get', '3', undefined],
    ['disable', '3', undefined, 'left'],
    ['get', '3', 'alpha'],
    ['operates', eve, 'alpha'],
    ['enable', '3', alpha],
    ['get', '3', undefined],
    ['enable', '3', undefined],
  ]);
  const of = open({ operates: true });
  for (const id of ['disablePerson', 'enablePerson']) {
    await t.throwsAsync(of.run(id, { body }), { name: 'ScopeMissing', message: /"operate"/ });
    await t.notThrowsAsync(of.run(id, { body }, operator));
  }
});

test('limits of personal tokens are in days, and need the scope operate where a token has it', async (t) => {
  t.deepEqual(await open().run('getPersonalTokenLimits'), { scopes: null, longest_days: null });
  const limits = { scopes: ['read'], longest: 3 * day };
  const { run, asked } = open({ limits });
  const shown = { scopes: ['read'], longest_days: 3 };
  t.deepEqual(await run('getPersonalTokenLimits'), shown);
  t.deepEqual(await run('putPersonalTokenLimits', { body: { scopes: ['read'], longest_days: 2 } }), shown);
  await run('putPersonalTokenLimits', { body: { scopes: null, longest_days: null } });
  t.deepEqual(asked, [
    ['concern', alpha],
    ['put', alpha, { scopes: ['read'], longest: 2 * day }],
    ['concern', alpha],
    ['put', alpha, { scopes: null, longest: null }],
  ]);
  const of = open({ concerns: true });
  const body = { scopes: null, longest_days: null };
  await t.throwsAsync(of.run('putPersonalTokenLimits', { body }), { name: 'ScopeMissing', message: /"operate"/ });
  await t.notThrowsAsync(of.run('putPersonalTokenLimits', { body }, operator));
});
