import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { DomainError } from '../../src/runtime/errors.ts';
import { keyFingerprint, Secrets } from '../../src/webhooks/secrets.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';

// The file with the key, without a server. test/webhooks/secrets.test.ts has servers.

async function setUp(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'secret-key');
  const open = (isDefault = true, path = file) => new Secrets(database, path, isDefault);
  const claim = (secrets: Secrets) => database.transaction((tx) => secrets.claim(tx));
  const release = (secrets: Secrets) =>
    database.transaction(async (tx) => {
      await secrets.hold(tx);
      await secrets.release(tx);
    });
  const proofs = () => database.select('SELECT proof FROM webhook_key');
  return { database, folder, file, open, claim, release, proofs };
}

const remedy =
  /; if the key is lost, delete all webhooks of all accounts with ".*webhook delete", end the bills of materials of all accounts with ".*account bills off", and then begin again$/;

async function refusal(t: ExecutionContext, work: Promise<unknown>): Promise<string> {
  const error = await t.throwsAsync<DomainError>(work, { instanceOf: DomainError, name: 'KeyUnavailable' });
  t.regex(
    error.message,
    /^The key that encrypts the secrets of webhooks and signs bills of materials is missing on this server, or it is another one\. An operator has to put it back \(".*doctor" names the reason\); if the key is lost, .*\.$/,
  );
  return (error.cause as Error).message;
}

test('the default key is made when it is first needed, and is then always the same', async (t) => {
  const { file, open, claim, release, proofs } = await setUp(t);
  const secrets = open();
  t.is(await secrets.problem(), undefined);
  t.is(await secrets.derive('a use', 16), undefined);
  t.is(await keyFingerprint(file, true), undefined);
  await t.throwsAsync(stat(file), { code: 'ENOENT' });
  await secrets.prepare();
  const text = await readFile(file, 'utf8');
  t.regex(text, /^[\w+/]{43}=\n$/);
  t.is((await stat(file)).mode & 0o777, 0o600);
  await secrets.prepare();
  await open().prepare();
  t.is(await readFile(file, 'utf8'), text);
  t.deepEqual(await proofs(), []);
  await claim(secrets);
  await claim(secrets);
  t.is((await proofs()).length, 1);
  t.is(await secrets.problem(), undefined);

  const one = (await secrets.derive('a use', 16))!;
  const again = (await open().derive('a use', 16))!;
  t.deepEqual([one.length, one], [16, again]);
  t.is((await secrets.derive('a use', 40))!.length, 40);
  t.notDeepEqual((await secrets.derive('another use', 16))!, one);
  const fingerprint = (await keyFingerprint(file, true))!;
  t.is(fingerprint.length, 16);
  t.true(JSON.stringify(await proofs()).includes(fingerprint));
  await writeFile(file, ` ${text}\n `);
  t.is(await keyFingerprint(file, false), fingerprint, 'spaces around it are no part of it');

  await release(secrets);
  t.deepEqual(await proofs(), []);
});

