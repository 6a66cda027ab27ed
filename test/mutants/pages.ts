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
  ...mutantsOf(
    'src/console/readme-worker.ts',
    ['test/console/readme.test.ts'],
    [
      ['a README may contain HTML', 'html: false', 'html: true'],
      [
        'a README shows images of other sites',
        "markdown.renderer.rules['image'] =",
        "markdown.renderer.rules['none'] =",
      ],
      ['a link in a README leads to any address', 'const address = webAddress(href);', 'const address = href;'],
    ],
  ),
  ...mutantsOf(
    'src/console/readme.ts',
    ['test/console/readme.test.ts'],
    [
      ['any number of READMEs are rendered at a time', 'waiting >= mostWaiting', 'waiting < 0'],
      ['a README may become any size', 'result.length <= longestHtml', 'result.length >= 0'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/http/version-details.ts',
    ['test/console/packages.test.ts', 'test/http/api-package-details.test.ts'],
    [
      ['a page waits for a silent upstream', 'const patience = 1500;', 'const patience = 60_000;'],
      ['a vulnerability of other versions is shown', '|| !satisfies(range, version)', ''],
      [
        'a visitor without a token learns which packages are hosted',
        'throw credentialMissing();',
        'void credentialMissing();',
      ],
    ],
  ),
];
