import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { makePdb, makeSnupkg } from '../support/builders/nupkg.ts';
import { startAirGap, trustedKey, type AirGap } from '../support/bundles.ts';
import type { Dialect } from '../../src/database/database.ts';
import { TestFeed } from '../support/feed.ts';
import { rowsOf } from '../support/inside.ts';
import { ociIndex, TestRepository, type Descriptor } from '../support/registry.ts';
import type { TestServer } from '../support/server.ts';

// Bundles with what accounts host.

/** An image as an index lists it. */
function descriptorOf({ mediaType, digest, size }: Descriptor): Descriptor {
  return { mediaType, digest, size };
}

/** The near site hosts a package with symbols, and an image for two platforms with a signature; resolves to what is there. */
export async function hostContent(near: TestServer) {
  const feed = new TestFeed(near);
  const pdb = makePdb(randomBytes(16), 5000);
  await feed.publish({ id: 'Contoso.Lib', version: '1.0.0' }, { id: 'Contoso.Lib', version: '2.0.0' }, { id: 'Other' });
  const symbols = await makeSnupkg({
    id: 'Contoso.Lib',
    version: '2.0.0',
    files: { 'lib/net8.0/Contoso.Lib.pdb': pdb },
  });
  if ((await feed.push(symbols, '/symbols')).status !== 201) throw new Error('the symbols were refused');
  const deprecation = { reasons: ['Legacy'], message: 'Use "2.0.0".' };
  for (const [path, method, body] of [
    ['/v1/packages/Contoso.Lib/1.0.0/deprecation', 'PUT', JSON.stringify(deprecation)],
    ['/v3/push/Contoso.Lib/1.0.0', 'DELETE', undefined],
  ] as const) {
    const headers = { 'content-type': 'application/json', 'x-nuget-apikey': near.token };
    const answer = await near.fetch(path, { method, headers, ...(body && { body }) });
    if (answer.status >= 300) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  }
  const repository = new TestRepository(near, 'team/app');
  const images = [await repository.image('amd'), await repository.image('arm')];
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests: images.map(descriptorOf) };
  const digest = (await repository.put('1.0', index, ociIndex)).headers.get('docker-content-digest')!;
  const subject = { mediaType: ociIndex, digest, size: Buffer.byteLength(JSON.stringify(index)) };
  const signature = await repository.image('sig', { subject, artifactType: 'application/vnd.test.signature' });
  return { feed, repository, images, digest, signature };
}

export const isListed = `SELECT v.listed FROM package_versions v JOIN packages p ON p.id = v.package_row
  WHERE p.package_key = 'contoso.lib' AND v.version = '1.0.0'`;

/** Makes a bundle on the near site of what its account `default` hosts. */
export function create({ near, path }: AirGap, name: string, key: string, ...words: string[]): Promise<string> {
  return near.ok('bundle', 'create', '--hosted', 'default', '--to', path(name), '--key', key, ...words);
}

/** The versions and tags of a site's account `default`. */
export async function shownBy(t: ExecutionContext, server: TestServer) {
  const versions = await server.fetch('/v3/package/contoso.lib/index.json');
  const tags = await server.fetch('/v2/team/app/tags/list');
  t.log(versions.status, tags.status);
  return {
    versions: versions.status === 200 ? ((await versions.json()) as { versions: string[] }).versions : [],
    tags: tags.status === 200 ? ((await tags.json()) as { tags: string[] }).tags : [],
  };
}

/** What comes into an account, on one database. */
export function hostedOn(dialect: Dialect): void {
  test(`packages and images of an account come into the account of the same name (${dialect})`, async (t) => {
    const gap = await startAirGap(t, {}, dialect);
    const { near, far, path } = gap;
    const key = await trustedKey(gap);
    const source = await near.serve();
    const { digest, signature } = await hostContent(source);
    const names = ['--hosted', 'default/contoso.*', '--hosted', 'default/team/*'];
    const made = await near.ok('bundle', 'create', ...names, '--to', path('bundle'), '--key', key);
    t.regex(made, /packages: 2 /);
    const listed = await near.ok('bundle', 'inspect', path('bundle'), '--list');
    t.regex(listed, /default\tnupkg\tcontoso\.lib\t2\.0\.0/);
    t.notRegex(listed, /other/);
    const server = await far.serve();
    t.deepEqual(await shownBy(t, server), { versions: [], tags: [] });
    t.regex(await far.ok('bundle', 'import', path('bundle')), /packages: 2 [^]*imported/);

    t.deepEqual(await shownBy(t, server), { versions: ['1.0.0', '2.0.0'], tags: ['1.0', 'amd', 'arm', 'sig'] });
    const nupkg = '/v3/package/contoso.lib/2.0.0/contoso.lib.2.0.0.nupkg';
    const bytes = await Promise.all([source, server].map(async (each) => (await each.fetch(nupkg)).arrayBuffer()));
    t.deepEqual(Buffer.from(bytes[1]!), Buffer.from(bytes[0]!));
    const registrations = await Promise.all(
      [source, server].map(async (each) => {
        const { items } = await new TestFeed(each).json('/registration-gz-semver2/contoso.lib/index.json');
        const text = JSON.stringify(items[0].items.map(({ catalogEntry }: any) => catalogEntry));
        return JSON.parse(text.replaceAll(each.url, ''));
      }),
    );
    t.deepEqual(registrations[1], registrations[0]);
    t.deepEqual(
      registrations[1].map(({ listed: isListed, deprecation }: any) => [isListed, deprecation?.message]),
      [
        [false, 'Use "2.0.0".'],
        [true, undefined],
      ],
    );
    const [near1, far1] = await Promise.all(
      [source, server].map((each) => rowsOf(each, 'SELECT file_name, signature, path FROM package_symbols')),
    );
    t.is(far1!.length, 1);
    t.deepEqual(far1, near1);
    const [hash] = await rowsOf<{ sha512: string }>(
      source,
      "SELECT sha512 FROM package_versions WHERE version = '2.0.0'",
    );
    const hashes = await rowsOf(server, `SELECT version FROM package_versions WHERE sha512 = '${hash!.sha512}'`);
    t.deepEqual(hashes, [{ version: '2.0.0' }]);

    const manifest = await server.fetch('/v2/team/app/manifests/1.0');
    t.is(manifest.headers.get('docker-content-digest'), digest);
    for (const child of ((await manifest.json()) as { manifests: { digest: string }[] }).manifests) {
      const image = await server.fetch(`/v2/team/app/manifests/${child.digest}`);
      t.is(image.status, 200);
      const { config, layers } = (await image.json()) as { config: { digest: string }; layers: { digest: string }[] };
      for (const each of [config, ...layers])
        t.is((await server.fetch(`/v2/team/app/blobs/${each.digest}`)).status, 200);
    }
    const referrers = (await (await server.fetch(`/v2/team/app/referrers/${digest}`)).json()) as any;
    t.deepEqual(
      referrers.manifests.map((each: any) => each.digest),
      [signature.digest],
    );

    const events = await rowsOf(server, "SELECT id FROM events WHERE type IN ('package.published', 'image.pushed')");
    t.true(events.length >= 6);
    t.regex(await far.ok('bundle', 'import', path('bundle')), /0 new entries, 0 B stored; it was imported before/);
    t.is(
      (await rowsOf(server, "SELECT id FROM events WHERE type IN ('package.published', 'image.pushed')")).length,
      events.length,
    );
    t.regex(await far.ok('doctor'), /./);
  });
}
