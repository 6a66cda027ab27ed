import test, { type ExecutionContext } from 'ava';
import type { Row } from '../../src/database/database.ts';
import type { Exposable } from '../../src/exposure/exposable.ts';
import { exposedItem } from '../../src/exposure/exposed-item.ts';
import { Exposure } from '../../src/exposure/exposure.ts';
import type { KnownBad } from '../../src/known-bad/known-bad.ts';
import { versionTest } from '../../src/nuget/format/range.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { PullList } from '../../src/usage/pull-list.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { insertTables, numberedDigest, pulledContent, pulledId, pulledOnce } from '../support/pulled.ts';

// Who pulled what somebody asks about: on rows of pulls, with protocols that say what names, tags and IDs mean.

const day = 86_400_000;
const today = Date.UTC(2026, 10, 25);

/** Content that was used last on a day before today. */
function content(id: string, accountId: number, name: string, reference: string, days = 0) {
  return pulledContent(id, name, reference, { account_id: accountId, last_day: today - days * day });
}

function used(contentId: string, userId: string, firstAt: number, more: Row = {}) {
  return pulledOnce(contentId, userId, today + firstAt, { day: today, ...more });
}

const contents = [
  content('a1', 1, 'lib', '1.0.0'),
  content('a2', 1, 'lib', '2.0.0'),
  content('b1', 2, 'lib', '1.0.0'),
  content('b2', 2, 'other', '1.0.0'),
  content('c1', 1, 'team/app', numberedDigest(1)),
  content('c2', 1, 'team/app', numberedDigest(2)),
  content('c3', 2, 'team/tool', numberedDigest(1)),
  content('c4', 2, 'up.test/lib/os', numberedDigest(4)),
];

type Wanted = Partial<Omit<ConstructorParameters<typeof Exposure>[0], 'protocols'>> & {
  packages?: Partial<Exposable>;
  images?: Partial<Exposable>;
};

async function open(
  t: ExecutionContext,
  { packages, images, ...changes }: Wanted = {},
  rows: Record<string, Row[]> = {},
) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    await insertTables(tx, { pull_contents: contents, ...rows });
  });
  const exposure = new Exposure({
    pulls: new PullList(database),
    flush: () => Promise.resolve(),
    knownBad: { named: () => Promise.resolve([]) } as unknown as KnownBad,
    isAffected: () => true,
    readRange: versionTest,
    protocols: [
      { kind: 'package', usedName: (_, name) => Promise.resolve(name.toLowerCase()), ...packages },
      { kind: 'container', digestsOfTag: () => Promise.resolve([]), ...images },
    ],
    accountIds: () => Promise.resolve([1, 2]),
    ownerOf: (accountId) => Promise.resolve(accountId),
    ...changes,
  });
  const idsOf = async (what: string, accountId?: number) => {
    const { contents: found, isComplete } = await exposure.find(what, accountId);
    return [...found.map(({ id }) => id.replace(/^0+/, '')), ...(isComplete ? [] : ['and more'])].join(' ');
  };
  return { exposure, idsOf };
}

test('a question by name, version, range, tag or digest finds pulled contents in the order of their IDs', async (t) => {
  const { exposure, idsOf } = await open(t, {
    images: {
      digestsOfTag: (accountId, _, tag) =>
        Promise.resolve(tag === 'v1' ? [numberedDigest(2), numberedDigest(accountId)] : []),
    },
  });
  const found = await exposure.find(' Lib@2.0 ', 1);
  t.deepEqual(found, {
    contents: [{ id: pulledId('a2'), accountId: 1, kind: 'package', name: 'lib', reference: '2.0.0', lastDay: today }],
    isComplete: true,
  });
  for (const [what, all, ofFirst, ofSecond] of [
    ['Lib@*', 'a1 a2 b1', 'a1 a2', 'b1'],
    ['Lib@1.0', 'a1 b1', 'a1', 'b1'],
    ['Lib@(1.0,3.0)', 'a2', 'a2', ''],
    ['LIB@[1.0, 2.0]', 'a1 a2 b1', 'a1 a2', 'b1'],
    ['None@*', '', '', ''],
    ['team/app:v1', 'c1 c2', 'c1 c2', ''],
    ['team/app:v2', '', '', ''],
    ['team/tool:v1', 'c3', '', ''],
    [numberedDigest(1), 'c1 c3', 'c1', 'c3'],
    [numberedDigest(9), '', '', ''],
    [`team/app@${numberedDigest(1)}`, 'c1', 'c1', ''],
    [`team/tool@${numberedDigest(2)}`, '', '', ''],
  ] as const)
    t.deepEqual([await idsOf(what), await idsOf(what, 1), await idsOf(what, 2)], [all, ofFirst, ofSecond], what);
});

