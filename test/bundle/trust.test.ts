import test, { type ExecutionContext } from 'ava';
import { newKeyPair, readEnvelope, readSigningKey, seal, type Envelope } from '../../src/bundle/keys.ts';
import { readKeyStatement, readRevocation, writeKeyStatement, writeRevocation } from '../../src/bundle/statements.ts';
import { roles, TrustedKeys, type Role } from '../../src/bundle/trust.ts';
import { statementType } from '../../src/bundle/write.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// Which keys may sign what, now.

/** A key, by its name, that signs. */
function madeKey(name: string) {
  const { publicKey, privateKey } = newKeyPair();
  return { name, publicKey, id: publicKey.id, signer: readSigningKey(privateKey, name) };
}

type Made = ReturnType<typeof madeKey>;

async function setUp(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const clock = { now: 1_800_000_000_000 };
  const keys = new TrustedKeys(database, () => clock.now);
  const add = async (made: Made, role?: Role, expiresAt?: number) => {
    await keys.add(made.publicKey, { name: made.name, role, expiresAt });
    return made;
  };
  const told = async () => {
    const rows = await database.select<{ type: string; subject_name: string; details: string }>(
      'SELECT type, subject_name, details FROM events ORDER BY id',
    );
    return rows.map((row) => [row.type, row.subject_name, JSON.parse(row.details) as object]);
  };
  return { keys, clock, add, told };
}

/** What these keys have signed. */
function signedBy(type: string, ...signers: Made[]): Envelope {
  const envelopes = signers.map(({ signer }) => readEnvelope(type, seal(type, Buffer.from('{}'), signer), 'place'));
  return { ...envelopes[0]!, signatures: envelopes.flatMap(({ signatures }) => signatures) };
}

const statementOf = (
  made: Made,
  by: Made,
  role: Exclude<Role, 'revoke'> | null = null,
  expiresAt: number | null = null,
) => writeKeyStatement({ key: made.publicKey, role, expiresAt }, by.signer);
const revocationOf = (made: Made, by: Made) => readRevocation(writeRevocation(made.id, by.signer), 'place');
const short = ({ id }: Made) => id.slice(0, 16);
const invalid = (message: string) => ({ name: 'Invalid', message });
const none = (text: string) => ({ name: 'NotFound', message: `No trusted key has the name or the ID ${text}.` });
const denied = (message: string) => ({ name: 'Denied', message });

test('a key signs what its role says', async (t) => {
  const { keys, add } = await setUp(t);
  const able: Record<Role, string[]> = {
    bundles: ['bundles', 'new keys'],
    receipts: ['receipts', 'new keys'],
    both: ['bundles', 'receipts', 'new keys'],
    revoke: ['revocations'],
  };
  t.deepEqual(Object.keys(able).toSorted(), [...roles].toSorted());
  for (const role of roles) {
    const made = await add(madeKey(role), role);
    for (const purpose of ['bundles', 'receipts', 'new keys', 'revocations'] as const) {
      const signer = keys.signerOf('text/a', signedBy('text/a', made), purpose, 'It');
      if (able[role].includes(purpose)) t.is((await signer)?.id, made.id, `${role} ${purpose}`);
      else await t.throwsAsync(signer, denied(`It is signed by ${role}, which is not trusted for ${purpose}.`));
    }
  }
  const plain = await add(madeKey('without a role'));
  t.is((await keys.list()).find(({ id }) => id === plain.id)?.role, 'both');
});

