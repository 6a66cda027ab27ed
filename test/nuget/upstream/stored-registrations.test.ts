import test, { type ExecutionContext } from 'ava';
import { entryId } from '../../../src/mirror/store/entries.ts';
import type { FeedContext } from '../../../src/nuget/hosted/feed-context.ts';
import { StoredRegistrations } from '../../../src/nuget/upstream/stored-registrations.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

interface State {
  deprecated?: boolean;
  listed?: boolean;
}

/** An item of a page. */
const item = (id: string, version: string, { deprecated, listed }: State = {}) => ({
  catalogEntry: {
    id,
    version,
    ...(deprecated && { deprecation: { reasons: ['Legacy'] } }),
    ...(listed === false && { listed }),
  },
});

const page = (lower: string, upper: string, ...items: readonly object[]) => ({
  lower,
  upper,
  ...(items.length > 0 && { items }),
});

/** Stored registrations, and which of them are opened. */
async function start(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const contents = new Map<string, Buffer | Error>();
  const opened: string[] = [];
  const names = new Map<string, string>();
  const blobs = {
    open: async (digest: string, size: number) => {
      opened.push(names.get(digest)!);
      const content = contents.get(digest)!;
      if (content instanceof Error) throw content;
      t.is(size, content.length);
      return contentOf(content);
    },
  };
  const store = async (
    name: string,
    reference: string,
    document: object | Error | string,
    { kind = 'registration-semver2', upstream = 'one', size }: { kind?: string; upstream?: string; size?: number } = {},
  ) => {
    const key = { upstream, kind, name, reference };
    const digest = `sha256:${entryId(key)}`;
    const bytes = Buffer.from(typeof document === 'string' ? document : JSON.stringify(document));
    contents.set(digest, document instanceof Error ? document : bytes);
    names.set(digest, `${upstream} ${name} ${reference}`);
    const times = { stored_at: 1, validated_at: 1, used_at: 1 };
    const file = { digest, size_bytes: size ?? bytes.length, content_type: '', attributes: '{}' };
    await database.transaction((tx) =>
      tx.insertNew('mirror_entries', [{ id: entryId(key), ...key, ...file, ...times }]),
    );
  };
  const registrations = new StoredRegistrations({ database, blobs } as unknown as FeedContext);
  const deprecated = async (upstreams?: readonly string[]) => {
    const found: string[] = [];
    const isComplete = await registrations.deprecated(upstreams, async ({ name, upstream, versions }) => {
      await Promise.resolve();
      found.push(`${upstream} ${name} ${[...versions].join(' ')}`);
    });
    return { found, isComplete };
  };
  const unlisted = async (upstream: string, key: string) => [...(await registrations.unlisted(upstream, key))];
  return { registrations, store, deprecated, unlisted, opened };
}

const semVer1 = { kind: 'registration' };

