import test from 'ava';
import { auditOf, said } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { runJob, tokenOf } from '../support/inside.ts';
import { errorOf, ociIndex, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

/** Replaces the rules of the account of a token. */
function put(server: TestServer, rules: unknown, token = server.token): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return server.fetch('/v1/account/permanence', { method: 'PUT', headers, body: JSON.stringify(rules), token });
}

const remove = { method: 'DELETE' };

for (const dialect of dialects) {
  test(`${dialect}: a frozen tag does not move, and what is kept is not deleted`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      gc: { grace: '0s' },
      retention: {
        packages: { keepVersions: 1 },
        containers: { untaggedAfter: '0s', tags: [{ keepNewest: 0 }] },
        protect: ['Contoso.Lib:1.*', 'team/base:always'],
      },
    });
    const rules = {
      freeze: { images: ['team/*:v*'] },
      keep: { packages: ['Contoso.Core@2.*', 'Fabrikam'], images: ['team/api:LTS', 'team/whole'] },
    };
    t.deepEqual(await (await server.fetch('/v1/account/permanence')).json(), {
      freeze: { images: [] },
      keep: { packages: [], images: [] },
    });
    t.is((await put(server, rules)).status, 200);
    t.deepEqual(await (await server.fetch('/v1/account/permanence')).json(), rules);

    const api = new TestRepository(server, 'team/api');
    const first = await api.image('v1');
    const moved = await api.put('v1', await api.manifest());
    t.is(moved.status, 400);
    const { errors } = (await moved.json()) as { errors: { code: string; message: string }[] };
    t.is(errors[0]!.code, 'DENIED');
    t.regex(errors[0]!.message, /'v1' already exists in the 'team\/api' repository and cannot be overwritten/);
    t.is((await api.put('v1', first.bytes, first.mediaType)).status, 201, 'the same digest again');
    const pushes = (await auditOf(server, 'type=image.pushed&subject=team/api')).map(said);
    t.deepEqual(pushes, ['image.pushed team/api v1'], 'a push that changes nothing is no event');
    await api.image('dev');
    const dev = await api.image('dev');
    const keeperOf = async (path: string) => {
      const response = await api.fetch(path, remove);
      const { errors: told } = (await response.json()) as { errors: { code: string; message: string }[] };
      return [response.status, told[0]!.code, told[0]!.message.split(' cannot be deleted: ', 1)[0]];
    };
    t.deepEqual(await keeperOf('manifests/v1'), [409, 'DENIED', 'team/api:v1']);
    t.deepEqual(await keeperOf(`manifests/${first.digest}`), [
      409,
      'DENIED',
      `${first.digest}, which team/api:v1 needs,`,
    ]);
    t.is((await server.fetch('/v1/containers/team%2Fapi/v1', remove)).status, 409);
    t.is((await server.fetch(`/v1/containers/team%2Fapi/manifests/${first.digest}`, remove)).status, 409);
    t.is((await new TestRepository(server, 'other').image('v1')).digest.length, 71, 'another name');

    // A kept index keeps its images and their layers.
    const child = await api.image('child');
    const index = {
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [child].map(({ bytes: _bytes, ...each }) => each),
    };
    t.is((await api.put('LTS', index)).status, 201);
    t.is((await api.put('LTS', dev.bytes, dev.mediaType)).status, 201, 'kept is not frozen');
    t.is((await api.put('LTS', index)).status, 201);
    const layer = (JSON.parse(child.bytes) as { layers: { digest: string }[] }).layers[0]!.digest;
    t.deepEqual(await keeperOf(`manifests/${child.digest}`), [
      409,
      'DENIED',
      `${child.digest}, which team/api:LTS needs,`,
    ]);
    t.deepEqual(await keeperOf(`blobs/${layer}`), [409, 'DENIED', `${layer}, which team/api:LTS needs,`]);
    t.is((await api.fetch('manifests/child', remove)).status, 202, 'another tag of the same manifest');
    t.deepEqual(await errorOf(await api.fetch('manifests/nothing', remove)), [404, 'MANIFEST_UNKNOWN']);
    const whole = new TestRepository(server, 'team/whole');
    const untagged = await whole.manifest();
    t.is((await whole.put((await whole.image('x')).digest, untagged)).status, 400, 'a digest that is wrong');
    t.deepEqual(await errorOf(await whole.fetch('manifests/x', remove)), [409, 'DENIED']);
    const past = await whole.image('x');
    await whole.image('x');
    await new TestRepository(server, 'team/base').image('always');
    await new TestRepository(server, 'team/base').image('sometimes');

    const feed = new TestFeed(server);
    for (const [id, version] of [
      ['Contoso.Core', '1.0.0'],
      ['Contoso.Core', '2.0.0'],
      ['Contoso.Core', '2.1.0'],
      ['Contoso.Core', '3.0.0'],
      ['Contoso.Lib', '1.0.0'],
      ['Contoso.Lib', '1.1.0'],
      ['Contoso.Lib', '2.0.0'],
      ['Contoso.Lib', '3.0.0'],
    ] as const)
      await feed.publish({ id, version });
    t.is((await server.fetch('/v1/packages/contoso.core/2.0.0', remove)).status, 409);
    const unlisted = await feed.fetch('/push/Contoso.Core/2.0.0', remove);
    t.is(unlisted.status, 409);
    t.regex(unlisted.statusText, /Contoso.Core 2.0.0 cannot be deleted: a rule of this account keeps it/);
    t.is((await server.fetch('/v1/packages/Contoso.Core/2.0.0/unlist', { method: 'POST' })).status, 204);
    t.is((await server.fetch('/v1/packages/Contoso.Core/2.0.0/relist', { method: 'POST' })).status, 204);

    const lines: string[] = [];
    const would = await runJob(server, 'retention', { dryRun: true, say: (line) => lines.push(line) });
    t.true(lines.length > 0 && !lines.some((line) => line.includes(past.digest)));
    server.clock.now = server.clock.time() + 1000;
    const did = await runJob(server, 'retention');
    t.deepEqual(did, { versions: 2, version_bytes: did['version_bytes'], tags: 3, manifests: did['manifests'] });
    t.like(would, { versions: 2, tags: 3 }, 'the dry run says the same');
    await runJob(server, 'gc');
    const keys = async (id: string) => (await feed.json<{ versions: string[] }>(`/package/${id}/index.json`)).versions;
    t.deepEqual(await keys('contoso.core'), ['2.0.0', '2.1.0', '3.0.0']);
    t.deepEqual(await keys('contoso.lib'), ['1.0.0', '1.1.0', '3.0.0'], 'the setting protect');
    for (const [name, tags] of [
      ['team/api', ['LTS', 'v1']],
      ['team/base', ['always']],
      ['team/whole', ['x']],
      ['other', []],
    ] as const) {
      const list = (await (await server.fetch(`/v2/${name}/tags/list`)).json()) as { tags: string[] };
      t.deepEqual(list.tags, [...tags], name);
    }
    t.is((await api.fetch(`manifests/${child.digest}`)).status, 200);
    t.is((await whole.fetch(`manifests/${past.digest}`)).status, 200, 'it has no tag any more');
    t.is((await api.fetch(`blobs/${layer}`)).status, 200);

    // What the settings protect of the rules about age can be deleted by hand.
    t.is((await server.fetch('/v1/packages/Contoso.Lib/1.0.0', remove)).status, 204);

    const { items } = (await (await server.fetch('/v1/audit?type=permanence.changed')).json()) as {
      items: { details: unknown }[];
    };
    t.deepEqual(
      items.map(({ details }) => details),
      [
        {
          added: [
            'freeze image team/*:v*',
            'keep package Contoso.Core@2.*',
            'keep package Fabrikam',
            'keep image team/api:LTS',
            'keep image team/whole',
          ],
          removed: [],
        },
      ],
    );
    t.is((await put(server, { freeze: rules.freeze })).status, 200);
    t.deepEqual(await errorOf(await api.fetch(`manifests/${first.digest}`, remove)), [409, 'DENIED']);
    t.is((await put(server, {})).status, 200);
    t.is((await api.fetch('manifests/v1', remove)).status, 202);
  });
}