test('of several signatures one is enough, if it is valid, of a trusted key, for that, and until now', async (t) => {
  const { keys, clock, add } = await setUp(t);
  const [one, two, unknown] = [madeKey('one'), madeKey('two'), madeKey('unknown')];
  const signer = async (envelope: Envelope) => (await keys.signerOf('text/a', envelope, 'bundles', 'It'))?.name;
  const nobody = { ...signedBy('text/a', one), signatures: [] };
  t.is(await signer(nobody), undefined);
  await t.throwsAsync(
    signer(signedBy('text/a', one, two)),
    denied(`It is signed by the key ${short(one)}, ${short(two)}, which is not trusted here.`),
  );
  await add(one, 'both', clock.now + 10);
  t.is(await signer(signedBy('text/a', unknown, one)), 'one');
  const altered = signedBy('text/a', one);
  await t.throwsAsync(
    signer({ ...altered, payload: Buffer.from('[]') }),
    denied('It has a signature of one that is not valid: it was altered.'),
  );
  clock.now += 9;
  t.is(await signer(signedBy('text/a', one)), 'one');
  clock.now += 1;
  const end = new Date(clock.now).toISOString();
  await t.throwsAsync(
    signer(signedBy('text/a', one)),
    denied(`It is signed by one, which is not trusted any more since ${end}.`),
  );
  await add(two, 'receipts');
  await t.throwsAsync(signer(signedBy('text/a', one, two)), { message: /since/ });
  await add(two, 'bundles');
  t.is(await signer(signedBy('text/a', one, two)), 'two');
  t.is((await keys.signerOfBundle(signedBy(statementType, two), false))?.name, 'two');
  t.is(await keys.signerOfBundle(nobody, true), undefined);
  await t.throwsAsync(
    keys.signerOfBundle(nobody, false),
    invalid('the bundle is not signed, so its source is not known. Import it with --unsigned'),
  );
});

test('a new key gets what its statement and the command both give, and until the first end', async (t) => {
  const { keys, clock, add, told } = await setUp(t);
  const [wide, narrow] = [await add(madeKey('wide')), await add(madeKey('narrow'), 'bundles')];
  const now = clock.now;
  const cases: [
    by: Made,
    stated: [Exclude<Role, 'revoke'>?, number?],
    asked: [Role?, number?],
    gets: [Role, number | null] | RegExp,
  ][] = [
    [wide, [], [], ['both', null]],
    [narrow, [], [], ['bundles', null]],
    [wide, ['receipts', now + 5], [], ['receipts', now + 5]],
    [wide, ['both'], ['receipts', now + 7], ['receipts', now + 7]],
    [wide, ['bundles', now + 5], ['bundles', now + 7], ['bundles', now + 5]],
    [wide, ['bundles', now + 7], ['bundles', now + 5], ['bundles', now + 5]],
    [narrow, ['bundles', now + 1], [], ['bundles', now + 1]],
    [narrow, ['both'], [], /^narrow may sign bundles, so it cannot sign that the key [0-9a-f]{16} may sign both$/],
    [narrow, ['receipts'], [], /^narrow may sign bundles, so it cannot sign that .* may sign receipts$/],
    [
      wide,
      ['bundles'],
      ['receipts'],
      /^wide has signed that this key may sign bundles, so its role cannot be receipts$/,
    ],
    [wide, [], ['revoke'], /^wide has signed that this key may sign both, so its role cannot be revoke$/],
    [wide, ['both', now], [], /^the key [0-9a-f]{16} was to be trusted until 2027-01-15T08:00:00\.000Z$/],
  ];
  for (const [by, [stated, end], [role, expiresAt], gets] of cases) {
    const made = madeKey('new');
    const statement = readKeyStatement(statementOf(made, by, stated, end), 'place');
    const adding = keys.addSigned(statement, { name: 'new', role, expiresAt });
    if (gets instanceof RegExp) {
      await t.throwsAsync(adding, { name: 'Invalid', message: gets });
      continue;
    }
    const { key, signer } = await adding;
    const expected = { id: made.id, name: 'new', role: gets[0], addedAt: now, expiresAt: gets[1], vouchedBy: by.id };
    t.like(key, expected);
    t.is(signer.id, by.id);
    t.deepEqual((await told()).at(-1), [
      'bundle.key_trusted',
      made.id,
      { name: 'new', role: gets[0], expires_at: gets[1], vouched_by: by.id },
    ]);
    await t.throwsAsync(keys.addSigned(statement, { name: 'again' }), {
      message: new RegExp(`^the key ${short(made)} is trusted already, with the name new\\. `),
    });
  }
});

