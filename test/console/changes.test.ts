import test from 'ava';
import type { Row } from '../../src/database/database.ts';
import { TestFeed } from '../support/feed.ts';
import { dangers, hostile } from '../support/hostile.ts';
import { createToken, databaseOf, tokenOf } from '../support/inside.ts';
import { ociIndex, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

const fields = (name: string, values: readonly string[]) => values.map((value): [string, string] => [name, value]);
const confirmed: [string, string] = ['confirmed', 'yes'];

async function versionsOf(server: TestServer, id: string): Promise<string[]> {
  const response = await server.fetch(`/v1/packages/${id}`);
  if (response.status === 404) return [];
  return ((await response.json()) as any).versions.map(({ version }: any) => version);
}

async function tagsOf(server: TestServer, name: string): Promise<string[]> {
  const response = await server.fetch(`/v1/containers/${encodeURIComponent(name)}/tags`);
  return ((await response.json()) as any).items.map(({ name: tag }: any) => tag);
}

test('of several versions and tags, those that are kept stay, and the page says which and why', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const version of ['1.0.0', '2.0.0', '3.0.0']) await feed.publish({ id: 'Contoso.Core', version });
  const { value } = await createToken(server, ['read', 'delete'], 'default');
  const visitor = await Visitor.signedIn(server, value);
  const kept = await server.fetch('/v1/account/permanence', {
    method: 'PUT',
    body: JSON.stringify({
      freeze: { images: [] },
      keep: { packages: ['Contoso.Core@2.*'], images: ['team/app:v1'] },
    }),
    headers: { 'content-type': 'application/json' },
  });
  t.is(kept.status, 200, await kept.text());
  const path = '/console/packages/Contoso.Core';
  const sent = await visitor.send(`${path}/delete`, [...fields('version', ['1.0.0', '2.0.0', '3.0.0']), confirmed]);
  t.is(sent.status, 409);
  t.regex(await sent.text(), /Done: 2 of 3\.[^]*<strong>2\.0\.0<\/strong>/);
  t.deepEqual(await versionsOf(server, 'Contoso.Core'), ['2.0.0']);
  const repository = new TestRepository(server, 'team/app');
  for (const tag of ['v1', 'v2']) await repository.image(tag);
  const deleted = await visitor.send('/console/images/team%2Fapp/delete', [...fields('tag', ['v1', 'v2']), confirmed]);
  t.is(deleted.status, 409);
  t.regex(await deleted.text(), /Done: 1 of 2\.[^]*<strong>v1<\/strong>/);
  t.deepEqual(await tagsOf(server, 'team/app'), ['v1']);
});

test('a range with more than 200 versions is refused beside its field, and changes none of them', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Contoso.Many' });
  const database = databaseOf(server);
  const [{ id: _id, ...row }] = (await database.select('SELECT * FROM package_versions')) as [Row];
  const rows = Array.from({ length: 200 }, (_, index) => {
    const version = `2.${index}.0`;
    const name = { version_key: version, version, full_version: version };
    return { ...row, ...name, sort_key: `${row['sort_key']}${String(index).padStart(3, '0')}` };
  });
  await database.transaction(async (tx) => {
    for (const each of rows) await tx.insert('package_versions', each);
  });
  const visitor = await Visitor.signedIn(server);
  const path = '/console/packages/Contoso.Many';
  const wide = '[0.0.0, 99.0.0]';
  const refused = /More than 200 versions are in this range\. Choose a smaller one\./;
  const listing = await visitor.refused(`${path}/listing`, { range: wide, change: 'unlist' });
  t.regex(listing, new RegExp(`id="range-error"[^>]*>${refused.source}`));
  const deprecation = { which: 'selected', act: 'deprecate', reason: 'Legacy', within: wide };
  t.regex(await visitor.refused(`${path}/deprecation/change`, deprecation), refused);
  const deletion = await visitor.fetch(`${path}/delete?range=${encodeURIComponent(wide)}`);
  t.is(deletion.status, 400);
  t.regex(await deletion.text(), refused);
  const both = await visitor.refused(`${path}/listing`, {
    version: '1.0.0',
    range: '[2.0.0, 99.0.0]',
    change: 'unlist',
  });
  t.regex(both, /id="version-error"[^>]*>Choose at most 200 versions\./);
  const all = await database.select('SELECT id FROM package_versions WHERE listed = 1');
  t.is(all.length, 201);
  t.is((await visitor.send(`${path}/listing`, { range: '[2.0.0, 99.0.0]', change: 'unlist' })).status, 303);
  t.is((await database.select('SELECT id FROM package_versions WHERE listed = 1')).length, 1);
});

