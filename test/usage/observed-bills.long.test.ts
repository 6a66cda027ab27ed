import { createPublicKey } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Spec, Validation } from '@cyclonedx/cyclonedx-library';
import { bundleFromJSON } from '@sigstore/bundle';
import { toSignedEntity, Verifier } from '@sigstore/verify';
import test from 'ava';
import { observedKeyOf } from '../../src/exposure/observed-key.ts';
import { createRule, exchange, fromRepository, sendJson, startPair, type Json } from '../identity/support.ts';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { entrepot } from '../support/in-process.ts';
import { flushUsage, makeBills, rowsOf, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { digestOf, ociIndex, TestRepository, type Descriptor, type Manifest } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

const settled = 31_000;
const bundleType = 'application/vnd.dev.sigstore.bundle.v0.3+json';
const path = '/v1/account/observed-bills';

interface Bill {
  manifest: Manifest;
  bundle: Json;
  statement: Json & { predicate: Json & { components: Json[] } };
}

/** What a bundle says, once its signature is verified. Throws if it is wrong. */
function verified(bundle: unknown, pem: string): Bill['statement'] {
  const authorities = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
  const publicKey = () => ({ publicKey: createPublicKey(pem), validFor: () => true });
  const thresholds = { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 };
  const { content, ...rest } = bundleFromJSON(bundle);
  new Verifier({ ...authorities, publicKey }, thresholds).verify(toSignedEntity({ ...rest, content }));
  if (content.$case !== 'dsseEnvelope') throw new Error('there is no envelope');
  return JSON.parse(content.dsseEnvelope.payload.toString()) as Bill['statement'];
}

async function referrersOf(reader: TestRepository, { digest }: Descriptor): Promise<Descriptor[]> {
  const list = await reader.fetch(`referrers/${digest}?artifactType=${encodeURIComponent(bundleType)}`);
  return ((await list.json()) as { manifests: Descriptor[] }).manifests;
}

async function billsOf(reader: TestRepository, image: Descriptor, pem: string): Promise<Bill[]> {
  const found = (await referrersOf(reader, image)).map(async ({ digest }) => {
    const manifest = (await (await reader.fetch(`manifests/${digest}`)).json()) as Manifest & { layers: Descriptor[] };
    const bundle = (await (await reader.fetch(`blobs/${manifest.layers[0]!.digest}`)).json()) as Json;
    return { manifest, bundle, statement: verified(bundle, pem) };
  });
  return Promise.all(found);
}

/** An image, which `note` makes different from others. */
async function push(to: TestRepository, tag: string, more: Json = {}): Promise<Descriptor> {
  const config = await to.blob('{}', 'application/vnd.oci.image.config.v1+json');
  return to.image(tag, { config, annotations: { note: tag }, ...more });
}

for (const dialect of dialects) {
  test(`${dialect}: an image that a job pushes gets a signed bill of what the job pulled before, where the account wants that`, async (t) => {
    const up = await UpstreamFeed.start(t);
    await up.offer({ id: 'Lib', versions: ['1.0.0', '1.1.0', '2.0.0'].map((version) => ({ version })) });
    const { server, issuer } = await startPair(t, {
      upstreams: [up.as('feed.test')],
      database: { url: await temporaryDatabase(t, dialect) },
    });
    server.clock.now = Date.UTC(2026, 10, 25, 12);
    await createRule(server);
    const giveToken = async (run: string) => {
      const { body } = await exchange(server, await issuer.sign({ ...fromRepository, run_id: run }));
      return body['access_token'] as string;
    };
    const appOf = (token: string) => new TestRepository(server, 'team/app', token);
    const reader = appOf(await tokenOf(server, ['read']));
    const get = async (address: string, token: string) => {
      const response = await server.fetch(address, { token });
      t.is(response.status, 200, address);
      await response.arrayBuffer();
      server.clock.now! += 1000;
    };
    const pull = (version: string, token: string) => get(`/v3/package/lib/${version}/lib.${version}.nupkg`, token);
    const make = async () => {
      await flushUsage(server);
      server.clock.now! += settled;
      await makeBills(server);
    };

    // Nobody asked for bills yet.
    const earlier = await giveToken('6');
    await pull('1.0.0', earlier);
    const base = await push(appOf(earlier), 'base');
    await make();
    t.is((await referrersOf(reader, base)).length, 0);

    const document = await OpenDocument.of(server);
    const before = await server.fetch(path, { token: reader.token! });
    const { enabled, public_key: noKey } = (await document.read('GET /account/observed-bills', before)) as {
      enabled: boolean;
      public_key: string | null;
    };
    t.deepEqual([enabled, noKey], [false, null]);
    t.is((await sendJson(server, 'PUT', path, { enabled: true }, reader.token)).status, 403);
    const put = await sendJson(server, 'PUT', path, { enabled: true });
    const { public_key: pem, ...set } = (await document.read('PUT /account/observed-bills', put)) as Json & {
      public_key: string;
    };
    t.deepEqual(set, { enabled: true });
    t.like(await auditOf(server, 'type=account.bills_changed'), [{ details: { enabled: true } }]);

    // The tokens of a job are one job.
    const job = await giveToken('7');
    await pull('1.0.0', job);
    await get('/v2/team/app/manifests/base', job);
    const app = appOf(await giveToken('7'));
    const image = await push(app, 'v1');
    const { mediaType, digest, size } = image;
    const index = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests: [{ mediaType, digest, size }] });
    t.is((await app.put('multi', index, ociIndex)).status, 201);
    const others = [
      await push(app, 'sha256-0.sig'),
      await push(app, 'attestation', { layers: [await app.blob('{}', 'application/vnd.in-toto+json')] }),
      await push(app, 'artifact', { artifactType: 'application/x.artifact' }),
      await push(app, 'about', { subject: { mediaType, digest, size } }),
      await push(new TestRepository(server, 'team/app'), 'by-token'),
      await push(app, 'gone'),
    ];
    const operator = new TestRepository(server, 'team/app');
    t.is((await operator.fetch(`manifests/${others.at(-1)!.digest}`, { method: 'DELETE' })).status, 202);
    server.clock.now += 1000;
    await pull('1.1.0', job);
    await pull('2.0.0', await giveToken('8'));

    await flushUsage(server);
    server.clock.now += 10_000;
    await makeBills(server);
    t.is((await referrersOf(reader, image)).length, 0, 'other instances may not have written all pulls');
    server.clock.now += settled;
    // As two instances do.
    await Promise.all([makeBills(server), makeBills(server)]);
    await make();

    const [bill, ...more] = await billsOf(reader, image, pem);
    t.is(more.length, 0);
    t.like(bill!.manifest, {
      artifactType: bundleType,
      subject: { mediaType, digest, size },
      annotations: { 'dev.sigstore.bundle.predicateType': 'https://cyclonedx.org/bom' },
    });
    t.like(bill!.statement, {
      _type: 'https://in-toto.io/Statement/v1',
      subject: [{ name: 'team/app', digest: { sha256: digest.slice('sha256:'.length) } }],
      predicateType: 'https://cyclonedx.org/bom',
    });
    const { dsseEnvelope } = bill!.bundle as { dsseEnvelope: { signatures: { keyid: string }[] } };
    t.deepEqual(
      dsseEnvelope.signatures.map(({ keyid }) => keyid),
      [''],
      'clients skip a signature with a key ID that they do not know',
    );
    const { predicate } = bill!.statement;
    t.is(await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(JSON.stringify(predicate)), null);
    const purls = predicate.components.map((each) => each['purl']);
    t.deepEqual(purls, [
      'pkg:nuget/lib@1.0.0',
      `pkg:oci/app@${encodeURIComponent(base.digest)}?repository_url=team%2Fapp`,
    ]);
    const about = predicate['metadata'] as Json & { component: Json };
    t.deepEqual(predicate['compositions'], [{ aggregate: 'incomplete', assemblies: [about.component['bom-ref']] }]);
    t.like(about, { lifecycles: [{ name: 'observed' }], component: { type: 'container', name: 'team/app' } });
    t.deepEqual(about['properties'], [
      { name: 'entrepot:job:issuer', value: 'github' },
      { name: 'entrepot:job:repository', value: 'team/app' },
      { name: 'entrepot:job:ref', value: 'refs/heads/main' },
      { name: 'entrepot:job:run', value: '7' },
    ]);
    t.is((await billsOf(reader, { ...image, digest: digestOf(index) }, pem)).length, 1);
    for (const each of others) t.is((await referrersOf(reader, each)).length, 0, JSON.stringify(each));

    // A changed statement, and another key.
    const changed = structuredClone(bill!.bundle) as { dsseEnvelope: { payload: string } };
    changed.dsseEnvelope.payload = Buffer.from('{}').toString('base64');
    t.throws(() => verified(changed, pem), { message: /signature verification failed/ });
    t.throws(() => verified(bill!.bundle, observedKeyOf(Buffer.alloc(40, 1)).publicKey));

    // It is a list of contents, and no signature of the image.
    const shown = (await (await server.fetch('/v1/containers/team/app/tags')).json()) as { items: Json[] };
    t.deepEqual(shown.items.find((each) => each['name'] === 'v1')?.['attached'], ['sbom']);

    // Other accounts see nothing.
    const other = appOf(await tokenOf(server, ['read', 'write', 'admin'], 'other'));
    t.is((await other.fetch(`manifests/${digestOf(JSON.stringify(bill!.manifest))}`)).status, 404);
    t.false(((await (await server.fetch(path, { token: other.token! })).json()) as Json)['enabled']);

    t.is((await sendJson(server, 'PUT', path, { enabled: false })).status, 200);
    const last = await push(appOf(await giveToken('9')), 'last');
    await make();
    t.is((await referrersOf(reader, last)).length, 0);
  });
}

