import test from 'ava';
import { ConfigError, loadConfig, type Environment } from '../../src/config/load.ts';

// Which values settings accept, on both sides of each bound.

const long = (length: number) => 'a'.repeat(length);
const many = <T>(length: number, each: (index: number) => T) => Array.from({ length }, (_, index) => each(index));
/** The variables of one setting whose value is JSON. */
const json =
  (name: string) =>
  (value: object): Environment => ({ [`ENTREPOT_${name}`]: JSON.stringify(value) });
const list = (name: string, base: object) => {
  const variables = json(name);
  return (more: object) => variables([{ ...base, ...more }]);
};

const predecessor = list('PREDECESSORS', { name: 'old', kind: 'registry', url: 'https://old.example' });
const alias = list('ALIASES', { to: 'registry' });
const feedAlias = list('ALIASES', { to: 'feed' });
const upstream = list('UPSTREAMS', { name: 'ghcr.io', kind: 'registry' });
const issuer = list('TRUSTED_ISSUERS', { name: 'ci', issuer: 'https://ci.example', audience: 'hub' });
const publisher = list('PUBLISHERS', { name: 'a', issuer: 'ci', claims: {}, scopes: [] });
const tags = list('RETENTION_CONTAINERS_TAGS', { keepNewest: 5 });
const oidc = (more: Environment = {}): Environment => ({
  ENTREPOT_SIGN_IN_OIDC_ISSUER: 'https://login.example',
  ENTREPOT_SIGN_IN_OIDC_CLIENT_ID: 'hub',
  ...more,
});
const rule = (more: object) =>
  oidc({
    ENTREPOT_SIGN_IN_OIDC_RULES: JSON.stringify([{ claim: 'groups', value: 'dev', scopes: ['read'], ...more }]),
  });
const s3 = (more: Environment): Environment => ({
  ENTREPOT_STORAGE_DRIVER: 's3',
  ENTREPOT_STORAGE_S3_BUCKET: 'bucket',
  ...more,
});
const one =
  (name: string) =>
  (value: string): Environment => ({ [`ENTREPOT_${name}`]: value });

