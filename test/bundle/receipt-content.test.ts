import { mkdir, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { newKeyPair, readSigningKey, seal } from '../../src/bundle/keys.ts';
import { readReceipt, receiptWriter, writeReceipt } from '../../src/bundle/receipt.ts';
import type { TrustedKey, TrustedKeys } from '../../src/bundle/trust.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { mirrorEntry } from '../support/builders/mirror-entry.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';

// What a receipt says, and how it is read again.

const installation = '99999999-9999-4999-8999-999999999999';
const type = 'application/vnd.entrepot.receipt.v1+json';
const trusted = { id: 'k', name: 'far' } as TrustedKey;

/** Trusts each key, and notes what it is asked. */
function trusting(asked: unknown[] = []): TrustedKeys {
  return {
    signerOf: async (...[kind, { signatures }, ...more]: Parameters<TrustedKeys['signerOf']>) => {
      asked.push([kind, signatures.length, ...more]);
      return signatures.length === 0 ? undefined : trusted;
    },
  } as TrustedKeys;
}

async function open(t: ExecutionContext, mirrored: readonly string[], hosted: Record<string, readonly string[]>) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    await tx.run('DELETE FROM storage_identity');
    await tx.insertNew('storage_identity', [{ id: 1, identity: installation, state: 'paired' }]);
    await tx.insertNew('mirror_entries', [
      ...mirrored.map((text) => mirrorEntry(digestOf(text))),
      { ...mirrorEntry(digestOf('of another upstream')), upstream: 'other' },
    ]);
  });
  const names = Object.keys(hosted);
  const carried = {
    entries: async function* (id: number) {
      for (const text of hosted[names[id]!]!) yield { name: 'lib', reference: text, digest: digestOf(text) };
    },
  };
  const parts = {
    database,
    upstreams: [{ id: 'u' }],
    now: () => 5000,
    accounts: { named: async (name: string) => ({ id: names.indexOf(name), name }) },
    protocols: [{ upstreams: { kind: 'nuget' }, carried }],
  } as unknown as Parameters<typeof writeReceipt>[0];
  return { database, parts };
}

test('a receipt has what the mirror has, then what each account hosts besides', async (t) => {
  const { database, parts } = await open(t, ['a', 'b', 'c'], {
    team: ['a', 'x', 'x', 'y'],
    empty: ['b'],
    third: ['z'],
  });
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'receipt');
  const key = readSigningKey(newKeyPair().privateKey, 'own.key');
  let text = '';
  const write = async (bytes: readonly Buffer[]) => {
    text = Buffer.concat(bytes).toString();
    await writeFile(file, text);
  };
  const selected = ['team', 'empty', 'third'].map((account) => ({ account, pattern: '*' }));
  const written = await writeReceipt(parts, write, { key, hosted: selected });
  const mirrored = ['a', 'b', 'c'].map((each) => digestOf(each)).toSorted();
  const own = ['x', 'y', 'z'].map((each) => digestOf(each));
  const [envelope, ...lines] = text.split('\n');
  t.deepEqual(lines, [
    `{"format":"entrepot-receipt","version":1,"installation":"${installation}","created_at":5000,"digests":6,"hosted":[{"account":"team","digests":2},{"account":"empty","digests":0},{"account":"third","digests":1}]}`,
    ...mirrored,
    ...own,
    '',
  ]);
  t.deepEqual(written, { id: digestOf(lines.join('\n')), digests: 6, size: text.length });
  t.is(`${envelope}\n`, seal(type, Buffer.from(JSON.stringify({ receipt: written.id })), key));
  const counted = await database.select<{ digest: string }>('SELECT digest FROM mirror_counted_on ORDER BY digest');
  t.deepEqual(
    counted.map(({ digest }) => digest),
    mirrored as string[],
    'what the mirror has is kept',
  );
  const events = 'SELECT type, subject_name AS name, details, time AS at FROM events';
  t.deepEqual(
    (await database.select(events)).map((row) => ({ ...row })),
    [{ type: 'bundle.receipt', name: written.id, details: `{"digests":6,"key":"${key.id}"}`, at: 5000 }],
  );

  const asked: unknown[] = [];
  const { digests, ...read } = await readReceipt(trusting(asked), file);
  t.deepEqual(read, { id: written.id, installation, createdAt: 5000, key: trusted });
  t.deepEqual(asked, [[type, 1, 'receipts', `The receipt ${file}`]]);
  t.is(digests.size, 6);
  const has = (each: string) =>
    [undefined, 'team', 'empty', 'third'].map((account) => digests.has(digestOf(each), account));
  t.deepEqual(has('a'), [true, true, true, true]);
  t.deepEqual(has('y'), [false, true, false, false]);
  t.deepEqual(has('z'), [false, false, false, true]);
  t.deepEqual(has('of another upstream'), [false, false, false, false]);
});

