import { mutantsOf } from './mutant.ts';

export const nuget = [
  ...mutantsOf(
    'src/nuget/http/documents.ts',
    ['test/http/feed-read.test.ts'],
    [
      ['a cached document is served at every address', " ${addresses.at('')}`", '`'],
      ['a cached document has one form', '`${revision} ${form} ', '`${revision} '],
    ],
  ),
  ...mutantsOf(
    'src/nuget/format/zip-directory.ts',
    ['test/nuget/nupkg.test.ts'],
    [
      ['a zip entry may have a parent folder in its name', "name.split('/').includes('..')", 'false'],
      ['a zip entry may have an absolute name', '/^\\/|^[a-z]:|\\\\|\\0/i', '/^[a-z]:|\\\\|\\0/i'],
      ['a zip entry may name a drive', '/^\\/|^[a-z]:|\\\\|\\0/i', '/^\\/|\\\\|\\0/i'],
      ['a zip entry may have a backslash in its name', '/^\\/|^[a-z]:|\\\\|\\0/i', '/^\\/|^[a-z]:|\\0/i'],
      ['a zip entry may have a NUL in its name', '/^\\/|^[a-z]:|\\\\|\\0/i', '/^\\/|^[a-z]:|\\\\/i'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/format/range.ts',
    ['test/nuget/range.test.ts'],
    [
      [
        'only a lower bound allows prereleases',
        'const prerelease = [range.min, range.max].some(',
        'const prerelease = [range.min].some(',
      ],
      ['the highest applicable version is chosen', '?? applicable[0]', '?? applicable.at(-1)'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/hosted/retention.ts',
    ['test/jobs/upkeep.test.ts'],
    [['retention deletes one batch of each package', 'more = !rules.dryRun && gone.length === batch', 'more = false']],
  ),
  ...mutantsOf(
    'src/nuget/prefetch/packages.ts',
    ['test/prefetch/packages.test.ts'],
    [
      ['a prefetch skips merged IDs', '!origin.isMerged(id) && ', ''],
      ['a prefetch asks for hosted IDs', '.size > 0', '.size > 1'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/search/merged-search.ts',
    ['test/http/feed-mirror-search.test.ts'],
    [['a private ID as package type is sent upstream', '`${text} ${packageType}`', 'text']],
  ),
];
