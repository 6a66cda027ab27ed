import test from 'ava';
import { DomainError } from '../../src/runtime/errors.ts';
import { databaseOf, rowsOf } from '../support/inside.ts';
import { day, now, putPolicy, startMirrors } from '../support/policy.ts';
import { ociIndex, ociManifest } from '../support/registry.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { dialects } from '../support/databases.ts';

// What refers to images, such as signatures, under an age of images.

const listOf = (manifests: readonly object[]) =>
  answer(200, { 'content-type': ociIndex }, JSON.stringify({ schemaVersion: 2, manifests }));

for (const dialect of dialects) {
  test(`${dialect}: what refers to an image is open with it, if the upstream listed it then, and else when it is old enough`, async (t) => {
    const { registry, server } = await startMirrors(t, dialect);
    const { config, manifest: subject } = registry.image('team/app', 'latest');
    const referrer = (name: string) =>
      registry.manifest('team/app', {
        schemaVersion: 2,
        mediaType: ociManifest,
        artifactType: `application/${name}`,
        config,
        layers: [],
        subject,
      });
    const [signature, bad] = [referrer('signature'), referrer('bad')];
    registry.on(`/v2/team/app/referrers/${subject.digest}`, listOf([signature, bad]));
    const rules = [{ name: 'bad', digests: [bad.digest], verdict: 'deny' }];
    await putPolicy(server, { minimumAge: { images: '2d' }, rules });
    const statusOf = async (reference: string) =>
      (await server.fetch(`/v2/registry.test/team/app/manifests/${reference}`)).status;
    const shown = async () => {
      const response = await server.fetch(`/v2/registry.test/team/app/referrers/${subject.digest}`);
      return ((await response.json()) as { manifests: { digest: string }[] }).manifests.map(({ digest }) => digest);
    };

    t.is(await statusOf('latest'), 403);
    server.clock.now = now + 2 * day - 1;
    t.deepEqual(await shown(), [bad.digest], 'lists show what is denied');
    t.is(await statusOf(signature.digest), 403);
    server.clock.now = now + 2 * day;
    t.is(await statusOf('latest'), 200);
    t.deepEqual(await shown(), [signature.digest, bad.digest].toSorted());
    for (let time = 0; time < 2; time += 1) t.is(await statusOf(signature.digest), 200, 'also when it is stored');
    t.is(await statusOf(bad.digest), 403);

    // Anybody who can push can let new content refer to old content.
    const later = referrer('later');
    registry.on(`/v2/team/app/referrers/${subject.digest}`, listOf([signature, bad, later]));
    server.clock.now += 60_000;
    t.false((await shown()).includes(later.digest));
    t.is(await statusOf(later.digest), 403);
    server.clock.now += 2 * day;
    t.true((await shown()).includes(later.digest));
    t.is(await statusOf(later.digest), 200);
  });
}

test('what refers to an image is not noted without an age, and a failing list refuses nothing in another way', async (t) => {
  const { registry, server } = await startMirrors(t);
  const { config, manifest: subject } = registry.image('team/app', 'latest');
  const manifest = { schemaVersion: 2, mediaType: ociManifest, config, layers: [], subject };
  const manifests = [registry.manifest('team/app', manifest)];
  const path = `/v2/team/app/referrers/${subject.digest}`;
  registry.on(path, listOf(manifests));
  const referrers = async () => (await server.fetch(`/v2/registry.test/team/app/referrers/${subject.digest}`)).json();
  t.like(await referrers(), { manifests: [{ digest: manifests[0]!.digest }] });
  t.deepEqual(await rowsOf(server, "SELECT * FROM history WHERE kind = 'listed'"), []);

  await putPolicy(server, { minimumAge: { images: '2d' } });
  t.like(await referrers(), { manifests: [] });
  const other = registry.image('team/app', 'other').manifest.digest;
  registry.on(`/v2/team/app/referrers/${other}`, answer(503));
  t.is((await server.fetch('/v2/registry.test/team/app/manifests/other')).status, 403);
});

test('a list of referrers that are held is answered while the database cannot be written, and their age begins later', async (t) => {
  const { registry, server } = await startMirrors(t);
  const { config, manifest: subject } = registry.image('team/app', 'latest');
  const manifest = { schemaVersion: 2, mediaType: ociManifest, config, layers: [], subject };
  const signature = registry.manifest('team/app', manifest);
  registry.on(`/v2/team/app/referrers/${subject.digest}`, listOf([signature]));
  const path = `/v2/registry.test/team/app/referrers/${subject.digest}`;
  t.like(await (await server.fetch(path)).json(), { manifests: [{ digest: signature.digest }] });
  await putPolicy(server, { minimumAge: { images: '2d' } });
  const database = databaseOf(server);
  const transaction = database.transaction.bind(database);
  const unavailable = new DomainError('DatabaseUnavailable', 'The database cannot be written.');
  Object.assign(database, { transaction: () => Promise.reject(unavailable) });
  const answered = await server.fetch(path);
  t.is(answered.status, 200);
  t.like(await answered.json(), { manifests: [] });
  Object.assign(database, { transaction });
  t.deepEqual(await rowsOf(server, "SELECT * FROM history WHERE kind = 'listed'"), []);
  t.is((await server.fetch(path)).status, 200);
  t.like(await rowsOf(server, "SELECT * FROM history WHERE kind = 'listed'"), [{ reference: signature.digest }]);
});
