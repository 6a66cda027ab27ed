import { existsSync } from 'node:fs';
import { glob, readdir, readFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import test from 'ava';

// In a process of its own: it waits before it declares its tests.

// The core's rules about who may know whom. Rooms are folders and single files of src.

const src = join(import.meta.dirname, '../src');

/**
 * Each room and those it may import beside `runtime`, which all stand further down: so the arrows run one way. A room has the files of its path
 * that belong to no longer one.
 */
const rooms: Record<string, string> = {
  'main.ts': 'cli',
  cli: 'clients policy bundle takeover import server/server.ts server/installation.ts server/quota.ts server/first-token.ts server/checks.ts server/admin-host.ts server/preflight.ts server/core.ts server/place.ts server/command-place.ts backup webhooks jobs prefetch instances mirror/policy usage events storage/upkeep storage/drivers storage/files tls upstream metrics config permanence exposure promotion',
  'server/server.ts':
    'server/installation.ts server/listener-keys.ts bundle/runs import/runs server/quota.ts server/chores.ts server/protocol.ts server/first-token.ts server/register-metrics.ts server/checks.ts server/authenticator.ts server/admin-host.ts server/preflight.ts server/core.ts console api api/prefetch api/publishers jobs instances http mirror usage storage/files tls config',
  'server/installation.ts':
    'policy takeover server/quota.ts nuget/protocol.ts oci/protocol.ts server/protocol.ts server/core.ts webhooks jobs prefetch mirror/store usage storage/upkeep storage/blobs config permanence exposure promotion',
  'server/listener-keys.ts': 'server/place.ts',
  'server/quota.ts': 'server/protocol.ts server/core.ts usage',
  'server/chores.ts': 'bundle takeover exposure server/protocol.ts server/core.ts webhooks jobs usage tls',
  'nuget/protocol.ts':
    'nuget/import nuget/prefetch nuget/operations nuget/feed nuget/source nuget/upstream nuget/search nuget/hosted nuget/format server/protocol.ts server/core.ts jobs mirror mirror/policy accounts upstream config',
  'nuget/import':
    'nuget/upstream nuget/hosted nuget/format import prefetch mirror storage/blobs storage/files database upstream',
  'nuget/prefetch':
    'nuget/source nuget/upstream nuget/hosted nuget/format prefetch mirror mirror/store storage/files database upstream',
  'nuget/operations':
    'nuget/feed nuget/source nuget/upstream nuget/search nuget/hosted nuget/format api/account api/content api/framework http mirror mirror/policy mirror/store usage accounts database storage/files upstream',
  'nuget/feed':
    'nuget/source nuget/upstream nuget/search nuget/hosted nuget/format takeover api/framework http usage accounts storage/blobs storage/files upstream',
  'nuget/source':
    'nuget/upstream nuget/search nuget/hosted nuget/format http accounts mirror mirror/policy mirror/fetch mirror/store storage/files database upstream config',
  'nuget/upstream':
    'nuget/hosted nuget/format known-bad mirror mirror/policy mirror/fetch mirror/store usage accounts history events storage/files database upstream cache config',
  'nuget/search': 'nuget/hosted nuget/format mirror/policy accounts database',
  'nuget/hosted':
    'nuget/format server/protocol.ts bundle mirror/policy usage accounts events storage/upkeep storage/blobs storage/files database config permanence promotion',
  'nuget/format': 'storage/files',
  'oci/protocol.ts':
    'oci/import oci/prefetch oci/operations oci/http oci/catalog oci/mirrored oci/uploads oci/hosted oci/format server/protocol.ts server/core.ts jobs http mirror mirror/policy usage upstream config',
  'oci/import':
    'oci/catalog oci/prefetch oci/mirrored oci/hosted oci/format import prefetch mirror mirror/policy storage/blobs storage/files database upstream',
  'oci/prefetch':
    'oci/mirrored oci/hosted oci/format prefetch mirror mirror/policy mirror/store storage/files database upstream config',
  'oci/operations': 'oci/catalog oci/hosted api/account api/content api/framework usage accounts database',
  'oci/http':
    'takeover oci/catalog oci/uploads oci/hosted oci/format instances http usage accounts database upstream config',
  'oci/catalog':
    'oci/mirrored oci/uploads oci/hosted oci/format api/content api/framework http mirror mirror/policy mirror/store usage accounts history events storage/blobs storage/files database upstream config',
  'oci/mirrored':
    'oci/hosted oci/format mirror mirror/policy mirror/fetch mirror/store storage/files database upstream config',
  'oci/uploads': 'oci/hosted instances usage storage/blobs storage/files database config',
  'oci/hosted':
    'oci/format bundle mirror mirror/policy mirror/store usage accounts history events storage/upkeep storage/blobs storage/files database permanence promotion',
  'oci/format': '',
  'server/protocol.ts':
    'policy server/core.ts bundle takeover import known-bad api/content api/framework jobs prefetch instances http mirror mirror/policy mirror/fetch mirror/store usage accounts storage/blobs upstream config permanence exposure promotion',
  'server/first-token.ts': 'server/core.ts config',
  'server/register-metrics.ts': 'server/core.ts jobs http mirror/store usage tls upstream metrics',
  'server/checks.ts': 'server/core.ts webhooks http usage tls',
  'server/authenticator.ts': 'server/core.ts http accounts',
  'server/admin-host.ts': 'upstream config',
  'server/preflight.ts':
    'server/core.ts server/command-place.ts webhooks jobs instances storage/upkeep storage/files database cache config',
  'server/core.ts':
    'policy server/place.ts webhooks instances http limits identity known-bad mirror mirror/policy mirror/store usage accounts events storage/upkeep storage/blobs storage/drivers storage/files database upstream cache metrics config permanence promotion',
  'server/place.ts':
    'server/command-place.ts instances events storage/upkeep storage/blobs storage/drivers storage/files database cache config',
  'server/command-place.ts': 'storage/upkeep storage/drivers storage/files database config',
  backup: 'storage/upkeep storage/blobs storage/drivers storage/files database',
  console: 'console/pages console/framework api api/framework http limits identity accounts config',
  'console/pages':
    'console/framework clients api/clients api/account api/bundles api/imports api/content api/policy api/prefetch api/publishers api/server api/upstreams api/webhooks api/framework events config api/permanence api/promotions',
  'console/framework': 'api api/framework http limits accounts config',
  api: 'policy api/clients api/account api/bundles api/imports import/runs api/policy api/content api/prefetch api/publishers api/server api/upstreams api/webhooks api/framework webhooks jobs instances http usage accounts config api/permanence permanence exposure api/promotions promotion',
  'api/account': 'api/framework usage accounts history database config',
  'api/imports': 'api/framework import import/runs',
  'api/bundles': 'api/prefetch api/framework bundle bundle/runs jobs prefetch http config storage/files',
  'api/clients': 'api/framework policy http usage accounts clients config',
  'api/content': 'api/framework mirror/policy accounts config',
  'api/policy': 'api/upstreams api/framework policy mirror/policy usage accounts config',
  'api/prefetch': 'api/framework jobs prefetch http',
  'api/publishers': 'api/framework http limits identity usage accounts config',
  'api/server': 'api/framework jobs instances usage accounts events config exposure',
  'api/upstreams': 'api/framework policy mirror mirror/policy mirror/store usage accounts metrics config',
  'api/webhooks': 'api/framework webhooks accounts events',
  'bundle/runs': 'bundle policy jobs prefetch mirror/store events storage/blobs storage/files database config',
  bundle:
    'prefetch mirror mirror/fetch mirror/store accounts history events storage/upkeep storage/blobs storage/files database cache upstream',
  'import/runs': 'import jobs events mirror/policy database upstream config',
  takeover: 'import jobs http limits events mirror/policy usage accounts database upstream cache config',
  import: 'prefetch storage/files upstream cache config',
  webhooks: 'accounts events storage/files database upstream config',
  jobs: 'policy prefetch known-bad mirror/store usage events storage/upkeep storage/blobs storage/drivers database config permanence promotion',
  prefetch: 'mirror mirror/store storage/files upstream',
  instances: 'http storage/files database config',
  identity: 'accounts events database upstream config',
  runtime: '',
  'api/permanence': 'api/framework permanence config',
  permanence: 'accounts events storage/upkeep database',
  exposure: 'policy known-bad mirror/policy usage accounts events database config',
  policy: 'known-bad usage clients mirror mirror/policy mirror/store accounts events database upstream config',
  'known-bad': 'accounts events storage/files database upstream config',
  mirror: 'mirror/fetch mirror/store events storage/files database upstream metrics',
  'mirror/policy': 'accounts upstream',
  'mirror/fetch': 'mirror/store history storage/blobs storage/files upstream',
  'mirror/store': 'history events storage/upkeep storage/blobs database upstream cache',
  history: 'database',
  'storage/upkeep': 'storage/blobs storage/drivers storage/files database',
  upstream: 'cache metrics config',
  clients: '',
  'api/promotions': 'api/framework promotion accounts config',
  'api/framework': 'http accounts events config',
  http: 'limits usage accounts storage/blobs storage/files tls metrics config',
  limits: 'events cache config',
  usage: 'accounts storage/blobs database',
  'storage/blobs': 'storage/drivers storage/files database',
  'storage/drivers': 'storage/files metrics',
  'storage/files': '',
  tls: 'config',
  cache: 'metrics',
  promotion: 'accounts events database',
  accounts: 'events database config',
  events: 'database config',
  database: 'metrics',
  metrics: '',
  config: '',
};

/** What reaches out of the program is behind one door each. */
const packages: Record<string, string> = {
  express: 'http api console nuget',
  sequelize: 'database',
  umzug: 'database',
  'node:sqlite': 'database',
  got: 'upstream',
  'node:https': 'upstream webhooks tls http storage cli',
  keyv: 'cache',
  '@keyv/redis': 'cache',
  '@redis/client': 'cache',
  commander: 'cli',
  yaml: 'config oci policy',
  'node-cron': 'jobs config',
  jose: 'identity',
  'openid-client': 'identity',
  'proxy-addr': 'http config',
  '@asteasolutions/zod-to-openapi': 'api',
  yauzl: 'storage',
  'fast-xml-parser': 'nuget',
  '@fastify/busboy': 'http',
  'prom-client': 'http metrics',
  'tar-stream': 'backup storage',
  '@aws-sdk/client-s3': 'storage',
};

interface Source {
  /** Relative to src. */
  path: string;
  room: string;
  /** The first part of the path. */
  folder: string;
  text: string;
  /** Without comments. */
  code: string;
  imports: string[];
}

/** The room with the longest path; empty if there is none. */
function roomOf(path: string): string {
  const found = Object.keys(rooms).filter((room) => path === room || path.startsWith(`${room}/`));
  return found.reduce((longest, room) => (room.length > longest.length ? room : longest), '');
}

async function readSources(): Promise<Source[]> {
  const entries = await readdir(src, { recursive: true, withFileTypes: true });
  // The browser's files are not part of the program.
  const files = entries
    .filter((each) => each.isFile() && !each.parentPath.endsWith('console/assets'))
    .map((each) => join(each.parentPath, each.name));
  return Promise.all(
    files.sort().map(async (file) => {
      const path = relative(src, file);
      const text = await readFile(file, 'utf8');
      const code = text.replace(/\/\*[^]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '');
      const pattern =
        /(?:^|\s)(?:import|export)\s(?:[^'"();]*?\sfrom\s)?['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/g;
      const imports = [...code.matchAll(pattern)].map((match) => (match[1] ?? match[2])!);
      return { path, room: roomOf(path), folder: path.split('/')[0]!, text, code, imports };
    }),
  );
}

/** The file that `path` imports as `specifier`, relative to src. */
function resolve(path: string, specifier: string): string {
  return relative(src, join(src, dirname(path), specifier));
}

/** The names that a source imports from other files, and from which. */
function importedNames({ path, code }: Source): Map<string, string> {
  const found = [...code.matchAll(/import (?:type )?\{([^}]*)\} from '(\.[^']+)'/g)];
  return new Map(
    found.flatMap(([, names = '', specifier = '']) =>
      (names.match(/\w+/g) ?? []).map((name) => [name, resolve(path, specifier)] as const),
    ),
  );
}

const sources = await readSources();
const contributing = await readFile(join(src, '../CONTRIBUTING.md'), 'utf8');

test('the sources are read', (t) => {
  t.true(sources.length > 40);
  const found = sources.flatMap(({ imports }) => imports).length;
  const from = sources.flatMap(({ code }) => [...code.matchAll(/\sfrom '/g)]).length;
  t.true(found >= from, 'no import escapes this test');
});

test('rooms import only what stands below them', (t) => {
  const order = Object.keys(rooms);
  for (const [room, allowed] of Object.entries(rooms)) {
    for (const each of allowed.split(' ').filter(Boolean))
      t.true(order.indexOf(each) > order.indexOf(room), `${each} stands below ${room}`);
  }
  for (const { path, room, imports } of sources) {
    const allowed = rooms[room]?.split(' ');
    t.truthy(allowed, `${path}: say in this test what it may import`);
    for (const each of imports.filter((target) => target.startsWith('.'))) {
      const target = resolve(path, each);
      t.true(existsSync(join(src, target)), `${path}: there is no ${each}`);
      t.false(target.startsWith('..'), `${path} imports ${each}, from outside src`);
      const other = roomOf(target);
      t.true(other === room || other === 'runtime' || allowed?.includes(other), `${path} may not import ${target}`);
    }
  }
});

test('a protocol is known to others by one file', (t) => {
  for (const { path, folder, imports } of sources) {
    for (const target of imports.filter((each) => each.startsWith('.')).map((each) => resolve(path, each))) {
      const [other] = target.split('/');
      if (!['nuget', 'oci'].includes(other!) || other === folder) continue;
      t.is(`${path} imports ${target}`, `server/installation.ts imports ${other}/protocol.ts`);
    }
  }
});

/** Whether `name` is a file, below src, test or the checkout. */
function isFile(name: string): boolean {
  return ['src', 'test', ''].some((from) => existsSync(join(src, '..', from, name)));
}

const folders = [...new Set(Object.keys(rooms).map((room) => room.split('/')[0]!))].filter(
  (each) => each !== 'main.ts',
);

test('what a thread loads is built as a file of its own', async (t) => {
  const build = await readFile(join(src, '../scripts/build.ts'), 'utf8');
  const paths = sources.flatMap(({ code }) =>
    [...code.matchAll(/programFile\('([^']+)\.ts'\)/g)].map(([, path]) => path!),
  );
  t.true(paths.length > 5);
  for (const path of paths) t.true(build.includes(`  '${path}',\n`), `scripts/build.ts: \`threads\` lacks ${path}`);
  for (const { path, code } of sources) t.false(/new Worker\((?!programFile\()/.test(code), `${path}: use programFile`);
});

test('the picture in CONTRIBUTING has every folder, and no import runs up in it', (t) => {
  const [, picture = ''] = /^## The folders in one picture\n[^]*?```\n([^]*?)```/m.exec(contributing) ?? [];
  const lines = picture.split('\n');
  const lineOf = (room: string) => {
    const name = room.endsWith('.ts') ? room : `${room}/`;
    return lines.findIndex((line) => line.split(/\s+/).some((each) => each === name));
  };
  const named = new Set(lines.flatMap((line) => line.split(/\s+/)).map((each) => each.split('/')[0]));
  for (const folder of folders) t.true(named.has(folder), folder);
  for (const [room, allowed] of Object.entries(rooms)) {
    for (const other of allowed.split(' ').filter((each) => lineOf(room) >= 0 && lineOf(each) >= 0))
      t.true(lineOf(other) >= lineOf(room), `${other} stands above ${room}`);
  }
});

test('the table in CONTRIBUTING has every folder once', (t) => {
  const [, table = ''] = /^\| Folder \|.*\n\|[-|]+\n((?:\|.*\n)+)/m.exec(contributing) ?? [];
  const listed = [...table.matchAll(/^\| `([a-z-]+)\/` \|/gm)].map(([, name]) => name!);
  t.deepEqual(listed.toSorted(), folders.toSorted());
});

test('comments and CONTRIBUTING name only files that exist', (t) => {
  for (const { path, text } of [...sources, { path: 'CONTRIBUTING.md', text: contributing }]) {
    for (const [, name] of text.matchAll(/`([a-z0-9-]+\/[\w./-]+\.(?:ts|md|yaml))`/g))
      t.true(isFile(name!), `${path}: ${name}`);
  }
});

test('packages that reach outside are used in one room', (t) => {
  for (const { path, folder, imports } of sources) {
    for (const each of imports) {
      const allowed = packages[each];
      if (allowed !== undefined) t.true(allowed.split(' ').includes(folder), `${path} may not import ${each}`);
    }
  }
});

test('only main.ts touches the process and its environment', (t) => {
  for (const { path, code, imports } of sources) {
    if (path === 'main.ts') continue;
    t.notRegex(code, /(?<![.\w'"`-])process\.\w/, path);
    t.false(imports.includes('node:process') || imports.includes('process'), path);
  }
});

test('only the core, the preflight, the protocols, the webhooks, the installation and server.ts put parts together', (t) => {
  const parts = ['server', 'installation', 'core', 'preflight', 'place', 'authenticator'].map(
    (name) => `server/${name}.ts`,
  );
  const composing = new Set([...parts, 'nuget/protocol.ts', 'oci/protocol.ts', 'webhooks/open.ts']);
  // The entry of a thread.
  composing.add('prefetch/reader-thread.ts');
  const places = new Map<string, string>();
  for (const source of sources.filter(({ path }) => composing.has(path))) {
    const imported = importedNames(source);
    for (const [, name = ''] of source.code.matchAll(/\bnew ([A-Z]\w+)\(/g)) {
      const definedIn = imported.get(name);
      if (definedIn && !name.endsWith('Error')) places.set(name, definedIn);
    }
  }
  t.true(places.size > 25, [...places.keys()].join());
  for (const source of sources.filter(({ path }) => !composing.has(path))) {
    const names = importedNames(source);
    for (const [name, definedIn] of places) {
      if (definedIn !== source.path && definedIn !== names.get(name)) continue;
      t.notRegex(source.code, new RegExp(`\\bnew ${name}\\(`), `${source.path} makes a ${name} of its own`);
    }
  }
});

test('the names of the protocols are spelled in one file', (t) => {
  // Each of these is a place to remove: what it says belongs to a protocol.
  const places: Record<string, number> = {
    'api/account/account.ts': 1,
    'cli/named-kind.ts': 1,
    'cli/prefetch.ts': 1,
    'config/aliases.ts': 1,
    'config/upstreams.ts': 8,
    'events/event.ts': 1,
    'known-bad/entry.ts': 1,
    'known-bad/record.ts': 3,
    'known-bad/records.ts': 2,
    'mirror/policy/admission.ts': 1,
    'policy/decide.ts': 3,
    'policy/document.ts': 1,
    'policy/gate.ts': 4,
    'policy/listed-names.ts': 2,
    'policy/refusals.ts': 1,
    'policy/releases.ts': 1,
    'prefetch/report.ts': 1,
    'runtime/cyclonedx.ts': 1,
    'upstream/configured.ts': 2,
    'upstream/upstream.ts': 1,
  };
  const others = sources.filter(
    ({ path, folder }) => !['nuget', 'oci', 'console'].includes(folder) && path !== 'config/protocols.ts',
  );
  const found = others.map(({ path, code }) => [
    path,
    code.match(/'(?:package|container|nuget|registry)s?'/g)?.length ?? 0,
  ]);
  t.deepEqual(Object.fromEntries(found.filter(([, count]) => count !== 0)), places);
});

test('the owner of a name is asked for, and not taken from the principal', (t) => {
  // These are about all content of an account, or about the principal itself, such as the downloads of its account.
  const lists: Record<string, number> = {
    'nuget/feed/receive-package.ts': 1,
    'nuget/feed/answering.ts': 1,
    'nuget/operations/change-operations.ts': 2,
    'nuget/operations/management-deprecation.ts': 3,
    'nuget/operations/finding-operations.ts': 1,
    'nuget/operations/management.ts': 3,
    'nuget/operations/search-sources.ts': 1,
    'nuget/operations/version-details.ts': 1,
    'oci/catalog/mirrored-images.ts': 1,
    'oci/http/routes.ts': 1,
    'oci/operations/detail-operations.ts': 1,
    'oci/operations/management.ts': 1,
  };
  const found = sources
    .filter(({ folder }) => ['nuget', 'oci'].includes(folder))
    .map(({ path, code }) => [
      path,
      code.match(/principal\.accountId|\{[^{}]*\baccountId\b[^{}]*\} = principal\b/g)?.length ?? 0,
    ])
    .filter(([, count]) => count !== 0);
  t.deepEqual(Object.fromEntries(found), lists);
});

test('an exported name stands for one thing, and another file uses it', async (t) => {
  const places = new Map<string, string[]>();
  const users = new Map<string, Set<string>>();
  const use = (path: string, code: string): void => {
    for (const [name] of code.matchAll(/\w+/g)) users.set(name, (users.get(name) ?? new Set()).add(path));
  };
  const pattern =
    /^export (?:declare )?(?:abstract )?(?:async )?(?:const|let|function\*?|class|interface|type|enum) (\w+)/gm;
  for (const { path, code } of sources) {
    use(path, code);
    for (const name of new Set([...code.matchAll(pattern)].map(([, found]) => found!)))
      places.set(name, [...(places.get(name) ?? []), path]);
  }
  for await (const path of glob('{test,scripts}/**/*.ts', { cwd: join(src, '..') }))
    use(`${path} beside src`, await readFile(join(src, '..', path), 'utf8'));
  t.true(places.size > 1000);
  t.deepEqual(
    [...places].filter(([, paths]) => paths.length > 1),
    [],
  );
  const unused = [...places].filter(([name]) => users.get(name)!.size === 1);
  t.deepEqual(unused, [], 'no other file uses these: do not export them');
});

test('files are named for what they hold and stay short', (t) => {
  for (const { path, text } of sources) {
    t.regex(path, /^(?:[a-z0-9]+(?:-[a-z0-9]+)*\/)*[a-z0-9]+(?:-[a-z0-9]+)*\.ts$/);
    t.notRegex(path, /manager|helper|util|provider|service(?!-index)/);
    t.true(text.split('\n').length <= 400, `${path} is longer than 400 lines: split it by noun`);
  }
});