test('versions are chosen, previewed with what depends on them, and deleted; the claim is then released', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const version of ['1.0.0', '2.0.0', '3.0.0']) await feed.publish({ id: 'Contoso.Core', version });
  await feed.publish({ id: 'Contoso.App', dependencies: [{ id: 'contoso.core', version: '[1.0, 2.0)' }] });
  await feed.publish({ id: 'Contoso.Old', version: '1.0.0', dependencies: [{ id: 'Contoso.Core' }] });
  await feed.publish({ id: 'Contoso.Old', version: '2.0.0' });
  const visitor = await Visitor.signedIn(server);
  const path = '/console/packages/Contoso.Core';
  t.regex(
    await visitor.page(`${path}?show=versions`),
    /<input type="checkbox" name="version" value="2\.0\.0" aria-label="Select 2\.0\.0"/,
  );
  const text = await visitor.page(`${path}/delete?version=1.0.0&version=2.0.0`);
  t.regex(text, /<h1>Delete 2 versions of Contoso\.Core<\/h1>/);
  t.regex(text, /Contoso\.App<\/a>\s*1\.0\.0\s*<span class="quiet">needs \[1\.0\.0, 2\.0\.0\)/);
  t.notRegex(text, /Contoso\.Old/);
  // 2.0.0 stays for those that accept it.
  await feed.publish({ id: 'Contoso.Any', dependencies: [{ id: 'Contoso.Core', version: '[1.0.0, )' }] });
  const first = await visitor.page(`${path}/delete?version=1.0.0`);
  t.regex(first, /find no other[^]*Contoso\.App/);
  t.notRegex(first, /Contoso\.Any/);
  t.regex(await visitor.page(`${path}/delete?version=2.0.0`), /No package of this account loses a version/);
  const rangeOf = (text: string) => `${path}/delete?range=${encodeURIComponent(text)}`;
  const all = await visitor.page(rangeOf('[1.0.0, 3.0.0]'));
  t.regex(all, /Delete 3 versions[^]*Contoso\.Any/);
  t.regex(await visitor.page(rangeOf('(1.0.0, 3.0.0)')), /Delete 1 version of/);
  t.is((await visitor.fetch(rangeOf('x'))).status, 400);
  t.is((await visitor.send(`${path}/delete`, { version: '1.0.0' })).status, 200, 'not confirmed');
  t.deepEqual(await versionsOf(server, 'Contoso.Core'), ['3.0.0', '2.0.0', '1.0.0'], 'a preview deletes nothing');
  t.regex(await visitor.page(`${path}/delete?version=1.0.0`), /Delete 1 version of/);
  t.is(leadsTo(await visitor.send(`${path}/delete`, [confirmed])), `${path}?show=versions (nothing-selected)`);
  t.regex(await visitor.page(`${path}?show=versions`), /Nothing was selected, so nothing was deleted/);
  const done = await visitor.send(`${path}/delete`, [...fields('version', ['1.0.0', '2.0.0', '9.9.9']), confirmed]);
  t.is(leadsTo(done), `${path} (deleted)`);
  t.deepEqual(await versionsOf(server, 'Contoso.Core'), ['3.0.0']);
  t.regex(await visitor.page(`${path}/delete?version=3.0.0`), /These are all versions/);
  const last = await visitor.send(`${path}/delete`, { version: '3.0.0', confirmed: 'yes' });
  t.is(leadsTo(last), '/console/packages (deleted)');
  const claims = await visitor.page('/console/claims');
  t.regex(claims, /1 claim<[^]*Contoso\.Core[^]*\/console\/claims\/release\?kind=package&amp;name=Contoso\.Core/);
  t.regex(
    await visitor.page('/console/claims/release?kind=package&name=Contoso.Core'),
    /go to the upstreams[^]*<button[^>]*>Release<\/button>/,
  );
  const released = await visitor.send('/console/claims/release', { kind: 'package', name: 'Contoso.Core' });
  t.is(leadsTo(released), '/console/claims (released)');
  t.regex(await visitor.page('/console/claims'), /No claims without content/);
  t.is((await visitor.send('/console/claims/release', { kind: 'package', name: 'Contoso.Core' })).status, 404);
  t.is((await visitor.send('/console/claims/release', { kind: 'package', name: 'Contoso.App' })).status, 400, 'in use');
});

