import { mutantsOf } from './mutant.ts';

export const http = [
  ...mutantsOf(
    'src/http/app.ts',
    ['test/http/usage.test.ts'],
    [
      [
        'bytes after a client left are not counted',
        'if (principal) usage.countFetched(principal.accountId, later);',
        '',
      ],
      [
        'bytes after a client left are ignored',
        'if (context.fetching === 0) return;',
        'if (context.fetching >= 0) return;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/http/token.ts',
    ['test/http/registry-auth.test.ts'],
    [
      ['answers with tokens may be cached', "response.setHeader('Cache-Control', 'no-store');", ''],
      [
        'the header of a token request wins over its form',
        '(form && credentialsIn(form)) ?? request.headers.authorization',
        'request.headers.authorization ?? (form && credentialsIn(form))',
      ],
      [
        'any method gets a token',
        "request.method !== 'GET' && request.method !== 'POST'",
        'request.method === undefined',
      ],
    ],
  ),
  ...mutantsOf(
    'src/server.ts',
    ['test/http/closing.test.ts'],
    [
      [
        'a closing server cuts running requests',
        'server.closeAllConnections(), grace)',
        'server.closeAllConnections(), 0)',
      ],
      ['a closing server waits for ever', 'server.closeAllConnections(), grace)', 'undefined, grace)'],
      [
        'a closing server keeps idle connections',
        'setInterval(() => server.closeIdleConnections(), 50)',
        'setInterval(() => undefined, 50)',
      ],
    ],
  ),
  ...mutantsOf(
    'src/core.ts',
    ['test/http/closing.test.ts'],
    [
      ['uses of mirrored content are lost at the end', '(each) => each.flushUses()', '() => undefined'],
      [
        'uses of tokens are lost at the end',
        '(each) => each.flush()',
        '() => undefined',
        'test/accounts/instances.test.ts',
      ],
      [
        'usage is lost at the end',
        'new UsageRecord(database, now, downloads), (each) => each.close()',
        'new UsageRecord(database, now, downloads), () => undefined',
      ],
    ],
  ),
];
