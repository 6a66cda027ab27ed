import test, { type ExecutionContext } from 'ava';
import type { FeedContext } from '../../../src/nuget/hosted/feed-context.ts';
import type { PackageSource } from '../../../src/nuget/source/package-source.ts';
import { PastPackages } from '../../../src/nuget/source/past-packages.ts';
import { isShared, readerOf } from '../../../src/nuget/source/reader.ts';
import type { FeedViews } from '../../../src/nuget/upstream/feed-view.ts';
import { noAccount, type Principal } from '../../../src/accounts/principal.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { hostRows } from '../../support/hosted-rows.ts';

const day = (text: string) => Date.parse(`${text}T12:00:00Z`);
const upstream = { id: 'one' };

/** Account 1 hosts `Own` and the merged `Merged`, whose other versions have dates at an upstream. */
async function start(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const versions = [
    { version: '1.0.0', publishedAt: day('2026-02-02') },
    { version: '2.0.0', publishedAt: day('2026-03-03') },
  ];
  for (const id of ['Own', 'Merged']) await hostRows(database, 1, id, versions);
  const asked: unknown[][] = [];
  const keys: Record<string, string[]> = {
    own: ['1.0.0', '2.0.0'],
    merged: ['0.9.0', '1.0.0', '2.0.0'],
    lib: ['1.0.0', '2.0.0', '3.0.0'],
    undated: ['3.0.0'],
  };
  const source = (isHostedOnly: boolean) =>
    ({
      versionKeys: async (accountId: number, id: string) => {
        asked.push(['keys', isHostedOnly, accountId, id]);
        const value = keys[id.toLowerCase()];
        return value && { served: 'hit', value };
      },
      isMerged: (id: string) => id === 'Merged',
    }) as unknown as PackageSource;
  const dates = new Map([
    ['0.9.0', day('2026-01-01')],
    ['1.0.0', day('2026-01-05')],
    ['2.0.0', day('2026-04-04')],
  ]);
  const mirror = {
    owner: async (id: string) => {
      asked.push(['owner', id]);
      return id === 'Nobody' ? undefined : { upstream };
    },
    nameOf: (of: object, name: string) => ({
      facts: {
        of: async () => new Map([['2.0.0', { firstSeenAt: day('2026-04-01') }]]),
        published: async (settledBefore: number) => {
          asked.push(['published', of, name, settledBefore]);
          return dates;
        },
      },
    }),
  };
  const views = { of: async () => ({ mirror }) } as unknown as FeedViews;
  const opened: number[] = [];
  const feed = { database, now: () => day('2026-06-01') } as unknown as FeedContext;
  const past = new PastPackages({
    feed,
    source: Object.assign(source(false), { hostedOnly: source(true) }),
    views,
    open: (until, judge) => {
      opened.push(until);
      return { until, judge } as unknown as PackageSource;
    },
  });
  const since = (id: string, version?: string, ofOther = false) =>
    past.knownSince({ accountId: 1, isShared: ofOther }, id, version);
  return { past, since, asked, opened };
}

test('a package is known since the day of its first version that clients get', async (t) => {
  const { since, asked } = await start(t);
  t.is(await since('Own'), '2026-02-02');
  t.is(await since('Own', '2.0'), '2026-03-03');
  t.deepEqual(asked.splice(0), [
    ['keys', false, 1, 'Own'],
    ['keys', false, 1, 'Own'],
  ]);
  t.is(await since('Merged'), '2026-01-01');
  t.is(await since('Merged', '1.0.0'), '2026-01-05');
  t.is(await since('Merged', '2.0.0'), '2026-03-03', 'it was hosted before the upstream had it');
  t.is(await since('Lib'), '2026-01-05');
  t.is(await since('Lib', '2.0.0'), '2026-04-01', 'it was seen before the date that the upstream says');
  t.deepEqual(asked.at(-1), ['published', upstream, 'lib', -Infinity]);
  t.is(await since('Lib', '3.0.0'), undefined);
  t.is(await since('Undated'), undefined);
  asked.length = 0;
  for (const [id, version] of [['None'], ['Lib', '9.0.0'], ['Lib', 'x'], ['Own', '3.0.0']] as const)
    t.is(await since(id, version), undefined, `${id} ${version}`);
  t.true(asked.every(([what]) => what === 'keys'));
  t.is(await since('Own', undefined, true), '2026-02-02');
  t.deepEqual(asked.at(-1), ['keys', true, 1, 'Own']);
});

test('the source of a day is made once, of up to a hundred days', async (t) => {
  const { past, opened } = await start(t);
  const first = past.at(1) as unknown as {
    until: number;
    judge: (name: object, versions: string[]) => Promise<unknown>;
  };
  t.is(first.until, 1);
  t.is(past.at(1), first as never);
  for (let at = 2; at <= 100; at += 1) past.at(at);
  t.is(past.at(1), first as never);
  past.at(101);
  t.is(past.at(1), first as never);
  t.deepEqual(
    opened,
    Array.from({ length: 101 }, (_, at) => at + 1),
  );
  past.at(2);
  t.is(opened.length, 102);
  t.is(await first.judge({ kind: 'image' }, []), undefined);
});

const principal = (more: object) => ({ kind: 'token', accountId: 1, ...more }) as unknown as Principal;

test('a reader of mirrored content alone reads as no account what only upstreams have', async (t) => {
  const asked: unknown[][] = [];
  const packages = {
    isUpstreamOnly: async (accountId: number, id: string) => {
      asked.push([accountId, id]);
      return id === 'Lib';
    },
  };
  t.is(await readerOf(packages, principal({}), 'Own'), 1);
  t.deepEqual(asked, []);
  const reader = { kind: 'anonymous', accountId: 1, reads: 'mirrored' } as unknown as Principal;
  t.is(await readerOf(packages, reader, 'Lib'), noAccount);
  await t.throwsAsync(async () => readerOf(packages, reader, 'Own'), {
    name: 'Unauthorized',
    message: 'Authenticate with an API token, as Bearer or as Basic with user name "api".',
  });
  t.deepEqual(asked, [
    [1, 'Lib'],
    [1, 'Own'],
  ]);
  const shared = {
    ownerOf: async (own: number, kind: string, name: string) => (name === 'Shared' && kind === 'package' ? 2 : own),
  };
  t.is(await readerOf(packages, principal({ shared }), 'Shared'), 2);
  t.is(await readerOf(packages, principal({ shared }), 'Own'), 1);
  t.is(await readerOf(packages, principal({ shared }), 'Shared', 'write'), 1);
  t.true(isShared(principal({}), 2));
  t.false(isShared(principal({}), 1));
  t.false(isShared(principal({}), noAccount));
});