const accepted: [what: string, environments: Environment[]][] = [
  ['ports', ['0', '1', '65535'].map(one('ADMIN_PORT'))],
  ['workers', ['1', '64'].map(one('WORKERS'))],
  ['numbers of proxies', ['0', '100', 'true', 'false', 'loopback', '10.0.0.0/8, ::1'].map(one('TRUST_PROXY'))],
  ['stopping', ['0s', '1h'].map(one('SHUTDOWN_GRACE'))],
  ['sessions', ['1m', '90d'].map(one('SIGN_IN_SESSION_IDLE'))],
  ['personal tokens', ['1d', '3650d'].map(one('SIGN_IN_TOKENS_IDLE'))],
  ['waivers', ['1h', '3650d'].map(one('WAIVERS_LONGEST'))],
  ['rates', ['1', '1B', '1 kB', '2MB', '3 GB', '4TB', '1KiB', '1.5MiB', '1GiB', '1TiB', ' 1 '].map(one('SCRUB_RATE'))],
  ['durations', ['0ms', '1s', '1.5m', '1h', '1d', ' 1d '].map(one('GC_GRACE'))],
  ['delays', ['0s', '60s', '1m'].map(one('LIMITS_DELAY'))],
  ['times for headers', ['100ms', '10m'].map(one('LIMITS_HEADER_TIMEOUT'))],
  ['sizes of headers', ['4KiB', '1MiB'].map(one('LIMITS_HEADER_SIZE'))],
  ['uploads', ['1', '1000000', 'off'].map(one('LIMITS_UPLOADS'))],
  ['requests', ['1', '10000000', 'off'].map(one('LIMITS_REQUESTS_PER_MINUTE'))],
  ['fetches', ['1', '10000'].map(one('LIMITS_ACCOUNT_FETCHES'))],
  ['versions to keep', ['1', '1000000'].map(one('RETENTION_PACKAGES_KEEP_VERSIONS'))],
  ['shares of a rate limit', ['1', '100'].map(one('PREFETCH_RATE_LIMIT_SHARE'))],
  ['hours', ['00:00-23:59', '19:30-09:00', '20:00-20:01'].map(one('PREFETCH_WINDOW'))],
  [
    'platforms',
    ['linux/amd64', 'linux/arm/v7', 'linux/arm64/v8.1', 'windows/x86_64'].map((each) =>
      json('PREFETCH_PLATFORMS')([each]),
    ),
  ],
  ['schedules', ['off', '0 4 * * 0', '@daily', '*/10 * * * * *'].map(one('JOBS_GC'))],
  [
    'public hosts',
    ['hub', 'Hub-1.example', '_a.b', '10.0.0.7', '::1', long(254), '1a'].map((each) => json('HOSTS')([each])),
  ],
  [
    'private servers',
    ['hub.corp', '10.0.0.0/8', '10.0.0.0/32', '10.0.0.0/0', 'fd00::/8', 'fd00::/128', '::1'].map((each) =>
      json('IMPORTS_ALLOW')([each]),
    ),
  ],
  [
    'buckets with keys',
    [s3({}), s3({ ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: 'a', ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: 'b' })],
  ],
  ['prefixes of keys', ['A', 'a/b._-Z9', long(200)].map(one('STORAGE_S3_PREFIX'))],
  ['names of predecessors', ['a', 'a.b-c_d1', long(100)].map((name) => predecessor({ name }))],
  ['accounts of predecessors', ['a', long(100)].map((account) => predecessor({ account }))],
  [
    'addresses of predecessors',
    [
      predecessor({ url: 'http://old.example:5000' }),
      predecessor({ kind: 'nuget', url: 'http://old.example/v3/index.json?a=b' }),
    ],
  ],
  ['patterns of predecessors', [predecessor({ include: [long(300)], exclude: many(1000, String), rename: ['a=b'] })]],
  [
    'credentials for predecessors',
    ['https://old.example', 'http://localhost', 'http://127.0.0.1:5000', 'http://127.10.20.30', 'http://[::1]'].map(
      (url) => predecessor({ url, adoptCredentials: true }),
    ),
  ],
  ['rights for predecessors', [predecessor({ adoptCredentials: { rightsFile: 'a' } }), predecessor({ rate: '1' })]],
  [
    'predecessors',
    [
      json('PREDECESSORS')(
        many(100, (index) => ({ name: `old-${index}`, kind: 'registry', url: 'https://old.example' })),
      ),
    ],
  ],
  [
    'paths of aliases',
    ['/a', '/a/', '/a/b.json', '/A_b-c~d.e/f', '/..a', '/a../b', '/...', `/${long(199)}`].map((path) =>
      feedAlias({ path }),
    ),
  ],
  [
    'paths beside those of the server',
    ['/v3a', '/v3/b'].map((path) => (path === '/v3a' ? feedAlias({ path }) : feedAlias({ path, host: 'old.example' }))),
  ],
  ['hosts of aliases', ['old', 'old.example:5000', '_a.b-c', '[::1]:80', 'a'].map((host) => alias({ host }))],
  ['beginnings of names', ['team', 'a/b', 'a.b_c-d/e__f', long(200)].map((prefix) => alias({ host: 'old', prefix }))],
  ['accounts of aliases', [alias({ host: 'old', account: long(100) })]],
  ['aliases', [json('ALIASES')(many(1000, (index) => ({ host: `h${index}`, to: 'feed' })))]],
  [
    'hosts for credentials',
    ['gitlab.corp', 'a-b.c:8443', '[fd00::1]:80', 'a'].map((each) => upstream({ credentialHosts: [each] })),
  ],
  ['accounts of upstreams', ['a', 'a.b_c-d', long(100)].map((each) => upstream({ accounts: [each] }))],
  ['IDs of upstreams', ['a', 'a.b_c-d', 'a:1', long(100)].map((id) => upstream({ id }))],
  [
    'credentials of upstreams',
    [
      { username: 'u', password: '' },
      { username: 'u', passwordFile: 'f' },
      { bearer: 'b' },
      { bearerFile: 'f' },
      { exec: ['p', ''] },
    ].map((auth) => upstream({ auth })),
  ],
  [
    'retention of tags',
    [tags({}), tags({ keepNewest: 0, keepUsedFor: '1d', accounts: ['a'] }), tags({ keepNewest: 1_000_000 })],
  ],
  ['rules of retention', [json('RETENTION_CONTAINERS_TAGS')(many(100, () => ({ keepNewest: 1 })))]],
  ['names of issuers', ['a', 'a.b_c-d', long(100)].map((name) => issuer({ name }))],
  [
    'issuers',
    [
      issuer({ issuer: 'http://ci.corp', allowPrivateNetwork: true }),
      issuer({ audience: long(500), caFile: 'a' }),
      issuer({ issuer: `https://ci.example/${long(481)}` }),
    ],
  ],
  [
    'lists of issuers',
    [
      json('TRUSTED_ISSUERS')(
        many(50, (index) => ({ name: `ci-${index}`, issuer: `https://ci.example/${index}`, audience: 'hub' })),
      ),
    ],
  ],
  [
    'publishers',
    [
      json('PUBLISHERS')(
        many(200, () => ({
          name: 'a',
          issuer: 'ci',
          claims: { a: ['b', 1, true] },
          scopes: [],
          packages: ['a'],
          containers: ['b'],
        })),
      ),
    ],
  ],
  [
    'providers',
    [
      oidc(),
      oidc({
        ENTREPOT_SIGN_IN_OIDC_NAME: long(60),
        ENTREPOT_SIGN_IN_OIDC_CLIENT_ID: long(500),
        ENTREPOT_SIGN_IN_OIDC_CLIENT_SECRET: long(1000),
      }),
    ],
  ],
  [
    'providers in a private network',
    [oidc({ ENTREPOT_SIGN_IN_OIDC_ISSUER: 'http://login.corp', ENTREPOT_SIGN_IN_OIDC_ALLOW_PRIVATE_NETWORK: 'true' })],
  ],
  [
    'rules for people',
    [
      rule({ claim: long(200), value: long(500) }),
      rule({ value: true }),
      rule({ scopes: ['read', 'write', 'delete', 'promote', 'admin', 'operate'] }),
    ],
  ],
  [
    'scopes of a provider',
    [oidc({ ENTREPOT_SIGN_IN_OIDC_SCOPES: JSON.stringify(['openid', ...many(19, (index) => `a!~${index}`)]) })],
  ],
];