test('what cannot be asked is refused, and an ID that nobody knows is not found', async (t) => {
  const { idsOf } = await open(t);
  const expected =
    'expected the ID of an advisory or of an entry of a list, Name@version, Name@[1.0,2.0), Name@*, name:tag, or a digest.';
  const detail = { parameter: 'what' };
  for (const [what, message] of [
    ['a b', `a b: ${expected}`],
    ['', `: ${expected}`],
    ['@1.0', `@1.0: ${expected}`],
    ['@a:b', `@a:b: ${expected}`],
    ['lib@', `lib@: ${expected}`],
    [':tag', `:tag: ${expected}`],
    ['name:', `name:: ${expected}`],
    ['i'.repeat(101), `${'i'.repeat(100)}: ${expected}`],
    ['Lib@x', 'x: expected a version such as 1.2.3, a range such as [1.0,2.0), or *.'],
    ['Lib@[1', '[1: expected a version such as 1.2.3, a range such as [1.0,2.0), or *.'],
    [
      `Lib@${'x'.repeat(101)}`,
      `${'x'.repeat(100)}: expected a version such as 1.2.3, a range such as [1.0,2.0), or *.`,
    ],
  ] as const) {
    const error = await t.throwsAsync<DomainError>(idsOf(what), { name: 'Invalid', message }, what);
    t.deepEqual(error.detail, detail);
  }
  await t.throwsAsync(idsOf('i'.repeat(100)), {
    name: 'NotFound',
    message: `${'i'.repeat(100)}: no advisory that this server knows and no entry of a list has this ID. Ask for the package or image, such as Name@1.2.3 or name:tag.`,
  });
});

test('a name means what it is to each account: under the name of its owner', async (t) => {
  const asked: string[] = [];
  const { idsOf } = await open(t, {
    ownerOf: (accountId, kind, name) => {
      asked.push(`${accountId} ${kind} ${name}`);
      return Promise.resolve(accountId + 10);
    },
    packages: { usedName: (owner, name) => Promise.resolve(owner === 12 ? 'other' : name.toLowerCase()) },
    images: { usedName: undefined as never, digestsOfTag: (owner) => Promise.resolve([numberedDigest(owner - 10)]) },
  });
  t.is(await idsOf('LIB@1.0.0'), 'a1 b1 b2');
  t.is(await idsOf('LIB@1.0.0', 2), 'b2');
  t.is(await idsOf('team/app:x', 2), '');
  t.is(await idsOf('team/app:x', 1), 'c1');
  t.deepEqual(asked, [
    '1 package LIB',
    '2 package LIB',
    '2 package LIB',
    '2 container team/app',
    '1 container team/app',
  ]);
});

test('an ID means what advisories of each account and entries of lists say', async (t) => {
  const asked: string[] = [];
  const entry = { list: 'own', id: 'X-1', reason: '' };
  const named: Record<string, { kind: string; key: string; entry: typeof entry }[]> = {
    'X-1': [{ kind: 'package', key: 'lib', entry }],
    'X-2': [{ kind: 'digest', key: numberedDigest(1), entry }],
    'X-3': [{ kind: 'image', key: 'team/app', entry }],
    'X-4': [{ kind: 'pattern', key: '*lib/*', entry }],
    'X-5': [
      { kind: 'pattern', key: 'team/*', entry },
      { kind: 'package', key: 'other', entry },
    ],
    'X-6': [{ kind: 'package', key: 'none', entry }],
  };
  const { idsOf } = await open(t, {
    knownBad: { named: (id: string) => Promise.resolve(named[id] ?? []) } as unknown as KnownBad,
    isAffected: (of, version) => of === entry && version !== '2.0.0',
    packages: {
      advisories: {
        of: () => Promise.resolve([]),
        named: (accountId, id) => {
          asked.push(`${accountId} ${id}`);
          const advisory = { id, severity: 1, affects: (version: string) => version === '1.0.0' };
          const isTheirs = id === 'CVE-1' || (id === 'CVE-2' && accountId === 2);
          return Promise.resolve(
            isTheirs
              ? [
                  { name: 'lib', advisory },
                  { name: 'other', advisory },
                ]
              : [],
          );
        },
      },
    },
    images: { spellings: (name) => [name, name.replace('up.test/', '')] },
  });
  for (const [what, all, ofFirst] of [
    ['CVE-1', 'a1 b1 b2', 'a1'],
    ['X-1', 'a1 b1', 'a1'],
    ['X-2', 'c1 c3', 'c1'],
    ['X-3', 'c1 c2', 'c1 c2'],
    ['X-4', 'c4', ''],
    ['X-5', 'b2 c1 c2 c3', 'c1 c2'],
    ['X-6', '', ''],
  ] as const)
    t.deepEqual([await idsOf(what), await idsOf(what, 1)], [all, ofFirst], what);
  t.deepEqual(asked.slice(0, 3), ['1 CVE-1', '2 CVE-1', '1 CVE-1']);
  t.is(await idsOf('CVE-2'), 'b1 b2', 'only pulls of the account whose advisory it is');
  await t.throwsAsync(idsOf('CVE-2', 1), { name: 'NotFound' });
});

