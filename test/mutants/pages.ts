import { mutantsOf } from './mutant.ts';

export const pages = [
  ...mutantsOf(
    'src/mirror/store/words.ts',
    ['test/api/search.test.ts'],
    [
      ['a search by name reads any number of rows', 'read < maxRows', 'read >= 0'],
      [
        'a search by name ignores all words but the longest',
        'others.every(',
        'others.some(() => true) || others.every(',
      ],
      ['a name is found once for each of its words', '[0] === row.suffix', '[0] !== undefined'],
    ],
  ),
  ...mutantsOf(
    'src/oci/catalog/mirrored-images.ts',
    ['test/api/search.test.ts'],
    [
      [
        'a search shows mirrored images that the token may not see',
        '\n        .filter(({ name }) => visible.has(name))',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/operations/search-sources.ts',
    ['test/api/search.test.ts'],
    [['a search shows hosted packages to anonymous readers', 'if (!readsHosted(principal)) return [];', '']],
  ),
  ...mutantsOf(
    'src/console/framework/readme-worker.ts',
    ['test/console/readme.test.ts'],
    [
      [
        'a README shows images of other sites',
        "markdown.renderer.rules['image'] =",
        "markdown.renderer.rules['none'] =",
      ],
      ['a link in a README leads to any address', 'const address = webAddress(href);', 'const address = href;'],
    ],
  ),
  ...mutantsOf(
    'src/console/framework/readme.ts',
    ['test/console/readme.test.ts'],
    [
      ['any number of READMEs are rendered at a time', 'waiting >= maxWaiting', 'waiting < 0'],
      ['a README may become any size', 'result.length <= maxHtmlLength', 'result.length >= 0'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/operations/version-details.ts',
    ['test/console/packages.test.ts', 'test/api/package-details.test.ts'],
    [['a page waits for a silent upstream', 'const patience = 1500;', 'const patience = 60_000;']],
  ),
  ...mutantsOf(
    'src/nuget/source/reader.ts',
    ['test/api/package-details.test.ts'],
    [
      [
        'a visitor without a token learns which packages are hosted',
        'throw credentialMissing();',
        'void credentialMissing();',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/natural-order.ts',
    ['test/api/images.test.ts'],
    [
      ['tags are sorted as text', '+ number;', '* 0 + digits;'],
      ['leading zeros change the order of tags', "digits.replace(/^0+(?=\\d)/, '')", 'digits'],
    ],
  ),
  ...mutantsOf(
    'src/oci/catalog/stored-images.ts',
    ['test/api/images.test.ts'],
    [
      [
        'a token for one spelling reads what is hosted under another',
        "allow(principal, action, 'container', names)",
        "allow(principal, action, 'container')",
      ],
      ['a visitor without a token sees hosted images', 'throw credentialMissing();', 'void credentialMissing();'],
    ],
  ),
  ...mutantsOf(
    'src/oci/catalog/hosted-images.ts',
    ['test/api/images.test.ts'],
    [
      [
        'tags of an older release stay without a place',
        'if (rows.length === 0) return;',
        'if (rows.length >= 0) return;',
      ],
      [
        'the pulls of an index are not those of its images',
        'return sum ? { ...row,',
        'return sum === null ? { ...row,',
      ],
    ],
  ),
  ...mutantsOf(
    'src/console/pages/packages/package-delete.ts',
    ['test/console/changes.test.ts'],
    [['a preview shows no dependent packages', 'if (items.length === 0) return', 'if (items.length >= 0) return']],
  ),
  ...mutantsOf(
    'src/oci/operations/detail-operations.ts',
    ['test/console/changes.test.ts'],
    [
      [
        'a mirrored manifest is deleted without the scope operate',
        "at.deleteManifest(digest, () => allow(principal, 'operate'))",
        "at.deleteManifest(digest, () => allow(principal, 'delete'))",
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/hosted/term-index.ts',
    ['test/console/changes.test.ts'],
    [
      [
        'dependencies of older versions stay in the index',
        "await tx.run('DELETE FROM package_dependencies WHERE package_row = ?', [row.id]);",
        '',
      ],
    ],
  ),
];
