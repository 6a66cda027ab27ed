import test, { type ExecutionContext } from 'ava';
import { Bundles, type BundleRecord, type BundleSummary } from '../../src/bundle/bundles.ts';
import { baseMissing, examineBundle, refuseImport, refuseOvertaken, signerOfBundle } from '../../src/bundle/examine.ts';
import type { BundleBlob, BundleEntry, BundleHeader } from '../../src/bundle/format.ts';
import type { OpenBundle } from '../../src/bundle/read.ts';
import type { TrustedKey } from '../../src/bundle/trust.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { installationIdentity } from '../../src/storage/upkeep/identity.ts';
import { mirrorEntry } from '../support/builders/mirror-entry.ts';
import { bundleEntry, headerOf } from '../support/bundles.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What an import refuses before it reads content, without servers. refused.test.ts has the commands.

const now = Date.UTC(2031, 0, 1);
const key = { id: 'k', name: 'near' } as TrustedKey;
const [a, b, c] = [digestOf('a'), digestOf('b'), digestOf('c')];

function entryOf(changes: Partial<BundleEntry> = {}): BundleEntry {
  return bundleEntry({ digest: a, attributes: { from: 'here' }, ...changes });
}

interface Given {
  header?: Partial<BundleHeader>;
  entries?: BundleEntry[];
  blobs?: BundleBlob[];
  isPlain?: boolean;
}

function bundleOf({ header = {}, entries = [], blobs = [], isPlain = false }: Given): OpenBundle {
  const counts = { segments: 1, blob_count: blobs.length, entry_count: entries.length, bytes: 3 };
  const list = { header: { ...headerOf(counts), created_at: now - 1000, ...header }, entries, blobs };
  return { id: digestOf('id'), list, isPlain, envelope: 'the envelope' } as unknown as OpenBundle;
}

async function open(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const identity = '99999999-9999-4999-8999-999999999999';
  await database.transaction(async (tx) => {
    await tx.run('DELETE FROM storage_identity');
    await tx.insertNew('storage_identity', [{ id: 1, identity, state: 'paired' }]);
  });
  const asked: unknown[] = [];
  const among = async (accountId: number, digests: readonly Digest[]) => {
    asked.push([accountId, digests.length]);
    return new Set<string>(digests);
  };
  const signed = Promise.withResolvers<TrustedKey | undefined>();
  signed.resolve(key);
  const parts = {
    database,
    now: () => now,
    trust: {
      signerOfBundle: async (...given: unknown[]) => {
        asked.push(given);
        return signed.promise;
      },
    },
    upstreams: [{ id: 'up.test', name: 'up.test', config: { kind: 'oci' } }],
    describe: ({ id }: { id: string }, { kind, name }: BundleEntry, attributes: object) =>
      kind === 'other' ? undefined : { key: [id, kind, name], attributes },
    accounts: { named: async (name: string) => (name === 'team' ? { id: 7, name } : undefined) },
    protocols: [{ upstreams: { kind: 'oci' }, carried: { among } }],
  } as unknown as Parameters<typeof examineBundle>[0];
  const bundles = new Bundles(database, () => now);
  const imported = (digest: Digest, sequence: number, state: BundleRecord['state']) =>
    database.transaction((tx) =>
      bundles.write(tx, 'imported', digest, bundleOf({ header: { sequence } }).list, state, {} as BundleSummary),
    );
  return { parts, database, identity, asked, imported };
}

const all = { unsigned: false, older: false, hosted: true };
const invalid = (message: string) => ({ name: 'Invalid', message });

