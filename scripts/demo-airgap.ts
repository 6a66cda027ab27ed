import { createHash, randomBytes } from 'node:crypto';
import { cp, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { pack } from 'tar-stream';
import { makeNupkg } from '../test/support/builders/nupkg.ts';
import { temporaryFolder } from '../test/support/clients/clients.ts';
import { containerClient } from '../test/support/clients/container-clients.ts';
import { dotnet, type Dotnet } from '../test/support/clients/dotnet.ts';
import { TestFeed } from '../test/support/feed.ts';
import { entrepot } from '../test/support/in-process.ts';
import { startEntrepot, type Entrepot } from '../test/support/processes/entrepot.ts';
import { digestOf, ociIndex, ociManifest, TestRepository, type Descriptor } from '../test/support/registry.ts';
import { startTestServer, type TestServer } from '../test/support/server.ts';
import { findCommand } from './packages.ts';

// `npm run demo:airgap`: a site with a network and one without. The first makes a bundle of what a solution and a list of images need;
// the second imports it, and real clients restore and pull from it. Then something changes, and the second bundle has only that. It
// contacts no other host. Needs the .NET SDK and skopeo. Prints sizes and times, and fails if something did not work.

const missing = ['dotnet', 'skopeo'].filter((each) => findCommand(each) === undefined);
if (missing.length > 0) {
  process.stderr.write(
    `This demonstration needs ${missing.join(' and ')}, which this machine lacks: install them, then run it again.\n`,
  );
  process.exit(1);
}

/** Each area has a package that a project names, and four that this one needs. */
const areas = 24;
const projects = 3;
/** Layers of an image: those below the last one stay the same with each release. */
const layerSizes = [12, 4, 1];
const imageName = 'library/app';
/** Of some packages, in the second bundle. */
const newVersion = '1.1.0';

const folder = await temporaryFolder();
process.env.NODE_COMPILE_CACHE = join(folder.path, 'compile-cache');
const at = (name: string): string => join(folder.path, name);
const ends: (() => unknown)[] = [];
let interrupted = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => (interrupted = true));
const began = performance.now();
try {
  await demonstrate();
  say(`\nAll of it worked, in ${seconds(began)}.`);
} finally {
  for (const end of ends.toReversed()) await end();
  await folder.remove();
}

interface Site {
  /** Runs a command of this site; resolves to what it prints. */
  run(...words: string[]): Promise<string>;
  serve(): Promise<Entrepot>;
}

function site(name: string, settings: Record<string, string>): Site {
  return {
    run: async (...words) => {
      const data = join(at(name), 'data');
      const { code, stdout, stderr } = await entrepot({ ...settings, ENTREPOT_DATA: data }, ...words);
      if (code !== 0) throw new Error(`entrepot ${words.join(' ')} ended with ${code}: ${stdout}${stderr}`);
      return stdout;
    },
    serve: () => {
      const token = randomBytes(32).toString('hex');
      const server = startEntrepot(at(name), { ...settings, ENTREPOT_BOOTSTRAP_TOKEN: token });
      ends.push(async () => (await server.catch(() => undefined))?.stop());
      return server;
    },
  };
}