test('which versions stored registrations deprecate and do not list, of the index and of the pages that it names', async (t) => {
  const { store, deprecated, unlisted, opened } = await start(t);
  const inside = page(
    '1.0.0',
    '1.1',
    item('LIB', '1.0.0-A', { deprecated: true }),
    item('Lib', '1.1', { listed: false }),
  );
  await store('lib', 'index', { items: [inside, page('2.0.0', '2.9.0'), page('3.0.0', '3.9.0')] });
  await store('lib', 'page/2.0.0/2.9.0', {
    items: [item('Lib', '2.0', { listed: false, deprecated: true }), item('Lib', '2.9.0')],
  });
  await store('lib', 'page/4.0.0/4.9.0', { items: [item('Lib', '4.0.0', { listed: false, deprecated: true })] });
  await store(
    'lib',
    'index',
    { items: [page('9.0.0', '9.0.0', item('Lib', '9.0.0', { listed: false, deprecated: true }))] },
    semVer1,
  );
  await store('other', 'page/1.0.0/1.0.0', { items: [item('Other', '1.0.0', { deprecated: true, listed: false })] });
  await store('fine', 'index', { items: [page('1.0.0', '1.0.0', item('Fine', '1.0.0'))] });
  await store(
    'plain',
    'index',
    { items: [page('1.0.0', '1.0.0', item('Plain', '1.0.0', { deprecated: true, listed: false }))] },
    semVer1,
  );
  await store(
    'lib',
    'index',
    { items: [page('7.0.0', '7.0.0', item('Lib', '7.0.0', { deprecated: true, listed: false }))] },
    { upstream: 'two' },
  );
  t.deepEqual(await deprecated(), {
    found: ['one lib 1.0.0-a 2.0.0', 'two lib 7.0.0', 'one plain 1.0.0'],
    isComplete: true,
  });
  t.deepEqual(opened.toSorted(), [
    'one fine index',
    'one lib index',
    'one lib page/2.0.0/2.9.0',
    'one plain index',
    'two lib index',
  ]);
  t.deepEqual(await deprecated(['two', 'three']), { found: ['two lib 7.0.0'], isComplete: true });
  t.deepEqual(await deprecated([]), { found: [], isComplete: true });
  t.deepEqual(await unlisted('one', 'lib'), ['1.1.0', '2.0.0']);
  t.deepEqual(await unlisted('two', 'lib'), ['7.0.0']);
  t.deepEqual(await unlisted('one', 'plain'), ['1.0.0']);
  for (const [upstream, key] of [
    ['one', 'other'],
    ['one', 'fine'],
    ['two', 'plain'],
    ['three', 'lib'],
  ] as const)
    t.deepEqual(await unlisted(upstream, key), [], `${upstream} ${key}`);
  t.is(opened.length, 5, 'what was read is known');
});

test('a damaged document or one of another form says nothing, and a storage that fails is not hidden', async (t) => {
  const lost = new DomainError('BlobUnknown', 'It is gone.');
  const damaged = new DomainError('ContentDamaged', 'It is damaged.');
  const { store, deprecated, unlisted, opened, registrations } = await start(t);
  for (const [name, document] of [
    ['lost', lost],
    ['damaged', damaged],
    ['text', '<html>'],
    ['form', '{}'],
  ] as const)
    await store(name, 'index', document);
  await store('whole', 'index', { items: [page('1.0.0', '1.0.0', item('Whole', '1.0.0', { deprecated: true }))] });
  t.deepEqual(await deprecated(), { found: ['one whole 1.0.0'], isComplete: true });
  for (const name of ['lost', 'damaged', 'text', 'form']) t.deepEqual(await unlisted('one', name), [], name);
  t.is(opened.length, 5, 'they are not read again');
  await store('away', 'index', new DomainError('StorageUnavailable', 'It is away.'));
  await t.throwsAsync(deprecated(), { name: 'StorageUnavailable' });
  await t.throwsAsync(registrations.unlisted('one', 'away'), { name: 'StorageUnavailable' });
  await store('busy', 'index', new DomainError('TooManyRequests', 'It is busy.'));
  t.deepEqual(await unlisted('one', 'busy'), []);
});

/** A registration that is so long. */
function large(id: string, bytes: number) {
  const versions = [item(id, '1.0.0', { deprecated: true, listed: false })];
  const document = { items: [page('1.0.0', '1.0.0', ...versions)], filler: '' };
  return { ...document, filler: 'x'.repeat(bytes - JSON.stringify(document).length) };
}

test('one call reads up to 64 MiB, and later calls read the rest', async (t) => {
  const { store, deprecated, unlisted, opened } = await start(t);
  const half = 32 * 2 ** 20;
  await store('a', 'index', large('A', half));
  await store('b', 'index', large('B', half));
  await store('c', 'index', large('C', 1000));
  t.deepEqual(await deprecated(), { found: ['one a 1.0.0', 'one b 1.0.0'], isComplete: false });
  t.deepEqual(opened, ['one a index', 'one b index']);
  t.deepEqual(await deprecated(), { found: ['one a 1.0.0', 'one b 1.0.0', 'one c 1.0.0'], isComplete: true });
  t.is(opened.length, 3);
  await store('d', 'index', { items: [] }, { size: 2 * half + 1 });
  t.deepEqual(await unlisted('one', 'd'), []);
  t.deepEqual((await deprecated()).isComplete, false);
  t.is(opened.length, 3);
});
