import test from 'ava';
import type { Transaction } from '../../src/database/database.ts';
import type { BundleEntry } from '../../src/bundle/format.ts';
import { hostedEntries, HostedImport, hosts, parseHosted, type HostedParts } from '../../src/bundle/hosted.ts';
import type { HostedContents, HostedEntry } from '../../src/bundle/hosted-contents.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';

// What accounts host, as bundles carry it, without an installation. hosted.test.ts has what travels.

const invalid = (message: string) => ({ name: 'Invalid', message });

const hosted = (name: string, reference: string): HostedEntry => ({
  kind: 'manifest',
  name,
  reference,
  digest: digestOf(`${name} ${reference}`),
  size: 3,
  type: 'text/plain',
  attributes: {},
  seen: [],
});

const entry = (protocol: string, account: string, name: string): BundleEntry => ({
  ...hosted(name, '1'),
  etag: null,
  modified: null,
  validated_at: 0,
  upstream: '',
  protocol,
  account,
});
const digest = (name: string): Digest => hosted(name, '1').digest;

/** A protocol whose accounts host these names, by the ID of the account. Notes what it is asked. */
function protocolOf(kind: string, names: Record<number, [name: string, reference: string][]>, asked: unknown[]) {
  const carried: HostedContents = {
    entries: async function* (accountId, set) {
      asked.push(`${kind} entries of ${accountId}`);
      for (const [name, reference] of names[accountId] ?? []) if (set.includes(name)) yield hosted(name, reference);
    },
    among: async (accountId, digests) => {
      asked.push([kind, accountId, digests]);
      return new Set(digests.slice(0, 1));
    },
    prepare: async (accountId, entries, stage) => {
      asked.push(`${kind} prepares for ${accountId} ${entries.map(({ name }) => name).join()}`);
      asked.push(await stage(Buffer.from(kind)));
      return async (_, { isOlder, from }) => {
        asked.push(`${kind} writes for ${accountId} ${isOlder} ${from}`);
        return entries.length;
      };
    },
  };
  return { upstreams: { kind }, carried };
}

function setUp() {
  const asked: unknown[] = [];
  const accounts: Record<string, number> = { team: 7, other: 8 };
  const parts = {
    accounts: { named: async (name: string) => name in accounts && { id: accounts[name], name } },
    protocols: [
      { upstreams: { kind: 'none' } },
      protocolOf(
        'nuget',
        {
          7: [
            ['lib', '1'],
            ['lib', '2'],
            ['more', '1'],
          ],
        },
        asked,
      ),
      protocolOf('oci', { 7: [['lib', 'v1']], 8: [['app', 'v1']] }, asked),
    ],
  } as unknown as HostedParts;
  return { parts, asked };
}

test('a selection is an account, and names in it', (t) => {
  const cases: [text: string, account: string, pattern: string][] = [
    ['team', 'team', '*'],
    ['team/Lib.*', 'team', 'Lib.*'],
    ['team/apps/web/*', 'team', 'apps/web/*'],
    ['team//x', 'team', '/x'],
  ];
  for (const [text, account, pattern] of cases) t.deepEqual(parseHosted(text), { account, pattern }, text);
  for (const text of ['', '/', '/x', 'team/'])
    t.throws(
      () => parseHosted(text),
      invalid(`${text}: expected an account and a pattern of names, such as default/Contoso.* or team/apps/*`),
      text,
    );
});

test('the entries of a selection come from all protocols, and a selection without any is refused', async (t) => {
  const { parts, asked } = setUp();
  const entriesOf = async (...texts: string[]) => {
    const found: BundleEntry[] = [];
    for await (const entry of hostedEntries(parts, texts.map(parseHosted))) found.push(entry);
    return found;
  };
  const mirrored = { etag: null, modified: null, validated_at: 0, upstream: '' };
  t.deepEqual(await entriesOf('team/lib', 'other'), [
    { ...hosted('lib', '1'), ...mirrored, protocol: 'nuget', account: 'team' },
    { ...hosted('lib', '2'), ...mirrored, protocol: 'nuget', account: 'team' },
    { ...hosted('lib', 'v1'), ...mirrored, protocol: 'oci', account: 'team' },
    { ...hosted('app', 'v1'), ...mirrored, protocol: 'oci', account: 'other' },
  ]);
  t.deepEqual(asked, ['nuget entries of 7', 'oci entries of 7', 'nuget entries of 8', 'oci entries of 8']);
  t.deepEqual(await entriesOf(), []);
  await t.throwsAsync(entriesOf('team', 'none/x'), invalid('there is no account none'));
  for (const texts of [['other/lib'], ['team', 'other/lib']])
    await t.throwsAsync(
      entriesOf(...texts),
      invalid('the account other hosts no package and no image that lib matches'),
    );
});

test('an account hosts a version or tag of a name, or does not', async (t) => {
  const { parts } = setUp();
  const [none, nuget] = parts.protocols;
  const isHosted = (accountId: number, name: string, reference: string) =>
    hosts(nuget!.carried, accountId, { name, reference });
  t.deepEqual(
    [
      await isHosted(7, 'lib', '2'),
      await isHosted(7, 'lib', '3'),
      await isHosted(7, 'more', '2'),
      await isHosted(8, 'lib', '2'),
      await hosts(none!.carried, 7, { name: 'lib', reference: '2' }),
    ],
    [true, false, false, false, false],
  );
});

test('an import gives each account and protocol its own entries', async (t) => {
  const { parts, asked } = setUp();
  const entries = [
    entry('oci', 'team', 'a'),
    entry('nuget', 'team', 'b'),
    entry('oci', 'other', 'c'),
    entry('oci', 'team', 'd'),
  ];
  const ours = await HostedImport.of(parts, entries, 'source');
  t.deepEqual(
    await ours.among([digest('d'), digest('a'), digest('x'), digest('c')]),
    new Set([digest('d'), digest('c')]),
  );
  t.deepEqual(asked.splice(0), [
    ['oci', 7, [digest('d'), digest('a')]],
    ['nuget', 7, []],
    ['oci', 8, [digest('c')]],
  ]);
  const staged: string[] = [];
  const show = await ours.prepare(async (bytes) => {
    staged.push(String(bytes));
    return digestOf(bytes);
  });
  t.deepEqual(staged, ['oci', 'nuget', 'oci']);
  t.deepEqual(asked.splice(0), [
    'oci prepares for 7 a,d',
    digestOf('oci'),
    'nuget prepares for 7 b',
    digestOf('nuget'),
    'oci prepares for 8 c',
    digestOf('oci'),
  ]);
  for (const isOlder of [false, true]) {
    t.is(await show({} as Transaction, isOlder), 4);
    t.deepEqual(asked.splice(0), [
      `oci writes for 7 ${isOlder} source`,
      `nuget writes for 7 ${isOlder} source`,
      `oci writes for 8 ${isOlder} source`,
    ]);
  }
  const nothing = await HostedImport.of(parts, [], 'source');
  t.deepEqual(await nothing.among([digest('a')]), new Set());
  await t.throwsAsync(
    HostedImport.of(parts, [entry('none', 'team', 'a')], 'source'),
    invalid('the bundle has hosted content of the protocol none, which is unknown here'),
  );
});
