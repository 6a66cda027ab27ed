import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { run } from '../../src/cli/commands.ts';
import { parse, parseAllDocuments } from 'yaml';
import { anyCertificate, clientForms, clientKinds, clients, clientText } from '../../src/clients/client.ts';
import { createAuthority } from '../support/builders/certificates.ts';
import { nobody, testAsRoot } from '../support/as-root.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';

// In a process of its own: a helper declares tests of it.

const token = 'ent_0123456789abcdefghij';
const hub = { feed: 'https://hub.example.com', registry: 'https://hub.example.com' };
const url = ['--url', hub.registry];

/** Runs `entrepot client` with a token in its environment. */
const client = (...words: string[]) => entrepot({ HUB_TOKEN: token }, 'client', ...words, ...url);

async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name));
}

test('every file with the token can be read by its owner only, and no token is printed', async (t) => {
  for (const kind of clientKinds) {
    for (const form of ['mirror', 'prefix']) {
      const printed = await client(kind, '--form', form);
      t.is(printed.code, 0, printed.stderr);
      const folder = join(await folderUntilEnd(t), 'new');
      const { holdsToken } = clients[kind];
      const words = ['--form', form, '--write', folder, ...(holdsToken ? ['--token-env', 'HUB_TOKEN'] : [])];
      const { code, stdout, stderr } = await client(kind, ...words);
      t.is(code, 0, stderr);
      const written = stdout.split('\n').filter((line) => line.startsWith('written: '));
      // A client that signs in by itself may need no file.
      const files = written.length === 0 ? [] : await filesIn(folder);
      t.is(written.length, files.length, kind);
      t.false((printed.stdout + stdout + stderr).includes(token), kind);
      let secrets = 0;
      for (const file of files) {
        const text = await readFile(file, 'utf8');
        const isSecret = text.includes(token) || text.includes(Buffer.from(`api:${token}`).toString('base64'));
        t.is((await stat(file)).mode & 0o777, isSecret ? 0o600 : 0o644, file);
        // What is printed is what is written, with a placeholder.
        if (!isSecret) t.true(printed.stdout.includes(text), file);
        else if (kind !== 'crio') t.true(printed.stdout.includes(text.replaceAll(token, 'TOKEN')), file);
        secrets += isSecret ? 1 : 0;
      }
      t.is(secrets > 0, holdsToken, kind);
      t.regex((await client(kind, ...words)).stdout, /^(?:unchanged: |[^w])/, `${kind} again`);
    }
  }
});

test('what is not the name of a registry is refused', async (t) => {
  for (const name of ['Docker.io', 'https://docker.io', 'docker.io/library', '-docker.io', 'docker.io:']) {
    const { code, stderr } = await client('containerd', `--registries=${name}`, '--no-credentials');
    t.is(code, 1, name);
    t.is(stderr, `entrepot: containerd: "${name}" is not the name of a registry, such as docker.io.\n`);
  }
});

test('a different file is replaced only if that was said, and then no other is written before', async (t) => {
  const folder = await folderUntilEnd(t);
  const names = ['--registries', 'docker.io,quay.io', '--no-credentials'];
  const write = (...more: string[]) => client('containerd', ...names, '--write', folder, ...more);
  const file = (name: string) => join(folder, 'etc/containerd/certs.d', name, 'hosts.toml');
  await mkdir(join(file('quay.io'), '..'), { recursive: true });
  await writeFile(file('quay.io'), 'server = "https://quay.io"\n');
  const refused = await write();
  t.is(refused.code, 1);
  t.regex(refused.stderr, /quay\.io\/hosts\.toml: there is another file already.*--overwrite\. Nothing was written/);
  t.deepEqual(await filesIn(folder), [file('quay.io')]);
  t.is(await readFile(file('quay.io'), 'utf8'), 'server = "https://quay.io"\n');
  t.is((await write('--overwrite')).code, 0);
  t.deepEqual((await filesIn(folder)).sort(), [file('docker.io'), file('quay.io')]);
  t.is(await readFile(file('quay.io'), 'utf8'), await readFile(file('docker.io'), 'utf8'));

  // A link could lead anywhere.
  const place = await folderUntilEnd(t);
  await writeFile(join(place, 'other'), 'kept');
  await symlink(join(place, 'other'), join(place, 'nuget.config'));
  const linked = await client('dotnet', '--write', place, '--overwrite');
  t.regex(linked.stderr, /nuget\.config is not a file/);
  t.is(await readFile(join(place, 'other'), 'utf8'), 'kept');

  // A file with a token that others can read is replaced, though it has the same content.
  const secret = ['talos', '--token-env', 'HUB_TOKEN', '--write', place];
  t.is((await client(...secret)).code, 0);
  const talos = join(place, 'entrepot-registries.yaml');
  await chmod(talos, 0o644);
  t.is((await client(...secret)).code, 0);
  t.is((await stat(talos)).mode & 0o777, 0o600);
});