test('a bundle is for whom and until when its header says', async (t) => {
  const { parts, identity, asked } = await open(t);
  t.is(await installationIdentity(parts.database), identity);
  const signer = (header: Partial<BundleHeader>) => signerOfBundle(parts, bundleOf({ header }), true);
  t.is(await signer({}), key);
  t.deepEqual(asked, [['the envelope', true]]);
  t.is(await signer({ expires_at: now + 1, audience: identity }), key);
  for (const end of [now, now - 1000])
    await t.throwsAsync(
      signer({ expires_at: end }),
      invalid(`the bundle was valid until ${new Date(end).toISOString()}. Ask its source for a new one`),
    );
  const other = '11111111-1111-4111-8111-111111111111';
  await t.throwsAsync(
    signer({ audience: other }),
    invalid(`the bundle is for the installation ${other}, and this is ${identity}`),
  );
  parts.trust.signerOfBundle = () => Promise.reject(new Error('a stranger'));
  await t.throwsAsync(signer({ expires_at: 0 }), { message: 'a stranger' }, 'the signature comes first');
});

test('its entries are placed, those of the mirror and those of accounts', async (t) => {
  const { parts } = await open(t);
  const mirrored = [entryOf(), entryOf({ kind: 'blob', name: 'other', digest: b, attributes: {} })];
  const hosted = [entryOf({ account: 'team', digest: c })];
  const bundle = bundleOf({ entries: [mirrored[0]!, hosted[0]!, mirrored[1]!] });
  const { ours, ...found } = await examineBundle(parts, bundle, all);
  t.deepEqual(found as object, {
    key,
    before: undefined,
    isOlder: false,
    placed: [
      { entry: mirrored[0], described: { key: ['up.test', 'manifest', 'app'], attributes: { from: 'here' } } },
      { entry: mirrored[1], described: { key: ['up.test', 'blob', 'other'], attributes: {} } },
    ],
    hostedEntries: hosted,
  });
  t.deepEqual(await ours.among([a, c]), new Set([c]));
  await t.throwsAsync(
    examineBundle(parts, bundle, { ...all, hosted: false }),
    invalid(
      'the bundle has content that accounts host. Only a command imports it, on the server: entrepot bundle import',
    ),
  );
  await t.notThrowsAsync(examineBundle(parts, bundleOf({ entries: mirrored }), { ...all, hosted: false }));
  const cases: [entry: Partial<BundleEntry>, message: string][] = [
    [
      { upstream: 'none.test' },
      'the bundle has content of the upstream none.test (oci), which the settings lack here. Add it to "upstreams"; with "mode: offline" it is never asked',
    ],
    [
      { protocol: 'nuget' },
      'the bundle has content of the upstream up.test (nuget), which the settings lack here. Add it to "upstreams"; with "mode: offline" it is never asked',
    ],
    [{ kind: 'other' }, 'the bundle has a other app v1, which is unknown here'],
    [
      { account: 'none' },
      'the bundle has content of the account none, which is not here. Make it: entrepot account create none',
    ],
    [
      { account: 'team', protocol: 'nuget' },
      'the bundle has hosted content of the protocol nuget, which is unknown here',
    ],
  ];
  for (const [entry, message] of cases)
    await t.throwsAsync(
      examineBundle(parts, bundleOf({ entries: [entryOf(), entryOf(entry)] }), all),
      invalid(message),
    );
});

const lacks = (count: number, which: string) =>
  invalid(
    `the bundle counts on content that is not here: ${count} of its items, such as ${which}. Import the earlier bundle that it was made against; or make a new receipt here, or a complete bundle there`,
  );

const older = invalid(
  `this bundle of ${new Date(now - 1000).toISOString()} is older than the last one of its source that was imported. With --older, only content that never changes is imported from it`,
);

