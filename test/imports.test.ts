import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import test from 'ava';

// The core's rules about who may know whom. Rooms are the folders and the single files of src.

const src = join(import.meta.dirname, '../src');

/** Each room and those it may import, which all stand further down: so the arrows run one way. */
const rooms: Record<string, string> = {
  'main.ts': 'cli command-name.ts',
  cli: 'server.ts closing.ts place.ts command-place.ts admin-host.ts checks.ts requirements.ts first-token.ts core.ts backup tls prefetch jobs mirror usage webhooks instances events storage metrics config upstream package.ts errors.ts command-name.ts source-lines.ts',
  'server.ts':
    'authenticator.ts place.ts console nuget oci protocol.ts admin-host.ts checks.ts measures.ts requirements.ts first-token.ts core.ts api webhooks prefetch jobs instances http mirror accounts usage storage tls config',
  nuget:
    'protocol.ts core.ts api prefetch jobs http mirror accounts usage history events storage database upstream cache config digest.ts incoming.ts event-loop.ts semaphore.ts errors.ts',
  oci: 'protocol.ts core.ts api prefetch jobs instances http mirror accounts usage history events storage database upstream cache config caller.ts digest.ts event-loop.ts errors.ts',
  'protocol.ts': 'core.ts api prefetch jobs instances http mirror accounts usage storage upstream config',
  'first-token.ts': 'core.ts config',
  'measures.ts': 'core.ts jobs http mirror usage tls upstream metrics',
  'checks.ts': 'core.ts webhooks http tls',
  'authenticator.ts': 'core.ts http accounts',
  'admin-host.ts': 'upstream config',
  'requirements.ts': 'core.ts command-place.ts closing.ts webhooks instances jobs storage database cache config',
  'core.ts':
    'place.ts webhooks closing.ts instances http limits identity mirror accounts usage events storage database upstream cache metrics config caller.ts clock.ts digest.ts',
  'place.ts': 'command-place.ts closing.ts instances events storage database cache config caller.ts',
  'command-place.ts': 'storage database config',
  backup: 'storage database digest.ts incoming.ts package.ts event-loop.ts errors.ts command-name.ts',
  console:
    'api http limits identity accounts events config package.ts event-loop.ts errors.ts command-name.ts source-lines.ts',
  api: 'webhooks jobs prefetch instances http limits identity mirror accounts usage history events database metrics config event-loop.ts semaphore.ts errors.ts',
  webhooks: 'closing.ts events storage upstream database config event-loop.ts errors.ts command-name.ts',
  jobs: 'prefetch mirror usage events storage database config caller.ts event-loop.ts errors.ts command-name.ts',
  prefetch: 'mirror upstream event-loop.ts errors.ts',
  instances: 'closing.ts http database config caller.ts package.ts incoming.ts errors.ts',
  http: 'accounts limits usage storage tls metrics config caller.ts incoming.ts event-loop.ts semaphore.ts errors.ts',
  limits: 'events cache config caller.ts semaphore.ts errors.ts',
  identity: 'accounts events database upstream config event-loop.ts errors.ts command-name.ts',
  mirror:
    'history events storage database upstream cache metrics config caller.ts digest.ts incoming.ts event-loop.ts semaphore.ts errors.ts',
  usage: 'closing.ts accounts storage database caller.ts event-loop.ts errors.ts',
  accounts: 'events database caller.ts event-loop.ts errors.ts',
  history: 'database',
  events: 'database caller.ts event-loop.ts',
  storage: 'database metrics digest.ts incoming.ts event-loop.ts errors.ts command-name.ts',
  database: 'metrics caller.ts package.ts event-loop.ts errors.ts',
  tls: 'config',
  upstream: 'cache metrics config digest.ts incoming.ts event-loop.ts semaphore.ts errors.ts',
  cache: 'metrics errors.ts',
  metrics: 'errors.ts',
  config: 'package.ts errors.ts',
  'command-name.ts': '',
  'source-lines.ts': '',
  'closing.ts': '',
  'semaphore.ts': '',
  'event-loop.ts': '',
  'caller.ts': 'errors.ts',
  'clock.ts': '',
  'digest.ts': 'errors.ts',
  'incoming.ts': 'errors.ts',
  'package.ts': '',
  'errors.ts': '',
};

/** What reaches out of the program is behind one door each. */
const packages: Record<string, string> = {
  express: 'http api console nuget',
  sequelize: 'database',
  umzug: 'database',
  'node:sqlite': 'database',
  got: 'upstream',
  'node:https': 'upstream tls http storage cli',
  keyv: 'cache',
  '@keyv/redis': 'cache',
  '@redis/client': 'cache',
  commander: 'cli',
  yaml: 'config oci',
  'node-cron': 'jobs config',
  jose: 'identity',
  'openid-client': 'identity',
  'proxy-addr': 'http config',
  '@asteasolutions/zod-to-openapi': 'api',
  yauzl: 'nuget',
  'fast-xml-parser': 'nuget',
  '@fastify/busboy': 'http',
  'prom-client': 'http metrics',
  'tar-stream': 'backup',
  '@aws-sdk/client-s3': 'storage',
};

