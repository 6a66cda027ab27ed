import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { newKeyPair, readPublicKey, readSigningKey, seal } from '../../src/bundle/keys.ts';
import {
  keyStatementType,
  readRevocation,
  revocationType,
  writeKeyStatement,
  writeRevocation,
} from '../../src/bundle/statements.ts';
import { TrustedKeys } from '../../src/bundle/trust.ts';
import { madeBundle } from '../support/bundle-runs.ts';
import { startAirGap, trustedKey, type AirGap } from '../support/bundles.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// New keys that trusted ones have signed, and revocations.

/** Both sites; the far one trusts `near.key` for bundles and `offline.key` for revocations. */
async function sites(t: ExecutionContext, dialect: Parameters<typeof startAirGap>[2] = 'sqlite') {
  const gap = await startAirGap(t, {}, dialect);
  const { near, far, path } = gap;
  for (const name of ['near.key', 'offline.key']) await near.ok('bundle', 'keygen', '--to', path(name));
  await far.ok('bundle', 'trust', 'add', path('near.key.pub'), '--role', 'bundles');
  await far.ok('bundle', 'trust', 'add', path('offline.key.pub'), '--role', 'revoke');
  /** Makes a key that another one signs; resolves to the file with its statement. */
  const signedKey = async (name: string, by: string, ...flags: string[]) => {
    await near.ok('bundle', 'keygen', '--to', path(name), '--signed-by', path(by), ...flags);
    return path(`${name}.signed`);
  };
  const revocation = async (key: string, by: string, name = `${key}.revoked`) => {
    await near.ok('bundle', 'revoke', path(`${key}.pub`), '--key', path(by), '--to', path(name));
    return path(name);
  };
  const idOf = async (name: string) => readPublicKey(await readFile(path(`${name}.pub`), 'utf8'), name).id;
  return { ...gap, signedKey, revocation, idOf };
}

/** The rows of trusted and revoked keys: their names, what they may sign, and their ends. */
async function listed({ far }: Pick<AirGap, 'far'>): Promise<string[]> {
  const text = await far.ok('bundle', 'trust', 'list');
  return text
    .trimEnd()
    .split('\n')
    .map((each) => each.split('\t'))
    .map(([, name, role, , until]) => [name, role, until].join(' '));
}

for (const dialect of dialects)
  test(`${dialect}: a new key is trusted because a trusted one signed it, for no more than that says`, async (t) => {
    const { near, far, path, file, feed, signedKey, idOf } = await sites(t, dialect);
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
    const list = await file('list.txt', 'Lib@1.0.0\n');
    const statement = await signedKey('second.key', 'near.key');
    const make = (name: string, key: string, ...more: string[]) =>
      near.ok('bundle', 'create', list, '--to', path(name), '--key', path(key), ...more);
    await make('by-second', 'second.key');
    t.regex(await far.fails('bundle', 'import', path('by-second')), /which is not trusted here/);

    await make('announced', 'near.key', '--new-key', statement);
    const told = await far.ok('bundle', 'import', path('announced'));
    t.regex(told, new RegExp(`announces the new key ${await idOf('second.key')}, signed by near\\.key: "`));
    t.deepEqual(await listed({ far }), ['near.key bundles -', 'offline.key revoke -'], 'an import trusts nothing');
    t.regex(await far.ok('bundle', 'inspect', path('announced')), /new key: [0-9a-f]{64}, not checked/);
    const carried = await far.ok('bundle', 'inspect', path('announced'), '--new-key');
    t.is(carried, await readFile(statement, 'utf8'));

    const added = await far.ok('bundle', 'trust', 'add', await file('carried.signed', carried), '--name', 'second');
    const near1 = await idOf('near.key');
    t.is(added, `${await idOf('second.key')}\tmay sign bundles, because near.key, ${near1}, signed so\n`);
    t.regex(await far.ok('bundle', 'trust', 'list'), new RegExp(`\\tsecond\\tbundles\\t\\S+\\t-\\t${near1}\\n`));
    t.regex(
      await far.ok('audit', '--type', 'bundle.key_trusted'),
      new RegExp(`${await idOf('second.key')}.*"vouched_by":"${near1}"`),
    );
    t.notRegex(await far.ok('bundle', 'import', path('announced')), /new key/, 'it is trusted already');
    await far.ok('bundle', 'trust', 'remove', 'near.key');
    await make('next', 'second.key');
    t.regex(await far.ok('bundle', 'import', path('next')), /imported sha256/);

    // The next one, by the second key, with less than that may sign.
    const third = await signedKey('third.key', 'second.key', '--role', 'bundles', '--for', '30d');
    await far.ok('bundle', 'trust', 'add', third, '--for', '365d');
    const [, , until] = (await listed({ far })).find((each) => each.startsWith('third.key '))!.split(' ');
    const days = (Date.parse(until!) - Date.now()) / 86_400_000;
    t.true(days > 29 && days <= 30, until);
    const short = await signedKey('short.key', 'second.key', '--for', '30d');
    await far.ok('bundle', 'trust', 'add', short, '--for', '1d');
    const end = (await listed({ far })).find((each) => each.startsWith('short.key '))!.split(' ')[2];
    t.true(Date.parse(end!) - Date.now() < 86_400_000, end);
  });

