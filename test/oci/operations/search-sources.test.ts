import test from 'ava';
import type { Principal } from '../../../src/accounts/principal.ts';
import type { FoundRepository, ImageList } from '../../../src/oci/catalog/repository.ts';
import { imageSearches } from '../../../src/oci/operations/search-sources.ts';

// Which lists of images a search reads, and for whom.

const other = { accountId: 2, only: 'names of 2' };

function principal(more: object = {}): Principal {
  const shared = { lists: () => [other] };
  return { accountId: 1, kind: 'token', names: { of: () => 'names of 1' }, shared, ...more } as unknown as Principal;
}

const found = (name: string, more: Partial<FoundRepository> = {}): FoundRepository => ({
  position: name,
  name,
  upstream: null,
  pulls: 3,
  ...more,
});

function search(origin: 'hosted' | 'mirrored', byAccount: Record<number, FoundRepository[]>) {
  const asked: unknown[] = [];
  const list = {
    origin,
    find: (accountId: number, ...rest: unknown[]) => {
      asked.push([accountId, ...rest]);
      return Promise.resolve(byAccount[accountId] ?? []);
    },
  };
  const [source] = imageSearches([list as unknown as ImageList]);
  return { source: source!, asked };
}

const item = (name: string, more: object = {}) => ({
  position: name,
  name,
  upstream: null,
  version: null,
  description: null,
  download_count: 3,
  ...more,
});

test('hosted images are found in the own account and in those that share them, each name once', async (t) => {
  const digest = 'sha256:x' as never;
  const { source, asked } = search('hosted', {
    1: [found('b'), found('d', { digest })],
    2: [found('a'), found('b', { pulls: 9 }), found('c')],
  });
  t.like(source, { kind: 'container', origin: 'hosted' });
  const all = [item('a'), item('b'), item('c'), item('d', { digest })];
  t.deepEqual(await source.find(principal(), 'text', 10, 'after'), all as never);
  t.deepEqual(asked, [
    [1, 'text', 10, 'after', 'names of 1'],
    [2, 'text', 10, 'after', 'names of 2'],
  ]);
  t.deepEqual(await source.find(principal(), 'text', 2, 'after'), all.slice(0, 2) as never);
});

test('mirrored images are found in the own account alone', async (t) => {
  const { source, asked } = search('mirrored', { 1: [found('up/a', { upstream: 'up' })], 2: [found('no')] });
  t.deepEqual(await source.find(principal(), 'text', 10, ''), [item('up/a', { upstream: 'up' })] as never);
  t.deepEqual(asked, [[1, 'text', 10, '', 'names of 1']]);
});

test('hosted images are not found by those who may not read them', async (t) => {
  const anonymous = principal({ kind: 'anonymous', reads: 'mirrored' });
  const hosted = search('hosted', { 1: [found('a')] });
  t.deepEqual(await hosted.source.find(anonymous, 'text', 10, ''), []);
  t.deepEqual(hosted.asked, []);
  const mirrored = search('mirrored', { 1: [found('a')] });
  t.is((await mirrored.source.find(anonymous, 'text', 10, '')).length, 1);
  t.is((await hosted.source.find(principal({ kind: 'anonymous', reads: 'all' }), 'text', 10, '')).length, 1);
});
