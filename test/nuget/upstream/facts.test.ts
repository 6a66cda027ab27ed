import test from 'ava';
import type { MirroredName } from '../../../src/mirror/policy/admission.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { describePackageEntry, packageEntries } from '../../../src/nuget/upstream/entries.ts';
import { existedAt, existenceOf } from '../../../src/nuget/upstream/existence.ts';
import { advisoryOf, readAdvisories } from '../../../src/nuget/upstream/known-advisories.ts';
import { publishedOf, sidecarEntry, type SidecarKind } from '../../../src/nuget/upstream/upstream-files.ts';
import { makeNuspec, pngPixel } from '../../support/builders/nupkg.ts';

const upstream = { id: 'up', name: 'up.test', config: {} } as Upstream;

const read = (list: unknown) => readAdvisories(JSON.stringify(list));

test('vulnerabilities of an upstream: what cannot be read is left out, and severities are known ones', (t) => {
  const url = 'https://advisory.test/GHSA-1';
  const versions = '[1.0, 2.0)';
  const given = [
    { url, versions, severity: 2 },
    { url, versions, severity: '1' },
    { url, versions, severity: -1 },
    { url, versions, severity: 9 },
    { url, versions },
  ];
  t.deepEqual(
    read(given).map(({ severity }) => severity),
    [2, 1, 0, 3, 0],
  );
  const long = `https://advisory.test/${'x'.repeat(2048 - 22)}`;
  t.deepEqual(
    read([null, { versions }, { url: 7, versions }, { url, versions: 7 }, { url, versions: 'x' }, { url }]),
    [],
  );
  t.deepEqual(
    read([
      { url: `${long}x`, versions },
      { url: long, versions },
    ]).map((each) => each.url),
    [long],
  );
  t.deepEqual(read({}), []);
});

const advisoryAt = (url: string, versions: string) => {
  const { affects, ...advisory } = advisoryOf(read([{ url, versions, severity: 1 }])[0]!);
  return { ...advisory, affected: ['0.9.0', '1.0.0', '2.0.0', 'x'].filter((each) => affects(each)) };
};

test('an advisory has the ID at the end of its address, and the first version without it', (t) => {
  t.deepEqual(advisoryAt('https://a.test/advisories/GHSA-1', '[1.0, 2.0)'), {
    id: 'GHSA-1',
    severity: 1,
    fixedAt: '2.0.0',
    affected: ['1.0.0'],
  });
  t.like(advisoryAt('https://a.test/GHSA-2/', '(, 2.0]'), {
    id: 'GHSA-2',
    fixedAt: undefined,
    affected: ['0.9.0', '1.0.0', '2.0.0'],
  });
  t.like(advisoryAt('https://a.test/?id=3', '(1.0, )'), {
    id: 'https://a.test/?id=3',
    fixedAt: undefined,
    affected: ['2.0.0'],
  });
  t.is(advisoryAt(`https://a.test/${'x'.repeat(100)}`, '[1.0]').id, 'x'.repeat(100));
  t.is(advisoryAt(`https://a.test/${'x'.repeat(101)}`, '[1.0]').id, `https://a.test/${'x'.repeat(85)}`);
});

const isDescribed = (kind: string, name: string, reference: string) =>
  describePackageEntry(upstream, { kind, name, reference }, {}, { nupkg: 7 } as never) !== undefined;

test('entries of another installation are described only if a feed can have them', (t) => {
  const documents = Object.entries(packageEntries.kinds).flatMap(([kind, validity]) =>
    validity === 'document' ? [kind] : [],
  );
  t.is(documents.length, 6);
  for (const kind of documents) for (const name of ['', 'lib']) t.true(isDescribed(kind, name, ''), `${kind} ${name}`);
  for (const kind of ['nupkg', 'nuspec', 'readme', 'icon']) {
    t.true(isDescribed(kind, 'lib', '1.0.0-a'), kind);
    for (const [name, reference] of [
      ['', '1.0.0'],
      ['Lib', '1.0.0'],
      ['../lib', '1.0.0'],
      ['lib', '1.0'],
      ['lib', '1.0.0-A'],
      ['lib', ''],
    ] as const)
      t.false(isDescribed(kind, name, reference), `${kind} ${name} ${reference}`);
  }
  t.false(isDescribed('symbols', 'lib', '1.0.0'));
  t.false(isDescribed('other', 'lib', '1.0.0'));
  t.false(isDescribed('flat', 'Lib', ''));
  t.true(isDescribed('vulnerability-page', 'Base.Page', '2026-01-01'));
  t.deepEqual(
    ['nupkg', 'flat'].map((kind) => packageEntries.dropEvent({ kind, name: 'lib' } as never, {} as never)),
    [{ type: 'package.deleted', kind: 'package', name: 'lib' }, undefined],
  );
});

