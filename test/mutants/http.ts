import { mutantsOf } from './mutant.ts';

export const http = [
  ...mutantsOf(
    'src/tls/server.ts',
    ['test/tls/server.long.test.ts'],
    [
      ['a changed certificate loses the ciphers', 'setSecureContext({ ...settings, cert', 'setSecureContext({ cert'],
      ['every cipher of Node is accepted', '{ ...options, ...settings, cert, key,', '{ ...options, cert, key,'],
    ],
  ),
  ...mutantsOf(
    'src/http/request-context.ts',
    ['test/http/closing.test.ts', 'test/http/edge.test.ts'],
    [
      [
        'answers while the server closes keep the connection',
        "if (this.mustClose()) headers['Connection'] = 'close';",
        '',
      ],
      ['every answer closes its connection', 'if (this.mustClose()) headers', 'headers'],
    ],
  ),
  ...mutantsOf(
    'src/http/app.ts',
    ['test/http/closing.test.ts'],
    [
      [
        'only requests that begin while the server closes close their connections',
        'response.mustClose = isShuttingDown;',
        'if (isShuttingDown()) response.mustClose = isShuttingDown;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/http/app.ts',
    ['test/api/usage.test.ts'],
    [
      [
        'bytes after a client left are not counted',
        'if (principal && billable) usage.countFetched(principal.accountId, later);',
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
    'src/http/edge.ts',
    ['test/http/edge.test.ts'],
    [['a refusal says no time', "response.setHeader('Retry-After', known.retryAfter);", ';']],
  ),
  ...mutantsOf(
    'src/http/token.ts',
    ['test/oci/http/auth.test.ts'],
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
    'src/http/hosts.ts',
    ['test/http/other-sites.test.ts'],
    [
      ['requests of a subdomain are from this site', "site !== 'same-origin' && site", "site !== 'same-site' && site"],
      ['all paths answer to other hosts', 'return operations.has(splitTarget(target).path);', 'return true;'],
      ['further names do not count', '...hosts.map(hostnameOf)', ''],
    ],
  ),
  ...mutantsOf(
    'src/http/pipelining.ts',
    ['test/http/pipelining.test.ts'],
    [
      ['all that a client sends is read', 'return -1;', 'return 0;'],
      ['answered requests count as waiting', 'waiting.get(socket)! - 1', 'waiting.get(socket)!'],
    ],
  ),
  ...mutantsOf(
    'src/http/listener.ts',
    ['test/http/closing.test.ts'],
    [
      ['a closing server cuts running requests', 'over.resolve();\n  }, grace);', 'over.resolve();\n  }, 0);'],
      [
        'a closing server keeps connections without a first byte',
        'if (each.bytesRead === 0) each.destroy();',
        'if (each.bytesRead < 0) each.destroy();',
      ],
      ['a closing server resets connections that wait', 'await setImmediate();\n  await setImmediate();', ''],
      ['a closing server cuts a connection before its first byte', 'firstByteTime = 1000', 'firstByteTime = 0'],
    ],
  ),
  ...mutantsOf(
    'src/usage/unwritten.ts',
    ['test/http/closing.test.ts'],
    [
      [
        'uses of tokens are lost at the end',
        'inTime(() => tokens.flush(), time)',
        'inTime(() => Promise.resolve(), time)',
        'test/accounts/instances.long.test.ts',
      ],
      ['usage is lost at the end', 'inTime(() => usage.close(), time)', 'inTime(() => Promise.resolve(), time)'],
    ],
  ),

  ...mutantsOf(
    'src/http/authenticate.ts',
    ['test/http/credentials.test.ts'],
    [
      [
        'an invalid API key hides valid credentials',
        'if (authorization === undefined) throw await this.#refused(key, rules);',
        'throw this.#refused(key, rules);',
      ],
      ['empty Basic credentials are wrong ones', '/^basic +Og==$/i', '/^basic +Og$/i'],
      [
        'debuggers need the user name api',
        'anyUser || pair.user === basicUser',
        'pair.user === basicUser',
        'test/nuget/feed/symbols.test.ts',
      ],
      [
        'the anonymous token is valid without anonymous reading',
        'value === anonymousBearer && this.#anonymous) return this.#anonymous;',
        'value === anonymousBearer) return this.#anonymous!;',
        'test/oci/http/auth.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/http/send.ts',
    ['test/http/send.test.ts'],
    [
      ['a range lacks its last byte', 'end = range.end + 1;', 'end = range.end;'],
      [
        'an answer that fails ends as if it were whole',
        'if (response.headersSent) response.destroy();',
        'if (response.headersSent) response.end();',
      ],
      ['a weak validator does not match', ".replace(/^W\\//, '')", ''],
      [
        'content that is too short is sent as whole',
        "if (read === 0) throw new Error('content is shorter than its size');",
        'if (read === 0) break;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/http/ranges.ts',
    ['test/http/ranges.test.ts'],
    [
      ['a range may end after the content', 'Math.min(Number(last), size - 1)', 'Number(last)'],
      ['a range may be backwards', 'if (start > end)', 'if (start >= size)'],
      ['a suffix range is one byte too long', 'size - Number(last))', 'size - Number(last) - 1)'],
    ],
  ),
  ...mutantsOf(
    'src/http/body.ts',
    ['test/api/api.test.ts'],
    [
      ['a silent body is waited for', 'whenSilent(request, idle, fail)', 'whenSilent(request, idle * 1000, fail)'],
      [
        'a chunked body has any size',
        'if (length > limit) fail(tooLarge());\n      else',
        '',
        'test/http/edge.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/http/proxies.ts',
    ['test/http/proxies.test.ts'],
    [
      [
        'headers of untrusted addresses are used',
        "if (!this.#isTrusted(request.socket.remoteAddress ?? '', 0)) return undefined;",
        '',
      ],
      ['an address that is none is logged', 'isIP(address) ? address : direct', 'address'],
      ['the first value of a forwarded header counts', 'values.at(-Math.min(passed, values.length))!', 'values.at(0)!'],
    ],
  ),

  ...mutantsOf(
    'src/api/framework/paging.ts',
    ['test/api/tokens.test.ts'],
    [
      [
        'a page is the last one when it is full',
        'readVisible(list, limit + 1, after)',
        'readVisible(list, limit, after)',
      ],
      ['an entry is on two pages', 'entries[limit - 1]!', 'entries[limit - 2] ?? entries[0]!'],
      ['a page may have 201 entries', '1\\d\\d|200)$/', '1\\d\\d|20[01])$/'],
    ],
  ),
];