async function demonstrate(): Promise<void> {
  for (const name of ['near', 'far', 'stick', 'upstream']) await mkdir(at(name));
  let upstream = await startUpstream();
  const port = Number(new URL(upstream.url).port);
  const common = { allowPrivateNetwork: true, freshFor: '1s' };
  const feed = { name: 'packages.demo', kind: 'nuget' };
  const registry = { name: 'docker.io', kind: 'registry', default: true };
  const near = site('near', {
    ENTREPOT_UPSTREAMS: JSON.stringify([
      { ...feed, ...common, url: `${upstream.url}/v3/index.json` },
      { ...registry, ...common, url: upstream.url },
    ]),
  });
  // It has upstreams of the same names, and never asks them.
  const far = site('far', {
    ENTREPOT_OFFLINE: 'true',
    ENTREPOT_UPSTREAMS: JSON.stringify([
      { ...feed, url: 'https://packages.invalid/v3/index.json' },
      { ...registry, url: 'https://images.invalid' },
    ]),
  });
  const [nearServer, server] = await step('two servers start, and trust the keys of each other', async () => {
    const started = await Promise.all([near.serve(), far.serve()]);
    await near.run('bundle', 'keygen', '--to', at('near.key'));
    await far.run('bundle', 'keygen', '--to', at('far.key'));
    await far.run('bundle', 'trust', 'add', at('near.key.pub'), '--role', 'bundles');
    await near.run('bundle', 'trust', 'add', at('far.key.pub'), '--role', 'receipts');
    return [started, 'there is no way between them but a folder'];
  });
  const image = await step('the upstream offers a solution and an image', async () => {
    const { length } = await offerPackages(upstream, packagesOf());
    await advise(upstream, 'Demo.Area3.Part2', 2, 'GHSA-demo-0001');
    const first = await release(upstream);
    return [first, `${length} packages; ${first.platforms} platforms, ${mebibytes(first.bytes)}, signed`];
  });
  const developer = await restorer(nearServer, at('developer'));
  const { file, lockFiles } = await writeSolution(developer.folder);
  await step('near: a developer restores, which writes lock files', async () => {
    await developer.run('restore', file, '--use-lock-file');
    return [undefined, `${lockFiles.length} projects`];
  });
  const images = at('images.txt');
  await writeFile(images, 'app:1\n');
  const first = await bundle(near, 'first', [...lockFiles, images]);
  await upstream.close();
  say('the upstream has stopped\n');

  const warned = ['Demo.Area3.Part2'];
  await arrive(far, server, { name: 'first', lockFiles, image, warned, unwarned: 'Demo.Area9.Part4' });
  await step('far: bundle receipt', async () => {
    await far.run('bundle', 'receipt', '--to', at('stick/receipt'), '--key', at('far.key'));
    return [undefined, mebibytes((await stat(at('stick/receipt'))).size)];
  });

  say('');
  upstream = await startUpstream(port);
  const next = await step('the upstream has news, and the lock files change', async () => {
    const offered = await offerPackages(
      upstream,
      packagesOf(newVersion).filter(({ version }) => version === newVersion),
    );
    for (const each of lockFiles) await changeLockFile(each, offered);
    await advise(upstream, 'Demo.Area9.Part4', 3, 'GHSA-demo-0002');
    const news = await release(upstream, image.base);
    return [news, `${offered.length} new versions, an advisory, another image with the tag`];
  });
  const second = await bundle(near, 'second', [...lockFiles, images], '--against', at('stick/receipt'));
  await upstream.close();
  say(
    `the upstream has stopped; the second bundle has ${((100 * second) / first).toFixed(1)} % of the size of the first one\n`,
  );
  if (second * 4 > first) throw new Error('the second bundle is not much smaller');
  await arrive(far, server, {
    name: 'second',
    lockFiles,
    image: next,
    warned: [...warned, 'Demo.Area9.Part4'],
    version: newVersion,
  });
}

/** Makes a bundle and carries it; resolves to its bytes. */
async function bundle(near: Site, name: string, files: readonly string[], ...more: string[]): Promise<number> {
  const key = ['--key', at('near.key'), '--segment', '24MiB'];
  await step('near: bundle create', async () => [
    undefined,
    lastLine(await near.run('bundle', 'create', ...files, '--to', at(`made-${name}`), ...key, ...more)),
  ]);
  return step('the bundle is carried', async () => {
    await cp(at(`made-${name}`), at(`stick/${name}`), { recursive: true });
    const segments = await readdir(at(`stick/${name}`));
    const sizes = await Promise.all(segments.map(async (each) => (await stat(at(`stick/${name}/${each}`))).size));
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    return [bytes, `${mebibytes(bytes)}, segments: ${segments.length}`];
  });
}

interface Arrival {
  name: string;
  lockFiles: readonly string[];
  image: Release;
  /** The packages of which the restore warns. */
  warned: readonly string[];
  unwarned?: string;
  version?: string;
}

