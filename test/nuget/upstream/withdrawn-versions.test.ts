import test from 'ava';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { WithdrawnVersions } from '../../../src/nuget/upstream/withdrawn-versions.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { makeNupkg, pngPixel, type NupkgOptions } from '../../support/builders/nupkg.ts';

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

interface Kept {
  nupkg?: NupkgOptions;
  attributes?: Record<string, string>;
  lastModified?: string;
  error?: Error;
}

/** Stored nupkgs by their versions, all of which the upstream does not offer. */
async function keep(kept: Record<string, Kept | undefined>) {
  const asked: unknown[] = [];
  const opened: string[] = [];
  const bytes = new Map<string, Buffer>();
  for (const [version, each] of Object.entries(kept))
    bytes.set(version, await makeNupkg({ id: 'Lib', version, ...each?.nupkg }));
  const mirror = {
    withdrawals: {
      of: async (name: object) => {
        asked.push(name);
        return Object.keys(kept).map((reference) => ({ reference }));
      },
      times: async (name: object) => {
        asked.push(name);
        return new Map([['1.0.0', 7]]);
      },
    },
    stored: async (key: { reference: string }) => {
      asked.push(key);
      const found = kept[key.reference];
      const { attributes = {}, lastModified = null } = found ?? {};
      return found && { digest: `sha256:${key.reference}`, attributes, lastModified, storedAt: 99 };
    },
    openStored: async ({ key, lifetime }: { key: { reference: string }; lifetime: string }) => {
      opened.push(`${key.reference} ${lifetime}`);
      asked.push(key);
      const { error } = kept[key.reference]!;
      if (error) throw error;
      return { content: contentOf(bytes.get(key.reference)!) };
    },
  };
  return { versions: new WithdrawnVersions(mirror as never), asked, opened };
}

const nupkgs = { upstream: 'up', kind: 'nupkg', name: 'lib' };

test('the keys of missing versions, since when they are withdrawn, and the dates of their nupkgs', async (t) => {
  const { versions, asked } = await keep({
    '1.0.0': { attributes: { publishedAt: '5' } },
    '2.0.0': { lastModified: 'Tue, 02 Jan 2024 03:04:05 GMT' },
    '3.0.0': {},
    '4.0.0': undefined,
  });
  t.deepEqual(await versions.keys(upstream, 'lib'), ['1.0.0', '2.0.0', '3.0.0', '4.0.0']);
  t.deepEqual([...(await versions.times(upstream, 'lib'))], [['1.0.0', 7]]);
  t.deepEqual(asked.splice(0), [nupkgs, nupkgs]);
  t.deepEqual(
    [...(await versions.dates(upstream, 'lib'))],
    [
      ['1.0.0', 5],
      ['2.0.0', Date.UTC(2024, 0, 2, 3, 4, 5)],
      ['3.0.0', undefined],
      ['4.0.0', undefined],
    ],
  );
  t.deepEqual(asked, [nupkgs, ...['1.0.0', '2.0.0', '3.0.0', '4.0.0'].map((reference) => ({ ...nupkgs, reference }))]);
});

test('a registration shows a missing version as its nupkg says, unlisted, and reads it once', async (t) => {
  const dependencies = [{ id: 'Other', version: '[1.0.0-a.1, )' }];
  const { versions, asked, opened } = await keep({
    '1.0.0': {
      nupkg: { version: '1.0', title: 'A title', icon: pngPixel, readme: '# About' },
      attributes: { publishedAt: '5', sha512: 'abc=' },
    },
    '2.0.0-a.1': { nupkg: { version: '2.0.0-A.1' } },
    '3.0.0': { nupkg: { version: '3.0.0+build', dependencies } },
    '4.0.0': undefined,
  });
  const all = ['1.0.0', '2.0.0-a.1', '3.0.0', '4.0.0'];
  const found = await versions.registered(upstream, 'lib', all, true);
  const shown = found.map(({ json }) => JSON.parse(json) as { metadata: object; bytes: number });
  t.deepEqual(
    found.map(({ version, publishedAt }) => [version, publishedAt]),
    [
      ['1.0.0', 5],
      ['2.0.0-A.1', 99],
      ['3.0.0', 99],
    ],
  );
  t.deepEqual(
    found.map(({ bytes }) => bytes),
    shown.map(({ bytes }) => bytes),
  );
  const [{ metadata, bytes, ...first }, second, third] = shown as [
    Record<string, unknown> & (typeof shown)[0],
    object,
    object,
  ];
  t.deepEqual(first, {
    version: '1.0.0',
    fullVersion: '1.0.0',
    listed: false,
    publishedAt: 5,
    sha512: 'abc=',
    hasIcon: true,
    hasReadme: true,
  });
  t.like(metadata, { id: 'Lib', title: 'A title' });
  t.is(bytes, Buffer.byteLength(JSON.stringify(metadata)));
  t.like(second, { version: '2.0.0-A.1', listed: false, publishedAt: 99, hasIcon: false, hasReadme: false });
  t.false('sha512' in second);
  t.like(third, { version: '3.0.0', fullVersion: '3.0.0+build' });
  t.deepEqual(opened.splice(0), ['1.0.0 immutable', '2.0.0-a.1 immutable', '3.0.0 immutable']);
  t.deepEqual(asked.slice(0, 2), [
    { ...nupkgs, reference: '1.0.0' },
    { ...nupkgs, reference: '1.0.0' },
  ]);
  t.deepEqual(
    (await versions.registered(upstream, 'lib', all, false)).map(({ version }) => version),
    ['1.0.0'],
  );
  t.deepEqual(await versions.registered(upstream, 'lib', ['1.0.0'], true), found.slice(0, 1));
  t.deepEqual(opened, []);
});

test('a missing version whose nupkg cannot be read is left out, and another error is not hidden', async (t) => {
  const damaged = new DomainError('ContentDamaged', 'It is damaged.');
  const { versions } = await keep({ '1.0.0': { error: damaged }, '2.0.0': {} });
  t.deepEqual(
    (await versions.registered(upstream, 'lib', ['1.0.0', '2.0.0'], true)).map(({ version }) => version),
    ['2.0.0'],
  );
  const broken = new Error('it broke');
  const other = await keep({ '1.0.0': { error: broken } });
  await t.throwsAsync(other.versions.registered(upstream, 'lib', ['1.0.0'], true), { is: broken });
});