interface Source {
  /** Relative to src. */
  path: string;
  room: string;
  text: string;
  /** Without comments. */
  code: string;
  imports: string[];
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
      return { path, room: path.split('/')[0]!, text, code, imports };
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
    t.truthy(allowed, `${room}: say in this test what it may import`);
    for (const each of imports.filter((target) => target.startsWith('.'))) {
      const target = resolve(path, each);
      t.true(existsSync(join(src, target)), `${path}: there is no ${each}`);
      t.false(target.startsWith('..'), `${path} imports ${each}, from outside src`);
      const other = target.split('/')[0]!;
      t.true(other === room || allowed?.includes(other), `${path} may not import ${target}`);
    }
  }
});

test('a protocol is known to others by one file', (t) => {
  for (const { path, room, imports } of sources) {
    for (const target of imports.filter((each) => each.startsWith('.')).map((each) => resolve(path, each))) {
      const [other] = target.split('/');
      if (!['nuget', 'oci'].includes(other!) || other === room) continue;
      t.is(`${path} imports ${target}`, `server.ts imports ${other}/protocol.ts`);
    }
  }
});

test('within nuget the formats stand below everything, and HTTP above everything', (t) => {
  for (const { path, imports } of sources) {
    for (const each of imports.filter((target) => target.startsWith('.'))) {
      const target = resolve(path, each);
      if (path.startsWith('nuget/format/') && target.startsWith('nuget/')) {
        t.true(target.startsWith('nuget/format/'), `${path} may not import ${target}`);
      }
      if (target.startsWith('nuget/http/')) {
        t.true(path.startsWith('nuget/http/') || path === 'nuget/protocol.ts', `${path} may not import ${target}`);
      }
    }
  }
});

const folders = Object.keys(rooms).filter((room) => !room.endsWith('.ts'));

test('the picture in CONTRIBUTING has every folder, and no import runs up in it', (t) => {
  const [, picture = ''] = /^## The folders in one picture\n[^]*?```\n([^]*?)```/m.exec(contributing) ?? [];
  const lines = picture.split('\n');
  const lineOf = (room: string) => {
    const name = room.endsWith('.ts') ? room : `${room}/`;
    return lines.findIndex((line) => line.split(/\s+/).includes(name));
  };
  for (const folder of folders) t.not(lineOf(folder), -1, folder);
  for (const [room, allowed] of Object.entries(rooms)) {
    for (const other of allowed.split(' ').filter((each) => lineOf(room) >= 0 && lineOf(each) >= 0))
      t.true(lineOf(other) >= lineOf(room), `${other} stands above ${room}`);
  }
});

test('the table in CONTRIBUTING has every folder once', (t) => {
  const [, table = ''] = /^\| Folder \|.*\n\|[-|]+\n((?:\|.*\n)+)/m.exec(contributing) ?? [];
  const listed = [...table.matchAll(/^\| `([a-z]+)\/` \|/gm)].map(([, name]) => name!);
  t.deepEqual(listed.toSorted(), folders.toSorted());
});

test('comments name only files that exist', (t) => {
  for (const { path, text } of sources) {
    for (const [, name] of text.matchAll(/`((?:src|test|docs)\/[\w./-]+\.\w+)`/g))
      t.true(existsSync(join(src, '..', name!)), `${path}: ${name}`);
  }
});

test('packages that reach outside are used in one room', (t) => {
  for (const { path, room, imports } of sources) {
    for (const each of imports) {
      const allowed = packages[each];
      if (allowed !== undefined) t.true(allowed.split(' ').includes(room), `${path} may not import ${each}`);
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

test('only the core, the requirements, the protocols, the webhooks and server.ts put parts together', (t) => {
  const composing = new Set(['core.ts', 'nuget/protocol.ts', 'oci/protocol.ts', 'webhooks/open.ts', 'server.ts']);
  for (const each of ['requirements.ts', 'place.ts', 'authenticator.ts']) composing.add(each);
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

test('files are named for what they hold and stay short', (t) => {
  for (const { path, text } of sources) {
    t.regex(path, /^(?:[a-z0-9]+(?:-[a-z0-9]+)*\/)*[a-z0-9]+(?:-[a-z0-9]+)*\.ts$/);
    t.notRegex(path, /manager|helper|util|provider|service(?!-index)/);
    t.true(text.split('\n').length <= 400, `${path} is longer than 400 lines: split it by noun`);
  }
});