test('a setting accepts values up to its bounds', (t) => {
  for (const [what, environments] of accepted)
    for (const environment of environments)
      t.notThrows(() => loadConfig(environment), `${what}: ${JSON.stringify(environment).slice(0, 300)}`);
});

const whole = (least: number, most: number) => `expected a whole number from ${least} to ${most}`;
const size = 'expected a size such as 512MiB';
const duration = 'expected a duration such as 30s, 5m or 90d';
const aliasPath = '0.path: expected a path such as /repository/nuget-hosted/index.json';
const aliasHost = '0.host: expected a host in lower case, such as old.example or old.example:5000';
const invalid = 'is not valid';
const receivers = '0: expected host names, addresses, or networks such as 10.0.0.0/8';
const hours = 'expected hours such as 22:00-06:00';
const needsHttps = '0.adoptCredentials: passwords of clients are sent to the predecessor, so its URL needs https';

const refused: [environment: Environment, message: string][] = [
  [{ ENTREPOT_WORKERS: '65' }, whole(1, 64)],
  [{ ENTREPOT_LIMITS_ACCOUNT_FETCHES: '10001' }, whole(1, 10_000)],
  [{ ENTREPOT_PREFETCH_RATE_LIMIT_SHARE: '0' }, whole(1, 100)],
  [{ ENTREPOT_PREFETCH_RATE_LIMIT_SHARE: '101' }, whole(1, 100)],
  [{ ENTREPOT_RETENTION_PACKAGES_KEEP_VERSIONS: '1000001' }, whole(1, 1_000_000)],
  [{ ENTREPOT_SHUTDOWN_GRACE: '3601s' }, 'expected 1h or less'],
  [{ ENTREPOT_SIGN_IN_SESSION_IDLE: '59s' }, 'expected 1m or more'],
  [{ ENTREPOT_SIGN_IN_SESSION_IDLE: '91d' }, 'expected 90d or less'],
  [{ ENTREPOT_SIGN_IN_TOKENS_IDLE: '23h' }, 'expected 1d or more'],
  [{ ENTREPOT_SIGN_IN_TOKENS_IDLE: '3651d' }, 'expected 3650d or less'],
  [{ ENTREPOT_WAIVERS_LONGEST: '59m' }, 'expected 1h or more'],
  [{ ENTREPOT_WAIVERS_LONGEST: '3651d' }, 'expected 3650d or less'],
  [{ ENTREPOT_LIMITS_DELAY: '60001ms' }, 'expected 1m or less'],
  [{ ENTREPOT_LIMITS_HEADER_TIMEOUT: '99ms' }, 'expected 100ms or more'],
  [{ ENTREPOT_LIMITS_HEADER_TIMEOUT: '601s' }, 'expected 10m or less'],
  [{ ENTREPOT_LIMITS_HEADER_SIZE: '4095' }, 'expected 4KiB or more'],
  [{ ENTREPOT_LIMITS_HEADER_SIZE: '1025KiB' }, 'expected 1MiB or less'],
  ...['1000001', '1.5', '-1', 'x1', '1x', '1e3'].map((value): [Environment, string] => [
    { ENTREPOT_LIMITS_UPLOADS: value },
    `${whole(1, 1_000_000)}, or off`,
  ]),
  [{ ENTREPOT_LIMITS_REQUESTS_PER_MINUTE: '10000001' }, `${whole(1, 10_000_000)}, or off`],
  ...['1kiB', '1 KB', '1  KB', 'x1', '1x', '.5', '1.', '-1'].map((value): [Environment, string] => [
    { ENTREPOT_LIMITS_NUPKG: value },
    size,
  ]),
  ...['1', '1 s', 'x1s', '1sx', '.5s', '-1s', '1w'].map((value): [Environment, string] => [
    { ENTREPOT_GC_GRACE: value },
    duration,
  ]),
  [{ ENTREPOT_BUNDLES_SEGMENT: '0' }, 'expected more than 0'],
  [{ ENTREPOT_PREFETCH_RATE: '0' }, 'expected more than 0'],
  ...['24:00-06:00', '22:60-06:00', '22:00-24:00', '22:00-6:00', 'x22:00-06:00', '22:00-06:00x', '22:00-06:60'].map(
    (value): [Environment, string] => [{ ENTREPOT_PREFETCH_WINDOW: value }, hours],
  ),
  ...['linux/', 'x linux/amd64', 'linux/amd64/', 'linux/amd64/v8/x'].map((value): [Environment, string] => [
    json('PREFETCH_PLATFORMS')([value]),
    '0: expected platforms such as linux/amd64',
  ]),
  ...['', 'a:1', '-a', 'a-', '1.2', '10.0.0', 'a b', long(255)].map((value): [Environment, string] => [
    json('HOSTS')([value]),
    '0: expected host names or addresses without ports',
  ]),
  ...['10.0.0.0/33', 'fd00::/129', 'hub.corp/8', '10.0.0.0/x', '10.0.0.0/8/8', '/8'].map(
    (value): [Environment, string] => [json('WEBHOOKS_ALLOW')([value]), receivers],
  ),
  [{ ENTREPOT_STORAGE_DRIVER: 's3' }, 'storage.driver s3 needs a bucket'],
  [{ ENTREPOT_STORAGE_DRIVER: 'disk' }, 'expected filesystem or s3'],
  [s3({ ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: 'a' }), 'is used only together with storage.s3.accessKeyId'],
  [s3({ ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: 'a' }), 'is used only together with storage.s3.secretAccessKey'],
  ...['ftp://s3.example', 'xhttp://s3.example', 'httpx://s3.example', 's3.example'].flatMap(
    (value): [Environment, string][] => [
      [{ ENTREPOT_STORAGE_S3_ENDPOINT: value }, 'expected an http or https URL'],
      [{ ENTREPOT_STORAGE_S3_PUBLIC_ENDPOINT: value }, 'expected an http or https URL'],
      [{ ENTREPOT_REGISTRY_URL: value }, 'expected an http or https URL'],
      [upstream({ symbolsUrl: value, kind: 'nuget' }), '0.symbolsUrl: expected an http or https URL'],
    ],
  ),
  [{ ENTREPOT_STORAGE_S3_ENDPOINT: 'https://u@s3.example' }, 'a URL here cannot have a user name or password'],
  [{ ENTREPOT_STORAGE_S3_PUBLIC_ENDPOINT: 'https://:p@s3.example' }, 'a URL here cannot have a user name or password'],
  ...['a b', 'ä', long(201)].map((value): [Environment, string] => [
    { ENTREPOT_STORAGE_S3_PREFIX: value },
    'expected up to 200 letters, digits, or characters of ._/-',
  ]),
  [{ ENTREPOT_STORAGE_S3_FORCE_PATH_STYLE: 'yes' }, 'expected true or false'],
  ...['Old', '-a', 'a-', 'a..b', 'a b'].map((name): [Environment, string] => [
    predecessor({ name }),
    '0.name: expected a name such as nexus-hosted',
  ]),
  [predecessor({ name: long(101) }), `0.name: ${invalid}`],
  [predecessor({ account: '' }), '0.account: must not be empty'],
  [predecessor({ account: long(101) }), `0.account: ${invalid}`],
  [predecessor({ include: [long(301)] }), `0.include.0: ${invalid}`],
  [predecessor({ rename: [''] }), '0.rename.0: must not be empty'],
  [predecessor({ exclude: many(1001, String) }), `0.exclude: ${invalid}`],
  [predecessor({ rate: '0' }), '0.rate: expected more than 0'],
  [predecessor({ adoptCredentials: { rightsFile: '' } }), '0.adoptCredentials.rightsFile: must not be empty'],
  ...['http://old.example', 'http://127.0.0.1.example', 'http://a.localhost', 'http://x.127.0.0.1.example'].map(
    (url): [Environment, string] => [predecessor({ url, adoptCredentials: true }), needsHttps],
  ),
  [predecessor({ url: 'http://old.example', adoptCredentials: { rightsFile: 'a' } }), needsHttps],
  ...['https://old.example/mirror', 'https://old.example?a=b'].map((url): [Environment, string] => [
    predecessor({ url }),
    '0.url: a registry’s URL cannot have a path or a query: repositories are below /v2/ of its host',
  ]),
  [
    json('PREDECESSORS')(many(2, () => ({ name: 'old', kind: 'registry', url: 'https://old.example' }))),
    '1.name: there are two predecessors named old',
  ],
  [
    json('PREDECESSORS')(many(101, (index) => ({ name: `a${index}`, kind: 'registry', url: 'https://old.example' }))),
    invalid,
  ],
  ...['a', '/', '//a', '/a//', '/a b', 'x/a', '/a?b'].map((path): [Environment, string] => [
    feedAlias({ path }),
    aliasPath,
  ]),
  [feedAlias({ path: `/${long(200)}` }), `0.path: ${invalid}`],
  ...['/a/../b', '/a/./b', '/..', '/a/.', '/./'].map((path): [Environment, string] => [
    feedAlias({ path }),
    '0.path: a path here has no . or .. in it',
  ]),
  ...['/v1', '/v2', '/v3', '/console', '/token', '/livez', '/readyz', '/metrics', '/as-of', '/v3/index.json'].map(
    (path): [Environment, string] => [
      feedAlias({ path }),
      '0.path: is one of this server already, so it needs no alias',
    ],
  ),
  [alias({}), '0.path: an alias needs a path, a host or both'],
  [feedAlias({ host: 'old', prefix: 'team' }), '0.prefix: is only for "to: registry": package IDs have none'],
  ...['Old', '-a', 'a-', 'a:x', 'a:123456', 'a b', 'http://a', '[::1', 'a/b'].map((host): [Environment, string] => [
    alias({ host }),
    aliasHost,
  ]),
  [alias({ host: long(261) }), `0.host: ${invalid}`],
  ...['Team', '/a', 'a/', 'a//b', '-a', 'a-', 'a b', 'a/-b', 'a/b-'].map((prefix): [Environment, string] => [
    alias({ host: 'old', prefix }),
    '0.prefix: expected the beginning of image names, such as team',
  ]),
  [alias({ host: 'old', prefix: long(201) }), `0.prefix: ${invalid}`],
  [alias({ host: 'old', account: '' }), '0.account: must not be empty'],
  [alias({ host: 'old', account: long(101) }), `0.account: ${invalid}`],
  [json('ALIASES')(many(1001, (index) => ({ host: `h${index}`, to: 'feed' }))), invalid],
  ...['Gitlab', 'a:', 'a:123456', '-a', 'a-', '[::1]x', '[x]', 'a b'].map((value): [Environment, string] => [
    upstream({ credentialHosts: [value] }),
    '0.credentialHosts.0: expected a host such as gitlab.corp or gitlab.corp:8443',
  ]),
  ...['-a', 'a-', 'A', long(101)].map((value): [Environment, string] => [
    upstream({ accounts: [value] }),
    '0.accounts.0: expected the name of an account',
  ]),
  [upstream({ id: long(101) }), '0.id: expected at most 100 characters'],
  [upstream({ auth: { username: '', password: 'a' } }), '0.auth.username: must not be empty'],
  [upstream({ auth: { username: '', passwordFile: 'a' } }), '0.auth.username: must not be empty'],
  [upstream({ auth: { bearer: '' } }), '0.auth.bearer: must not be empty'],
  [upstream({ auth: { exec: [] } }), `0.auth.exec: ${invalid}`],
  [upstream({ auth: { exec: ['', 'a'] } }), `0.auth.exec: ${invalid}`],
  [upstream({ auth: { username: 'a', password: 'b', more: 1 } }), '0.auth.more: there is no such setting'],
  [
    upstream({ auth: { exec: 'a' } }),
    '0.auth: expected {username, password or passwordFile}, {bearer or bearerFile} or {exec: [program, argument]}',
  ],
  [tags({ keepNewest: -1 }), `0.keepNewest: ${whole(0, 1_000_000)}`],
  [tags({ keepNewest: 1_000_001 }), `0.keepNewest: ${whole(0, 1_000_000)}`],
  [tags({ accounts: [] }), '0.accounts: name at least one account, or leave the list out for all'],
  [tags({ images: [''] }), '0.images.0: must not be empty'],
  [json('RETENTION_CONTAINERS_TAGS')(many(101, () => ({ keepNewest: 1 }))), invalid],
  [json('RETENTION_PROTECT')(['']), '0: must not be empty'],
  ...['Ci', '-a', 'a-', long(101)].map((name): [Environment, string] => [
    issuer({ name }),
    '0.name: expected a name such as github',
  ]),
  [issuer({ issuer: undefined }), '0.issuer: is missing'],
  [issuer({ issuer: 'http://ci.example' }), '0.issuer: expected an https URL'],
  [issuer({ issuer: 'ftp://ci.example' }), '0.issuer: expected an https URL'],
  [issuer({ issuer: 'https://u@ci.example' }), '0.issuer: a URL here cannot have a user name or password'],
  [issuer({ issuer: 'https://ci.example?a' }), '0.issuer: an issuer has no query and no fragment'],
  [issuer({ issuer: 'https://ci.example#a' }), '0.issuer: an issuer has no query and no fragment'],
  [issuer({ issuer: `https://ci.example/${long(482)}` }), '0.issuer: expected an https URL'],
  [issuer({ audience: '' }), '0.audience: must not be empty'],
  [issuer({ audience: long(501) }), `0.audience: ${invalid}`],
  [issuer({ caFile: '' }), '0.caFile: must not be empty'],
  [issuer({ kind: 'jenkins' }), '0.kind: expected github or gitlab or azure or kubernetes or other'],
  [
    json('TRUSTED_ISSUERS')(many(2, (index) => ({ name: 'a', issuer: `https://${index}.example`, audience: 'hub' }))),
    '1.name: there are two trusted issuers with this name',
  ],
  [
    json('TRUSTED_ISSUERS')(many(2, (index) => ({ name: `a${index}`, issuer: 'https://a.example', audience: 'hub' }))),
    '1.issuer: there are two trusted issuers with this issuer',
  ],
  [
    json('TRUSTED_ISSUERS')(
      many(51, (index) => ({ name: `a${index}`, issuer: `https://a.example/${index}`, audience: 'hub' })),
    ),
    invalid,
  ],
  [publisher({ account: '-a' }), '0.account: expected the name of an account'],
  [json('PUBLISHERS')(many(201, () => ({ name: 'a', issuer: 'ci', claims: {}, scopes: [] }))), invalid],
  [oidc({ ENTREPOT_SIGN_IN_OIDC_NAME: long(61) }), invalid],
  [oidc({ ENTREPOT_SIGN_IN_OIDC_CLIENT_ID: long(501) }), invalid],
  [oidc({ ENTREPOT_SIGN_IN_OIDC_CLIENT_SECRET: long(1001) }), invalid],
  [oidc({ ENTREPOT_SIGN_IN_OIDC_SCOPES: '["a b"]' }), '0: expected scopes such as groups'],
  [oidc({ ENTREPOT_SIGN_IN_OIDC_SCOPES: '["a\\"b"]' }), '0: expected scopes such as groups'],
  [oidc({ ENTREPOT_SIGN_IN_OIDC_SCOPES: JSON.stringify(['openid', ...many(20, (index) => `a${index}`)]) }), invalid],
  [rule({ claim: '' }), '0.claim: must not be empty'],
  [rule({ claim: long(201) }), `0.claim: ${invalid}`],
  [rule({ value: '' }), '0.value: must not be empty'],
  [rule({ value: long(501) }), `0.value: ${invalid}`],
  [rule({ scopes: [] }), '0.scopes: name at least one scope'],
  [rule({ scopes: ['all'] }), '0.scopes.0: expected read or write or delete or promote or admin or operate'],
  [
    oidc({
      ENTREPOT_SIGN_IN_OIDC_RULES: JSON.stringify(
        many(201, () => ({ claim: 'groups', value: 'dev', scopes: ['read'] })),
      ),
    }),
    invalid,
  ],
];

