import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import test from 'ava';
import { parse } from 'yaml';
import { findCommand } from '../scripts/packages.ts';
import { scopes, scopeTexts } from '../src/accounts/principal.ts';
import { schema, settings, type Setting } from '../src/config/schema.ts';
import { clientKinds, clientText } from '../src/clients/client.ts';
import { allCommands } from './support/all-commands.ts';
import { execute } from './support/clients/clients.ts';
import { entrepot } from './support/in-process.ts';
import { OpenDocument } from './support/open-document.ts';
import { until } from './support/until.ts';
import { startTestServer } from './support/server.ts';

// Compares the documents with the code.

const root = join(import.meta.dirname, '..');
const read = (path: string) => readFile(join(root, path), 'utf8');
const names = new Set(
  settings.flatMap(({ environment, secret }) => [environment, ...(secret ? [`${environment}_FILE`] : [])]),
);

/** The documents, as paths below the root. */
async function documents(): Promise<string[]> {
  const inFolder = (await readdir(join(root, 'docs'))).filter((name) => name.endsWith('.md'));
  return ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'SECURITY.md', ...inFolder.map((name) => join('docs', name))];
}

/** The files of the program, as paths below the root. */
async function sources(): Promise<string[]> {
  const files = await readdir(join(root, 'src'), { recursive: true, withFileTypes: true });
  return files.filter((each) => each.isFile()).map((each) => relative(root, join(each.parentPath, each.name)));
}

/** A line of the table in docs/settings.md. */
function row({ environment, path, default: fallback, doc, secret }: Setting): string {
  const simple = Array.isArray(fallback) ? fallback.length === 0 : fallback !== undefined;
  const shown = simple ? `\`${typeof fallback === 'string' ? fallback : JSON.stringify(fallback)}\`` : '';
  return `| \`${environment}\`${secret ? ', `…_FILE`' : ''} | \`${path}\` | ${shown} | ${doc} |`;
}

test('the table of settings has every setting with its default and description', async (t) => {
  const lines = (await read('docs/settings.md')).split('\n');
  t.deepEqual(
    lines.filter((line) => line.startsWith('| `ENTREPOT_')),
    settings.map(row),
  );
});

test('docs/operations.md says what each job does, by the name that "jobs run" takes', async (t) => {
  const text = await read('docs/operations.md');
  const names = settings.flatMap(({ path }) => /^jobs\.(\w+)$/.exec(path)?.[1] ?? []);
  t.true(names.length > 10);
  for (const each of names) {
    const name = each.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    t.true(text.includes(`\n- **${name}** `), name);
  }
});

test('documents name only settings that exist', async (t) => {
  const known = new Set([...names, 'ENTREPOT_CONFIG', 'ENTREPOT_TEST_DATABASE_URL', 'ENTREPOT_TEST_REDIS_URL']);
  const inDocker = [
    'Dockerfile',
    'compose.yaml',
    'compose.cluster.yaml',
    'nginx.cluster.conf',
    'kubernetes/deployment.yaml',
  ];
  const files = [...(await documents()), ...inDocker.map((name) => `docker/${name}`), 'scripts/entrepot.service'];
  for (const path of [...files, 'config/example.yaml', 'config/default.yaml']) {
    for (const [name] of (await read(path)).matchAll(/ENTREPOT_[A-Z0-9_]*[A-Z0-9]/g)) {
      t.true(known.has(name), `${path}: ${name}`);
    }
  }
});

test('the README has at most 250 lines', async (t) => {
  t.true((await read('README.md')).split('\n').length <= 251);
});

/** The anchors of the titles in a document. */
async function anchorsIn(path: string): Promise<Set<string>> {
  const titles = [...(await read(path)).matchAll(/^#+ (.+)$/gm)].map(([, title]) => title!.toLowerCase());
  return new Set(titles.map((title) => title.replace(/[^\w -]/g, '').replaceAll(' ', '-')));
}

test('links between documents have existing targets', async (t) => {
  for (const path of await documents()) {
    for (const [, target] of (await read(path)).matchAll(/\]\(([^)]+)\)/g)) {
      if (/^https?:/.test(target!)) continue;
      const [file, anchor] = target!.split('#');
      const other = file === '' ? path : join(dirname(path), file!);
      t.true(existsSync(join(root, other)), `${path}: ${target}`);
      if (anchor !== undefined) t.true((await anchorsIn(other)).has(anchor), `${path}: ${target}`);
    }
  }
});