/** Imports a bundle, and lets real clients with empty caches restore and pull. */
async function arrive(far: Site, server: Entrepot, { name, lockFiles, image, warned, unwarned, version }: Arrival) {
  const stick = at(`stick/${name}`);
  await step('far: bundle verify --for the same files', async () => [
    undefined,
    lastLine(await far.run('bundle', 'verify', stick, '--for', ...lockFiles, at('images.txt'))),
  ]);
  await step('far: bundle import', async () => [undefined, lastLine(await far.run('bundle', 'import', stick))]);
  await step('far: dotnet restore --locked-mode', async () => {
    const consumer = await restorer(server, at(`consumer-${name}`));
    const solution = await writeSolution(consumer.folder, version);
    for (const [index, each] of lockFiles.entries()) await cp(each, solution.lockFiles[index]!);
    const printed = await consumer.run('restore', solution.file, '--locked-mode');
    if (printed.includes('NU1900')) throw new Error(`the vulnerability data was not there: ${printed}`);
    for (const id of warned) {
      if (!new RegExp(`warning NU190[34]: .*'${id}' 1\\.0\\.0`).test(printed))
        throw new Error(`no warning of ${id}: ${printed}`);
    }
    if (unwarned !== undefined && printed.includes(unwarned)) throw new Error(`a warning of ${unwarned}`);
    const packages = await readdir(join(consumer.folder, 'packages'));
    return [undefined, `${packages.length} packages; it warns of ${warned.join(' and ')}`];
  });
  await step('far: skopeo copy --all, and the signature', async () => {
    const skopeo = await containerClient('skopeo', at(`skopeo-${name}`), [server.host]);
    await skopeo.run('login', '-u', server.username, '-p', server.password, server.host);
    const target = at(`pulled-${name}`);
    await skopeo.run('copy', '--all', '--preserve-digests', `docker://${server.host}/app:1`, `dir:${target}`);
    if (digestOf(await readFile(join(target, 'manifest.json'))) !== image.digest) throw new Error('another image');
    const answer = await fetch(`${server.url}/v2/app/referrers/${image.digest}`, {
      headers: { authorization: `Bearer ${server.token}` },
    });
    const { manifests } = (await answer.json()) as { manifests: Descriptor[] };
    if (manifests[0]?.digest !== image.signature) throw new Error('no signature');
    const reference = `docker://${server.host}/app@${image.signature}`;
    await skopeo.run('copy', '--preserve-digests', reference, `dir:${target}-signature`);
    return [undefined, `${image.platforms} platforms, ${image.digest.slice(0, 19)}…`];
  });
}

// The upstream: a package feed and a registry, which anybody may read.

async function startUpstream(port = 0): Promise<TestServer> {
  return startTestServer(
    { teardown: (end) => void ends.push(end) },
    { data: at('upstream'), anonymousRead: 'all', server: { port } },
  );
}

interface MadePackage {
  id: string;
  version: string;
  dependencies: { id: string; version: string }[];
  size: number;
}

/** All packages of the solution. With `version`, the main packages of six areas have it. */
function packagesOf(version = '1.0.0'): MadePackage[] {
  return Array.from({ length: areas }, (_, area) => {
    const parts = Array.from({ length: 4 }, (_none, part) => `Demo.Area${area}.Part${part + 1}`);
    const made = (id: string, order: number) => ({ id, size: 30_000 + ((area * 5 + order) % 7) * 40_000 });
    const dependencies = parts.map((id) => ({ id, version: '1.0.0' }));
    return [
      { ...made(`Demo.Area${area}`, 0), version: area < 6 ? version : '1.0.0', dependencies },
      ...parts.map((id, order) => ({ ...made(id, order + 1), version: '1.0.0', dependencies: [] })),
    ];
  }).flat();
}

interface OfferedPackage extends MadePackage {
  /** As lock files have it. */
  contentHash: string;
}

async function offerPackages(upstream: TestServer, packages: readonly MadePackage[]): Promise<OfferedPackage[]> {
  const feed = new TestFeed(upstream);
  return Promise.all(
    packages.map(async (each) => {
      const { id, version, dependencies, size } = each;
      const files = { 'lib/netstandard2.0/_._': '', 'content/data.bin': randomBytes(size) };
      const nupkg = await makeNupkg({ id, version, dependencies, files, payloadBytes: 0 });
      const answer = await feed.push(nupkg);
      if (answer.status !== 201) throw new Error(`${id} was refused: ${await answer.text()}`);
      return { ...each, contentHash: createHash('sha512').update(nupkg).digest('base64') };
    }),
  );
}

/** Gives a lock file other versions, as a developer's restore does. */
async function changeLockFile(file: string, packages: readonly OfferedPackage[]): Promise<void> {
  const lock = JSON.parse(await readFile(file, 'utf8')) as { dependencies: Record<string, Record<string, object>> };
  for (const items of Object.values(lock.dependencies)) {
    for (const { id, version, contentHash } of packages) {
      if (items[id]) items[id] = { ...items[id], requested: `[${version}, )`, resolved: version, contentHash };
    }
  }
  await writeFile(file, JSON.stringify(lock, undefined, 2));
}

async function advise(upstream: TestServer, id: string, severity: number, name: string): Promise<void> {
  const body = { package: id, versions: '[1.0.0]', severity, url: `https://advisories.demo/${name}` };
  const answer = await upstream.fetch('/v1/advisories', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`the advisory was refused: ${await answer.text()}`);
}

interface Release {
  digest: string;
  signature: string;
  platforms: number;
  bytes: number;
  /** Layers that the next release has, too, by platform. */
  base: Map<string, Descriptor[]>;
}

