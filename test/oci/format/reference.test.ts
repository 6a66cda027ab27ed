import test from 'ava';
import * as fc from 'fast-check';
import {
  fallbackTag,
  isRepositoryName,
  isTag,
  isUploadId,
  parsePath,
  parseReference,
  parseRepositoryName,
  type RegistryTarget,
} from '../../../src/oci/format/reference.ts';
import { isDomainError } from '../../../src/runtime/errors.ts';

const word = fc.stringMatching(/^[a-z0-9]{1,6}$/);
const component = fc.oneof(
  word,
  fc.constantFrom('blobs', 'manifests', 'tags', 'uploads', 'referrers', 'list', 'v2'),
  fc.tuple(word, fc.constantFrom('.', '_', '__', '-', '---'), word).map((parts) => parts.join('')),
);
const name = fc.array(component, { minLength: 1, maxLength: 5 }).map((parts) => parts.join('/'));
const tag = fc.stringMatching(/^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,20}$/);
const digest = fc.stringMatching(/^[0-9a-f]{64}$/).map((hex) => `sha256:${hex}`);
const id = fc.uuid();

const target = fc.oneof(
  fc.record({ kind: fc.constant('tags' as const), name, item: fc.constant('list') }),
  fc.record({ kind: fc.constant('manifest' as const), name, item: fc.oneof(tag, digest) }),
  fc.record({ kind: fc.constant('blob' as const), name, item: digest }),
  fc.record({ kind: fc.constant('uploads' as const), name, item: fc.constant('') }),
  fc.record({ kind: fc.constant('upload' as const), name, item: id }),
  fc.record({ kind: fc.constant('referrers' as const), name, item: digest }),
  fc.record({ kind: fc.constant('tag-history' as const), name, item: tag }),
  fc.record({ kind: fc.constant('discover' as const), name, item: fc.constant('discover') }),
);

function format({ kind, name, item }: RegistryTarget): string {
  if (kind === 'tag-history') return `/v2/${name}/_oci/tag-history/${item}`;
  if (kind === 'discover') return `/v2/${name}/_oci/ext/discover`;
  const middle = { tags: 'tags', manifest: 'manifests', blob: 'blobs', referrers: 'referrers' } as const;
  if (kind === 'uploads' || kind === 'upload') return `/v2/${name}/blobs/uploads/${item}`;
  return `/v2/${name}/${middle[kind as keyof typeof middle]}/${item}`;
}

test('a path is parsed to the name it was made from, with any segments', (t) => {
  fc.assert(fc.property(target, (wanted) => void t.deepEqual(parsePath(format(wanted)), wanted)));
});

test('percent-encoding changes nothing, also of slashes and colons', (t) => {
  fc.assert(
    fc.property(target, fc.infiniteStream(fc.boolean()), (wanted, coin) => {
      const path = format(wanted)
        .slice(4)
        .replaceAll(/./g, (each) =>
          coin.next().value ? `%${each.charCodeAt(0).toString(16).padStart(2, '0')}` : each,
        );
      t.deepEqual(parsePath(`/v2/${path}`), wanted);
    }),
  );
});

test('the parser never throws, and its result is part of the path', (t) => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.webPath(),
        fc.string().map((text) => `/v2/${text}`),
      ),
      (path) => {
        const found = parsePath(path);
        t.true(found.kind === 'unknown' || decodeURIComponent(path).startsWith('/v2'));
      },
    ),
  );
});

for (const [path, kind] of [
  ['/v2', 'base'],
  ['/v2/', 'base'],
  ['/v2/_catalog', 'catalog'],
  ['/v2/a/blobs/uploads', 'uploads'],
  ['/v2/tags/list', 'tags'],
  ['/v2/a', 'unknown'],
  ['/v2/a/manifests/', 'unknown'],
  ['/v2/a/manifests', 'unknown'],
  ['/v2/a/tags/list/', 'unknown'],
  ['/v2/a/tags/other', 'unknown'],
  ['/v2/a/list', 'unknown'],
  ['/v2/a/other/list', 'unknown'],
  ['/v2/a/other/uploads/x', 'unknown'],
  ['/v2/a/other/uploads', 'unknown'],
  ['/v2/a/other/x', 'unknown'],
  ['/v2/a/_oci/ext/other', 'unknown'],
  ['/v2/a/_oci/other/discover', 'unknown'],
  ['/v2/a/_oci/manifests/x', 'unknown'],
  ['/v2/_catalog/', 'unknown'],
  ['/v2/%zz/manifests/latest', 'unknown'],
  ['/v2/a/%', 'unknown'],
  ['/V2/a/manifests/latest', 'unknown'],
  ['/v1/a/manifests/latest', 'unknown'],
] as const) {
  test(`${path} is ${kind}`, (t) => {
    const { name, item, ...found } = parsePath(path);
    t.deepEqual(found, { kind });
    // What is of no repository has no name: it counts for none.
    if (['base', 'catalog', 'unknown'].includes(kind)) t.is(name, '');
    if (kind !== 'tags') t.is(item, '');
  });
}

