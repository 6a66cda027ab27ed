import test from 'ava';
import type { BundleBlob, BundleEntry } from '../../src/bundle/format.ts';
import { mirrorWith } from '../../src/bundle/overlay.ts';
import type { OpenBundle } from '../../src/bundle/read.ts';
import type { EntryKey } from '../../src/mirror/store/entries.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { contentOf, readAll } from '../../src/storage/files/content.ts';
import { bundleEntry } from '../support/bundles.ts';

// What is read of a bundle and of the mirror beside it. verify.test.ts has what follows from it.

const sent = digestOf('sent');
const counted = digestOf('counted on');
const lost = digestOf('lost');

function entryOf(kind: string, name: string, reference: string, changes: Partial<BundleEntry> = {}): BundleEntry {
  return bundleEntry({
    kind,
    name,
    reference,
    digest: sent,
    size: 4,
    etag: '"e"',
    modified: 'then',
    attributes: { a: 'b' },
    validated_at: 70,
    ...changes,
  });
}

const keyOf = (kind: string, name: string, reference: string): EntryKey => ({
  upstream: 'id-1',
  kind,
  name,
  reference,
});
const nameOf = (kind: string, name: string) => ({ upstream: 'id-1', kind, name });

const entries = [
  entryOf('manifest', 'app', 'v2'),
  entryOf('manifest', 'app', sent, { withdrawn: { missingAt: 1, withdrawnAt: null } }),
  entryOf('manifest', 'app', 'v1', { withdrawn: { missingAt: 2, withdrawnAt: 3 } }),
  entryOf('manifest', 'app', 'v3', { digest: counted, size: 10 }),
  entryOf('manifest', 'other', 'v4'),
  entryOf('blob', 'app', sent),
  entryOf('blob', 'app', lost, { digest: lost }),
  entryOf('manifest', 'app', 'v5', { upstream: 'unknown.test' }),
  entryOf('manifest', 'app', 'v6', { protocol: 'nuget' }),
];
const blobs: BundleBlob[] = [
  { digest: sent, size: 4, segment: 1 },
  { digest: counted, size: 10, base: true },
  { digest: lost, size: 4, base: true },
];

function setUp() {
  const asked: unknown[] = [];
  const failure: { of: Error | undefined } = { of: undefined };
  const elsewhere: { of: ((name: object) => object[]) | undefined } = { of: undefined };
  const mirror = {
    withdrawals: {
      with: (of: (name: object) => object[]) => {
        elsewhere.of = of;
        return 'both';
      },
    },
    openStored: async (resource: object) => {
      asked.push(resource);
      return JSON.stringify(resource).includes('here') ? 'stored entry' : undefined;
    },
    stored: async ({ reference }: EntryKey) => `stored ${reference}`,
    references: async (...given: unknown[]) => {
      asked.push(given);
      return ['a', 'v2', 'z'];
    },
    referencesOf: async (...given: unknown[]) => {
      asked.push(given);
      return ['z', 'v2'];
    },
    among: async (...given: unknown[]) => {
      asked.push(given);
      return new Set(['z']);
    },
    latest: async (...given: unknown[]) => {
      asked.push(given);
      return ['z', 'a'];
    },
    writeUses: () => Promise.reject(new Error('it writes')),
    remove: () => Promise.reject(new Error('it removes')),
  };
  const open = async (digest: Digest, size: number) => {
    asked.push(`blob ${size}`);
    if (failure.of) throw failure.of;
    if (digest === counted) return contentOf(Buffer.from('counted on'));
    throw new DomainError('BlobUnknown', 'it is gone');
  };
  const bundle = {
    list: { entries, blobs },
    open: async (blob: BundleBlob) =>
      'segment' in blob ? { content: contentOf(Buffer.from('sent')), place: '0001.tar' } : undefined,
  } as unknown as OpenBundle;
  const upstreams = [{ id: 'id-1', name: 'up.test', config: { kind: 'oci' } }];
  const parts = { mirror, blobs: { open }, upstreams } as unknown as Parameters<typeof mirrorWith>[0];
  const overlay = mirrorWith(parts, bundle);
  const read = async (key: EntryKey) => {
    const found = await overlay.openStored({ key, lifetime: 'immutable' });
    if (!found || typeof found === 'string') return found;
    const { content, complete, ...more } = found;
    return { ...more, text: String(await readAll(content, 100)), complete: await complete };
  };
  return { overlay, asked, failure, elsewhere, read };
}

