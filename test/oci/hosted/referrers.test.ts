import test, { type ExecutionContext } from 'ava';
import { mediaTypes, type Descriptor } from '../../../src/oci/format/manifest.ts';
import { pageOf, Referrers, type ReferrersQuery } from '../../../src/oci/hosted/referrers.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

const subject = digestOf('subject');
const digestAt = (at: number) => `sha256:${String(at).padStart(64, '0')}` as Digest;

interface Row {
  at: number;
  type?: string;
  annotations?: string;
  subject?: Digest;
}

/** A repository with these manifests, and an index with the others under the fallback tag. */
async function listerOf(t: ExecutionContext, rows: readonly Row[], fallback?: readonly (number | Descriptor)[]) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    await tx.run(
      `INSERT INTO repositories (id, account_id, name, created_at, updated_at) VALUES (5, 1, 'app', 0, 0)`,
      [],
    );
    for (const { at, type, annotations, subject: own = subject } of rows)
      await tx.run(
        `INSERT INTO manifests (repository_id, digest, media_type, artifact_type, subject, annotations, size_bytes,
           image_bytes, pushed_at) VALUES (5, ?, ?, ?, ?, ?, 7, 7, 0)`,
        [digestAt(at), mediaTypes.image, type ?? null, own, annotations ?? null],
      );
  });
  const entries = (fallback ?? []).map((each) =>
    typeof each === 'number' ? { mediaType: mediaTypes.image, digest: digestAt(each), size: 9 } : each,
  );
  const index = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.index, manifests: entries }));
  const reads = { tags: [] as unknown[], open: 0 };
  const manifests = {
    open: (_account: number, _name: string, reference: { tag: string }) => {
      reads.tags.push(reference.tag);
      if (!fallback) return Promise.reject(new DomainError('ManifestUnknown', 'no such tag'));
      reads.open += 1;
      const content = { ...contentOf(index), close: () => (reads.open -= 1) };
      return Promise.resolve({ content, digest: digestOf(index), mediaType: mediaTypes.index });
    },
  };
  const referrers = new Referrers(database, manifests as never);
  const list = async (query: Partial<ReferrersQuery> = {}, name = 'app', account = 1) => {
    const found = await referrers.list(account, name, subject, { limit: 1000, last: '', ...query });
    return { ...found, at: found.descriptors.map(({ digest }) => Number(digest.slice('sha256:'.length))) };
  };
  return { list, reads };
}

const numbers = (count: number) => Array.from({ length: count }, (_, index) => index + 1);

test('referrers are listed in the order of their digests, page by page, with all they say', async (t) => {
  const long = JSON.stringify({ text: 'x'.repeat(20_000) });
  const rows = numbers(70).map((at) => ({ at, ...(at === 33 && { type: 'sbom', annotations: long }) }));
  const { list } = await listerOf(t, [...rows.toReversed(), { at: 99, subject: digestOf('other') }]);
  const all = await list();
  t.deepEqual([all.at, all.next], [numbers(70), undefined]);
  t.deepEqual(all.descriptors[32], {
    mediaType: mediaTypes.image,
    digest: digestAt(33),
    size: 7,
    artifactType: 'sbom',
    annotations: JSON.parse(long) as Record<string, string>,
  });
  t.deepEqual(all.descriptors[0], { mediaType: mediaTypes.image, digest: digestAt(1), size: 7 });
  const page = await list({ limit: 3, last: digestAt(31) });
  t.deepEqual([page.at, page.next], [[32, 33, 34], digestAt(34)]);
  t.deepEqual((await list({ artifactType: 'sbom' })).at, [33]);
  t.deepEqual((await list({ limit: 70 })).next, undefined);
  for (const [name, account] of [
    ['other', 1],
    ['app', 2],
  ] as const)
    t.deepEqual((await list({}, name, account)).descriptors, []);
});

test('what a client listed under the fallback tag is added if it is stored, each digest once', async (t) => {
  const elsewhere = digestOf('other');
  const rows = [
    { at: 2 },
    { at: 4, annotations: '{"a":"row"}' },
    ...[1, 3, 9].map((at) => ({ at, subject: elsewhere })),
  ];
  const typed = {
    mediaType: mediaTypes.image,
    digest: digestAt(9),
    size: 9,
    artifactType: 'sbom',
    annotations: { b: 'c' },
  };
  const { list, reads } = await listerOf(t, rows, [typed, 4, 3, 1, 7]);
  const all = await list();
  t.deepEqual(all.at, [1, 2, 3, 4, 9]);
  t.deepEqual(all.descriptors[3]!.annotations, { a: 'row' });
  t.deepEqual(all.descriptors[4], typed);
  t.deepEqual((await list({ last: digestAt(2) })).at, [3, 4, 9]);
  t.deepEqual((await list({ artifactType: 'sbom' })).at, [9]);
  t.is(reads.open, 0);
  t.is(reads.tags[0], subject.replace(':', '-'));
});

test('a page has at most 4 MiB, and always one entry', async (t) => {
  const large = (at: number, bytes: number): Descriptor => ({
    mediaType: mediaTypes.image,
    digest: digestAt(at),
    size: 1,
    annotations: { text: 'x'.repeat(bytes) },
  });
  const three = [1, 2, 3].map((at) => large(at, 1.9 * 2 ** 20));
  const page = await pageOf(three, 10);
  t.deepEqual([page.descriptors.length, page.next], [2, digestAt(2)]);
  const huge = await pageOf([large(1, 5 * 2 ** 20), large(2, 1)], 10);
  t.deepEqual([huge.descriptors, huge.next], [[{ ...large(1, 0), annotations: {} }], digestAt(1)]);
  t.deepEqual(await pageOf([], 10), { descriptors: [], next: undefined });
});
