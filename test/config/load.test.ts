import { readFile, writeFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { ConfigError, loadConfig, type Environment } from '../../src/config/load.ts';
import { environmentName, schema, settings } from '../../src/config/schema.ts';
import { folderUntilEnd } from '../support/folder.ts';

async function loadFile(t: ExecutionContext, yaml: string, environment: Environment = {}) {
  const file = join(await folderUntilEnd(t), 'settings.yaml');
  await writeFile(file, yaml);
  return { file, load: () => loadConfig({ ENTREPOT_CONFIG: file, ...environment }) };
}

test('without a file and environment variables, all settings have defaults', (t) => {
  const config = loadConfig({ PATH: '/bin', HOME: '/root' });
  t.like(config, {
    server: { host: '127.0.0.1', port: 8080, baseUrl: undefined, workers: 1, trustProxy: 0 },
    database: { url: undefined },
    redis: { url: undefined },
    anonymousRead: 'none',
    signIn: {
      session: { idle: 43_200_000, absolute: 604_800_000 },
      tokens: { idle: 2_592_000_000, absolute: 31_536_000_000 },
    },
    console: { enabled: true },
    offline: false,
    log: { level: 'info' },
    limits: { nupkg: 512 * 2 ** 20, manifest: 4 * 2 ** 20, blob: undefined, uploadIdle: 60_000, uploadAge: 86_400_000 },
  });
  t.true(isAbsolute(config.data));
  t.throws(() => Object.assign(config.server, { port: 1 }), { instanceOf: TypeError }, 'frozen');
});

test('the environment overrides the file, and the file overrides the defaults', async (t) => {
  const yaml = 'server:\n  port: 1000\n  host: 10.0.0.1\nlog:\n  level: warn\nlimits:\n  nupkg: 1GiB\n';
  const { load } = await loadFile(t, yaml, { ENTREPOT_PORT: '2000', ENTREPOT_OFFLINE: 'true', ENTREPOT_HOST: '' });
  t.like(load(), {
    server: { host: '10.0.0.1', port: 2000 },
    log: { level: 'warn' },
    limits: { nupkg: 2 ** 30, manifest: 4 * 2 ** 20 },
    offline: true,
  });
});

test('anonymousRead is none, mirrored or all; true is all and false is none', async (t) => {
  for (const [given, expected] of [
    ['none', 'none'],
    ['mirrored', 'mirrored'],
    ['all', 'all'],
    ['true', 'all'],
    ['false', 'none'],
  ] as const) {
    t.is(loadConfig({ ENTREPOT_ANONYMOUS_READ: given }).anonymousRead, expected);
    t.is((await loadFile(t, `anonymousRead: ${given}\n`)).load().anonymousRead, expected);
  }
});

test('an empty ENTREPOT_CONFIG is the same as none', (t) => {
  t.deepEqual(loadConfig({ ENTREPOT_CONFIG: '' }), loadConfig({}));
});

test('a key without a value has its default', async (t) => {
  t.is((await loadFile(t, '')).load().server.port, 8080);
  t.is((await loadFile(t, '# nothing\n')).load().server.port, 8080);
  const { load } = await loadFile(t, 'server:\n  # port: 1\nlog:\n  level:\nupstreams: []\nsignIn:\n  oidc:\n');
  t.like(load(), { server: { port: 8080 }, log: { level: 'info' } });
  const names = new Set(
    settings.flatMap(({ path }) => path.split('.').map((_, at, all) => all.slice(0, at + 1).join('.'))),
  );
  for (const name of names) {
    const keys = name.split('.').map((key, depth) => `${'  '.repeat(depth)}${key}:`);
    t.notThrows((await loadFile(t, keys.join('\n'))).load, name);
  }
});

test('every setting can come from the environment', (t) => {
  const values: Record<string, string> = {
    'server.host': '::1',
    'server.port': '0',
    'server.baseUrl': 'https://hub.example/path',
    'server.feedUrl': 'https://feed.example',
    'server.registryUrl': 'https://registry.example',
    'server.hosts': '["inner.example", "10.0.0.7"]',
    'server.adminPort': '9090',
    'server.adminHost': '10.0.0.8',
    'server.trustProxy': 'loopback, 10.0.0.0/8',
    'server.shutdownDelay': '3s',
    shutdownGrace: '40s',
    'server.tls.certFile': '/etc/entrepot/server.crt',
    'server.tls.keyFile': '/etc/entrepot/server.key',
    'server.internal.host': '10.0.0.7',
    'server.internal.port': '8070',
    'server.internal.secretFile': '/etc/entrepot/internal.key',
    'server.workers': '2',
    data: '/srv/entrepot',
    'database.url': 'mysql://u:p@db:3306/entrepot',
    'redis.url': 'rediss://cache:6380',
    bootstrapToken: 'long-enough',
    anonymousRead: 'mirrored',
    offline: 'false',
    'log.level': 'debug',
    'limits.nupkg': '10 MB',
    'limits.manifest': '1000',
    'limits.blob': '1.5GiB',
    'limits.accountStorage': '1TiB',
    'limits.accountEgress': '5TB',
    'limits.accountFetches': '16',
    'limits.uploadIdle': '1.5s',
    'limits.uploadAge': '2h',
    'limits.uploadRate': '4KiB',
    'limits.uploads': '10',
    'limits.delay': '2s',
    'limits.requestsPerMinute': '5000',
    'limits.anonymousRequestsPerMinute': 'off',
    'limits.missesPerMinute': '1200',
    'limits.searchesPerMinute': '60',
    'limits.pushesPerMinute': '90',
    'limits.failedSignInsPerMinute': '5',
    'limits.connectionsPerAddress': '100',
    'limits.headerTimeout': '10s',
    'limits.headerSize': '32KiB',
    upstreams: '[{"name":"ghcr.io","kind":"registry"}]',
    predecessors: '[{"name":"old","kind":"nuget","url":"https://old.example/v3/index.json"}]',
    aliases:
      '[{"path":"/nuget/feed/v3/index.json","to":"feed"},{"host":"old.example:5000","to":"registry","prefix":"team"}]',
    'reserved.packages': '["Contoso.*"]',
    'reserved.containers': '["team/*"]',
    'merge.packages': '["Fabrikam"]',
    'mirror.maxSize': '2TiB',
    'mirror.unreadRest': '1MiB',
    'mirror.keepPartial': '5m',
    'storage.driver': 's3',
    'storage.cache': '1GiB',
    'storage.s3.endpoint': 'https://s3.internal:9000',
    'storage.s3.region': 'eu-west-1',
    'storage.s3.bucket': 'artifacts',
    'storage.s3.prefix': 'entrepot',
    'storage.s3.forcePathStyle': 'true',
    'storage.s3.accessKeyId': 'key',
    'storage.s3.secretAccessKey': 'secret',
    'storage.s3.caFile': '/etc/ca.pem',
    'storage.s3.redirect': 'true',
    'storage.s3.publicEndpoint': 'https://s3.example.com',
    'storage.reserve': '10GiB',
    'retention.packages.keepVersions': '5',
    'retention.containers.untaggedAfter': '30d',
    'retention.containers.tags': '[{"tags": ["ci-*"], "keepNewest": 5, "keepUsedFor": "30d"}]',
    'retention.protect': '["Contoso.Core", "team/base"]',
    deletedFor: '14d',
    'gc.grace': '1h',
    'audit.keep': '30d',
    'usage.keepPulls': '30d',
    secretKeyFile: '/etc/entrepot/secret.key',
    'waivers.longest': '30d',
    'bundles.key': '/etc/entrepot/bundles.key',
    'bundles.segment': '1GiB',
    'imports.allow': '["old.corp", "10.0.0.0/8"]',
    'webhooks.allow': '["hooks.corp", "10.0.0.0/8", "fd00::/8", "192.0.2.1"]',
    'scrub.rate': '1MiB',
    'prefetch.files': '["/etc/entrepot/images.txt"]',
    'prefetch.inUse': 'false',
    'prefetch.newest': '3',
    'prefetch.usedWithin': '7d',
    'prefetch.platforms': '["linux/amd64", "linux/arm/v7"]',
    'prefetch.frameworks': '["net8.0"]',
    'prefetch.referrers': 'false',
    'prefetch.concurrency': '8',
    'prefetch.rate': '20MiB',
    'prefetch.rateLimitShare': '50',
    'prefetch.window': '22:00-06:00',
    'signIn.session.idle': '1h',
    'signIn.session.absolute': '1d',
    'signIn.tokens.idle': '2d',
    'signIn.tokens.absolute': '3d',
    'signIn.oidc.issuer': 'https://login.example',
    'signIn.oidc.name': 'Contoso',
    'signIn.oidc.clientId': 'entrepot',
    'signIn.oidc.clientSecret': 'secret',
    'signIn.oidc.scopes': '["openid", "groups"]',
    'signIn.oidc.rules': '[{"claim":"groups","value":"dev","scopes":["read"]}]',
    'signIn.oidc.allowPrivateNetwork': 'true',
    'signIn.oidc.caFile': '/etc/ssl/private-ca.pem',
    trustedIssuers: '[{"name":"github","audience":"https://hub.example"}]',
    publishers: '[{"name":"ci","issuer":"github","claims":{"repository_id":1},"scopes":["write"]}]',
    'console.enabled': 'false',
    'jobs.prefetch': '0 1 * * *',
    'jobs.uploads': '@hourly',
    'jobs.retention': 'off',
    'jobs.evict': '*/5 * * * *',
    'jobs.gc': '30 2 * * mon-fri',
    'jobs.sample': '@hourly',
    'jobs.scrub': '*/10 * * * * *',
    'jobs.audit': 'off',
    'jobs.knownBad': '@hourly',
    'jobs.takeover': '@daily',
    'jobs.exposure': '@hourly',
    'jobs.waivers': '@daily',
  };
  t.deepEqual(
    settings.map(({ path }) => path).sort(),
    Object.keys(values).sort(),
    'give a value for a new setting here',
  );
  const config = loadConfig(
    Object.fromEntries(Object.entries(values).map(([path, value]) => [environmentName(path), value])),
  );
  t.like(config, {
    server: {
      host: '::1',
      port: 0,
      baseUrl: 'https://hub.example/path',
      feedUrl: 'https://feed.example',
      registryUrl: 'https://registry.example',
      hosts: ['inner.example', '10.0.0.7'],
      adminPort: 9090,
      adminHost: '10.0.0.8',
      trustProxy: ['loopback', '10.0.0.0/8'],
      shutdownDelay: 3000,
      tls: { certFile: '/etc/entrepot/server.crt', keyFile: '/etc/entrepot/server.key' },
      internal: { host: '10.0.0.7', port: 8070, secretFile: '/etc/entrepot/internal.key' },
      workers: 2,
    },
    shutdownGrace: 40_000,
    data: '/srv/entrepot',
    database: { url: 'mysql://u:p@db:3306/entrepot' },
    redis: { url: 'rediss://cache:6380' },
    bootstrapToken: 'long-enough',
    anonymousRead: 'mirrored',
    signIn: {
      session: { idle: 3_600_000, absolute: 86_400_000 },
      tokens: { idle: 172_800_000, absolute: 259_200_000 },
      oidc: {
        issuer: 'https://login.example',
        name: 'Contoso',
        clientId: 'entrepot',
        clientSecret: 'secret',
        scopes: ['openid', 'groups'],
        rules: [{ claim: 'groups', value: 'dev', account: 'default', scopes: ['read'] }],
        allowPrivateNetwork: true,
        caFile: '/etc/ssl/private-ca.pem',
      },
    },
    trustedIssuers: [
      { name: 'github', kind: 'github', issuer: 'https://token.actions.githubusercontent.com' },
    ] as never,
    publishers: [{ name: 'ci', account: 'default', claims: { repository_id: '1' } }] as never,
    console: { enabled: false },
    offline: false,
    log: { level: 'debug' },
    limits: {
      nupkg: 10_000_000,
      manifest: 1000,
      blob: 1.5 * 2 ** 30,
      accountStorage: 2 ** 40,
      accountEgress: 5e12,
      accountFetches: 16,
      uploadIdle: 1500,
      uploadAge: 7_200_000,
      uploadRate: 4096,
      uploads: 10,
      delay: 2000,
      requestsPerMinute: 5000,
      anonymousRequestsPerMinute: undefined,
      missesPerMinute: 1200,
      searchesPerMinute: 60,
      pushesPerMinute: 90,
      failedSignInsPerMinute: 5,
      connectionsPerAddress: 100,
      headerTimeout: 10_000,
      headerSize: 32_768,
    },
    reserved: { packages: ['Contoso.*'], containers: ['team/*'] },
    merge: { packages: ['Fabrikam'] },
    mirror: { maxSize: 2 * 2 ** 40, unreadRest: 2 ** 20, keepPartial: 300_000 },
    storage: {
      driver: 's3',
      cache: 2 ** 30,
      s3: {
        endpoint: 'https://s3.internal:9000',
        region: 'eu-west-1',
        bucket: 'artifacts',
        prefix: 'entrepot',
        forcePathStyle: true,
        accessKeyId: 'key',
        secretAccessKey: 'secret',
        caFile: '/etc/ca.pem',
        redirect: true,
        publicEndpoint: 'https://s3.example.com',
      },
      reserve: 10 * 2 ** 30,
    },
    retention: {
      packages: { keepVersions: 5 },
      containers: {
        untaggedAfter: 30 * 86_400_000,
        tags: [{ images: ['*'], tags: ['ci-*'], keepNewest: 5, keepUsedFor: 30 * 86_400_000 }],
      },
      protect: ['Contoso.Core', 'team/base'],
    },
    deletedFor: 14 * 86_400_000,
    gc: { grace: 3_600_000 },
    secretKeyFile: '/etc/entrepot/secret.key',
    bundles: { key: '/etc/entrepot/bundles.key', segment: 2 ** 30 },
    imports: { allow: ['old.corp', '10.0.0.0/8'] },
    webhooks: { allow: ['hooks.corp', '10.0.0.0/8', 'fd00::/8', '192.0.2.1'] },
    scrub: { rate: 2 ** 20 },
    prefetch: {
      files: ['/etc/entrepot/images.txt'],
      inUse: false,
      newest: 3,
      usedWithin: 7 * 86_400_000,
      platforms: ['linux/amd64', 'linux/arm/v7'],
      frameworks: ['net8.0'],
      referrers: false,
      concurrency: 8,
      rate: 20 * 2 ** 20,
      rateLimitShare: 50,
      window: '22:00-06:00',
    },
    jobs: {
      uploads: '@hourly',
      retention: 'off',
      evict: '*/5 * * * *',
      gc: '30 2 * * mon-fri',
      sample: '@hourly',
      prefetch: '0 1 * * *',
      scrub: '*/10 * * * * *',
    },
  });
  t.like(config.upstreams[0], { name: 'ghcr.io', kind: 'registry', mode: 'online', freshFor: 300_000, include: ['*'] });
});

test('the environment variables have their documented names', (t) => {
  const promised = ['HOST', 'PORT', 'BASE_URL', 'FEED_URL', 'REGISTRY_URL', 'DATA', 'DATABASE_URL', 'REDIS_URL'];
  promised.push('BOOTSTRAP_TOKEN', 'ANONYMOUS_READ', 'OFFLINE', 'WORKERS', 'LOG_LEVEL', 'UPSTREAMS');
  const names = settings.map(({ environment }) => environment);
  for (const name of promised) t.true(names.includes(`ENTREPOT_${name}`), name);
  t.is(new Set(names).size, names.length);
  t.deepEqual(
    settings.filter(({ secret }) => secret).map(({ environment }) => environment),
    [
      'ENTREPOT_DATABASE_URL',
      'ENTREPOT_REDIS_URL',
      'ENTREPOT_BOOTSTRAP_TOKEN',
      'ENTREPOT_SIGN_IN_OIDC_CLIENT_SECRET',
      'ENTREPOT_STORAGE_S3_ACCESS_KEY_ID',
      'ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY',
    ],
  );
  for (const { path, doc } of settings) t.true(doc.length > 5, `${path} is documented`);
});

test('a secret may be in a file', async (t) => {
  const path = await folderUntilEnd(t);
  const secret = join(path, 'secret');
  await writeFile(secret, 'mysql://u:p@db/entrepot\n');
  t.is(loadConfig({ ENTREPOT_DATABASE_URL_FILE: secret }).database.url, 'mysql://u:p@db/entrepot');
  await writeFile(join(path, 'empty'), '\n');
  const wrong: [Environment, RegExp][] = [
    [{ ENTREPOT_DATABASE_URL_FILE: join(path, 'none') }, /^ENTREPOT_DATABASE_URL_FILE: cannot read .*none/],
    [{ ENTREPOT_DATABASE_URL_FILE: path }, /^ENTREPOT_DATABASE_URL_FILE: cannot read/],
    [{ ENTREPOT_DATABASE_URL_FILE: join(path, 'empty') }, /^ENTREPOT_DATABASE_URL_FILE: .*empty is empty/],
    [{ ENTREPOT_REDIS_URL_FILE: secret }, /^ENTREPOT_REDIS_URL_FILE: expected redis:\/\//],
    [
      { ENTREPOT_DATABASE_URL_FILE: secret, ENTREPOT_DATABASE_URL: 'sqlite:x' },
      /^ENTREPOT_DATABASE_URL_FILE: ENTREPOT_DATABASE_URL is set too/,
    ],
    [{ ENTREPOT_PORT_FILE: secret }, /^ENTREPOT_PORT_FILE: there is no such setting/],
  ];
  for (const [environment, message] of wrong) {
    t.throws(() => loadConfig(environment), { instanceOf: ConfigError, message });
  }
});

const upstream = (more: object) => JSON.stringify([{ name: 'ghcr.io', kind: 'registry', ...more }]);
const wrongEnvironments: [Environment, string][] = [
  [{ ENTREPOT_PROT: '1' }, 'ENTREPOT_PROT: there is no such setting'],
  [{ ENTREPOT_SERVER_PORT: '1' }, 'ENTREPOT_SERVER_PORT: there is no such setting'],
  [{ ENTREPOT_PORT: 'http' }, 'ENTREPOT_PORT: expected a whole number from 0 to 65535'],
  [{ ENTREPOT_PORT: ' ' }, 'ENTREPOT_PORT: expected a whole number from 0 to 65535'],
  [{ ENTREPOT_PORT: '65536' }, 'ENTREPOT_PORT: expected a whole number from 0 to 65535'],
  [{ ENTREPOT_PORT: '-1' }, 'ENTREPOT_PORT: expected a whole number from 0 to 65535'],
  [{ ENTREPOT_PORT: '0x50' }, 'ENTREPOT_PORT: expected a whole number from 0 to 65535'],
  [{ ENTREPOT_PORT: '80.5' }, 'ENTREPOT_PORT: expected a whole number from 0 to 65535'],
  [{ ENTREPOT_WORKERS: '0' }, 'ENTREPOT_WORKERS: expected a whole number from 1 to 64'],
  [{ ENTREPOT_BASE_URL: 'hub.example' }, 'ENTREPOT_BASE_URL: expected an http or https URL'],
  [{ ENTREPOT_FEED_URL: 'ftp://hub.example' }, 'ENTREPOT_FEED_URL: expected an http or https URL'],
  [{ ENTREPOT_OFFLINE: 'yes' }, 'ENTREPOT_OFFLINE: expected true or false'],
  ...['somewhere', '10.0.0.0/40', '-1', '1.5', '101', 'loopback,', ','].map((value): [Environment, string] => [
    { ENTREPOT_TRUST_PROXY: value },
    'ENTREPOT_TRUST_PROXY: expected true, false, a number of proxies up to 100, or addresses such as loopback or 10.0.0.0/8',
  ]),
  [{ ENTREPOT_ANONYMOUS_READ: '1' }, 'ENTREPOT_ANONYMOUS_READ: expected none, mirrored or all'],
  [
    { ENTREPOT_DATABASE_URL: 'postgres://u:p@db/x' },
    'ENTREPOT_DATABASE_URL: expected sqlite:PATH or mysql://user:password@host:port/name',
  ],
  [
    { ENTREPOT_REDIS_URL: 'localhost:6379' },
    'ENTREPOT_REDIS_URL: expected redis://host:port or redis+sentinel://host:port,host:port/name',
  ],
  [
    { ENTREPOT_REDIS_URL: 'redis+sentinel://one:26379' },
    'ENTREPOT_REDIS_URL: expected redis://host:port or redis+sentinel://host:port,host:port/name',
  ],
  [{ ENTREPOT_BOOTSTRAP_TOKEN: 'short' }, 'ENTREPOT_BOOTSTRAP_TOKEN: expected 8 characters or more'],
  [
    { ENTREPOT_LOG_LEVEL: 'loud' },
    'ENTREPOT_LOG_LEVEL: expected fatal or error or warn or info or debug or trace or silent',
  ],
  [{ ENTREPOT_LIMITS_NUPKG: 'big' }, 'ENTREPOT_LIMITS_NUPKG: expected a size such as 512MiB'],
  [{ ENTREPOT_LIMITS_UPLOAD_IDLE: '60' }, 'ENTREPOT_LIMITS_UPLOAD_IDLE: expected a duration such as 30s, 5m or 90d'],
  // A timer that is set to 25 days or more ends at once.
  [{ ENTREPOT_LIMITS_UPLOAD_IDLE: '25d' }, 'ENTREPOT_LIMITS_UPLOAD_IDLE: expected 24d or less'],
  [{ ENTREPOT_LIMITS_UPLOAD_IDLE: '0s' }, 'ENTREPOT_LIMITS_UPLOAD_IDLE: expected more than 0'],
  [{ ENTREPOT_MIRROR_KEEP_PARTIAL: '30d' }, 'ENTREPOT_MIRROR_KEEP_PARTIAL: expected 24d or less'],
  [{ ENTREPOT_UPSTREAMS: upstream({ timeout: '2d' }) }, 'ENTREPOT_UPSTREAMS: 0.timeout: expected 1d or less'],
  [{ ENTREPOT_UPSTREAMS: upstream({ timeout: '0s' }) }, 'ENTREPOT_UPSTREAMS: 0.timeout: expected more than 0'],
  [{ ENTREPOT_UPSTREAMS: 'ghcr.io' }, 'ENTREPOT_UPSTREAMS: expected a JSON array'],
  [{ ENTREPOT_UPSTREAMS: '{}' }, 'ENTREPOT_UPSTREAMS: expected a list'],
  [{ ENTREPOT_UPSTREAMS: '[1]' }, 'ENTREPOT_UPSTREAMS: 0: expected keys and values'],
  [{ ENTREPOT_UPSTREAMS: '[{"name":"ghcr.io"}]' }, 'ENTREPOT_UPSTREAMS: 0.kind: expected nuget or registry'],
  [
    { ENTREPOT_UPSTREAMS: upstream({ name: 'GHCR' }) },
    'ENTREPOT_UPSTREAMS: 0.name: expected a name such as nuget.org or docker.io',
  ],
  [{ ENTREPOT_UPSTREAMS: upstream({ mirror: true }) }, 'ENTREPOT_UPSTREAMS: 0.mirror: there is no such setting'],
  [
    { ENTREPOT_UPSTREAMS: upstream({ freshFor: 5 }) },
    'ENTREPOT_UPSTREAMS: 0.freshFor: expected a duration such as 30s, 5m or 90d',
  ],
  [{ ENTREPOT_UPSTREAMS: upstream({ include: 'a' }) }, 'ENTREPOT_UPSTREAMS: 0.include: expected a list'],
  [{ ENTREPOT_UPSTREAMS: upstream({ include: [''] }) }, 'ENTREPOT_UPSTREAMS: 0.include.0: must not be empty'],
  [
    { ENTREPOT_UPSTREAMS: upstream({ credentialHosts: ['https://gitlab.corp'] }) },
    'ENTREPOT_UPSTREAMS: 0.credentialHosts.0: expected a host such as gitlab.corp or gitlab.corp:8443',
  ],
  ...['https://ghcr.io/mirror', 'https://ghcr.io/v2/', 'https://ghcr.io?a=b', 'https://ghcr.io/#a'].map(
    (url): [Environment, string] => [
      { ENTREPOT_UPSTREAMS: upstream({ url }) },
      'ENTREPOT_UPSTREAMS: 0.url: a registry’s URL cannot have a path or a query: repositories are below /v2/ of its host',
    ],
  ),
  [{ ENTREPOT_UPSTREAMS: upstream({ url: 'ghcr.io' }) }, 'ENTREPOT_UPSTREAMS: 0.url: expected an http or https URL'],
  [
    { ENTREPOT_UPSTREAMS: upstream({ auth: { username: 'u' } }) },
    'ENTREPOT_UPSTREAMS: 0.auth: expected {username, password or passwordFile}, {bearer or bearerFile} or {exec: [program, argument]}',
  ],
  [{ ENTREPOT_RESERVED_PACKAGES: 'Contoso.*' }, 'ENTREPOT_RESERVED_PACKAGES: expected a JSON array'],
  [
    { ENTREPOT_JOBS_GC: '61 * * * *' },
    'ENTREPOT_JOBS_GC: expected a cron expression such as "15 3 * * *", or off: 61 is not a valid expression for minute',
  ],
  [
    { ENTREPOT_JOBS_SCRUB: 'daily' },
    'ENTREPOT_JOBS_SCRUB: expected a cron expression such as "15 3 * * *", or off: expected 5 or 6 fields but got 1',
  ],
  [{ ENTREPOT_JOBS_TIDY: '@daily' }, 'ENTREPOT_JOBS_TIDY: there is no such setting'],
  [{ ENTREPOT_LIMITS_UPLOADS: '0' }, 'ENTREPOT_LIMITS_UPLOADS: expected a whole number from 1 to 1000000, or off'],
  [{ ENTREPOT_LIMITS_DELAY: '2m' }, 'ENTREPOT_LIMITS_DELAY: expected 1m or less'],
  [{ ENTREPOT_SCRUB_RATE: '0' }, 'ENTREPOT_SCRUB_RATE: expected more than 0'],
  [{ ENTREPOT_INTERNAL_HOST: 'a' }, 'ENTREPOT_INTERNAL_HOST: is used only together with server.internal.port'],
  [
    { ENTREPOT_INTERNAL_PORT: '8070', ENTREPOT_INTERNAL_SECRET_FILE: 'a' },
    'ENTREPOT_INTERNAL_PORT: is used only together with server.internal.host',
  ],
  [
    { ENTREPOT_INTERNAL_HOST: '0.0.0.0', ENTREPOT_INTERNAL_PORT: '8070', ENTREPOT_INTERNAL_SECRET_FILE: 'a' },
    'ENTREPOT_INTERNAL_HOST: expected an address that other instances can reach',
  ],
  [{ ENTREPOT_TLS_CERT_FILE: 'a.crt' }, 'ENTREPOT_TLS_CERT_FILE: is used only together with server.tls.keyFile'],
  [
    { ENTREPOT_RETENTION_PACKAGES_KEEP_VERSIONS: '0' },
    'ENTREPOT_RETENTION_PACKAGES_KEEP_VERSIONS: expected a whole number from 1 to 1000000',
  ],
];

test('a wrong environment variable stops the start with one line that names it', (t) => {
  for (const [environment, message] of wrongEnvironments) {
    t.throws(() => loadConfig(environment), { instanceOf: ConfigError, message }, message);
  }
});

const noHome = 'only a shell replaces ~ by the home folder; write the whole path (or ./~ for a folder with this name)';
const wrongFiles: [string, string][] = [
  ['server:\n  tls:\n    keyFile: a.key', 'server.tls.keyFile (FILE): is used only together with server.tls.certFile'],
  ['prot: 1', 'prot (FILE): there is no such setting'],
  ['server:\n  prot: 1\n  hots: 2', 'server.prot, server.hots (FILE): there is no such setting'],
  ['log:\n  levle:', 'log.levle (FILE): there is no such setting'],
  ['server:\n  prot:\n  hots: 2\n  port:', 'server.prot, server.hots (FILE): there is no such setting'],
  ['lgo:\n  # level: debug', 'lgo (FILE): there is no such setting'],
  ['signIn:\n  oidc:\n    rule:', 'signIn.oidc.rule (FILE): there is no such setting'],
  ['server:\n  tls.certFile:', 'server.tls.certFile (FILE): there is no such setting'],
  ['server:\n  port: web', 'server.port (FILE): expected a whole number from 0 to 65535'],
  ['server:\n  port: [80]', 'server.port (FILE): expected a whole number from 0 to 65535'],
  ['server:\n  port: true', 'server.port (FILE): expected a whole number from 0 to 65535'],
  ['server:\n  host: 1', 'server.host (FILE): expected text'],
  ['server: 8080', 'server (FILE): expected keys and values'],
  ['data: ""', 'data (FILE): must not be empty'],
  ['data: ~/entrepot', `data (FILE): ${noHome}`],
  ['data: ~me', `data (FILE): ${noHome}`],
  ['database:\n  url: sqlite:~/entrepot.db', `database.url (FILE): ${noHome}`],
  ['offline: maybe', 'offline (FILE): expected true or false'],
  ['limits:\n  blob: {}', 'limits.blob (FILE): expected a size such as 512MiB'],
  ['reserved:\n  packages: x', 'reserved.packages (FILE): expected a list'],
  ['prefetch:\n  window: 22-6', 'prefetch.window (FILE): expected hours such as 22:00-06:00'],
  ['prefetch:\n  window: 01:00-01:00', 'prefetch.window (FILE): expected hours such as 22:00-06:00'],
  ['prefetch:\n  platforms: [amd64]', 'prefetch.platforms.0 (FILE): expected platforms such as linux/amd64'],
  ['jobs:\n  gc: 7', 'jobs.gc (FILE): expected a cron expression or off'],
  [
    'jobs:\n  gc: 0 0 31 2 *',
    'jobs.gc (FILE): expected a cron expression such as "15 3 * * *", or off: 31 2 is an impossible day of month for the given month',
  ],
  ['retention:\n  packages: 5', 'retention.packages (FILE): expected keys and values'],
  ['upstreams:\n  - name: ghcr.io\n    kind: helm', 'upstreams.0.kind (FILE): expected nuget or registry'],
  ['upstreams:\n  - kind: nuget', 'upstreams.0.name (FILE): is missing'],
  [
    'signIn:\n  oidc: {issuer: https://a.example, rules: [{claim: g, value: d, account: x, scopes: [read]}]}',
    'signIn.oidc.clientId (FILE): is missing',
  ],
  ['signIn:\n  oidc: {clientId: a}', 'signIn.oidc.issuer (FILE): is missing'],
  [
    'signIn:\n  oidc: {rules: [{claim: g, value: d, account: x, scopes: [read]}]}',
    'signIn.oidc.issuer (FILE): is missing',
  ],
  [
    'signIn:\n  oidc: {issuer: http://a.example, clientId: a, rules: [{claim: g, value: d, account: x, scopes: [read]}]}',
    'signIn.oidc.issuer (FILE): expected an https URL',
  ],
  [
    'signIn:\n  oidc: {issuer: https://a.example, clientId: a, scopes: [email], rules: [{claim: g, value: d, account: x, scopes: [read]}]}',
    'signIn.oidc.scopes (FILE): must contain openid',
  ],
  ['- a\n- b', 'FILE: expected settings, one "key: value" a line'],
  ['just text', 'FILE: expected settings, one "key: value" a line'],
];

test('a time that timers count may be as long as they can count', (t) => {
  const { limits, mirror } = loadConfig({ ENTREPOT_LIMITS_UPLOAD_IDLE: '24d', ENTREPOT_MIRROR_KEEP_PARTIAL: '0s' });
  t.is(limits.uploadIdle, 24 * 86_400_000);
  t.is(mirror.keepPartial, 0);
  // Of others, and of stored policies, a value that is beyond all dates means always.
  t.is(loadConfig({ ENTREPOT_AUDIT_KEEP: '99999999d' }).audit.keep, 99_999_999 * 86_400_000);
  t.is(loadConfig({ ENTREPOT_UPSTREAMS: upstream({ timeout: '1d' }) }).upstreams[0]!.timeout, 86_400_000);
});

test('a wrong setting in the file stops the start with one line that names it', async (t) => {
  for (const [yaml, message] of wrongFiles) {
    const { file, load } = await loadFile(t, yaml);
    t.throws(load, { instanceOf: ConfigError, message: message.replace('FILE', file) }, yaml);
  }
  const { file, load } = await loadFile(t, 'server:\n  port: 1\n port: 2\n');
  const error = t.throws(load, { instanceOf: ConfigError });
  t.true(error.message.startsWith(`${file}, line `));
  t.false(error.message.includes('\n'));
  const twice = await loadFile(t, 'data: a\ndata: b\n');
  t.throws(twice.load, { message: /line 2: .*unique/ });
  t.throws(() => loadConfig({ ENTREPOT_CONFIG: '/none.yaml' }), {
    message: /^ENTREPOT_CONFIG: cannot read \/none\.yaml/,
  });
});

const loadUpstreams = (...upstreams: object[]) =>
  loadConfig({
    ENTREPOT_UPSTREAMS: JSON.stringify(upstreams.map((each) => ({ name: 'ghcr.io', kind: 'registry', ...each }))),
  }).upstreams;

test('upstreams have unique ids, and an account has one upstream of a name and one default', (t) => {
  t.deepEqual(
    loadUpstreams({}, { kind: 'nuget' }, { name: 'quay.io', id: 'team' }).map(({ id, accounts }) => [id, accounts]),
    [
      ['ghcr.io', undefined],
      ['ghcr.io', undefined],
      ['team', undefined],
    ],
  );
  const [a, b, ab] = [{ accounts: ['a'] }, { accounts: ['b'] }, { accounts: ['a', 'b'] }];
  t.is(loadUpstreams(a, { ...b, id: 'b' }).length, 2);
  t.is(loadUpstreams({ ...a, default: true }, { ...b, name: 'quay.io', default: true }).length, 2);
  const twice = /^ENTREPOT_UPSTREAMS: 1\.name: there are two registry upstreams named ghcr\.io for the same account/;
  for (const [upstreams, message] of [
    [[{}, {}], twice],
    [[a, { id: 'b' }], twice],
    [[{}, { ...b, id: 'b' }], twice],
    [[ab, { ...b, id: 'b' }], twice],
    [[a, b], /^ENTREPOT_UPSTREAMS: 1\.id: there are two registry upstreams with the id ghcr\.io; set another id/],
    [[a, { name: 'quay.io', id: 'ghcr.io' }], /1\.id: there are two/],
    [
      [
        { ...ab, default: true },
        { ...a, name: 'quay.io', default: true },
      ],
      /^ENTREPOT_UPSTREAMS: 1\.default: only one registry can be the default of an account/,
    ],
    [[{ accounts: [] }], /^ENTREPOT_UPSTREAMS: 0\.accounts: name at least one account/],
    [[{ accounts: ['Team A'] }], /^ENTREPOT_UPSTREAMS: 0\.accounts\.0: expected the name of an account/],
    [[{ id: "a'b" }], /^ENTREPOT_UPSTREAMS: 0\.id: expected an ID such as ghcr-team/],
  ] as [object[], RegExp][]) {
    t.throws(() => loadUpstreams(...upstreams), { instanceOf: ConfigError, message });
  }
});

test('the name of an upstream is a host name with an optional port', (t) => {
  for (const name of ['docker.io', 'a', 'registry-1.x.test:5000', 'x.test:443'])
    t.is(loadUpstreams({ name })[0]!.name, name);
  const wrong = [
    'Docker.io',
    ' docker.io',
    '-docker.io',
    'a..b',
    'a_b',
    'docker.io/',
    'https://docker.io',
    'a:',
    'a:b',
    'a.',
  ];
  for (const name of wrong)
    t.throws(
      () => loadUpstreams({ name }),
      { message: /0\.name: expected a name such as nuget\.org or docker\.io/ },
      name,
    );
  for (const id of ['Team', '-a', 'a b', 'x'.repeat(101)])
    t.throws(() => loadUpstreams({ id }), { message: /0\.id: expected/ }, id);
});

test('no error repeats a secret', (t) => {
  const secret = 's3cr3t';
  for (const name of ['ENTREPOT_DATABASE_URL', 'ENTREPOT_REDIS_URL', 'ENTREPOT_BOOTSTRAP_TOKEN']) {
    const error = t.throws(() => loadConfig({ [name]: secret }));
    t.true(error.message.startsWith(name));
    t.false(error.message.includes(secret));
  }
});

test('a user name or password in a URL stops the start, and is not shown', (t) => {
  const secret = 's3cr3t';
  const wrong: Environment[] = [];
  for (const user of [`me:${secret}@`, `${secret}@`, `:${secret}@`]) {
    wrong.push(
      { ENTREPOT_UPSTREAMS: upstream({ url: `https://${user}ghcr.io` }) },
      { ENTREPOT_UPSTREAMS: upstream({ kind: 'nuget', url: `https://${user}feed.test/v3/index.json` }) },
      { ENTREPOT_UPSTREAMS: upstream({ kind: 'nuget', symbolsUrl: `https://${user}feed.test/symbols` }) },
      { ENTREPOT_BASE_URL: `https://${user}hub.test` },
      { ENTREPOT_FEED_URL: `https://${user}hub.test` },
      { ENTREPOT_REGISTRY_URL: `https://${user}hub.test` },
    );
  }
  for (const environment of wrong) {
    const error = t.throws(() => loadConfig(environment), { instanceOf: ConfigError });
    t.regex(error.message, /[uU]rl|URL/);
    t.regex(error.message, /a URL here cannot have a user name or password/);
    t.notRegex(error.message, new RegExp(secret));
  }
});

test('variables that Kubernetes adds for a Service named entrepot are ignored', (t) => {
  const config = loadConfig({
    ENTREPOT_PORT: 'tcp://10.96.0.12:80',
    ENTREPOT_SERVICE_HOST: '10.96.0.12',
    ENTREPOT_SERVICE_PORT: '80',
    ENTREPOT_SERVICE_PORT_HTTP: '80',
    ENTREPOT_PORT_80_TCP: 'tcp://10.96.0.12:80',
    ENTREPOT_PORT_80_TCP_ADDR: '10.96.0.12',
    ENTREPOT_REDIS_SERVICE_HOST: '10.96.0.13',
    ENTREPOT_REDIS_PORT: 'tcp://10.96.0.13:6379',
    ENTREPOT_REDIS_PORT_6379_TCP_PROTO: 'tcp',
  });
  t.is(config.server.port, 8080);
});

/** The paths of the keys of a YAML file, also of those that are a comment, by their indentation. */
function namedPaths(text: string): Set<string> {
  const paths = new Set<string>();
  const above: { indent: number; path: string }[] = [];
  for (const [, spaces, key] of text.matchAll(/^( *)(?:# )?(\w+):/gm)) {
    const indent = spaces!.length;
    while (above.length > 0 && above.at(-1)!.indent >= indent) above.pop();
    const parent = above.at(-1);
    const path = parent ? `${parent.path}.${key}` : key!;
    above.push({ indent, path });
    paths.add(path);
  }
  return paths;
}

test('the example file has every setting with its default, and loads', async (t) => {
  const file = join(import.meta.dirname, '../../config/example.yaml');
  const config = loadConfig({ ENTREPOT_CONFIG: file });
  const defaults = schema.parse({});
  t.deepEqual({ ...config, data: './data', upstreams: [] }, { ...defaults, upstreams: [] });
  const [mirrored] = config.upstreams;
  t.deepEqual(mirrored, defaults.upstreams[0], 'the first upstream is written out with its defaults');
  const text = await readFile(file, 'utf8');
  const named = namedPaths(text);
  t.deepEqual(
    settings.map(({ path }) => path).filter((path) => !named.has(path)),
    [],
  );
});
