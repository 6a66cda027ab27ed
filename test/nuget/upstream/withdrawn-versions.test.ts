import test from 'ava';
import { WithdrawnVersions } from '../../../src/nuget/upstream/withdrawn-versions.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';

const upstream = { id: 'up', name: 'nuget.org', config: { negativeFor: 60 } } as Upstream;

interface Given {
  stored?: readonly string[];
  /** Those that were missing before. */
  known?: readonly string[];
  /** How an answer of the upstream for a version is: gone, there or unknown. */
  gone?: Readonly<Record<string, boolean>>;
}

/** What a comparison with the list `offered` writes. */
async function compare({ stored = [], known = [], gone = {} }: Given, offered: readonly string[] | undefined) {
  const wrote: unknown[][] = [];
  const mirror = {
    references: (_name: object, size: number, after: string) =>
      Promise.resolve(stored.filter((each) => each > after).slice(0, size)),
    stored: ({ reference }: { reference: string }) =>
      Promise.resolve(reference === 'odd' ? undefined : { attributes: reference === '9.0.0' ? {} : { id: 'Lib' } }),
    withdrawals: {
      of: () => Promise.resolve(known.map((reference) => ({ reference }))),
      offered: (_name: object, isOffered: (version: string) => boolean, subject: object) => {
        wrote.push(['offered', stored.filter(isOffered), subject]);
        return Promise.resolve();
      },
      missing: (_name: object, missing: readonly string[], negativeFor: number) => {
        wrote.push(['missing', missing, negativeFor]);
        return Promise.resolve(missing);
      },
      mark: ({ reference }: { reference: string }, subject: object) => {
        wrote.push(['mark', reference, subject]);
        return Promise.resolve();
      },
      postpone: ({ reference }: { reference: string }) => {
        wrote.push(['postpone', reference]);
        return Promise.resolve();
      },
    },
  };
  const asked: string[] = [];
  await new WithdrawnVersions(mirror as never).compare(upstream, 'lib', offered, (version) => {
    asked.push(version);
    return Promise.resolve(gone[version]);
  });
  return { wrote, asked };
}

const subject = { kind: 'package', name: 'Lib', upstream: 'nuget.org' };

test('an empty list of versions says nothing, nor does any list of a package of which nothing is stored', async (t) => {
  const nothing = { wrote: [], asked: [] };
  t.deepEqual(await compare({ stored: ['1.0.0'] }, []), nothing);
  t.deepEqual(await compare({}, ['1.0.0']), nothing);
  t.deepEqual(await compare({}, undefined), nothing);
});

test('a stored version that a list lacks is marked if the upstream says that it is gone', async (t) => {
  const stored = ['1.0.0', '2.0.0', '3.0.0', '4.0.0'];
  const { wrote, asked } = await compare({ stored, gone: { '2.0.0': true, '3.0.0': false } }, ['1.0.0', '5.0.0']);
  t.deepEqual(asked, ['2.0.0', '3.0.0', '4.0.0']);
  t.deepEqual(wrote[0], ['missing', ['2.0.0', '3.0.0', '4.0.0'], 60]);
  // They are asked for at the same time.
  const [marked, postponed] = wrote.slice(1).toSorted(([one], [other]) => (String(one) < String(other) ? -1 : 1));
  t.deepEqual(
    [marked, postponed],
    [
      ['mark', '2.0.0', subject],
      ['postpone', '3.0.0'],
    ],
  );
  t.is(wrote.length, 3);
});

test('a version that is offered again is told once one was missing, with the id as its package writes it', async (t) => {
  const { wrote } = await compare({ stored: ['1.0.0', '2.0.0'], known: ['2.0.0'] }, ['2.0.0']);
  t.deepEqual(wrote, [
    ['offered', ['2.0.0'], subject],
    ['missing', ['1.0.0'], 60],
  ]);
  const other = await compare({ stored: ['9.0.0'], gone: { '9.0.0': true } }, undefined);
  t.deepEqual(other.wrote, [
    ['missing', ['9.0.0'], 60],
    ['mark', '9.0.0', { ...subject, name: 'lib' }],
  ]);
  t.deepEqual((await compare({ stored: ['odd'], gone: { odd: true } }, undefined)).wrote[1], [
    'mark',
    'odd',
    { ...subject, name: 'lib' },
  ]);
});

test('an upstream is asked for ten versions at once, of all pages of those that are stored', async (t) => {
  const stored = Array.from({ length: 1001 }, (_, index) => `1.0.${1000 + index}`);
  const { wrote, asked } = await compare({ stored }, ['1.0.0']);
  t.deepEqual(asked, stored.slice(0, 10));
  t.deepEqual(wrote, [['missing', stored, 60]]);
});