/** Pushes a multi-platform image with a signature as app:1, on layers of an earlier one. */
async function release(upstream: TestServer, earlier?: Release['base']): Promise<Release> {
  const repository = new TestRepository(upstream, imageName);
  const manifests: Descriptor[] = [];
  const base: Release['base'] = new Map();
  let bytes = 0;
  for (const architecture of ['amd64', 'arm64']) {
    const layers: Descriptor[] = [];
    for (const [index, size] of layerSizes.entries()) {
      const known = index < layerSizes.length - 1 ? earlier?.get(architecture)?.[index] : undefined;
      layers.push(known ?? (await repository.blob(await layerWith(size), 'application/vnd.oci.image.layer.v1.tar')));
    }
    base.set(architecture, layers);
    bytes += layers.reduce((sum, { size }) => sum + size, 0);
    const rootfs = { type: 'layers', diff_ids: layers.map(({ digest }) => digest) };
    const config = await repository.blob(
      JSON.stringify({ architecture, os: 'linux', config: {}, rootfs }),
      'application/vnd.oci.image.config.v1+json',
    );
    const text = JSON.stringify({ schemaVersion: 2, mediaType: ociManifest, config, layers });
    manifests.push({
      ...(await put(repository, text, ociManifest)),
      platform: { os: 'linux', architecture },
    } as Descriptor);
  }
  const index = await put(
    repository,
    JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests }),
    ociIndex,
    '1',
  );
  // As `cosign sign` makes it.
  const artifactType = 'application/vnd.dev.sigstore.bundle.v0.3+json';
  const statement = JSON.stringify({ mediaType: artifactType, dsseEnvelope: {}, for: index.digest });
  const signature = await put(
    repository,
    JSON.stringify({
      schemaVersion: 2,
      mediaType: ociManifest,
      artifactType,
      config: await repository.blob('{}', 'application/vnd.oci.empty.v1+json'),
      layers: [await repository.blob(statement, artifactType)],
      subject: index,
    }),
    ociManifest,
  );
  return { digest: index.digest, signature: signature.digest, platforms: manifests.length, bytes, base };
}

async function put(repository: TestRepository, text: string, mediaType: string, tag?: string): Promise<Descriptor> {
  const digest = digestOf(text);
  const answer = await repository.put(tag ?? digest, text, mediaType);
  if (answer.status !== 201) throw new Error(`the manifest was refused: ${await answer.text()}`);
  return { mediaType, digest, size: Buffer.byteLength(text) };
}

function layerWith(size: number): Promise<Buffer> {
  const tar = pack();
  tar.entry({ name: 'data' }, randomBytes(size * 2 ** 20));
  tar.finalize();
  return buffer(tar);
}

// The solution.

interface Solution {
  file: string;
  lockFiles: string[];
}

async function writeSolution(home: string, version?: string): Promise<Solution> {
  const mains = packagesOf(version).filter(({ dependencies }) => dependencies.length > 0);
  const lockFiles: string[] = [];
  const paths: string[] = [];
  for (let number = 1; number <= projects; number += 1) {
    const items = mains
      .filter((_, index) => index % projects === number - 1)
      .map(({ id, version: chosen }) => `<PackageReference Include="${id}" Version="${chosen}" />`);
    const path = `Service${number}/Service${number}.csproj`;
    await mkdir(join(home, `Service${number}`));
    await writeFile(
      join(home, path),
      `<Project Sdk="Microsoft.NET.Sdk">
<PropertyGroup><TargetFramework>net10.0</TargetFramework></PropertyGroup>
<ItemGroup>${items.join('')}</ItemGroup>
</Project>
`,
    );
    paths.push(path);
    lockFiles.push(join(home, `Service${number}/packages.lock.json`));
  }
  const file = join(home, 'Demo.slnx');
  await writeFile(file, `<Solution>${paths.map((path) => `<Project Path="${path}" />`).join('')}</Solution>\n`);
  return { file, lockFiles };
}

/** A user of a server with empty caches. */
function restorer({ url, username, password }: Entrepot, home: string): Promise<Dotnet> {
  return dotnet(home, { url: `${url}/v3/index.json`, username, password });
}

// What is printed.

/** Runs a step, and prints its time and what it says. */
async function step<T>(what: string, work: () => Promise<[result: T, note: string]>): Promise<T> {
  if (interrupted) throw new Error('interrupted');
  const start = performance.now();
  const [result, note] = await work();
  say(`${what.padEnd(54)} ${seconds(start).padStart(7)}  ${note}`);
  return result;
}

function lastLine(printed: string): string {
  const line = printed.trim().split('\n').at(-1)!;
  // Its folder and digest are different in each run.
  return line.replaceAll(`${folder.path}/`, '').replaceAll(/(sha256:[0-9a-f]{8})[0-9a-f]+/g, '$1…');
}

function mebibytes(bytes: number): string {
  return bytes < 100_000 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}

function seconds(since: number): string {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`;
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
