import { createPublicKey, verify } from 'node:crypto';
import { pino } from 'pino';
import test, { type ExecutionContext } from 'ava';
import type { Row, Transaction } from '../../src/database/database.ts';
import type { AttachedDocument, Exposable } from '../../src/exposure/exposable.ts';
import { observedBill } from '../../src/exposure/observed-bill.ts';
import { ObservedBills, type SharedSecrets } from '../../src/exposure/observed-bills.ts';
import { observedKeyOf } from '../../src/exposure/observed-key.ts';
import { currentOrigin } from '../../src/runtime/caller.ts';
import { imageComponent, packageComponent } from '../../src/runtime/cyclonedx.ts';
import type { Digest } from '../../src/runtime/digest.ts';
import { signedBytes } from '../../src/runtime/dsse.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { PullList } from '../../src/usage/pull-list.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { insertTables, numberedDigest, pulledContent, pulledId, pulledOnce } from '../support/pulled.ts';

// Bills of materials of what jobs push, without a server and without a registry.

const now = Date.UTC(2026, 10, 25, 12);
const day = 86_400_000;
const key = observedKeyOf(Buffer.alloc(40, 7));
const bundleType = 'application/vnd.dev.sigstore.bundle.v0.3+json';

interface Statement {
  predicate: {
    serialNumber: string;
    metadata: Record<string, unknown> & { tools: unknown };
    components: { purl: string }[];
  };
}

function statementIn(document: AttachedDocument): Statement {
  const { dsseEnvelope } = JSON.parse(document.bytes.toString()) as { dsseEnvelope: { payload: string } };
  return JSON.parse(Buffer.from(dsseEnvelope.payload, 'base64').toString()) as Statement;
}

test('the key of a seed is always the same, and signs what its public key verifies', (t) => {
  t.is(key.id, observedKeyOf(Buffer.alloc(40, 7)).id);
  t.not(key.id, observedKeyOf(Buffer.alloc(40, 8)).id);
  for (const seed of [Buffer.alloc(40), Buffer.alloc(40, 255)]) {
    const each = observedKeyOf(seed);
    t.regex(each.publicKey, /^-----BEGIN PUBLIC KEY-----\n[\w+/=\n]+-----END PUBLIC KEY-----\n$/);
    t.is(Buffer.from(each.id, 'base64').length, 32);
    t.is(each.key.asymmetricKeyDetails!.namedCurve, 'prime256v1');
  }
  // The private key 1 has the generator of the curve as its public one.
  t.is(
    createPublicKey(observedKeyOf(Buffer.alloc(40)).publicKey).export({ format: 'jwk' }).x,
    Buffer.from('6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296', 'hex').toString('base64url'),
  );
});

test('a bill is a signed statement about the image, with what the job pulled, each once and in order', async (t) => {
  const component = imageComponent('team/app', numberedDigest(1));
  const [lib, other] = [packageComponent('lib', '1.0.0'), packageComponent('a', '2.0.0')];
  const job = { id: 'j', issuer: 'github', repository: 'team/app', ref: 'main', run: '7' } as never;
  const pulls = {
    image: { name: 'team/app', digest: numberedDigest(1), component },
    job,
    pushedAt: now,
    pulled: [lib, other, lib],
    hasMore: true,
  };
  const document = await observedBill(pulls, { id: 'hint', key: key.key });
  t.deepEqual(
    [document.mediaType, document.annotations],
    [
      bundleType,
      {
        'org.opencontainers.image.created': '2026-11-25T12:00:00.000Z',
        'dev.sigstore.bundle.content': 'dsse-envelope',
        'dev.sigstore.bundle.predicateType': 'https://cyclonedx.org/bom',
      },
    ],
  );
  const bundle = JSON.parse(document.bytes.toString()) as {
    dsseEnvelope: { payload: string; payloadType: string; signatures: { sig: string }[] };
  };
  const { payload, payloadType, signatures } = bundle.dsseEnvelope;
  const { sig } = signatures[0]!;
  t.deepEqual(bundle as object, {
    mediaType: bundleType,
    verificationMaterial: { publicKey: { hint: 'hint' } },
    dsseEnvelope: { payloadType: 'application/vnd.in-toto+json', payload, signatures: [{ keyid: '', sig }] },
  });
  t.true(
    verify(
      'sha256',
      signedBytes(payloadType, Buffer.from(payload, 'base64')),
      key.publicKey,
      Buffer.from(sig, 'base64'),
    ),
  );
  const statement = statementIn(document);
  const { serialNumber, metadata } = statement.predicate;
  t.regex(serialNumber, /^urn:uuid:[\da-f-]{36}$/);
  const facts = ['issuer', 'repository', 'ref', 'run'].map((name) => ({
    name: `entrepot:job:${name}`,
    value: (job as Record<string, string>)[name]!,
  }));
  t.deepEqual(statement as object, {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [{ name: 'team/app', digest: { sha256: numberedDigest(1).slice(7) } }],
    predicateType: 'https://cyclonedx.org/bom',
    predicate: {
      $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
      bomFormat: 'CycloneDX',
      specVersion: '1.6',
      serialNumber,
      version: 1,
      metadata: {
        timestamp: '2026-11-25T12:00:00.000Z',
        lifecycles: [
          {
            name: 'observed',
            description:
              'Observed by the server: what the job pulled from it before it pushed the image. It can list more than the image has inside, and lacks what the client had in its own cache or got elsewhere.',
          },
        ],
        tools: metadata.tools,
        component,
        properties: [...facts, { name: 'entrepot:more', value: 'The job pulled more; these are the latest.' }],
      },
      components: [other, lib],
      compositions: [{ aggregate: 'incomplete', assemblies: [component['bom-ref']] }],
    },
  });
  const unknown = await observedBill({ ...pulls, job: undefined, pulled: [], hasMore: false }, key);
  t.like(statementIn(unknown).predicate, { components: [], metadata: { properties: [] } });
  const some = { issuer: 'github', repository: null, ref: '', run: '7' } as never;
  t.deepEqual(
    statementIn(await observedBill({ ...pulls, job: some, hasMore: false }, key)).predicate.metadata['properties'],
    [facts[0], facts[3]],
  );
});