test('versions are unlisted and listed again', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const version of ['1.0.0', '2.0.0']) await feed.publish({ id: 'Contoso.Core', version });
  const visitor = await Visitor.signedIn(server);
  const path = '/console/packages/Contoso.Core';
  const unlisted = await visitor.send(`${path}/listing`, [
    ...fields('version', ['1.0.0', '2.0.0']),
    ['change', 'unlist'],
  ]);
  t.is(leadsTo(unlisted), `${path} (unlisted)`);
  t.regex(await visitor.page(path), /Unlisted\. Searches no longer show it\.[^]*state warn">unlisted/);
  await visitor.send(`${path}/listing`, [...fields('version', ['2.0.0']), ['change', 'relist']]);
  const page = await visitor.page(path);
  t.is(page.match(/state warn">unlisted/g)?.length, 1);
  const none = await visitor.refused(`${path}/listing`, { change: 'unlist' });
  t.regex(none, /id="version-error"[^>]*>Choose at least one version/);
  const wrong = await visitor.refused(`${path}/listing`, { change: 'unlist', version: '1.0.0', range: 'x"' });
  t.regex(wrong, /value="1\.0\.0"\s+aria-label="Select 1\.0\.0"\s+checked[^]*value="x&quot;"[^]*id="range-error"/);
});

test('tags and manifests are chosen, previewed with what needs them, and deleted', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'team/app');
  const image = await repository.image('v1');
  await repository.put('same', image.bytes);
  const subject = { mediaType: image.mediaType, digest: image.digest, size: image.size };
  await repository.put('multi', { schemaVersion: 2, mediaType: ociIndex, manifests: [subject] });
  await repository.image('sig', { subject });
  await repository.image('v2');
  const visitor = await Visitor.signedIn(server);
  const path = '/console/images/team%2Fapp';
  t.regex(await visitor.page(path), /<input type="checkbox" name="tag" value="v1" aria-label="Select v1"/);
  const tags = await visitor.page(`${path}/delete?tag=v1&tag=v2`);
  t.regex(tags, /<h1>Delete 2 tags of team\/app<\/h1>/);
  t.regex(tags, /It keeps the tags\s*same/);
  t.regex(tags, /No other tag points to it/);
  t.deepEqual(await tagsOf(server, 'team/app'), ['multi', 'same', 'sig', 'v1', 'v2']);
  const manifest = await visitor.page(`${path}/delete?digest=${image.digest}`);
  t.regex(manifest, /These tags are deleted with it: same, v1/);
  t.regex(manifest, /These indexes list it/);
  t.regex(manifest, /1 signature, SBOM or other/);
  t.regex(await visitor.page(`${path}/${image.digest}`), /delete\?digest=sha256/);
  const done = await visitor.send(`${path}/delete`, [
    ...fields('tag', ['v2', 'gone']),
    ['digest', image.digest],
    confirmed,
  ]);
  t.is(leadsTo(done), `${path} (deleted)`);
  t.deepEqual(await tagsOf(server, 'team/app'), ['multi', 'sig']);
  t.is(leadsTo(await visitor.send(`${path}/delete`, [confirmed])), `${path} (nothing-selected)`);
});