test('a key that is missing, short or another one is told, with what to do', async (t) => {
  const { folder, file, open, claim, proofs } = await setUp(t);
  const named = open(false);
  const missing =
    /^ENTREPOT_SECRET_KEY_FILE: cannot read the key that encrypts the secrets of webhooks and signs bills of materials: ENOENT.*\. Put the file back; /;
  await t.throwsAsync(named.problem(), { name: 'ConfigError', message: missing });
  await t.throwsAsync(named.ready(), { name: 'ConfigError', message: missing });
  t.regex(await refusal(t, named.prepare()), missing);
  t.regex(await refusal(t, named.derive('a use', 16)), missing);
  await t.throwsAsync(stat(file), { code: 'ENOENT' });
  await t.throwsAsync(keyFingerprint(file, false), { name: 'ConfigError', message: missing });

  await writeFile(file, 'x'.repeat(31));
  const short = (await t.throwsAsync(named.problem())).message;
  t.true(
    short.startsWith(
      `ENTREPOT_SECRET_KEY_FILE: ${file} needs at least 32 characters, for example from "openssl rand -base64 32"; `,
    ),
    short,
  );
  t.regex(short, remedy);
  await writeFile(file, 'x'.repeat(32));
  t.is(await named.problem(), undefined);
  await named.prepare();
  await claim(named);

  const other = join(folder, 'other');
  await writeFile(other, 'y'.repeat(32));
  const wrong = open(false, other);
  const text = `ENTREPOT_SECRET_KEY_FILE: the key in ${other} is not the one that encrypts the secrets of webhooks and signs bills of materials. Use the same key on all instances; `;
  const problem = (await wrong.problem())!;
  t.true(problem.startsWith(text), problem);
  t.regex(problem, remedy);
  t.is(await refusal(t, wrong.prepare()), problem);
  await t.throwsAsync(wrong.ready(), { name: 'ConfigError', message: problem });

  const before = await proofs();
  await rm(file);
  t.regex((await open(true).problem())!, missing, 'a default file is not made again while there are secrets');
  await refusal(t, open(true).prepare());
  await t.throwsAsync(stat(file), { code: 'ENOENT' });
  await refusal(t, open(true).derive('a use', 16));
  t.deepEqual(await proofs(), before);
});

test('two keys that are made at the same time do not both encrypt secrets', async (t) => {
  const { folder, open, claim, release, proofs, database } = await setUp(t);
  const [first, second] = [open(true, join(folder, 'one')), open(true, join(folder, 'two'))];
  await first.prepare();
  await second.prepare();
  await claim(first);
  const stored = await proofs();
  t.true((await refusal(t, claim(second))).includes(join(folder, 'two')));
  t.deepEqual(await proofs(), stored);

  // It stays while an account needs it, and no longer.
  const row = { account_id: 1, url: '', events: '[]', operate: 0, enabled: 1, secret: '', created_at: 0 };
  const more = { since_position: 0, paused_until: 0, deleted_at: null };
  await database.transaction((tx) => tx.insertNew('webhooks', [{ id: 'w', ...row, ...more }]));
  await release(first);
  t.deepEqual(await proofs(), stored);
  await database.transaction(async (tx) => {
    await tx.run('UPDATE webhooks SET deleted_at = 1');
    await tx.insert('accounts', { name: 'team', created_at: 0, observed_bills: 1 });
  });
  await release(first);
  t.deepEqual(await proofs(), stored);
  await database.transaction((tx) => tx.run('UPDATE accounts SET observed_bills = 0'));
  await release(first);
  t.deepEqual(await proofs(), []);
  await claim(second);
  t.notDeepEqual(await proofs(), stored);
});

test('a secret is read again with the key that is there now, and only for its webhook', async (t) => {
  const { file, open } = await setUp(t);
  const secrets = open();
  await secrets.prepare();
  const encrypted = secrets.encrypt('w', 'whsec_ä');
  t.not(secrets.encrypt('w', 'whsec_ä'), encrypted);
  t.is(Buffer.from(encrypted, 'base64').length, 12 + 16 + 8);
  t.is(await secrets.decrypt('w', encrypted), 'whsec_ä');
  t.is(await open().decrypt('w', encrypted), 'whsec_ä');
  t.true((await refusal(t, secrets.decrypt('other', encrypted))).includes(file));
  const key = await readFile(file, 'utf8');
  await writeFile(file, 'z'.repeat(44));
  t.true((await refusal(t, secrets.decrypt('w', encrypted))).includes(file), 'it was read again');
  await writeFile(file, key);
  t.is(await secrets.decrypt('w', encrypted), 'whsec_ä');
  await rm(file);
  await secrets.ready();
  t.is(await secrets.decrypt('w', encrypted), 'whsec_ä', 'a key that was right is kept');
  await refusal(t, open().decrypt('w', encrypted));
});