const content = (id: string, kind: string, name: string, reference: string, account_id = 1): Row =>
  pulledContent(id, name, reference, { account_id, kind, last_day: now });
const due = (id: string, user_id = 'job', pushed_at = now - 30_000): Row => ({
  content_id: pulledId(id),
  user_id,
  pushed_at,
  is_due: 1,
});

interface Changes {
  keepPulls?: number;
  secrets?: Partial<SharedSecrets>;
  images?: Partial<Exposable>;
  accountName?: (id: number) => Promise<string | undefined>;
  admit?: () => Promise<void>;
}

async function open(
  t: ExecutionContext,
  rows: Record<string, Row[]>,
  { keepPulls = day, secrets, images, ...changes }: Changes = {},
) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const account = { created_at: 0, observed_bills: 1 };
  await database.transaction(async (tx) => {
    await tx.run('DELETE FROM accounts');
    for (const id of [1, 2])
      await tx.insertNew('accounts', [{ ...account, id, name: `a${id}`, observed_bills: id === 1 ? 1 : 0 }]);
    await insertTables(tx, rows);
  });
  const calls: unknown[] = [];
  const attached: AttachedDocument[] = [];
  const note = (call: string) => (tx?: Transaction) => {
    calls.push(tx ? `${call} in a transaction` : call);
    return Promise.resolve();
  };
  const warnings: unknown[] = [];
  const log = pino(
    { level: 'warn', base: null, timestamp: false },
    {
      write: (line: string) => {
        const {
          msg,
          content: id,
          err,
        } = JSON.parse(line) as { msg: string; content: string; err: { message: string } };
        warnings.push(`${msg}: ${id.replace(/^0+/, '')} ${err.message}`);
      },
    },
  );
  const bills = new ObservedBills({
    database,
    pulls: new PullList(database),
    protocols: [
      { kind: 'package', component: packageComponent },
      {
        kind: 'container',
        component: (name, reference) => imageComponent(name, reference as Digest),
        attach: async (to, document, take) => {
          const isTaken = await database.transaction(take);
          calls.push({ ...to, isTaken, by: currentOrigin().actor.name });
          attached.push(document);
          return isTaken;
        },
        ...images,
      },
    ],
    accountName: async (id) => (id < 3 ? `a${id}` : undefined),
    admit: async (owner, bytes) => void calls.push({ ...owner, bytes }),
    secrets: {
      prepare: note('prepare'),
      claim: note('claim'),
      hold: note('hold'),
      release: note('release'),
      derive: async (use, length) => {
        calls.push(`derive ${use} ${length}`);
        return Buffer.alloc(length, 7);
      },
      ...secrets,
    },
    keepPulls,
    log,
    now: () => now,
    ...changes,
  });
  const waiting = async () =>
    (
      await database.select<{ id: string }>(
        'SELECT content_id AS id FROM observed_pushes WHERE is_due = 1 ORDER BY content_id',
      )
    ).map(({ id }) => id.replace(/^0+/, ''));
  return { database, bills, calls, attached, warnings, waiting };
}