test('a bundle announces a key that is not trusted yet, and says why it cannot be', async (t) => {
  const { keys, clock, add } = await setUp(t);
  const [old, next, unknown] = [await add(madeKey('old')), madeKey('next'), madeKey('unknown')];
  const statement = statementOf(next, old);
  t.deepEqual(await keys.announced(statement), { statement, id: next.id, signer: 'old', refused: null });
  const foreign = statementOf(next, unknown);
  t.deepEqual(await keys.announced(foreign), {
    statement: foreign,
    id: next.id,
    signer: null,
    refused: `The statement is signed by the key ${short(unknown)}, which is not trusted here.`,
  });
  t.deepEqual(await keys.announced('x'), {
    statement: 'x',
    id: null,
    signer: null,
    refused: 'the announcement is no signed statement about a new key',
  });
  await keys.addSigned(readKeyStatement(statement, 'place'), { name: 'next', expiresAt: clock.now + 1 });
  t.is(await keys.announced(statement), undefined);
});

test('a key is removed by its name or the beginning of its ID, and others stay', async (t) => {
  const { keys, add, told } = await setUp(t);
  const made = [];
  for (const name of ['one', 'twin', 'twin', 'last']) made.push(await add(madeKey(name)));
  const [one, , , last] = made as [Made, Made, Made, Made];
  for (const text of ['none', last.id.slice(0, 7), last.id.slice(-10)])
    await t.throwsAsync(keys.remove(text), none(text));
  await t.throwsAsync(keys.remove('twin'), invalid('twin is the name of 2 keys; give the ID of one'));
  t.is((await keys.remove(last.id.slice(0, 8))).id, last.id);
  t.deepEqual((await told()).at(-1), ['bundle.key_removed', last.id, { name: 'last' }]);
  t.is((await keys.remove('one')).id, one.id);
  t.deepEqual(
    (await keys.list()).map(({ name }) => name),
    ['twin', 'twin'],
  );
});

test('a revoked key is never trusted again, and those that it vouched for are named', async (t) => {
  const { keys, clock, add, told } = await setUp(t);
  const [offline, lost, other] = [
    await add(madeKey('offline'), 'revoke'),
    await add(madeKey('lost')),
    await add(madeKey('other')),
  ];
  const [child, never] = [madeKey('child'), madeKey('never')];
  await keys.addSigned(readKeyStatement(statementOf(child, lost), 'place'), { name: 'child' });
  await t.throwsAsync(keys.revoke(revocationOf(offline, offline)), invalid('offline cannot revoke itself. Remove it'));
  await t.throwsAsync(
    keys.revoke(revocationOf(lost, other)),
    denied('The statement is signed by other, which is not trusted for revocations.'),
  );
  const key = { id: lost.id, name: 'lost', revokedBy: offline.id, revokedAt: clock.now };
  const done = await keys.revoke(revocationOf(lost, offline));
  t.deepEqual(done.key, key);
  t.deepEqual([done.signer.id, done.isRepeated, done.vouched.map(({ id }) => id)], [offline.id, false, [child.id]]);
  t.deepEqual((await told()).at(-1), [
    'bundle.key_revoked',
    lost.id,
    { name: 'lost', revoked_by: offline.id, vouched_for: [child.id] },
  ]);
  const count = (await told()).length;
  clock.now += 1;
  const again = await keys.revoke(revocationOf(lost, offline));
  t.deepEqual([again.key, again.isRepeated, again.vouched.length, (await told()).length], [key, true, 1, count]);
  t.like(await keys.revoke(revocationOf(never, offline)), { key: { id: never.id, name: null }, vouched: [] });
  t.deepEqual(
    (await keys.list()).map(({ name }) => name),
    ['offline', 'other', 'child'].toSorted((x, y) => (x < y ? -1 : 1)),
  );
  const time = new Date(key.revokedAt).toISOString();
  const text = `the key lost, ${short(lost)}, which was revoked at ${time} by the key ${short(offline)}`;
  await t.throwsAsync(
    keys.signerOf('text/a', signedBy('text/a', madeKey('x'), lost), 'bundles', 'It'),
    denied(`It is signed by ${text}.`),
  );
  const forever = invalid(`this is ${text}. It cannot be trusted again: make a new key`);
  await t.throwsAsync(add(lost), forever);
  await t.throwsAsync(keys.addSigned(readKeyStatement(statementOf(lost, other), 'place'), { name: 'x' }), forever);
  await t.throwsAsync(add(never), {
    message: new RegExp(
      `^this is the key ${short(never)}, which was revoked at \\S+ by the key ${short(offline)}\\. It`,
    ),
  });
});