test('an account without room gets no bill, and others do', async (t) => {
  const { server, issuer } = await startPair(t, { limits: { accountStorage: 6000 } });
  server.clock.now = Date.UTC(2026, 10, 25, 12);
  await createRule(server);
  const small = await tokenOf(server, ['read', 'write', 'admin'], 'small');
  await createRule(server, { claims: { repository_id: '200' } }, small);
  const images = [];
  for (const [account, id, token, size] of [
    ['small', '200', small, 5000],
    ['default', '100', server.token, 10],
  ] as const) {
    t.is((await sendJson(server, 'PUT', path, { enabled: true }, token)).status, 200);
    const claims = { ...fromRepository, repository_id: id, run_id: '1' };
    const bearer = await issuer.sign(claims);
    const exchanged = await sendJson(
      server,
      'POST',
      '/v1/token-exchange/nuget',
      { username: account, tokenType: 'ApiKey' },
      bearer,
    );
    const app = new TestRepository(server, 'team/app', ((await exchanged.json()) as Json)['apiKey'] as string);
    await app.blob(Buffer.alloc(size));
    images.push({ reader: new TestRepository(server, 'team/app', token), image: await push(app, 'v1') });
    server.clock.now += 1000;
  }
  await flushUsage(server);
  server.clock.now += settled;
  await makeBills(server);
  const counts = await Promise.all(images.map(async ({ reader, image }) => (await referrersOf(reader, image)).length));
  t.deepEqual(counts, [0, 1]);
});