/** On no rows at all. */
const only = (protocols: readonly Exposable[]) => {
  const parts = {
    pulls: new PullList(undefined as never),
    flush: () => Promise.reject(new Error('away')),
    knownBad: {
      named: () =>
        Promise.resolve([
          { kind: 'image', key: 'a' },
          { kind: 'digest', key: 'a' },
          { kind: 'package', key: 'a' },
        ]),
    } as unknown as KnownBad,
    isAffected: () => true,
    readRange: versionTest,
    protocols,
    accountIds: () => Promise.resolve([1]),
    ownerOf: () => Promise.resolve(1),
  };
  return new Exposure(parts);
};

test('where no protocol has such names, nothing is found', async (t) => {
  const { exposure } = await open(t);
  const none = { contents: [], isComplete: true };
  for (const what of ['Lib@1.0', 'team/app:v1', numberedDigest(1), 'X-1'])
    t.deepEqual(await only([]).find(what, 1), none, what);
  t.is((await exposure.find('Lib@1.0', 1)).contents.length, 1);
});

const named = (key: string) => ({ kind: 'package', key, entry: { list: 'own', id: 'X-1', reason: key } });

test('an answer is about 2,000 contents at most', async (t) => {
  const many = Array.from({ length: 2001 }, (_, at) => content(`m${at}`, 3, 'many', `1.0.${at}`));
  const { exposure, idsOf } = await open(
    t,
    {
      knownBad: { named: () => Promise.resolve([named('many'), named('other')]) } as unknown as KnownBad,
      isAffected: ({ reason }, version) => reason === 'other' || version !== '1.0.0',
    },
    { pull_contents: [...many, content('b2', 2, 'other', '1.0.0')] },
  );
  t.true((await idsOf('X-1')).endsWith(' and more'), 'one more by the second name');
  t.false((await idsOf('X-1', 3)).endsWith(' and more'));
  const { contents: found, isComplete } = await exposure.find('many@*', 3);
  t.deepEqual([found.length, isComplete], [2000, false]);
  const fewer = await exposure.find('many@[1.0.1,)', 3);
  t.deepEqual([fewer.contents.length, fewer.isComplete], [2000, true]);
  t.deepEqual(
    fewer.contents.map(({ id }) => id),
    fewer.contents.map(({ id }) => id).toSorted((one, other) => (one < other ? -1 : 1)),
  );
});

test('what this process has counted is written first, and a failure of that is no failure of the question', async (t) => {
  const order: string[] = [];
  const { idsOf } = await open(t, {
    flush: async () => {
      await new Promise(setImmediate);
      order.push('written');
      throw new Error('away');
    },
    ownerOf: (accountId) => {
      order.push('asked');
      return Promise.resolve(accountId);
    },
  });
  t.is(await idsOf('Lib@1.0', 1), 'a1');
  t.deepEqual(order, ['written', 'asked']);
});