test('documents name only test files that exist', async (t) => {
  let seen = 0;
  for (const path of await documents())
    for (const [file] of (await read(path)).matchAll(/\btest\/[\w./-]+\.test\.ts/g)) {
      t.true(existsSync(join(root, file)), `${path}: ${file}`);
      seen += 1;
    }
  t.true(seen > 50);
});

test('documents show only commands and options that exist', async (t) => {
  const helps = new Map<string, string>();
  const helpOf = async (words: string[]) => {
    const key = words.join(' ');
    if (!helps.has(key)) helps.set(key, (await entrepot({}, ...words, '--help')).stdout);
    return helps.get(key)!;
  };
  let seen = 0;
  for (const path of await documents()) {
    if (path === 'CHANGELOG.md') continue;
    for (const [, line] of (await read(path)).matchAll(
      /(?:npx --no-install|exec \S+(?: --)?) entrepot ([^\n`)#|]+)/g,
    )) {
      if (line!.startsWith('…')) continue;
      const words = line!.trim().split(/\s+/);
      const first = await helpOf(words.slice(0, 1));
      const isGroup = /^Usage: entrepot \S+ \[options\] \[command\]/.test(first);
      const help = isGroup ? await helpOf(words.slice(0, 2)) : first;
      const command = words.slice(0, isGroup ? 2 : 1).join(' ');
      t.true(help.startsWith(`Usage: entrepot ${command} `), `${path}: ${line}`);
      for (const option of words.filter((each) => each.startsWith('--'))) {
        t.regex(help, new RegExp(`${option}\\b`), `${path}: ${line}`);
      }
      seen += 1;
    }
  }
  t.true(seen > 20);
});

test('the compose file gives Redis a password, and lets every image be named by its digest', async (t) => {
  const text = await read('docker/compose.yaml');
  const { services, secrets } = parse(text) as Compose;
  const { command = [], secrets: given = [] } = services['redis']!;
  t.true(given.includes('redis-password'));
  t.regex(command.join('\n'), /requirepass/);
  t.is(services['entrepot']!.environment!['ENTREPOT_REDIS_URL_FILE'], '/run/secrets/redis-url');
  for (const name of Object.keys(secrets)) t.true(text.includes(`> docker/secrets/${name}\n`), `how to create ${name}`);
  t.regex(text, /^# {3}chmod 600 docker\/secrets\/\*$/m);
  for (const name of ['mysql', 'redis']) t.regex(services[name]!.image!, /^\$\{[A-Z]+_IMAGE:-/);
});

interface Compose {
  services: Record<
    string,
    {
      image?: string;
      command?: string[];
      environment?: Record<string, string>;
      secrets?: string[];
      depends_on?: Record<string, { condition: string }>;
      healthcheck?: object;
    }
  >;
  secrets: Record<string, unknown>;
}

test('the compose file uses existing settings, and starts the service after healthy dependencies', async (t) => {
  const { services, secrets } = parse(await read('docker/compose.yaml')) as Compose;
  const { environment = {}, depends_on: needs = {} } = services['entrepot']!;
  for (const [name, value] of Object.entries(environment)) {
    t.true(names.has(name), name);
    if (name.endsWith('_FILE')) t.true(value.replace('/run/secrets/', '') in secrets, value);
  }
  for (const [name, { condition }] of Object.entries(needs)) {
    t.is(condition, 'service_healthy');
    t.truthy(services[name]!.healthcheck, name);
  }
  t.deepEqual(Object.keys(needs).sort(), ['mysql', 'redis']);
});

test('documents and messages run no package of this name from the public registry', async (t) => {
  const commands = (await allCommands()).map((each) => each.split(' ')[0]!);
  const literal = new RegExp(`\\bentrepot (?:${[...new Set(commands)].join('|')})\\b`);
  for (const path of [...(await documents()), ...(await sources())]) {
    if (path === 'CHANGELOG.md') continue;
    const text = await read(path);
    t.notRegex(text, /\bnpx entrepot\b/, path);
    // Messages have the command as it is typed where this program is installed.
    const code = text.replace(/\/\*[^]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '');
    if (path.startsWith('src/')) t.notRegex(code, literal, path);
  }
});

test('where a source is added to NuGet, the public one is removed', async (t) => {
  const found: string[] = [];
  for (const path of [...(await documents()), ...(await sources())]) {
    const text = await read(path);
    for (const { index } of text.matchAll(/dotnet nuget add source/g)) {
      t.regex(text.slice(Math.max(0, index - 250), index), /dotnet nuget remove source nuget/, path);
      found.push(path);
    }
    for (const { index } of text.matchAll(/<packageSources>/g)) {
      t.regex(text.slice(index), /^<packageSources>\s*<clear \/>/, path);
      found.push(path);
    }
  }
  const places = [
    'README.md',
    'docs/as-of.md',
    'docs/clients.md',
    'src/clients/nuget.ts',
    'src/runtime/source-lines.ts',
  ];
  t.deepEqual([...new Set(found)].sort(), places);
});

test('the systemd unit gives the server more time to end than it takes', async (t) => {
  const text = await read('scripts/entrepot.service');
  const stop = Number(/^TimeoutStopSec=(\d+)$/m.exec(text)?.[1]);
  t.true(stop * 1000 > schema.parse({}).shutdownGrace + 5000);
  t.true(text.includes('\nExecStart=entrepot serve\n'));
});

const analyze = findCommand('systemd-analyze');

(analyze === undefined ? test.skip : test)('the systemd unit passes systemd', async (t) => {
  const text = await read('scripts/entrepot.service');
  const folder = await mkdtemp(join(tmpdir(), 'entrepot-unit-'));
  t.teardown(() => rm(folder, { recursive: true }));
  // systemd looks for the command, which is not installed here.
  const unit = join(folder, 'entrepot.service');
  await writeFile(unit, text.replace('=entrepot serve', `=${join(root, 'bin/entrepot.js')} serve`));
  const { code, stdout, stderr } = await execute(analyze!, ['verify', unit]);
  t.deepEqual({ code, output: stdout + stderr }, { code: 0, output: '' });
});

test('nginx closes idle connections before an instance closes after the documented delay', async (t) => {
  const idle = /^ {2}keepalive_timeout (\d+)s;$/m.exec(await read('docker/nginx.conf'))?.[1];
  const delay = /`ENTREPOT_SHUTDOWN_DELAY` \| `(\d+)s`/.exec(await read('docs/upgrade.md'))?.[1];
  t.true(Number(idle) < Number(delay), `${idle} s, ${delay} s`);
});

test('the bounds in SECURITY.md name existing settings and tests', async (t) => {
  const text = await read('SECURITY.md');
  const tests = [...text.matchAll(/`(test\/[\w/.-]+)`/g)].map(([, path]) => path!);
  t.true(tests.length > 20);
  for (const path of tests) t.true(existsSync(join(root, path)), path);
  const paths = new Set(settings.map(({ path }) => path));
  for (const [, path] of text.matchAll(/`((?:limits|mirror|storage)\.\w+)`/g)) t.true(paths.has(path!), path);
});

test('docs/clients.md shows each configuration as the server writes it', async (t) => {
  const text = (await read('docs/clients.md')).replaceAll('ent_…', 'TOKEN');
  const options = {
    feed: 'https://hub.example.com',
    registry: 'https://hub.example.com',
    registries: ['docker.io'],
    form: 'mirror',
    fallback: false,
    credentials: true,
  } as const;
  for (const kind of clientKinds) {
    const { files, steps } = clientText(kind, options);
    const shown = [...files.map(({ content }) => content.trimEnd()), ...steps.map(({ lines }) => lines)];
    for (const each of shown) t.true(text.includes(each), `${kind}: ${each}`);
    for (const { path } of files) t.true(text.includes(path), `${kind}: ${path}`);
    t.true(text.includes(`entrepot client ${kind}`), kind);
  }
});

/** The rows of a table, as pairs of its first two cells, for which `pattern` matches the first. */
async function cells(path: string, pattern: RegExp): Promise<[string, string][]> {
  const rows = [...(await read(path)).matchAll(/^\| ([^|]+) \| ([^|]+) \|$/gm)];
  return rows.flatMap(([, first, second]) => {
    const name = pattern.exec(first!)?.[1];
    return name === undefined ? [] : [[name, second!] as [string, string]];
  });
}

test('docs/security.md and SECURITY.md say of each scope what the console says', async (t) => {
  const expected = scopes.map((each) => [each, scopeTexts[each].replace(/"(\w+)"/g, '`$1`')] as [string, string]);
  t.deepEqual(await cells('docs/security.md', /^`(\w+)`$/), expected);
  const actors = await cells('SECURITY.md', /^token with `(\w+)`$/);
  t.deepEqual(
    actors.map(([name, text], index) => [name, text.slice(0, expected[index]?.[1].length)]),
    expected,
  );
});

test('the text of the scope admin has everything that needs it', async (t) => {
  const words: Record<string, RegExp> = {
    tokens: /\btokens\b/,
    grants: /\bgrants\b/,
    publishers: /\brules\b/,
    'trusted-issuers': /\brules for identity tokens\b/,
    webhooks: /\bwebhooks\b/,
    sessions: /\bsessions\b/,
    imports: /\bimports from other servers\b/,
    claims: /\bclaims\b/,
    deleted: /\bdelete for good\b/,
    'client-checks': /\bcheck whether clients use this server\b/,
    uses: /\bwhich token uses what\b/,
    account: /\brules for promotions of the account, what is frozen and kept\b/,
    held: /\bwhose requests policies refuse\b/,
  };
  const { document } = await OpenDocument.of(await startTestServer(t));
  const paths = Object.entries(document['paths'] as Record<string, Record<string, { description?: string }>>);
  const needing = paths.filter(([, methods]) =>
    Object.values(methods).some(({ description }) => description?.includes('`admin`')),
  );
  const first = [...new Set(needing.map(([path]) => path.split('/')[1]!))];
  t.deepEqual(first.toSorted(), Object.keys(words).toSorted());
  for (const each of first) t.regex(scopeTexts.admin, words[each]!);
});

test('a client without a credential can request what SECURITY.md says, and nothing else', async (t) => {
  const server = await startTestServer(t);
  const [[, text] = ['', '']] = await cells('SECURITY.md', /^(anonymous client)$/);
  const open = new Set([...text.split('with `anonymousRead')[0]!.matchAll(/`(\/[^`]*)`/g)].map(([, path]) => path!));
  const statusOf = async (path: string) =>
    (await server.fetch(path, { token: null, redirect: 'manual', headers: { accept: 'text/html' } })).status;
  for (const path of ['/livez', '/readyz', '/metrics', '/v1/openapi.json', '/console/sign-in', '/']) {
    t.true(open.has(path), path);
    // The first checks of `/readyz` are in progress on a busy machine.
    await until(async () => (await statusOf(path)) < 400);
  }
  for (const path of ['/token', '/v1/token-exchange']) t.true(open.has(path), path);
  const { operations } = await OpenDocument.of(server);
  const rest = operations.filter((each) => each.startsWith('GET ')).map((each) => `/v1${each.slice(4)}`);
  t.true(rest.length > 20);
  for (const path of [...rest, '/v2/', '/v2/_catalog', '/v3/index.json', '/v3/search']) {
    if (!open.has(path)) t.is(await statusOf(path.replace(/\{\w+\}/g, 'some')), 401, path);
  }
  t.is(await statusOf('/console'), 302);
});
