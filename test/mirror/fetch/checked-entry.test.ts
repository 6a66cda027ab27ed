import test from 'ava';
import { checkEntry, rememberEntry, storeEntry, WrongDigest } from '../../../src/mirror/fetch/checked-entry.ts';
import type { EntryDescription } from '../../../src/mirror/fetch/resource.ts';
import { checkImported } from '../../../src/mirror/imports.ts';
import { entryId, type EntryMetadata } from '../../../src/mirror/store/entries.ts';
import { digestOf, type DigestAlgorithm } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import type { StagedFile } from '../../../src/storage/files/staged-file.ts';

// How complete bytes are checked and stored, without files.

const key = { upstream: 'up', kind: 'thing', name: 'app', reference: 'v1' };
const right = digestOf('content');

/** A staged file of 7 bytes that has this content. */
function stagedOf(text = 'content') {
  const hashed: string[] = [];
  const staged = {
    size: text.length,
    digest: (algorithm: DigestAlgorithm) => {
      hashed.push(algorithm);
      return Promise.resolve(`${algorithm}:${digestOf(text).split(':')[1]}`);
    },
  };
  return { staged: staged as unknown as StagedFile, hashed };
}

const stated = { type: 'x/y', etag: '"e"', lastModified: 'yesterday', size: 7 };
const entry: EntryDescription = { key, limit: 100 };
const plain = { digest: right, size: 7, type: 'x/y', etag: '"e"', lastModified: 'yesterday' };
const metadata = { ...plain, attributes: {}, storedAt: 5, validatedAt: 5 };

test('checked content has what its sender states, and the digest of its bytes', async (t) => {
  const { staged, hashed } = stagedOf();
  t.deepEqual(await checkEntry(entry, staged, stated, 5), { staged, metadata, keys: [key], seen: [] });
  t.deepEqual(hashed, ['sha256']);
});

test('a description names further keys and the history, and says what the content is', async (t) => {
  const { staged } = stagedOf();
  const alias = { ...key, reference: right };
  const given: unknown[] = [];
  const seen = [{ kind: 'tag' as const, reference: 'v1', digest: right }];
  const described: EntryDescription = {
    ...entry,
    digest: right,
    verify: (bytes) => {
      given.push(bytes);
      return Promise.resolve({ type: 'index' });
    },
    aliases: (about) => {
      given.push(about);
      return [alias];
    },
    history: (about) => {
      given.push(about);
      return seen;
    },
  };
  const all = { ...metadata, attributes: { type: 'index' } };
  t.deepEqual(await checkEntry(described, staged, stated, 5), { staged, metadata: all, keys: [key, alias], seen });
  t.deepEqual(given, [staged, all, all]);
});

test('the digest of a name counts before the one that the sender states', async (t) => {
  const other = digestOf('other');
  const check = (digest: typeof right | undefined, said: typeof right | undefined) =>
    checkEntry({ ...entry, ...(digest && { digest }) }, stagedOf().staged, { ...stated, digest: said }, 5);
  t.is((await check(right, other)).metadata.digest, right);
  t.is((await check(undefined, right)).metadata.digest, right);
  for (const asked of [check(other, right), check(undefined, other)]) {
    const error = await t.throwsAsync<WrongDigest>(asked, { message: `it is ${right} instead of ${other}` });
    t.true(error instanceof WrongDigest);
    t.like(error, { expected: other, received: right });
  }
  const { staged, hashed } = stagedOf();
  const long = `sha512:${'0'.repeat(128)}` as typeof right;
  await t.throwsAsync(checkEntry({ ...entry, digest: long }, staged, stated, 5));
  t.deepEqual(hashed, ['sha512'], 'by the algorithm of the name');
});

test('a wrong content is not looked into', async (t) => {
  const described = { ...entry, digest: digestOf('other'), verify: () => t.fail() };
  await t.throwsAsync(checkEntry(described, stagedOf().staged, stated, 5), { instanceOf: WrongDigest });
});

for (const [length, type, etag, time] of [
  [64, 64, 64, 64],
  [65, 65, 65, null],
  [255, 255, 255, null],
  [256, 255, null, null],
] as const) {
  test(`of headers of ${length} characters, a type is cut and the others are left out`, async (t) => {
    const text = 'x'.repeat(length);
    const headers = { type: text, etag: text, lastModified: text, size: 7 };
    const found = (await checkEntry(entry, stagedOf().staged, headers, 5)).metadata;
    t.is(found.type.length, type);
    t.is(found.etag?.length ?? null, etag);
    t.is(found.lastModified?.length ?? null, time);
  });
}

test('an entry is stored with its bytes, and remembered under all its keys by the mark before', async (t) => {
  const { staged } = stagedOf();
  const keys = [key, { ...key, reference: right }];
  const seen = [{ kind: 'tag' as const, reference: 'v1', digest: right }];
  const checked = { staged, metadata: metadata as EntryMetadata, keys, seen };
  const calls: unknown[] = [];
  const entries = {
    mark: () => {
      calls.push('mark');
      return Promise.resolve('m1');
    },
    write: (...given: unknown[]) => {
      calls.push(given);
      return Promise.resolve();
    },
    remember: (...given: unknown[]) => {
      calls.push(given);
      return Promise.resolve();
    },
  };
  const blobs = {
    commit: async (contents: unknown, work: (tx: string) => Promise<void>) => {
      calls.push(contents);
      await work('tx');
      calls.push('stored');
    },
  };
  t.is(await storeEntry({ blobs, entries } as never, checked), 'm1');
  t.deepEqual(calls.splice(0), ['mark', [{ staged, digest: right }], ['tx', keys, metadata, seen], 'stored']);
  await rememberEntry(entries as never, checked, 'm2');
  t.deepEqual(
    calls,
    keys.map((each) => [entryId(each), metadata, 'm2']),
  );
});

test('imported bytes may have as many as the limit, and their own number counts', async (t) => {
  const said = { type: 'x/y', etag: null, lastModified: null };
  const { staged } = stagedOf();
  t.is((await checkImported({ ...entry, limit: 7 }, staged, said, 9)).metadata.size, 7);
  t.is((await checkImported(entry, staged, said, 9)).metadata.storedAt, 9);
  await t.throwsAsync(checkImported({ ...entry, limit: 6 }, staged, said, 9), {
    name: 'TooLarge',
    message: 'app v1 has 7 bytes; the limit is 6 bytes.',
  });
});

test('imported bytes that are something else are refused, and a fault of this machine is no such thing', async (t) => {
  const said = { type: 'x/y', etag: null, lastModified: null };
  const other = digestOf('other');
  const wrong = await t.throwsAsync(checkImported({ ...entry, digest: other }, stagedOf().staged, said, 9), {
    name: 'DigestMismatch',
    message: `This is not app v1: it is ${right} instead of ${other}.`,
  });
  t.true(wrong.cause instanceof WrongDigest);
  const failing = (error: Error) => {
    const verify = async () => {
      throw error;
    };
    return t.throwsAsync(checkImported({ ...entry, verify }, stagedOf().staged, said, 9));
  };
  const bad = new Error('it is no manifest');
  const invalid = await failing(bad);
  t.like(invalid, { name: 'Invalid', message: 'This is not app v1: it is no manifest.', cause: bad });
  for (const error of [
    new DomainError('StorageUnavailable', 'no storage'),
    Object.assign(new Error('read failed'), { syscall: 'read' }),
  ])
    t.is(await failing(error), error);
});
