import { mutantsOf } from './mutant.ts';

export const pages = [
  ...mutantsOf(
    'src/mirror/words.ts',
    ['test/http/api-search.test.ts'],
    [
      ['a search by name reads any number of rows', 'read < mostRows', 'read >= 0'],
      ['a search by name finds evicted content', 'row.here !== null &&', ''],
      [
        'a search by name ignores all words but the longest',
        'others.every(',
        'others.some(() => true) || others.every(',
      ],
      ['a name is found once for each of its words', '[0] === row.suffix', '[0] !== undefined'],
    ],
  ),
  ...mutantsOf(
    'src/oci/mirrored-images.ts',
    ['test/http/api-search.test.ts'],
    [['a search shows mirrored images that the token may not see', '.filter(({ name }) => visible.has(name))', '']],
  ),
  ...mutantsOf(
    'src/nuget/upstream/mirrored-packages.ts',
    ['test/http/api-search.test.ts'],
    [
      [
        'a search shows mirrored packages that the token may not see',
        '.filter((name) => only?.includes(name) ?? true)',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/http/search-sources.ts',
    ['test/http/api-search.test.ts'],
    [['a search shows hosted packages to anonymous readers', 'if (!readsHosted(principal)) return [];', '']],
  ),
];