testAsRoot('root writes nothing where another user could change it', async (t) => {
  const folder = await folderUntilEnd(t);
  const [owned, shared] = [join(folder, 'owned'), join(folder, 'shared')];
  for (const each of [owned, shared]) await mkdir(join(each, 'below'), { recursive: true });
  await chown(owned, nobody, nobody);
  await chmod(shared, 0o777);
  await symlink(join(owned, 'below'), join(folder, 'link'));
  await mkdir(join(folder, 'own'));
  await symlink(join(folder, 'own'), join(owned, 'back'));
  for (const place of [
    owned,
    join(owned, 'below'),
    join(owned, 'new/folder'),
    join(folder, 'link'),
    join(owned, 'back'),
  ]) {
    const { code, stderr } = await client('dotnet', '--write', place);
    t.is(code, 1);
    t.regex(stderr, /--write: \S+ belongs to the user 65534.* Type: sudo -u '#65534' .*client dotnet --write/);
  }
  t.regex((await client('dotnet', '--write', join(shared, 'below'))).stderr, /other users may change \S+\/shared/);
  t.deepEqual(await filesIn(folder), []);
});

test('a wrong value is refused with what to do', async (t) => {
  const folder = await folderUntilEnd(t);
  const refusals: [string[], RegExp][] = [
    [['containerd', '--token-env', 'HUB_TOKEN'], /A token is for --write alone/],
    [['dotnet', '--token-env', 'HUB_TOKEN', '--write', folder], /The files of dotnet have no token/],
    [['k3s', '--write', folder], /These files need a token: --token-file FILE/],
    [['talos', '--token-env', 'BAD', '--write', folder], /characters that no token has/],
    [['talos', '--token-env', 'NONE', '--write', folder], /the environment has no NONE/],
    [['dotnet', '--fallback'], /NuGet asks every source for every name/],
    [['podman', '--registries', 'docker.io,a"]'], /is not the name of a registry/],
    [['podman', '--ca-file', join(folder, 'none.crt')], /--ca-file: \S+ cannot be read/],
    [['podman', '--ca-file', join(folder, 'key.pem')], /has no certificate in PEM/],
    [['podman', '--ca-file', join(folder, 'large.pem')], /larger than 64 KiB/],
  ];
  await writeFile(join(folder, 'key.pem'), '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n');
  await writeFile(join(folder, 'large.pem'), randomBytes(70_000));
  for (const [words, message] of refusals) {
    const heard = await entrepot({ HUB_TOKEN: token, BAD: 'a"\nb' }, 'client', ...words, ...url);
    t.is(heard.code, 1, words.join(' '));
    t.regex(heard.stderr, message);
  }
  for (const address of ['https://hub.example.com/"x', 'ftp://hub', 'https://u:p@hub.example.com'])
    t.regex(
      (await entrepot({}, 'client', 'podman', '--url', address)).stderr,
      /cannot be the address|Name the address/,
    );
  t.regex((await entrepot({}, 'client', 'podman')).stderr, /ENTREPOT_BASE_URL/);
  t.deepEqual((await readdir(folder)).sort(), ['key.pem', 'large.pem']);
});