test('each image that waits gets a bill of what its job pulled until the push, and then waits no more', async (t) => {
  const facts = {
    kind: 'job',
    name: 'main',
    ruleId: 'r',
    person: null,
    job: { id: 'job', issuer: 'github', repository: 'r', ref: 'main', run: '7' },
  };
  const { bills, calls, attached, warnings, waiting } = await open(t, {
    pull_contents: [
      content('c1', 'container', 'team/app', numberedDigest(1)),
      content('c2', 'container', 'base/os', numberedDigest(2)),
      content('a1', 'package', 'lib', '1.0.0'),
      content('a2', 'package', 'lib', '2.0.0'),
      content('a3', 'package', 'lib', '3.0.0'),
      content('e1', 'else', 'x', 'y'),
      content('d1', 'container', 'team/new', numberedDigest(3)),
    ],
    pull_users: [{ id: 'job', account_id: 1, facts: JSON.stringify(facts), last_day: now }],
    pulls: [
      pulledOnce('a1', 'job', now - 30_000),
      pulledOnce('c2', 'job', now - 40_000),
      pulledOnce('c1', 'job', now - 35_000),
      pulledOnce('e1', 'job', now - 35_000),
      pulledOnce('a2', 'job', now - 29_999),
      pulledOnce('a3', 'other', now - 50_000),
    ],
    observed_pushes: [due('c1'), due('d1', 'job', now - 29_999)],
  });
  await bills.run();
  t.is(attached.length, 1);
  t.deepEqual(calls, [
    'derive observed bills 40',
    { accountId: 1, accountName: 'a1', bytes: attached[0]!.bytes.length },
    { accountId: 1, name: 'team/app', reference: numberedDigest(1), isTaken: true, by: 'observed-bills' },
  ]);
  const { predicate } = statementIn(attached[0]!);
  t.deepEqual(
    predicate.components as object[],
    [packageComponent('lib', '1.0.0'), imageComponent('base/os', numberedDigest(2))],
    'not itself, and nothing that was pulled later or by others',
  );
  t.like(predicate.metadata, {
    component: imageComponent('team/app', numberedDigest(1)),
    timestamp: new Date(now - 30_000).toISOString(),
  });
  t.is((predicate.metadata['properties'] as object[]).length, 4);
  t.deepEqual([await waiting(), warnings], [['d1'], []], 'the other one was pushed too lately');
  await bills.run();
  t.is(attached.length, 1);
});

test('what is gone, too old, of another kind or not wanted gets no bill, and waits no more', async (t) => {
  const rows = {
    pull_contents: [
      content('c1', 'container', 'team/late', numberedDigest(1)),
      content('c2', 'container', 'team/in-time', numberedDigest(2)),
      content('c3', 'container', 'theirs/app', numberedDigest(3), 2),
      content('c4', 'container', 'gone/app', numberedDigest(4), 3),
      content('c5', 'package', 'lib', '1.0.0'),
      content('c6', 'else', 'lib', '1.0.0'),
    ],
    observed_pushes: [
      due('c1', 'job', now - day - 1),
      due('c2', 'job', now - day),
      ...['c3', 'c4', 'c5', 'c6', 'c7'].map((id) => due(id)),
    ],
  };
  const { bills, calls, attached, waiting } = await open(t, rows);
  await bills.run();
  t.deepEqual([attached.length, await waiting()], [1, []]);
  t.like(calls.at(-1), { name: 'team/in-time' });
  for (const images of [{ attach: undefined as never }, { component: undefined as never }]) {
    const without = await open(t, rows, { images });
    await without.bills.run();
    t.deepEqual([without.attached.length, await without.waiting(), without.calls], [0, [], []]);
  }
});

const failing = (error: Error, of = 'team/c2'): Changes => ({
  images: {
    attach: async ({ name }) => {
      if (name === of) throw error;
      return false;
    },
  },
});

test('an image that cannot take a bill does not stop others, and what concerns all images does', async (t) => {
  const rows = {
    pull_contents: ['c1', 'c2', 'c3'].map((id, at) => content(id, 'container', `team/${id}`, numberedDigest(at))),
    observed_pushes: ['c1', 'c2', 'c3'].map((id) => due(id)),
  };
  const none = await open(t, rows, failing(new Error('none'), 'no image'));
  await none.bills.run();
  t.deepEqual([await none.waiting(), none.warnings], [[], []], 'an image that is not there any more');

  const own = await open(t, rows, failing(new DomainError('QuotaExceeded', 'no room')));
  await own.bills.run();
  t.deepEqual([await own.waiting(), own.warnings], [[], ['an image gets no bill of materials: c2 no room']]);

  const unknown = await open(t, rows, failing(new Error('a defect')));
  await unknown.bills.run();
  t.deepEqual(
    [await unknown.waiting(), unknown.warnings],
    [['c2'], ['an image gets no bill of materials: c2 a defect']],
    'it is tried again',
  );

  for (const name of ['DatabaseUnavailable', 'StorageUnavailable', 'StorageFull', 'KeyUnavailable'] as const) {
    const all = await open(t, rows, failing(new DomainError(name, 'away')));
    await t.throwsAsync(all.bills.run(), { name, message: 'away' });
    t.deepEqual([await all.waiting(), all.warnings], [['c2', 'c3'], []]);
  }
  const keyless = await open(t, rows, { secrets: { derive: () => Promise.resolve(undefined) } });
  await t.throwsAsync(keyless.bills.run(), {
    name: 'KeyUnavailable',
    message: 'The key that signs bills of materials is missing on this server.',
  });
  t.is(await keyless.bills.publicKey(), null);
});