test('a statement counts only if its key is trusted for that now, and gives no more than that key has', async (t) => {
  const site = await sites(t);
  const { near, far, path, file, signedKey, revocation } = site;
  const add = (name: string, ...more: string[]) => far.fails('bundle', 'trust', 'add', name, ...more);
  await near.ok('bundle', 'keygen', '--to', path('stranger.key'));
  t.regex(await add(await signedKey('a.key', 'stranger.key')), /The statement is signed by the key .*not trusted here/);
  t.regex(
    await add(await signedKey('b.key', 'offline.key')),
    /signed by offline\.key, which is not trusted for new keys/,
  );
  for (const role of ['receipts', 'both'])
    t.regex(
      await add(await signedKey(`c-${role}.key`, 'near.key', '--role', role)),
      /near\.key may sign bundles, so it cannot sign that the key [0-9a-f]{16} may sign/,
    );
  const plain = await signedKey('d.key', 'near.key');
  for (const role of ['receipts', 'both', 'revoke'])
    t.regex(await add(plain, '--role', role), /near\.key has signed that this key may sign bundles/);
  t.regex(await add(await signedKey('e.key', 'near.key', '--for', '1ms')), /was to be trusted until/);
  await far.ok('bundle', 'trust', 'add', path('near.key.pub'), '--role', 'bundles', '--for', '1ms');
  t.regex(await add(plain), /signed by near\.key, which is not trusted any more since/);

  // A key cannot renew itself, nor two of them each other.
  await far.ok('bundle', 'trust', 'add', path('near.key.pub'), '--role', 'bundles', '--for', '1d');
  const own = readSigningKey(await readFile(path('near.key'), 'utf8'), 'near');
  const about = async (name: string, by: typeof own) =>
    writeKeyStatement(
      { key: readPublicKey(await readFile(path(`${name}.pub`), 'utf8'), ''), role: null, expiresAt: null },
      by,
    );
  t.regex(
    await add(await file('self.signed', await about('near.key', own))),
    /is trusted already, with the name near\.key/,
  );
  await far.ok('bundle', 'trust', 'add', plain);
  const second = readSigningKey(await readFile(path('d.key'), 'utf8'), 'd');
  t.regex(
    await add(await file('back.signed', await about('near.key', second))),
    /is trusted already, with the name near\.key/,
  );
  t.true((await listed(site)).every((each) => !each.startsWith('near.key') || !each.endsWith(' -')));

  // Altered, cut and unsigned ones.
  const good = await about('offline.key', own);
  const wrong = JSON.parse(good) as { payload: string; payloadType: string; signatures: object[] };
  const altered = (change: object) => file('altered.signed', JSON.stringify({ ...wrong, ...change }));
  const { privateKey, publicKey } = newKeyPair();
  const foreign = JSON.stringify({ public_key: publicKey.pem, role: null, expires_at: null });
  t.regex(await add(await altered({ payload: Buffer.from(foreign).toString('base64') })), /not valid: it was altered/);
  t.regex(await add(await altered({ signatures: [] })), /The statement is not signed/);
  t.regex(
    await add(await file('cut.signed', good.slice(0, -30))),
    /cut\.signed is no signed statement about a new key/,
  );
  t.regex(
    await add(await file('large.signed', ' '.repeat(9000) + good)),
    /is no key and no statement: it is too large/,
  );
  const secret = JSON.stringify({ public_key: privateKey, role: null, expires_at: null });
  t.regex(
    await add(await file('secret.signed', seal(keyStatementType, Buffer.from(secret), own))),
    /this is a private key/,
  );
  t.regex(await add(await revocation('d.key', 'offline.key')), /is no signed statement about a new key/);
  t.regex(await near.fails('bundle', 'keygen', '--to', path('x.key'), '--role', 'both'), /give --signed-by, too/);
  t.regex(
    await near.fails('bundle', 'create', '--stored', '--to', path('x'), '--new-key', path('near.key.pub')),
    /is no signed statement/,
  );
});

