import test from 'ava';
import { collectEntries, type BundleMirror } from '../../src/bundle/collect.ts';
import type { BundleEntry } from '../../src/bundle/format.ts';
import { record } from '../../src/history/history.ts';
import type { EntryKey, EntryMetadata } from '../../src/mirror/store/entries.ts';
import type { NeededEntry } from '../../src/prefetch/report.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What a bundle says of the entries of the mirror.

const digest = digestOf('content');

function neededOf(
  upstream: string,
  kind: string,
  reference: string,
  changes: Partial<EntryMetadata> = {},
): NeededEntry {
  const metadata: EntryMetadata = {
    digest,
    size: 7,
    type: 'text/plain',
    etag: '"e"',
    lastModified: 'then',
    attributes: { of: kind },
    storedAt: 1,
    validatedAt: 2,
    ...changes,
  };
  return { key: { upstream, kind, name: 'app', reference }, metadata };
}

async function* none(): AsyncGenerator<BundleEntry> {}

test('entries are in a fixed order, each once, with what is known of them here', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const owner = { accountId: 0, upstream: 'one', name: 'app' };
  const seen = (kind: 'tag' | 'manifest', reference: string) => ({ kind, reference, digest });
  await database.transaction((tx) => record(tx, owner, [seen('tag', 'v1'), seen('manifest', digest)], 50));
  await database.transaction((tx) => record(tx, owner, [seen('tag', 'v2')], 60));
  const second = digestOf('second');
  await database.transaction((tx) =>
    record(
      tx,
      { ...owner, upstream: 'three' },
      [
        { kind: 'tag', reference: 'v9', digest: second },
        { kind: 'manifest', reference: second, digest: second },
      ],
      70,
    ),
  );
  const upstreams = [
    { id: 'one', name: 'up.test', config: { kind: 'oci' } },
    { id: 'two', name: 'up.test', config: { kind: 'nuget' } },
    { id: 'three', name: 'same.test', config: { kind: 'oci' } },
    { id: 'four', name: 'same.test', config: { kind: 'oci' } },
  ] as unknown as BundleMirror['upstreams'];
  const described: unknown[] = [];
  const describe: BundleMirror['describe'] = ({ id }, key, attributes) => {
    described.push([id, key.kind, attributes]);
    if (key.kind === 'unknown') return undefined;
    if (key.kind !== 'manifest') return { key: { upstream: id, ...key }, limit: 1, lifetime: 'immutable' };
    return {
      key: { upstream: id, ...key },
      limit: 1,
      lifetime: 'immutable',
      history: (metadata: EntryMetadata) => [
        { kind: 'tag', reference: key.reference, digest: metadata.digest },
        { kind: 'manifest', reference: metadata.digest, digest: metadata.digest },
      ],
      aliases: (metadata: EntryMetadata): EntryKey[] => [{ ...key, upstream: id, reference: metadata.digest }],
    };
  };
  const withdrawals = {
    of: async ({ kind }: EntryKey) =>
      kind === 'manifest'
        ? [
            { reference: 'v2', missingAt: 3, withdrawnAt: null, more: true },
            { reference: 'v3', missingAt: 4, withdrawnAt: 5 },
          ]
        : [],
  };
  const mirror = { database, upstreams, describe, withdrawals } as unknown as BundleMirror;
  const needed = [
    neededOf('two', 'blob', 'b'),
    neededOf('one', 'manifest', 'v2'),
    neededOf('none', 'blob', 'b'),
    neededOf('one', 'unknown', 'b'),
    neededOf('one', 'manifest', digest, { etag: 'own', validatedAt: 9 }),
    neededOf('one', 'manifest', 'v1', { validatedAt: 8 }),
    neededOf('four', 'blob', 'b', { etag: null, lastModified: null }),
  ];
  const found = await collectEntries(mirror, needed, none());
  const entry = (protocol: string, upstream: string, kind: string, reference: string) => ({
    protocol,
    upstream,
    kind,
    name: 'app',
    reference,
    digest,
    size: 7,
    type: 'text/plain',
    etag: '"e"' as string | null,
    modified: 'then' as string | null,
    attributes: { of: kind },
    validated_at: 2,
    seen: [] as object[],
  });
  const tag = (reference: string, seenAt: number) => ({ kind: 'tag', reference, digest, seenAt });
  const line = { kind: 'manifest', reference: digest, digest, seenAt: 50 };
  t.deepEqual(found as object[], [
    { ...entry('nuget', 'up.test', 'blob', 'b') },
    { ...entry('oci', 'four', 'blob', 'b'), etag: null, modified: null },
    // What was asked for by itself, not as another name of a tag.
    { ...entry('oci', 'up.test', 'manifest', digest), etag: 'own', validated_at: 9, seen: [line] },
    { ...entry('oci', 'up.test', 'manifest', 'v1'), validated_at: 8, seen: [tag('v1', 50), line] },
    {
      ...entry('oci', 'up.test', 'manifest', 'v2'),
      seen: [tag('v2', 60), line],
      withdrawn: { missingAt: 3, withdrawnAt: null },
    },
  ]);
  t.deepEqual(described[0], ['two', 'blob', { of: 'blob' }]);
  t.is(described.length, 6, 'not for an upstream that is not here');

  const aliased = await collectEntries(mirror, [neededOf('three', 'manifest', 'v9', { digest: second })], none());
  const lineOf = (kind: string, reference: string) => ({ kind, reference, digest: second, seenAt: 70 });
  t.deepEqual(
    aliased.map(({ reference, seen: lines }) => [reference, lines as object[]]),
    [
      [second, [lineOf('manifest', second)]],
      ['v9', [lineOf('tag', 'v9'), lineOf('manifest', second)]],
    ],
    'another name has only the lines of itself',
  );

  const hosted = { ...entry('oci', '', 'manifest', 'v1'), account: 'team' };
  const both = await collectEntries(
    mirror,
    [neededOf('one', 'blob', 'b')],
    (async function* () {
      yield hosted as BundleEntry;
      yield { ...hosted, reference: 'v0' } as BundleEntry;
      yield { ...hosted, size: 8 } as BundleEntry;
    })(),
  );
  t.deepEqual(
    both.map(({ account, reference, size }) => [account, reference, size]),
    [
      ['team', 'v0', 7],
      ['team', 'v1', 8],
      [undefined, 'b', 7],
    ],
  );
});
