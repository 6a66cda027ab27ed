import test, { type ExecutionContext } from 'ava';
import type { Row } from '../../src/database/database.ts';
import type { Exposable } from '../../src/exposure/exposable.ts';
import { NewlyKnown } from '../../src/exposure/newly-known.ts';
import type { KnownAdvisory } from '../../src/mirror/policy/admission.ts';
import type { ListedNames } from '../../src/policy/listed-names.ts';
import { PullList } from '../../src/usage/pull-list.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { insertTables, pulledContent, pulledOnce } from '../support/pulled.ts';

// What is told once of content that was pulled before: advisories, and entries of lists.

const day = 86_400_000;
const today = Date.UTC(2026, 10, 25);
const { signal } = new AbortController();

function content(id: string, accountId: number, name: string, reference: string, more: Row = {}): Row {
  return pulledContent(id, name, reference, { account_id: accountId, last_day: today, ...more });
}

const pull = (id: string, user: string): Row => pulledOnce(id, user, 0, { day: today });

function advisory(id: string, severity: number, ...versions: string[]): KnownAdvisory {
  return { id, severity, affects: (version) => versions.includes(version) };
}

async function open(t: ExecutionContext, rows: Record<string, Row[]>) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    await insertTables(tx, rows);
  });
  const state = {
    now: today + 1,
    advisories: {} as Record<string, KnownAdvisory[]>,
    listed: {} as Record<string, { id: string; list: string }[]>,
    asked: [] as string[],
  };
  const protocols: Exposable[] = [
    {
      kind: 'package',
      advisories: {
        of: async (accountId, name) => {
          state.asked.push(`${accountId} ${name}`);
          return state.advisories[`${accountId} ${name}`] ?? [];
        },
        named: () => Promise.resolve([]),
      },
    },
    { kind: 'container', spellings: (name) => [name, `other/${name}`] },
  ];
  const listed = {
    of: async ({ kind, name, shown }: { kind: string; name: string; shown: readonly string[] }) => {
      state.asked.push(`list ${kind} ${name} as ${shown.join(' ')}`);
      if (Object.keys(state.listed).length === 0) return undefined;
      return {
        layers: [],
        entriesOf: async (references: readonly string[]) => {
          state.asked.push(references.join(' '));
          return (reference: string) => state.listed[`${name} ${reference}`] ?? [];
        },
      };
    },
  } as unknown as ListedNames;
  const newlyKnown = new NewlyKnown({
    database,
    pulls: new PullList(database),
    listed,
    protocols,
    now: () => state.now,
  });
  return {
    database,
    state,
    compare: async () => Object.values(await newlyKnown.compare(signal)).join(' '),
    newlyKnown,
    noted: async () =>
      (
        await database.select<{ id: string; advisory: string; at: number }>(
          'SELECT content_id AS id, advisory, found_at AS at FROM exposures ORDER BY content_id, advisory',
        )
      ).map(({ id, advisory: what, at }) => `${id.replace(/^0+/, '')} ${what} ${at - today}`),
    events: async () =>
      (
        await database.select<{ details: string }>(
          'SELECT type, time, account_id AS account, subject_kind AS kind, subject_name AS name, details FROM events ORDER BY id',
        )
      ).map(({ details, ...each }) => ({ ...each, details: JSON.parse(details) as object })),
  };
}