for (const dialect of dialects)
  test(`${dialect}: a key that an offline key revokes signs nothing more, and is never trusted again`, async (t) => {
    const site = await sites(t, dialect);
    const { near, far, path, file, feed, signedKey, revocation, idOf } = site;
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
    const list = await file('list.txt', 'Lib@1.0.0\n');
    await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', path('near.key'));
    const statement = await signedKey('second.key', 'near.key');
    const later = await signedKey('later.key', 'near.key');
    await far.ok('bundle', 'trust', 'add', statement);
    const [offline, id] = [await idOf('offline.key'), await idOf('near.key')];

    // Not by keys that sign bundles, nor by unknown ones, nor by itself.
    const apply = (name: string) => far.fails('bundle', 'trust', 'revoke', name);
    t.regex(
      await apply(await revocation('offline.key', 'near.key')),
      /near\.key, which is not trusted for revocations/,
    );
    await near.ok('bundle', 'keygen', '--to', path('stranger.key'));
    t.regex(await apply(await revocation('near.key', 'stranger.key', 'x')), /not trusted here/);
    t.regex(
      await near.fails('bundle', 'revoke', path('offline.key.pub'), '--key', path('offline.key'), '--to', path('y')),
      /cannot revoke itself/,
    );
    const own = readSigningKey(await readFile(path('offline.key'), 'utf8'), 'offline');
    t.regex(
      await apply(await file('self.revoked', writeRevocation(offline, own))),
      /offline\.key cannot revoke itself/,
    );
    t.regex(await apply(statement), /second\.key\.signed is no signed revocation of a key/);
    await far.ok('bundle', 'trust', 'add', path('offline.key.pub'), '--role', 'revoke', '--for', '1ms');
    t.regex(
      await apply(await revocation('near.key', 'offline.key')),
      /offline\.key, which is not trusted any more since/,
    );
    await far.ok('bundle', 'trust', 'add', path('offline.key.pub'), '--role', 'revoke');

    const done = await far.ok('bundle', 'trust', 'revoke', path('near.key.revoked'));
    t.true(done.startsWith(`${id}\tnear.key: revoked, because offline.key, ${offline}, signed so\n`), done);
    t.regex(done, /second\.key is trusted because the revoked key signed so/);
    t.regex(await far.ok('audit', '--type', 'bundle.key_revoked'), new RegExp(`${id}.*"revoked_by":"${offline}"`));
    t.deepEqual(await listed(site), ['offline.key revoke -', 'second.key bundles -', 'near.key revoked -']);
    const refused = /signed by the key near\.key, [0-9a-f]{16}, which was revoked at \S+Z by the key [0-9a-f]{16}/;
    t.regex(await far.fails('bundle', 'import', path('bundle')), refused);
    t.regex(await far.fails('bundle', 'verify', path('bundle')), refused);
    t.regex(await far.fails('bundle', 'trust', 'add', later), refused);
    for (const role of ['bundles', 'revoke'])
      t.regex(
        await far.fails('bundle', 'trust', 'add', path('near.key.pub'), '--role', role),
        /this is the key near\.key, \S+, which was revoked at .*It cannot be trusted again: make a new key/,
      );
    t.regex(await far.ok('bundle', 'trust', 'revoke', path('near.key.revoked')), /near\.key: was revoked before/);

    // One that was never trusted here, by its ID; then a statement of another key does not help it.
    const third = await signedKey('third.key', 'second.key');
    await near.ok(
      'bundle',
      'revoke',
      await idOf('third.key'),
      '--key',
      path('offline.key'),
      '--to',
      path('third.revoked'),
    );
    t.regex(await far.ok('bundle', 'trust', 'revoke', path('third.revoked')), /was not trusted here: revoked/);
    t.regex(await far.fails('bundle', 'trust', 'add', third), /this is the key \S+, which was revoked at/);
    t.regex(await far.fails('bundle', 'trust', 'remove', 'near.key'), /No trusted key has the name/);
  });

