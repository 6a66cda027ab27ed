import test, { type ExecutionContext } from 'ava';
import { entryId } from '../../src/mirror/store/entries.ts';
import type { Layer } from '../../src/policy/decide.ts';
import { PolicyTrial } from '../../src/policy/trial.ts';
import { BackgroundTask } from '../../src/runtime/background-task.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';
import { mirrorEntry } from '../support/builders/mirror-entry.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// Which downloads a trial tries, and for which times. test/cli/policy-trial.test.ts has the command.

const day = 86_400_000;
const now = 100 * day;
const since = now - 30 * day;
const layer = { scope: 'all' } as Layer;

interface Used {
  upstream?: string;
  kind?: string;
  name?: string;
  reference: string;
  digest?: Digest;
  usedAt?: number;
}

/** A trial of these downloads. `decide` says what is decided at a time; undefined: the upstream fails. */
async function setUp(
  t: ExecutionContext,
  used: readonly Used[],
  decide: (reference: string, at: number) => 'allow' | 'hold' | undefined = () => 'hold',
  seen: Record<string, number> = {},
) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const rows = used.map(({ upstream = 'u', kind = 'content', name = 'lib', reference, ...more }) => {
    const key = { upstream, kind, name, reference };
    const { digest = digestOf(reference), usedAt = now } = more;
    return { ...mirrorEntry(digest), ...key, id: entryId(key), used_at: usedAt };
  });
  for (let start = 0; start < rows.length; start += 500)
    await database.transaction((tx) => tx.insertNew('mirror_entries', rows.slice(start, start + 500)));
  const asked: string[] = [];
  const source = {
    kind: 'package',
    contentKind: 'content',
    upstreams: (account: number) =>
      Promise.resolve({ 1: [{ id: 'u' }], 2: [{ id: 'u' }, { id: 'second' }] }[account] ?? []),
    shownName: ({ id }: { id: string }, name: string) => `${id}/${name}`,
    find: (account: number, upstream: { id: string }, { name, reference }: { name: string; reference: string }) => {
      asked.push(`${account} ${upstream.id} ${name} ${reference} ${BackgroundTask.current !== undefined}`);
      if (reference === 'unknown') return Promise.resolve(undefined);
      const known = seen[reference];
      const of = () => Promise.resolve(new Map(known === undefined ? [] : [[reference, { firstSeenAt: known }]]));
      return Promise.resolve({ name: { facts: { of } }, asking: 'asking' });
    },
  };
  const gate = {
    decideBy: (by: Layer, name: string, reference: string, at: number) => {
      t.deepEqual([by, name], [layer, 'asking']);
      const verdict = decide(reference, at);
      if (verdict === undefined) return Promise.reject(new UpstreamError('UpstreamUnavailable', 'It is down.'));
      return Promise.resolve({ verdict, until: at, evidence: [] });
    },
  };
  const accounts = { list: () => Promise.resolve([{ id: 1 }, { id: 2 }, { id: 3 }]) };
  const parts = { database, gate, accounts } as unknown as ConstructorParameters<typeof PolicyTrial>[0];
  const sources = [{ stored: source }, {}] as unknown as ConstructorParameters<typeof PolicyTrial>[1];
  const trial = new PolicyTrial(parts, sources);
  const run = async (accountId?: number) => {
    const { refused, ...rest } = await trial.run(layer, accountId, now);
    const told = refused.map(({ name, reference, firstAt, first, last }) => {
      t.is(first.until, firstAt);
      return `${name} ${reference} ${firstAt} ${last.until}`;
    });
    return { ...rest, refused: told };
  };
  return { run, asked };
}

test('downloads of the last 30 days are tried at the first and at the last time that is known', async (t) => {
  const old = { reference: 'old', usedAt: since - 1 };
  const used = ['1.0', '2.0', '3.0', '4.0', 'unknown'].map((reference) => ({ reference, usedAt: since + 5 * day }));
  const { run, asked } = await setUp(
    t,
    [...used, old, { reference: 'list', kind: 'list' }, { reference: 'edge', usedAt: since }],
    (reference) => (reference === '4.0' ? 'allow' : 'hold'),
    { '1.0': since + day, '2.0': since - day, '3.0': now },
  );
  t.deepEqual(await run(1), {
    tried: 5,
    unknown: 0,
    isCut: false,
    refused: [
      `u/lib edge ${since} ${since}`,
      `u/lib 1.0 ${since + day} ${since + 5 * day}`,
      `u/lib 2.0 ${since} ${since + 5 * day}`,
      `u/lib 3.0 ${since + 5 * day} ${since + 5 * day}`,
    ].toSorted((one, other) => orderOf(asked, one) - orderOf(asked, other)),
  });
  t.is(asked.length, 6);
  t.true(
    asked.every((each) => each.startsWith('1 u lib ') && each.endsWith(' true')),
    'what is read does not count as used',
  );
});

/** The place of a refusal in what was asked. */
function orderOf(asked: readonly string[], refusal: string): number {
  return asked.findIndex((each) => each.includes(` ${refusal.split(' ')[1]} `));
}

test('an upstream that fails decides nothing, or leaves the first decision', async (t) => {
  const used = [{ reference: 'down' }, { reference: 'later', usedAt: now - day }];
  const decide = (reference: string, at: number) =>
    reference === 'down' || at === now - day ? undefined : ('hold' as const);
  const { run } = await setUp(t, used, decide, { later: now - 2 * day });
  t.deepEqual(await run(1), {
    tried: 2,
    unknown: 1,
    isCut: false,
    refused: [`u/lib later ${now - 2 * day} ${now - 2 * day}`],
  });
});

test('a digest is not tried besides its tag, and names and upstreams are told apart', async (t) => {
  const [one, two] = [digestOf('one'), digestOf('two')];
  const used = [
    { reference: 'v1', digest: one },
    { reference: one, digest: one },
    { reference: two, digest: two },
    { reference: one, digest: one, name: 'other' },
    { reference: 'v1', digest: one, upstream: 'second' },
    { reference: 'v1', upstream: 'gone' },
  ];
  const { run, asked } = await setUp(t, used);
  t.is((await run()).tried, 4);
  const tried = [`1 u lib v1`, `1 u lib ${two}`, `1 u other ${one}`, '2 second lib v1'];
  t.deepEqual(asked.toSorted(), tried.map((each) => `${each} true`).toSorted(), 'for the first account that is served');
  asked.length = 0;
  t.is((await run(2)).tried, 4);
  t.true(asked.every((each) => each.startsWith('2 ')));
  t.is((await run(3)).tried, 0);
});

test('a trial tries 20,000 downloads', async (t) => {
  const used = Array.from({ length: 20_001 }, (_, at) => ({ name: `n${at}`, reference: 'unknown' }));
  t.like(await (await setUp(t, used)).run(1), { tried: 0, isCut: true });
  t.like(await (await setUp(t, used.slice(1))).run(1), { tried: 0, isCut: false });
});
