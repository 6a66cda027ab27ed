import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { Bundles } from '../../src/bundle/bundles.ts';
import { createBundle } from '../../src/bundle/create.ts';
import { newKeyPair, readSigningKey } from '../../src/bundle/keys.ts';
import { layoutOf } from '../../src/bundle/layout.ts';
import { planSegments } from '../../src/bundle/plan.ts';
import { openBundle } from '../../src/bundle/read.ts';
import type { NeededEntry } from '../../src/prefetch/report.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import type { BlobStore } from '../../src/storage/blobs/blob-store.ts';
import { contentOf } from '../../src/storage/files/content.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { bundleEntry } from '../support/bundles.ts';
import { folderUntilEnd } from '../support/folder.ts';

// How a bundle is made of what is stored, without a server.

const source = '99999999-9999-4999-8999-999999999999';
const start = Date.UTC(2031, 0, 1);
const { signal } = new AbortController();

type Options = Parameters<typeof createBundle>[1];

function neededOf(kind: string, text: string): NeededEntry {
  return {
    key: { upstream: 'up', kind, name: 'app', reference: text },
    metadata: {
      digest: digestOf(text),
      size: text.length,
      type: 'text/plain',
      etag: null,
      lastModified: null,
      attributes: {},
      storedAt: 1,
      validatedAt: 2,
    },
  };
}

const needed = [
  neededOf('nupkg', 'a package'),
  neededOf('manifest', 'a manifest'),
  neededOf('blob', 'a layer'),
  neededOf('blob', 'known'),
  neededOf('tags', 'known, too'),
];
const sent = 9 + 10 + 7;

async function setUp(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    await tx.run('DELETE FROM storage_identity');
    await tx.insertNew('storage_identity', [{ id: 1, identity: source, state: 'paired' }]);
  });
  const clock = { now: start };
  const texts = new Map(needed.map(({ key, metadata }) => [metadata.digest, key.reference]));
  const told: unknown[] = [];
  const parts = {
    database,
    now: () => clock.now,
    upstreams: [{ id: 'up', name: 'up.test', config: { kind: 'oci' } }],
    describe: ({ id }: { id: string }, key: object) => ({ key: { upstream: id, ...key }, lifetime: 'immutable' }),
    withdrawals: { of: async () => [] },
    accounts: { named: async () => undefined },
    protocols: [],
    blobs: {
      open: async (digest: Digest) => {
        told.push('opened');
        return contentOf(Buffer.from(texts.get(digest)!));
      },
    },
  } as unknown as Parameters<typeof createBundle>[0];
  const folder = join(await folderUntilEnd(t), 'bundle');
  const create = (options: Partial<Options> = {}) =>
    createBundle(parts, {
      folder,
      needed,
      dryRun: false,
      watch: (bytes, of) => void told.push([bytes, of]),
      admit: async (bytes) => void told.push(`room for ${bytes}`),
      signal,
      ...options,
    });
  const recorded = async () => {
    const rows = await database.select<{ type: string; name: string; details: string; at: number }>(
      'SELECT type, subject_name AS name, details, time AS at FROM events ORDER BY id',
    );
    return rows.map(({ details, ...row }) => ({ ...row, details: JSON.parse(details) as object }));
  };
  return { database, parts, clock, told, folder, create, recorded, bundles: new Bundles(database, () => clock.now) };
}

const base = { id: digestOf('receipt'), digests: new Set([digestOf('known'), digestOf('known, too')]) };

test('a bundle says what it is made of, and is recorded', async (t) => {
  const { told, clock, folder, create, recorded, bundles } = await setUp(t);
  const key = readSigningKey(newKeyPair().privateKey, 'own.key');
  const audience = '11111111-1111-4111-8111-111111111111';
  const knownBad = [
    { list: 'one', record: { id: 'M-1' } },
    { list: 'one', record: { id: 'M-2' } },
    { list: 'two', record: { id: 'M-3' } },
  ];
  const options = { key, base, audience, validFor: 1000, policy: '{}', newKey: 'a statement', knownBad };
  const counts = {
    packages: { count: 1, bytes: 9 },
    manifests: { count: 1, bytes: 10 },
    layers: { count: 2, bytes: 12 },
    documents: { count: 1, bytes: 10 },
  };
  const header = {
    format: 'entrepot-bundle',
    version: 1,
    source,
    audience,
    created_at: start,
    sequence: start,
    expires_at: start + 1000,
    against: base.id,
    segments: 1,
    blob_count: 5,
    entry_count: 5,
    bytes: sent,
    policy: '{}',
    new_key: 'a statement',
    known_bad: [
      { name: 'one', records: 2 },
      { name: 'two', records: 1 },
    ],
  };
  const dry = await create({ ...options, dryRun: true });
  const left = { count: 2, bytes: 15 };
  t.deepEqual(dry as object, { id: dry.id, header, counts, base: left });
  await t.throwsAsync(readdir(folder), { code: 'ENOENT' });
  t.deepEqual(told, []);
  t.deepEqual(await recorded(), []);
  t.is(await bundles.find('made', dry.id), undefined);

  const made = await create(options);
  t.deepEqual(made, dry);
  t.is(told.shift(), `room for ${sent}`);
  t.deepEqual(told.at(-1), [sent, sent]);
  t.deepEqual(await readdir(folder), ['0001.tar']);
  t.like(await bundles.find('made', made.id), {
    direction: 'made',
    source,
    sequence: start,
    state: 'complete',
    summary: { ...counts, segments: 1, bytes: sent, against: base.id, key: key.id, knownBad: header.known_bad },
    createdAt: start,
    changedAt: start,
  });
  const event = { type: 'bundle.created', name: made.id as string, at: start };
  const details = { segments: 1, bytes: sent, against: base.id as string | null, key: key.id as string | null };
  t.deepEqual(await recorded(), [{ ...event, details }]);
  {
    await using bundle = await openBundle([folder]);
    t.deepEqual(bundle.list.header as object, header);
    t.deepEqual(bundle.list.knownBad as object[], knownBad);
    t.is(bundle.envelope.signatures.length, 1);
    t.deepEqual(bundle.list.blobs.map((each) => `${'base' in each} ${each.size}`).toSorted(), [
      'false 10',
      'false 7',
      'false 9',
      'true 10',
      'true 5',
    ]);
  }

  const plain = await create({ folder: `${folder}2` });
  const { new_key: _, known_bad: __, ...few } = header;
  t.deepEqual(plain.header as object, {
    ...few,
    audience: null,
    expires_at: null,
    against: null,
    policy: null,
    bytes: sent + 15,
    sequence: start + 1,
  });
  t.deepEqual(plain.base, { count: 0, bytes: 0 });
  t.deepEqual((await recorded())[1]!.details, { ...details, bytes: sent + 15, against: null, key: null });
  clock.now = start + 5000;
  t.is((await create({ dryRun: true })).header.sequence, start + 5000);
  clock.now = 1000;
  t.is((await create({ dryRun: true })).header.sequence, start + 2, 'also after the clock was set back');
});