test('without the scope there are no buttons, and the forms are refused; a form of another account changes nothing', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Contoso.Core' });
  await new TestRepository(server, 'team/app').image('v1');
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  for (const path of ['/console/packages/Contoso.Core', '/console/images/team%2Fapp']) {
    t.notRegex(await reader.page(path), /type="checkbox"|delete/i, path);
  }
  const forms: [string, Record<string, string>][] = [
    ['/console/packages/Contoso.Core/delete', { version: '1.0.0', confirmed: 'yes' }],
    ['/console/packages/Contoso.Core/listing', { version: '1.0.0', change: 'unlist' }],
    ['/console/images/team%2Fapp/delete', { tag: 'v1', confirmed: 'yes' }],
    ['/console/claims/release', { kind: 'package', name: 'Contoso.Core' }],
  ];
  const { value: narrow } = await createToken(server, ['read', 'delete'], 'default', {
    packages: ['X'],
    containers: ['x'],
  });
  const limited = await Visitor.signedIn(server, narrow);
  const other = await Visitor.signedIn(server, await tokenOf(server, ['read', 'write', 'delete', 'admin'], 'other'));
  for (const [path, form] of forms) {
    t.is((await reader.send(path, form)).status, 403, path);
    t.is((await limited.send(path, form)).status, 403, path);
    const answer = await other.send(path, form);
    t.true(answer.status === 404 || leadsTo(answer).endsWith('(deleted)'), path);
  }
  t.deepEqual(await versionsOf(server, 'Contoso.Core'), ['1.0.0']);
  t.deepEqual(await tagsOf(server, 'team/app'), ['v1']);
  t.is((await reader.fetch('/console/claims')).status, 403);
});

test('mirrored content is dropped only with the scope operate', async (t) => {
  const up = await UpstreamFeed.start(t);
  const hub = await startUpstreamRegistry(t);
  const server = await startMirrorOf(t, [up.as('up.test'), hub.settings('docker.io', { default: true })]);
  await up.offer({ id: 'Public', versions: [{ version: '1.0.0' }] });
  await (await new TestFeed(server).fetch('/package/public/1.0.0/public.1.0.0.nupkg')).arrayBuffer();
  const image = hub.image('library/alpine', '3');
  await (await server.fetch('/v2/alpine/manifests/3')).arrayBuffer();
  const weak = await Visitor.signedIn(server, await tokenOf(server, ['read', 'delete', 'write']));
  const forms: [string, Record<string, string>][] = [
    ['/console/packages/Public/delete', { version: '1.0.0', confirmed: 'yes' }],
    ['/console/images/docker.io%2Flibrary%2Falpine/delete', { tag: '3', confirmed: 'yes' }],
    ['/console/images/docker.io%2Flibrary%2Falpine/delete', { digest: image.manifest.digest, confirmed: 'yes' }],
  ];
  for (const [path, form] of forms) t.is((await weak.send(path, form)).status, 403, path);
  t.notRegex(await weak.page('/console/packages/Public?show=versions'), /checkbox/);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/packages/Public?show=versions'), /Drop from the mirror/);
  const preview = await visitor.page('/console/packages/Public/delete?version=1.0.0');
  t.regex(preview, /The copies are dropped from the mirror/);
  for (const [path, form] of forms) t.is((await visitor.send(path, form)).status, 303, path);
  t.is((await visitor.fetch('/console/packages/Public')).status, 404);
  t.is((await visitor.fetch('/console/images/docker.io%2Flibrary%2Falpine')).status, 404);
  t.is((await server.fetch('/v2/alpine/manifests/3')).status, 200, 'it is fetched again');
});

test('hostile values in forms and addresses are only text', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Contoso.Core' });
  await new TestRepository(server, 'team/app').image('v1');
  const visitor = await Visitor.signedIn(server);
  for (const text of hostile) {
    for (const [path, form] of [
      ['/console/packages/Contoso.Core/delete', fields('version', [text, '1.0.0'])],
      ['/console/images/team%2Fapp/delete', [...fields('tag', [text]), ...fields('digest', [text])]],
    ] as const) {
      t.deepEqual(dangers(await (await visitor.send(path, [...form])).text()), [], `${path} ${text}`);
      const address = `${path}?${new URLSearchParams([...form]).toString()}`;
      t.deepEqual(dangers(await (await visitor.fetch(address)).text()), [], address);
    }
    const page = await visitor.page(
      `/console/claims/release?kind=${encodeURIComponent(text)}&name=${encodeURIComponent(text)}`,
    );
    t.deepEqual(dangers(page), [], text);
  }
});
