import test from 'ava';
import { examinePolicies } from '../../src/cli/doctor-policies.ts';

// What `entrepot doctor` says of policies, with policies and upstreams of the test.

const now = Date.UTC(2027, 0, 1);

interface Policy {
  accountId?: number;
  mode?: 'enforce' | 'audit';
  lists?: string[];
  packages?: number;
  unknownDate?: 'hold' | 'sight';
  held?: 'hide' | 'show';
  suspendedUntil?: number;
  refusesAll?: boolean;
}

interface Setup {
  knownBad?: string;
  /** Whether each upstream says dates; undefined if it fails. */
  dates?: (boolean | undefined)[];
  /** What is held: its verdict, and whether a higher version is open. */
  items?: [verdict: string, isBelowVisible: boolean][];
}

async function examine(policies: readonly Policy[], { knownBad = '0 * * * *', dates = [], items = [] }: Setup = {}) {
  const asked: unknown[] = [];
  const results = await examinePolicies({
    core: {
      policies: {
        all: (most: number) => {
          asked.push(most);
          return Promise.resolve(
            policies.map(
              ({ accountId = 0, mode = 'enforce', lists = [], packages = 0, suspendedUntil = 0, ...rest }) => ({
                accountId,
                suspendedUntil,
                written: { refusesAll: rest.refusesAll ?? false },
                document: {
                  mode,
                  knownBad: { lists },
                  minimumAge: { packages, unknownDate: rest.unknownDate ?? 'hold', held: rest.held ?? 'hide' },
                },
              }),
            ),
          );
        },
        check: (written: object) => written,
      },
      config: { jobs: { knownBad } },
      now: () => now,
      accounts: { nameOf: (id: number) => Promise.resolve(id === 7 ? 'team' : undefined) },
      upstreams: dates.map((says, at) => ({ id: `up${at}`, config: { kind: 'nuget' }, says })),
    },
    protocols: [
      { upstreams: { kind: 'registry', saysDates: () => Promise.resolve(false) } },
      {
        upstreams: {
          kind: 'nuget',
          saysDates: ({ says }: { says?: boolean }) => {
            asked.push('dates');
            return says === undefined ? Promise.reject(new Error('fails')) : Promise.resolve(says);
          },
        },
      },
    ],
    held: {
      list: (accountId: number, { limit, isWanted }: { limit: number; isWanted: () => boolean }) => {
        asked.push([accountId, limit, isWanted()]);
        return Promise.resolve({
          items: items.map(([verdict, isBelowVisible], at) => ({
            name: 'lib',
            reference: `${at}.0.0`,
            decision: { verdict },
            isBelowVisible,
          })),
        });
      },
    },
  } as never);
  return { results, asked };
}

const all = 'policy of all accounts';

test('a policy that can work is told so, by its account', async (t) => {
  t.deepEqual(await examine([]), { results: [], asked: [1000] });
  const { results, asked } = await examine([{}, { accountId: 7 }, { accountId: 8 }], { dates: [false] });
  t.deepEqual(results, [
    { subject: all, ok: true, text: 'it can work' },
    { subject: 'policy of the account team', ok: true, text: 'it can work' },
    { subject: all, ok: true, text: 'it can work' },
  ]);
  t.deepEqual(asked, [1000], 'nothing is asked of upstreams for policies without an age');
});

const fails = (text: string) => ({ subject: all, ok: false, text });
const notes = (text: string) => ({ subject: all, ok: true, isNote: true, text });
const undated = (id: string) =>
  `the upstream ${id} says no dates, so its packages are held for ever: name it under minimumAge.except`;
const sighted = (id: string) =>
  `the upstream ${id} says no dates, so its packages count from their first sighting here`;

test('what a policy refuses without end is a failure, and what it refuses not is a note', async (t) => {
  const problem = async (policy: Policy, setup?: Setup) => (await examine([policy], setup)).results[0]!;
  t.deepEqual(
    await problem({ refusesAll: true }),
    fails('it refuses names that no rule mentions, however old they are'),
  );
  const off = 'nothing reads its lists again, because jobs.knownBad is off';
  t.deepEqual(await problem({ lists: ['bad'] }, { knownBad: 'off' }), fails(off));
  t.true((await problem({ lists: ['bad'] })).ok);
  t.true((await problem({}, { knownBad: 'off' })).ok);
  const dates: Setup = { dates: [true, false, undefined, false] };
  t.deepEqual(await problem({ packages: 1 }, dates), fails(`${undated('up1')}; ${undated('up3')}`));
  t.deepEqual(
    await problem({ packages: 1, unknownDate: 'sight' }, dates),
    notes(`${sighted('up1')}; ${sighted('up3')}`),
  );
  const other = await examine([{ packages: 1, held: 'show' }, { accountId: 7 }], { dates: [false] });
  t.deepEqual(
    other.results.map(({ ok }) => ok),
    [false, true],
    'that concerns only the policy with an age',
  );
  t.deepEqual(await problem({ mode: 'audit' }), notes('it is in audit mode, so it refuses nothing'));
  const suspended = 'it is suspended until 2027-01-01T00:00:00.001Z, so it refuses nothing until then';
  t.deepEqual(await problem({ suspendedUntil: now + 1 }), notes(suspended));
  t.true((await problem({ suspendedUntil: now })).text === 'it can work');
  t.deepEqual(
    await problem({ lists: ['bad'], mode: 'audit', suspendedUntil: now + 1 }, { knownBad: 'off' }),
    fails(`${off}; ${suspended}; it is in audit mode, so it refuses nothing`),
  );
});

const below = async (items: Setup['items'] & {}, policy: Policy = {}) => {
  const { results, asked } = await examine([{ accountId: 7, packages: 1, ...policy }], { items });
  return { text: results[0]!.text, asked: asked.filter((each) => Array.isArray(each)) };
};

const text = (names: string) =>
  new RegExp(
    `^it holds versions below one that clients get, which dotnet takes instead \\(NU1603\\): ${names}\\. ".*policy held" lists all$`,
  );

const held = (count: number) => Array.from({ length: count }, (): [string, boolean] => ['hold', true]);

test('versions that are held below an open one are named, five at most', async (t) => {
  const some = await below([
    ['deny', true],
    ['hold', true],
    ['hold', false],
    ['hold', true],
  ]);
  t.regex(some.text, text('lib 1\\.0\\.0, lib 3\\.0\\.0'));
  t.deepEqual(some.asked, [[7, 200, true]]);
  const names = [0, 1, 2, 3, 4].map((each) => `lib ${each}\\.0\\.0`).join(', ');
  t.regex((await below(held(5))).text, text(names));
  t.regex((await below(held(6))).text, text(`${names}, …`));
  t.is((await below([['hold', false]])).text, 'it can work');
  for (const policy of [{ packages: 0 }, { held: 'show' }, { mode: 'audit' }] as const)
    t.deepEqual((await below([['hold', true]], policy)).asked, []);
});
