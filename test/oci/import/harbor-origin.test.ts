import test from 'ava';
import type { StagedFile } from '../../../src/storage/files/staged-file.ts';
import { ListMissing } from '../../../src/import/document.ts';
import { HarborOrigin } from '../../../src/oci/import/harbor-origin.ts';
import type { RegistryOrigin } from '../../../src/oci/import/registry-origin.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { fakeRemote, type FakeAnswer } from '../../support/upstreams/fake-remote.ts';

const { signal } = new AbortController();
const [one, two, three] = ['1', '2', '3'].map((text) => digestOf(Buffer.from(text))) as [Digest, Digest, Digest];

async function* listOf<T>(items: readonly T[], fails?: Error): AsyncGenerator<T> {
  yield* items;
  if (fails) throw fails;
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const each of items) found.push(each);
  return found;
}

/** A Harbor with these documents of its own interface, and what its registry tells. */
function harborOf(pages: Record<string, unknown>, { tags = ['sig'], fails }: { tags?: string[]; fails?: Error } = {}) {
  const warnings: string[] = [];
  const asked: unknown[] = [];
  const fake = fakeRemote((path): FakeAnswer | undefined => {
    const found = pages[path.replace('/api/v2.0/projects', '')];
    if (found instanceof Error || found === undefined) return found;
    return { body: typeof found === 'string' ? found : JSON.stringify(found) };
  });
  const registry = {
    repositories: () => listOf(['from/catalog']),
    tags: (name: string) => {
      asked.push(['tags', name]);
      return listOf(
        tags.map((tag) => ({ tag })),
        fails,
      );
    },
    digestOf: async (...of: unknown[]) => `digest of ${of.join()}`,
    manifest: async (...of: unknown[]) => `manifest of ${of.join()}`,
    referrers: async () => [three, two],
    fill: async (...of: unknown[]) => void asked.push(['fill', ...of]),
  } as unknown as RegistryOrigin;
  const warn = (text: string) => void warnings.push(text);
  return { ...fake, origin: new HarborOrigin({ api: fake.remote, registry, signal, warn }), warnings, told: asked };
}

const projects = '?page=1&page_size=100';
const repositoriesOf = (project: string) => `/${project}/repositories${projects}`;
const artifactsOf = (path: string) => `/${path}/artifacts?with_tag=true&with_accessory=true&page=1&page_size=50`;

test('the repositories of the projects of a Harbor, in order, without those of proxy caches and of other names', async (t) => {
  const { origin, warnings, requests } = harborOf({
    [projects]: [
      { name: 'lib', registry_id: 0 },
      { name: 'hub', registry_id: 3 },
      null,
      'text',
      { name: 7 },
      { name: 'a/b' },
      { name: 'UPPER' },
      { name: 'other', registry_id: '5' },
      { name: 'empty', registry_id: null },
    ],
    [repositoriesOf('lib')]: [
      { name: 'lib/b' },
      null,
      { name: 5 },
      { name: 'library/x' },
      { name: 'lib/A' },
      { name: 'lib/a/c' },
    ],
    [repositoriesOf('other')]: [{ name: 'other/x' }],
    [repositoriesOf('empty')]: [],
  });
  t.deepEqual(await all(origin.repositories()), ['lib/b', 'lib/a/c', 'other/x']);
  t.deepEqual(warnings, [
    'The project hub is a proxy cache of another registry. It is not read: name that registry as an upstream.',
  ]);
  const request = { signal, isDocument: true, headers: { accept: 'application/json' } };
  const base = 'http://old.test/api/v2.0/projects';
  t.deepEqual(requests, [
    { ...request, subject: 'projects', url: base + projects },
    ...['lib', 'other', 'empty'].map((each) => ({
      ...request,
      subject: `projects ${each} repositories`,
      url: base + repositoriesOf(each),
    })),
  ]);
});

const denied = new UpstreamError('UpstreamUnavailable', 'It refuses.', { denied: true });
const down = new UpstreamError('UpstreamUnavailable', 'It is down.', { offline: true });

test('where the projects are not told the catalog is read, but not if the server fails', async (t) => {
  const warning = 'The source does not list its projects as Harbor does, so the catalog of its registry was read.';
  for (const answer of [undefined, 'no JSON', denied]) {
    const { origin, warnings } = harborOf({ [projects]: answer });
    t.deepEqual([await all(origin.repositories()), warnings], [['from/catalog'], [warning]]);
  }
  for (const error of [down, new DomainError('TooLarge', 'It is too large.'), new TypeError('a defect')]) {
    const { origin, warnings } = harborOf({ [projects]: error });
    t.is(await t.throwsAsync(all(origin.repositories())), error);
    t.deepEqual(warnings, []);
  }
  const { origin, warnings } = harborOf({ [projects]: [{ name: 'lib' }] });
  await t.throwsAsync(all(origin.repositories()), { instanceOf: ListMissing });
  t.deepEqual(warnings, [], 'the catalog is no answer for one project');
});