test('the key is that of the key file, and a command prints it', async (t) => {
  const { server } = await startPair(t);
  const env = { ENTREPOT_DATA: server.data };
  t.regex(
    (await entrepot(env, 'account', 'bills', '--key')).stderr,
    /There is no key yet: "\S.* account bills on" makes it/,
  );
  t.false(existsSync(join(server.data, 'secret-key')));
  const { enabled, public_key: pem } = JSON.parse((await entrepot(env, 'account', 'bills', 'on')).stdout) as {
    enabled: boolean;
    public_key: string;
  };
  t.true(enabled);
  t.is((await entrepot(env, 'account', 'bills', '--key')).stdout, pem);
  t.deepEqual(await (await server.fetch(path)).json(), { enabled: true, public_key: pem });
  t.regex((await entrepot(env, 'account', 'bills', 'yes')).stderr, /yes: expected on or off/);
  // Without the key, an account can still end its bills.
  await rm(join(server.data, 'secret-key'));
  const without = await startTestServer(t, { data: server.data });
  t.deepEqual(await (await without.fetch(path)).json(), { enabled: true, public_key: null });
  t.is((await sendJson(without, 'PUT', path, { enabled: true })).status, 503);
  const off = await sendJson(without, 'PUT', path, { enabled: false });
  t.deepEqual(await off.json(), { enabled: false, public_key: null });
  const unrecorded = await startTestServer(t, { usage: { keepPulls: '0d' } });
  t.is((await sendJson(unrecorded, 'PUT', path, { enabled: true })).status, 400);
  // Keys with leading zeros are as good as others.
  for (const byte of [0, 1, 255]) {
    const key = observedKeyOf(Buffer.alloc(40, byte));
    t.is(observedKeyOf(Buffer.alloc(40, byte)).publicKey, key.publicKey);
    t.is(createPublicKey(key.publicKey).asymmetricKeyDetails?.namedCurve, 'prime256v1');
  }
});

test('a push whose account wants no bills any more waits for no key', async (t) => {
  const { server, issuer } = await startPair(t);
  server.clock.now = Date.UTC(2026, 10, 25, 12);
  await createRule(server);
  t.is((await sendJson(server, 'PUT', path, { enabled: true })).status, 200);
  const { body } = await exchange(server, await issuer.sign(fromRepository));
  await push(new TestRepository(server, 'team/app', body['access_token'] as string), 'v1');
  await flushUsage(server);
  server.clock.now += settled;
  await rm(join(server.data, 'secret-key'));
  await t.throwsAsync(makeBills(server), { message: /The key that .* signs bills of materials is missing/ });
  t.is((await sendJson(server, 'PUT', path, { enabled: false })).status, 200);
  await t.notThrowsAsync(makeBills(server));
  t.deepEqual(await rowsOf(server, 'SELECT is_due FROM observed_pushes'), [{ is_due: 0 }]);
});