test('a receipt by a revoked key is refused', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  for (const name of ['far.key', 'offline.key']) await near.ok('bundle', 'keygen', '--to', path(name));
  await near.ok('bundle', 'trust', 'add', path('far.key.pub'));
  await near.ok('bundle', 'trust', 'add', path('offline.key.pub'), '--role', 'revoke');
  await madeBundle(gap, 'bundle');
  await far.ok('bundle', 'import', path('bundle'), '--unsigned');
  await far.ok('bundle', 'receipt', '--to', path('receipt'), '--key', path('far.key'));
  const create = (name: string, run: 'ok' | 'fails') =>
    near[run]('bundle', 'create', '--stored', '--to', path(name), '--against', path('receipt'));
  t.regex(await create('first', 'ok'), /left out: \d+ items/);
  await near.ok('bundle', 'revoke', path('far.key.pub'), '--key', path('offline.key'), '--to', path('revoked'));
  await near.ok('bundle', 'trust', 'revoke', path('revoked'));
  t.regex(await create('second', 'fails'), /The receipt .*is signed by the key far\.key, \S+, which was revoked at/);
});

test('a statement about a key stands for no bundle and no receipt, and these for no statement', async (t) => {
  const gap = await startAirGap(t);
  const { far, path, file } = gap;
  const key = await trustedKey(gap);
  await far.ok('bundle', 'trust', 'add', await newPublic(file, 'offline'), '--role', 'revoke');
  await madeBundle(gap, 'bundle', '--key', key);
  const segment = await readFile(join(path('bundle'), '0001.tar'));
  const [text] = segment.toString('latin1').match(/\{"payloadType".*\}/)!;
  const bundle = JSON.parse(text) as { payload: string; payloadType: string };
  await far.ok('bundle', 'receipt', '--to', path('receipt'), '--key', key);
  const [receipt] = (await readFile(path('receipt'), 'utf8')).split('\n');
  for (const each of [text, receipt!]) {
    t.regex(
      await far.fails('bundle', 'trust', 'add', await file('x', each)),
      /x is no signed statement about a new key/,
    );
    t.regex(await far.fails('bundle', 'trust', 'revoke', await file('x', each)), /x is no signed revocation/);
  }
  const own = readSigningKey(await readFile(key, 'utf8'), 'near');
  const { publicKey } = newKeyPair();
  const payload = Buffer.from(JSON.stringify({ public_key: publicKey.pem, role: null, expires_at: null }));
  // What a trusted key signed as something else, with the type of a statement written over it.
  const relabelled = JSON.parse(seal(bundle.payloadType, payload, own)) as object;
  const forged = await file('x', JSON.stringify({ ...relabelled, payloadType: keyStatementType }));
  t.regex(await far.fails('bundle', 'trust', 'add', forged), /a signature of near\.key that is not valid/);

  const list = Buffer.from(bundle.payload, 'base64');
  for (const type of [keyStatementType, revocationType])
    for (const relabel of [false, true]) {
      const sealed = JSON.parse(seal(type, list, own)) as object;
      const statement = JSON.stringify(relabel ? { ...sealed, payloadType: bundle.payloadType } : sealed);
      await mkdir(path('forged'), { recursive: true });
      await copyFile(join(path('bundle'), '0001.tar'), join(path('forged'), '0001.tar'));
      await writeFile(join(path('forged'), '0001.tar'), withStatement(segment, statement));
      t.regex(
        await far.fails('bundle', 'import', path('forged')),
        relabel ? /a signature of near\.key that is not valid/ : /the statement that is signed cannot be read/,
      );
    }
});