test('a warning of content that was compared before is told once, with who used it last', async (t) => {
  const { state, compare, noted, events } = await open(t, {
    pull_contents: [
      content('a1', 1, 'lib', '1.0', { last_day: today - 2 * day }),
      content('a2', 1, 'lib', '2.0', { last_day: today - day }),
      content('a3', 1, 'lib', '3.0'),
      content('b1', 2, 'lib', '1.0'),
      content('c1', 1, 'team/app', 'sha256:c'),
    ],
    pulls: [pull('a1', 'u1'), pull('a1', 'u2'), pull('a2', 'u1'), pull('a3', 'u3'), pull('c1', 'u4')],
  });
  t.is(await compare(), '5 0', 'nothing is known');
  t.deepEqual([await noted(), await events()], [[], []]);
  t.deepEqual(state.asked, [
    'list image team/app as team/app other/team/app',
    '1 lib',
    'list package lib as lib',
    '2 lib',
    'list package lib as lib',
  ]);
  const id = `CVE-${'1'.repeat(200)}`;
  state.advisories = {
    '1 lib': [advisory(id, 2, '1.0', '2.0'), advisory('CVE-2', 9, '3.0'), advisory('CVE-3', 0, '9.0')],
  };
  state.listed = {
    'team/app sha256:c': [
      { id: 'MAL-1', list: 'own' },
      { id: 'MAL-2', list: 'osv' },
    ],
    'lib 3.0': [{ id: 'CVE-2', list: 'own' }],
  };
  t.is(await compare(), '5 4');
  const cut = id.slice(0, 100);
  t.deepEqual(await noted(), [`a1 ${cut} 1`, `a2 ${cut} 1`, 'a3 CVE-2 1', 'c1 MAL-1 1', 'c1 MAL-2 1']);
  const about = { type: 'exposure.found', time: today + 1, account: 1 };
  const lib = { ...about, kind: 'package', name: 'lib' };
  const app = { ...about, kind: 'container', name: 'team/app' };
  const image = { severity: null, references: ['sha256:c'], users: 1, last_used_on: '2026-11-25' };
  t.deepEqual(await events(), [
    { ...app, details: { id: 'MAL-1', list: 'own', ...image } },
    { ...app, details: { id: 'MAL-2', list: 'osv', ...image } },
    {
      ...lib,
      details: {
        id: cut,
        list: null,
        severity: 'high',
        references: ['1.0', '2.0'],
        users: 2,
        last_used_on: '2026-11-24',
      },
    },
    {
      ...lib,
      details: { id: 'CVE-2', list: null, severity: null, references: ['3.0'], users: 1, last_used_on: '2026-11-25' },
    },
  ]);
  state.now += 5;
  t.is(await compare(), '5 0', 'it is told once');
  state.advisories['1 lib']!.push(advisory(id, 2, '3.0'));
  t.is(await compare(), '5 1', 'but also of further versions');
  t.like((await events())[4]!.details, { references: ['3.0'], users: 1 });
  t.is((await noted()).length, 6);
});

test('what was known when content was compared for the first time is only noted', async (t) => {
  const { database, state, compare, noted, events } = await open(t, {
    pull_contents: [
      content('a1', 1, 'lib', '1.0', { is_compared: 0 }),
      content('a2', 1, 'lib', '2.0'),
      content('a3', 1, 'other', '1.0', { is_compared: 0 }),
    ],
  });
  state.advisories = { '1 lib': [advisory('CVE-1', 3, '1.0', '2.0')] };
  t.is(await compare(), '3 1');
  t.deepEqual(await noted(), ['a1 CVE-1 1', 'a2 CVE-1 1']);
  t.deepEqual(
    (await events()).map(({ details }) => details),
    [{ id: 'CVE-1', list: null, severity: 'critical', references: ['2.0'], users: 0, last_used_on: '2026-11-25' }],
  );
  t.deepEqual(await database.select('SELECT DISTINCT is_compared FROM pull_contents'), [{ is_compared: 1 }]);
  state.advisories['1 other'] = [advisory('CVE-2', 1, '1.0')];
  t.is(await compare(), '3 1');
  t.like((await events())[1]!.details, { id: 'CVE-2', severity: 'moderate' });
});

test('the contents of one name are told together, also over pages, with 20 references', async (t) => {
  const versions = Array.from({ length: 501 }, (_, at) => `1.0.${at}`);
  const { state, newlyKnown, compare, events } = await open(t, {
    pull_contents: [
      ...versions.map((version, at) => content(`a${String(at).padStart(3, '0')}`, 1, 'lib', version)),
      content('b1', 1, 'zlib', '1.0.0'),
    ],
  });
  state.advisories = { '1 lib': [advisory('CVE-1', 0, ...versions)], '1 zlib': [advisory('CVE-1', 0, '1.0.0')] };
  t.is(await compare(), '502 2');
  t.deepEqual(
    (await events()).map(({ details }) => details),
    [versions.slice(0, 20), ['1.0.0']].map((references) => ({
      id: 'CVE-1',
      list: null,
      severity: 'low',
      references,
      users: 0,
      last_used_on: '2026-11-25',
    })),
  );
  t.deepEqual(
    state.asked.filter((each) => each.startsWith('1 ')),
    ['1 lib', '1 zlib'],
  );
  await t.throwsAsync(newlyKnown.compare(AbortSignal.abort(new Error('stopped'))), { message: 'stopped' });
});