test('of a file of the authority, only the certificates are used', async (t) => {
  const folder = await folderUntilEnd(t);
  const authority = createAuthority();
  const file = join(folder, 'ca.pem');
  await writeFile(file, `${authority.ca}\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n`);
  for (const kind of clientKinds) {
    const { code, stdout } = await client(kind, '--ca-file', file);
    t.is(code, 0, kind);
    t.regex(stdout, /BEGIN CERTIFICATE/, kind);
    t.notRegex(stdout, /PRIVATE KEY/, kind);
  }
});

/** The fields of each kind of document, as the documentation of Talos 1.13, k3s and OpenShift 4.18 has them. */
const published = {
  RegistryMirrorConfig: ['name', 'endpoints', 'skipFallback', 'url', 'overridePath'],
  RegistryAuthConfig: ['name', 'username', 'password', 'auth', 'identityToken'],
  RegistryTLSConfig: ['name', 'clientIdentity', 'ca', 'insecureSkipVerify'],
  ImageDigestMirrorSet: ['metadata', 'name', 'spec', 'imageDigestMirrors', 'source', 'mirrors', 'mirrorSourcePolicy'],
  ImageTagMirrorSet: ['metadata', 'name', 'spec', 'imageTagMirrors', 'source', 'mirrors', 'mirrorSourcePolicy'],
  ConfigMap: ['metadata', 'name', 'namespace', 'data', 'hub.example.com..8443'],
};

/** All keys in a value. */
function keysIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  if (Array.isArray(value)) return value.flatMap(keysIn);
  return Object.entries(value).flatMap(([key, inner]) => [key, ...keysIn(inner)]);
}

test('files in YAML and JSON have the published fields, in each form', (t) => {
  const host = 'hub.example.com:8443';
  const base = { feed: `https://${host}`, registry: `https://${host}`, registries: ['docker.io', 'quay.io'] };
  let documents = 0;
  for (const kind of ['talos', 'openshift'] as const) {
    for (const form of clientForms) {
      for (const fallback of [true, false]) {
        const { files } = clientText(kind, { ...base, form, fallback, credentials: true, ca: anyCertificate });
        for (const parsed of files.flatMap(({ content }) => parseAllDocuments(content))) {
          t.deepEqual(parsed.errors, []);
          const {
            apiVersion,
            kind: type,
            ...rest
          } = parsed.toJS() as Record<string, unknown> & { kind: keyof typeof published };
          t.truthy(apiVersion);
          for (const key of keysIn(rest)) t.true(published[type].includes(key), `${type}: ${key}`);
          if (type === 'RegistryMirrorConfig') t.is(rest['skipFallback'], fallback ? undefined : true);
          if (type === 'RegistryTLSConfig') t.is(rest['ca'], anyCertificate);
          const policy = fallback ? 'AllowContactingSource' : 'NeverContactSource';
          for (const set of Object.values((rest['spec'] ?? {}) as Record<string, Record<string, unknown>[]>)) {
            t.deepEqual(
              set,
              base.registries.map((source) => ({ source, mirrors: [`${host}/${source}`], mirrorSourcePolicy: policy })),
            );
          }
          documents += 1;
        }
      }
    }
  }
  t.true(documents > 15);
  const text = (kind: 'k3s' | 'crio' | 'docker', registry: string) =>
    clientText(kind, {
      ...base,
      registry,
      form: 'mirror',
      fallback: false,
      credentials: true,
      ca: anyCertificate,
      token,
    });
  const content = (kind: 'k3s' | 'crio' | 'docker', name: string, registry = base.registry) =>
    text(kind, registry).files.find(({ path }) => path.endsWith(name))!.content;
  const endpoint = [base.registry];
  t.deepEqual(parse(content('k3s', 'registries.yaml')), {
    mirrors: { 'docker.io': { endpoint }, 'quay.io': { endpoint } },
    configs: {
      [host]: { auth: { username: 'api', password: token }, tls: { ca_file: '/etc/rancher/k3s/entrepot-ca.crt' } },
    },
  });
  t.deepEqual(parse(content('k3s', 'entrepot.yaml')), { 'disable-default-registry-endpoint': true });
  const auth = Buffer.from(`api:${token}`).toString('base64');
  t.deepEqual(JSON.parse(content('crio', 'auth.json')), { auths: { [host]: { auth } } });
  t.deepEqual(JSON.parse(content('docker', 'daemon.json', `http://${host}`)), {
    'registry-mirrors': [`http://${host}`],
    'insecure-registries': [host],
  });
});

