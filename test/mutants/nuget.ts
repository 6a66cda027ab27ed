import { mutantsOf } from './mutant.ts';

export const nuget = [
  ...mutantsOf(
    'src/nuget/hosted/versions.ts',
    ['test/nuget/feed/long-lists.long.test.ts'],
    [
      [
        'versions that are equal in order to the last one of a step are listed twice',
        'isLast ? rows :',
        'rows.length > 0 ? rows :',
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/feed/documents.ts',
    ['test/http/kept-memory.test.ts'],
    [['a kept document keeps the memory of other buffers', 'ownBytes(bytes)', 'bytes']],
  ),
  ...mutantsOf(
    'src/nuget/feed/documents.ts',
    ['test/nuget/feed/read.test.ts'],
    [
      ['a cached document is served at every address', " ${addresses.at('')}`", '`'],
      ['a cached document has one form', '`${revision} ${form} ', '`${revision} '],
    ],
  ),
  ...mutantsOf(
    'src/storage/files/zip-directory.ts',
    ['test/nuget/format/nupkg.test.ts'],
    [
      ['names of zip entries are not unescaped', 'const unescaped = unescape(raw)', 'const unescaped = raw'],
      ['a zip entry may have a parent folder in its name', "name.split('/').includes('..')", 'false'],
      ['a zip entry may have an absolute name', '/^\\/|^[a-z]:|\\\\|\\0/i', '/^[a-z]:|\\\\|\\0/i'],
      ['a zip entry may name a drive', '/^\\/|^[a-z]:|\\\\|\\0/i', '/^\\/|\\\\|\\0/i'],
      ['a zip entry may have a backslash in its name', '/^\\/|^[a-z]:|\\\\|\\0/i', '/^\\/|^[a-z]:|\\0/i'],
      ['a zip entry may have a NUL in its name', '/^\\/|^[a-z]:|\\\\|\\0/i', '/^\\/|^[a-z]:|\\\\/i'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/format/range.ts',
    ['test/nuget/format/range.test.ts'],
    [
      [
        'only a lower bound allows prereleases',
        'const prerelease = [range.min, range.max].some(',
        'const prerelease = [range.min].some(',
      ],
      [
        'the highest applicable version is chosen',
        'compareVersions(version, lowest) < 0',
        'compareVersions(version, lowest) > 0',
      ],
    ],
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
    'src/nuget/source/merged-search.ts',
    ['test/nuget/feed/mirror-search.test.ts'],
    [['a private ID as package type is sent upstream', '`${text} ${packageType}`', 'text']],
  ),

  ...mutantsOf(
    'src/nuget/hosted/deletion.ts',
    ['test/permanence/undelete.test.ts'],
    [
      [
        'a deleted version still takes room',
        'size_bytes = size_bytes - ?',
        'size_bytes = size_bytes - 0 * ?',
        'test/nuget/feed/accounts.test.ts',
      ],
      [
        'other bytes replace a deleted version',
        'if (deleted.digest !== files.digests.nupkg)',
        "if (deleted.digest === '')",
      ],
      ['a kept version is deleted', 'if (guard.keepsVersion(', 'if (!guard && (', 'test/permanence/rules.test.ts'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/hosted/publish.ts',
    ['test/nuget/feed/push.test.ts'],
    [
      [
        'an unlisted version stays listed',
        'const value = listed ? 1 : 0;',
        'const value = 1;',
        'test/nuget/feed/lifecycle.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/hosted/versions.ts',
    ['test/nuget/feed/accounts.test.ts'],
    [
      [
        'versions of all accounts are listed',
        'SELECT v.version_key, v.sort_key FROM ${join} WHERE p.account_id = ? AND',
        'SELECT v.version_key, v.sort_key FROM ${join} WHERE ? > 0 AND',
      ],
      ['pages have the versions of all accounts', "const all = 'p.account_id = ?", "const all = '? > 0"],
      [
        'documents are cached across accounts',
        "FROM packages WHERE account_id = ? AND package_key = ?',\n    [accountId, packageKey(id)],\n  );\n  return row &&",
        "FROM packages WHERE ? > 0 AND package_key = ?',\n    [accountId, packageKey(id)],\n  );\n  return row &&",
      ],
      ['autocompletion shows unlisted versions', 'AND v.listed = 1\n', '\n', 'test/nuget/feed/search.test.ts'],
      [
        'a range of pages has no bound',
        'if (rows.length > rangeVersions) throw rangeTooLong();',
        '',
        'test/nuget/feed/long-registration.long.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/hosted/claims.ts',
    ['test/cli/claim.test.ts'],
    [
      ['a claim in use is released', "package_key = ? AND version_count = 0';", "package_key = ?';"],
      [
        'claims of all accounts are private',
        'WHERE account_id = ? AND package_key IN',
        'WHERE ? > 0 AND package_key IN',
        'test/nuget/feed/mirror-precedence.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/feed/upload.ts',
    ['test/nuget/feed/push.test.ts'],
    [
      ['an empty package is accepted', 'staged.size === 0', 'staged.size < 0'],
      ['a push that was cut leaves its file', 'await staged.discard();', ''],
      ['a package in a form has any size', 'staged.append(content, { limit: limits.size })', 'staged.append(content)'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/format/version.ts',
    ['test/nuget/format/version.test.ts'],
    [
      ['a release is lower than its prereleases', 'return b.length - a.length;', 'return a.length - b.length;'],
      [
        'metadata is part of the identity',
        'return normalize(version).toLowerCase();',
        'return fullString(version).toLowerCase();',
      ],
      ['negative labels sort backwards', 'String(9 - Number(digit))', 'digit'],
      ['large numbers in labels are numbers', 'number < -maxNumber - 1 || number > maxNumber', 'Number.isNaN(number)'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/search/private-words.ts',
    ['test/nuget/feed/mirror-search.test.ts'],
    [
      ['extensions of a private ID are sent upstream', 'words.flatMap(withParents)', 'words'],
      ['beginnings of a hosted ID are sent upstream', "if (word.includes('.') && (await", "if (word === '.' && (await"],
      [
        'beginnings of a reserved ID are sent upstream',
        " || words.some((word) => policy.beginsReserved(word, '.'))",
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/hosted/deprecations.ts',
    ['test/nuget/feed/deprecation.test.ts'],
    [
      ['cached registrations keep an old deprecation', 'revision = revision + 1, updated_at', 'updated_at'],
      [
        'a deprecation does not count as stored',
        'UPDATE packages SET metadata_bytes = metadata_bytes + ?, revision',
        'UPDATE packages SET metadata_bytes = metadata_bytes + 0 * ?, revision',
      ],
      ['a missing version is skipped', 'if (missing !== undefined) throw notHosted(id, byKey.get(missing));', ''],
      [
        'only the first versions of a package are deprecated',
        '!keys && rows.length === batch',
        '!keys && rows.length < 0',
      ],
      ['an equal deprecation is written again', 'rows.filter((row) => row.deprecation !== text)', 'rows.slice()'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/feed/deprecation-routes.ts',
    ['test/nuget/feed/deprecation.test.ts'],
    [
      [
        'a deprecation unlists without the scope delete',
        "if (body.listedVerb === 'Unlist') allow(",
        'if (!body) allow(',
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/hosted/advisories.ts',
    ['test/nuget/feed/advisories.test.ts'],
    [
      ['an account has any number of advisories', '>= maxOfAccount', '>= maxOfAccount * 9'],
      [
        'the advisories of all accounts are served',
        '${columns} WHERE a.account_id = ?',
        '${columns} WHERE a.account_id > 0 * ?',
      ],
      ['the date of the advisories can go back', 'ELSE changed_at + 1 END', 'ELSE new.changed_at END'],
      [
        'a released name keeps its advisories',
        "'DELETE FROM package_advisories WHERE package_row = ?'",
        "'DELETE FROM package_advisories WHERE package_row = -?'",
      ],
      ['registrations show advisories of other versions', 'satisfies(range, parsed)', 'true'],
    ],
  ),
  ...mutantsOf(
    'src/nuget/feed/vulnerabilities.ts',
    ['test/nuget/feed/advisories.test.ts'],
    [
      ['pages of two tokens have one name', 'return `base-${shortDigest(JSON.stringify(page))}`;', "return 'base';"],
      [
        'the name of a page is none for NuGet',
        'validName.test(name) ? name : shortDigest(name)',
        'name',
        'test/nuget/feed/mirror-search.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/nuget/feed/vulnerability-routes.ts',
    ['test/nuget/feed/advisories.test.ts'],
    [
      [
        'anonymous readers of mirrored content get own advisories',
        'readsHosted(principal) ? await',
        'principal ? await',
      ],
      ['the vulnerability data ignores name patterns', 'undefined, { only });', 'undefined);'],
    ],
  ),
  ...mutantsOf(
    'src/http/multipart.ts',
    ['test/nuget/feed/push.test.ts'],
    [
      ['a second file of a form is ignored', "form.on('filesLimit'", "form.on('ignored'"],
      [
        'a silent push is waited for',
        'whenSilent(request, reader.idle, reject)',
        'whenSilent(request, reader.idle * 1000, reject)',
      ],
      [
        'a long field of a form is cut',
        'nameTruncated || valueTruncated',
        'nameTruncated',
        'test/console/prefetch.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/api/operations.ts',
    ['test/console/upload.test.ts'],
    [['an upload of the console has no quota', 'if (stores) await admit(', 'if (!stores) await admit(']],
  ),
  ...mutantsOf(
    'src/nuget/operations/publish-operation.ts',
    ['test/console/upload.test.ts'],
    [['an upload of the console is not counted', "act: 'upload'", 'act: undefined']],
  ),
];
