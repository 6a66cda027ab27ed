import test from 'ava';
import { auditOf, said } from '../support/audit.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { createToken } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { waivers, wish } from '../support/waivers.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

// A version that was dropped here, and that its upstream offers again with other bytes.

const day = 86_400_000;
const files = { 'lib/a.txt': 'first', 'lib/b.bin': Buffer.alloc(300_000, 'b') };
const nupkg = (more: Record<string, string> = {}) =>
  makeNupkg({ id: 'Lib', version: '1.0.0', payloadBytes: 0, files: { ...files, ...more } });
const path = '/v3/package/lib/1.0.0/lib.1.0.0.nupkg';

for (const dialect of dialects)
  test(`${dialect}: a version that was published again with other content is denied under a policy`, async (t) => {
    const feed = await UpstreamFeed.start(t);
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [feed.as('feed.test')],
    });
    server.clock.now = Date.parse('2026-11-25T12:00:00Z');
    const { value: strict } = await createToken(server, ['read', 'admin', 'operate'], 'strict');
    const put = async (policy: object) => {
      const headers = { 'content-type': 'application/json' };
      const request = { method: 'PUT', headers, body: JSON.stringify(policy), token: strict };
      t.is((await server.fetch('/v1/policy?layer=account', request)).status, 200);
    };
    const offer = (bytes: Buffer) => feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', nupkg: bytes }] });
    const get = async (token: string) => {
      const response = await server.fetch(path, { token });
      const bytes = Buffer.from(await response.arrayBuffer());
      return { status: response.status, text: response.statusText, bytes };
    };
    const drop = async () => t.is((await server.fetch('/v1/packages/Lib/1.0.0', { method: 'DELETE' })).status, 204);
    const told = async () => (await auditOf(server)).filter(({ type }) => type === 'upstream.republished');
    const explain = async () =>
      (await (await server.fetch('/v1/explain?kind=package&name=Lib&reference=1.0.0', { token: strict })).json()) as {
        verdict: string;
        rule: string | null;
        reason: string | null;
        evidence: string[];
      };

    const [first, signed, other] = [
      await nupkg(),
      await nupkg({ '.signature.p7s': 'of the feed' }),
      await nupkg({ 'lib/a.txt': 'other' }),
    ];
    await put({ minimumAge: { packages: '1d' } });
    await offer(first);
    t.deepEqual((await get(strict)).bytes, first);

    await drop();
    await offer(signed);
    t.deepEqual((await get(strict)).bytes, signed, 'a signature is no other content');
    t.deepEqual(await told(), []);

    await drop();
    await offer(other);
    const refused = await get(strict);
    t.is(refused.status, 403);
    t.regex(refused.text, /its upstream has published this version again with other content/);
    t.false(refused.bytes.includes('PK'), 'no client gets its bytes');
    t.like(await explain(), {
      verdict: 'deny',
      rule: 'republished',
      evidence: ['other content than the first one stored here 2026-11-25T12:00Z'],
    });
    t.deepEqual((await get(server.token)).bytes, other, 'without a policy, clients get what the upstream has');
    t.is((await get(strict)).status, 403, 'also when it is stored');
    const flat = (await (await server.fetch('/v3/package/lib/index.json', { token: strict })).json()) as object;
    t.deepEqual(flat, { versions: ['1.0.0'] }, 'lists show what is denied');

    await drop();
    t.deepEqual((await get(server.token)).bytes, other);
    t.is((await get(strict)).status, 403, 'also after another account fetched it');
    const events = await told();
    t.deepEqual(events.map(said), ['upstream.republished lib 1.0.0'], 'told once');
    t.is(events[0]!.actor.kind, 'system');
    t.is(events[0]!.details['upstream'], 'feed.test');

    await put({ mode: 'audit', minimumAge: { packages: '1d' } });
    t.is((await get(strict)).status, 200, 'only counted');
    await put({ minimumAge: { packages: '1d' } });
    t.is((await get(strict)).status, 403);

    const body = wish(server, 'Lib', ['1.0.0'], 'republished', 1);
    const requested = await waivers(server, 'POST', '', { token: strict, body });
    t.is(requested.status, 201, requested.detail);
    const { value: second } = await createToken(server, ['read', 'admin'], 'strict');
    t.is((await waivers(server, 'POST', `/${requested.id}/approve`, { token: second })).status, 200);
    t.is((await get(strict)).status, 200, 'a waiver lifts it');
    server.clock.now += 2 * day;
    t.is((await get(strict)).status, 403, 'until it ends');

    await drop();
    await offer(first);
    t.deepEqual((await get(strict)).bytes, first, 'the upstream has the first content again');
    t.like(await explain(), { verdict: 'allow' });
  });