const withoutRegistry = (form: (typeof clientForms)[number], kind: (typeof clientKinds)[number] = 'docker') =>
  clientText(kind, { ...hub, registries: [], form, fallback: false, credentials: true });

test('without a registry of an upstream, images can only have the host of this server in their names', (t) => {
  t.is(withoutRegistry('prefix').steps[0]!.lines, 'docker login hub.example.com --username api');
  t.throws(() => withoutRegistry('mirror'), {
    name: 'Invalid',
    message: 'docker: This server mirrors no registry for this account. Use the form "prefix".',
  });
  t.is(withoutRegistry('mirror', 'dotnet').files.length, 1, 'packages need none');
});

test('docker gets a mirror only if docker.io is mirrored, because it asks mirrors for Docker Hub only', async (t) => {
  const { code, stdout, stderr } = await client('docker', '--registries', 'ghcr.io,quay.io');
  t.is(code, 0, stderr);
  t.notRegex(stdout, /registry-mirrors/);
  t.regex(stdout, /docker uses a mirror for Docker Hub only, and docker\.io is not among the registries\./);
  t.regex(stdout, /docker login hub\.example\.com --username api/);
  t.regex((await client('docker', '--registries', 'ghcr.io, docker.io ')).stdout, /registry-mirrors/);
  t.notRegex((await client('docker', '--registries', 'ghcr.io', '--form', 'prefix')).stdout, /Docker Hub/);
});

/** The address of the feed, and the host of the registry, in configurations. */
const indexOf = async (environment: Record<string, string>, ...words: string[]) =>
  /value="(.*?)\/v3\/index\.json"/.exec((await entrepot(environment, 'client', 'dotnet', ...words)).stdout)?.[1];
const hostOf = async (environment: Record<string, string>, ...words: string[]) =>
  /login (\S+)/.exec((await entrepot(environment, 'client', 'podman', ...words)).stdout)?.[1];

test('the feed and the registry may have addresses of their own', async (t) => {
  const settings = {
    ENTREPOT_BASE_URL: 'https://hub.test//',
    ENTREPOT_FEED_URL: 'https://feed.test/',
    ENTREPOT_REGISTRY_URL: 'https://images.test//',
    ENTREPOT_DATA: await folderUntilEnd(t),
  };
  const { ENTREPOT_FEED_URL: _, ENTREPOT_REGISTRY_URL: __, ...base } = settings;
  t.deepEqual([await indexOf(settings), await hostOf(settings)], ['https://feed.test', 'images.test']);
  t.deepEqual([await indexOf(base), await hostOf(base)], ['https://hub.test', 'hub.test']);
  const given = ['--url', 'HTTPS://other.test//'];
  t.deepEqual(
    [await indexOf(settings, ...given), await hostOf(settings, ...given)],
    ['HTTPS://other.test', 'other.test'],
  );
  for (const wrong of ['xhttps://hub.test', 'hub.test', 'https://'])
    t.regex(
      (await entrepot(settings, 'client', 'dotnet', '--url', wrong)).stderr,
      /Name the address of this server/,
      wrong,
    );
});

