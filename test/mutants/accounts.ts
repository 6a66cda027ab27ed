import { mutantsOf } from './mutant.ts';

export const accounts = [
  ...mutantsOf(
    'src/accounts/tokens.ts',
    ['test/accounts/tokens.test.ts'],
    [
      ['a revocation takes 30 s to reach other instances', 'const lag = 200;', 'const lag = 30_000;'],
      ['times of use are lost after a failed flush', 'this.#used.set(id, Math.max(at, this.#used.get(id) ?? 0));', ''],
      ['a failed flush sets times of use back', 'Math.max(at, this.#used.get(id) ?? 0)', 'at'],
    ],
  ),

  ...mutantsOf(
    'src/accounts/token-bounds.ts',
    ['test/api/account-bounds.test.ts'],
    [
      [
        'the name of the first token keeps each token',
        '(created_by IS NULL OR created_by',
        '(created_by IS NOT NULL OR created_by',
      ],
    ],
  ),

  ...mutantsOf(
    'src/accounts/allow.ts',
    ['test/api/token-patterns.test.ts'],
    [
      [
        'a token with any scope may do everything',
        'principal.scopes.has(scope);',
        'principal.scopes.size > 0;',
        'test/api/content.test.ts',
      ],
      [
        'every token gives the scope operate',
        "if ([...scopes].includes('operate')) requireCovered(allowedAs(principal, 'operate'), patterns);",
        '',
        'test/api/operate-scope.test.ts',
      ],
      [
        'a push is received although no package is allowed',
        'matches ?? !names.isEmpty',
        'matches ?? true',
        'test/nuget/feed/token-patterns.test.ts',
      ],
      [
        'a limited principal gives scopes that it lacks',
        'for (const scope of scopes) requireCovered(allowedAs(principal, scope), patterns);',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/accounts/names.ts',
    ['test/accounts/names.test.ts'],
    [
      [
        'a pattern may be one character too long',
        'pattern.length <= maxPatternLength',
        'pattern.length <= maxPatternLength + 1',
      ],
      ['a token may have one pattern too many', 'patterns.length > maxPatterns', 'patterns.length > maxPatterns + 1'],
      [
        'a pattern in SQL has other wildcards',
        "part.replace(/[!%_]/g, '!$&')",
        'part',
        'test/nuget/feed/token-patterns.test.ts',
      ],
      ['exact patterns depend on letter case', 'patterns.map((pattern) => pattern.toLowerCase())', '[...patterns]'],
    ],
  ),
  ...mutantsOf(
    'src/accounts/token-value.ts',
    ['test/accounts/token-value.test.ts'],
    [
      ['a checksum is not of the prefix', 'checksum(`ent_${random}`)', 'checksum(random)'],
      ['a longer prefix of tokens is shown', 'value.slice(0, prefixLength)', 'value.slice(0, 18)'],
      [
        'the prefix of a chosen token is shown',
        "value.slice(0, prefixLength) : ''",
        'value.slice(0, prefixLength) : value.slice(0, prefixLength)',
      ],
    ],
  ),
  ...mutantsOf(
    'src/accounts/accounts.ts',
    ['test/accounts/tokens.test.ts'],
    [
      ['an account name may be one character too long', '{0,98}', '{0,99}'],
      ['creating an account that exists succeeds', 'if (inserted === 0) throw', 'if (inserted < 0) throw'],
    ],
  ),
];
