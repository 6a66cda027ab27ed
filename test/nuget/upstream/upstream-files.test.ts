import test from 'ava';
import {
  nupkgEntry,
  packageSubject,
  sidecarEntry,
  type StatedVersion,
} from '../../../src/nuget/upstream/upstream-files.ts';
import { digestOf, hexOf } from '../../../src/runtime/digest.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { makeNupkg, type NupkgOptions } from '../../support/builders/nupkg.ts';

const times = { freshFor: 1, staleFor: 2, negativeFor: 3, timeout: 4 };
const upstream = { id: 'one', name: 'one.test', config: { ...times, kind: 'nuget' } } as unknown as Upstream;

const staged = (bytes: Buffer) => ({
  digest: async (algorithm: 'sha256' | 'sha512' = 'sha256') => digestOf(bytes, algorithm),
  open: async () => contentOf(bytes),
  bytes: async () => bytes,
});

/** The entry of a nupkg at an upstream, and what is stored of it. */
async function verified(bytes: Buffer, stated: StatedVersion = {}, version = '1.0.0-rc') {
  const entry = nupkgEntry(upstream, 'lib', version, 99, async () => stated);
  return { entry, attributes: await entry.verify(staged(bytes) as never) };
}

const made = (more: NupkgOptions = {}) => makeNupkg({ id: 'LIB', version: '1.0-RC', payloadBytes: 0, ...more });
const sha512 = (bytes: Buffer) => Buffer.from(hexOf(digestOf(bytes, 'sha512')), 'hex').toString('base64');

test('what is stored of a nupkg: its names as it writes them, its hash, and when it was published', async (t) => {
  const bytes = await made();
  const { entry, attributes } = await verified(bytes);
  const { history: _history, verify: _verify, ...described } = entry;
  t.deepEqual(described as object, {
    key: { upstream: 'one', kind: 'nupkg', name: 'lib', reference: '1.0.0-rc' },
    lifetime: 'immutable',
    negativeFor: 3,
    idle: 4,
    upstreamName: 'one.test',
    upstreamKind: 'nuget',
    limit: 99,
    algorithms: ['sha512'],
  });
  const known = { id: 'LIB', version: '1.0.0-RC', type: 'Dependency', sha512: sha512(bytes) };
  t.deepEqual(attributes, known);
  const tool = await made({ packageTypes: [{ name: 'DotnetTool' }, { name: 'Other' }] });
  t.is((await verified(tool)).attributes['type'], 'DotnetTool');
  for (const [stated, dates] of [
    [{ publishedAt: 0 }, { publishedAt: '0' }],
    [{ publishedBy: 0 }, { publishedBy: '0' }],
    [
      { publishedAt: 5, publishedBy: 7, sha512: known.sha512 },
      { publishedAt: '5', publishedBy: '7' },
    ],
  ] as const)
    t.deepEqual((await verified(bytes, stated)).attributes, { ...known, ...dates });
});

test('a nupkg is refused that is another one, or has another hash than the registration says', async (t) => {
  const bytes = await made();
  await t.throwsAsync(verified(bytes, { sha512: 'abc=' }), {
    message: `its SHA-512 is ${sha512(bytes)}, and the registration says abc=`,
  });
  await t.throwsAsync(verified(await made({ id: 'Other' })), { message: 'it is Other 1.0.0-RC' });
  await t.throwsAsync(verified(bytes, {}, '1.0.0'), { message: 'it is LIB 1.0.0-RC' });
  await t.throwsAsync(verified(Buffer.from('<html>')), { name: 'PackageInvalid' });
  const failed = new Error('it failed');
  const entry = nupkgEntry(upstream, 'lib', '1.0.0-rc', 99, () => Promise.reject(failed));
  await t.throwsAsync(entry.verify(staged(bytes) as never), { is: failed });
});

const seen = (entry: ReturnType<typeof nupkgEntry>, bytes: Buffer) =>
  entry.history({ digest: digestOf(bytes) } as never);

test('the history has the digest of a nupkg, and of the files in it, which a signature does not change', async (t) => {
  const [plain, signed] = [await made(), await made({ files: { '.signature.p7s': 'a signature' } })];
  const unread = nupkgEntry(upstream, 'lib', '1.0.0-rc', 99, async () => ({}));
  t.deepEqual(seen(unread, plain), [{ kind: 'version', reference: '1.0.0-rc', digest: digestOf(plain) }]);
  const [one, other] = [await verified(plain), await verified(signed)];
  const [{ files, ...reference }] = seen(one.entry, plain) as unknown as [
    { files: { digest: string; subject: string; from: string } },
  ];
  t.deepEqual(reference as Record<string, unknown>, {
    kind: 'version',
    reference: '1.0.0-rc',
    digest: digestOf(plain),
  });
  t.deepEqual([files.subject, files.from], ['package', 'one.test']);
  t.true(files.digest !== digestOf(plain));
  t.like(seen(other.entry, signed)[0], { files });
});

test('a file beside a nupkg is an entry of its kind', (t) => {
  const { verify: _verify, ...described } = sidecarEntry(upstream, 'lib', '1.0.0', 'readme');
  t.deepEqual(described as object, {
    key: { upstream: 'one', kind: 'readme', name: 'lib', reference: '1.0.0' },
    lifetime: 'immutable',
    negativeFor: 3,
    idle: 4,
    upstreamName: 'one.test',
    upstreamKind: 'nuget',
    limit: 2 ** 20,
    whole: true,
  });
  t.is(packageSubject('lib'), 'package lib');
});