test('a name behind as-of has a date and is the rest, for any date', (t) => {
  for (const [path, wanted] of [
    ['as-of/2020-01-01/team/app/manifests/v1', ['manifest', '2020-01-01', 'team/app', 'v1']],
    ['as-of/x/tags/list', ['tags', 'x', '', 'list']],
    ['as-of//app/tags/list', ['tags', '', 'app', 'list']],
    ['as-of/1/a%0Ab/tags/list', ['tags', '1', 'a\nb', 'list']],
    ['as-of/tags/list', ['tags', undefined, 'as-of', 'list']],
    ['team/as-of/1/a/tags/list', ['tags', undefined, 'team/as-of/1/a', 'list']],
  ] as const) {
    const { kind, date, name: rest, item } = parsePath(`/v2/${path}`);
    t.deepEqual([kind, date, rest, item], [...wanted], path);
  }
});

test('the id of an upload is a UUID in lower case', (t) => {
  const own = '01234567-89ab-cdef-0123-456789abcdef';
  t.true(isUploadId(own));
  for (const bad of [
    `${own}0`,
    `0${own}`,
    own.toUpperCase(),
    own.replace('-', '0'),
    own.slice(1),
    own.slice(0, -1),
    `${own}\n`,
  ])
    t.false(isUploadId(bad), bad);
  for (const at of [0, 9, 14, 19, 24]) t.false(isUploadId(`${own.slice(0, at)}g${own.slice(at + 1)}`), String(at));
  for (const at of [0, 9, 14, 19, 24]) t.false(isUploadId(own.slice(0, at) + own.slice(at + 1)), `short at ${at}`);
});

test('names follow the grammar and have at most 255 characters', (t) => {
  fc.assert(fc.property(name, (text) => void t.true(isRepositoryName(text))));
  t.true(isRepositoryName('a'.repeat(255)));
  for (const bad of [
    '',
    'A',
    'a//b',
    '/a',
    'a/',
    'a___b',
    'a..b',
    '-a',
    'a-',
    '.',
    '..',
    'a/../b',
    'é',
    'a b',
    'a\n',
    'a/b_',
    'a/-b',
    'a/b..c',
    'a/b___c',
    'a/b._c',
    'a/B',
    'b/c/A',
    '/',
    'a//b/c',
  ]) {
    t.false(isRepositoryName(bad), JSON.stringify(bad));
  }
  t.false(isRepositoryName('a'.repeat(256)));
  t.throws(() => parseRepositoryName('a/../b'), { name: 'NameInvalid' });
});

test('a reference is a tag or a digest, and the error says which of them is wrong', (t) => {
  fc.assert(fc.property(tag, (text) => void t.deepEqual(parseReference(text), { tag: text })));
  fc.assert(fc.property(digest, (text) => void t.is(parseReference(text).digest, text as never)));
  for (const good of ['A', '_', '9', 'a.-_Z', 'x'.repeat(128)]) t.true(isTag(good), good);
  for (const bad of ['.a', 'a\n', 'aé', '-a', 'a/b', 'a b', 'x'.repeat(129), '..', '']) {
    t.false(isTag(bad), bad);
    t.throws(() => parseReference(bad), { name: 'TagInvalid' });
  }
  for (const bad of ['sha256:', 'sha256:ABC', `sha256:${'A'.repeat(64)}`, `md5:${'a'.repeat(32)}`, ':', 'a:b']) {
    t.throws(() => parseReference(bad), { name: 'DigestInvalid' });
  }
});

test('any text is a reference or a domain error', (t) => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      try {
        parseReference(text);
        t.pass();
      } catch (error) {
        t.true(isDomainError(error));
      }
    }),
  );
});

test('the fallback tag of a subject is a valid tag for any digest', (t) => {
  t.is(fallbackTag(`sha256:${'a'.repeat(64)}`), `sha256-${'a'.repeat(64)}`);
  t.is(fallbackTag(`sha512:${'b'.repeat(128)}`), `sha512-${'b'.repeat(64)}`);
});