test('of very many pulls of a job, the latest 2,000 are in the bill, which says so', async (t) => {
  const many = Array.from({ length: 2001 }, (_, at) => String(at).padStart(4, '0'));
  const componentsOf = async (ids: readonly string[]) => {
    const { bills, attached } = await open(t, {
      pull_contents: [
        content('c1', 'container', 'team/app', numberedDigest(1)),
        ...ids.map((id) => content(`a${id}`, 'package', 'lib', `1.0.${id}`)),
      ],
      pulls: ids.map((id) => pulledOnce(`a${id}`, 'job', now - 100_000 + Number(id))),
      observed_pushes: [due('c1')],
    });
    await bills.run();
    const { components, metadata } = statementIn(attached[0]!).predicate;
    return { versions: components.map(({ purl }) => purl.slice(-4)), properties: metadata['properties'] };
  };
  t.deepEqual(await componentsOf(many), {
    versions: many.slice(1),
    properties: [{ name: 'entrepot:more', value: 'The job pulled more; these are the latest.' }],
  });
  t.deepEqual(await componentsOf(many.slice(1)), { versions: many.slice(1), properties: [] });
});

test('all images that wait are tried, some at a time, with the key read once for each part', async (t) => {
  const ids = Array.from({ length: 51 }, (_, at) => `c${String(at).padStart(2, '0')}`);
  const { bills, attached, calls, waiting } = await open(t, {
    pull_contents: ids.map((id, at) => content(id, 'container', `team/${id}`, numberedDigest(at))),
    observed_pushes: ids.map((id) => due(id)),
  });
  await bills.run();
  t.deepEqual([attached.length, await waiting()], [51, []]);
  t.is(calls.filter((each) => each === 'derive observed bills 40').length, 2);
});

const missing = (name: 'KeyUnavailable' | 'DatabaseUnavailable') => () => Promise.reject(new DomainError(name, 'away'));

test('an account begins and ends to want bills, with the key that all instances share', async (t) => {
  const { database, bills, calls } = await open(t, {});
  const second = { id: 2, name: 'a2' };
  t.deepEqual([await bills.isWanted(1), await bills.isWanted(2)], [true, false]);
  await bills.put(second, true);
  t.true(await bills.isWanted(2));
  await bills.put(second, false);
  t.false(await bills.isWanted(2));
  t.deepEqual(calls, ['prepare', 'claim in a transaction', 'hold in a transaction', 'release in a transaction']);
  t.is(await bills.publicKey(), key.publicKey);
  t.deepEqual(
    await database.select('SELECT type, account_id, subject_name AS name, details, time FROM events ORDER BY id'),
    [
      { type: 'account.bills_changed', account_id: 2, name: 'a2', details: '{"enabled":true}', time: now },
      { type: 'account.bills_changed', account_id: 2, name: 'a2', details: '{"enabled":false}', time: now },
    ],
  );

  const unrecorded = await open(t, {}, { keepPulls: 0 });
  await t.throwsAsync(unrecorded.bills.put(second, true), {
    name: 'Invalid',
    message: 'This server records no pulls, because usage.keepPulls is 0d. An operator has to set it.',
  });
  await unrecorded.bills.put(second, false);
  t.deepEqual(unrecorded.calls, ['hold in a transaction', 'release in a transaction']);

  const keyless = await open(
    t,
    {},
    { secrets: { prepare: missing('KeyUnavailable'), derive: missing('KeyUnavailable') } },
  );
  await t.throwsAsync(keyless.bills.put(second, true), { name: 'KeyUnavailable' });
  t.false(await keyless.bills.isWanted(2));
  t.is(await keyless.bills.publicKey(), null);
  const failing = await open(t, {}, { secrets: { derive: missing('DatabaseUnavailable') } });
  await t.throwsAsync(failing.bills.publicKey(), { name: 'DatabaseUnavailable' });
  for (const method of ['claim', 'hold', 'release'] as const) {
    const torn = await open(t, {}, { secrets: { [method]: () => Promise.reject(new Error(method)) } });
    await t.throwsAsync(torn.bills.put({ id: method === 'claim' ? 2 : 1, name: 'x' }, method === 'claim'), {
      message: method,
    });
    t.deepEqual([await torn.bills.isWanted(1), await torn.bills.isWanted(2)], [true, false], 'nothing is changed');
  }
});