test('tags come with the times that the interface tells, then those that only the registry has', async (t) => {
  const pages = {
    [artifactsOf('lib/repositories/a%252Fb')]: [
      {
        digest: one,
        tags: [
          { name: '1', push_time: '2021-02-03T04:05:06.789Z' },
          { name: '2', push_time: '0001-01-01T00:00:00.000Z' },
          { name: '3', push_time: 5 },
          { name: '4', push_time: '1970-01-01T00:00:00.000Z' },
          { name: '5', push_time: '1970-01-01T00:00:00.001Z' },
          { name: '-x', push_time: '2021-02-03T04:05:06.789Z' },
          { name: 6 },
          null,
          'text',
        ],
        accessories: [{ digest: two }, { digest: 'x' }, { digest: 5 }, null],
      },
      null,
      { digest: 'x', tags: null, accessories: [{ digest: two }] },
      { digest: three, tags: 'text', accessories: [] },
    ],
  };
  const { origin, requests, told } = harborOf(pages, { tags: ['2', 'sig'] });
  t.deepEqual(
    await origin.referrers('lib/a/b', one),
    [three, two],
    'as the registry lists them, before the tags are read',
  );
  t.deepEqual(await all(origin.tags('lib/a/b')), [
    { tag: '1', pushedAt: Date.UTC(2021, 1, 3, 4, 5, 6, 789) },
    { tag: '2', pushedAt: undefined },
    { tag: '3', pushedAt: undefined },
    { tag: '4', pushedAt: undefined },
    { tag: '5', pushedAt: 1 },
    { tag: 'sig' },
  ]);
  t.deepEqual(
    [requests[0]!.subject, requests.length, told],
    ['projects lib repositories a%2Fb', 1, [['tags', 'lib/a/b']]],
  );
});

test('accessories are referrers of their artifact in their repository, each once', async (t) => {
  const accessories = [{ digest: two }, { digest: one }];
  const { origin } = harborOf({ [artifactsOf('lib/repositories/a')]: [{ digest: one, accessories }] });
  await all(origin.tags('lib/a'));
  t.deepEqual(await origin.referrers('lib/a', one), [three, two, one]);
  t.deepEqual(await origin.referrers('lib/a', two), [three, two]);
  t.deepEqual(await origin.referrers('lib/b', one), [three, two]);
});

test('a registry without a list of tags has those that the interface tells, any other failure is one', async (t) => {
  const pages = { [artifactsOf('lib/repositories/a')]: [{ digest: one, tags: [{ name: '1' }] }] };
  const missing = new ListMissing('NotFound', 'The source has no list of tags.');
  const tagsOf = (fails: Error, name: string, given: Record<string, unknown> = pages) =>
    all(harborOf(given, { tags: [], fails }).origin.tags(name));
  t.deepEqual(await tagsOf(missing, 'lib/a'), [{ tag: '1', pushedAt: undefined }]);
  t.is(await t.throwsAsync(tagsOf(down, 'lib/a')), down);
  t.is(await t.throwsAsync(tagsOf(missing, 'lib/a', {})), missing);
  t.is(await t.throwsAsync(tagsOf(missing, 'alone')), missing);
  const failing = harborOf({ [artifactsOf('lib/repositories/a')]: down });
  t.is(await t.throwsAsync(all(failing.origin.tags('lib/a'))), down);
  t.deepEqual(failing.told, [], 'the registry is not asked then');
  const silent = harborOf({ [artifactsOf('lib/repositories/a')]: denied });
  t.deepEqual(await all(silent.origin.tags('lib/a')), [{ tag: 'sig' }]);
  const alone = harborOf({});
  t.deepEqual([await all(alone.origin.tags('alone')), alone.requests], [[{ tag: 'sig' }], []]);
});

test('digests, manifests and blobs of a Harbor are those of its registry', async (t) => {
  const { origin, told } = harborOf({});
  t.is(await origin.digestOf('lib/a', '1'), 'digest of lib/a,1' as Digest);
  t.is<unknown, string>(await origin.manifest('lib/a', '2'), 'manifest of lib/a,2');
  const staged = {} as StagedFile;
  await origin.fill('lib/a', one, staged, 7);
  t.deepEqual(told, [['fill', 'lib/a', one, staged, 7]]);
});