const keep = (packages: string[]) => ({ keep: { packages, images: ['app'] } });

test('an event tells which patterns came and went, 50 of each', async (t) => {
  const server = await startTestServer(t);
  const many = Array.from({ length: 51 }, (_, at) => `P${at}`);
  for (const rules of [keep(many), keep(many.toReversed()), keep(['P1', 'New']), {}])
    t.is((await put(server, rules)).status, 200);
  const answer = await server.fetch('/v1/audit?type=permanence.changed');
  const { items } = (await answer.json()) as { items: { details: object; subject: object }[] };
  t.deepEqual(
    items.map(({ details }) => details),
    [
      { added: [], removed: ['keep package P1', 'keep package New', 'keep image app'] },
      {
        added: ['keep package New'],
        removed: ['P0', ...many.slice(2)].map((each) => `keep package ${each}`).toReversed(),
      },
      { added: many.slice(0, 50).map((each) => `keep package ${each}`), removed: [] },
    ],
  );
  t.like(items[0]!.subject, { kind: 'account', name: 'default' });
});

test('rules are those of one account, and only its administrators change them', async (t) => {
  const server = await startTestServer(t);
  const other = await tokenOf(server, ['read', 'write', 'delete', 'admin'], 'other');
  t.is((await put(server, { keep: { packages: ['*'], images: ['*'] }, freeze: { images: ['*'] } }, other)).status, 200);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Mine', version: '1.0.0' });
  t.is((await server.fetch('/v1/packages/Mine/1.0.0', remove)).status, 204);
  const repository = new TestRepository(server, 'mine');
  await repository.image('v1');
  await repository.image('v1');
  const theirs = new TestRepository(server, 'mine', other);
  await theirs.image('v1');
  t.deepEqual(await errorOf(await theirs.put('v1', await theirs.manifest())), [400, 'DENIED']);

  t.is((await put(server, {}, await tokenOf(server, ['read', 'write', 'delete']))).status, 403);
  t.is((await server.fetch('/v1/account/permanence', { token: await tokenOf(server, ['write']) })).status, 403);
  const body = JSON.stringify({ name: 'limited', scopes: ['read', 'admin'], patterns: { packages: ['A.*'] } });
  const headers = { 'content-type': 'application/json' };
  const made = await server.fetch('/v1/tokens', { method: 'POST', headers, body });
  const { token: limited } = (await made.json()) as { token: string };
  t.is((await put(server, {}, limited)).status, 403, 'a token with name patterns');
  t.is((await server.fetch('/v1/account/permanence', { token: limited })).status, 403);

  for (const wrong of [
    { keep: { packages: ['a b'] } },
    { keep: { packages: ['Contoso:1.0.0'] } },
    { freeze: { images: ['team/api@sha256:00'] } },
    { freeze: { images: [`a${'x'.repeat(400)}`] } },
    { freeze: { images: Array.from({ length: 101 }, (_, index) => `a${index}`) } },
    { freeze: { packages: ['A'] } },
    { keep: { images: ['a:b:c'] } },
    { keep: { images: [''] } },
    { keep: { images: ['a\u0000b'] } },
    { thaw: {} },
    [],
  ]) {
    const refused = await put(server, wrong);
    t.is(refused.status, 400, JSON.stringify(wrong).slice(0, 80));
  }
});