async function newPublic(file: AirGap['file'], name: string): Promise<string> {
  return file(`${name}.pub`, newKeyPair().publicKey.pem);
}

/** A segment whose statement is another one. */
function withStatement(segment: Buffer, statement: string): Buffer {
  const at = segment.indexOf('bundle.dsse.json');
  const size = Number.parseInt(segment.toString('latin1', at + 124, at + 135), 8);
  const header = Buffer.from(segment.subarray(at, at + 512));
  header.write(Buffer.byteLength(statement).toString(8).padStart(11, '0'), 124, 'latin1');
  header.fill(32, 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  const body = Buffer.alloc(Math.ceil(Buffer.byteLength(statement) / 512) * 512);
  body.write(statement);
  return Buffer.concat([
    segment.subarray(0, at),
    header,
    body,
    segment.subarray(at + 512 + Math.ceil(size / 512) * 512),
  ]);
}

test('an installation trusts at most 100 keys and revokes 1,000, and the beginning of an ID names one from 8 characters on', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const now = Date.now();
  const keys = new TrustedKeys(database, () => now);
  const added = Array.from({ length: 99 }, (_, number) => ({
    id: `${String(number).padStart(8, '0')}${'f'.repeat(56)}`,
    name: `key ${number}`,
    role: 'both',
    public_key: '',
    added_at: now,
  }));
  await database.transaction((tx) => tx.insertNew('bundle_keys', added));
  const { publicKey, privateKey } = newKeyPair();
  await keys.add(publicKey, { name: 'offline', role: 'revoke' });
  await t.throwsAsync(keys.add(newKeyPair().publicKey, { name: 'more' }), { name: 'QuotaExceeded' });
  t.is((await keys.add(publicKey, { name: 'renamed', role: 'revoke' })).name, 'renamed', 'a known one is changed');
  await t.throwsAsync(keys.remove('0000005'), { name: 'NotFound' });
  t.is((await keys.remove('00000005')).name, 'key 5');

  const signer = readSigningKey(privateKey, 'offline');
  const revoke = async (id: string) => keys.revoke(readRevocation(writeRevocation(id, signer), ''));
  const ids = Array.from({ length: 999 }, (_, number) => String(number).padStart(64, 'a'));
  const rows = ids.map((id) => ({ id, name: null, revoked_by: signer.id, revoked_at: now }));
  for (let from = 0; from < rows.length; from += 100)
    await database.transaction((tx) => tx.insertNew('bundle_revocations', rows.slice(from, from + 100)));
  t.false((await revoke('b'.repeat(64))).isRepeated);
  await t.throwsAsync(revoke('c'.repeat(64)), { name: 'QuotaExceeded' });
  t.true((await revoke('b'.repeat(64))).isRepeated);
});
