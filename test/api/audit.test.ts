import test from 'ava';
import { auditOf, auditPage, said, type AuditPage } from '../support/audit.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { createToken, eventsOf, flushEvents, rowsOf, runJob, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { ociIndex, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';

for (const dialect of dialects) {
  test(`${dialect}: what happens to packages is recorded with its actor, address and request`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const document = await OpenDocument.of(server);
    const { token, value } = await createToken(server, ['read', 'write', 'delete']);
    const feed = new TestFeed(server, value);
    const pushed = await feed.push({ id: 'Contoso.One', version: '1.0' });
    t.is((await feed.push({ id: 'Contoso.One', version: '1.0' })).status, 409);
    for (const method of ['DELETE', 'DELETE', 'POST', 'POST']) {
      t.true((await feed.fetch('/push/contoso.one/1.0.0', { method })).ok);
    }
    const gone = await server.fetch('/v1/packages/contoso.ONE/1.0', { method: 'DELETE', token: value });
    t.is(gone.status, 204);
    t.is((await server.fetch('/v1/packages/contoso.one/1.0.0', { method: 'DELETE' })).status, 404);

    const answer = await server.fetch('/v1/audit?type=package.*');
    const { items } = (await document.read('GET /audit', answer)) as unknown as AuditPage;
    t.deepEqual(items.map(said).toReversed(), [
      'package.published Contoso.One 1.0.0',
      'package.unlisted Contoso.One 1.0.0',
      'package.relisted Contoso.One 1.0.0',
      'package.deleted Contoso.One 1.0.0',
    ]);
    const first = items.at(-1)!;
    t.deepEqual(first, {
      id: first.id,
      time: first.time,
      type: 'package.published',
      account: 'default',
      actor: { kind: 'token', id: token.id, name: 'a test' },
      subject: { kind: 'package', name: 'Contoso.One', version: '1.0.0' },
      address: '127.0.0.1',
      request_id: pushed.headers.get('x-request-id'),
      details: { size_bytes: first.details['size_bytes'] },
    });
    t.is(items[0]!.request_id, gone.headers.get('x-request-id'));
  });

  test(`${dialect}: what happens to images is recorded`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const app = new TestRepository(server, 'team/app');
    const one = await app.image('v1');
    await app.put('v2', one.bytes);
    const { mediaType, digest, size } = one;
    t.is(
      (await app.put('all', { schemaVersion: 2, mediaType: ociIndex, manifests: [{ mediaType, digest, size }] }))
        .status,
      201,
    );
    t.is((await app.fetch('manifests/v1', { method: 'DELETE' })).status, 202);
    t.is((await app.fetch('manifests/v1', { method: 'DELETE' })).status, 404);
    t.is((await server.fetch('/v1/containers/team/app/all', { method: 'DELETE' })).status, 204);
    t.is((await app.fetch(`manifests/${digest}`, { method: 'DELETE' })).status, 202);
    const events = await auditOf(server, 'subject=team/app');
    t.deepEqual(events.map(said), [
      'image.pushed team/app v1',
      'image.pushed team/app v2',
      'image.pushed team/app all',
      'tag.deleted team/app v1',
      'tag.deleted team/app all',
      `manifest.deleted team/app ${digest}`,
    ]);
    t.like(events[0], {
      account: 'default',
      actor: { kind: 'token', name: 'first token' },
      subject: { kind: 'container', name: 'team/app', reference: 'v1' },
      details: { digest, media_type: mediaType, tags: ['v1'], tag_count: 1 },
    });
    t.like(events[3], { details: { digest } });
    t.deepEqual(events[5]!.details, { tags: ['v2'], tag_count: 1 });
  });

  test(`${dialect}: tokens and released claims are recorded, and what jobs and commands do`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const retention = { packages: { keepVersions: 1 }, containers: { untaggedAfter: '1h' } };
    const server = await startTestServer(t, { data, database: { url }, retention });
    const command = (...words: string[]) =>
      entrepot({ ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_UPSTREAMS: '[]' }, ...words);
    const body = JSON.stringify({ name: 'ci', scopes: ['read'], patterns: { packages: ['Contoso.*'] } });
    const headers = { 'content-type': 'application/json' };
    const made = await server.fetch('/v1/tokens', { method: 'POST', body, headers });
    const { id, token: value } = (await made.json()) as { id: string; token: string };
    for (const _ of [1, 2]) t.is((await server.fetch(`/v1/tokens/${id}`, { method: 'DELETE' })).status, 204);
    const { stdout, code } = await command('token', 'create', '--name', 'nightly', '--expires', '1d');
    t.is(code, 0);
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Old', version: '1.0.0' }, { id: 'Old', version: '2.0.0' }, { id: 'Gone' });
    const image = await new TestRepository(server, 'old').image('v1');
    await server.fetch('/v1/containers/old/v1', { method: 'DELETE' });
    await server.fetch('/v1/packages/Gone/1.0.0', { method: 'DELETE' });
    server.clock.now = Date.now() + 7_200_000;
    await runJob(server, 'retention');
    t.is((await command('claim', 'release', 'gone', '--kind', 'package')).code, 0);
    t.is((await command('claim', 'release', 'old', '--kind', 'container')).code, 0);
    const events = await auditOf(server);
    t.deepEqual(events.filter(({ type }) => !/published|pushed|tag/.test(type)).map(said), [
      'token.created first token',
      'token.created ci',
      'token.revoked ci',
      'token.created nightly',
      'package.deleted Gone 1.0.0',
      'job.started retention',
      'package.deleted Old 1.0.0',
      `manifest.deleted old ${image.digest}`,
      'claim.released Gone',
      'claim.released old',
    ]);
    const find = (text: string) => events.find((each) => said(each).startsWith(text))!;
    t.deepEqual(find('token.created first').actor, { kind: 'system', id: null, name: null });
    t.deepEqual(find('token.created ci').details, {
      token_id: id,
      scopes: ['read'],
      patterns: { packages: ['Contoso.*'] },
      expires_at: null,
    });
    t.deepEqual(find('token.created nightly').actor, { kind: 'system', id: null, name: 'command' });
    t.like(find('package.deleted Old'), {
      actor: { kind: 'system', name: 'retention' },
      address: null,
      request_id: null,
    });
    t.like(find('manifest.deleted'), { account: 'default', actor: { kind: 'system', name: 'retention' } });
    t.like(find('claim.released old'), { actor: { name: 'command' }, subject: { kind: 'container' } });
    const all = JSON.stringify(await rowsOf(server, 'SELECT * FROM events'));
    for (const secret of [value, stdout.trim(), server.token]) t.false(all.includes(secret), 'no value of a token');
  });

  test(`${dialect}: failed sign-ins become one event for each address and minute`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      server: { trustProxy: true },
    });
    server.clock.now = Date.now();
    const fail = (
      address: string,
      init: { method?: string; headers?: Record<string, string> } = {},
      path = '/v1/account',
    ) =>
      server.fetch(path, {
        token: 'ent_wrong-secret',
        ...init,
        headers: { 'x-forwarded-for': address, ...init.headers },
      });
    for (let count = 0; count < 5; count += 1) t.is((await fail('192.0.2.1')).status, 401);
    const basic = { authorization: `Basic ${Buffer.from('api:ent_wrong-secret').toString('base64')}` };
    t.is((await fail('192.0.2.1', { headers: basic }, '/v2/')).status, 401);
    t.is((await fail('192.0.2.1', { headers: basic }, '/token')).status, 401);
    t.is((await fail('192.0.2.1', { method: 'PUT', headers: { 'x-nuget-apikey': 'x' } }, '/v3/push')).status, 401);
    t.is((await fail('192.0.2.2')).status, 401);
    t.is((await server.fetch('/v1/account', { token: null })).status, 401, 'not a sign-in');
    await flushEvents(server);
    t.deepEqual(await auditOf(server, 'type=sign_in.failed'), [], 'the minute is not over');
    server.clock.now += 60_000;
    await flushEvents(server);
    const events = await auditOf(server, 'type=sign_in.*');
    t.deepEqual(
      events.map(({ address, details }) => [address, details['count']]),
      [
        ['192.0.2.1', 8],
        ['192.0.2.2', 1],
      ],
    );
    t.like(events[0], {
      account: null,
      actor: { kind: 'anonymous', id: null, name: null },
      subject: { kind: 'token', name: null },
    });
    t.false(JSON.stringify(events).includes('wrong-secret'));
    t.is((await fail('192.0.2.1')).status, 401);
    await flushEvents(server, true);
    t.is((await auditOf(server, 'type=sign_in.failed')).length, 3);
    const admin = await tokenOf(server, ['admin']);
    t.deepEqual(await auditOf(server, 'type=sign_in.failed', admin), [], 'an account does not see them');
  });

  test(`${dialect}: failures that never stop are written each minute`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    server.clock.now = Date.now();
    const counts = async () =>
      (await auditOf(server, 'type=sign_in.failed')).map(({ details }) => details['count']).toReversed();
    const written: unknown[] = [];
    for (let round = 0; round < 8; round += 1) {
      t.is((await server.fetch('/v1/account', { token: 'ent_wrong-secret' })).status, 401);
      await flushEvents(server);
      written.push(await counts());
      server.clock.now += 20_000;
    }
    // The failure at the end of a minute is the fourth of it.
    t.deepEqual(written, [[], [], [], [4], [4], [4], [4], [4, 4]]);
  });

  test(`${dialect}: an account sees its own events, and operate sees all`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const theirs = await TestFeed.ofAccount(server, 'other', ['read', 'write', 'admin']);
    await new TestFeed(server).publish({ id: 'Ours' });
    await theirs.publish({ id: 'Theirs' });
    const shown = async (query: string, token?: string) =>
      (await auditOf(server, `type=package.*&${query}`, token)).map(said);
    t.deepEqual(await shown('', theirs.token), ['package.published Theirs 1.0.0']);
    t.deepEqual(await shown('account=other', theirs.token), ['package.published Theirs 1.0.0']);
    t.deepEqual(await shown('subject=Ours', theirs.token), []);
    t.deepEqual(await shown(''), ['package.published Ours 1.0.0', 'package.published Theirs 1.0.0']);
    t.deepEqual(await shown('account=other'), ['package.published Theirs 1.0.0']);
    t.deepEqual(await shown('account=default'), ['package.published Ours 1.0.0']);
    const status = async (query: string, token: string | null) =>
      (await server.fetch(`/v1/audit?${query}`, { token })).status;
    t.is(await status('account=default', theirs.token), 403);
    t.is(await status('account=none', theirs.token), 403, 'as for an account that exists');
    t.is(await status('account=none', server.token), 400);
    t.is(await status('', await tokenOf(server, ['read', 'write', 'delete'])), 403);
    t.is(await status('', null), 401);
    const operator = await tokenOf(server, ['operate']);
    t.is((await shown('', operator)).length, 2);
    const patterns = { packages: ['Ours', 'Fabrikam.*'] };
    const limited = (await createToken(server, ['admin'], 'default', patterns)).value;
    await new TestFeed(server).publish({ id: 'Contoso.Secret' }, { id: 'Fabrikam.Open' });
    await new TestRepository(server, 'ours').image('v1');
    t.deepEqual((await auditOf(server, '', limited)).map(said), [
      'package.published Ours 1.0.0',
      'package.published Fabrikam.Open 1.0.0',
    ]);
  });

  test(`${dialect}: filters, cursor and after find each event once`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const start = Date.parse('2027-01-01T00:00:00Z');
    const { token, value } = await createToken(server, ['write', 'delete']);
    const feed = new TestFeed(server, value);
    for (let minute = 0; minute < 5; minute += 1) {
      server.clock.now = start + minute * 60_000;
      await feed.publish({ id: `Made${minute}` });
    }
    await new TestFeed(server).publish({ id: 'Last' });
    const names = async (query: string) => (await auditOf(server, query)).map(({ subject }) => subject.name);
    const made = ['Made0', 'Made1', 'Made2', 'Made3', 'Made4'];
    t.deepEqual(await names(`actor=${token.id}`), made);
    t.deepEqual(await names('actor=a%20test&type=package.published'), made);
    t.deepEqual(await names('actor=nobody'), []);
    t.deepEqual(await names('type=package.*&since=2027-01-01T00:03:00Z'), ['Made3', 'Made4', 'Last']);
    t.deepEqual(await names('since=2027-01-01T00:01:00Z&until=2027-01-01T01:03:00%2B01:00'), ['Made1', 'Made2']);
    t.deepEqual(await names('subject=made2'), ['Made2']);
    t.deepEqual(await names('type=package.deleted'), []);
    t.is((await names('type=*')).length, 8, 'with two tokens');

    const paged: (string | null)[] = [];
    for (let cursor: string | null = ''; cursor !== null;) {
      const page = await auditPage(server, `limit=2&actor=${token.id}${cursor && `&cursor=${cursor}`}`);
      paged.push(...page.items.map(({ subject }) => subject.name));
      cursor = page.next_cursor;
    }
    t.deepEqual(paged, made.toReversed());
    const followed: (string | null)[] = [];
    for (let after = '0'; ;) {
      const { items } = await auditPage(server, `limit=2&actor=${token.id}&after=${after}`);
      if (items.length === 0) break;
      followed.push(...items.map(({ subject }) => subject.name));
      after = items.at(-1)!.id;
    }
    t.deepEqual(followed, made);
    for (const wrong of [
      'type=package',
      'type=none.*',
      'since=yesterday',
      'after=-1',
      'cursor=x',
      'actor=',
      'type=a.*&type=b.*',
    ]) {
      t.is((await server.fetch(`/v1/audit?${wrong}`)).status, 400, wrong);
    }
  });

  test(`${dialect}: a change that is rolled back leaves no event`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const nupkg = await makeNupkg({ id: 'Same' });
    const feed = new TestFeed(server);
    const statuses = (await Promise.all([1, 2, 3, 4].map(() => feed.push(nupkg)))).map(({ status }) => status);
    t.deepEqual(
      statuses.toSorted((a, b) => a - b),
      [201, 409, 409, 409],
    );
    const app = new TestRepository(server, 'app');
    const lacking = { schemaVersion: 2, mediaType: ociIndex, manifests: [] };
    t.is((await app.put('v1', { ...lacking, mediaType: 'application/vnd.oci.image.manifest.v1+json' })).status, 400);
    await eventsOf(server).dispatch();
    t.deepEqual((await auditOf(server)).map(said), ['token.created first token', 'package.published Same 1.0.0']);
  });
}