test('a receipt without hosted content and without a key', async (t) => {
  const { parts } = await open(t, [], {});
  let text = '';
  const write = async (bytes: readonly Buffer[]) => void (text = Buffer.concat(bytes).toString());
  const written = await writeReceipt(parts, write, { key: undefined });
  const body = `{"format":"entrepot-receipt","version":1,"installation":"${installation}","created_at":5000,"digests":0}\n`;
  t.deepEqual(written, { id: digestOf(body), digests: 0, size: text.length });
  t.is(text, seal(type, Buffer.from(JSON.stringify({ receipt: digestOf(body) })), undefined) + body);
  const file = join(await folderUntilEnd(t), 'receipt');
  await writeFile(file, text);
  const { key, digests } = await readReceipt(trusting(), file);
  t.deepEqual([key, digests.size], [undefined, 0]);
});

/** A receipt of these lines. */
const made = (lines: readonly unknown[], ending = '\n', stated?: string) => {
  const body = lines.map((each) => (typeof each === 'string' ? each : JSON.stringify(each))).join('\n') + ending;
  return seal(type, Buffer.from(stated ?? JSON.stringify({ receipt: digestOf(body) })), undefined) + body;
};

test('what is no receipt, or was altered, is refused', async (t) => {
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'receipt');
  const digests = ['a', 'b'].map((each): Digest => digestOf(each));
  const header = { format: 'entrepot-receipt', version: 1, installation, created_at: 5, digests: 2 };
  const read = async (text: string) => {
    await writeFile(file, text);
    return (await readReceipt(trusting(), file)).digests.size;
  };
  t.is(await read(made([header, ...digests])), 2);
  t.is(await read(made([header, ...digests], '')), 2, 'without an end of its last line');
  const unread = `${file} is no receipt that this version can read`;
  const altered = `${file} was altered after it was written, or is damaged`;
  const noDigest = `${file} has a line that is no digest`;
  const cases: [text: string, message: string][] = [
    [made([header, digests[0]]), unread],
    [made([header, ...digests, digestOf('c')]), unread],
    [made([]), unread],
    [made([], ''), unread],
    [made(['{', ...digests]), unread],
    [made([{ ...header, version: 2 }, ...digests]), unread],
    [made([{ ...header, digests: -1 }]), unread],
    [made([header, digests[0], 'sha256:x']), noDigest],
    [made([header, digests[0], '', digests[1]]), noDigest],
    [`${made([header, ...digests])}more`, altered],
    [made([header, ...digests], '\n', JSON.stringify({ receipt: digests[0] })), altered],
    [made([header, ...digests], '\n', '{"receipt":"x"}'), altered],
    [made([header, ...digests], '\n', 'no JSON'), altered],
    ['{}\n', `${file}: the statement that is signed cannot be read`],
    ['', `${file}: the statement that is signed cannot be read`],
  ];
  for (const [text, message] of cases)
    await t.throwsAsync(read(text), { name: 'Invalid', message }, text.slice(0, 400));
  await truncate(file, 64 * 2 ** 20 + 1);
  await t.throwsAsync(readReceipt(trusting(), file), { message: `${file} is no receipt` });
  await truncate(file, 64 * 2 ** 20);
  await t.throwsAsync(readReceipt(trusting(), file), {
    message: `${file}: the statement that is signed cannot be read`,
  });
  await t.throwsAsync(readReceipt(trusting(), folder), { message: `${folder} is no receipt` });
  const none = join(folder, 'none');
  await t.throwsAsync(readReceipt(trusting(), none), {
    name: 'Invalid',
    message: `${none} cannot be read: ENOENT: no such file or directory, stat '${none}'`,
  });
});

test('a receipt is written in place of an earlier one, of an empty or of no file', async (t) => {
  const folder = await folderUntilEnd(t);
  const path = (name: string) => join(folder, name);
  const earlier = seal(type, Buffer.from('{}'), undefined);
  await writeFile(path('earlier'), `${earlier}more lines\n`);
  await writeFile(path('empty'), '');
  for (const name of ['earlier', 'empty', 'new']) await t.notThrowsAsync(receiptWriter(path(name)), name);
  await writeFile(path('other'), seal('text/plain', Buffer.from('{}'), undefined));
  await writeFile(path('second'), `\n${earlier}`);
  await mkdir(path('folder'));
  for (const name of ['other', 'second', 'folder'])
    await t.throwsAsync(receiptWriter(path(name)), {
      name: 'Invalid',
      message: `${path(name)} exists and is no receipt. Name a new file`,
    });
  await t.throwsAsync(receiptWriter(path('other/below')), { code: 'ENOTDIR' });
});