test('an older bundle than the last one of its source is refused, unless it was imported before or is wanted', async (t) => {
  const { parts, database, imported } = await open(t);
  const examine = async (sequence: number, more: Partial<typeof all> = {}, isPlain = false) => {
    const { isOlder, before } = await examineBundle(parts, bundleOf({ header: { sequence }, isPlain }), {
      ...all,
      ...more,
    });
    return [isOlder, before?.state];
  };
  const overtaken = (sequence: number) =>
    database.transaction((tx) => refuseOvertaken(tx, bundleOf({ header: { sequence } }).list.header));
  await imported(b, 9, 'incomplete');
  t.deepEqual(await examine(5), [false, undefined], 'one that was not completed does not count');
  await t.notThrowsAsync(overtaken(5));
  await imported(c, 5, 'complete');
  t.deepEqual(await examine(5), [false, undefined]);
  await t.throwsAsync(examine(4), older);
  await t.throwsAsync(overtaken(4), older);
  for (const sequence of [5, 6]) await t.notThrowsAsync(overtaken(sequence));
  t.deepEqual(await examine(4, { older: true }), [true, undefined]);
  t.deepEqual(await examine(4, {}, true), [false, undefined], 'of another tool');
  await imported(digestOf('id'), 4, 'incomplete');
  await t.throwsAsync(examine(4), older);
  t.deepEqual(await examine(4, { older: true }), [true, 'incomplete']);
  await imported(digestOf('id'), 4, 'complete');
  t.deepEqual(await examine(4), [true, 'complete']);
  const other = bundleOf({ header: { sequence: 1, source: '22222222-2222-4222-8222-222222222222' } });
  t.false((await examineBundle(parts, other, all)).isOlder);
  await t.notThrowsAsync(database.transaction((tx) => refuseOvertaken(tx, other.list.header)));
});

test('content that a bundle counts on must be here, in the mirror or the account that it is for', async (t) => {
  const { parts, database, asked } = await open(t);
  const texts = Array.from({ length: 501 }, (_, at) => `t${at}`);
  const digests = texts.map((text) => digestOf(text));
  await database.transaction(async (tx) => {
    const rows = digests.map((digest, at) => ({ digest, size: at, stored_at: 1 }));
    await tx.insertNew('blobs', rows);
    await tx.insertNew('mirror_entries', digests.map(mirrorEntry));
  });
  const blobs: BundleBlob[] = digests.map((digest, size) => ({ digest, size, base: true }));
  const sent: BundleBlob = { digest: a, size: 1, segment: 1 };
  await t.notThrowsAsync(refuseImport(parts, bundleOf({ blobs: [...blobs, sent] }), false));
  t.deepEqual(asked.splice(0), [['the envelope', false]]);

  // The last one is in the next statement.
  const missing: BundleBlob[] = [{ digest: digests[500]!, size: 501, base: true }];
  const names = 'up.test/app manifest v1';
  const entries = [entryOf({ digest: digests[500]! })];
  await t.throwsAsync(
    refuseImport(parts, bundleOf({ blobs: [...blobs.slice(0, 500), ...missing], entries }), false),
    lacks(1, names),
  );
  // What only an account hosts counts for that account.
  await database.transaction((tx) => tx.insertNew('blobs', [{ digest: b, size: 2, stored_at: 1 }]));
  const base: BundleBlob[] = [...blobs.slice(0, 500), { digest: b, size: 2, base: true }];
  asked.length = 0;
  await t.throwsAsync(refuseImport(parts, bundleOf({ blobs: base }), true), lacks(1, b));
  const ours = [entryOf({ account: 'team', digest: b })];
  await t.notThrowsAsync(refuseImport(parts, bundleOf({ blobs: base, entries: ours }), true));
  t.deepEqual(asked, [
    ['the envelope', true],
    ['the envelope', true],
    [7, 0],
    [7, 1],
  ]);

  const wanted = [0, 1, 2, 3, 4, 5].map((at): BundleBlob => ({ digest: digests[at]!, size: at, base: true }));
  const named = bundleOf({
    entries: [
      entryOf({ digest: digests[1]!, account: 'team', kind: 'nupkg', name: 'lib', reference: '' }),
      entryOf({ digest: digests[1]! }),
    ],
  });
  const error = baseMissing(named, wanted);
  const [one, , three, four, five] = digests;
  t.is(error.message, lacks(6, [one, 'team/lib nupkg', three, four, five].join('; ')).message);
});