const metadata = {
  digest: sent,
  size: 4,
  type: 'text/plain',
  etag: '"e"',
  lastModified: 'then',
  attributes: { a: 'b' },
  storedAt: 70,
  validatedAt: 70,
};
const hit = { outcome: 'hit', type: 'text/plain', size: 4, metadata, text: 'sent', complete: metadata };

test('content is that of the bundle, then what it counts on, then what is stored', async (t) => {
  const { overlay, asked, failure, read } = setUp();
  t.deepEqual((await read(keyOf('manifest', 'app', 'v2'))) as object, hit);
  t.deepEqual(asked, []);
  const other = { ...metadata, digest: counted, size: 10 };
  t.deepEqual((await read(keyOf('manifest', 'app', 'v3'))) as object, {
    ...hit,
    size: 10,
    metadata: other,
    text: 'counted on',
    complete: other,
  });
  t.deepEqual(asked.splice(0), ['blob 10']);
  const gone = keyOf('blob', 'app', lost);
  t.is(await read(gone), undefined);
  failure.of = new DomainError('ContentDamaged', 'it is damaged');
  t.is(await read(gone), undefined);
  t.deepEqual(asked.splice(0), [
    'blob 4',
    { key: gone, lifetime: 'immutable' },
    'blob 4',
    { key: gone, lifetime: 'immutable' },
  ]);
  for (const error of [new DomainError('StorageFull', 'no room'), new Error('broken')]) {
    failure.of = error;
    t.is(await t.throwsAsync(read(gone)), error);
  }
  const resource = { key: keyOf('manifest', 'app', 'here') } as Parameters<typeof overlay.open>[0];
  const stored: unknown[] = [
    await read(keyOf('manifest', 'app', 'here')),
    await read(keyOf('manifest', 'here', 'v2')),
    await overlay.open(resource),
  ];
  t.deepEqual(stored, ['stored entry', 'stored entry', 'stored entry']);
  const found = await overlay.open({ ...resource, key: keyOf('blob', 'app', sent) });
  t.is(found?.size, 4);
  await t.throwsAsync(overlay.open({ ...resource, key: keyOf('manifest', 'app', 'v5') }), {
    name: 'UpstreamUnavailable',
    message: 'It is neither in the bundle nor stored here.',
  });
});

test('references are those of the bundle and those that are stored', async (t) => {
  const { overlay, asked, elsewhere } = setUp();
  const app = nameOf('manifest', 'app');
  t.deepEqual(await overlay.references(app, 9), ['a', sent, 'v1', 'v2', 'v3', 'z']);
  t.deepEqual(await overlay.references(app, 3), ['a', sent, 'v1']);
  t.deepEqual(await overlay.references(app, 9, 'v1'), ['a', 'v2', 'v3', 'z']);
  t.deepEqual(await overlay.references(nameOf('manifest', 'none'), 9), ['a', 'v2', 'z']);
  t.deepEqual(asked.splice(0, 3), [
    [app, 9, undefined],
    [app, 3, undefined],
    [app, 9, 'v1'],
  ]);
  asked.length = 0;
  t.deepEqual(await overlay.referencesOf(app, sent), ['v1', 'v2', 'z'], 'tags only');
  t.deepEqual(await overlay.referencesOf(app, counted), ['v2', 'v3', 'z']);
  t.deepEqual(await overlay.among(app, ['v1', 'v5', 'none']), new Set(['z', 'v1']));
  t.deepEqual(await overlay.latest(app, 3), ['a', sent, 'v1']);
  t.deepEqual(await overlay.latest(nameOf('manifest', 'other'), 9), ['a', 'v4', 'z']);
  t.deepEqual(asked, [
    [app, sent],
    [app, counted],
    [app, ['v1', 'v5', 'none']],
    [app, 3],
    [nameOf('manifest', 'other'), 9],
  ]);
  const told: unknown[] = [
    await overlay.stored(keyOf('manifest', 'app', 'x')),
    await overlay.stored(keyOf('manifest', 'app', 'v2')),
    overlay.withdrawals,
  ];
  t.deepEqual(told, ['stored x', metadata, 'both']);
  t.deepEqual(elsewhere.of!(app), [
    { reference: sent, missingAt: 1, withdrawnAt: null },
    { reference: 'v1', missingAt: 2, withdrawnAt: 3 },
  ]);
  t.deepEqual(elsewhere.of!(nameOf('manifest', 'none')), []);
  t.is(await overlay.writeUses(), undefined);
  t.is(await overlay.remove(keyOf('manifest', 'app', 'v2')), false);
});