test('a setting refuses values beyond its bounds, with one line that names it', (t) => {
  for (const [environment, message] of refused) {
    const shown = JSON.stringify(environment).slice(0, 300);
    const error = t.throws(() => loadConfig(environment), { instanceOf: ConfigError }, shown);
    t.true(error?.message.endsWith(`: ${message}`), `${shown}: ${error?.message}`);
    t.false(error?.message.includes('\n'), shown);
  }
});

test('the kind of an issuer follows from its name and its address', (t) => {
  const kindOf = (more: object) => loadConfig(issuer(more)).trustedIssuers[0]!.kind;
  t.deepEqual(
    [
      kindOf({}),
      kindOf({ name: 'kubernetes' }),
      kindOf({ kind: 'gitlab' }),
      kindOf({ issuer: 'https://gitlab.com' }),
      kindOf({ issuer: 'https://token.actions.githubusercontent.com' }),
      kindOf({ issuer: 'https://vstoken.dev.azure.com/5' }),
      kindOf({ issuer: 'https://azure.example/vstoken.dev.azure.com' }),
    ],
    ['other', 'kubernetes', 'gitlab', 'gitlab', 'github', 'azure', 'other'],
  );
  t.is(loadConfig(issuer({ name: 'gitlab', issuer: undefined })).trustedIssuers[0]!.issuer, 'https://gitlab.com');
});