test('a registry whose name has a port is left out where its name would be a part of the path', async (t) => {
  const registries = ['docker.io', 'registry.corp:5000'];
  const of = (kind: (typeof clientKinds)[number], form: (typeof clientForms)[number] = 'mirror') =>
    clientText(kind, { ...hub, registries, form, fallback: false, credentials: true });
  for (const kind of ['podman', 'crio', 'talos', 'openshift', 'buildkit'] as const) {
    const { files, steps } = of(kind);
    const text = files.map(({ content }) => content).join('');
    t.regex(text, /docker\.io/, kind);
    t.notRegex(text, /5000/, kind);
    t.regex(steps.at(-1)!.text, /^Left out: registry\.corp:5000\. /, kind);
    t.notRegex(JSON.stringify(of(kind, 'prefix')), /5000/, kind);
  }
  // These name the registry in `?ns=`.
  for (const kind of ['containerd', 'k3s'] as const) {
    t.regex(JSON.stringify(of(kind)), /registry\.corp:5000/, kind);
    t.notRegex(JSON.stringify(of(kind)), /Left out/, kind);
  }
  t.notRegex(JSON.stringify(of('docker')), /5000/);
  const file = join(await folderUntilEnd(t), 'settings.yaml');
  await writeFile(file, 'upstreams:\n  - { name: "registry.corp:5000", kind: registry }\n');
  const environment = { ENTREPOT_CONFIG: file, ENTREPOT_DATA: await folderUntilEnd(t), ENTREPOT_BOOTSTRAP_TOKEN: '' };
  t.is((await entrepot(environment, 'account', 'create', 'other')).code, 0);
  const check = (...words: string[]) => entrepot(environment, 'client', 'check', ...words, '--wait', '100ms');
  t.regex((await check('podman', '--form', 'prefix', ...url)).stderr, /name a registry without a port/);
  t.regex((await check('containerd', ...url)).stdout, /crictl pull registry\.corp:5000\/entrepot-check\//);
  t.regex(
    (await check('docker', '--url', 'hub.example.com:8080')).stderr,
    /^entrepot: Name the address of this server/,
  );
});

test('nuget.config has sources of advisories over HTTPS only, and no header leads to another registry', (t) => {
  const base = { registries: ['docker.io'], form: 'mirror', fallback: false, credentials: true } as const;
  const of = (kind: 'dotnet' | 'containerd', url: string, fallback = false) =>
    clientText(kind, { ...base, feed: url, registry: url, fallback }).files[0]!.content;
  t.regex(of('dotnet', 'https://hub'), /<auditSources>/);
  t.notRegex(of('dotnet', 'https://hub'), /allowInsecureConnections/);
  t.notRegex(of('dotnet', 'http://hub'), /auditSources/);
  t.regex(of('dotnet', 'http://hub'), /allowInsecureConnections="true"/);
  // The table [header] belongs to `server`, which is the other registry if none is named.
  t.regex(of('containerd', 'https://hub'), /^server = "https:\/\/hub"\n\n\[header\]/);
  t.notRegex(of('containerd', 'https://hub', true), /^\[header\]|^server/m);
  t.regex(of('containerd', 'https://hub', true), /\[host\."https:\/\/hub"\.header\]\n\s+Authorization/);
});

/** Runs a command whose standard input is a terminal on which `typed` is typed. */
async function atTerminal(t: ExecutionContext, typed: string[], ...words: string[]) {
  const heard = { stdout: '', stderr: '', modes: [] as boolean[] };
  const stdin = {
    isTTY: true,
    setRawMode: (isRaw: boolean) => heard.modes.push(isRaw),
    async *[Symbol.asyncIterator]() {
      yield* typed;
      t.fail('the line has ended');
    },
  };
  const code = await run(
    words,
    {},
    {
      stdin,
      stdout: { write: (text: string) => (heard.stdout += text) },
      stderr: { write: (text: string) => (heard.stderr += text) },
      once: () => {},
      on: () => {},
      exit: () => {},
    },
  );
  return { code, ...heard };
}

test('a terminal is asked for the token, and does not show it', async (t) => {
  const folder = await folderUntilEnd(t);
  const words = ['client', 'talos', '--write', folder, '--token-file', '-', ...url];
  const { code, stdout, stderr, modes } = await atTerminal(t, ['ent_0x\u007f12', '345\r'], ...words);
  t.is(code, 0, stderr);
  t.deepEqual(modes, [true, false]);
  t.is(stderr, 'Token (it is not shown): \n');
  t.notRegex(stdout, /ent_/);
  t.regex(await readFile(join(folder, 'entrepot-registries.yaml'), 'utf8'), /password: "ent_012345"/);
  const stopped = await atTerminal(t, ['ent_0', '\u0003'], ...words);
  t.is(stopped.code, 1);
  t.deepEqual(stopped.modes, [true, false]);
});

const letters = (option: string, text: string) => `${option}: expected letters, digits and . _ - / : @ + in "${text}".`;

for (const dialect of dialects) {
  test(`${dialect}: a check prints the line, waits for its request, and says what came`, async (t) => {
    const data = await folderUntilEnd(t);
    const database = await temporaryDatabase(t, dialect);
    const upstreams = [{ name: 'docker.io', kind: 'registry', default: true, mode: 'offline' }];
    const server = await startTestServer(t, { data, database: { url: database }, upstreams });
    const environment = {
      ENTREPOT_DATA: data,
      ENTREPOT_DATABASE_URL: database,
      ENTREPOT_BASE_URL: server.url,
      ENTREPOT_UPSTREAMS: JSON.stringify(upstreams),
    };
    const heard = { stdout: '', stderr: '' };
    const check = (...words: string[]) => {
      heard.stdout = '';
      heard.stderr = '';
      return run(['client', 'check', ...words], environment, {
        stdout: { write: (text: string) => (heard.stdout += text) },
        stderr: { write: (text: string) => (heard.stderr += text) },
        once: () => {},
        on: () => {},
        exit: () => {},
      });
    };
    const nameFrom = async () => {
      await until(() => /entrepot-check/.test(heard.stdout));
      return /(?:[\w.:]+\/)+entrepot-check\/[0-9a-f]{32}/.exec(heard.stdout)![0];
    };
    const used = check('podman', '--form', 'prefix');
    const name = await nameFrom();
    const { host } = new URL(server.url);
    t.true(name.startsWith(`${host}/docker.io/`), name);
    await server.fetch(`/v2/${name.slice(host.length + 1)}/manifests/latest`, {
      headers: { 'user-agent': 'podman/5' },
    });
    t.is(await used, 0, heard.stderr);
    t.regex(
      heard.stdout,
      /404 127\.0\.0\.1:\d+\/v2\/docker\.io\/\S+ with the token "first token" of the account default, by podman\/5 at /,
    );
    t.regex(heard.stdout, /The client uses this server/);

    const refused = check('docker');
    const asked = `/v2/${(await nameFrom()).slice('docker.io/'.length)}/manifests/latest?ns=docker.io`;
    for (let count = 0; count < 2; count += 1)
      await server.fetch(asked, { token: 'ent_x', headers: { 'user-agent': 'docker/1' } });
    t.is(await refused, 1);
    t.regex(heard.stdout, /401 .* with a wrong credential, by docker\/1 at \S+, 2 times\n/);
    t.regex(heard.stderr, /was refused\. Its credential is wrong/);

    t.is(await check('containerd', '--wait', '1s'), 1);
    t.regex(heard.stderr, /No request for the name has come/);
    t.is(await check('containerd', '--wait', '1d'), 1);
    t.regex(heard.stderr, /--wait: expected a time such as 5m, at most 15m/);
    t.is(await check('podman', '--denied', 'docker.io/team/app:v1'), 1);
    t.regex(heard.stderr, /No policy refuses docker\.io\/team\/app v1/);
    t.is(await check('dotnet', '--wait', '15m', '--denied', 'Lib@1.0.0'), 1);
    t.regex(heard.stderr, /No policy refuses Lib 1\.0\.0/);
    const form = '--denied: expected ID@VERSION, or IMAGE:TAG.';
    for (const [option, value, message] of [
      ...['app', 'a@', '@1', 'a@b@c', ':1', 'team/app:', 'host:5000/app', 'a@1/2'].map((each) => [
        '--denied',
        each,
        form,
      ]),
      ['--denied', 'a b:1', letters('--denied', 'a b')],
      ['--denied', 'app:a b', letters('--denied', 'a b')],
      ['--denied', `${'x'.repeat(256)}:1`, letters('--denied', 'x'.repeat(256))],
      ['--registry', 'a b', letters('--registry', 'a b')],
    ] as const) {
      t.is(await check('podman', option, value), 1);
      t.is(heard.stderr, `entrepot: ${message}\n`, value);
    }
  });
}