test('a bundle that was begun goes on if it would be the same', async (t) => {
  const { clock, folder, create, recorded } = await setUp(t);
  const options = { base, validFor: 60_000 };
  await t.throwsAsync(create({ ...options, signal: AbortSignal.abort() }), { name: 'AbortError' });
  t.true((await readdir(folder)).includes('bundle.json.part'));
  t.deepEqual(await recorded(), []);
  clock.now += 30_000;
  const changed: Partial<Options>[] = [
    { audience: source },
    { validFor: 60_001 },
    { validFor: undefined },
    { base: { ...base, id: digestOf('another') } },
    { base: { ...base, digests: new Set([digestOf('known')]) } },
    { base: undefined },
    { policy: '{}' },
    { newKey: 'a statement' },
    { knownBad: [{ list: 'one', record: { id: 'M-1' } }] },
    { needed: needed.slice(1) },
    { needed: [...needed.slice(1), { ...needed[0]!, key: { ...needed[0]!.key, name: 'other' } }] },
    { needed: [...needed.slice(1), { ...needed[0]!, key: { ...needed[0]!.key, kind: 'blob' } }] },
    { needed: [...needed.slice(1), { ...needed[0]!, key: { ...needed[0]!.key, reference: 'x' } }] },
  ];
  for (const each of changed)
    await t.throwsAsync(
      create({ ...options, ...each }),
      {
        name: 'Invalid',
        message:
          'the folder has a part of another bundle, whose content has changed since. Delete the part, or name a new folder',
      },
      JSON.stringify(each),
    );
  clock.now = start + 60_000;
  await t.throwsAsync(create(options), {
    name: 'Invalid',
    message: `${folder}: the bundle that was begun there was valid until ${new Date(start + 60_000).toISOString()}. Delete the part, or name a new folder`,
  });
  clock.now -= 1;
  const { header, id } = await create(options);
  t.deepEqual([header.created_at, header.sequence, header.expires_at], [start, start, start + 60_000]);
  t.deepEqual(await readdir(folder), ['0001.tar']);
  t.is((await recorded())[0]!.name, id);
  t.is((await recorded())[0]!.at, start + 59_999);
});

test('a segment has room for the list, for what makes it a layout, and for some content', async (t) => {
  const entries = Array.from({ length: 50 }, (_, at) => {
    const of = { protocol: 'nuget', kind: 'nupkg', name: `lib${at}`, reference: '1.0.0' };
    return bundleEntry({ ...of, digest: digestOf(String(at)), type: 'é' });
  });
  const contents = entries.map(({ digest, size }) => ({ digest, size }));
  const knownBad = [{ list: 'one', record: { id: 'é' } }];
  const lines = [...entries, ...knownBad].reduce((sum, each) => sum + Buffer.byteLength(JSON.stringify(each)) + 2, 0);
  let members = 0;
  // Each has a header, and is filled up to whole blocks.
  for await (const { size } of layoutOf(entries, () => true)) members += size + 2 * 512;
  const least = 128 * 1024 + lines + 320 * contents.length + members + 512 * 1024;
  const plan = (limit: number) =>
    planSegments({} as BlobStore, contents, entries, { knownBad, limit, base: new Set() });
  t.is((await plan(least)).segments, 1);
  await t.throwsAsync(plan(least - 1), {
    name: 'Invalid',
    message: `a segment needs at least ${Math.ceil(least / 2 ** 20)} MiB for this bundle, because each has the list of all content`,
  });
});