test('a version exists since its date, or since it was first seen or listed', async (t) => {
  const asked: (readonly string[])[] = [];
  const name = {
    facts: {
      of: async () =>
        new Map([
          ['seen', { firstSeenAt: 50 }],
          ['both', { firstSeenAt: 70 }],
        ]),
      listed: async (versions: readonly string[]) => {
        asked.push(versions);
        return new Map([
          ['undated', 40],
          ['future', 45],
        ]);
      },
    },
  } as unknown as MirroredName;
  const dates = new Map<string, number | undefined>([
    ['dated', 30],
    ['both', 60],
    ['seen', undefined],
    ['undated', undefined],
    ['future', 101],
    ['now', 100],
  ]);
  const versions = ['dated', 'both', 'seen', 'undated', 'future', 'now', 'invented'];
  const since = await existenceOf(name, versions, 100, async () => dates);
  t.deepEqual(versions.map(since), [30, 60, 50, 40, 45, 100, Infinity]);
  t.deepEqual(asked, [['seen', 'undated', 'future']]);
  asked.length = 0;
  await existenceOf(name, versions, 100, async () => dates, 50);
  t.deepEqual(asked, [['undated', 'future']], 'what was stored by then need not be asked for');
  const unknown = await existenceOf(name, versions, 100, async () => undefined);
  t.deepEqual([unknown('dated'), unknown('seen')], [Infinity, 50]);

  const down = new UpstreamError('UpstreamUnavailable', 'up.test does not answer.');
  const failing = await existenceOf(name, versions, 100, () => Promise.reject(down), 50);
  t.is(failing('seen'), 50);
  for (const version of ['both', 'dated']) t.throws(() => failing(version), { is: down }, version);
  const published = async (settledBefore: number) => {
    t.is(settledBefore, 50);
    return dates;
  };
  const judge = existedAt(50, () => 100);
  const upstream = { id: 'up' };
  const facts = { ...name.facts, published };
  const verdict = (await judge(
    { kind: 'package', upstream, name: 'lib', facts } as unknown as MirroredName,
    versions,
    'list',
  ))!;
  t.deepEqual(
    versions.map((version) => verdict(version)),
    ['allow', 'hold', 'allow', 'allow', 'allow', 'hold', 'hold'],
  );
  t.is(await judge({ kind: 'container', facts } as unknown as MirroredName, versions, 'list'), undefined);
  const broken = new Error('it broke');
  await t.throwsAsync(
    existenceOf(name, versions, 100, () => Promise.reject(broken)),
    { is: broken },
  );
});

function verified(kind: SidecarKind, content: string | Buffer) {
  const bytes = Buffer.isBuffer(content) ? content : Buffer.from(content, 'latin1');
  return sidecarEntry(upstream, 'lib', '1.0.0-a', kind).verify({ bytes: () => Promise.resolve(bytes) } as never);
}

test('a file beside a package is refused if it is clearly of another kind', async (t) => {
  const icons: [content: string | Buffer, type: string][] = [
    [pngPixel, 'image/png'],
    ['\xff\xd8\xff\xe0', 'image/jpeg'],
    ['GIF87a', 'image/gif'],
    ['GIF89a', 'image/gif'],
    ['RIFF\n\0\0\0WEBPVP8', 'image/webp'],
  ];
  for (const [content, type] of icons) t.deepEqual(await verified('icon', content), { type });
  for (const content of ['', '<svg/>', 'GIF88a', 'xGIF89a', 'xRIFF\n\0\0\0WEBP', 'RIFF\0\0\0WEBP', '\x89PNG'])
    await t.throwsAsync(verified('icon', content), { message: 'it is not an image' }, content);
  for (const content of ['<html>', ' \r\n<!DOCTYPE  HTML>', '<!doctype html'])
    for (const kind of ['icon', 'readme'] as const)
      await t.throwsAsync(verified(kind, content), { message: 'it is a web page' }, content);
  for (const content of ['# About <html>', '', `${' '.repeat(200)}<html>`])
    t.deepEqual(await verified('readme', content), {});
  t.deepEqual(await verified('nuspec', makeNuspec({ id: 'LIB', version: '1.0-A' })), {});
  await t.throwsAsync(verified('nuspec', makeNuspec({ id: 'Other', version: '1.0-A' })), {
    message: 'it is Other 1.0.0-A',
  });
  await t.throwsAsync(verified('nuspec', makeNuspec({ id: 'Lib', version: '1.0' })), { message: 'it is Lib 1.0.0' });
});

const published = (attributes: Record<string, string>, lastModified: string | null = null) =>
  publishedOf({ attributes, lastModified });

test('when a stored package was published: what the upstream said, else the earliest time by which it was', (t) => {
  const modified = 'Tue, 02 Jan 2024 03:04:05 GMT';
  const at = Date.UTC(2024, 0, 2, 3, 4, 5);
  t.deepEqual(
    [
      published({}),
      published({}, 'never'),
      published({}, modified),
      published({ publishedBy: '5' }),
      published({ publishedBy: '5' }, modified),
      published({ publishedBy: String(at + 1) }, modified),
      published({ publishedAt: '7', publishedBy: '5' }, modified),
    ],
    [undefined, undefined, at, 5, 5, at, 7],
  );
});