test('users of contents are told with what they pushed after their pull', async (t) => {
  const facts = {
    kind: 'job',
    name: 'main',
    ruleId: 'r',
    person: null,
    job: { id: 'j', issuer: 'github', repository: 'team/app', ref: 'main', run: '7' },
  };
  const plain = { kind: 'token', name: 'ci', ruleId: null, person: 'ann', job: null };
  const pushes = Array.from({ length: 11 }, (_, at) =>
    used(`p${String(at).padStart(2, '0')}`, 'u1', 100 + at, { act: 'push' }),
  );
  const { exposure } = await open(
    t,
    {},
    {
      pull_contents: [
        ...contents,
        content('old', 1, 'lib', '0.9.0', 3),
        ...pushes.map((_, at) => content(`p${String(at).padStart(2, '0')}`, 1, 'team/app', numberedDigest(20 + at))),
        content('q1', 1, 'team/app', numberedDigest(40)),
        content('q2', 1, 'app', '1.0.0'),
      ],
      pull_users: [
        { id: 'u1', account_id: 1, facts: JSON.stringify(facts), last_day: today },
        { id: 'u2', account_id: 1, facts: JSON.stringify(plain), last_day: today },
      ],
      pulls: [
        used('a1', 'u1', 50, { count: 2, last_at: today + 120 }),
        used('a1', 'u2', 60),
        used('a2', 'u1', 105),
        used('a2', 'u3', 70),
        used('old', 'u2', 10 - 3 * day, { day: today - 3 * day }),
        ...pushes,
        used('q1', 'u2', 59, { act: 'push' }),
        used('q2', 'u2', 60, { act: 'push' }),
      ],
    },
  );
  const found = await exposure.find('lib@*', 1);
  t.is(found.contents.length, 3);
  const users = await exposure.users(found, today, 10);
  const [lib1, lib2] = ['a1', 'a2'].map((id) => found.contents.find((each) => each.id === pulledId(id))!);
  const pushed = (from: number) =>
    Array.from({ length: 11 - from }, (_, at) => 10 - at).map((at) => ({
      kind: 'container',
      name: 'team/app',
      reference: numberedDigest(20 + at),
      at: today + 100 + at,
    }));
  t.deepEqual(users, [
    {
      contentId: pulledId('a1'),
      userId: 'u1',
      count: 2,
      firstAt: today + 50,
      lastAt: today + 120,
      content: lib1!,
      user: { id: 'u1', ...facts } as never,
      pushes: pushed(1),
    },
    {
      contentId: pulledId('a1'),
      userId: 'u2',
      count: 1,
      firstAt: today + 60,
      lastAt: today + 60,
      content: lib1!,
      user: { id: 'u2', ...plain } as never,
      pushes: [{ kind: 'package', name: 'app', reference: '1.0.0', at: today + 60 }],
    },
    {
      contentId: pulledId('a2'),
      userId: 'u1',
      count: 1,
      firstAt: today + 105,
      lastAt: today + 105,
      content: lib2!,
      user: { id: 'u1', ...facts } as never,
      pushes: pushed(5),
    },
    {
      contentId: pulledId('a2'),
      userId: 'u3',
      count: 1,
      firstAt: today + 70,
      lastAt: today + 70,
      content: lib2!,
      user: undefined,
      pushes: [],
    },
  ]);
  const pairs = async (...given: [since: number, limit: number, after?: readonly [string, string]]) =>
    (await exposure.users(found, ...given)).map(({ contentId, userId }) => `${contentId.replace(/^0+/, '')} ${userId}`);
  t.deepEqual(await pairs(today, 2), ['a1 u1', 'a1 u2']);
  t.deepEqual(await pairs(today, 2, [pulledId('a1'), 'u2']), ['a2 u1', 'a2 u3']);
  t.deepEqual(await pairs(today - 3 * day, 9), ['a1 u1', 'a1 u2', 'a2 u1', 'a2 u3', 'old u2']);
  t.deepEqual(
    await pairs(today - 3 * day + 9, 9),
    ['a1 u1', 'a1 u2', 'a2 u1', 'a2 u3', 'old u2'],
    'a day counts as a whole',
  );
  t.deepEqual(await pairs(today - 2 * day, 9), ['a1 u1', 'a1 u2', 'a2 u1', 'a2 u3']);
  t.deepEqual(await pairs(today + day, 9), []);

  t.deepEqual(exposedItem(users[1]!, 'default') as unknown, {
    kind: 'package',
    name: 'lib',
    reference: '1.0.0',
    account: 'default',
    user: { kind: 'token', id: 'u2', name: 'ci', rule_id: null, person: 'ann' },
    job: null,
    count: 1,
    first_at: '2026-11-25T00:00:00.060Z',
    last_at: '2026-11-25T00:00:00.060Z',
    pushed: [{ kind: 'package', name: 'app', reference: '1.0.0', at: '2026-11-25T00:00:00.060Z' }],
  });
  t.like(exposedItem({ ...users[0]!, pushes: pushed(10) }, null), {
    account: null,
    user: { kind: 'job', id: 'u1', name: 'main', rule_id: 'r', person: null },
    job: { issuer: 'github', repository: 'team/app', ref: 'main', run: '7' },
    pushed: [{ kind: 'image', name: 'team/app', reference: numberedDigest(30), at: '2026-11-25T00:00:00.110Z' }],
  });
  t.like(exposedItem({ ...users[3]!, content: { ...lib2!, kind: 'else' } }, 'a'), {
    kind: 'else',
    user: null,
    job: null,
    pushed: [],
  });
});
